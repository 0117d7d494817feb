"""Files that mislead: crossed dimensions, shifted columns, outputs that would replace something."""

import hashlib
import json
import os
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest
import xarray as xr

pytest.importorskip("typer")

from bad_inputs import COLUMNS, QUICK, SEED
from typer.testing import CliRunner

import bne
from bne.cli import _tasks, app


def run(*arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def folder(tmp_path):
    """A table of forty rows."""
    assert run("demo", "-o", tmp_path / "data.csv", "--rows", 40, *SEED).exit_code == 0
    return tmp_path


@pytest.fixture
def model(folder):
    path = folder / "model.bne"
    assert run("fit", folder / "data.csv", *COLUMNS, *QUICK, "-o", path).exit_code == 0
    return path


def grid_of(folder, **more):
    """The table as a grid over time, with more variables."""
    data = pd.read_csv(folder / "data.csv")
    columns = {c: ("time", data[c].to_numpy()) for c in ("x", "rbf_short", "periodic", "y")}
    return xr.Dataset(columns | more, coords={"time": np.arange(40.0)})


def written(grid, path):
    if path.suffix == ".nc":
        grid.to_netcdf(path, engine="h5netcdf")
    else:
        grid.to_zarr(path, mode="w", consolidated=False)
    return path


@pytest.mark.parametrize("name", ["g.nc", "g.zarr"])
def test_variables_that_are_not_named_do_not_repeat_rows(folder, name):
    bounds = ("time", "bnds"), np.zeros((40, 2))
    path = written(grid_of(folder, time_bnds=bounds), folder / name)
    result = run("fit", path, *COLUMNS, *QUICK, "-o", folder / "m.bne")
    assert result.exit_code == 0, result.output
    assert bne.load(folder / "m.bne").n_rows_ == 40
    assert "are not read: 'time_bnds'." in " ".join(result.stderr.split())
    plain = run("fit", folder / "data.csv", *COLUMNS, *QUICK, "-o", folder / "n.bne")
    assert plain.exit_code == 0
    weights = [bne.load(folder / f"{n}.bne").weights_ for n in "mn"]
    np.testing.assert_array_equal(*weights)


def test_variables_on_other_dimensions_are_refused(folder, model):
    grid = grid_of(folder).drop_vars("x").assign(x=("other", np.arange(7.0)))
    path = written(grid, folder / "g.nc")
    said = {
        "'x' has the dimension 'other', which 'y' does not": ["fit", path, *COLUMNS, *QUICK],
        "'rbf_short' has the dimension 'time', which 'x' does not": ["predict", model, path],
    }
    for message, command in said.items():
        result = run(*command)
        assert result.exit_code == 1
        assert result.stderr.startswith(f"Error: {message}")
    members = np.zeros((40, 3))
    grid = grid_of(folder).drop_vars("periodic").assign(periodic=(("time", "member"), members))
    result = run("fit", written(grid, folder / "h.nc"), *COLUMNS, *QUICK)
    assert result.exit_code == 1
    assert "'periodic' has the dimension 'member', which 'y' does not have" in result.stderr


def test_a_lazy_grid_on_other_dimensions_is_refused(folder, model):
    from bne.grid import predict_grid

    grid = grid_of(folder).drop_vars("x").assign(x=("other", np.arange(7.0)))
    with pytest.raises(ValueError, match="'rbf_short' has the dimension 'time'"):
        predict_grid(bne.load(model), grid)


def test_copies_of_rows_in_several_folds_are_named(folder):
    data = pd.read_csv(folder / "data.csv")
    pd.concat([data, data[:20]]).to_csv(folder / "twice.csv", index=False)
    result = run("evaluate", folder / "twice.csv", *COLUMNS, *QUICK, "--folds", 2)
    assert result.exit_code == 0, result.output
    assert "have a copy in another fold" in result.stderr
    twice = pd.concat([data, data]).assign(fold=np.tile(np.arange(40) % 2, 2))
    twice.to_csv(folder / "whole.csv", index=False)
    result = run("evaluate", folder / "whole.csv", *COLUMNS, *QUICK, "--fold-column", "fold")
    assert result.exit_code == 0, result.output
    assert "copy" not in result.stderr


@pytest.mark.parametrize("from_line", [1, 7])
def test_rows_with_more_fields_than_the_header(folder, from_line):
    lines = (folder / "data.csv").read_text().splitlines()
    longer = [*lines[:from_line], *(f"7,{line}" for line in lines[from_line:])]
    (folder / "long.csv").write_text("\n".join(longer))
    result = run("fit", folder / "long.csv", *COLUMNS, *QUICK, "-o", folder / "m.bne")
    assert result.exit_code == 1
    assert f"line {from_line + 1}" in result.stderr.replace("\n", " ")
    assert not (folder / "m.bne").exists()


def test_an_output_does_not_replace_an_input(folder, model):
    data = folder / "data.csv"
    link = folder / "link.csv"
    link.symlink_to(data)
    before = data.read_bytes(), model.read_bytes()
    calls = [
        ["predict", model, data, "-o", data],
        ["predict", model, link, "-o", data],
        ["evaluate", data, *COLUMNS, *QUICK, "-o", data],
        ["fit", model, *COLUMNS, *QUICK, "-o", model],
    ]
    for call in calls:
        result = run(*call)
        assert result.exit_code == 1, call
        assert "would replace the input" in result.stderr
    assert (data.read_bytes(), model.read_bytes()) == before


def test_an_output_has_an_ending_of_its_kind(folder, model):
    data = folder / "data.csv"
    before = data.read_bytes(), model.read_bytes()
    calls = [
        (["fit", data, *COLUMNS, *QUICK, "-o", data], ".bne"),
        (["fit", data, *COLUMNS, *QUICK, "-o", folder / "m.parquet"], ".bne"),
        (["report", model, "-o", model], ".html"),
        (["predict", model, data, "-o", folder / "p.html"], ".csv"),
        (["demo", "-o", folder / "d.bne"], ".csv"),
    ]
    for call, right in calls:
        result = run(*call)
        assert result.exit_code == 1, call
        assert "extension" in result.stderr and right in result.stderr
    assert (data.read_bytes(), model.read_bytes()) == before


def test_a_folder_that_bne_did_not_write_stays(folder, model):
    data, mine = folder / "data.csv", folder / "mine.zarr"
    mine.mkdir()
    (mine / "thesis.txt").write_text("all of it")
    result = run("predict", model, data, "-o", mine)
    assert result.exit_code == 1
    assert "bne did not write it" in result.stderr
    assert (mine / "thesis.txt").read_text() == "all of it"
    theirs = written(grid_of(folder), folder / "theirs.zarr")
    assert run("predict", model, data, "-o", theirs).exit_code == 1
    assert "y" in xr.open_zarr(theirs, consolidated=False)
    ours = folder / "ours.zarr"
    assert run("predict", model, data, "-o", ours).exit_code == 0
    assert run("predict", model, data, "-o", ours).exit_code == 0
    (ours / "notes.txt").write_text("keep")
    assert run("predict", model, data, "-o", ours).exit_code == 1
    assert (ours / "notes.txt").exists()


def test_a_model_of_arrays_is_named(folder):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    settings = {"calibration": None, "chains": 1, "warmup": 20, "draws": 20, "random_state": 0}
    fitted = bne.BNERegressor([("a", 0)], inputs=[1], **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted.fit(X, X[:, 0])
    fitted.save(folder / "array.bne")
    result = run("predict", folder / "array.bne", folder / "data.csv")
    assert result.exit_code == 1
    assert "columns have no names" in result.stderr


def test_names_and_folders_are_tried_before_the_work(folder, monkeypatch):
    monkeypatch.setattr(_tasks, "fit", lambda *_: pytest.fail("the fit was begun"))
    for name in ("a" * 250 + ".bne", "no/m.bne"):
        result = run("fit", folder / "data.csv", *COLUMNS, *QUICK, "-o", folder / name)
        assert result.exit_code == 1
        assert result.stderr.startswith("Error: ")
    assert not [p for p in folder.iterdir() if p.name.startswith(".")]


def test_permissions_masks_and_links_are_kept(folder, model):
    model.chmod(0o600)
    link = folder / "link.bne"
    link.symlink_to(model)
    bne.load(model).save(link)
    assert link.is_symlink() and model.stat().st_mode & 0o777 == 0o600
    before = os.umask(0o077)
    try:
        bne.load(model).save(folder / "private.bne")
    finally:
        os.umask(before)
    assert (folder / "private.bne").stat().st_mode & 0o777 == 0o600


def test_columns_with_the_names_of_answers_are_kept(folder, model):
    data = pd.read_csv(folder / "data.csv").assign(mean=7.0, sd="mine")
    data.to_csv(folder / "named.csv", index=False)
    result = run("predict", model, folder / "named.csv", "-o", folder / "p.csv")
    assert result.exit_code == 0, result.output
    assert "They are written as input_mean, input_sd." in " ".join(result.stderr.split())
    table = pd.read_csv(folder / "p.csv")
    assert (table["input_mean"] == 7.0).all() and (table["input_sd"] == "mine").all()
    assert table["mean"].std() > 0
    result = run("predict", model, folder / "p.csv", "-o", folder / "q.csv")
    assert result.exit_code == 1 and "Rename it" in result.stderr


def test_folds_with_gaps(folder):
    data = pd.read_csv(folder / "data.csv").assign(fold=np.arange(40) % 2)
    data["fold"] = data["fold"].where(data.index != 3)
    data.to_csv(folder / "gaps.csv", index=False)
    call = ["evaluate", folder / "gaps.csv", *COLUMNS, *QUICK, "--fold-column", "fold"]
    result = run(*call)
    assert result.exit_code == 1 and "has 1 missing values" in result.stderr


def altered(model, path, **parameters):
    """Write a model file with other parameters, whose checksums are right."""
    with zipfile.ZipFile(model) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    description = json.loads(members["model.json"])
    description["parameters"] |= parameters
    text = json.dumps(description).encode()
    with zipfile.ZipFile(path, "w") as archive:
        archive.comment = hashlib.sha256(text).hexdigest().encode()
        for name, data in (members | {"model.json": text}).items():
            archive.writestr(name, data)
    return path


def test_a_crafted_model_file(folder, model):
    crafted = altered(model, folder / "crafted.bne", checkpoint=str(folder / "elsewhere"))
    assert bne.load(crafted).checkpoint is None
    crafted = altered(model, folder / "crafted.bne", length_scales="all")
    with pytest.raises(bne.ModelFileError, match="`length_scales` must be"):
        bne.load(crafted)


def test_a_checkpoint_does_not_delete_the_users_files(folder):
    mine = folder / "run" / "full" / "draws" / "chain0" / "mine.npz"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"the user's")
    call = ["fit", folder / "data.csv", *COLUMNS, *QUICK, "--checkpoint", folder / "run"]
    result = run(*call, "-o", folder / "m.bne")
    assert result.exit_code == 1
    assert "Name another folder." in result.stderr and "delete" not in result.stderr.lower()
    assert mine.read_bytes() == b"the user's"
