"""Objects as JSON and arrays, and back. Only objects that have a tag are ever built.

A tag names a kind of object and the version of its fields, such as ``stage/1``. It does not change
if a class is renamed or moved. If the fields of a class change, the class gets the next version
here, and the reader of the old version stays, because files that users have saved must load.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bne._base.priors import InverseGamma, Priors
from bne._base.typing import Array
from bne._calibration import registry
from bne._calibration.construction import Basis
from bne._calibration.features import CalibrationFeatures
from bne._data.roles import Columns
from bne._data.rows import Rows
from bne._data.scaling import Scaling
from bne._draws.calibration import CalibrationDraws
from bne._draws.posterior import Posterior, Shard
from bne._draws.stage import Stage, StageDraws
from bne._mean.residual import Residual
from bne._mean.term import TermDraws, TermPrior
from bne._mean.weights import Weights
from bne._process.features import FeatureMap
from bne._process.kernels import KERNELS
from bne._storage import format2
from bne._storage.errors import ModelFileError

TAGS: dict[type, str] = {
    Basis: "basis/1",
    CalibrationDraws: "calibration-draws/1",
    CalibrationFeatures: "calibration-features/1",
    Columns: "columns/1",
    FeatureMap: "feature-map/1",
    InverseGamma: "inverse-gamma/1",
    Posterior: "posterior/1",
    Priors: "priors/1",
    Residual: "residual/1",
    Rows: "rows/1",
    Scaling: "scaling/1",
    Shard: "shard/1",
    Stage: "stage/1",
    StageDraws: "stage-draws/1",
    TermDraws: "term-draws/1",
    TermPrior: "term-prior/1",
    Weights: "weights/1",
}
"""The tag under which each class is written."""

READERS: dict[str, Callable[..., Any]] = {tag: kind for kind, tag in TAGS.items()} | {
    "Basis": Basis,
    "CalibrationDraws": CalibrationDraws,
    "CalibrationFeatures": CalibrationFeatures,
    "Columns": Columns,
    "FeatureMap": FeatureMap,
    "InverseGamma": InverseGamma,
    "Posterior": format2.read_posterior,
    "Priors": Priors,
    "Residual": Residual,
    "Rows": Rows,
    "Scaling": Scaling,
    "Stage": format2.read_stage,
    "StageDraws": format2.read_stage_draws,
}
"""The function that makes an object of each tag. In format 2 the tags are class names."""


class Arrays:
    """The arrays of a file, by path. An array that stands in several places is stored once."""

    def __init__(self) -> None:
        self.by_path: dict[str, Array] = {}
        self._paths: dict[int, str] = {}

    def add(self, path: str, values: Array) -> str:
        """Store an array, and return the path under which it is stored."""
        known = self._paths.setdefault(id(values), path)
        self.by_path.setdefault(known, values)
        return known


def encode(value: Any, path: str, arrays: Arrays) -> Any:
    """Turn a value into JSON, and put its arrays into `arrays` under their paths."""
    named = _named(value)
    if named is not None:
        return named
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, np.generic):
        return encode(value.item(), path, arrays)
    if isinstance(value, np.ndarray):
        if value.size == 0:
            return {"empty": list(value.shape), "dtype": value.dtype.str}
        return {"array": arrays.add(path, value)}
    if type(value) in TAGS:
        parts = zip(value._fields, value, strict=True)
        fields = {k: encode(v, f"{path}.{k}", arrays) for k, v in parts}
        return {"type": TAGS[type(value)], "fields": fields}
    if isinstance(value, dict):
        return {"dict": {k: encode(v, f"{path}.{k}", arrays) for k, v in value.items()}}
    if isinstance(value, list | tuple):
        items = [encode(v, f"{path}.{i}", arrays) for i, v in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    raise ValueError(
        f"A model file cannot hold {value!r}. Functions cannot be saved: if it is a kernel of your "
        "own, use one of the named ones."
    )


def _named(value: Any) -> dict[str, str] | None:
    """Name a value if it is a kernel or a construction, which are stored by their names."""
    for name, kernel in KERNELS.items():
        if value is kernel:
            return {"kernel": name}
    name = registry.name_of(value)
    return None if name is None else {"construction": name}


def decode(value: Any, arrays: dict[str, Array]) -> Any:
    """Return the value that `encode` was given."""
    if isinstance(value, list):
        return [decode(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    decoders: dict[str, Callable[[], Any]] = {
        "float": lambda: float.fromhex(value["float"]),
        "array": lambda: arrays[value["array"]],
        "empty": lambda: _empty(value["empty"], value["dtype"]),
        "tuple": lambda: tuple(decode(v, arrays) for v in value["tuple"]),
        "dict": lambda: {k: decode(v, arrays) for k, v in value["dict"].items()},
        "type": lambda: READERS[value["type"]](
            **{k: decode(v, arrays) for k, v in value["fields"].items()}
        ),
        "kernel": lambda: KERNELS[value["kernel"]],
        "construction": lambda: registry.construction(value["construction"]),
    }
    return decoders[next(iter(value))]()


def _empty(shape: Sequence[int], name: str) -> Array:
    dtype = np.dtype(name)
    if dtype.hasobject or 0 not in shape:
        raise ModelFileError(
            "A model file holds numbers only, each in its array. This one does not: do not use it."
        )
    return np.empty(shape, dtype)
