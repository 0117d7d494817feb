"""Stored tables: a killed run goes on where it was, and the page reads nothing else."""

import json
import multiprocessing
import os
import signal
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bne.baselines import Comparator, Mixture
from paper import figures, page, real
from paper.scores import stages_of
from paper.simulated import read_wave
from paper.store import replace, resume


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
    text = page.page(tmp_path)
    line = next(line for line in text.splitlines() if "continuously improve" in line)
    assert line.endswith(f"| {verdict} |")
    assert "0.700 / 0.500 / 0.300" in text


def test_methods_are_compared_on_the_same_sets(tmp_path):
    """A set on which only some have run does not count yet."""
    rows = fake_rows(0.2)
    ours = rows[rows["group"] == "bne"].assign(repeat=2, l1=99.0)
    pd.concat([rows, ours]).to_csv(tmp_path / "fig4_rows.csv", index=False)
    kept = read_wave(tmp_path)
    assert len(kept) == len(rows)
    assert kept["l1"].max() < 99.0
    assert "1 sets at n = 100" in page.page(tmp_path)


@pytest.mark.parametrize("name", ["fig3", "real"])
def test_a_run_says_how_it_fitted(tmp_path, monkeypatch, name):
    monkeypatch.setitem(figures.FIGURES, name, lambda *_: None)
    figures.reproduce([name], tmp_path, 3, None, True)
    settings = json.loads((tmp_path / f"{name}.json").read_text())["settings"]
    assert settings == {"repeats": 3} | figures.SETTINGS[name]
    assert (settings.get("all") == real.SETTINGS) is (name == "real")


def test_an_empty_folder_gives_an_empty_page(tmp_path):
    assert page.page(tmp_path).startswith("# The paper's claims")


def test_scores_on_real_data_are_pooled_by_rows():
    from paper.real import summary

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


def test_stages_are_predicted_by_their_short_names():
    model: Any = SimpleNamespace(predict_distribution=lambda X, stage: (X, stage))
    found = {name: predict("rows") for name, predict in stages_of(model).items()}
    stages = {"ensemble": "ensemble", "BAE": "additive", "BNE": "full"}
    assert found == {name: ("rows", stage) for name, stage in stages.items()}


def test_a_new_comparator_is_drawn_without_a_colour_of_its_own(tmp_path, monkeypatch):
    """A comparator is declared in the registry only; the figure shows it."""
    rows = fake_rows(0.2)
    new = rows[rows["method"] == "stack"].assign(method="mine", l1=0.123)
    monkeypatch.setattr(figures, "COMPARATORS", (Comparator("mine", Mixture),))
    drawn = []
    monkeypatch.setattr(figures, "save", lambda figure, path: drawn.append(figure))
    figures.draw_fig4(pd.concat([rows, new]), tmp_path)
    assert "mine" in [text.get_text() for text in drawn[0].legends[0].get_texts()]


def test_the_command_forwards_to_the_checkout(tmp_path, monkeypatch):
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from bne.cli import app, tasks

    result = CliRunner().invoke(app, ["reproduce", "page", "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "README.md").read_text() == page.page(tmp_path)
    result = CliRunner().invoke(app, ["reproduce", "fig9", "-o", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: There is no figure 'fig9'. Choose one of fig2")
    monkeypatch.setattr(tasks, "__file__", str(tmp_path / "a" / "b" / "c" / "tasks.py"))
    result = CliRunner().invoke(app, ["reproduce", "page", "-o", str(tmp_path)])
    assert result.exit_code == 1
    assert "Clone the sources and run `make paper` there" in result.stderr
