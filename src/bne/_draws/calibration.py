"""Posterior draws of the calibration function."""

from typing import NamedTuple

import numpy as np

from bne._base.typing import Array
from bne._calibration.features import CalibrationFeatures, roots_at
from bne._calibration.ratio import Ratio, make_ratio
from bne._mean.term import Named
from bne._process.features import missing_variance, process_draws


class CalibrationDraws(NamedTuple):
    """Posterior draws of the process behind G (h of `Logistic`, g of `ConstrainedGP`).

    Attributes
    ----------
    sigma_G : (S,)
        Amplitude of the process.
    log_ell_x, log_ell_t : (S,)
        Its log length-scales in x and in t.
    W : (S, m_G, P)
        Its whitened coefficients: features in x, functions of t.
    xi : (S, P)
        Random numbers that complete the coefficients away from the feature points. A draw uses the
        same numbers at every row, so that a row's answer does not depend on the other rows.
    stretch : (S,)
        Standard deviation of t = (y - mu) / sigma_eps: the geometric mean over the training rows.
    roots : (S, M, P) or None
        T(ell_t) of every draw, if it was worked out beforehand.
    """

    sigma_G: Array
    log_ell_x: Array
    log_ell_t: Array
    W: Array
    xi: Array
    stretch: Array
    roots: Array | None = None

    def prepared(self, features: CalibrationFeatures) -> "CalibrationDraws":
        """Work out `roots` once, so that many rows can be answered, a few at a time."""
        return self._replace(roots=roots_at(features.basis, self.log_ell_t))

    def ratio(self, features: CalibrationFeatures, x: Array) -> Ratio:
        """Make the ratio dG/du of every draw at N rows."""
        roots = self.prepared(features).roots if self.roots is None else self.roots
        assert roots is not None
        return make_ratio(
            features.construction, self.coefficients(features, x), roots, self.sigma_G
        )

    def named(self) -> dict[str, Named]:
        """Return the amplitude and the length-scales by the names that users see."""
        return {
            "calibration_scale": Named(self.sigma_G),
            "calibration_length_scale_t": Named(np.exp(self.log_ell_t)),
            "calibration_length_scale_x": Named(np.exp(self.log_ell_x)),
        }

    def coefficients(self, features: CalibrationFeatures, x: Array) -> Array:
        """Find the coefficients of b(t) at N rows, times ``sigma_G`` and completed: (S, N, P)."""
        table, grid = features.tabulate(x), features.grid_x
        explained = process_draws(table, grid, self.log_ell_x, self.W)
        missing = np.sqrt(missing_variance(table, grid, self.log_ell_x))
        whole = explained + missing[:, :, None] * self.xi[:, None, :]
        return self.sigma_G[:, None, None] * whole
