"""Pictures of the report: plotly figures as dicts of plain lists."""

import json
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from bne._base.typing import Array
from bne.report._places import Places

BLUE, GREY, RED = "#0072b2", "#555555", "#d55e00"
DIGITS = 4
"""Significant digits of the numbers in the page. Few digits keep the page small."""


def _numbers(values: Any) -> list[float]:
    """Round to a few significant digits. NaN becomes a gap in the picture (null in the page)."""
    return [float(f"{v:.{DIGITS}g}") for v in np.asarray(values, float).ravel()]


def _figure(traces: list[Any], **layout: Any) -> dict[str, Any]:
    """Return a figure as plain lists, with the layout that all figures share."""
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
    """Return the layout of an axis with this title."""
    return {"title": {"text": escape(str(name))}, "gridcolor": "#e6eaee", "zeroline": False}


def layer(key: str, places: Places, where: pd.DataFrame, y: Array) -> dict[str, Any]:
    """Draw one layer: a curve over one input, a map over two, otherwise a point for each row.

    The prediction (`key` is "mean") is shown with the observations y, whose inputs are `where`.
    """
    if key == "mean":
        values, unit = places.prediction, "prediction"
    else:
        values, unit = places.sd(key), "standard deviation"
    if places.inputs.shape[1] == 1:
        return _curve(key, values, unit, places, where, y)
    if places.inputs.shape[1] == 2:
        return _map(values, unit, places, where if key == "mean" else None, y)
    return _scatter(values, unit, places)


def _curve(
    key: str, values: Any, unit: str, places: Places, where: pd.DataFrame, y: Array
) -> dict[str, Any]:
    """Draw values over the one input; the prediction gets its interval and the observations."""
    name = places.inputs.columns[0]
    order = np.argsort(places.inputs[name].to_numpy())
    x = _numbers(places.inputs[name].to_numpy()[order])
    line = go.Scatter(
        x=x, y=_numbers(np.asarray(values)[order]), mode="lines", name=unit, line={"color": BLUE}
    )
    traces: list[Any] = [line]
    if key == "mean":
        low, high = (_numbers(end.to_numpy()[order]) for end in places.interval)
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
    known = np.isfinite(np.asarray(values, float))  # a place with a negative part stays blank
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


def _scatter(values: Any, unit: str, places: Places) -> dict[str, Any]:
    """Draw a point for each row; the prediction gets its interval."""
    rows = np.arange(1, len(places.answers) + 1)
    marker = {"color": BLUE, "size": 5}
    bars = None
    if unit == "prediction":
        low, high = places.interval
        bars = {
            "type": "data",
            "symmetric": False,
            "array": _numbers(high - places.prediction),
            "arrayminus": _numbers(places.prediction - low),
            "thickness": 0.7,
            "width": 0,
        }
    trace = go.Scatter(
        x=rows.tolist(), y=_numbers(values), mode="markers", error_y=bars, marker=marker, name=unit
    )
    return _figure([trace], xaxis=_axis("row"), yaxis=_axis(unit))


def bias_figure(places: Places) -> dict[str, Any]:
    """Draw the probability that the models are too low: a map over two inputs, else a curve."""
    probability = places.prob_too_low
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


def weights_figure(weights: pd.DataFrame) -> dict[str, Any]:
    """Draw the weights with their intervals."""
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


def pit_figure(u: Array) -> dict[str, Any]:
    """Draw a histogram of u, the predictive CDF at each observation."""
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


def coverage_figure(u: Array) -> dict[str, Any]:
    """Draw how many observations the central intervals hold, against their nominal coverage."""
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
