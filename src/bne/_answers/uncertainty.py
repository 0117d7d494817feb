"""Where the uncertainty of a prediction comes from (Eq. 7): entropies and variances, in parts.

From the full stage: ``total = H[E f]``, ``aleatoric = E H[f]`` and their difference, the epistemic
part, over posterior draws of the conditional density f. From the additive stage, given each draw of
its hyperparameters, the closed-form variances of the experts' part alone (v1) and of the whole mean
(v2) give what not knowing the weights, delta and the hyperparameters contributes. What is left of
the epistemic part is G's. Nothing is clipped.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from bne._answers.closed_form import ClosedForm, GaussianMoments
from bne._answers.fitted import Fitted
from bne._base.divergence import NODES, divergences, equispaced
from bne._base.threads import single_blas_thread
from bne._base.typing import Array
from bne._data.rows import Rows
from bne._draws.stage import Stage
from bne._law.averaged import AveragedDistribution
from bne._law.conditional import ConditionalDraws, chunks, conditional_draws
from bne._law.numerics import invert

PARTS = ("parametric", "structural_delta", "structural_G", "hyperparameters")

NAMES = ("total", "aleatoric", "epistemic", *PARTS)

CLOSED = ("parametric", "structural_delta", "hyperparameters")
"""Parts that the additive stage knows in closed form: one for each term, and the rest."""

TAIL = 1e-8
"""Mass of the mixture beyond either end of the grid."""

BATCHES = 20
"""Draws are averaged in this many batches, whose spread gives the Monte-Carlo error."""


class Parts(NamedTuple):
    """Each part at N rows, and its Monte-Carlo standard error: dictionaries of (N,) arrays.

    ``mean`` (N,) is the predictive mean in the model's units, where G made it known on the way.
    """

    values: Mapping[str, Array]
    errors: Mapping[str, Array]
    mean: Array | None = None


def decompose(fitted: Fitted, rows: Rows, measure: str, stage: str) -> tuple[Parts, Array]:
    """Split the uncertainty of a stage at N rows, averaged over shards if there are several.

    Entropies are in nats, variances in squared units of y. The predictive mean comes along, in
    units of y.
    """
    if measure not in MEASURES:
        raise ValueError(f"`measure` must be one of {list(MEASURES)}; got {measure!r}.")
    law, scale = fitted.law(rows, stage), fitted.scaling.y_scale
    with single_blas_thread():
        parts = [
            decompose_shard(whole, closed, rows, measure, scale)
            for whole, closed in zip(fitted.thinned(stage), fitted.closed(stage), strict=True)
        ]
        averaged = parts[0]
        if isinstance(law, AveragedDistribution):
            total = law.entropy() if measure == "entropy" else law.var()
            averaged = average_parts(parts, total)
    known = averaged.mean
    mean = law.mean() if known is None else fitted.scaling.undo_outcome(known)
    return averaged, mean


def decompose_shard(
    whole: Stage, gaussian: ClosedForm, rows: Rows, measure: str, y_scale: float
) -> Parts:
    """Split the uncertainty of one posterior; the mean stays in the model's units."""
    draws = len(gaussian.sigma_eps) if whole.features is None else whole.draws.size
    nodes = NODES if measure == "entropy" else 1
    pieces = []
    for part in chunks(len(rows.f), draws * max(nodes, whole.row_elements)):
        here = rows.part(part)
        of_full = None if whole.features is None else conditional_draws(whole, here)
        pieces.append(split(of_full, gaussian.moments(here), measure, y_scale))
    mean = None
    if whole.features is not None:
        mean = np.concatenate([piece.mean for piece in pieces if piece.mean is not None])
    values, errors = (
        {k: np.concatenate([getattr(piece, field)[k] for piece in pieces]) for k in NAMES}
        for field in ("values", "errors")
    )
    return Parts(values, errors, mean)


def split(
    full: ConditionalDraws | None, moments: GaussianMoments, measure: str, y_scale: float
) -> Parts:
    """The parts at a few rows; `full` is None where G = I."""
    draws = _by_draw(full, moments, measure)
    has_G = full is not None
    values = _completed({k: np.mean(d, axis=0) for k, d in draws.items()}, has_G, -1.0)
    squares = _completed({k: batch_variance(d) for k, d in draws.items()}, has_G, 1.0)
    mean = values.pop("mean", None)
    errors = {name: np.sqrt(squares[name]) for name in NAMES}
    if measure == "variance":
        values, errors = ({k: d[k] * y_scale**2 for k in NAMES} for d in (values, errors))
        return Parts(values, errors, mean)
    shift = {"total": np.log(y_scale), "aleatoric": np.log(y_scale)}
    return Parts({k: values[k] + shift.get(k, 0.0) for k in NAMES}, errors, mean)


def mean_variances(
    full: ConditionalDraws | None, moments: GaussianMoments, y_scale: float
) -> dict[str, Array]:
    """Parts of the variance without their errors: moments of an `AveragedForm` will do."""
    draws = _by_draw(full, moments, "variance")
    means = {k: np.mean(d, axis=0) for k, d in draws.items()}
    values = _completed(means, full is not None, -1.0)
    return {name: values[name] * y_scale**2 for name in NAMES}


def _by_draw(
    full: ConditionalDraws | None, moments: GaussianMoments, measure: str
) -> dict[str, Array]:
    """Parts that draws of either stage know by themselves."""
    of_full, of_gaussian = MEASURES[measure]
    return of_gaussian(moments) | ({} if full is None else of_full(full))


def _completed(parts: dict[str, Array], has_G: bool, sign: float) -> dict[str, Array]:
    """With what follows from the others: values are taken off each other, squared errors add."""
    known = np.sum([parts[name] for name in CLOSED], axis=0)
    epistemic = parts["epistemic"] if has_G else known
    structural_G = epistemic + sign * known if has_G else np.zeros_like(known)
    total = parts["aleatoric"] + epistemic
    return parts | {"epistemic": epistemic, "structural_G": structural_G, "total": total}


def batch_variance(draws: Array) -> Array:
    """Squared Monte-Carlo error of the mean over correlated draws (S, N), by batch means: (N,)."""
    S = len(draws)
    B = min(BATCHES, S)
    means = np.stack([np.mean(b, axis=0) for b in np.array_split(draws, B)])
    return np.var(means, axis=0, ddof=1) / B if B > 1 else np.zeros(draws.shape[1])


def _entropy_full(draws: ConditionalDraws) -> dict[str, Array]:
    """Entropy of every draw, and its divergence from the average density."""
    n = draws.mu.shape[1]
    low, high = invert(draws, np.tile([TAIL, 1.0 - TAIL], (n, 1))).T
    return {
        "mean": draws.moments()[0],
        "aleatoric": draws.entropy(),
        "epistemic": draws.divergences(low, high),
    }


def _entropy_gaussian(moments: GaussianMoments) -> dict[str, Array]:
    """The additive stage's parts, a number for each draw of the hyperparameters."""
    noise, whole = moments.sigma_eps[:, None] ** 2, moments.variances[-1]
    sd = np.sqrt(noise + whole)
    low, high = np.min(moments.mean - 6.0 * sd, axis=0), np.max(moments.mean + 6.0 * sd, axis=0)
    y, step = equispaced(low, high)
    t = (y[None] - moments.mean[:, :, None]) / sd[:, :, None]
    f = np.exp(-0.5 * t**2) / (np.sqrt(2.0 * np.pi) * sd[:, :, None])
    first, *others = moments.variances
    parts = [0.5 * np.log1p(first / noise)]
    for before, after in pairwise((first, *others)):
        parts.append(0.5 * np.log((noise + after) / (noise + before)))
    return _by_term(moments.parts, parts) | {
        "aleatoric": np.broadcast_to(0.5 * np.log(2.0 * np.pi * np.e * noise), sd.shape),
        "hyperparameters": divergences(f, step),
    }


def _by_term(names: Sequence[str], parts: Sequence[Array]) -> dict[str, Array]:
    """Parts by name; a term that a stage does not have has none of the uncertainty."""
    found = {name: np.zeros_like(parts[0]) for name in CLOSED}
    for name, part in zip(names, parts, strict=True):
        found[name] = found[name] + part
    return found


def _variance_full(draws: ConditionalDraws) -> dict[str, Array]:
    """The law of total variance over the draws."""
    mean, variance = draws.moments()
    about = mean - np.mean(mean, axis=0)[None]
    return {"mean": mean, "aleatoric": variance, "epistemic": about**2}


def _variance_gaussian(moments: GaussianMoments) -> dict[str, Array]:
    """The additive stage's parts, a number for each draw of the hyperparameters."""
    about = moments.mean - np.mean(moments.mean, axis=0)[None]
    first, *others = moments.variances
    steps = [first, *(after - before for before, after in pairwise((first, *others)))]
    return _by_term(moments.parts, steps) | {
        "aleatoric": np.broadcast_to(moments.sigma_eps[:, None] ** 2, about.shape),
        "hyperparameters": about**2,
    }


MEASURES = {
    "entropy": (_entropy_full, _entropy_gaussian),
    "variance": (_variance_full, _variance_gaussian),
}


def average_values(values: Sequence[Mapping[str, Array]], total: Array) -> dict[str, Array]:
    """Parts of the whole's uncertainty: shard means, but the total is the averaged law's.

    What is left of the total is aleatoric: a shard's G follows its few rows too closely, and finds
    too little noise.
    """
    means = {k: np.mean([v[k] for v in values], axis=0) for k in NAMES}
    return means | {"total": total, "aleatoric": total - means["epistemic"]}


def average_parts(parts: Sequence[Parts], total: Array) -> Parts:
    """`average_values` with errors, and the mean."""
    values = average_values([p.values for p in parts], total)
    errors = {
        k: np.sqrt(np.sum([p.errors[k] ** 2 for p in parts], axis=0)) / len(parts) for k in NAMES
    }
    means = [p.mean for p in parts if p.mean is not None]
    return Parts(values, errors, np.mean(means, axis=0) if means else None)
