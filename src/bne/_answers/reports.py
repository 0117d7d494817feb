"""What `decompose`, `detect_bias` and `explain_weights` return: labelled arrays, plain words."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from bne._answers.bias import BiasSummary
from bne._answers.uncertainty import NAMES
from bne._base.typing import Array


@dataclass(frozen=True, eq=False)
class Decomposition:
    """Uncertainty of y at N rows, split by where it comes from; every part is (N,).

    ``total = aleatoric + epistemic``, and ``epistemic = parametric + structural_delta +
    structural_G + hyperparameters``. Entropies are in nats, variances in squared units of y.
    ``structural_G`` is a remainder and may be negative: where the noise is low, knowing G can make
    the mean *more* certain.

    Attributes
    ----------
    total, aleatoric, epistemic, parametric, structural_delta, structural_G, hyperparameters : (N,)
    errors : dict
        Monte-Carlo standard error of each.
    mean : (N,)
        Predictive mean.
    measure : {"entropy", "variance"}
    """

    total: Array
    aleatoric: Array
    epistemic: Array
    parametric: Array
    structural_delta: Array
    structural_G: Array
    hyperparameters: Array
    errors: Mapping[str, Array]
    mean: Array
    measure: str
    index: pd.Index

    def to_frame(self, errors: bool = False) -> pd.DataFrame:
        """One column a part, and with `errors` one for the Monte-Carlo error of each."""
        columns = {name: getattr(self, name) for name in NAMES}
        if errors:
            columns |= {f"{name}_error": self.errors[name] for name in NAMES}
        return pd.DataFrame(columns, index=self.index)

    def bands(self, coverage: float = 0.9) -> pd.DataFrame:
        """The band around the predictive mean that each part alone would give, were it Gaussian.

        Columns are (part, "lower") and (part, "upper"); NaN where a part is negative.
        """
        if self.measure != "variance":
            raise ValueError(
                f"Bands need variances; got measure={self.measure!r}. Call "
                '`decompose(X, measure="variance")`.'
            )
        z = special.ndtri(0.5 + 0.5 * coverage)
        columns = {}
        for name in NAMES:
            variance = getattr(self, name)
            half = z * np.sqrt(np.where(variance < 0, np.nan, variance))
            columns[name, "lower"], columns[name, "upper"] = self.mean - half, self.mean + half
        return pd.DataFrame(columns, index=self.index)


WORDS = {
    "mean": ("models too high here", "models too low here"),
    "variance": ("noise smaller than the Gaussian fit", "noise larger than the Gaussian fit"),
    "skewness": ("noise skewed to the left", "noise skewed to the right"),
    "modes": ("no mode", "more than one mode"),
}
QUANTILE_WORDS = ("quantile below the Gaussian fit", "quantile above the Gaussian fit")


@dataclass(frozen=True, eq=False)
class BiasReport:
    """Where the models are wrong about a statistic of y given x.

    Attributes
    ----------
    delta, G, total : BiasSummary
        What the residual process and the calibration function change, and what the models under
        their best weights are wrong by: ``mean``, ``lower``, ``upper``, ``prob_positive`` and
        ``evidence``, (N,) each.
    statistic : str or float
    threshold : float
        Probability from which on the verdict speaks.
    """

    delta: BiasSummary
    G: BiasSummary
    total: BiasSummary
    statistic: str | float
    threshold: float
    index: pd.Index

    @property
    def verdict(self) -> list[str]:
        """A sentence for every row, about the total."""
        words = WORDS.get(str(self.statistic), QUANTILE_WORDS)
        return [self._sentence(p, words) for p in self.total.prob_positive]

    def _sentence(self, probability: float, words: tuple[str, str]) -> str:
        sure = max(probability, 1.0 - probability)
        if sure < self.threshold:
            return f"no clear bias, probability {sure:.2f}"
        return f"{words[int(probability > 0.5)]}, probability {sure:.2f}"

    def to_frame(self) -> pd.DataFrame:
        """Columns ``delta_mean`` to ``delta_evidence``, those of ``G`` and ``total``, and words."""
        columns = {}
        for name in ("delta", "G", "total"):
            summary: BiasSummary = getattr(self, name)
            columns |= {f"{name}_{k}": v for k, v in summary._asdict().items()}
            columns[f"{name}_evidence"] = summary.evidence
        return pd.DataFrame(columns | {"verdict": self.verdict}, index=self.index)
