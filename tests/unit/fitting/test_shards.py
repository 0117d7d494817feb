"""How rows are dealt out to shards, and how shards are run."""

import os
import signal
import warnings
from functools import partial

import numpy as np
import pytest

import bne
from bne._data.rows import Rows
from bne._fitting.shards import ShardError, deal_rows, pilot_rows, run_tasks
from bne._sampler.diagnostics import warn_if_unsettled
from conftest import shifted


def some_rows(n, seed=shifted(0)):
    rng = np.random.default_rng(seed)
    rows = Rows(rng.uniform(size=(n, 2)), rng.normal(size=(n, 3)))
    return rows, rows.f @ [1.0, -1.0, 0.5] + 0.2 * rng.normal(size=n)


def test_rows_are_shared_out_once():
    rows, y = some_rows(43)
    shards = deal_rows(rows, y, 4, np.random.SeedSequence(shifted(0)))
    np.testing.assert_array_equal(np.sort(np.concatenate(shards)), np.arange(43))
    assert {len(s) for s in shards} == {10, 11}
    with pytest.raises(ValueError, match="Use fewer partitions"):
        deal_rows(rows, y, 5, np.random.SeedSequence(shifted(0)))


def test_shards_resemble_each_other():
    """Smooth functions of inputs and noise have nearly the same mean in all shards."""
    ratios = []
    for seed in range(40):
        rows, y = some_rows(800, shifted(seed))
        residual = y - rows.f @ [1.0, -1.0, 0.5]
        smooth = np.column_stack(
            [rows.x, np.sin(4.0 * rows.x), residual, residual * rows.x[:, 0], residual**2]
        )
        smooth = (smooth - smooth.mean(axis=0)) / smooth.std(axis=0)
        shards = deal_rows(rows, y, 8, np.random.SeedSequence(shifted(seed)))
        means = np.stack([smooth[s].mean(axis=0) for s in shards])
        ratios.append(100 * np.mean(means**2, axis=0))  # 7/8 were shards drawn at random
    # Over data sets means are 0.14 at most, of the square 0.49, with sds of 0.08 and 0.26: limits
    # are five standard errors of 40 data sets beyond.
    assert np.all(np.mean(ratios, axis=0) < np.array([*[0.2] * 6, 0.7]))


def test_every_row_goes_to_every_shard_as_often():
    rows, y = some_rows(64)
    times = np.zeros((64, 4))
    for seed in range(400):
        shards = deal_rows(rows, y, 4, np.random.SeedSequence(shifted(seed)))
        for i, shard in enumerate(shards):
            times[shard, i] += 1
    assert np.all(np.abs(times - 100.0) < 5.0 * np.sqrt(75.0))


def test_rows_without_inputs_are_dealt_by_their_residuals():
    rows, y = some_rows(80)
    rows = Rows(np.empty((80, 0)), rows.f)
    shards = deal_rows(rows, y, 4, np.random.SeedSequence(shifted(0)))
    residual = y - rows.f @ np.linalg.lstsq(rows.f, y)[0]
    ranks = np.argsort(np.argsort(residual)) // 4
    assert all(len(set(ranks[s])) == 20 for s in shards)


@pytest.mark.parametrize(
    ("n", "partitions", "expected"),
    [(40, 4, 20), (43, 4, 21), (4000, 8, 2000), (9000, 4, 2250), (900, 9, 450)],
)
def test_a_pilot_has_enough_rows(n, partitions, expected):
    rows = pilot_rows(n, partitions, np.random.SeedSequence(shifted(0)))
    assert len(np.unique(rows)) == expected
    assert rows.max() < n


def test_a_pilot_whose_chains_disagree_is_named():
    alike = np.random.default_rng(shifted(0)).normal(size=(2, 100))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_unsettled({"noise_scale": alike, "held": np.ones((2, 100))})
    apart = alike + np.array([[0.0], [2.0]])
    with pytest.warns(bne.SamplingWarning, match=r"R-hat up to 1\.\d\d.*raise `warmup`"):
        warn_if_unsettled({"weight_scale": alike, "noise_scale": apart})


def die_once(marker, value):
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return value


@pytest.mark.slow
def test_a_lost_worker_is_survived(tmp_path):
    tasks = [partial(die_once, tmp_path / "1", i) for i in range(4)]
    seen = []
    assert run_tasks(tasks, 2, seen.append) == [0, 1, 2, 3]
    assert sum(seen) == 4


def fail():
    raise ValueError("no luck")


def test_a_shard_that_fails_names_itself():
    with pytest.raises(ShardError, match=r"Shard 1 of 2 failed: no luck"):
        run_tasks([lambda: 0, fail], 2, lambda n: None)
