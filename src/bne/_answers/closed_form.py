"""Means and variances of mu in closed form, for draws of the hyperparameters of stages 1 and 2."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import linalg

from bne._base.typing import Array
from bne._data.rows import Rows
from bne._draws.posterior import Shard
from bne._draws.stage import Stage
from bne._mean.gaussian import GaussianPosterior, gram_table, posterior
from bne._mean.residual import places_of
from bne._mean.term import Term, fixed_features, moving
from bne._process.features import process_draws
from bne._process.interpolation import N_NODES, interpolate, interpolation

HYPERPARAMETER_DRAWS = 200
"""Closed forms are averaged over this many draws of the additive stage's hyperparameters."""


class GaussianMoments(NamedTuple):
    """The mean of the model given its hyperparameters, S draws at N rows.

    Attributes
    ----------
    mean : (S, N)
        Posterior mean of mu.
    variances : (T, S, N)
        Posterior variance of the sum of the first 1, 2, ... T terms, were there no others.
    sigma_eps : (S,)
    parts : list of str
        What the decomposition calls each term's part.
    """

    mean: Array
    variances: Array
    sigma_eps: Array
    parts: list[str]


class Scales(NamedTuple):
    """Hyperparameters of one term, S draws: its scale, and its log length-scale or None."""

    scale: Array
    log_ell: Array | None


class ClosedForm(NamedTuple):
    """Posteriors of theta for some draws of the hyperparameters.

    Attributes
    ----------
    terms : list of Term
    scales : list of Scales
        Hyperparameters of each term.
    sigma_eps : (S,)
    mean : (S, M)
        Posterior mean of theta, the whitened coefficients of all terms.
    roots : list of (S, M_t, M_t)
        For the first 1, 2, ... T terms alone: R with covariance ``R^T R`` of their coefficients.
    """

    terms: Sequence[Term]
    scales: list[Scales]
    sigma_eps: Array
    mean: Array
    roots: list[Array]

    def moments(self, rows: Rows) -> GaussianMoments:
        """Means and variances of mu at N rows."""
        tables = [term.tabulate(rows) for term in self.terms]
        mean = np.empty((len(self.sigma_eps), len(rows.f)))
        variances = self._left_out(rows)
        for s in range(len(mean)):
            blocks = [self._features(t, s, table) for t, table in enumerate(tables)]
            for t, roots in enumerate(self.roots):
                B = np.column_stack(blocks[: t + 1])
                variances[t, s] += np.sum((B @ roots[s].T) ** 2, axis=1)
            mean[s] = np.column_stack(blocks) @ self.mean[s]
        return GaussianMoments(mean, variances, self.sigma_eps, self.parts)

    @property
    def parts(self) -> list[str]:
        """What the decomposition calls each term's part."""
        return [term.part for term in self.terms]

    def _features(self, t: int, s: int, table: Array) -> Array:
        """Scaled features of a term in one draw: (N, m)."""
        scale, log_ell = self.scales[t]
        if log_ell is None:
            return scale[s] * table[0]
        return scale[s] * interpolate(table, log_ell[s], self.terms[t].grid)

    def _left_out(self, rows: Rows) -> Array:
        """Variance that the features leave out of the first 1, 2, ... T terms: (T, S, N)."""
        out = np.zeros((len(self.terms), len(self.sigma_eps), len(rows.f)))
        for t, (term, (scale, log_ell)) in enumerate(zip(self.terms, self.scales, strict=True)):
            if log_ell is not None:
                out[t:] += scale[:, None] ** 2 * term.left_out(rows, log_ell)
        return out

    def averaged(self) -> "AveragedForm":
        """What is left of it where only means over the draws are asked for."""
        mover = moving(self.terms)
        grid = np.arange(float(N_NODES)) if mover is None else mover.grid
        S, width = self.mean.shape
        log_ell = next((s.log_ell for s in self.scales if s.log_ell is not None), np.zeros(S))
        first, w = interpolation(log_ell, grid)
        widths = np.diff([0, *(roots.shape[1] for roots in self.roots)])
        each = [np.repeat(s.scale[:, None], m, 1) for s, m in zip(self.scales, widths, strict=True)]
        scale = np.concatenate(each, axis=1)
        forms = np.zeros((len(grid), 4, width, width))
        for s, root in enumerate(self.roots[-1] * scale[:, None, :]):
            covariance = root.T @ root / S
            for p in range(4):
                for d in range(4 - p):
                    weight = w[s, p] * w[s, p + d] * (1.0 if d == 0 else 2.0)
                    forms[first[s] + p, d] += weight * covariance
        fixed = sum(own.log_ell is None for own in self.scales)
        alone = [roots * scale[:, None, : roots.shape[1]] for roots in self.roots[:fixed]]
        covariances = [np.mean(R.transpose(0, 2, 1) @ R, axis=0) for R in alone]
        return AveragedForm(self, log_ell, grid, scale * self.mean, forms, covariances)


class AveragedForm(NamedTuple):
    """A `ClosedForm` whose variances are averaged over the draws before any row is seen.

    With ``b(ell) = [f, a(ell)]`` interpolated between nodes, ``b^T C b`` averaged over draws of
    (ell, C) is a sum of quadratic forms ``b_j^T M_jd b_(j+d)``, some tens in place of 200.

    Attributes
    ----------
    closed : ClosedForm
    log_ell : (S,); grid : (J,)
        Of the term whose features depend on a length-scale.
    mean : (S, K + m)
        Posterior means of the coefficients, each times its term's scale.
    forms : (J, 4, K + m, K + m)
        M, for d = 0..3.
    covariances : list of (K_t, K_t)
        Mean covariance of the coefficients of the first 1, 2, ... terms whose features never
        change, were there no others.
    """

    closed: ClosedForm
    log_ell: Array
    grid: Array
    mean: Array
    forms: Array
    covariances: list[Array]

    def moments(self, rows: Rows) -> GaussianMoments:
        """Means of mu at N rows; variances and the noise variance are means over the draws."""
        f = fixed_features(self.closed.terms, rows)
        b = np.broadcast_to(f, (len(self.grid), *f.shape))
        mover = moving(self.closed.terms)
        whole = np.mean(self.closed._left_out(rows)[-1], axis=0)
        if mover is not None:
            b = np.concatenate([b, mover.tabulate(rows)], axis=2)
        for j, d in zip(*np.nonzero(np.any(self.forms, axis=(2, 3))), strict=True):
            whole += np.sum((b[j] @ self.forms[j, d]) * b[j + d], axis=1)
        each = [f[:, : len(C)] for C in self.covariances]
        fixed = [np.sum((g @ C) * g, axis=1) for g, C in zip(each, self.covariances, strict=True)]
        variances = np.stack(fixed if mover is None else [*fixed, whole])
        noise = np.sqrt(np.mean(self.closed.sigma_eps**2, keepdims=True))
        mean = process_draws(b, self.grid, self.log_ell, self.mean)
        return GaussianMoments(mean, variances[:, None], noise, self.closed.parts)


def closed_form(stage: Stage, shard: Shard, limit: int = HYPERPARAMETER_DRAWS) -> ClosedForm:
    """Posteriors of theta given evenly spaced draws of the hyperparameters of a Gaussian stage."""
    draws = stage.draws
    kept = np.linspace(0, draws.size - 1, min(draws.size, limit)).round().astype(int)
    scales, terms = [], []
    for term in stage.terms:
        own = draws.terms[term.name]
        log_ell = None if own.log_ell is None else own.log_ell[kept]
        scales.append(Scales(own.scale[kept], log_ell))
        terms.append(term if log_ell is None else term.within(log_ell))
    sigma_eps = draws.sigma_eps[kept]
    mover, rows = moving(terms), shard.rows
    f, places = fixed_features(terms, rows), places_of(rows, mover)
    grid = np.arange(float(N_NODES)) if mover is None else mover.grid
    table = np.zeros((N_NODES, len(places.first), 0))
    if mover is not None:
        table = mover.tabulate(rows.part(places.first))
    grams = gram_table(f, shard.y, table, grid, places).repeated(shard.power)
    widths = [term.tabulate(rows.part(slice(0, 1))).shape[2] for term in terms]
    means, roots = [], [[] for _ in terms]
    for s in range(len(kept)):
        ell = next((own.log_ell[s] for own in scales if own.log_ell is not None), 0.0)
        gram, cross = grams.at(ell)
        scale = np.repeat([own.scale[s] for own in scales], widths)
        ends = np.cumsum(widths)
        alone = [posterior(gram[:m, :m], cross[:m], scale[:m], sigma_eps[s]) for m in ends]
        for t, theta in enumerate(alone):
            roots[t].append(_root(theta))
        means.append(alone[-1].mean)
    return ClosedForm(terms, scales, sigma_eps, np.stack(means), [np.stack(r) for r in roots])


def _root(theta: GaussianPosterior) -> Array:
    """R with covariance ``R^T R``."""
    L = theta.precision_factor
    return linalg.solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False)
