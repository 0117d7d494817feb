"""Where the uncertainty of a prediction comes from (Eq. 7): entropies and variances, in parts.

The full stage gives the whole. Over posterior draws of the conditional density f,
``total = H[E f]`` and ``aleatoric = E H[f]``. Their difference is the epistemic part.

The additive stage gives three parts of it. In each draw of the hyperparameters there are closed
forms of two variances: v1 of the experts' sum in a model without delta, and v2 of the whole mean.
They give the shares of not knowing the weights, delta and the hyperparameters. The rest of the
epistemic part is the share of G. It may be negative, and is never clipped.
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
"""The four parts of the epistemic uncertainty."""

NAMES = ("total", "aleatoric", "epistemic", *PARTS)
"""All numbers that a decomposition reports."""

CLOSED = ("parametric", "structural_delta", "hyperparameters")
"""The parts that the additive stage gives in closed form."""

TAIL = 1e-8
"""Mass of the predictive distribution beyond either end of the grid in y, which is left out."""

BATCHES = 20
"""Number of batches of draws, whose spread gives the Monte-Carlo error.

Fewer batches are longer, and so less correlated with each other; more give a steadier error.
"""


class Parts(NamedTuple):
    """The parts of the uncertainty at N rows.

    Attributes
    ----------
    values, errors : dict of str to (N,)
        Each part, and its Monte-Carlo standard error.
    mean : (N,) or None
        Predictive mean in the model's units. None if the stage has no G; `decompose` then asks the
        law for it.
    """

    values: Mapping[str, Array]
    errors: Mapping[str, Array]
    mean: Array | None = None


def decompose(fitted: Fitted, rows: Rows, measure: str, stage: str) -> tuple[Parts, Array]:
    """Split the uncertainty of a stage at N rows, averaged over shards if there are several.

    Entropies are in nats, variances in squared units of y. The predictive mean is returned as well,
    in units of y.
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
    """Split the uncertainty of one shard; the mean stays in the model's units."""
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
    """Find the parts at a few rows; `full` is None if G = I."""
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
    """Find the parts of the variance without errors; moments of an `AveragedForm` are enough."""
    draws = _by_draw(full, moments, "variance")
    means = {k: np.mean(d, axis=0) for k, d in draws.items()}
    values = _completed(means, full is not None, -1.0)
    return {name: values[name] * y_scale**2 for name in NAMES}


def _by_draw(
    full: ConditionalDraws | None, moments: GaussianMoments, measure: str
) -> dict[str, Array]:
    """Find, in every draw, the parts that need the full stage alone or the Gaussian stage alone."""
    of_full, of_gaussian = MEASURES[measure]
    return of_gaussian(moments) | ({} if full is None else of_full(full))


def _completed(parts: dict[str, Array], has_G: bool, sign: float) -> dict[str, Array]:
    """Add the parts that are sums and differences of others.

    Pass `sign` -1 for values: structural_G is the epistemic part minus the others. Pass +1 for
    squared errors: the squared error of a difference is the sum of the squared errors.
    """
    known = np.sum([parts[name] for name in CLOSED], axis=0)
    epistemic = parts["epistemic"] if has_G else known
    structural_G = epistemic + sign * known if has_G else np.zeros_like(known)
    total = parts["aleatoric"] + epistemic
    return parts | {"epistemic": epistemic, "structural_G": structural_G, "total": total}


def batch_variance(draws: Array) -> Array:
    """Estimate the squared error of the mean of correlated draws (S, N), by batch means: (N,)."""
    S = len(draws)
    B = min(BATCHES, S)
    means = np.stack([np.mean(b, axis=0) for b in np.array_split(draws, B)])
    return np.var(means, axis=0, ddof=1) / B if B > 1 else np.zeros(draws.shape[1])


def _entropy_full(draws: ConditionalDraws) -> dict[str, Array]:
    """Find the entropy of every draw, and its divergence from the average density."""
    n = draws.mu.shape[1]
    low, high = invert(draws, np.tile([TAIL, 1.0 - TAIL], (n, 1))).T
    return {
        "mean": draws.moments()[0],
        "aleatoric": draws.entropy(),
        "epistemic": draws.divergences(low, high),
    }


def _entropy_gaussian(moments: GaussianMoments) -> dict[str, Array]:
    """Find the parts of the entropy in the additive stage, for each draw: (S, N) each."""
    noise, whole = moments.sigma_eps[:, None] ** 2, moments.variances[-1]
    sd = np.sqrt(noise + whole)
    # every draw is Gaussian: 6 sd leave out 2e-9 of it
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
    """Add parts up by name; the part of a term that the stage does not have is 0."""
    found = {name: np.zeros_like(parts[0]) for name in CLOSED}
    for name, part in zip(names, parts, strict=True):
        found[name] = found[name] + part
    return found


def _variance_full(draws: ConditionalDraws) -> dict[str, Array]:
    """Find the parts of the variance in the full stage, by the law of total variance."""
    mean, variance = draws.moments()
    about = mean - np.mean(mean, axis=0)[None]
    return {"mean": mean, "aleatoric": variance, "epistemic": about**2}


def _variance_gaussian(moments: GaussianMoments) -> dict[str, Array]:
    """Find the parts of the variance in the additive stage, for each draw: (S, N) each."""
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
"""Functions of each measure, for the full stage and for the Gaussian stages."""


def average_values(values: Sequence[Mapping[str, Array]], total: Array) -> dict[str, Array]:
    """Average the parts over shards; `total` is that of the averaged law.

    The epistemic parts are means over shards. The aleatoric part is the rest of the total. It is
    not a mean over shards, because G of a shard follows its few rows too closely and finds too
    little noise.
    """
    means = {k: np.mean([v[k] for v in values], axis=0) for k in NAMES}
    return means | {"total": total, "aleatoric": total - means["epistemic"]}


def average_parts(parts: Sequence[Parts], total: Array) -> Parts:
    """Average the parts over shards as `average_values` does, with their errors and the mean."""
    values = average_values([p.values for p in parts], total)
    errors = {
        k: np.sqrt(np.sum([p.errors[k] ** 2 for p in parts], axis=0)) / len(parts) for k in NAMES
    }
    means = [p.mean for p in parts if p.mean is not None]
    return Parts(values, errors, np.mean(means, axis=0) if means else None)
