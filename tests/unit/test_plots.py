"""Pictures: what is drawn, on one input and on two."""

import matplotlib
import numpy as np
import pandas as pd
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from bne import BNERegressor, plots
from bne.plots._canvas import draw_map
from conftest import shifted


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def on_a_map():
    """Two inputs, two experts, no G: quick."""
    rng = np.random.default_rng(shifted(0))
    x = rng.uniform(-1, 1, size=(80, 2))
    frame = pd.DataFrame(x, columns=["lon", "lat"]).assign(a=x[:, 0], b=x[:, 1] ** 2)
    y = x[:, 0] + 0.5 * (x[:, 1] > 0) + 0.1 * rng.normal(size=80)
    model = BNERegressor(
        [("a", "a"), ("b", "b")],
        inputs=["lon", "lat"],
        calibration=None,
        draws=300,
        random_state=shifted(0),
    ).fit(frame, y)
    side = np.linspace(-1.5, 1.5, 7)
    lon, lat = (a.ravel() for a in np.meshgrid(side, side))
    grid = pd.DataFrame({"lon": lon, "lat": lat, "a": lon, "b": lat**2})
    return model, grid, frame, y


def test_a_grid_is_a_map_of_cells(on_a_map):
    model, grid, _, _ = on_a_map
    shuffled = grid.sample(frac=1, random_state=shifted(0))
    parts = model.decompose(shuffled)
    ax = plots.part(shuffled[["lon", "lat"]], parts, "structural_delta")
    (mesh,) = ax.collections
    cells = mesh.get_array().reshape(7, 7)
    at = shuffled["lat"].to_numpy() == grid["lat"].iloc[-1]
    at &= shuffled["lon"].to_numpy() == grid["lon"].iloc[0]
    np.testing.assert_allclose(cells[-1, 0], parts.structural_delta[at])


def test_scattered_places_are_points(on_a_map):
    model, _, frame, _ = on_a_map
    report = model.detect_bias(frame)
    ax = plots.bias(frame[["lon", "lat"]], report)
    assert len(ax.collections[0].get_offsets()) == len(frame)
    assert ax.collections[0].get_clim() == (0.0, 1.0)


def test_curves_are_sorted(wave_model, wave):
    x = np.array([2.0, -3.0, 0.0])
    X = wave.features(x)
    law, parts = wave_model.predict_distribution(X), wave_model.decompose(X)
    ax = plots.interval(x, law, observed=(wave.X["x"], wave.y))
    np.testing.assert_allclose(ax.lines[0].get_ydata(), law.mean()[[1, 2, 0]])
    ax = plots.part(x, parts, "aleatoric")
    np.testing.assert_allclose(ax.lines[0].get_xydata()[:, 1], parts.aleatoric[[1, 2, 0]])
    ax = plots.bias(x, wave_model.detect_bias(X, "variance"), of="G")
    assert ax.get_ylim() == (0.0, 1.0)
    with pytest.raises(ValueError, match="for a curve or"):
        plots.interval(np.zeros((3, 2)), law)
    with pytest.raises(ValueError, match="`name` must be one of"):
        plots.part(x, parts, "noise")


def test_densities_calibration_and_weights(wave_model, wave):
    X = wave.X[:30]
    stages = {s: wave_model.predict_distribution(X, s) for s in ("ensemble", "additive", "full")}
    truth = wave.truth.distribution(X["x"].to_numpy()[:1])
    ax = plots.density(stages, observed=wave.y, truth=truth)
    assert [t.get_text() for t in ax.get_legend().get_texts()][-3:] == list(stages)
    ax = plots.calibration(stages["full"], wave.y[:30])
    assert ax.lines[1].get_xdata()[0] == 0.0
    table = wave_model.explain_weights()
    ax = plots.weights(table)
    assert [t.get_text() for t in ax.get_yticklabels()] == list(table.index)


def test_six_panels(wave_model, wave):
    x = np.linspace(-6, 6, 13)
    axes = plots.stages(
        wave_model,
        wave.features(x),
        x,
        (wave.X["x"], wave.y),
        truth=wave.truth.distribution(x),
    )
    assert axes.shape == (2, 3)
    assert all(ax.get_title() for ax in axes.flat)
    widths = [band.get_paths()[0].get_extents().height for band in axes[0, 2].collections]
    assert widths[0] > widths[1] > 0  # total, epistemic


def test_six_maps(on_a_map):
    model, grid, frame, y = on_a_map
    places = grid[["lon", "lat"]]
    axes = plots.maps(model, grid, places, observed=(frame[["lon", "lat"]], y))
    mesh, points = axes[0, 0].collections
    assert mesh.norm is points.norm
    cells = axes[0, 2].collections[0].get_array().ravel()
    np.testing.assert_allclose(cells, model.decompose(grid, measure="variance").parametric)
    assert np.all(axes[1, 1].collections[0].get_array() == 0)  # no G
    assert axes[0, 0].figure.get_supxlabel() == "lon"


def test_one_far_place_does_not_decide_over_the_colours():
    """Up to 199 places all are within the scale; of 400, two at either end are not."""
    rng = np.random.default_rng(shifted(0))
    for n, beyond in ((199, 0), (400, 2)):
        places, values = rng.normal(size=(n, 2)), rng.normal(size=n)
        values[0] = 1e6
        ax = plt.subplots()[1]
        drawn = draw_map(ax, places, values, "", diverging=False)
        assert np.sum(values > drawn.norm.vmax) == np.sum(values < drawn.norm.vmin) == beyond
        assert drawn.colorbar.extend == ("both" if beyond else "neither")
