"""``python -m paper fig4``: run an experiment of the paper, or go on with one that was stopped."""

import argparse
from pathlib import Path

from paper import figures


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m paper", description=__doc__)
    parser.add_argument("figure", help=f"{', '.join(figures.FIGURES)}, page (runs nothing) or all")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/results"))
    parser.add_argument("--repeats", type=int, default=50, help="simulated data sets of every kind")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    given = parser.parse_args()
    names = figures.names_of(given.figure)
    figures.reproduce(names, given.output, given.repeats, given.jobs, given.quiet)


if __name__ == "__main__":
    main()
