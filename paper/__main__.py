"""Run an experiment of the paper, or continue one that was stopped: ``python -m paper fig4``."""

import argparse
from pathlib import Path

from paper import figures


def main() -> None:
    """Read the arguments, then run."""
    parser = argparse.ArgumentParser(prog="python -m paper", description=__doc__)
    parser.add_argument("figure", help=f"{', '.join(figures.FIGURES)}, all, or page (no fits)")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/results"))
    parser.add_argument(
        "--repeats", type=int, default=50, help="number of simulated data sets of each kind"
    )
    parser.add_argument("--jobs", type=int, default=2, help="data sets or chains at a time")
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")
    given = parser.parse_args()
    names = figures.names_of(given.figure)
    figures.reproduce(names, given.output, given.repeats, given.jobs, given.quiet)


if __name__ == "__main__":
    main()
