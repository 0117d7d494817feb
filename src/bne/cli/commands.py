"""The command ``bne``; it needs the extra ``cli``.

Every command reads tables, calls the Python interface and writes tables. What goes wrong is said in
one line, with a remedy; ``--debug`` shows where.
"""

import functools
import sys
import warnings
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

app: typer.Typer = typer.Typer(
    help="Bayesian Nonparametric Ensemble: combine models, and learn why the prediction is unsure.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

EXPECTED = (ValueError, OSError, ModuleNotFoundError)
"""What bad input may raise; anything else is a defect and shows its traceback."""

Data = Annotated[Path, typer.Argument(help="Table: .csv, .csv.gz, .parquet, .nc or .zarr.")]
Target = Annotated[str, typer.Option(help="Column of the observed quantity.")]
Models = Annotated[list[str], typer.Option("--model", help="Column of a model's prediction.")]
Inputs = Annotated[
    str,
    typer.Option(
        help="Columns that the models' shared error may depend on, separated by commas; without "
        "them no such error is looked for."
    ),
]
Output = Annotated[Path, typer.Option("-o", "--output", help="File to write.")]
Seed = Annotated[int, typer.Option(help="Same seed, same numbers.")]
Jobs = Annotated[int, typer.Option(help="Chains, data sets or blocks of rows at a time.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar.")]
Draws = Annotated[int, typer.Option(help="Posterior draws of each chain.")]
Warmup = Annotated[int, typer.Option(help="Iterations of each chain before its first draw.")]
Chains = Annotated[int, typer.Option(help="Number of chains.")]
Acceptance = Annotated[float, typer.Option(help="Raise it towards 1 against divergences.")]
Orthogonalize = Annotated[
    bool,
    typer.Option(
        "--orthogonalize",
        help="Keep the residual clear of what the models themselves can express.",
    ),
]
Degrees = Annotated[
    bool, typer.Option(help="Measure longitude and latitude in kilometres when their names say so.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


class Calibration(StrEnum):
    """Constructions of G."""

    logistic = "logistic"
    cgp = "cgp"
    none = "none"


class LengthScales(StrEnum):
    """How inputs are measured against one another."""

    shared = "shared"
    per_input = "per_input"


Construction = Annotated[Calibration, typer.Option(help="How G is built; `none` is much quicker.")]
Lengths = Annotated[LengthScales, typer.Option(help="One length-scale for all inputs, or each.")]


def friendly(command: Callable[..., None]) -> Callable[..., None]:
    """One line for what the user can mend, exit code 1; warnings in one line too."""

    @functools.wraps(command)
    def run(*args: Any, debug: bool = False, **options: Any) -> None:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                command(*args, **options)
            except EXPECTED as error:
                if debug:
                    raise
                message = " ".join(str(error).split())
                typer.echo(f"Error: {message}", err=True)
                raise typer.Exit(1) from None

    run.__signature__ = _with_debug(command)  # type: ignore[attr-defined]
    return run


def _with_debug(command: Callable[..., None]) -> Any:
    import inspect

    signature = inspect.signature(command)
    debug = inspect.Parameter(
        "debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug
    )
    return signature.replace(parameters=[*signature.parameters.values(), debug])


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    typer.echo(f"Warning: {' '.join(str(message).split())}", err=True)


@app.command()
@friendly
def fit(
    data: Data,
    target: Target,
    model: Models,
    output: Output = Path("model.bne"),
    inputs: Inputs = "",
    calibration: Construction = Calibration.logistic,
    orthogonalize: Orthogonalize = False,
    length_scales: Lengths = LengthScales.shared,
    chains: Chains = 4,
    warmup: Warmup = 400,
    draws: Draws = 1000,
    target_acceptance: Acceptance = 0.95,
    degrees: Degrees = True,
    partitions: Annotated[
        int, typer.Option(help="Parts of the rows to sample side by side, for large data.")
    ] = 1,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder from which a killed fit goes on when repeated.")
    ] = None,
    seed: Seed = 0,
    jobs: Jobs = 2,
    quiet: Quiet = False,
) -> None:
    """Fit the models' predictions to what was observed, and write a model file."""
    from bne.cli import tasks

    tasks.writable(output)
    task = tasks.Task(target, tuple(model), tasks.split_names(inputs), degrees)
    settings = _settings(calibration, draws, seed, jobs, quiet) | {
        "orthogonalize": orthogonalize,
        "length_scales": length_scales.value,
        "chains": chains,
        "warmup": warmup,
        "target_acceptance": target_acceptance,
        "partitions": partitions,
        "checkpoint": checkpoint,
    }
    fitted = tasks.fit(task, data, settings)
    fitted.save(output)
    typer.echo(tasks.fit_summary(fitted))
    typer.echo(f"Model: {output}")


@app.command()
@friendly
def predict(
    model: Annotated[Path, typer.Argument(help="Model file of `bne fit`.")],
    grid: Annotated[Path, typer.Argument(help="Table with the models' predictions and inputs.")],
    output: Output = Path("predictions.csv"),
    quantiles: Annotated[
        str, typer.Option(help="Levels, separated by commas.")
    ] = "0.05,0.25,0.5,0.75,0.95",
    jobs: Jobs = 2,
    quiet: Quiet = False,
) -> None:
    """Predict every row: mean, sd, quantiles, parts of the variance, probability of bias."""
    from bne.cli import tasks

    tasks.writable(output)
    levels = tasks.split_levels(quantiles)
    rows = tasks.predict(model, grid, output, levels, jobs, quiet)
    typer.echo(f"{rows:,} rows: {output}")


@app.command()
@friendly
def evaluate(
    data: Data,
    target: Target,
    model: Models,
    inputs: Inputs = "",
    folds: Annotated[int, typer.Option(help="Number of folds.")] = 5,
    fold_column: Annotated[str, typer.Option(help="Column that says each row's fold.")] = "",
    blocks: Annotated[
        bool, typer.Option(help="Folds are regions (k-means of the inputs).")
    ] = False,
    calibration: Construction = Calibration.logistic,
    orthogonalize: Orthogonalize = False,
    warmup: Warmup = 400,
    draws: Draws = 500,
    degrees: Degrees = True,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Table to write.")] = None,
    seed: Seed = 0,
    jobs: Jobs = 2,
    quiet: Quiet = False,
) -> None:
    """Score held-out rows: CRPS, RMSE and coverage, beside each model and their mean."""
    from bne.cli import tasks

    if output is not None:
        tasks.writable(output)
    task = tasks.Task(target, tuple(model), tasks.split_names(inputs), degrees)
    settings = _settings(calibration, draws, seed, jobs, quiet)
    settings |= {"orthogonalize": orthogonalize, "warmup": warmup}
    scores = tasks.evaluate(task, data, settings, folds, fold_column, blocks)
    typer.echo(scores.round(3).to_string(index=False))
    if output is not None:
        tasks.write(scores, output)


@app.command()
@friendly
def report(
    model: Annotated[Path, typer.Argument(help="Model file of `bne fit`.")],
    grid: Annotated[
        Path | None, typer.Argument(help="Rows to show; without it the training rows.")
    ] = None,
    output: Output = Path("report.html"),
    title: Annotated[str, typer.Option(help="Heading.")] = "What the models say together",
    quiet: Quiet = False,
) -> None:
    """Write one HTML page with prediction, uncertainty, bias, weights and calibration."""
    from bne.cli import tasks

    tasks.writable(output)
    tasks.report(model, grid, output, title, quiet)
    typer.echo(f"Report: {output}")


@app.command()
@friendly
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Table to write.")] = Path(
        "demo.csv"
    ),
    rows: Annotated[int, typer.Option(help="Number of rows.")] = 100,
    seed: Seed = 1,
) -> None:
    """Write a table to try the other commands on: the paper's 1-D experiment."""
    from bne.cli import tasks

    tasks.write_demo(output, rows, seed)
    typer.echo(
        f"Table: {output}. Try: bne fit {output} --target y --model rbf_short --model rbf_long "
        "--model periodic --inputs x -o model.bne"
    )


@app.command()
@friendly
def reproduce(
    figure: Annotated[str, typer.Argument(help="fig2 ... fig5, real, page or all.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder of tables and pictures.")
    ] = Path("docs/results"),
    repeats: Annotated[int, typer.Option(help="Simulated data sets of every kind.")] = 50,
    jobs: Jobs = 2,
    quiet: Quiet = False,
) -> None:
    """Run one of the paper's experiments; works in a checkout of the sources only."""
    from bne.cli import tasks

    tasks.reproduce(figure, output, repeats, jobs, quiet)
    typer.echo(f"Tables, pictures and the page of claims: {output}")


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Combine models of one quantity, calibrate the prediction, and learn why it is unsure."""
    if version:
        from bne import __version__

        typer.echo(__version__)
        sys.exit(0)


def _settings(
    calibration: Calibration, draws: int, seed: int, jobs: int, quiet: bool
) -> dict[str, Any]:
    return {
        "calibration": None if calibration is Calibration.none else calibration.value,
        "draws": draws,
        "random_state": seed,
        "n_jobs": jobs,
        "verbose": int(not quiet),
    }
