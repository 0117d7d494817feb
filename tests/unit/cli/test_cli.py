"""The command line: what it writes equals the Python interface, and errors are one line."""

import inspect
import os
import signal
import stat
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from bne._regressor.wide_table import wide_table

pytest.importorskip("typer")

from bad_inputs import COLUMNS, QUICK, SEED, bad_inputs
from typer.testing import CliRunner

import bne
from bne._answers import table as _table
from bne._answers.columns import QUANTILES
from bne.cli import _commands, _files, _tasks, app
from bne.datasets import make_wave_1d
from conftest import shifted


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, and a model fitted to it."""
    folder = tmp_path_factory.mktemp("cli")
    result = run("demo", "-o", folder / "data.csv", "--rows", 40, *SEED)
    assert result.exit_code == 0, result.output
    result = run("fit", folder / "data.csv", *COLUMNS, *QUICK, "-o", folder / "model.bne")
    assert result.exit_code == 0, result.output
    assert "R-hat" in result.output
    return folder


def test_places_of_a_grid_without_predictions_have_no_answer(folder):
    import xarray as xr

    data = pd.read_csv(folder / "data.csv")
    model = bne.load(folder / "model.bne")
    columns = {name: ("x", data[name].to_numpy(copy=True)) for name in ("rbf_short", "periodic")}
    grid = xr.Dataset(columns, coords={"x": data["x"].to_numpy()})
    grid["periodic"][3] = np.nan
    grid.to_netcdf(folder / "sea.nc", engine="h5netcdf")
    result = run("predict", folder / "model.bne", folder / "sea.nc", "-o", folder / "land.nc")
    assert result.exit_code == 0, result.output
    with xr.open_dataset(folder / "land.nc", engine="h5netcdf") as answers:
        found = answers["mean"].to_numpy()
    expected = model.predict(data[list(model.feature_names_in_)])
    np.testing.assert_array_equal(np.isnan(found), np.arange(len(data)) == 3)
    known = np.arange(len(data)) != 3
    np.testing.assert_allclose(found[known], expected[known], rtol=1e-12)
    grid["periodic"][:] = np.nan
    grid.to_netcdf(folder / "ocean.nc", engine="h5netcdf")
    result = run("predict", folder / "model.bne", folder / "ocean.nc", "-o", folder / "land.nc")
    assert result.exit_code == 1
    assert "No place of 'ocean.nc' has all of" in result.output


def test_every_setting_of_the_sampler_reaches_the_model(folder):
    options = ["--warmup", 30, "--chains", 2, "--target-acceptance", 0.9, "--orthogonalize"]
    options += ["--length-scales", "per_input", "-o", folder / "set.bne"]
    result = run("fit", folder / "data.csv", *COLUMNS, *QUICK, *options)
    assert result.exit_code == 0, result.output
    model = bne.load(folder / "set.bne")
    assert (model.warmup, model.chains, model.target_acceptance) == (30, 2, 0.9)
    assert (model.orthogonalize, model.length_scales) == (True, "per_input")


@pytest.mark.slow
def test_partitions_checkpoints_and_jobs_reach_the_model(folder):
    options = ["--partitions", 2, "--jobs", 2, "--checkpoint", folder / "run"]
    results = [
        run("fit", folder / "data.csv", *COLUMNS, *QUICK, *options, "-o", folder / f"{i}.bne")
        for i in (1, 2)
    ]
    assert [r.exit_code for r in results] == [0, 0], results[0].output
    first, again = (bne.load(folder / f"{i}.bne") for i in (1, 2))
    assert len(first.posterior_.shards) == 2
    assert {path.name for path in (folder / "run").iterdir()} == {"run.json", "shard0", "shard1"}
    X = pd.read_csv(folder / "data.csv")[list(first.feature_names_in_)]
    np.testing.assert_array_equal(first.predict(X), again.predict(X))
    other = ["--partitions", 2, "--checkpoint", folder / "run", "--draws", 51, *SEED]
    other += ["--calibration", "none", "-o", folder / "3.bne"]
    result = run("fit", folder / "data.csv", *COLUMNS, *other)
    assert result.exit_code == 1
    assert "belongs to a run with other draws" in result.output


@pytest.mark.filterwarnings("default")
def test_a_fit_without_inputs_says_what_is_missing(folder):
    columns = [c for c in COLUMNS if c not in ("--inputs", "x")]
    result = run("fit", folder / "data.csv", *columns, *QUICK, "-o", folder / "no.bne")
    assert result.exit_code == 0, result.output
    assert "an error that all models share is not looked for" in result.output


def test_predictions_equal_the_python_interface(folder):
    result = run("predict", folder / "model.bne", folder / "data.csv", "-o", folder / "p.parquet")
    assert result.exit_code == 0, result.output
    table = pd.read_parquet(folder / "p.parquet")
    data = pd.read_csv(folder / "data.csv")
    model = bne.load(folder / "model.bne")
    X = data[list(model.feature_names_in_)]
    mean, sd = model.predict(X, return_std=True)
    np.testing.assert_allclose(table["mean"], mean, rtol=1e-12)
    np.testing.assert_allclose(table["sd"], sd, rtol=1e-12)
    np.testing.assert_allclose(table["q05"], model.predict_quantiles(X, [0.05])[0.05], rtol=1e-9)
    parts = model.decompose(X, measure="variance")
    np.testing.assert_allclose(table["variance_epistemic"], parts.epistemic, rtol=1e-9)
    bias = model.detect_bias(X).total
    np.testing.assert_allclose(table["bias"], bias.mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(table["prob_models_too_low"], bias.prob_positive, atol=2e-3)
    np.testing.assert_array_equal(table["x"], data["x"])


def test_chunks_change_nothing(folder, monkeypatch):
    model = bne.load(folder / "model.bne")
    X = pd.read_csv(folder / "data.csv")[list(model.feature_names_in_)]
    whole = wide_table(model, X)
    monkeypatch.setattr(_table, "CHUNK", 7)
    pd.testing.assert_frame_equal(wide_table(model, X), whole, rtol=1e-10)


def test_workers_change_nothing(folder, monkeypatch):
    model = bne.load(folder / "model.bne")
    X = pd.read_csv(folder / "data.csv")[list(model.feature_names_in_)]
    whole, seen = wide_table(model, X), []
    monkeypatch.setattr(_table, "TASK", 13)
    shared = wide_table(model, X, n_jobs=2, progress=seen.append)
    pd.testing.assert_frame_equal(shared, whole, rtol=1e-10)
    assert sum(seen) == len(X) and len(seen) > 1


KILLED = """
import os, signal, sys
import pandas as pd
from bne.cli import app

def half(self, file, **_):
    file.write(b"x,mean")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)

pd.DataFrame.to_csv = half
app(sys.argv[1:])
"""


@pytest.mark.slow
def test_predict_killed_while_writing_leaves_the_old_file(folder):
    output = folder / "kept.csv"
    output.write_text("old")
    arguments = ["predict", folder / "model.bne", folder / "data.csv", "-o", output, "--quiet"]
    command = [sys.executable, "-c", KILLED, *map(str, arguments)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert output.read_text() == "old"


@pytest.mark.parametrize("name", ["grid.nc", "grid.zarr"])
def test_grids_keep_their_coordinates(folder, name):
    data = make_wave_1d(6, random_state=shifted(0))
    x, times = np.linspace(-3, 3, 6), [0, 1]
    X = data.features(x)
    grid = xr.Dataset(
        {c: (("time", "x"), np.stack([X[c], X[c] + 1])) for c in ("rbf_short", "periodic")},
        coords={"time": times, "x": ("x", x, {"units": "km"})},
    )
    if name.endswith("nc"):
        grid.to_netcdf(folder / name, engine="h5netcdf")
    else:
        grid.to_zarr(folder / name, mode="w", consolidated=False)
    out = folder / f"out_{name}"
    for _ in range(2):  # a second run replaces the first
        result = run("predict", folder / "model.bne", folder / name, "-o", out, "--quiet")
        assert result.exit_code == 0, result.output
    how = (
        {"engine": "h5netcdf"} if name.endswith("nc") else {"engine": "zarr", "consolidated": False}
    )
    with xr.open_dataset(out, **how) as answer:
        assert dict(answer.sizes) == {"time": 2, "x": 6}
        assert answer["x"].attrs["units"] == "km"
        model = bne.load(folder / "model.bne")
        columns = ["x", "rbf_short", "periodic"]
        np.testing.assert_allclose(answer["mean"][0], model.predict(X[columns]), rtol=1e-12)


@pytest.mark.slow
def test_evaluate_shows_every_model(folder):
    arguments = ["evaluate", folder / "data.csv", *COLUMNS, *QUICK, "--folds", 2]
    result = run(*arguments, "-o", folder / "scores.csv")
    assert result.exit_code == 0, result.output
    scores = pd.read_csv(folder / "scores.csv").set_index("method")
    assert list(scores.index) == ["BNE", "BAE", "rbf_short", "periodic", "equal-weight mean"]
    assert (scores["rows"] == 40).all()
    assert scores["coverage_90"].between(0, 1).all()
    data = pd.read_csv(folder / "data.csv").assign(fold=np.arange(40) % 2)
    data.to_csv(folder / "folds.csv", index=False)
    by_column = run("evaluate", folder / "folds.csv", *COLUMNS, *QUICK, "--fold-column", "fold")
    assert by_column.exit_code == 0, by_column.output
    assert run(*arguments, "--blocks").exit_code == 0


def test_degrees_become_kilometres(tmp_path):
    rng = np.random.default_rng(shifted(0))
    rows = pd.DataFrame({"lon": rng.uniform(-73, -70, 30), "lat": rng.uniform(41, 43, 30)})
    rows["a"] = rng.normal(size=30)
    rows["y"] = rows["a"] + 0.1 * rng.normal(size=30)
    rows.to_csv(tmp_path / "d.csv", index=False)
    columns = ["--target", "y", "--model", "a", "--inputs", "lon,lat"]
    for option, expected in (("--degrees", (0, 1)), ("--no-degrees", None)):
        path = tmp_path / "m.bne"
        result = run("fit", tmp_path / "d.csv", *columns, *QUICK, option, "-o", path)
        assert result.exit_code == 0, result.output
        model = bne.load(path)
        assert model.scaling_.geographic == expected
    swapped = rows.rename(columns={"lon": "lat", "lat": "lon"}).assign(lat=rows["lon"] - 30)
    swapped.to_csv(tmp_path / "s.csv", index=False)
    result = run("fit", tmp_path / "s.csv", *columns, *QUICK, "-o", tmp_path / "m.bne")
    assert result.exit_code == 1
    assert "swapped" in result.output


def test_help_is_quick():
    import subprocess
    import sys
    import time

    start = time.perf_counter()
    command = [sys.executable, "-X", "importtime", "-m", "bne", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "predict" in done.stdout
    assert " jax" not in done.stderr and " pandas" not in done.stderr
    assert time.perf_counter() - start < 5.0  # under a second on an idle machine


def test_bad_inputs_give_one_clear_line(folder):
    cases = bad_inputs(folder)
    assert len(cases) >= 30
    for name, (arguments, message) in cases.items():
        result = run(*arguments)
        assert result.exit_code == 1, (name, result.output, result.exception)
        lines = result.stderr.strip().splitlines()
        assert len(lines) == 1, (name, lines)
        assert lines[0].startswith("Error: "), name
        assert message in lines[0], (name, lines[0])
    assert not (folder / "new.bne").exists()


def test_default_quantiles_are_those_of_the_table():
    default = inspect.signature(_commands.predict).parameters["quantiles"].default
    assert tuple(_tasks.split_levels(default)) == QUANTILES


def test_usage_errors_have_their_own_code(folder):
    assert run("fit", folder / "data.csv").exit_code == 2
    assert run("conjure").exit_code == 2


def test_debug_shows_the_traceback(folder):
    result = run("fit", folder / "none.csv", *COLUMNS, "--debug")
    assert isinstance(result.exception, FileNotFoundError)


def test_no_permission_to_write(folder, tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    result = run("predict", folder / "model.bne", folder / "data.csv", "-o", tmp_path / "p.csv")
    assert result.exit_code == 1
    assert "cannot be written to" in result.stderr


def test_csv_round_trip_compressed(tmp_path):
    rows = pd.DataFrame({"a": [1.0, 2.5]})
    _files.write(rows, tmp_path / "t.csv.gz")
    pd.testing.assert_frame_equal(_files.read(tmp_path / "t.csv.gz", ["a"]).rows, rows)
