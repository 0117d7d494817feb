"""The command ``bne``; install it with ``pip install bne[cli]``."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Bayesian Nonparametric Ensemble: combine models, and learn why the prediction is unsure.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


class Figure(StrEnum):
    """What `reproduce` can run."""

    fig2 = "fig2"
    fig3 = "fig3"
    fig4 = "fig4"
    fig5 = "fig5"
    real = "real"
    page = "page"
    all = "all"


@app.callback()
def main() -> None:
    """Bayesian Nonparametric Ensemble."""


@app.command()
def reproduce(
    figure: Annotated[Figure, typer.Argument(help="Which figure or table; `page` runs nothing.")],
    output: Annotated[Path, typer.Option("-o", help="Folder of tables and pictures.")] = Path(
        "docs/results"
    ),
    repeats: Annotated[int, typer.Option(help="Simulated data sets of every kind.")] = 50,
    jobs: Annotated[int, typer.Option(help="Data sets at a time.")] = 2,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Run one of the paper's experiments, or go on with one that was stopped."""
    from bne.reproduce import _figures

    names = {Figure.all: list(_figures.FIGURES), Figure.page: []}.get(figure, [figure.value])
    _figures.reproduce(names, output, repeats, jobs, quiet)
    typer.echo(f"Tables, pictures and the page of claims: {output}")
