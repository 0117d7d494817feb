"""Simulated data whose truth is known: the paper's 0-D and 1-D experiments.

A *world* is a `Truth` (the distribution of x, and of y given x) with a few base models. The base
models are trained on points of their own. `make_gamma_0d` and `make_wave_1d` build a world and draw
data from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import gamma, weibull_min
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ExpSineSquared

from bne._base.typing import Array

__all__ = ["SimulatedData", "Truth", "make_gamma_0d", "make_wave_1d"]

RandomState = int | np.random.Generator | np.random.RandomState | None

N_EXPERT_POINTS = 20
"""Points that the base models are trained on, whatever the size of the ensemble's data."""

X_CENTRES = np.array([-4.0, 0.0, 4.0])
X_SCALES = np.array([0.4, 0.8, 0.4])
"""Means and sds of x: an equal mixture of three Gaussians, the middle one twice as wide."""

X_WIDENING = 2.0
"""Factor by which the sds are larger for the ensemble's data than for the base models' points."""

X_UNIT = float(np.sqrt(np.mean(X_CENTRES**2 + (X_WIDENING * X_SCALES) ** 2)))
"""Unit of x for the base models: the true sd of the ensemble's x, whose mean is 0. It is not the sd
of a sample, so that the base models do not depend on n."""

SHAPE_CORNERS = (-4.0, -1.0, 1.0, 4.0)
RATIO_CORNERS = (-np.pi, -0.5, 0.5, np.pi)
"""Corners of the two trapezoids: of the Weibull shape, and of the noise ratio."""

EXPERT_NOISE = 0.2
"""Noise variance of the base models over the variance of their y. The true E[Var(y|x)] / Var(y) on
their points is 0.18 in one variant and 0.28 in the other."""


class _Wave(NamedTuple):
    """Constants of one variant of the 1-D experiment: a, and the least and greatest kappa and r."""

    amplitude: float
    shape: tuple[float, float]
    ratio: tuple[float, float]


WAVES = {
    1: _Wave(amplitude=3.0, shape=(1.5, 3.0), ratio=(1.0, 5.0)),
    2: _Wave(amplitude=2.0, shape=(1.5, 2.5), ratio=(1.0, 2.0)),
}


@dataclass(frozen=True, eq=False)
class Truth:
    """The distribution that simulated data were drawn from.

    The methods broadcast their arguments as NumPy does: for y of shape (N, Q) pass ``x[:, None]``.

    Attributes
    ----------
    distribution : callable
        ``distribution(x)`` is the frozen SciPy distribution of y at x; its parameters have the
        shape of x.
    draw_x : callable
        ``draw_x(n, generator)`` draws n inputs of the ensemble's data, shape (n,).
    """

    distribution: Callable[[ArrayLike], Any]
    draw_x: Callable[[int, np.random.Generator], Array]

    def mean(self, x: ArrayLike) -> Array:
        """Return the true mean of y at x, E*(y|x)."""
        return self.distribution(x).mean()

    def std(self, x: ArrayLike) -> Array:
        """Return the standard deviation of y at x."""
        return self.distribution(x).std()

    def entropy(self, x: ArrayLike) -> Array:
        """Return the differential entropy of y at x, in nats."""
        return self.distribution(x).entropy()

    def cdf(self, y: ArrayLike, x: ArrayLike) -> Array:
        """Return the true CDF of y at x, F*(y|x)."""
        return self.distribution(x).cdf(y)

    def pdf(self, y: ArrayLike, x: ArrayLike) -> Array:
        """Return the density of y at x."""
        return self.distribution(x).pdf(y)

    def ppf(self, q: ArrayLike, x: ArrayLike) -> Array:
        """Return the quantile of level q of y at x."""
        return self.distribution(x).ppf(q)

    def sample_x(self, n: int, random_state: RandomState = None) -> Array:
        """Draw n inputs from the distribution of the ensemble's x, shape (n,)."""
        return self.draw_x(_check_size(n), np.random.default_rng(random_state))

    def sample_y(self, x: ArrayLike, random_state: RandomState = None) -> Array:
        """Draw one y at each x, of the shape of x."""
        generator = np.random.default_rng(random_state)
        return self.distribution(x).rvs(size=np.shape(x), random_state=generator)


@dataclass(frozen=True, eq=False)
class SimulatedData:
    """Data from a simulated world, and the world itself.

    Attributes
    ----------
    X : DataFrame, N rows
        The inputs, if the world has any, and one column for each base model's prediction.
    y : ndarray, shape (N,)
        The outcomes.
    truth : Truth
        The exact distribution of y given x.
    experts : callable
        ``experts(x)`` maps inputs (N,) to a frame of the base models' predictions.
    """

    X: pd.DataFrame
    y: Array
    truth: Truth
    experts: Callable[[Array], pd.DataFrame]

    def features(self, x: ArrayLike) -> pd.DataFrame:
        """Return a frame like X at new inputs, with predictions of the same base models.

        Parameters
        ----------
        x : array_like, shape (N,)
            New inputs. The 0-D world uses only their number.

        Returns
        -------
        X : DataFrame, N rows

        Examples
        --------
        >>> from bne.datasets import make_wave_1d
        >>> data = make_wave_1d(100, random_state=0)
        >>> data.features([-5.0, 0.0, 5.0]).columns.to_list()
        ['x', 'rbf_short', 'rbf_long', 'periodic']
        """
        x = np.asarray(x, dtype=float)
        if x.ndim != 1:
            raise ValueError(
                f"`x` must have shape (N,); got {x.shape}. Pass a flat array, for example "
                '`np.linspace(-5, 5, 101)` or `X["x"]`.'
            )
        return self.experts(x)

    def sample(self, n: int, random_state: RandomState = None) -> SimulatedData:
        """Draw n fresh rows from the same world, with the same base models: a `SimulatedData`.

        Parameters
        ----------
        n : int
            Number of rows.
        random_state : int, Generator, RandomState or None
            Source of the draws. The rows differ from those of this set even if the seed is the
            one that made it.
        """
        return _draw(n, self.truth, self.experts, np.random.default_rng(random_state))


def make_gamma_0d(n: int, *, random_state: RandomState = None) -> SimulatedData:
    """Make the 0-D experiment: y ~ Gamma(shape 1.5, scale 2) at one x.

    The only base model predicts a constant, the mean of 20 draws of its own. X has the one column
    ``"constant"`` and no input.

    Parameters
    ----------
    n : int
        Number of rows.
    random_state : int, Generator, RandomState or None
        Source of the draws; the same int gives the same numbers.

    Returns
    -------
    data : SimulatedData

    Examples
    --------
    >>> from bne.datasets import make_gamma_0d
    >>> data = make_gamma_0d(50, random_state=0)
    >>> data.X.shape, data.y.shape
    ((50, 1), (50,))
    >>> float(data.truth.mean(0.0))
    3.0
    """
    expert_stream, data_stream = _streams(random_state)
    truth = Truth(distribution=_gamma_at, draw_x=_single_x)
    own_y = truth.sample_y(np.zeros(N_EXPERT_POINTS), random_state=expert_stream)
    experts = partial(_constant_features, value=float(own_y.mean()))
    return _draw(n, truth, experts, data_stream)


def make_wave_1d(n: int, *, variant: int = 1, random_state: RandomState = None) -> SimulatedData:
    r"""Make the 1-D experiment: a sine wave with skewed, heteroscedastic noise.

    .. math:: y = a \sin x + s(x)\,\epsilon, \quad \epsilon \sim
              \mathrm{Weibull}(\kappa(x), 1), \quad s(x) = (|\cos(x/2)| + 1)\, r(x)

    where :math:`\kappa(x)` and :math:`r(x)` are trapezoids. The mean of the noise is *not* zero:
    :math:`E[y|x] = a \sin x + s(x)\,\Gamma(1 + 1/\kappa(x))`. The inputs form clusters at -4, 0
    and 4. The base models are Gaussian processes on standardised x, with an RBF kernel of
    length-scale 0.25 (``rbf_short``) or 1 (``rbf_long``), or a periodic kernel of period 1.5
    (``periodic``). They are trained on 20 points of their own, from clusters half as wide, which
    do not depend on `n`.

    Parameters
    ----------
    n : int
        Number of rows.
    variant : {1, 2}
        In variant 1, a = 3, kappa runs from 1.5 to 3, r from 1 to 5. In variant 2, which is
        milder, a = 2, kappa runs from 1.5 to 2.5, r from 1 to 2.
    random_state : int, Generator, RandomState or None
        Source of the draws; the same int gives the same numbers.

    Returns
    -------
    data : SimulatedData
        ``data.X`` has the columns ``x``, ``rbf_short``, ``rbf_long``, ``periodic``.

    Examples
    --------
    >>> import numpy as np
    >>> from bne.datasets import make_wave_1d
    >>> data = make_wave_1d(100, random_state=0)
    >>> grid = np.linspace(-5, 5, 101)
    >>> data.features(grid).shape, data.truth.mean(grid).shape
    ((101, 4), (101,))
    """
    if variant not in WAVES:
        raise ValueError(
            f"`variant` must be 1 or 2; got {variant!r}. Pass 1 for the strongly "
            "heteroscedastic wave, 2 for the milder one."
        )
    expert_stream, data_stream = _streams(random_state)
    truth = Truth(
        distribution=partial(_wave_at, wave=WAVES[variant]),
        draw_x=partial(_clustered_x, widening=X_WIDENING),
    )
    experts = partial(_wave_features, models=_fit_experts(truth, expert_stream))
    return _draw(n, truth, experts, data_stream)


def _gamma_at(x: ArrayLike) -> Any:
    return gamma(a=np.full(np.shape(x), 1.5), scale=2.0)


def _wave_at(x: ArrayLike, *, wave: _Wave) -> Any:
    x = np.asarray(x, dtype=float)
    scale = (np.abs(np.cos(x / 2)) + 1) * _trapezoid(x, *wave.ratio, RATIO_CORNERS)
    kappa = _trapezoid(x, *wave.shape, SHAPE_CORNERS)
    return weibull_min(c=kappa, loc=wave.amplitude * np.sin(x), scale=scale)


def _trapezoid(x: Array, low: float, high: float, corners: tuple[float, ...]) -> Array:
    """Return `low` outside the corners, `high` between the inner two, linear between."""
    return np.interp(x, corners, (low, high, high, low))


def _single_x(n: int, generator: np.random.Generator) -> Array:
    """Return the one x of the 0-D world, n times."""
    del generator  # nothing is random here, but `Truth.draw_x` takes a generator
    return np.zeros(n)


def _clustered_x(n: int, generator: np.random.Generator, *, widening: float) -> Array:
    cluster = generator.integers(len(X_CENTRES), size=n)
    return generator.normal(X_CENTRES[cluster], widening * X_SCALES[cluster])


def _fit_experts(truth: Truth, generator: np.random.Generator) -> dict[str, Any]:
    """Train the three base models on 20 points of their own.

    The parameters of kernel and noise are fixed. If they were tuned on 20 points, some seeds would
    take all variation as noise, and all three models would be the same constant.
    """
    x = _clustered_x(N_EXPERT_POINTS, generator, widening=1.0)
    y = truth.sample_y(x, random_state=generator)
    kernels = {
        "rbf_short": RBF(0.25),
        "rbf_long": RBF(1.0),
        "periodic": ExpSineSquared(length_scale=1.0, periodicity=1.5),
    }
    return {
        name: GaussianProcessRegressor(
            kernel, alpha=EXPERT_NOISE, optimizer=None, normalize_y=True
        ).fit(x[:, None] / X_UNIT, y)
        for name, kernel in kernels.items()
    }


def _wave_features(x: Array, *, models: dict[str, Any]) -> pd.DataFrame:
    columns = {name: gp.predict(x[:, None] / X_UNIT) for name, gp in models.items()}
    return pd.DataFrame({"x": x} | columns)


def _constant_features(x: Array, *, value: float) -> pd.DataFrame:
    return pd.DataFrame({"constant": np.full(len(x), value)})


def _draw(
    n: int,
    truth: Truth,
    experts: Callable[[Array], pd.DataFrame],
    generator: np.random.Generator,
) -> SimulatedData:
    x = truth.sample_x(n, random_state=generator)
    y = truth.sample_y(x, random_state=generator)
    return SimulatedData(X=experts(x), y=y, truth=truth, experts=experts)


def _streams(random_state: RandomState) -> list[np.random.Generator]:
    """Return two independent generators: for the base models and for the data.

    Their seeds are drawn, because a RandomState cannot spawn generators.
    """
    seeds = np.random.default_rng(random_state).integers(2**63, size=2)
    return [np.random.default_rng(seed) for seed in seeds]


def _check_size(n: int) -> int:
    if not isinstance(n, Integral) or isinstance(n, bool) or n < 1:
        raise ValueError(
            f"`n` must be a positive integer; got {n!r}. Pass the number of rows, for example 100."
        )
    return int(n)
