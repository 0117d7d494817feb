"""Where the uncertainty of a prediction comes from (Eq. 7): entropies and variances, in parts.

From the full stage: ``total = H[E f]``, ``aleatoric = E H[f]`` and their difference, the epistemic
part, over posterior draws of the conditional density f. From the additive stage, given each draw of
its hyperparameters, the closed-form variances of the experts' part alone (v1) and of the whole mean
(v2) give what not knowing the weights, delta and the hyperparameters contributes. What is left of
the epistemic part is G's. Nothing is clipped.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy import linalg

from bne._base.divergence import NODES, divergences, equispaced
from bne._base.typing import Array
from bne._draws.stage import Residual, Rows, Stage, places_of
from bne._law.distribution import ConditionalDraws, chunks, invert
from bne._mean import gaussian as _gaussian
from bne._process.kernels import (
    N_NODES,
    interpolate,
    interpolation,
    missing_variance,
    process_draws,
)

PARTS = ("parametric", "structural_delta", "structural_G", "hyperparameters")
NAMES = ("total", "aleatoric", "epistemic", *PARTS)
THREE = ("parametric", "structural_delta", "hyperparameters")
"""What the additive stage knows in closed form."""

HYPERPARAMETER_DRAWS = 200
"""Draws of the additive stage's hyperparameters that closed forms are averaged over."""

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
    mean : (S, K + m); root : (S, K + m, K + m)
        Posterior mean of theta = (omega / sigma_omega, v), and R with covariance ``R^T R``.
    root_alone : (S, K, K)
        The same root for omega / sigma_omega were there no delta.
    """

    residual: Residual | None
    h: Array
    mean: Array
    root: Array
    root_alone: Array

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

    def averaged(self) -> "AveragedForm":
        """What is left of it where means over the draws are all that is asked for."""
        grid = np.arange(float(N_NODES)) if self.residual is None else self.residual.grid
        first, w = interpolation(self.h[:, 3], grid)
        S, width, K = *self.mean.shape, self.root_alone.shape[1]
        scale = np.where(np.arange(width) < K, self.h[:, :1], self.h[:, 1:2])
        forms = np.zeros((len(grid), 4, width, width))
        for s, root in enumerate(self.root * scale[:, None, :]):
            covariance = root.T @ root / S
            for p in range(4):
                for d in range(4 - p):
                    weight = w[s, p] * w[s, p + d] * (1.0 if d == 0 else 2.0)
                    forms[first[s] + p, d] += weight * covariance
        alone = self.root_alone * scale[:, None, :K]
        covariance_alone = np.mean(alone.transpose(0, 2, 1) @ alone, axis=0)
        return AveragedForm(self.residual, self.h, scale * self.mean, forms, covariance_alone)


class AveragedForm(NamedTuple):
    """A `ClosedForm` whose variances are averaged over the draws before any row is seen.

    With ``b(ell) = [f, a(ell)]`` interpolated between nodes, ``b^T C b`` averaged over draws of
    (ell, C) is a sum of quadratic forms ``b_j^T M_jd b_(j+d)``, some tens in place of 200.

    Attributes
    ----------
    residual, h
        As in `ClosedForm`.
    mean : (S, K + m)
        Posterior means of (omega, sigma_delta v).
    forms : (J, 4, K + m, K + m)
        M, for d = 0..3.
    covariance_alone : (K, K)
        Mean covariance of omega were there no delta.
    """

    residual: Residual | None
    h: Array
    mean: Array
    forms: Array
    covariance_alone: Array

    def moments(self, rows: Rows) -> GaussianMoments:
        """Means of mu at N rows; of v1, v2 and the noise variance only the mean over draws."""
        table, raw, grid = _features(self.residual, rows)
        b = np.concatenate([np.broadcast_to(rows.f, (len(grid), *rows.f.shape)), table], axis=2)
        v1 = np.sum((rows.f @ self.covariance_alone) * rows.f, axis=1)
        v2 = np.zeros_like(v1)
        if self.residual is not None:
            missing = missing_variance(raw, grid, self.h[:, 3])
            v2 += np.mean(self.h[:, 1:2] ** 2 * missing, axis=0)
        for j, d in zip(*np.nonzero(np.any(self.forms, axis=(2, 3))), strict=True):
            v2 += np.sum((b[j] @ self.forms[j, d]) * b[j + d], axis=1)
        noise = np.sqrt(np.mean(self.h[:, 2] ** 2, keepdims=True))
        mean = process_draws(b, grid, self.h[:, 3], self.mean)
        return GaussianMoments(mean, v1[None], v2[None], noise)


def _features(residual: Residual | None, rows: Rows) -> tuple[Array, Array, Array]:
    """Features of delta, the same before orthogonalisation, and their grid; none without delta."""
    if residual is None:
        none = np.zeros((N_NODES, len(rows.f), 0))
        return none, none, np.arange(float(N_NODES))
    return *residual.tabulate(rows), residual.grid


def _root(posterior: _gaussian.GaussianPosterior) -> Array:
    """R with covariance ``R^T R``."""
    L = posterior.precision_factor
    return linalg.solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False)


def closed_form(
    stage: Stage, rows: Rows, y: Array, power: float = 1.0, limit: int = HYPERPARAMETER_DRAWS
) -> ClosedForm:
    """Posteriors of theta given evenly spaced draws of the hyperparameters; training rows and y."""
    draws, K = stage.draws, rows.f.shape[1]
    S = len(draws.omega)
    none = np.zeros(S)
    sigma_delta = none if draws.sigma_delta is None else draws.sigma_delta
    log_ell = none if draws.log_ell is None else draws.log_ell
    h = np.column_stack([draws.sigma_omega, sigma_delta, draws.sigma_eps, log_ell])
    h = h[np.linspace(0, S - 1, min(S, limit)).round().astype(int)]
    residual = None if stage.residual is None else stage.residual.within(h[:, 3])
    places = places_of(rows, residual)
    table, _, grid = _features(residual, rows.part(places.first))
    grams = _gaussian.gram_table(rows.f, y, table, grid, places).repeated(power)
    means, roots, alone = [], [], []
    for *scales, ell in h:
        gram, cross = grams.at(ell)
        theta = _gaussian.posterior(gram, cross, K, *scales)
        means.append(theta.mean)
        roots.append(_root(theta))
        alone.append(_root(_gaussian.posterior(gram[:K, :K], cross[:K], K, *scales)))
    return ClosedForm(residual, h, np.stack(means), np.stack(roots), np.stack(alone))


def decompose(
    whole: Stage, gaussian: ClosedForm, rows: Rows, measure: str, y_scale: float
) -> Parts:
    """Split the uncertainty of a stage; entropies in nats, variances in squared units of y."""
    draws = len(gaussian.h) if whole.features is None else len(whole.draws.omega)
    nodes = NODES if measure == "entropy" else 1
    pieces = []
    for part in chunks(len(rows.f), draws * max(nodes, whole.row_elements)):
        here = rows.part(part)
        conditional = None if whole.features is None else whole.conditional(here)
        pieces.append(split(conditional, gaussian.moments(here), measure, y_scale))
    mean = None
    if whole.features is not None:
        mean = np.concatenate([piece.mean for piece in pieces if piece.mean is not None])
    values, errors = (
        {k: np.concatenate([getattr(piece, field)[k] for piece in pieces]) for k in NAMES}
        for field in ("values", "errors")
    )
    return Parts(values, errors, mean)


def split(
    conditional: ConditionalDraws | None, moments: GaussianMoments, measure: str, y_scale: float
) -> Parts:
    """The parts at a few rows; `conditional` is None where G = I."""
    draws = _by_draw(conditional, moments, measure)
    has_G = conditional is not None
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
    conditional: ConditionalDraws | None, moments: GaussianMoments, y_scale: float
) -> dict[str, Array]:
    """Parts of the variance without their errors: moments of an `AveragedForm` will do."""
    draws = _by_draw(conditional, moments, "variance")
    means = {k: np.mean(d, axis=0) for k, d in draws.items()}
    values = _completed(means, conditional is not None, -1.0)
    return {name: values[name] * y_scale**2 for name in NAMES}


def _by_draw(
    conditional: ConditionalDraws | None, moments: GaussianMoments, measure: str
) -> dict[str, Array]:
    """Parts that draws of either stage know by themselves."""
    of_full, of_gaussian = MEASURES[measure]
    return of_gaussian(moments) | ({} if conditional is None else of_full(conditional))


def _completed(parts: dict[str, Array], has_G: bool, sign: float) -> dict[str, Array]:
    """With what follows from the others: values are taken off each other, squared errors add."""
    known = np.sum([parts[name] for name in THREE], axis=0)
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
    noise = moments.sigma_eps[:, None] ** 2
    sd = np.sqrt(noise + moments.v2)
    low, high = np.min(moments.mean - 6.0 * sd, axis=0), np.max(moments.mean + 6.0 * sd, axis=0)
    y, step = equispaced(low, high)
    t = (y[None] - moments.mean[:, :, None]) / sd[:, :, None]
    f = np.exp(-0.5 * t**2) / (np.sqrt(2.0 * np.pi) * sd[:, :, None])
    return {
        "aleatoric": np.broadcast_to(0.5 * np.log(2.0 * np.pi * np.e * noise), sd.shape),
        "parametric": 0.5 * np.log1p(moments.v1 / noise),
        "structural_delta": 0.5 * np.log((noise + moments.v2) / (noise + moments.v1)),
        "hyperparameters": divergences(f, step),
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
