"""Stop default fits of the command line at random moments, by Ctrl-C or SIGTERM.

``python benchmarks/stops.py 30`` does this thirty times, with and without a checkpoint. It checks
the exit code, that one line says what is kept, and that no file is left behind.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

BNE = [sys.executable, "-m", "bne"]
COLUMNS = ["--target", "y", "--model", "rbf_short", "--model", "rbf_long", "--model", "periodic"]
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
FIRST, LAST = 1.5, 40.0
"""Moments of the signals, in seconds after the start: not before Python has loaded the package."""


def stop(folder: Path, sent: signal.Signals, moment: float, checkpoint: bool) -> str:
    """Stop one fit; return what is wrong, or an empty string."""
    data, model = folder / "data.csv", folder / "model.bne"
    subprocess.run([*BNE, "demo", "-o", str(data)], check=True, capture_output=True)
    command = [*BNE, "fit", str(data), *COLUMNS, "--inputs", "x", "-o", str(model)]
    command += ["--checkpoint", str(folder / "run")] if checkpoint else []
    fit = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    time.sleep(moment)
    if fit.poll() is not None:
        return "" if model.exists() else "it failed before the signal"
    os.kill(fit.pid, sent)
    said = fit.communicate(timeout=120)[1]
    left = [path.name for path in folder.rglob(".*")]
    problems = {
        f"exit code {fit.returncode}": fit.returncode != CODES[sent],
        "no line that says what is kept": not said.strip().split("\n")[-1].startswith("Stopped."),
        "a traceback": "Traceback" in said,
        f"left behind: {left}": bool(left),
        "a model file": model.exists(),
    }
    return "; ".join(name for name, wrong in problems.items() if wrong)


def main(times: int, seed: int = 0) -> int:
    """Stop so many fits; return how many went wrong."""
    rng = np.random.default_rng(seed)
    # jobs in the background, and their children, ignore Ctrl-C if nobody changes that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    wrong = 0
    for i in range(times):
        sent = signal.SIGINT if rng.uniform() < 0.5 else signal.SIGTERM
        moment, checkpoint = rng.uniform(FIRST, LAST), bool(rng.uniform() < 0.5)
        with tempfile.TemporaryDirectory() as folder:
            problem = stop(Path(folder), sent, moment, checkpoint)
        wrong += bool(problem)
        print(f"{i}: {sent.name} at {moment:.1f} s: {problem or 'as it should be'}", flush=True)
    print(f"{wrong} of {times} went wrong")
    return wrong


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 30) > 0)
