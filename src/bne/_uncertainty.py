"""Where the uncertainty of a prediction comes from (Eq. 7): entropies and variances, in parts.

From the full stage: ``total = H[E f]``, ``aleatoric = E H[f]`` and their difference, the epistemic
part, over posterior draws of the conditional density f. From the additive stage, given each draw of
its hyperparameters, the closed-form variances of the experts' part alone (v1) and of the whole mean
(v2) give what not knowing the weights, delta and the hyperparameters contributes. What is left of
the epistemic part is G's. Nothing is clipped.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from scipy import linalg

from bne import _gaussian
from bne._kernels import N_NODES, interpolate, missing_variance
from bne._predictive import ConditionalDraws, chunks, invert
from bne._stages import Residual, Rows, Stage
from bne._typing import Array

PARTS = ("parametric", "structural_delta", "structural_G", "hyperparameters")
NAMES = ("total", "aleatoric", "epistemic", *PARTS)

HYPERPARAMETER_DRAWS = 200
"""Draws of the additive stage's hyperparameters that closed forms are averaged over."""

NODES = 257
"""Of the trapezoid rule over y."""

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


class GaussianMoments(NamedTuple):
    """The additive stage given its hyperparameters, S draws at N rows.

    Attributes
    ----------
    mean : (S, N)
        Of mu.
    v1 : (S, N)
        Variance of the experts' part, were there no delta.
    v2 : (S, N)
        Variance of mu.
    sigma_eps : (S,)
    """

    mean: Array
    v1: Array
    v2: Array
    sigma_eps: Array


class ClosedForm(NamedTuple):
    """Posteriors of theta for some draws of the additive stage's hyperparameters.

    Attributes
    ----------
    residual : Residual or None
    h : (S, 4)
        sigma_omega, sigma_delta, sigma_eps and log_ell.
    mean, root : lists of arrays
        Posterior mean of theta = (omega / sigma_omega, v), and R with covariance ``R^T R``.
    root_alone : list of arrays
        The same root for omega / sigma_omega were there no delta.
    """

    residual: Residual | None
    h: Array
    mean: list[Array]
    root: list[Array]
    root_alone: list[Array]

    def moments(self, rows: Rows) -> GaussianMoments:
        """Means and variances of mu at N rows."""
        table, raw, grid = _features(self.residual, rows)
        mean, v1 = np.empty((2, len(self.h), len(rows.f)))
        v2 = np.zeros_like(v1)
        if self.residual is not None:
            v2 += self.h[:, 1:2] ** 2 * missing_variance(raw, grid, self.h[:, 3])
        for s, (sigma_omega, sigma_delta, _, log_ell) in enumerate(self.h):
            F, A = sigma_omega * rows.f, sigma_delta * interpolate(table, log_ell, grid)
            B = np.column_stack([F, A])
            mean[s] = B @ self.mean[s]
            v1[s] = np.sum((F @ self.root_alone[s].T) ** 2, axis=1)
            v2[s] += np.sum((B @ self.root[s].T) ** 2, axis=1)
        return GaussianMoments(mean, v1, v2, self.h[:, 2])


def _features(residual: Residual | None, rows: Rows) -> tuple[Array, Array, Array]:
    """Features of delta, the same before orthogonalisation, and their grid; none without delta."""
    if residual is None:
        none = np.zeros((N_NODES, len(rows.f), 0))
        return none, none, np.arange(float(N_NODES))
    return *residual.tabulate(rows), residual.feature_map.log_ell


def _root(posterior: _gaussian.GaussianPosterior) -> Array:
    """R with covariance ``R^T R``."""
    L = posterior.precision_factor
    return linalg.solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False)


def closed_form(stage: Stage, rows: Rows, y: Array) -> ClosedForm:
    """Posteriors of theta given evenly spaced draws of the hyperparameters; training rows and y."""
    draws, K = stage.draws, rows.f.shape[1]
    S = len(draws.omega)
    none = np.zeros(S)
    sigma_delta = none if draws.sigma_delta is None else draws.sigma_delta
    log_ell = none if draws.log_ell is None else draws.log_ell
    h = np.column_stack([draws.sigma_omega, sigma_delta, draws.sigma_eps, log_ell])
    h = h[np.linspace(0, S - 1, min(S, HYPERPARAMETER_DRAWS)).round().astype(int)]
    table, _, grid = _features(stage.residual, rows)
    grams = _gaussian.gram_table(rows.f, y, table, grid)
    out = ClosedForm(stage.residual, h, [], [], [])
    for *scales, ell in h:
        gram, cross = grams.at(ell)
        theta = _gaussian.posterior(gram, cross, K, *scales)
        alone = _gaussian.posterior(gram[:K, :K], cross[:K], K, *scales)
        out.mean.append(theta.mean)
        out.root.append(_root(theta))
        out.root_alone.append(_root(alone))
    return out


def decompose(
    whole: Stage, gaussian: ClosedForm, rows: Rows, measure: str, y_scale: float
) -> Parts:
    """Split the uncertainty of a stage; entropies in nats, variances in squared units of y."""
    of_full, of_gaussian = MEASURES[measure]
    has_G = whole.draws.calibration is not None
    values, squares = _average(
        lambda here: of_gaussian(gaussian.moments(here)), rows, NODES * len(gaussian.h)
    )
    mean = None
    if has_G:
        width = max(NODES, whole.row_elements) * len(whole.draws.omega)
        of_G = _average(lambda here: of_full(whole.conditional(here)), rows, width)
        mean = of_G[0].pop("mean")
        values, squares = values | of_G[0], squares | of_G[1]
    three = ("parametric", "structural_delta", "hyperparameters")
    known, known_square = (np.sum([d[name] for name in three], axis=0) for d in (values, squares))
    if has_G:
        values["structural_G"] = values["epistemic"] - known
        squares["structural_G"] = squares["epistemic"] + known_square
    else:
        values["epistemic"], squares["epistemic"] = known, known_square
        values["structural_G"] = squares["structural_G"] = np.zeros_like(known)
    values["total"] = values["aleatoric"] + values["epistemic"]
    squares["total"] = squares["aleatoric"] + squares["epistemic"]
    errors = {name: np.sqrt(squares[name]) for name in NAMES}
    if measure == "variance":
        values, errors = ({k: d[k] * y_scale**2 for k in NAMES} for d in (values, errors))
        return Parts(values, errors, mean)
    shift = {"total": np.log(y_scale), "aleatoric": np.log(y_scale)}
    return Parts({k: values[k] + shift.get(k, 0.0) for k in NAMES}, errors, mean)


def _average(
    contributions: Callable[[Rows], dict[str, Array]], rows: Rows, row_elements: int
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Average each draw's contributions (S, N) over draws, chunk by chunk; squared errors too."""
    pieces = []
    for part in chunks(len(rows.f), row_elements):
        here = contributions(rows.part(part))
        pieces.append({k: (np.mean(c, axis=0), batch_variance(c)) for k, c in here.items()})
    names = pieces[0]
    values, squares = (
        {k: np.concatenate([piece[k][i] for piece in pieces]) for k in names} for i in (0, 1)
    )
    return values, squares


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

    def density(y: Array) -> Array:
        return draws.pdf_draws(y.ravel(), np.repeat(np.arange(n), NODES)).reshape(-1, n, NODES)

    return {
        "mean": draws.moments()[0],
        "aleatoric": draws.entropy(),
        "epistemic": divergences(density, low, high),
    }


def divergences(density: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """``KL(f_s, f)`` of each density from the average of all, by the trapezoid rule: (S, N).

    Their mean is the mutual information. It cannot be negative: no node's share is.

    Parameters
    ----------
    density : function
        Values y (N, Q) -> (S, N, Q).
    low, high : (N,)
        Ends of the grid.
    """
    y = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, NODES)
    f = density(y)
    average = np.mean(f, axis=0)
    tiny = np.finfo(np.float64).tiny
    log_ratio = np.log(np.maximum(f, tiny)) - np.log(np.maximum(average, tiny))[None]
    return np.sum(f * log_ratio, axis=2) * ((high - low) / (NODES - 1))[None, :]


def _entropy_gaussian(moments: GaussianMoments) -> dict[str, Array]:
    """The additive stage's parts, a number for each draw of the hyperparameters."""
    noise = moments.sigma_eps[:, None] ** 2
    sd = np.sqrt(noise + moments.v2)
    low, high = np.min(moments.mean - 6.0 * sd, axis=0), np.max(moments.mean + 6.0 * sd, axis=0)

    def density(y: Array) -> Array:
        t = (y[None] - moments.mean[:, :, None]) / sd[:, :, None]
        return np.exp(-0.5 * t**2) / (np.sqrt(2.0 * np.pi) * sd[:, :, None])

    return {
        "aleatoric": np.broadcast_to(0.5 * np.log(2.0 * np.pi * np.e * noise), sd.shape),
        "parametric": 0.5 * np.log1p(moments.v1 / noise),
        "structural_delta": 0.5 * np.log((noise + moments.v2) / (noise + moments.v1)),
        "hyperparameters": divergences(density, low, high),
    }


def _variance_full(draws: ConditionalDraws) -> dict[str, Array]:
    """The law of total variance over the draws."""
    mean, variance = draws.moments()
    about = mean - np.mean(mean, axis=0)[None]
    return {"mean": mean, "aleatoric": variance, "epistemic": about**2}


def _variance_gaussian(moments: GaussianMoments) -> dict[str, Array]:
    """The additive stage's parts, a number for each draw of the hyperparameters."""
    about = moments.mean - np.mean(moments.mean, axis=0)[None]
    return {
        "aleatoric": np.broadcast_to(moments.sigma_eps[:, None] ** 2, about.shape),
        "parametric": moments.v1,
        "structural_delta": moments.v2 - moments.v1,
        "hyperparameters": about**2,
    }


MEASURES = {
    "entropy": (_entropy_full, _entropy_gaussian),
    "variance": (_variance_full, _variance_gaussian),
}
