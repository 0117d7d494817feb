"""All answers at many rows as one wide table.

The rows are answered in chunks, so that only the table itself grows with their number.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from joblib import delayed

from bne._answers.best_weights import best_weights
from bne._answers.bias import summarise_bias
from bne._answers.closed_form import AveragedForm
from bne._answers.columns import QUANTILES, AtRows, column_names, columns
from bne._answers.fitted import Fitted
from bne._answers.uncertainty import average_values, mean_variances
from bne._base.checks import check_levels
from bne._base.parallel import parallel
from bne._base.threads import single_blas_thread
from bne._base.typing import Array
from bne._data.rows import Rows
from bne._data.scaling import Scaling
from bne._draws.stage import Stage
from bne._law.averaged import average_draws, make_law
from bne._law.conditional import conditional_draws
from bne._law.numerics import invert

CHUNK = 128
"""Rows that are answered at a time. Larger chunks need more memory, smaller ones more calls."""

TASK = 2048
"""Rows in the task of one worker.

The model is sent along with every task. So a task must be large enough to be worth that, and small
enough that all workers have work.
"""


class Answerer(NamedTuple):
    """All quantities that the answers need at every row, worked out once.

    Attributes
    ----------
    wholes : list of Stage
        The full stage of every shard.
    weights : list of (S, K)
        The best weights of every shard.
    gaussians : list of AveragedForm
        The averaged closed form of every shard's Gaussian stage.
    scaling : Scaling
        The map between the user's units and the model's.
    levels : tuple of float
        Levels of the quantiles.
    """

    wholes: list[Stage]
    weights: list[Array]
    gaussians: list[AveragedForm]
    scaling: Scaling
    levels: tuple[float, ...]

    def __call__(self, rows: Rows) -> dict[str, Array]:
        """Return the columns of the table at a few rows."""
        at = self._at(rows)
        return {column.name: column.values(at) for column in columns(self.levels)}

    def _at(self, rows: Rows) -> AtRows:
        """Find the answers from which the columns are made, averaged over shards."""
        scaling = self.scaling
        parts = zip(self.wholes, self.weights, self.gaussians, strict=True)
        with single_blas_thread():  # one shard at a time: its draws take much memory
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
        """Find the answers of one shard, and free its draws of G: they take the most memory."""
        draws, scale = conditional_draws(whole, rows), self.scaling.y_scale
        quantiles = invert(draws, np.tile(self.levels, (len(rows.f), 1)))
        has_G = draws.ratio is not None
        return _OfShard(
            quantiles,
            scale * (draws.moments()[0] - weights @ rows.f.T),
            *draws.total_moments(),
            mean_variances(draws if has_G else None, gaussian.moments(rows), scale),
        )


class _OfShard(NamedTuple):
    """Answers of one shard at n rows.

    Attributes
    ----------
    quantiles : (n, Q)
        Predictive quantiles, in the model's units.
    missed : (S, n)
        Draws of the bias, E[y|x] minus the experts under their best weights, in units of y.
    mean, variance : (n,)
        Mean and variance of the predictive distribution, in the model's units.
    variances : dict of str to (n,)
        Parts of the variance, by name, in squared units of y.
    """

    quantiles: Array
    missed: Array
    mean: Array
    variance: Array
    variances: dict[str, Array]


def prepare(fitted: Fitted, quantiles: Sequence[float] = QUANTILES) -> Answerer:
    """Work out everything that does not depend on the rows to predict."""
    check_levels(quantiles, "quantiles")
    names = column_names(quantiles)
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(
            f"`quantiles` has several levels whose column is {', '.join(repeated)}; got "
            f"{list(quantiles)}. Leave one of them out."
        )
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
    """Return the columns of the table at N rows.

    With several jobs the rows are split into tasks for joblib's workers. `progress` is called with
    the number of rows just done.
    """
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
    """Return the columns of the table at the rows of one task, chunk by chunk."""
    return _joined([answerer(rows.part(part)) for part in _slices(len(rows.f), CHUNK)])


def _joined(tables: list[dict[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([t[name] for t in tables]) for name in tables[0]}


def _slices(n: int, size: int) -> Iterator[slice]:
    for first in range(0, n, size):
        yield slice(first, min(first + size, n))
