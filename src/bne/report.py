"""One self-contained HTML page about a fitted model, for a reader who never heard of BNE."""

import json
import platform
from collections.abc import Callable
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from bne import BNERegressor, __version__, _table
from bne._typing import Array
from bne.io import atomic

BLUE, GREY, RED = "#0072b2", "#555555", "#d55e00"
DIGITS = 4
"""Of the numbers in the page, which keeps it small."""

LAYERS = {
    "mean": (
        "Prediction",
        "The weighted models, corrected where the data show that all of them err, with the "
        "interval that holds nine of ten new observations.",
    ),
    "total": (
        "Uncertainty: all of it",
        "How far a new observation may lie from the prediction (standard deviation).",
    ),
    "aleatoric": (
        "Uncertainty: noise",
        "The part that no model could remove: how much observations scatter by themselves.",
    ),
    "parametric": (
        "Uncertainty: how to weigh the models",
        "Large where the models disagree and the data do not tell which of them to believe.",
    ),
    "structural_delta": (
        "Uncertainty: all models may be wrong",
        "Large far from observations, where an error that all models share could not be seen.",
    ),
    "structural_G": (
        "Uncertainty: shape of the noise",
        "Large where the noise may be larger, smaller or more lopsided than elsewhere and few data "
        "say so. Blank where knowing the noise makes the prediction surer.",
    ),
}


class Places(NamedTuple):
    """Rows to show: their inputs by name, and all answers there."""

    inputs: pd.DataFrame
    answers: pd.DataFrame


def write_report(
    model: BNERegressor,
    path: str | Path,
    X: pd.DataFrame | None = None,
    *,
    title: str = "What the models say together",
    progress: Callable[[int], object] = lambda n: None,
) -> None:
    """Write the page for the rows of X, or for the training rows."""
    observed, y = training_frame(model)
    shown = observed if X is None else X
    inputs = [str(model.feature_names_in_[i]) for i in model.columns_.inputs]
    places = Places(shown[inputs], _table.answers(model, shown, progress=progress))
    page = (
        _environment()
        .get_template("report.html")
        .render(title=title, **_context(model, places, observed[inputs], observed, y))
    )
    with atomic(path) as file:
        file.write(page.encode())


def training_frame(model: BNERegressor) -> tuple[pd.DataFrame, Array]:
    """The training rows as the model was given them, and the outcomes."""
    if model.estimators_ or not hasattr(model, "feature_names_in_"):
        raise ValueError(
            "A report needs experts that are columns of a frame; fit the model on a DataFrame of "
            "their predictions."
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
    return jinja2.Environment(loader=jinja2.PackageLoader("bne"), autoescape=True)


def _context(
    model: BNERegressor, places: Places, where: pd.DataFrame, observed: pd.DataFrame, y: Array
) -> dict[str, Any]:
    law = model.predict_distribution(observed)
    u = law.cdf(y)
    layers = [
        {"name": name, "text": text, "figure": _layer(key, places, where, y)}
        for key, (name, text) in LAYERS.items()
        if f"variance_{key}" not in places.answers
        or _informative(places.answers[f"variance_{key}"])
    ]
    weights = model.explain_weights()
    epistemic = places.answers["variance_epistemic"].sum() / places.answers["variance_total"].sum()
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
        "bias_text": _bias_text(places.answers),
        "weights_text": _weights_text(weights),
        "calibration_text": _calibration_text(u),
        "health": _health(model),
        "diagnostics": _diagnostic_rows(model),
        "settings": _settings(model),
        "plotly": get_plotlyjs(),
        "layers_json": _json([layer | {"name": ""} for layer in layers]),
        "figures_json": _json(
            {
                "bias": _bias_figure(places),
                "weights": _weights_figure(weights),
                "pit": _pit_figure(u),
                "coverage": _coverage_figure(u),
            }
        ),
    }


def _informative(values: pd.Series) -> bool:
    return bool(np.any(values != 0))


def _json(value: Any) -> str:
    """JSON that is safe within a script element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _numbers(values: Any) -> list[float]:
    """Rounded to a few significant digits; NaN is a gap (null in the page)."""
    return [float(f"{v:.{DIGITS}g}") for v in np.asarray(values, float).ravel()]


def _figure(traces: list[Any], **layout: Any) -> dict[str, Any]:
    """A figure as plain lists, in one look."""
    base = {
        "template": "none",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#1d2733"},
        "margin": {"l": 62, "r": 18, "t": 16, "b": 52},
        "hovermode": "closest",
        "legend": {"orientation": "h", "y": 1.1},
    }
    figure = go.Figure(traces).update_layout(base | layout)
    return json.loads(figure.to_json() or "{}")


def _axis(name: str) -> dict[str, Any]:
    return {"title": {"text": escape(str(name))}, "gridcolor": "#e6eaee", "zeroline": False}


def _layer(key: str, places: Places, where: pd.DataFrame, y: Array) -> dict[str, Any]:
    """The picture of one layer: a curve over one input, a map over two, else against the mean."""
    answers = places.answers
    if key == "mean":
        values, unit = answers["mean"], "prediction"
    else:
        variance = answers[f"variance_{key}"]
        values, unit = np.sqrt(variance.where(variance >= 0)), "standard deviation"
    if places.inputs.shape[1] == 1:
        return _curve(key, values, unit, places, where, y)
    if places.inputs.shape[1] == 2:
        return _map(values, unit, places, where if key == "mean" else None, y)
    return _scatter(values, unit, answers)


def _curve(
    key: str, values: Any, unit: str, places: Places, where: pd.DataFrame, y: Array
) -> dict[str, Any]:
    name = places.inputs.columns[0]
    order = np.argsort(places.inputs[name].to_numpy())
    x = _numbers(places.inputs[name].to_numpy()[order])
    line = go.Scatter(
        x=x, y=_numbers(np.asarray(values)[order]), mode="lines", name=unit, line={"color": BLUE}
    )
    traces: list[Any] = [line]
    if key == "mean":
        low, high = (_numbers(places.answers[q].to_numpy()[order]) for q in ("q05", "q95"))
        edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
        band = go.Scatter(
            x=x, y=high, fill="tonexty", fillcolor="rgba(0,114,178,.2)", name="90% interval", **edge
        )
        dots = go.Scatter(
            x=_numbers(where[name]),
            y=_numbers(y),
            mode="markers",
            name="observed",
            marker={"color": RED, "size": 5},
        )
        traces = [go.Scatter(x=x, y=low, showlegend=False, **edge), band, line, dots]
    return _figure(traces, xaxis=_axis(name), yaxis=_axis(unit))


def _map(
    values: Any, unit: str, places: Places, where: pd.DataFrame | None, y: Array, **colors: Any
) -> dict[str, Any]:
    first, second = places.inputs.columns
    known = np.isfinite(np.asarray(values, float))  # a part that is negative is left blank
    inputs, values = places.inputs[known], np.asarray(values, float)[known]
    palette = {"colorscale": "Viridis"} | colors
    if where is not None:
        both = np.r_[values, y]
        palette |= {"cmin": float(np.min(both)), "cmax": float(np.max(both))}
    size = float(np.clip(300.0 / np.sqrt(max(len(inputs), 1)), 4, 14))
    many = len(inputs) > 2000
    square = go.Scattergl if many else go.Scatter
    edge = {"color": "#9aa5b1", "width": 0 if many else 0.5}
    traces = [
        square(
            x=_numbers(inputs[first]),
            y=_numbers(inputs[second]),
            mode="markers",
            name=unit,
            showlegend=False,
            marker={"color": _numbers(values), "size": size, "symbol": "square", "line": edge}
            | palette
            | {"colorbar": {"title": {"text": unit, "side": "right"}}},
            hovertemplate=f"%{{x}}, %{{y}}<br>{unit} %{{marker.color}}<extra></extra>",
        )
    ]
    if where is not None:
        traces.append(
            go.Scatter(
                x=_numbers(where[first]),
                y=_numbers(where[second]),
                mode="markers",
                name="observed",
                marker={"color": _numbers(y), "size": 9, "line": {"color": "#fff", "width": 1.5}}
                | palette,
                hovertemplate="observed %{marker.color}<extra></extra>",
            )
        )
    y_axis = _axis(second) | {"scaleanchor": "x"}
    return _figure(traces, xaxis=_axis(first), yaxis=y_axis)


def _scatter(values: Any, unit: str, answers: pd.DataFrame) -> dict[str, Any]:
    rows = np.arange(1, len(answers) + 1)
    marker = {"color": BLUE, "size": 5}
    bars = None
    if unit == "prediction":
        up, down = (answers["q95"] - answers["mean"], answers["mean"] - answers["q05"])
        bars = {
            "type": "data",
            "symmetric": False,
            "array": _numbers(up),
            "arrayminus": _numbers(down),
            "thickness": 0.7,
            "width": 0,
        }
    trace = go.Scatter(
        x=rows.tolist(), y=_numbers(values), mode="markers", error_y=bars, marker=marker, name=unit
    )
    return _figure([trace], xaxis=_axis("row"), yaxis=_axis(unit))


def _bias_figure(places: Places) -> dict[str, Any]:
    probability = places.answers["prob_models_too_low"]
    name = "P(models too low)"
    if places.inputs.shape[1] == 2:
        scale = {"colorscale": "RdBu", "reversescale": True, "cmin": 0.0, "cmax": 1.0}
        return _map(probability, name, places, None, np.empty(0), **scale)
    x = places.inputs.iloc[:, 0] if places.inputs.shape[1] == 1 else np.arange(len(probability)) + 1
    label = places.inputs.columns[0] if places.inputs.shape[1] == 1 else "row"
    order = np.argsort(np.asarray(x))
    mode = "lines" if places.inputs.shape[1] == 1 else "markers"
    trace = go.Scatter(
        x=_numbers(np.asarray(x)[order]),
        y=_numbers(probability.to_numpy()[order]),
        mode=mode,
        name=name,
        line={"color": BLUE},
    )
    figure = go.Figure([trace])
    for level in (0.05, 0.95):
        figure.add_hline(y=level, line={"color": GREY, "dash": "dot", "width": 1})
    y_axis = _axis(name) | {"range": [-0.02, 1.02]}
    shapes = json.loads(figure.to_json() or "{}")["layout"]["shapes"]
    return _figure([trace], xaxis=_axis(str(label)), yaxis=y_axis, shapes=shapes)


def _weights_figure(weights: pd.DataFrame) -> dict[str, Any]:
    bars = {
        "type": "data",
        "symmetric": False,
        "array": _numbers(weights["upper"] - weights["mean"]),
        "arrayminus": _numbers(weights["mean"] - weights["lower"]),
    }
    trace = go.Scatter(
        x=_numbers(weights["mean"]),
        y=[escape(str(n)) for n in weights.index],
        mode="markers",
        error_x=bars,
        marker={"color": BLUE, "size": 10},
        name="weight",
    )
    margin = {"l": 20, "r": 18, "t": 16, "b": 52}
    y_axis = {"automargin": True, "type": "category", "autorange": "reversed"}
    x_axis = _axis("weight, with its 90% interval") | {"zeroline": True}
    return _figure([trace], xaxis=x_axis, yaxis=y_axis, margin=margin)


def _pit_figure(u: Array) -> dict[str, Any]:
    counts, edges = np.histogram(u, bins=10, range=(0.0, 1.0))
    trace = go.Bar(
        x=_numbers(0.5 * (edges[1:] + edges[:-1])),
        y=_numbers(counts / len(u) * 10),
        marker={"color": BLUE, "line": {"color": "#fff", "width": 1}},
        name="observations",
    )
    shape = {
        "type": "line",
        "x0": 0,
        "x1": 1,
        "y0": 1,
        "y1": 1,
        "line": {"color": GREY, "dash": "dot"},
    }
    axis = _axis("predicted probability of a smaller value") | {"range": [0, 1]}
    return _figure([trace], xaxis=axis, yaxis=_axis("relative frequency"), shapes=[shape], bargap=0)


def _coverage_figure(u: Array) -> dict[str, Any]:
    levels = np.linspace(0.05, 0.95, 19)
    shares = [np.mean(np.abs(u - 0.5) <= 0.5 * level) for level in levels]
    diagonal = go.Scatter(
        x=[0, 1], y=[0, 1], mode="lines", line={"color": GREY, "dash": "dot"}, name="ideal"
    )
    line = go.Scatter(
        x=_numbers(levels),
        y=_numbers(shares),
        mode="lines+markers",
        line={"color": BLUE},
        name="here",
    )
    unit = {"range": [0, 1]}
    x_axis, y_axis = _axis("interval meant to hold"), _axis("share it holds")
    return _figure([diagonal, line], xaxis=x_axis | unit, yaxis=y_axis | unit)


def _bias_text(answers: pd.DataFrame) -> str:
    p = answers["prob_models_too_low"]
    low, high = float(np.mean(p >= 0.95)), float(np.mean(p <= 0.05))
    if low == high == 0:
        found = "Nowhere is a bias that all models share certain (probability 95%)."
    else:
        found = (
            f"The models are too low at {low:.0%} of the places and too high at {high:.0%}, each "
            "with a probability of at least 95%."
        )
    return (
        "Near 1 the weighted models are surely too low, near 0 too high, near ½ nothing is known. "
        + found
    )


def _weights_text(weights: pd.DataFrame) -> str:
    clear = weights.index[(weights["lower"] > 0)].tolist()
    words = ", ".join(str(n) for n in clear) if clear else "none"
    return (
        "A weight of 0 means that a model adds nothing to the others; the bar holds nine tenths of "
        f"the probability. Surely positive: {words}."
    )


def _calibration_text(u: Array) -> str:
    covered = float(np.mean(np.abs(u - 0.5) <= 0.45))
    return (
        "If the probabilities are right, the bars are level and the line follows the diagonal. The "
        f"90% interval holds {covered:.0%} of the observations. These observations were used to "
        "fit the model, which flatters it; `bne evaluate` scores observations it has not seen."
    )


def _health(model: BNERegressor) -> dict[str, str]:
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
            "title": "The computation is good enough for a look",
            "text": text,
        }
    return {"color": "bad", "title": "The computation needs more draws", "text": text}


def _diagnostic_rows(model: BNERegressor) -> list[list[str]]:
    rows = []
    for name, row in model.diagnostics().iterrows():
        cells = [f"{row['mean']:.3g}", f"{row['sd']:.3g}", f"{row['ess_bulk']:.0f}"]
        rows.append([str(name), *cells, f"{row['r_hat']:.3f}"])
    return rows


def _settings(model: BNERegressor) -> list[tuple[str, str]]:
    parameters = model.get_params(deep=False)
    rows = [(name, str(value)) for name, value in parameters.items()]
    rows += [("bne", __version__), ("Python", platform.python_version())]
    for package in ("jax", "numpy", "scipy", "scikit-learn"):
        try:
            rows.append((package, version(package)))
        except PackageNotFoundError:  # vendored, or a build without metadata
            continue
    return rows
