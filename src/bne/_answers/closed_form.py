"""Mean and variance of mu in closed form, given draws of the hyperparameters.

This is possible in the Gaussian stages, `ensemble` (Eq. 1) and `additive` (Eq. 2).
"""

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
"""Closed forms are averaged over this many draws of the hyperparameters, evenly spaced.

Each of these draws costs a Cholesky factor. Fewer draws are quicker, but have a larger Monte-Carlo
error.
"""


class GaussianMoments(NamedTuple):
    """Moments of mu given the hyperparameters, for S draws of them at N rows.

    Attributes
    ----------
    mean : (S, N)
        Posterior mean of mu.
    variances : (T, S, N)
        Entry t is the posterior variance of mu in the model that has only the first t + 1 terms.
        `AveragedForm` gives its mean over the draws, (T, 1, N).
    sigma_eps : (S,)
        Noise scale. `AveragedForm` gives its root mean square over the draws, (1,).
    parts : list of str
        Name of each term's part in decompositions, T names.
    """

    mean: Array
    variances: Array
    sigma_eps: Array
    parts: list[str]


class Scales(NamedTuple):
    """Hyperparameters of one term: its scale (S,), and its log length-scale (S,) or None."""

    scale: Array
    log_ell: Array | None


class ClosedForm(NamedTuple):
    """Posterior of the coefficients theta, for each of S draws of the hyperparameters.

    Attributes
    ----------
    terms : list of Term
        The T terms of the mean.
    scales : list of Scales
        Hyperparameters of each term.
    sigma_eps : (S,)
        Noise scale.
    mean : (S, M)
        Posterior mean of theta, the whitened coefficients of all terms.
    roots : list of (S, M_t, M_t)
        Entry t holds R, where ``R^T R`` is the posterior covariance of the coefficients in the
        model that has only the first t + 1 terms.
    """

    terms: Sequence[Term]
    scales: list[Scales]
    sigma_eps: Array
    mean: Array
    roots: list[Array]

    def moments(self, rows: Rows) -> GaussianMoments:
        """Find the mean and the variances of mu at N rows, in every draw."""
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
        """Name of each term's part in decompositions."""
        return [term.part for term in self.terms]

    def _features(self, t: int, s: int, table: Array) -> Array:
        """Scale the features of term t with the hyperparameters of draw s: (N, m)."""
        scale, log_ell = self.scales[t]
        if log_ell is None:
            return scale[s] * table[0]
        return scale[s] * interpolate(table, log_ell[s], self.terms[t].grid)

    def _left_out(self, rows: Rows) -> Array:
        """Find the variance that the features leave out of the first 1 ... T terms: (T, S, N)."""
        out = np.zeros((len(self.terms), len(self.sigma_eps), len(rows.f)))
        for t, (term, (scale, log_ell)) in enumerate(zip(self.terms, self.scales, strict=True)):
            if log_ell is not None:
                out[t:] += scale[:, None] ** 2 * term.left_out(rows, log_ell)
        return out

    def averaged(self) -> "AveragedForm":
        """Average the variances over the draws; `AveragedForm` says how."""
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

    In one draw the variance at a row is ``b^T C b``. Here ``b = [f, a(ell)]`` holds the features of
    the row, and C is the posterior covariance of their coefficients. ``a(ell)`` is interpolated
    between four nodes of the length-scale grid. So the average over the draws of (ell, C) is a sum
    of quadratic forms ``b_j^T M_jd b_(j+d)`` in the features at pairs of nodes. So a few dozen
    forms do the work of one form for each draw.

    Attributes
    ----------
    closed : ClosedForm
        The closed form that is averaged.
    log_ell : (S,)
        Log length-scale of the term whose features depend on one; zeros if there is none.
    grid : (J,)
        Log length-scales of the nodes.
    mean : (S, K + m)
        Posterior mean of the coefficients, each times the scale of its term.
    forms : (J, 4, K + m, K + m)
        The matrices M_jd, for d = 0 ... 3.
    covariances : list of (K_t, K_t)
        Entry t is the mean covariance of the coefficients in a model that has only the first
        t + 1 of the terms whose features never change.
    """

    closed: ClosedForm
    log_ell: Array
    grid: Array
    mean: Array
    forms: Array
    covariances: list[Array]

    def moments(self, rows: Rows) -> GaussianMoments:
        """Find the mean of mu in every draw, and the variances averaged over the draws."""
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
    """Find the posterior of theta given the hyperparameters, for at most `limit` draws of them."""
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
    """Return R, where ``R^T R`` is the covariance of theta."""
    L = theta.precision_factor
    return linalg.solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False)
