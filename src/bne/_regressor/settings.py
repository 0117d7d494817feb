"""Checks of the parameters of a `BNERegressor`."""

from typing import Any

import numpy as np

from bne._calibration.registry import HOMES

SIZES = (("chains", 1), ("warmup", 1), ("draws", 1), ("feature_points", 2), ("partitions", 1))
"""Parameters that are counts, with the smallest value of each."""


def check_settings(model: Any) -> None:
    """Raise an error for a parameter that no fit can use; it says which values are allowed."""
    for name, least in SIZES:
        value = getattr(model, name)
        if name == "feature_points" and value is None:
            continue
        if not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"`{name}` must be an integer >= {least}; got {value!r}.")
    if model.calibration not in (None, *HOMES):
        raise ValueError(
            f"`calibration` must be one of {list(HOMES)} or None; got {model.calibration!r}."
        )
    if model.length_scales not in ("shared", "per_input"):
        raise ValueError(
            f"`length_scales` must be 'shared' or 'per_input'; got {model.length_scales!r}."
        )
    if not isinstance(model.orthogonalize, bool | np.bool_):
        raise ValueError(f"`orthogonalize` must be True or False; got {model.orthogonalize!r}.")
    if not 0 < model.target_acceptance < 1:
        raise ValueError(
            f"`target_acceptance` must lie in (0, 1); got {model.target_acceptance!r}. Pass 0.95."
        )
