"""Runs that survive being killed: same draws to the last bit, and nothing mixed up."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest

from bne import BNERegressor
from bne._sampler import checkpoint as _checkpoint
from bne.datasets import make_wave_1d
from conftest import EXPERTS, shifted

SETTINGS = {"inputs": ["x"], "chains": 2, "warmup": 60, "draws": 120, "random_state": shifted(0)}

RUN = f"""
import sys, warnings
warnings.simplefilter("ignore")
from bne import BNERegressor
from bne._sampler import checkpoint as _checkpoint
from bne.datasets import make_wave_1d
_checkpoint.INTERVAL = 0.0
data = make_wave_1d(40, random_state={shifted(2)})
experts = [(c, c) for c in ("rbf_short", "rbf_long", "periodic")]
settings = dict(inputs=["x"], chains=2, warmup=60, draws=120, random_state={shifted(0)})
BNERegressor(experts, checkpoint=sys.argv[1], **settings).fit(data.X, data.y)
"""


def fit(folder, **changes):
    data = make_wave_1d(40, random_state=shifted(2))
    return BNERegressor(EXPERTS, checkpoint=folder, **(SETTINGS | changes)).fit(data.X, data.y)


def positions(model):
    return {name: s.draws.position for name, s in model.posterior_.shards[0].stages.items()}


def files(folder):
    return sorted(folder.rglob("*.npz"))


@pytest.fixture(scope="module")
def unbroken():
    return positions(fit(None))


def assert_same(model, unbroken):
    for name, expected in unbroken.items():
        np.testing.assert_array_equal(positions(model)[name], expected)


@pytest.mark.slow
def test_killed_runs_go_on_to_the_same_draws(unbroken, tmp_path):
    """Killed whenever some more blocks are there: between stages, rounds and draws."""
    kills = 0
    for target in (5, 20, 40):  # of 48: the last is in the full stage
        process = subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path)])
        while len(files(tmp_path)) < target and process.poll() is None:
            time.sleep(0.02)
        kills += process.poll() is None
        process.kill()
        process.wait()
    assert kills == 3
    before = len(files(tmp_path))
    assert_same(fit(tmp_path), unbroken)
    assert len(files(tmp_path)) > before


@pytest.mark.slow
def test_a_finished_run_is_read_back(unbroken, tmp_path):
    fit(tmp_path)
    written = {path: path.stat().st_mtime_ns for path in files(tmp_path)}
    assert_same(fit(tmp_path), unbroken)
    assert {path: path.stat().st_mtime_ns for path in files(tmp_path)} == written


@pytest.mark.slow
def test_a_damaged_block_and_what_follows_it_are_made_again(unbroken, tmp_path, monkeypatch):
    monkeypatch.setattr(_checkpoint, "INTERVAL", 0.0)
    fit(tmp_path)
    damaged = sorted((tmp_path / "full" / "draws" / "chain1").glob("*.npz"))[1]
    damaged.write_bytes(damaged.read_bytes()[:200])
    (tmp_path / "full" / "draws" / "chain0" / ".half.npz.tmp").write_bytes(b"half")
    assert_same(fit(tmp_path), unbroken)


def test_draws_without_a_description_are_refused_and_kept(tmp_path):
    fit(tmp_path, calibration=None)
    (tmp_path / "run.json").unlink()
    before = files(tmp_path)
    with pytest.raises(_checkpoint.CheckpointError, match=r"no run\.json"):
        fit(tmp_path, calibration=None)
    assert files(tmp_path) == before


def test_blocks_of_another_run_are_not_taken_for_this_ones(tmp_path):
    """Their shapes are the same; on a worker's own disk nothing else tells them apart."""
    fit(tmp_path / "old", calibration=None, random_state=shifted(1))
    fit(tmp_path / "new", calibration=None)
    for path in files(tmp_path / "old"):
        other = tmp_path / "new" / path.relative_to(tmp_path / "old")
        other.write_bytes(path.read_bytes())
    assert_same(fit(tmp_path / "new", calibration=None), positions(fit(None, calibration=None)))


def test_another_kernel_function_of_the_same_name_is_refused(tmp_path):
    fit(tmp_path, calibration=None, residual=lambda r: np.exp(-r))
    with pytest.raises(_checkpoint.CheckpointError, match="other residual"):
        fit(tmp_path, calibration=None, residual=lambda r: np.exp(-0.5 * r**2))


def test_a_residual_left_out_or_taken_in_is_refused(tmp_path):
    for name, residuals in (("out", ("matern32", None)), ("in", (None, "matern32"))):
        fit(tmp_path / name, calibration=None, residual=residuals[0])
        before = files(tmp_path / name)
        with pytest.raises(_checkpoint.CheckpointError, match="other residual"):
            fit(tmp_path / name, calibration=None, residual=residuals[1])
        assert files(tmp_path / name) == before


def test_a_setting_of_numpys_single_precision_keeps_its_value(tmp_path):
    fit(tmp_path, calibration=None, target_acceptance=np.float32(0.8))
    with pytest.raises(_checkpoint.CheckpointError, match="other target_acceptance"):
        fit(tmp_path, calibration=None, target_acceptance=np.float32(0.9))


def test_other_data_or_settings_are_refused(tmp_path):
    fit(tmp_path, calibration=None)
    with pytest.raises(_checkpoint.CheckpointError, match="other draws"):
        fit(tmp_path, calibration=None, draws=121)
    with pytest.raises(_checkpoint.CheckpointError, match="other random_state"):
        fit(tmp_path, calibration=None, random_state=shifted(1))
    data = make_wave_1d(40, random_state=shifted(2))
    model = BNERegressor(EXPERTS, checkpoint=tmp_path, **(SETTINGS | {"calibration": None}))
    with pytest.raises(_checkpoint.CheckpointError, match="other predictions, y"):
        model.fit(data.X, np.where(np.arange(40) == 7, data.y + 0.1, data.y))
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(_checkpoint.CheckpointError, match="not the description of a run"):
        fit(tmp_path, calibration=None)


def test_another_version_is_refused(tmp_path, monkeypatch):
    """The rest of its draws would not be those of an unbroken run."""
    fit(tmp_path, calibration=None)
    monkeypatch.setattr(_checkpoint, "__version__", "0.0.1")
    with pytest.raises(_checkpoint.CheckpointError, match="other bne"):
        fit(tmp_path, calibration=None)
    monkeypatch.undo()
    real = _checkpoint.version
    monkeypatch.setattr(_checkpoint, "version", lambda n: "0.0.1" if n == "blackjax" else real(n))
    with pytest.raises(_checkpoint.CheckpointError, match="other blackjax"):
        fit(tmp_path, calibration=None)


def test_without_a_random_state_the_runs_own_seed_goes_on(tmp_path):
    first = fit(tmp_path, calibration=None, random_state=None)
    again = fit(tmp_path, calibration=None, random_state=None)
    assert_same(again, positions(first))
    assert json.loads((tmp_path / "run.json").read_text())["settings"]["random_state"] is None


def test_shards_have_checkpoints_of_their_own(tmp_path):
    changes = {"calibration": None, "partitions": 2}
    fit(tmp_path, **changes)
    assert {path.name for path in tmp_path.iterdir()} == {"run.json", "shard0", "shard1"}
    again = fit(tmp_path, **changes)
    expected = fit(None, **changes)
    for a, b in zip(again.posterior_.shards, expected.posterior_.shards, strict=True):
        np.testing.assert_array_equal(
            a.stages["additive"].draws.position, b.stages["additive"].draws.position
        )
