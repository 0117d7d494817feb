"""All answers at the rows of a frame as one wide table, in chunks: memory does not grow."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from joblib import delayed

from bne._answers.best_weights import best_weights
from bne._answers.bias import summarise_bias
from bne._answers.closed_form import AveragedForm
from bne._answers.columns import QUANTILES, AtRows, columns
from bne._answers.fitted import Fitted
from bne._answers.uncertainty import average_values, mean_variances
from bne._base.parallel import parallel
from bne._base.threads import single_blas_thread
from bne._base.typing import Array
from bne._data.rows import Rows
from bne._data.scaling import Scaling
from bne._draws.stage import Stage
from bne._law.averaged import average_draws, make_law
from bne._law.conditional import conditional_draws
from bne._law.distribution import check_quantiles
from bne._law.numerics import invert

CHUNK = 128
"""Rows at a time."""

TASK = 2048
"""Rows that a worker is given: enough to be worth sending the model for."""


class Answerer(NamedTuple):
    """What the answers at any row need of a fitted model, worked out once.

    Attributes
    ----------
    wholes, weights, gaussians : lists of Stage, of its best weights (S, K) and of AveragedForm
        One of each for every shard.
    """

    wholes: list[Stage]
    weights: list[Array]
    gaussians: list[AveragedForm]
    scaling: Scaling
    levels: tuple[float, ...]

    def __call__(self, rows: Rows) -> dict[str, Array]:
        """Columns of the table at a few rows."""
        at = self._at(rows)
        return {column.name: column.values(at) for column in columns(self.levels)}

    def _at(self, rows: Rows) -> AtRows:
        """What the columns are made from, averaged over shards."""
        scaling = self.scaling
        parts = zip(self.wholes, self.weights, self.gaussians, strict=True)
        with single_blas_thread():  # draws of one shard at a time
            found = [self._of_shard(*part, rows) for part in parts]
        variances = [one.variances for one in found]
        whole, variance = variances[0], found[0].variance * scaling.y_scale**2
        if len(found) > 1:
            variance = make_law(self.wholes, rows, scaling).var()
            whole = average_values(variances, variance)
        mean = np.mean([one.mean for one in found], axis=0)
        quantiles = scaling.undo_outcome(np.mean([one.quantiles for one in found], axis=0)).T
        return AtRows(
            mean=scaling.undo_outcome(mean),
            variance=variance,
            quantiles=dict(zip(self.levels, quantiles, strict=True)),
            parts=whole,
            bias=summarise_bias(average_draws([one.missed for one in found]), 0.9),
        )

    def _of_shard(
        self, whole: Stage, weights: Array, gaussian: AveragedForm, rows: Rows
    ) -> "_OfShard":
        """Answers of one posterior, and nothing that is as large as its draws of G."""
        draws, scale = conditional_draws(whole, rows), self.scaling.y_scale
        quantiles = invert(draws, np.tile(self.levels, (len(rows.f), 1)))
        mean, variance = draws.moments()
        has_G = draws.ratio is not None
        return _OfShard(
            quantiles,
            scale * (mean - weights @ rows.f.T),
            np.mean(mean, axis=0),
            np.mean(variance, axis=0) + np.var(mean, axis=0),
            mean_variances(draws if has_G else None, gaussian.moments(rows), scale),
        )


class _OfShard(NamedTuple):
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


def prepare(fitted: Fitted, quantiles: Sequence[float] = QUANTILES) -> Answerer:
    """Everything that does not depend on the rows."""
    check_quantiles(quantiles)
    wholes = fitted.thinned("full")
    weights = [best_weights(whole, fitted.posterior.rows) for whole in wholes]
    gaussians = [closed.averaged() for closed in fitted.closed("full")]
    return Answerer(wholes, weights, gaussians, fitted.scaling, tuple(quantiles))


def answers(
    answerer: Answerer,
    rows: Rows,
    *,
    n_jobs: int | None = None,
    progress: Callable[[int], object] = lambda n: None,
) -> dict[str, Array]:
    """Columns of the table at N rows, in tasks for joblib's workers where there are several."""
    N = len(rows.f)
    parts = list(_slices(N, TASK))
    if n_jobs in (None, 1) or len(parts) == 1:
        tables = (answerer(rows.part(part)) for part in _slices(N, CHUNK))
    else:
        work = (delayed(in_chunks)(answerer, rows.part(part)) for part in parts)
        tables = parallel(n_jobs, "generator")(work)
    kept = []
    for table in tables:
        kept.append(table)
        progress(len(table["mean"]))
    return _joined(kept)


def in_chunks(answerer: Answerer, rows: Rows) -> dict[str, Array]:
    """Columns of the table at many rows."""
    return _joined([answerer(rows.part(part)) for part in _slices(len(rows.f), CHUNK)])


def _joined(tables: list[dict[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([t[name] for t in tables]) for name in tables[0]}


def _slices(n: int, size: int) -> Iterator[slice]:
    for first in range(0, n, size):
        yield slice(first, min(first + size, n))
