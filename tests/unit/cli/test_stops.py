"""Ctrl-C and SIGTERM end a fit with one line, a code of their own, and nothing left behind."""

import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

pytest.importorskip("typer")

COLUMNS = ["--target", "y", "--model", "rbf_short", "--model", "periodic", "--inputs", "x"]


@contextmanager
def heeding_interrupts():
    """Undo what a shell does to jobs in the background: they, and their children, ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "code", "until"),
    [(signal.SIGINT, 130, "+ calibration"), (signal.SIGTERM, 143, "+ calibration:   1%")],
)
def test_a_fit_that_is_stopped(sent, code, until, tmp_path):
    """Once while programs are compiled, and once while chains run in threads."""
    bne = [sys.executable, "-m", "bne"]
    subprocess.run([*bne, "demo", "-o", "data.csv"], check=True, cwd=tmp_path, capture_output=True)
    command = [*bne, "fit", "data.csv", *COLUMNS, "--checkpoint", "run"]
    with heeding_interrupts():
        fit = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    shown = ""
    while until not in shown and fit.poll() is None:
        shown += fit.stderr.read(1)
    fit.send_signal(sent)
    shown += fit.communicate(timeout=120)[1]
    assert fit.returncode == code, shown
    last = shown.strip().splitlines()[-1]
    assert last == "Stopped. The draws so far are kept in 'run'; repeat the command to go on."
    assert "Traceback" not in shown
    assert not list(tmp_path.rglob(".*")) and not (tmp_path / "model.bne").exists()
