"""Model files: the same predictions after a round trip, and nothing else is ever loaded."""

import hashlib
import io
import json
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, Ridge

import bne
from bne import BNERegressor, ModelFileError
from bne.datasets import make_gamma_0d, make_wave_1d
from bne.io import atomic
from conftest import shifted

pytestmark = pytest.mark.slow

EXPERTS = [(c, c) for c in ("rbf_short", "rbf_long", "periodic")]
QUICK = {"chains": 1, "warmup": 20, "draws": 20, "random_state": shifted(0)}


@pytest.fixture(scope="module")
def data():
    return make_wave_1d(40, random_state=shifted(0))


@pytest.fixture(scope="module")
def model(data):
    return BNERegressor(EXPERTS, inputs=["x"], **QUICK).fit(data.X, data.y)


@pytest.fixture
def path(model, tmp_path):
    model.save(tmp_path / "model.bne")
    return tmp_path / "model.bne"


def assert_same_answers(a, b, X):
    for stage in ("ensemble", "additive", "full"):
        first, second = (m.predict_distribution(X, stage=stage) for m in (a, b))
        np.testing.assert_array_equal(first.mean(), second.mean())
        np.testing.assert_array_equal(first.ppf(0.9), second.ppf(0.9))
    pd.testing.assert_frame_equal(a.decompose(X).to_frame(), b.decompose(X).to_frame())
    pd.testing.assert_frame_equal(a.detect_bias(X).to_frame(), b.detect_bias(X).to_frame())


def test_round_trip(model, path, data):
    loaded = bne.load(path)
    assert_same_answers(model, loaded, data.X[:5])
    assert loaded.get_params(deep=False) == model.get_params(deep=False)
    pd.testing.assert_frame_equal(loaded.diagnostics(), model.diagnostics())
    loaded.save(path)  # a loaded model may be saved again, over its own file
    assert_same_answers(model, bne.load(path), data.X[:5])


@pytest.mark.parametrize("settings", [{"calibration": None}, {"orthogonalize": True}])
def test_round_trip_of_variants(settings, data, tmp_path):
    model = BNERegressor(EXPERTS, inputs=["x"], **(QUICK | settings)).fit(data.X, data.y)
    model.save(tmp_path / "m.bne")
    assert_same_answers(model, bne.load(tmp_path / "m.bne"), data.X[:5])


@pytest.mark.filterwarnings("ignore:Experts .'constant'. predict the same value")
def test_round_trip_without_inputs(tmp_path):
    data = make_gamma_0d(30, random_state=shifted(0))
    model = BNERegressor([("constant", "constant")], inputs=[], **QUICK).fit(data.X, data.y)
    model.save(tmp_path / "m.bne")
    assert_same_answers(model, bne.load(tmp_path / "m.bne"), data.X[:3])


def test_regressors_are_saved_on_request_only(data, tmp_path):
    pytest.importorskip("skops")
    experts = [("line", LinearRegression()), ("ridge", Ridge()), ("p", "periodic")]
    model = BNERegressor(experts, inputs=["x"], calibration=None, **QUICK).fit(data.X, data.y)
    with pytest.raises(ValueError, match="include_estimators=True"):
        model.save(tmp_path / "m.bne")
    model.save(tmp_path / "m.bne", include_estimators=True)
    loaded = bne.load(tmp_path / "m.bne")
    np.testing.assert_array_equal(loaded.predict(data.X), model.predict(data.X))


class Evil(LinearRegression):
    """A type that no file should be trusted with by default."""


def test_untrusted_types_are_refused(data, tmp_path):
    pytest.importorskip("skops")
    model = BNERegressor([("evil", Evil())], inputs=["x"], calibration=None, **QUICK)
    model.fit(data.X, data.y).save(tmp_path / "m.bne", include_estimators=True)
    with pytest.raises(ModelFileError, match="Evil"):
        bne.load(tmp_path / "m.bne")
    trusted = [f"{Evil.__module__}.Evil"]
    loaded = bne.load(tmp_path / "m.bne", trusted=trusted)
    np.testing.assert_array_equal(loaded.predict(data.X), model.predict(data.X))


def test_a_pickle_is_refused_unread(tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    (tmp_path / "m.bne").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ModelFileError, match="not a model file"):
        bne.load(tmp_path / "m.bne")
    with zipfile.ZipFile(tmp_path / "z.bne", "w") as archive:
        archive.writestr("model.json", pickle.dumps(Bomb()))
    with pytest.raises(ModelFileError, match="checksum"):
        bne.load(tmp_path / "z.bne")
    assert not (tmp_path / "ran").exists()


def test_altered_and_truncated_files_are_refused(path, tmp_path):
    whole = path.read_bytes()
    rng = random.Random(shifted(0))
    broken = tmp_path / "broken.bne"
    for _ in range(60):
        data = bytearray(whole)
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)
        broken.write_bytes(data if rng.random() < 0.7 else whole[:at])
        try:
            bne.load(broken)
        except ModelFileError:
            continue
        # a bit of the archive's own bookkeeping (a date, say) may turn without harm
        assert_members_equal(broken, path)


def assert_members_equal(a, b):
    with zipfile.ZipFile(a) as first, zipfile.ZipFile(b) as second:
        assert {n: first.read(n) for n in first.namelist()} == {
            n: second.read(n) for n in second.namelist()
        }


def rewritten(path, change):
    """The same archive with a changed description and a matching checksum: a hostile file."""
    import hashlib

    with zipfile.ZipFile(path) as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    description = json.loads(members["model.json"])
    change(description)
    members["model.json"] = json.dumps(description).encode()
    with zipfile.ZipFile(path, "w") as archive:
        archive.comment = hashlib.sha256(members["model.json"]).hexdigest().encode()
        for name, data in members.items():
            archive.writestr(name, data)


def newer(description):
    description["format"] = 99


def older(description):
    description["format"] = 1


def unknown_type(description):
    description["state"]["scaling_"]["type"] = "os.system"


def object_dtype(description):
    description["state"]["scaling_"] = {"empty": [0], "dtype": "|O"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (newer, "Upgrade bne"),
        (older, "Fit the model again"),
        (unknown_type, "os.system"),
        (object_dtype, "numbers only"),
    ],
)
def test_hostile_descriptions_are_refused(path, change, message):
    rewritten(path, change)
    with pytest.raises(ModelFileError, match=message):
        bne.load(path)


def test_no_such_file_or_folder(model, tmp_path):
    with pytest.raises(FileNotFoundError, match="no model file"):
        bne.load(tmp_path / "none.bne")
    with pytest.raises(FileNotFoundError, match="no folder"):
        model.save(tmp_path / "no" / "m.bne")


def write_forever(path):
    while True:
        with atomic(path) as file:
            for _ in range(2000):
                file.write(b"new")


def test_a_killed_save_leaves_a_whole_file(tmp_path):
    path = tmp_path / "m.bne"
    path.write_bytes(b"old")
    for _ in range(5):
        process = multiprocessing.get_context("spawn").Process(target=write_forever, args=(path,))
        process.start()
        while path.read_bytes() == b"old":
            time.sleep(0.01)
        time.sleep(random.random() * 0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert path.read_bytes() == b"new" * 2000


def test_an_error_while_writing_changes_nothing(tmp_path):
    path = tmp_path / "m.bne"
    path.write_bytes(b"old")
    with pytest.raises(TypeError, match="bytes"), atomic(path) as file:
        file.writelines([b"new", "text"])
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_kernels_given_as_functions_cannot_be_saved(data, tmp_path):
    model = BNERegressor(
        EXPERTS, inputs=["x"], residual=lambda r: np.exp(-r), calibration=None, **QUICK
    )
    model.fit(data.X, data.y)
    with pytest.raises(ValueError, match="named ones"):
        model.save(tmp_path / "m.bne")
    assert list(tmp_path.iterdir()) == []


def resealed(path, members, compression=zipfile.ZIP_STORED):
    """An archive with right checksums, as a hostile author would make it."""
    description = json.loads(members["model.json"])
    description["sha256"] = {
        name: hashlib.sha256(data).hexdigest()
        for name, data in members.items()
        if name != "model.json"
    }
    members["model.json"] = json.dumps(description).encode()
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.comment = hashlib.sha256(members["model.json"]).hexdigest().encode()
        for name, data in members.items():
            archive.writestr(name, data)


def members_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_compressed_member_is_refused_before_it_is_read(path):
    members = members_of(path)
    members["arrays.nc"] = bytes(10_000_000)
    resealed(path, members, zipfile.ZIP_DEFLATED)
    with pytest.raises(ModelFileError, match="compressed"):
        bne.load(path)


def test_arrays_that_claim_more_than_there_is_are_refused(path):
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:  # chunks that were never written take no space
        file.create_dataset("bomb", shape=(2**40,), dtype="f8", chunks=(1024,))
    resealed(path, members_of(path) | {"arrays.nc": buffer.getvalue()})
    with pytest.raises(ModelFileError, match="in another way"):
        bne.load(path)


def test_arrays_kept_in_another_file_are_not_read(path, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(np.arange(10.0).tobytes())
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.create_dataset("theirs", (10,), "f8", external=[(str(secret), 0, 80)])
        file["linked"] = h5py.ExternalLink(str(path), "/x")
    resealed(path, members_of(path) | {"arrays.nc": buffer.getvalue()})
    with pytest.raises(ModelFileError, match="in another way"):
        bne.load(path)


def mutated(data, rng):
    """Bytes flipped, cut, repeated or filled with noise."""
    data = bytearray(data)
    kind, at = rng.integers(5), int(rng.integers(len(data)))
    if kind == 0:
        for i in rng.integers(len(data), size=rng.integers(1, 20)):
            data[i] ^= int(rng.integers(1, 256))
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        del data[at : at + int(rng.integers(1, 1000))]
    elif kind == 3:
        data[at:at] = data[: int(rng.integers(1, 1000))]
    else:
        data[at : at + 50] = rng.bytes(50)
    return bytes(data)


def test_mutated_files_are_refused_or_the_same(model, data, tmp_path):
    """Ten thousand of them with BNE_FUZZ=10000; what the checksums miss changes nothing."""
    path = tmp_path / "model.bne"
    model.save(path)
    whole, rng = path.read_bytes(), np.random.default_rng(shifted(0))
    refused, count = 0, int(os.environ.get("BNE_FUZZ", "200"))
    for _ in range(count):
        path.write_bytes(mutated(whole, rng))
        try:
            loaded = bne.load(path)
        except ModelFileError:
            refused += 1
        else:
            np.testing.assert_array_equal(loaded.predict(data.X[:3]), model.predict(data.X[:3]))
    assert refused > 0.9 * count


def test_neither_fitting_nor_answering_uses_the_network(tmp_path):
    """Every socket but the local ones of workers is refused."""
    code = f"""
import socket, sys, warnings
warnings.simplefilter("ignore")
def refuse(self, address, *_):
    raise AssertionError("network", address)
socket.socket.connect = refuse
socket.getaddrinfo = refuse
from bne import BNERegressor, load
from bne.datasets import make_wave_1d
from bne.report import write_report
data = make_wave_1d(30, random_state={shifted(0)})
experts = [("rbf_short", "rbf_short"), ("periodic", "periodic")]
settings = dict(calibration=None, chains=2, draws=50, random_state={shifted(0)})
model = BNERegressor(experts, inputs=["x"], **settings).fit(data.X, data.y)
model.save(sys.argv[1] + "/m.bne")
write_report(load(sys.argv[1] + "/m.bne"), sys.argv[1] + "/r.html")
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=120)


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch, failing):
    def full(*_):
        raise OSError(28, "No space left on device")

    where = {"fsync": (os, "fsync"), "replace": (Path, "replace")}[failing]
    monkeypatch.setattr(*where, full)
    with pytest.raises(OSError, match="No space left"), atomic(tmp_path / "f.bin") as file:
        file.write(b"data")
    assert list(tmp_path.iterdir()) == []
