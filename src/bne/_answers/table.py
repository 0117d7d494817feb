"""All answers at the rows of a frame as one wide table, in chunks: memory does not grow."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from joblib import delayed

from bne._answers.bias import summarise
from bne._answers.uncertainty import NAMES, AveragedForm, mean_variances
from bne._base.threads import single_blas_thread
from bne._base.typing import Array
from bne._data.scaling import Scaling
from bne._draws.stage import Rows, Stage
from bne._fitting.shards import average_draws, average_values, make_law, parallel
from bne._law.distribution import check_levels, invert

CHUNK = 128
"""Rows at a time."""

TASK = 2048
"""Rows that a worker is given: enough to be worth sending the model for."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class Answerer(NamedTuple):
    """What the answers at any row need of a fitted model, worked out once.

    Attributes
    ----------
    wholes, weights, gaussians : lists of Stage, of its best weights (S, K) and of AveragedForm
        One of each, or of each shard.
    """

    wholes: list[Stage]
    weights: list[Array]
    gaussians: list[AveragedForm]
    scaling: Scaling
    levels: tuple[float, ...]

    def __call__(self, rows: Rows) -> dict[str, Any]:
        """Columns of the table at a few rows."""
        scaling = self.scaling
        parts = zip(self.wholes, self.weights, self.gaussians, strict=True)
        with single_blas_thread():  # draws of one shard at a time
            found = [self._of_one(*part, rows) for part in parts]
        variances = [one.variances for one in found]
        whole, variance = variances[0], found[0].variance * scaling.y_scale**2
        if len(found) > 1:
            variance = make_law(self.wholes, rows, scaling).var()
            whole = average_values(variances, variance)
        bias = summarise(average_draws([one.missed for one in found]), 0.9)
        mean = np.mean([one.mean for one in found], axis=0)
        quantiles = np.mean([one.quantiles for one in found], axis=0)
        columns = {"mean": scaling.undo_outcome(mean), "sd": np.sqrt(variance)}
        values = scaling.undo_outcome(quantiles).T
        columns |= {quantile_name(q): v for q, v in zip(self.levels, values, strict=True)}
        columns |= {f"variance_{name}": whole[name] for name in NAMES}
        return columns | {"bias": bias.mean, "prob_models_too_low": bias.prob_positive}

    def _of_one(self, whole: Stage, weights: Array, gaussian: AveragedForm, rows: Rows) -> "_One":
        """Answers of one posterior, and nothing that is as large as its draws of G."""
        draws, scale = whole.conditional(rows), self.scaling.y_scale
        quantiles = invert(draws, np.tile(self.levels, (len(rows.f), 1)))
        mean, variance = draws.moments()
        has_G = draws.ratio is not None
        return _One(
            quantiles,
            scale * (mean - weights @ rows.f.T),
            np.mean(mean, axis=0),
            np.mean(variance, axis=0) + np.var(mean, axis=0),
            mean_variances(draws if has_G else None, gaussian.moments(rows), scale),
        )


class _One(NamedTuple):
    """What one posterior says at n rows.

    Attributes
    ----------
    quantiles : (n, Q)
    missed : (S, n)
        Draws of the bias.
    mean, variance : (n,)
        Of its predictive law.
    variances : dict of (n,)
        The parts of its variance.
    """

    quantiles: Array
    missed: Array
    mean: Array
    variance: Array
    variances: dict[str, Array]


def prepare(model: Any, quantiles: Sequence[float] = QUANTILES) -> Answerer:
    """Everything that does not depend on the rows."""
    check_levels(quantiles)
    wholes = model._thinned("full")
    weights = [whole.best_weights(model.posterior_.rows) for whole in wholes]
    gaussians = [closed.averaged() for closed in model._closed("full")]
    return Answerer(wholes, weights, gaussians, model.scaling_, tuple(quantiles))


def answers(
    model: Any,
    X: pd.DataFrame,
    *,
    quantiles: Sequence[float] = QUANTILES,
    n_jobs: int | None = None,
    progress: Callable[[int], object] = lambda n: None,
) -> pd.DataFrame:
    """Mean, sd, quantiles, parts of the variance and probability of bias, one row a row of X.

    Columns: ``mean sd q05 ... variance_total ... variance_hyperparameters bias
    prob_models_too_low``.
    """
    answerer, rows = prepare(model, quantiles), model._rows(X)
    parts = list(_slices(len(X), TASK))
    if n_jobs in (None, 1) or len(parts) == 1:
        tables = (answerer(rows.part(part)) for part in _slices(len(X), CHUNK))
    else:
        work = (delayed(in_chunks)(answerer, rows.part(part)) for part in parts)
        tables = parallel(n_jobs, "generator")(work)
    kept = []
    for table in tables:
        kept.append(table)
        progress(len(table["mean"]))
    return pd.DataFrame(_joined(kept), index=X.index)


def in_chunks(answerer: Answerer, rows: Rows) -> dict[str, Any]:
    """Columns of the table at many rows."""
    return _joined([answerer(rows.part(part)) for part in _slices(len(rows.f), CHUNK)])


def _joined(tables: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.concatenate([t[name] for t in tables]) for name in tables[0]}


def _slices(n: int, size: int) -> Iterator[slice]:
    for first in range(0, n, size):
        yield slice(first, min(first + size, n))


def column_names(answerer: Answerer) -> list[str]:
    """What `answers` calls its columns."""
    quantiles = [quantile_name(q) for q in answerer.levels]
    parts = [f"variance_{name}" for name in NAMES]
    return ["mean", "sd", *quantiles, *parts, "bias", "prob_models_too_low"]


def quantile_name(level: float) -> str:
    """``q05`` for .05, ``q97.5`` for .975."""
    percent = f"{100 * level:g}"
    return "q" + (percent.zfill(2) if "." not in percent else percent)
