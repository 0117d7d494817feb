"""Stored tables: a killed run goes on where it was, and the page reads nothing else."""

import json
import multiprocessing
import os
import signal
import time

import numpy as np
import pandas as pd
import pytest

from bne.reproduce import _figures, _page, _real
from bne.reproduce._simulated import read_wave
from bne.reproduce._store import replace, resume


def slow(a, b):
    time.sleep(0.05)
    return [{"method": m, "value": a * 10 + b + i / 7} for i, m in enumerate("xy")]


KEYS = [{"a": a, "b": b} for a in range(5) for b in (3, 1)]


@pytest.mark.slow
def test_a_killed_run_gives_the_table_of_an_unbroken_one(tmp_path):
    whole = resume(tmp_path / "whole.csv", KEYS, slow, quiet=True)
    path = tmp_path / "killed.csv"
    process = multiprocessing.get_context("spawn").Process(
        target=resume, args=(path, KEYS, slow), kwargs={"quiet": True}
    )
    process.start()
    while not path.exists() or len(pd.read_csv(path)) < 4:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    stored = len(pd.read_csv(path))
    assert 4 <= stored < len(whole)
    computed = []

    def counting(**key):
        computed.append(key)
        return slow(**key)

    again = resume(path, KEYS, counting, quiet=True)
    assert len(computed) == (len(whole) - stored) // 2
    pd.testing.assert_frame_equal(again, whole)
    assert path.read_text() == (tmp_path / "whole.csv").read_text()


def test_a_half_written_file_is_not_counted(tmp_path):
    path = tmp_path / "t.csv"
    (tmp_path / "t.csv.partial").write_text("a,b,method,value\n0,3,x,")
    assert len(resume(path, KEYS, slow, quiet=True)) == 2 * len(KEYS)


@pytest.mark.slow
def test_more_keys_later(tmp_path):
    path = tmp_path / "t.csv"
    resume(path, KEYS[:3], slow, quiet=True)
    table = resume(path, KEYS, slow, n_jobs=2, quiet=True)
    assert len(table) == 2 * len(KEYS)
    assert table[["a", "b"]].equals(table[["a", "b"]].sort_values(["a", "b"], kind="stable"))


def test_replace_leaves_no_trace_of_its_work(tmp_path):
    replace(tmp_path / "new" / "f.txt", "one")
    replace(tmp_path / "new" / "f.txt", "two")
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["f.txt"]
    assert (tmp_path / "new" / "f.txt").read_text() == "two"


def fake_rows(bne_at_1000):
    levels = {"BNE": [0.7, 0.5, 0.3, bne_at_1000], "BAE": [0.9, 0.8, 0.75, 0.74]}
    levels |= {"ensemble": [2.0] * 4, "stack": [2.1, 2.1, 2.0, 2.0], "BME": [1.6, 1.5, 1.4, 1.3]}
    levels |= {"CondKDE": [0.9, 0.6, 0.4, 0.3], "DeepEns": [0.8, 0.7, 0.5, 0.4]}
    rows = []
    for method, values in levels.items():
        for n, value in zip((100, 200, 500, 1000), values, strict=True):
            group = "bne" if method in ("ensemble", "BAE", "BNE") else "comparators"
            row = {"variant": 1, "n": n, "repeat": 1, "group": group}
            row |= {"method": method, "l1": value}
            row |= {"rmse_mean": value + 0.1, "coverage_90": 0.9, "nll": 1.5}
            rows.append(row | {"mass_0.1": value, "mass_0.2": value / 2, "l2_median": value})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("at_1000", "verdict"), [(0.2, "holds"), (0.31, "holds partly")])
def test_verdicts_follow_the_table(tmp_path, at_1000, verdict):
    fake_rows(at_1000).to_csv(tmp_path / "fig4_rows.csv", index=False)
    page = _page.page(tmp_path)
    line = next(line for line in page.splitlines() if "continuously improve" in line)
    assert line.endswith(f"| {verdict} |")
    assert "0.700 / 0.500 / 0.300" in page


def test_methods_are_compared_on_the_same_sets(tmp_path):
    """A set on which only some have run does not count yet."""
    rows = fake_rows(0.2)
    ours = rows[rows["group"] == "bne"].assign(repeat=2, l1=99.0)
    pd.concat([rows, ours]).to_csv(tmp_path / "fig4_rows.csv", index=False)
    kept = read_wave(tmp_path)
    assert len(kept) == len(rows)
    assert kept["l1"].max() < 99.0
    assert "1 sets at n = 100" in _page.page(tmp_path)


@pytest.mark.parametrize("name", ["fig3", "real"])
def test_a_run_says_how_it_fitted(tmp_path, monkeypatch, name):
    monkeypatch.setitem(_figures.FIGURES, name, lambda *_: None)
    _figures.reproduce([name], tmp_path, 3, None, True)
    settings = json.loads((tmp_path / f"{name}.json").read_text())["settings"]
    assert settings == {"repeats": 3} | _figures.SETTINGS[name]
    assert (settings.get("all") == _real.SETTINGS) is (name == "real")


def test_an_empty_folder_gives_an_empty_page(tmp_path):
    assert _page.page(tmp_path).startswith("# The paper's claims")


def test_scores_on_real_data_are_pooled_by_rows():
    from bne.reproduce._real import summary

    rows = pd.DataFrame(
        {
            "data": "d",
            "split": [0, 1],
            "method": "BNE",
            "n_test": [1, 3],
            "crps": [1.0, 2.0],
            "rmse": [1.0, 2.0],
            "nll": [0.0, 4.0],
            "coverage_90": [1.0, 0.0],
        }
    )
    pooled = summary(rows).iloc[0]
    assert pooled["crps"] == pytest.approx(1.75)
    assert pooled["rmse"] == pytest.approx(np.sqrt(13 / 4))
    assert pooled["coverage_90"] == pytest.approx(0.25)
    assert pooled["splits"] == 2
