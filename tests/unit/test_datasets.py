"""The simulated worlds: exact truth against quadrature, draws against the truth."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.special import entr
from scipy.special import gamma as gamma_function
from scipy.stats import kstest, norm

from bne import datasets
from conftest import shifted

GRID = np.linspace(-5, 5, 101)
WORLDS = {
    "gamma": datasets.make_gamma_0d,
    "wave-1": lambda n, random_state: datasets.make_wave_1d(
        n, variant=1, random_state=random_state
    ),
    "wave-2": lambda n, random_state: datasets.make_wave_1d(
        n, variant=2, random_state=random_state
    ),
}
# The points of x where a trapezoid of the 1-D experiment has a corner, and some between.
POINTS = [-5.0, -4.0, -3.2, -1.0, -0.5, 0.0, 0.7, 1.0, 2.0, np.pi, 4.6]


@pytest.fixture(params=WORLDS, scope="module")
def world(request):
    return WORLDS[request.param](200, random_state=shifted(0))


def reference_wave(x, variant):
    """The definition, written out once more, branch by branch, for one x."""

    def trapezoid(low, high, c1, c2, c3, c4):
        if x <= c1 or x >= c4:
            return low
        if x < c2:
            return low + (high - low) * (x - c1) / (c2 - c1)
        if x <= c3:
            return high
        return high + (low - high) * (x - c3) / (c4 - c3)

    a, kappa, ratio = [(3, 3.0, 5.0), (2, 2.5, 2.0)][variant - 1]
    kappa = trapezoid(1.5, kappa, -4, -1, 1, 4)
    scale = 2 * (abs(np.cos(x / 2)) / 2 + 0.5)
    return a * np.sin(x), scale * trapezoid(1, ratio, -np.pi, -0.5, 0.5, np.pi), kappa


@pytest.mark.parametrize("variant", [1, 2])
@pytest.mark.parametrize("x", POINTS)
def test_wave_matches_its_definition(variant, x):
    truth = datasets.make_wave_1d(1, variant=variant, random_state=shifted(0)).truth
    low, scale, kappa = reference_wave(x, variant)
    assert truth.mean(x) == pytest.approx(low + scale * gamma_function(1 + 1 / kappa))
    y = low + scale * np.array([-0.1, 0.2, 0.9, 2.0])
    expected = -np.expm1(-((np.clip(y - low, 0, None) / scale) ** kappa))
    np.testing.assert_allclose(truth.cdf(y, x), expected, atol=1e-14)


def test_gamma_matches_its_closed_form():
    truth = datasets.make_gamma_0d(1, random_state=shifted(0)).truth
    assert truth.mean(0.0) == pytest.approx(3.0)
    assert truth.std(0.0) == pytest.approx(np.sqrt(1.5) * 2)
    y = 1.7
    density = y**0.5 * np.exp(-y / 2) / (gamma_function(1.5) * 2**1.5)
    assert truth.pdf(y, 0.0) == pytest.approx(density)


@pytest.mark.parametrize("x", [-4.3, -1.5, 0.0, 2.2])
def test_truth_agrees_with_quadrature(world, x):
    truth = world.truth
    pdf = truth.distribution(x).pdf
    low, high = truth.ppf([0, 1 - 1e-12], x)

    def integrate(function):
        return quad(function, low, high, epsabs=1e-8, limit=200)[0]

    mean = integrate(lambda y: y * pdf(y))
    variance = integrate(lambda y: (y - mean) ** 2 * pdf(y))
    entropy = integrate(lambda y: entr(pdf(y)))
    assert truth.mean(x) == pytest.approx(mean, abs=1e-6)
    assert truth.std(x) == pytest.approx(np.sqrt(variance), abs=1e-6)
    assert truth.entropy(x) == pytest.approx(entropy, abs=1e-6)


def test_truth_is_vectorised_over_x_and_y(world):
    truth = world.truth
    for function in (truth.mean, truth.std, truth.entropy):
        values = function(GRID)
        assert values.shape == GRID.shape
        np.testing.assert_allclose(values, [function(x) for x in GRID])
    q = np.array([0.05, 0.5, 0.95])
    y = truth.ppf(q, GRID[:, None])
    assert y.shape == truth.pdf(y, GRID[:, None]).shape == (101, 3)
    np.testing.assert_allclose(truth.cdf(y, GRID[:, None]), np.tile(q, (101, 1)))


def test_outcomes_follow_the_truth(world):
    # KS tests at level 1e-6: sqrt(n) D < 2.7. Moved by 0.2, D is 0.05 at least, and sqrt(n) D is
    # 6.9, eight standard errors (0.5 each) beyond.
    n = 20_000
    x = world.truth.sample_x(n, random_state=shifted(1))
    y = world.truth.sample_y(x, random_state=shifted(2))
    u = world.truth.cdf(y, x)
    assert kstest(u, "uniform").pvalue > 1e-6
    assert kstest(u[x < np.median(x) + 1e-9], "uniform").pvalue > 1e-6
    assert kstest(world.truth.cdf(y + 0.2, x), "uniform").pvalue < 1e-6  # it can fail


def test_inputs_follow_the_mixture():
    def mixture_cdf(x, widening):
        sd = widening * np.array([0.4, 0.8, 0.4])
        return norm.cdf(np.asarray(x)[:, None], [-4, 0, 4], sd).mean(axis=1)

    # At level 1e-6; of the other mixture D is 0.056, and sqrt(n) D is 7.9.
    x = datasets.make_wave_1d(20_000, random_state=shifted(3)).X["x"].to_numpy()
    assert kstest(x, lambda t: mixture_cdf(t, 2.0)).pvalue > 1e-6
    assert kstest(x, lambda t: mixture_cdf(t, 1.0)).pvalue < 1e-6
    standard_error = datasets.X_UNIT / np.sqrt(2 * len(x))  # of an sd, at most
    assert np.std(x) == pytest.approx(datasets.X_UNIT, abs=5 * standard_error)


def test_columns_and_shapes():
    wave = datasets.make_wave_1d(7, random_state=shifted(0))
    assert wave.X.columns.to_list() == ["x", "rbf_short", "rbf_long", "periodic"]
    assert wave.X.shape == (7, 4)
    assert wave.y.shape == (7,)
    gamma = datasets.make_gamma_0d(7, random_state=shifted(0))
    assert gamma.X.columns.to_list() == ["constant"]
    assert gamma.X["constant"].nunique() == 1
    # The mean of 20 draws of sd 2.45: within five standard errors of 3.
    assert gamma.X["constant"][0] == pytest.approx(3.0, abs=5 * 2.45 / np.sqrt(20))


def test_features_reproduce_the_rows(world):
    x = world.X["x"] if "x" in world.X else np.zeros(len(world.X))
    pd.testing.assert_frame_equal(world.features(x), world.X)


def test_base_models_are_informative_but_wrong():
    period = 1.5 * datasets.X_UNIT
    shares = []
    for seed in range(20):
        data = datasets.make_wave_1d(10, random_state=shifted(seed))
        features, mean = data.features(GRID), data.truth.mean(GRID)
        error = {name: np.sqrt(np.mean((features[name] - mean) ** 2)) for name in features}
        shares.append(error["rbf_short"] / np.std(mean))
        assert min(error.values()) > 0.1
        # Far off its points, the short RBF returns to a constant and the periodic goes on.
        far = data.features(60.0 + period * np.linspace(0.0, 1.0, 9))
        assert far["rbf_short"].std() < 1e-6
        assert far["periodic"][0] == pytest.approx(far["periodic"][8])
        assert np.ptp(far["periodic"]) > 1e-2
    # Over worlds the share has mean 0.43 and sd 0.12: the limit is six standard errors away.
    assert np.mean(shares) < 0.6


@pytest.mark.parametrize("make", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize(
    "seed",
    [
        lambda: shifted(5),
        lambda: np.random.default_rng(shifted(5)),
        lambda: np.random.RandomState(shifted(5)),
    ],
)
def test_same_random_state_same_numbers(make, seed):
    first, second = make(20, random_state=seed()), make(20, random_state=seed())
    pd.testing.assert_frame_equal(first.X, second.X)
    np.testing.assert_array_equal(first.y, second.y)


@pytest.mark.parametrize("make", WORLDS.values(), ids=WORLDS)
def test_different_random_states_differ(make):
    generator = np.random.default_rng(shifted(5))
    sets = [
        make(5, random_state=state)
        for state in (shifted(1), shifted(2), None, None, generator, generator)
    ]
    assert len({data.y[0] for data in sets}) == len(sets)


def test_global_random_state_is_left_alone(world):
    def snapshot():
        return np.random.get_state()[1].copy()  # noqa: NPY002 (the state under watch)

    before = snapshot()
    world.sample(5)
    datasets.make_wave_1d(5, random_state=shifted(0))
    np.testing.assert_array_equal(before, snapshot())


def test_base_models_do_not_depend_on_n():
    small, large = (datasets.make_wave_1d(n, random_state=shifted(4)) for n in (1, 1000))
    pd.testing.assert_frame_equal(small.features(GRID), large.features(GRID))
    other = datasets.make_wave_1d(1, random_state=shifted(5))
    assert not np.allclose(small.features(GRID), other.features(GRID))


def test_sample_is_fresh_data_from_the_same_world():
    data = datasets.make_wave_1d(50, random_state=shifted(0))
    fresh = data.sample(50, random_state=shifted(0))
    again = data.sample(50, random_state=shifted(0))
    np.testing.assert_array_equal(fresh.y, again.y)
    assert not np.isin(fresh.X["x"], data.X["x"]).any()
    pd.testing.assert_frame_equal(fresh.features(GRID), data.features(GRID))


def test_a_world_pickles(world):
    copy = pickle.loads(pickle.dumps(world))
    pd.testing.assert_frame_equal(copy.features(GRID), world.features(GRID))
    np.testing.assert_array_equal(copy.truth.mean(GRID), world.truth.mean(GRID))


@pytest.mark.parametrize("n", [0, -1, 2.5, "10", True])
def test_bad_sizes_are_refused(n):
    with pytest.raises(ValueError, match="`n` must be a positive integer; got"):
        datasets.make_gamma_0d(n, random_state=shifted(0))


def test_bad_variant_is_refused():
    with pytest.raises(ValueError, match="`variant` must be 1 or 2; got 3"):
        datasets.make_wave_1d(10, variant=3, random_state=shifted(0))


def test_features_refuse_a_column(world):
    with pytest.raises(ValueError, match=r"`x` must have shape \(N,\); got \(101, 1\)"):
        world.features(GRID[:, None])
