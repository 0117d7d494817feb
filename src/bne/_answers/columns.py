"""The columns of the wide table of answers: each is declared once, in `columns`.

`bne predict` and the report write these columns. The page `docs/shell.md` shows `as_markdown()`,
and a test compares the two. To add a column, add a line to `columns`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bne._answers.bias import BiasSummary
from bne._answers.uncertainty import NAMES
from bne._base.typing import Array

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Default levels of the quantiles: the median, and the ends of 50% and 90% intervals."""


class AtRows(NamedTuple):
    """The answers from which the columns are made, at n rows and in units of y.

    Attributes
    ----------
    mean, variance : (n,)
        Mean and variance of the predictive distribution.
    quantiles : dict of float to (n,)
        Predictive quantiles, by level.
    parts : dict of str to (n,)
        Parts of the variance, by name.
    bias : BiasSummary
        E[y|x] minus the experts' sum under their best weights.
    """

    mean: Array
    variance: Array
    quantiles: Mapping[float, Array]
    parts: Mapping[str, Array]
    bias: BiasSummary


class Column(NamedTuple):
    """One column: its name, its unit, what it says, and the function that makes it."""

    name: str
    unit: str
    text: str
    values: Callable[[AtRows], Array]


def _quantile(level: float) -> Column:
    text = f"Quantile at the level {level:g} of the predictive distribution."
    return Column(quantile_name(level), "y", text, lambda at: at.quantiles[level])


def _part(name: str) -> Column:
    return Column(f"variance_{name}", "y²", PART_TEXTS[name], lambda at: at.parts[name])


PART_TEXTS = {
    "total": "Variance of a new observation: the sum of aleatoric and epistemic.",
    "aleatoric": "Noise: how much observations scatter by themselves.",
    "epistemic": "What more data could reduce: the sum of the four parts that follow.",
    "parametric": "Because the weights of the models are not known exactly.",
    "structural_delta": "Because all models may be wrong at the same place.",
    "structural_G": "Because the shape of the noise is not known exactly. It may be negative.",
    "hyperparameters": "Because scales and length-scales are not known exactly.",
}
"""Description of each part of the variance."""


def columns(levels: Sequence[float] = QUANTILES) -> list[Column]:
    """Declare the columns of the table, in their order, with quantiles at these levels."""
    return [
        Column("mean", "y", "Mean of the predictive distribution.", lambda at: at.mean),
        Column(
            "sd",
            "y",
            "Standard deviation of the predictive distribution.",
            lambda at: np.sqrt(at.variance),
        ),
        *(_quantile(level) for level in levels),
        *(_part(name) for name in NAMES),
        Column(
            "bias",
            "y",
            "What the models under their best weights are wrong by; above 0 they are too low.",
            lambda at: at.bias.mean,
        ),
        Column(
            "prob_models_too_low",
            "probability",
            "Probability that the models under their best weights are too low.",
            lambda at: at.bias.prob_positive,
        ),
    ]


def column_names(levels: Sequence[float] = QUANTILES) -> list[str]:
    """Return the names of the columns, in their order."""
    return [column.name for column in columns(levels)]


def quantile_name(level: float) -> str:
    """Name the column of a quantile: ``q05`` for .05, ``q97.5`` for .975."""
    percent = f"{100 * level:g}"
    return "q" + (percent.zfill(2) if "." not in percent else percent)


def as_markdown(levels: Sequence[float] = QUANTILES) -> str:
    """Write the declarations as a Markdown table for the docs."""
    lines = ["| column | unit | what it says |", "| --- | --- | --- |"]
    lines += [f"| `{c.name}` | {c.unit} | {c.text} |" for c in columns(levels)]
    return "\n".join(lines)
