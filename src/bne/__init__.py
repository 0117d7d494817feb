"""Bayesian Nonparametric Ensemble: combine models, calibrate, and see why one is unsure.

Public names are imported when they are first used, so that ``import bne`` is quick and does not
import jax.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bne import datasets, metrics
    from bne._answers.reports import BiasReport, Decomposition
    from bne._base.warnings import SamplingWarning
    from bne._law.distribution import PredictiveDistribution
    from bne._regressor.estimator import BNERegressor
    from bne.io import ModelFileError, load

__version__ = "0.1.0"
__all__ = [
    "BNERegressor",
    "BiasReport",
    "Decomposition",
    "ModelFileError",
    "PredictiveDistribution",
    "SamplingWarning",
    "datasets",
    "load",
    "metrics",
]

_HOMES = {
    "BNERegressor": "bne._regressor",
    "BiasReport": "bne._answers.reports",
    "Decomposition": "bne._answers.reports",
    "ModelFileError": "bne.io",
    "PredictiveDistribution": "bne._law.distribution",
    "SamplingWarning": "bne._base.warnings",
    "load": "bne.io",
}


_MODULES = ("baselines", "datasets", "grid", "io", "metrics", "plots", "report", "skpro")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"bne.{name}")
    raise AttributeError(f"module 'bne' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, "__version__"})
