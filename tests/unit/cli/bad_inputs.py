"""Calls of the command line that must fail: name -> (arguments, what the one line says)."""

import hashlib
import json
import zipfile

import numpy as np
import pandas as pd

from conftest import shifted

COLUMNS = ["--target", "y", "--model", "rbf_short", "--model", "periodic", "--inputs", "x"]
SEED = ["--seed", str(shifted(1))]
QUICK = ["--calibration", "none", "--draws", "50", "--quiet", *SEED]


def bad_inputs(folder):
    """All calls, for a folder that holds data.csv and model.bne."""
    write_bad_tables(folder)
    write_bad_files(folder)
    return bad_columns(folder) | bad_tables(folder) | bad_predictions(folder) | bad_folds(folder)


def write_bad_tables(folder):
    data = pd.read_csv(folder / "data.csv")
    text = data.assign(x=data["x"].astype(object))
    text.loc[3, "x"] = "far"
    tables = {
        "text": text,
        "one": data[:1],
        "nan": data.assign(x=data["x"].where(data.x > 0)),
        "inf": data.assign(y=np.inf),
        "few": data[["x"]],
    }
    for name, frame in tables.items():
        frame.to_csv(folder / f"{name}.csv", index=False)


def write_bad_files(folder):
    (folder / "empty.csv").write_text("")
    (folder / "header.csv").write_text("x,rbf_short,periodic,y\n")
    (folder / "binary.csv").write_bytes(b"\xff\xfe\x00\x81" * 50)
    (folder / "broken.bne").write_bytes((folder / "model.bne").read_bytes()[:500])
    (folder / "text.bne").write_text("hello")
    (folder / "bad.parquet").write_text("hello")
    (folder / "bad.nc").write_text("hello")
    newer(folder)


def newer(folder):
    """A model file of a format that is not known yet."""
    with zipfile.ZipFile(folder / "model.bne") as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    text = json.dumps(json.loads(members["model.json"]) | {"format": 9}).encode()
    with zipfile.ZipFile(folder / "newer.bne", "w") as archive:
        archive.comment = hashlib.sha256(text).hexdigest().encode()
        for name, data in (members | {"model.json": text}).items():
            archive.writestr(name, data)


def bad_columns(folder):
    fit = ["fit", folder / "data.csv", *QUICK]
    one = [*fit, "--target", "y", "--model", "periodic"]
    return {
        "missing target": ([*fit, "--target", "z", "--model", "periodic"], "no column 'z'"),
        "missing model column": ([*fit, "--target", "y", "--model", "q"], "no column 'q'"),
        "missing input": ([*one, "--inputs", "lon"], "no column 'lon'"),
        "target is a model": ([*fit, "--target", "y", "--model", "y"], "cannot be a model"),
        "repeated model": ([*one, "--model", "periodic"], "unique"),
        "no draws": (
            ["fit", folder / "data.csv", *COLUMNS, "--draws", "0", "--quiet"],
            "`draws`",
        ),
    }


def bad_tables(folder):
    fit = ["fit", *COLUMNS, *QUICK, "-o", folder / "new.bne"]
    return {
        "missing file": ([*fit, folder / "none.csv"], "no file"),
        "text in a number column": ([*fit, folder / "text.csv"], "'far'"),
        "empty file": ([*fit, folder / "empty.csv"], "empty"),
        "header only": ([*fit, folder / "header.csv"], "no rows"),
        "binary file": ([*fit, folder / "binary.csv"], "cannot be read"),
        "one row": ([*fit, folder / "one.csv"], "at least"),
        "NaN rows": ([*fit, folder / "nan.csv"], "rows of"),
        "infinite": ([*fit, folder / "inf.csv"], "infinite"),
        "unknown extension in": ([*fit, folder / "data.xls"], "extension"),
        "output is a folder": ([*fit[:-1], folder, folder / "data.csv"], "extension"),
    }


def bad_predictions(folder):
    csv, predict = folder / "data.csv", ["predict", folder / "model.bne"]
    return {
        "unknown extension out": ([*predict, csv, "-o", folder / "p.doc"], "extension"),
        "no folder to write to": ([*predict, csv, "-o", folder / "no" / "p.csv"], "no folder"),
        "missing model file": (["predict", folder / "none.bne", csv], "no model file"),
        "truncated model file": (["predict", folder / "broken.bne", csv], "damaged"),
        "not a model file": (["predict", folder / "text.bne", csv], "not a model file"),
        "model from a newer version": (["predict", folder / "newer.bne", csv], "Upgrade bne"),
        "grid without a column": ([*predict, folder / "few.csv"], "no column"),
        "grid with NaN": ([*predict, folder / "nan.csv"], "rows of"),
        "broken parquet": ([*predict, folder / "bad.parquet"], "cannot be read"),
        "broken netcdf": ([*predict, folder / "bad.nc"], "cannot be read"),
        "quantiles in percent": ([*predict, csv, "--quantiles", "5,95"], "0.9, not 90"),
        "quantiles in words": ([*predict, csv, "--quantiles", "high"], "numbers"),
    }


def bad_folds(folder):
    evaluate = ["evaluate", folder / "data.csv", *COLUMNS, *QUICK]
    without = [a for a in evaluate if a not in ("--inputs", "x")]
    return {
        "one fold": ([*evaluate, "--folds", 1], "--folds"),
        "no fold column": ([*evaluate, "--fold-column", "block"], "no column 'block'"),
        "blocks without inputs": ([*without, "--blocks"], "--inputs"),
    }
