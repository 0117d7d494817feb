"""Posterior draws of a stage, with the features they belong to: what they say at new rows."""

from typing import NamedTuple

import jax
import numpy as np

from bne._base.threads import single_blas_thread
from bne._base.typing import Array, Integers
from bne._calibration.ratio import ROW_ELEMENTS
from bne._data.places import Places, every_row, find_places
from bne._fitting.full_stage import CalibrationDraws, CalibrationFeatures
from bne._law.distribution import ConditionalDraws, chunks
from bne._process.kernels import FeatureMap, missing_variance, nodes_between, process_draws


class Rows(NamedTuple):
    """Rows in the model's units: inputs x (N, d) and experts' predictions f (N, K)."""

    x: Array
    f: Array

    def part(self, rows: slice | Integers) -> "Rows":
        """Some of the rows."""
        return Rows(self.x[rows], self.f[rows])


class Residual(NamedTuple):
    """The process delta: its features, and what is taken off them to keep clear of the experts.

    Attributes
    ----------
    feature_map : FeatureMap
    overlap : (J, K, m) array or None
        Coefficients of the features on the experts at the training rows (``orthogonalize=True``).
    """

    feature_map: FeatureMap
    overlap: Array | None

    @property
    def grid(self) -> Array:
        """Log length-scales of the nodes."""
        return self.feature_map.log_ell

    def rotated(self, rotations: Array) -> "Residual":
        """The same process in rotated features (`principal_rotations`)."""
        overlap = None if self.overlap is None else self.overlap @ rotations
        return Residual(self.feature_map._replace(rotations=rotations), overlap)

    def within(self, log_ell: Array) -> "Residual":
        """The same process with the nodes that these length-scales need."""
        nodes = nodes_between(log_ell, self.grid)
        overlap = None if self.overlap is None else self.overlap[nodes]
        return Residual(self.feature_map.within(nodes), overlap)

    def tabulate(self, rows: Rows) -> tuple[Array, Array]:
        """Features, and the features before orthogonalisation: (J, N, m) each."""
        table = self.feature_map.tabulate(rows.x)
        return (table if self.overlap is None else table - rows.f @ self.overlap), table


def places_of(rows: Rows, residual: Residual | None) -> Places:
    """Rows that delta and G cannot tell apart. A delta kept clear of the experts can."""
    if residual is not None and residual.overlap is not None:
        return every_row(len(rows.f))
    return find_places(rows.x)


class StageDraws(NamedTuple):
    """Posterior draws of one stage, chains joined: S = chains x draws.

    Attributes
    ----------
    omega : (S, K); sigma_omega, sigma_eps : (S,)
    sigma_delta, log_ell, xi : (S,) or None
        ``xi`` completes delta off the training rows, one number a draw.
    v : (S, m) or None
    position : (chain, draw, dim)
        What the sampler moved.
    statistics : dict of (chain, draw)
    calibration : CalibrationDraws or None
        Draws of h; None is G = I.
    """

    omega: Array
    sigma_omega: Array
    sigma_eps: Array
    sigma_delta: Array | None
    log_ell: Array | None
    v: Array | None
    xi: Array | None
    position: Array
    statistics: dict[str, Array]
    calibration: CalibrationDraws | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Chains and draws."""
        return self.position.shape[:2]

    def quantities(self, expert_names: list[str]) -> dict[str, Array]:
        """Weights and hyperparameters by name, (chain, draw) each: what diagnostics look at."""
        named = {f"weights[{n}]": w for n, w in zip(expert_names, self.omega.T, strict=True)}
        named |= {"weight_scale": self.sigma_omega, "noise_scale": self.sigma_eps}
        if self.sigma_delta is not None and self.log_ell is not None:
            named |= {"residual_scale": self.sigma_delta, "length_scale": np.exp(self.log_ell)}
        if self.calibration is not None:
            if np.ptp(self.calibration.sigma_G) > 0:  # one construction holds it fixed
                named["calibration_scale"] = self.calibration.sigma_G
            named |= {
                "calibration_length_scale_t": np.exp(self.calibration.log_ell_t),
                "calibration_length_scale_x": np.exp(self.calibration.log_ell_x),
            }
        return {name: self.by_chain(values) for name, values in named.items()}

    def by_chain(self, values: Array) -> Array:
        """Reshape (S, ...) to (chain, draw, ...)."""
        return values.reshape(*self.shape, *values.shape[1:])


ALIKE = 1e-4
"""Combinations of the experts that are smaller than this part of the largest are not weighted."""

WEIGHED_ROWS = 1000
"""Rows at the most that the best weights are worked out from."""

PREDICTIVE_DRAWS = 1000
"""Draws that answers are averaged over, evenly spaced among all; neighbours add little."""


class Stage(NamedTuple):
    """Draws of one stage with the features they belong to: the posterior of F(y | x) anywhere.

    Attributes
    ----------
    draws : StageDraws
    residual : Residual or None
    features : CalibrationFeatures or None
    """

    draws: StageDraws
    residual: Residual | None = None
    features: CalibrationFeatures | None = None

    def thinned(self, limit: int = PREDICTIVE_DRAWS) -> "Stage":
        """The stage with at most `limit` draws, ready to be asked at many rows."""
        S = len(self.draws.omega)
        kept = np.linspace(0, S - 1, min(S, limit)).round().astype(int)
        fields = self.draws._asdict()
        shared = {k: fields.pop(k) for k in ("position", "statistics")}
        draws = StageDraws(**jax.tree.map(lambda a: a[kept], fields), **shared)
        residual, features = self.residual, self.features
        if residual is not None and draws.log_ell is not None:
            residual = residual.within(draws.log_ell)
        if features is not None and draws.calibration is not None:
            features = features.within(draws.calibration.log_ell_x)
            draws = draws._replace(calibration=draws.calibration.prepared(features))
        return Stage(draws, residual, features)

    def as_sampled(self) -> "Stage":
        """The stage as its likelihood saw it at the training rows: nothing is completed."""
        draws, calibration = self.draws, self.draws.calibration
        if draws.xi is not None:
            draws = draws._replace(xi=np.zeros_like(draws.xi))
        if calibration is not None:
            calibration = calibration._replace(xi=np.zeros_like(calibration.xi))
        return self._replace(draws=draws._replace(calibration=calibration))

    @property
    def row_elements(self) -> int:
        """Numbers that a draw at a row takes: what chunks of rows are made by."""
        return 1 if self.features is None else ROW_ELEMENTS

    def delta(self, rows: Rows) -> Array:
        """Draws of delta at N rows, completed with the variance the features leave out: (S, N)."""
        draws = self.draws
        if self.residual is None:
            return np.zeros((len(draws.omega), len(rows.f)))
        assert draws.v is not None and draws.xi is not None
        assert draws.sigma_delta is not None and draws.log_ell is not None
        grid = self.residual.grid
        table, raw = self.residual.tabulate(rows)
        explained = process_draws(table, grid, draws.log_ell, draws.v)
        missing = np.sqrt(missing_variance(raw, grid, draws.log_ell))
        return draws.sigma_delta[:, None] * (explained + missing * draws.xi[:, None])

    def mu(self, rows: Rows) -> Array:
        """Draws of mu at N rows: (S, N)."""
        return self.draws.omega @ rows.f.T + self.delta(rows)

    def best_weights(self, rows: Rows) -> Array:
        """Weights that come nearest to E[y|x] at these rows in every draw: (S, K).

        By least squares: what delta, G and the experts can all express is given to the experts. Of
        many rows some, evenly spaced, are used.
        """
        kept = np.linspace(0, len(rows.f) - 1, min(len(rows.f), WEIGHED_ROWS)).round().astype(int)
        rows = rows.part(kept)
        parts = chunks(len(kept), self.row_elements * len(self.draws.omega))
        means = [self.conditional(rows.part(part)).moments()[0] for part in parts]
        return np.concatenate(means, axis=1) @ np.linalg.pinv(rows.f, rcond=ALIKE).T

    def conditional(self, rows: Rows) -> ConditionalDraws:
        """The posterior of F(y | x) at N rows (Eq. 4)."""
        ratio = None
        with single_blas_thread():
            if self.features is not None and self.draws.calibration is not None:
                ratio = self.draws.calibration.ratio(self.features, rows.x)
            return ConditionalDraws(self.mu(rows), self.draws.sigma_eps, ratio)

    def log_likelihood(self, rows: Rows, y: Array) -> Array:
        """Pointwise log likelihood in the model's units: (S, n)."""
        parts = []
        for part in chunks(len(y), self.row_elements * len(self.draws.omega)):
            conditional = self.conditional(rows.part(part))
            parts.append(conditional.log_pdf_draws(y[part], np.arange(len(y[part]))))
        return np.concatenate(parts, axis=1)
