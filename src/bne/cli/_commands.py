"""The command ``bne``; it needs the extra ``cli``.

Every command reads tables, calls the Python interface and writes tables. An error is shown in one
line that says what to do; ``--debug`` shows the traceback.
"""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from bne._calibration.registry import HOMES
from bne.cli._friendly import friendly

app: typer.Typer = typer.Typer(
    help="Bayesian Nonparametric Ensemble: combine models, and learn why they are uncertain.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Data = Annotated[Path, typer.Argument(help="Table: .csv, .csv.gz, .parquet, .nc or .zarr.")]
Target = Annotated[str, typer.Option(help="Column of the observed outcome.")]
Models = Annotated[
    list[str],
    typer.Option("--model", help="Column of a model's predictions; repeat it for each model."),
]
Inputs = Annotated[
    str,
    typer.Option(
        help="Columns, separated by commas, on which the common error of all models may depend. "
        "If you name none, no common error is looked for."
    ),
]
Output = Annotated[Path, typer.Option("-o", "--output", help="File to write.")]
Seed = Annotated[
    int, typer.Option(help="Seed of all random numbers; the same seed gives the same results.")
]
Jobs = Annotated[
    int,
    typer.Option(help="Number of chains, data sets or blocks of rows that run at the same time."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress bar.")]
Draws = Annotated[int, typer.Option(help="Posterior draws of each chain.")]
Warmup = Annotated[int, typer.Option(help="Iterations of each chain before its first draw.")]
Chains = Annotated[int, typer.Option(help="Number of chains.")]
Acceptance = Annotated[
    float, typer.Option(help="Target acceptance rate; raise it towards 1 if there are divergences.")
]
Orthogonalize = Annotated[
    bool,
    typer.Option(
        "--orthogonalize",
        help="Remove from the residual process what the weighted models can express themselves.",
    ),
]
Degrees = Annotated[
    bool,
    typer.Option(
        help="Whether inputs named like `lon` and `lat` are degrees; their distances are then "
        "measured in kilometres."
    ),
]
Partitions = Annotated[
    int,
    typer.Option(
        help="Number of shards: parts of the rows that are sampled separately, for large data."
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        help="Folder for checkpoints: a killed fit continues from there when it is repeated."
    ),
]


class LengthScales(StrEnum):
    """Length-scales of the inputs: one for all of them, or one for each."""

    shared = "shared"
    per_input = "per_input"


NO_CALIBRATION = "none"

CALIBRATIONS = (*HOMES, NO_CALIBRATION)
"""Constructions of the calibration function by name."""


def _known_calibration(name: str) -> str:
    if name not in CALIBRATIONS:
        known = ", ".join(CALIBRATIONS)
        raise typer.BadParameter(f"must be one of {known}; got {name!r}.")
    return name


Construction = Annotated[
    str,
    typer.Option(
        metavar=f"[{'|'.join(CALIBRATIONS)}]",
        callback=_known_calibration,
        help="Construction of the calibration function G; `none` leaves G out and is much faster.",
    ),
]
Lengths = Annotated[
    LengthScales, typer.Option(help="One length-scale for all inputs, or one for each.")
]


@app.command()
@friendly
def fit(
    data: Data,
    target: Target,
    model: Models,
    output: Output = Path("model.bne"),
    inputs: Inputs = "",
    calibration: Construction = "logistic",
    orthogonalize: Orthogonalize = False,
    length_scales: Lengths = LengthScales.shared,
    chains: Chains = 4,
    warmup: Warmup = 400,
    draws: Draws = 1000,
    target_acceptance: Acceptance = 0.95,
    degrees: Degrees = True,
    partitions: Partitions = 1,
    checkpoint: Checkpoint = None,
    seed: Seed = 0,
    jobs: Jobs = 2,
    quiet: Quiet = False,
) -> None:
    """Fit the ensemble to the observed outcomes, and write a model file."""
    from bne.cli import _outputs, _tasks

    _outputs.check_output(output, _outputs.MODEL, [data])
    task = _tasks.Task(target, tuple(model), _tasks.split_names(inputs), degrees)
    settings = _settings(calibration, draws, seed, jobs, quiet) | {
        "orthogonalize": orthogonalize,
        "length_scales": length_scales.value,
        "chains": chains,
        "warmup": warmup,
        "target_acceptance": target_acceptance,
        "partitions": partitions,
        "checkpoint": checkpoint,
    }
    fitted = _tasks.fit(task, data, settings)
    fitted.save(output)
    typer.echo(_tasks.fit_summary(fitted))
    typer.echo(f"Model: {output}")


@app.command()
@friendly
def predict(
    model: Annotated[Path, typer.Argument(help="Model file that `bne fit` wrote.")],
    grid: Annotated[Path, typer.Argument(help="Table with the models' predictions and inputs.")],
    output: Output = Path("predictions.csv"),
    quantiles: Annotated[
        str, typer.Option(help="Levels of the quantiles, separated by commas.")
    ] = "0.05,0.25,0.5,0.75,0.95",
    jobs: Jobs = 2,
    quiet: Quiet = False,
) -> None:
    """Predict every row of a table: mean, sd, quantiles, parts of the variance, bias."""
    from bne.cli import _outputs, _tasks

    _outputs.check_output(output, _outputs.TABLE, [model, grid])
    levels = _tasks.split_levels(quantiles)
    rows = _tasks.predict(model, grid, output, levels, jobs, quiet)
    typer.echo(f"{rows:,} rows: {output}")


@app.command()
@friendly
def evaluate(
    data: Data,
    target: Target,
    model: Models,
    inputs: Inputs = "",
    folds: Annotated[int, typer.Option(help="Number of folds.")] = 5,
    fold_column: Annotated[str, typer.Option(help="Column with the fold of each row.")] = "",
    blocks: Annotated[
        bool, typer.Option(help="Make every fold a region of the inputs (k-means).")
    ] = False,
    calibration: Construction = "logistic",
    orthogonalize: Orthogonalize = False,
    warmup: Warmup = 400,
    draws: Draws = 500,
    degrees: Degrees = True,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Table to write.")] = None,
    seed: Seed = 0,
    jobs: Jobs = 2,
    quiet: Quiet = False,
) -> None:
    """Score the ensemble on held-out rows: CRPS, RMSE and coverage.

    Each model alone, and the equal-weight mean of the models, are scored as well.
    """
    from bne.cli import _outputs, _tasks

    if output is not None:
        _outputs.check_output(output, _outputs.TABLE, [data])
    task = _tasks.Task(target, tuple(model), _tasks.split_names(inputs), degrees)
    settings = _settings(calibration, draws, seed, jobs, quiet)
    settings |= {"orthogonalize": orthogonalize, "warmup": warmup}
    scores = _tasks.evaluate(task, data, settings, folds, fold_column, blocks)
    typer.echo(scores.round(3).to_string(index=False))
    if output is not None:
        _tasks.write(scores, output)


@app.command()
@friendly
def report(
    model: Annotated[Path, typer.Argument(help="Model file that `bne fit` wrote.")],
    grid: Annotated[
        Path | None,
        typer.Argument(help="Table with the rows to show; by default the training rows."),
    ] = None,
    output: Output = Path("report.html"),
    title: Annotated[
        str, typer.Option(help="Heading of the page.")
    ] = "What the models say together",
    quiet: Quiet = False,
) -> None:
    """Write an HTML page that shows prediction, uncertainty, bias, weights and calibration."""
    from bne.cli import _outputs, _tasks

    _outputs.check_output(output, _outputs.REPORT, [model, grid])
    _tasks.report(model, grid, output, title, quiet)
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
    """Write a table of simulated data, the paper's 1-D experiment, to try the other commands on."""
    from bne.cli import _outputs, _tasks

    _outputs.check_output(output, _outputs.TABLE, [])
    _tasks.write_demo(output, rows, seed)
    typer.echo(
        f"Table: {output}. Try: bne fit {output} --target y --model rbf_short --model rbf_long "
        "--model periodic --inputs x -o model.bne"
    )


@app.command()
@friendly
def reproduce(
    figure: Annotated[
        str, typer.Argument(help="fig2, fig3, fig4, fig5, real, all, or page (no fits).")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder of tables and pictures.")
    ] = Path("docs/results"),
    repeats: Annotated[int, typer.Option(help="Number of simulated data sets of each kind.")] = 50,
    jobs: Jobs = 2,
    quiet: Quiet = False,
) -> None:
    """Run an experiment of the paper, like `make paper`; this needs a checkout of the sources."""
    from bne.cli import _tasks

    _tasks.reproduce(figure, output, repeats, jobs, quiet)
    typer.echo(f"Tables, pictures and the page of claims: {output}")


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Combine models of one quantity, calibrate the prediction, and learn why it is uncertain."""
    if version:
        from bne import __version__

        typer.echo(__version__)
        sys.exit(0)


def _settings(calibration: str, draws: int, seed: int, jobs: int, quiet: bool) -> dict[str, Any]:
    """Return the arguments of `BNERegressor` that `fit` and `evaluate` share."""
    return {
        "calibration": None if calibration == NO_CALIBRATION else calibration,
        "draws": draws,
        "random_state": seed,
        "n_jobs": jobs,
        "verbose": int(not quiet),
    }
