"""Run the benchmarks named on the command line (by default all) and store their tables.

``python benchmarks/run.py stages`` prints a table and writes ``benchmarks/results/stages.csv``.
"""

import argparse
import importlib
from pathlib import Path

import pandas as pd

BENCHMARKS = [
    "stages",
    "full",
    "plain",
    "health",
    "accuracy",
    "answers",
    "worlds",
    "scaling",
    "kills",
    "weather",
    "sbc",
]


def main() -> None:
    """Run the benchmarks, print their tables and store them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", default=BENCHMARKS, help=f"some of {', '.join(BENCHMARKS)}"
    )
    for name in parser.parse_args().names:
        table = pd.DataFrame(importlib.import_module(name).run())
        print(f"\n{name}\n{table.round(3).to_string(index=False)}", flush=True)
        folder = Path(__file__).parent / "results"
        folder.mkdir(exist_ok=True)
        table.to_csv(folder / f"{name}.csv", index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
