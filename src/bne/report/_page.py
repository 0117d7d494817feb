"""One HTML page about a fitted model, for a reader who does not know BNE; it loads nothing else."""

import json
import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
from plotly.offline import get_plotlyjs

from bne import BNERegressor, __version__
from bne._base.files import atomic
from bne._base.typing import Array
from bne._regressor.wide_table import wide_table
from bne.report import _figures as _report_figures
from bne.report._places import Places

LAYERS = {
    "mean": (
        "Prediction",
        "The weighted models, corrected where the data show an error that all of them share. The "
        "interval is meant to hold nine of ten new observations.",
    ),
    "total": (
        "Uncertainty: all of it",
        "How far a new observation may lie from the prediction (standard deviation).",
    ),
    "aleatoric": (
        "Uncertainty: noise",
        "The scatter of the observations themselves, which no model could remove.",
    ),
    "parametric": (
        "Uncertainty: how to weigh the models",
        "Large where the models disagree and the data do not show which of them to believe.",
    ),
    "structural_delta": (
        "Uncertainty: all models may be wrong",
        "Large far from observations, where an error that all models share would not be noticed.",
    ),
    "structural_G": (
        "Uncertainty: shape of the noise",
        "Large where the noise may be larger, smaller or less symmetric than elsewhere and few "
        "data show it. Blank where this part is negative: there, knowing the noise makes the "
        "prediction more certain.",
    ),
}
"""Layers of the first picture: the name and the explanation of each. A layer is the predictive mean
or a part of the predictive variance."""


def write_report(
    model: BNERegressor,
    path: str | Path,
    X: pd.DataFrame | None = None,
    *,
    title: str = "What the models say together",
    progress: Callable[[int], object] = lambda n: None,
) -> None:
    """Write a report about a fitted model as one HTML page.

    Parameters
    ----------
    model : BNERegressor
        Fitted to a frame, with experts that are columns of the frame.
    path : str or Path
        The file to write.
    X : DataFrame, optional
        Rows to show; by default the training rows.
    title : str
        Heading of the page.
    progress : function, optional
        Called with the number of rows whenever some rows are predicted.
    """
    observed, y = training_frame(model)
    shown = observed if X is None else X
    inputs = [str(model.feature_names_in_[i]) for i in model.columns_.inputs]
    places = Places(shown[inputs], wide_table(model, shown, progress=progress))
    page = (
        _environment()
        .get_template("report.html")
        .render(title=title, **_context(model, places, observed[inputs], observed, y))
    )
    with atomic(path) as file:
        file.write(page.encode())


def training_frame(model: BNERegressor) -> tuple[pd.DataFrame, Array]:
    """Return the training rows in their original units, and the outcomes."""
    if model.estimators_ or not hasattr(model, "feature_names_in_"):
        raise ValueError(
            "A report needs experts that are columns of a frame. Fit the model to a DataFrame that "
            "holds their predictions."
        )
    scaling, posterior = model.scaling_, model.posterior_
    columns: dict[int, Array] = {}
    for position, values in zip(
        model.columns_.inputs, scaling.undo_inputs(posterior.rows.x).T, strict=True
    ):
        columns[position] = values
    for name, values in zip(
        model.expert_names_, scaling.undo_outcome(posterior.rows.f).T, strict=True
    ):
        columns[model.columns_.predictions[name]] = values
    names = [str(n) for n in model.feature_names_in_]
    frame = {n: columns.get(i, np.zeros(model.n_rows_)) for i, n in enumerate(names)}
    return pd.DataFrame(frame), scaling.undo_outcome(posterior.y)


def _environment() -> jinja2.Environment:
    return jinja2.Environment(loader=jinja2.PackageLoader("bne.report"), autoescape=True)


def _context(
    model: BNERegressor,
    places: Places,
    where: pd.DataFrame,
    observed: pd.DataFrame,
    y: Array,
) -> dict[str, Any]:
    """Return all that the template shows."""
    law = model.predict_distribution(observed)
    u = law.cdf(y)
    layers = [
        {"name": name, "text": text, "figure": _report_figures.layer(key, places, where, y)}
        for key, (name, text) in LAYERS.items()
        if key == "mean" or np.any(places.variance(key) != 0)
    ]
    weights = model.explain_weights()
    epistemic = places.variance("epistemic").sum() / places.variance("total").sum()
    error = float(np.sqrt(np.mean((law.mean() - y) ** 2)))
    return {
        "lead": f"{len(weights)} models of one quantity, combined on {model.n_rows_:,} "
        "observations by a Bayesian nonparametric ensemble.",
        "facts": [
            (f"{model.n_rows_:,}", "observations"),
            (f"{len(places.answers):,}", "places shown"),
            (f"{error:.3g}", "typical error at the observations"),
            (f"{epistemic:.0%}", "of the uncertainty is lack of knowledge"),
        ],
        "layers": layers,
        "bias_text": _bias_text(places.prob_too_low),
        "weights_text": _weights_text(weights),
        "calibration_text": _calibration_text(u),
        "health": _health(model),
        "diagnostics": _diagnostic_rows(model),
        "settings": _settings(model),
        "plotly": get_plotlyjs(),
        "layers_json": _json([layer | {"name": ""} for layer in layers]),
        "figures_json": _json(
            {
                "bias": _report_figures.bias_figure(places),
                "weights": _report_figures.weights_figure(weights),
                "pit": _report_figures.pit_figure(u),
                "coverage": _report_figures.coverage_figure(u),
            }
        ),
    }


def _json(value: Any) -> str:
    """Return JSON that is safe within a script element of the page."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _bias_text(p: pd.Series) -> str:
    """Explain the picture of the bias; p is the probability that the models are too low."""
    low, high = float(np.mean(p >= 0.95)), float(np.mean(p <= 0.05))
    if low == high == 0:
        found = "At no place is a bias of the models certain (with a probability of 95%)."
    else:
        found = (
            f"The models are too low at {low:.0%} of the places and too high at {high:.0%}, each "
            "with a probability of at least 95%."
        )
    return (
        "A value near 1 means that the weighted models are almost certainly too low, near 0 that "
        "they are too high; near ½ the direction is unknown. " + found
    )


def _weights_text(weights: pd.DataFrame) -> str:
    """Explain the picture of the weights, and name the models whose weights are positive."""
    clear = weights.index[(weights["lower"] > 0)].tolist()
    words = ", ".join(str(n) for n in clear) if clear else "none"
    return (
        "A model with a weight of 0 adds nothing to the others. The bar is the 90% interval of the "
        f"weight. Weights that are almost certainly positive: {words}."
    )


def _calibration_text(u: Array) -> str:
    """Explain the pictures of the calibration; u is the predictive CDF at each observation."""
    covered = float(np.mean(np.abs(u - 0.5) <= 0.45))
    return (
        "If the probabilities are right, all bars are about equally high and the line follows the "
        f"diagonal. The 90% interval holds {covered:.0%} of the observations. The model was fitted "
        "to these observations, so this is too favourable. `bne evaluate` scores observations that "
        "the model has not seen."
    )


def _health(model: BNERegressor) -> dict[str, str]:
    """Return the verdict on the sampler: good, doubtful or bad."""
    table = model.diagnostics()
    r_hat, ess = table["r_hat"].max(), table[["ess_bulk", "ess_tail"]].min(axis=None)
    divergences = table.attrs["divergences"]
    text = (
        f"R-hat at most {r_hat:.3f}, at least {ess:.0f} effective draws, {divergences} divergent "
        "transitions."
    )
    if r_hat <= 1.01 and ess >= 400 and divergences == 0:
        return {"color": "good", "title": "The computation can be trusted", "text": text}
    if r_hat <= 1.05 and ess >= 100:
        return {
            "color": "doubtful",
            "title": "The computation is good enough for a first look",
            "text": text,
        }
    return {"color": "bad", "title": "The computation needs more draws", "text": text}


def _diagnostic_rows(model: BNERegressor) -> list[list[str]]:
    """Return the table of the sampler's diagnostics."""
    rows = []
    for name, row in model.diagnostics().iterrows():
        cells = [f"{row['mean']:.3g}", f"{row['sd']:.3g}", f"{row['ess_bulk']:.0f}"]
        rows.append([str(name), *cells, f"{row['r_hat']:.3f}"])
    return rows


def _settings(model: BNERegressor) -> list[tuple[str, str]]:
    """Return the model's parameters and the versions of the packages."""
    parameters = model.get_params(deep=False)
    rows = [(name, str(value)) for name, value in parameters.items()]
    rows += [("bne", __version__), ("Python", platform.python_version())]
    for package in ("jax", "numpy", "scipy", "scikit-learn"):
        try:
            rows.append((package, version(package)))
        except PackageNotFoundError:  # installed without metadata
            continue
    return rows
