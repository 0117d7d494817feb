"""The map to the model's units: standardised inputs, and one affine map for y and all experts."""

from typing import NamedTuple

import numpy as np

from bne._base.typing import Array


class Scaling(NamedTuple):
    """The affine maps between the user's units and the model's.

    Attributes
    ----------
    x_center, x_scale : (d,) arrays
        Mean and standard deviation of each input.
    y_center, y_scale : float
        Mean and standard deviation of y. The experts' predictions share them, so that ``omega`` is
        the same in both units.
    geographic : (int, int) or None
        Positions of the inputs that are longitude and latitude in degrees. They become kilometres
        east and north, with degrees of longitude as long as they are at `latitude`. Both are
        divided by the same scale, so that a distance does not depend on its direction.
    latitude : float
        Mean latitude of the training rows.
    """

    x_center: Array
    x_scale: Array
    y_center: float
    y_scale: float
    geographic: tuple[int, int] | None = None
    latitude: float = 0.0

    def inputs(self, x: Array) -> Array:
        """Map inputs to the model's units.

        Longitudes that are more than 180 degrees from the mean of the training rows are counted the
        other way round, so that 350 and -10 are the same place.
        """
        x = self._turned(x)
        x = in_km(x, self.geographic, self.latitude)
        return (x - self.x_center) / self.x_scale

    def _turned(self, x: Array) -> Array:
        """Bring longitudes to within 180 degrees of the mean longitude of the training rows."""
        if self.geographic is None:
            return x
        lon = self.geographic[0]
        units = in_km(np.ones((1, x.shape[1])), self.geographic, self.latitude)[0]
        center = self.x_center[lon] / units[lon]
        turns = np.round((x[:, lon] - center) / 360.0)
        x = x.copy()
        x[:, lon] -= 360.0 * turns
        return x

    def undo_inputs(self, x: Array) -> Array:
        """Map inputs back to the user's units."""
        units = in_km(np.ones((1, len(self.x_center))), self.geographic, self.latitude)
        return (self.x_center + self.x_scale * x) / units

    def outcome(self, y: Array) -> Array:
        """Map outcomes or experts' predictions to the model's units."""
        return (y - self.y_center) / self.y_scale

    def undo_outcome(self, y: Array) -> Array:
        """Map outcomes or experts' predictions back to the user's units."""
        return self.y_center + self.y_scale * y


KM_PER_DEGREE = 111.195
"""Length of a degree of latitude on a sphere with the earth's mean radius, 6,371 km."""


def in_km(x: Array, geographic: tuple[int, int] | None, latitude: float) -> Array:
    """Replace longitude and latitude by kilometres east and north, if there are any."""
    if geographic is None:
        return x
    lon, lat = geographic
    shrink = np.ones(x.shape[1])
    shrink[lon] = KM_PER_DEGREE * np.cos(np.deg2rad(latitude))
    shrink[lat] = KM_PER_DEGREE
    return x * shrink


def fit_scaling(x: Array, f: Array, y: Array, geographic: tuple[int, int] | None = None) -> Scaling:
    """Find the affine maps from the training rows.

    If y is constant, its scale is taken from the experts. If they are constant at the same value,
    it is taken from the size of y. So the scale is never zero.
    """
    latitude = 0.0 if geographic is None else float(np.mean(x[:, geographic[1]]))
    x = in_km(x, geographic, latitude)
    x_scale = _spread(x)
    if geographic is not None:
        x_scale[list(geographic)] = np.sqrt(np.mean(x_scale[list(geographic)] ** 2))
    center = float(np.mean(y))
    candidates = [float(_spread(y[:, None])[0]), float(np.sqrt(np.mean((f - center) ** 2)))]
    floor = 1e-12 * max(abs(center), float(np.max(np.abs(f))))
    scale = next((c for c in candidates if c > floor), abs(center) or 1.0)
    x_scale = np.where(x_scale > 0, x_scale, 1.0)
    return Scaling(np.mean(x, axis=0), x_scale, center, scale, geographic, latitude)


def _spread(columns: Array) -> Array:
    """Find the standard deviation of each column; it is exactly 0 if only rounding varies."""
    sd = np.std(columns, axis=0)
    return np.where(sd > 1e-12 * np.max(np.abs(columns), axis=0, initial=0.0), sd, 0.0)
