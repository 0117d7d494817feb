"""The objects that `decompose` and `detect_bias` return: labelled arrays and plain words."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from bne._answers.bias import BiasSummary
from bne._answers.uncertainty import NAMES
from bne._base.checks import check_levels
from bne._base.typing import Array


@dataclass(frozen=True, eq=False)
class Decomposition:
    """Uncertainty of y at N rows, split by where it comes from (Eq. 7); every part is (N,).

    ``total = aleatoric + epistemic``, and ``epistemic = parametric + structural_delta +
    structural_G + hyperparameters``. Entropies are in nats, variances in squared units of y.
    ``structural_G`` is a remainder and may be negative: where the noise is low, knowing G can make
    the mean *more* certain.

    Attributes
    ----------
    total : (N,)
        Uncertainty of a new observation.
    aleatoric : (N,)
        Noise: how much observations scatter by themselves.
    epistemic : (N,)
        What more data could reduce: the sum of the four parts that follow.
    parametric : (N,)
        The share of not knowing the weights of the models.
    structural_delta : (N,)
        The share of not knowing the residual process.
    structural_G : (N,)
        The share of not knowing the calibration function.
    hyperparameters : (N,)
        The share of not knowing the scales and length-scales.
    errors : dict of str to (N,)
        Monte-Carlo standard error of each part, by name.
    mean : (N,)
        Predictive mean.
    measure : {"entropy", "variance"}
        The measure of uncertainty.
    index : pandas.Index
        Labels of the rows.
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
        """Return a frame with a column for each part, and with `errors` one for each error."""
        columns = {name: getattr(self, name) for name in NAMES}
        if errors:
            columns |= {f"{name}_error": self.errors[name] for name in NAMES}
        return pd.DataFrame(columns, index=self.index)

    def bands(self, coverage: float = 0.9) -> pd.DataFrame:
        """Return the band around the mean that each part would give if it were alone and Gaussian.

        The columns are (part, "lower") and (part, "upper"). They are NaN where a part is negative.
        """
        if self.measure != "variance":
            raise ValueError(
                f"Bands need variances; got measure={self.measure!r}. Call "
                '`decompose(X, measure="variance")`.'
            )
        check_levels(coverage, "coverage")
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
"""Words of the verdict on each statistic: for a negative and for a positive difference."""

QUANTILE_WORDS = ("quantile below the Gaussian fit", "quantile above the Gaussian fit")
"""Words of the verdict on the median and on quantiles."""


@dataclass(frozen=True, eq=False)
class BiasReport:
    """Where the models are wrong about a statistic of y given x (Eq. 5).

    Each `BiasSummary` has ``mean``, ``lower``, ``upper``, ``prob_positive`` and ``evidence``, (N,)
    each.

    Attributes
    ----------
    delta : BiasSummary
        What the residual process changes.
    G : BiasSummary
        What the calibration function changes.
    total : BiasSummary
        The error of the models under their best weights.
    statistic : str or float
        The statistic: a name, or a quantile level.
    threshold : float
        The verdict names a bias if its probability is at least this.
    index : pandas.Index
        Labels of the rows.
    """

    delta: BiasSummary
    G: BiasSummary
    total: BiasSummary
    statistic: str | float
    threshold: float
    index: pd.Index

    @property
    def verdict(self) -> list[str]:
        """One sentence for every row, about the total."""
        words = WORDS.get(str(self.statistic), QUANTILE_WORDS)
        return [self._sentence(p, words) for p in self.total.prob_positive]

    def _sentence(self, probability: float, words: tuple[str, str]) -> str:
        sure = max(probability, 1.0 - probability)
        if sure < self.threshold:
            return f"no clear bias, probability {sure:.2f}"
        return f"{words[int(probability > 0.5)]}, probability {sure:.2f}"

    def to_frame(self) -> pd.DataFrame:
        """Return a frame with all summaries and the verdict.

        The columns are ``delta_mean`` to ``delta_evidence``, the same for ``G`` and ``total``, and
        ``verdict``.
        """
        columns = {}
        for name in ("delta", "G", "total"):
            summary: BiasSummary = getattr(self, name)
            columns |= {f"{name}_{k}": v for k, v in summary._asdict().items()}
            columns[f"{name}_evidence"] = summary.evidence
        return pd.DataFrame(columns | {"verdict": self.verdict}, index=self.index)
