"""Kernels: correlations as functions of the scaled distance ``r = d / ell``."""

from collections.abc import Callable

import numpy as np

from bne._base.typing import Array

KernelFunction = Callable[[Array], Array]
"""A function that maps scaled distances r to correlations k(r)."""


def _matern12(r: Array) -> Array:
    return np.exp(-r)


def _matern32(r: Array) -> Array:
    s = np.sqrt(3.0) * r
    return (1.0 + s) * np.exp(-s)


def _matern52(r: Array) -> Array:
    s = np.sqrt(5.0) * r
    return (1.0 + s + s**2 / 3.0) * np.exp(-s)


def _rbf(r: Array) -> Array:
    return np.exp(-0.5 * r**2)


KERNELS: dict[str, KernelFunction] = {
    "matern12": _matern12,
    "matern32": _matern32,
    "matern52": _matern52,
    "rbf": _rbf,
}
"""The kernels that have a name."""


def resolve_kernel(kernel: str | KernelFunction) -> KernelFunction:
    """Return the function ``r -> k(r)`` of the scaled distance ``r = d / ell``."""
    if isinstance(kernel, str):
        if kernel not in KERNELS:
            raise ValueError(
                f"`residual` must be one of {sorted(KERNELS)}, a function of distance, or None; "
                f"got {kernel!r}."
            )
        return KERNELS[kernel]
    if not callable(kernel):
        raise ValueError(
            f"`residual` must be one of {sorted(KERNELS)}, a function of distance, or None; "
            f"got {type(kernel).__name__}."
        )
    at_zero = np.asarray(kernel(np.zeros(1)), dtype=float)
    if at_zero.shape != (1,) or abs(at_zero[0] - 1.0) > 1e-8:
        raise ValueError(
            "A kernel function must map an array of scaled distances r to correlations with "
            f"k(0) = 1; got k([0.]) = {at_zero!r}. Divide the function by its value at 0."
        )
    return kernel
