"""Model files: one zip archive of NetCDF arrays and a JSON description, never a pickle.

``model.json`` says what the model is made of, ``arrays.nc`` holds its draws and training rows (any
NetCDF-4 reader opens it), ``estimators.skops`` fitted experts where they were asked for. The
description carries the SHA-256 of the others and, in the archive's comment, its own; so an altered
or truncated file is refused before anything in it is interpreted. Only types named in `TYPES` are
ever built.
"""

import hashlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bne._base.typing import Array

if TYPE_CHECKING:
    from bne._regressor import BNERegressor

FORMAT = 2
"""Number of the layout; a reader refuses any other. 2 has `CalibrationDraws.stretch`."""

FITTED = ("expert_names_", "columns_", "n_rows_", "scaling_", "posterior_", "weights_")
DESCRIPTION, ARRAYS, ESTIMATORS = "model.json", "arrays.nc", "estimators.skops"


UMASK = os.umask(0)  # it can only be read by setting it, which threads must not do
os.umask(UMASK)


class ModelFileError(ValueError):
    """A file that is not a whole model file of a version this package reads."""


def save(model: "BNERegressor", path: str | Path, *, include_estimators: bool = False) -> None:
    """Write a fitted model to one file; an existing one is replaced whole or not at all.

    Parameters
    ----------
    include_estimators : bool, default=False
        Store fitted regressors too, by skops (``pip install skops``). Experts that are columns
        need nothing.
    """
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model)
    if model.estimators_ and not include_estimators:
        raise ValueError(
            f"The experts {sorted(model.estimators_)} are fitted regressors, which a model file "
            "holds only on request. Pass include_estimators=True, or fit the model on columns of "
            "predictions."
        )
    arrays: dict[str, Array] = {}
    state = {name: _encode(getattr(model, name), name.rstrip("_"), arrays) for name in FITTED}
    members = {ARRAYS: _to_netcdf(arrays)}
    if model.estimators_:
        members[ESTIMATORS] = _skops().dumps(model.estimators_)
    description = {
        "format": FORMAT,
        "bne": _version(),
        "parameters": _parameters(model),
        "n_features": model.n_features_in_,
        "feature_names": [str(n) for n in getattr(model, "feature_names_in_", [])],
        "state": state,
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
    }
    text = json.dumps(description, allow_nan=False).encode()
    with atomic(path) as file, zipfile.ZipFile(file, "w") as archive:
        archive.comment = hashlib.sha256(text).hexdigest().encode()
        archive.writestr(DESCRIPTION, text)
        for name, data in members.items():
            archive.writestr(name, data)


def load(path: str | Path, *, trusted: Sequence[str] = ()) -> "BNERegressor":
    """Read a model that `save` wrote; predictions are the same to the last digit.

    Parameters
    ----------
    trusted : list of str
        Types that stored experts may hold beyond those skops trusts by itself. Loading a file never
        runs code of its own.
    """
    from bne._regressor import BNERegressor

    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no model file {str(path)!r}.")
    try:
        description, members = _read(path)
        arrays = _from_netcdf(members[ARRAYS])
        model = BNERegressor(**_constructor_arguments(description["parameters"]))
        for name in FITTED:
            setattr(model, name, _decode(description["state"][name], arrays))
        model.n_features_in_ = int(description["n_features"])
        if description["feature_names"]:
            model.feature_names_in_ = np.array(description["feature_names"], dtype=object)
    except ModelFileError:
        raise
    except Exception as error:  # whatever a broken description may provoke
        raise ModelFileError(f"{str(path)!r} is not a valid model file ({error!r}).") from error
    model.estimators_ = _load_estimators(members.get(ESTIMATORS), trusted)
    if model.estimators_:
        pairs: list[tuple[str, Any]] = list(model.estimators or [])
        model.estimators = [(name, model.estimators_.get(name, c)) for name, c in pairs]
    return model


class atomic:  # noqa: N801  used like a function
    """Open a temporary file beside `path` for writing; it takes the name when all went well."""

    def __init__(self, path: str | Path) -> None:
        self.path: Path = Path(path)

    def __enter__(self) -> Any:
        """Open the temporary file."""
        folder = self.path.absolute().parent
        if not folder.is_dir():
            raise FileNotFoundError(f"There is no folder {str(folder)!r} to write to.")
        handle, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=folder)
        self._temporary = Path(name)
        self._file = os.fdopen(handle, "wb")
        return self._file

    def __exit__(self, kind: Any, *error: Any) -> None:
        """Flush to disk and rename; on an error remove what was written."""
        if kind is None:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()
        if kind is not None:
            self._temporary.unlink(missing_ok=True)
            return
        self._temporary.chmod(0o666 & ~UMASK)
        self._temporary.replace(self.path)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Description and checked members of an archive."""
    damaged = f"{str(path)!r} is damaged or not a model file of bne"
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if DESCRIPTION not in [info.filename for info in members]:
                raise ModelFileError(f"{damaged}: it has no {DESCRIPTION}.")
            _refuse_bombs(members, path.stat().st_size, damaged)
            text = archive.read(DESCRIPTION)
            if hashlib.sha256(text).hexdigest().encode() != archive.comment:
                raise ModelFileError(f"{damaged}: the checksum of {DESCRIPTION} differs.")
            description = json.loads(text)
            if int(description["format"]) != FORMAT:
                newer = int(description["format"]) > FORMAT
                raise ModelFileError(
                    f"{str(path)!r} was written by bne {description.get('bne')} in format "
                    f"{description['format']}; this is bne {_version()}, which reads format "
                    f"{FORMAT}. {'Upgrade bne' if newer else 'Fit the model again'}."
                )
            members = {name: archive.read(name) for name in description["sha256"]}
    except ModelFileError:
        raise
    except Exception as error:  # zipfile alone has a dozen ways to fail
        raise ModelFileError(f"{damaged} ({type(error).__name__}: {error}).") from error
    for name, data in members.items():
        if hashlib.sha256(data).hexdigest() != description["sha256"][name]:
            raise ModelFileError(f"{damaged}: the checksum of {name} differs.")
    return description, members


def _refuse_bombs(members: list[zipfile.ZipInfo], size: int, damaged: str) -> None:
    """Nothing in a file is compressed, so that it cannot unpack to more than it is."""
    if any(info.compress_type != zipfile.ZIP_STORED for info in members):
        raise ModelFileError(f"{damaged}: its members are compressed.")
    if sum(info.file_size for info in members) > size:
        raise ModelFileError(f"{damaged}: its members claim more than its {size:,} bytes.")


def _types() -> dict[str, type]:
    """The named tuples that a file may hold, by name."""
    from bne._base import priors as _priors
    from bne._calibration import construction as _calibration
    from bne._data import experts as _experts
    from bne._data import scaling as _scaling
    from bne._draws import stage as _stages
    from bne._fitting import full_stage as _joint
    from bne._fitting import posterior as _posterior
    from bne._process import kernels as _kernels

    classes = (
        _calibration.Basis,
        _experts.Columns,
        _joint.CalibrationDraws,
        _joint.CalibrationFeatures,
        _kernels.FeatureMap,
        _posterior.Posterior,
        _priors.InverseGamma,
        _priors.Priors,
        _scaling.Scaling,
        _stages.Residual,
        _stages.Rows,
        _stages.Stage,
        _stages.StageDraws,
    )
    return {c.__name__: c for c in classes}


def _named_objects() -> dict[str, dict[str, Any]]:
    """Functions and constructions that a file names."""
    from bne._fitting.full_stage import CONSTRUCTIONS
    from bne._process.kernels import KERNELS

    return {"kernel": KERNELS, "construction": dict(CONSTRUCTIONS)}


def _encode(value: Any, path: str, arrays: dict[str, Array]) -> Any:
    """A value as JSON; arrays go to `arrays` under their path."""
    for kind, objects in _named_objects().items():
        for name, known in objects.items():
            if value is known or (kind == "construction" and type(value) is type(known)):
                return {kind: name}
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, np.generic):
        return _encode(value.item(), path, arrays)
    if isinstance(value, np.ndarray):
        if value.size == 0:
            return {"empty": list(value.shape), "dtype": value.dtype.str}
        arrays[path] = value
        return {"array": path}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        parts = zip(value._fields, value, strict=True)  # pyright: ignore[reportAttributeAccessIssue]
        fields = {k: _encode(v, f"{path}.{k}", arrays) for k, v in parts}
        return {"type": type(value).__name__, "fields": fields}
    if isinstance(value, dict):
        return {"dict": {k: _encode(v, f"{path}.{k}", arrays) for k, v in value.items()}}
    if isinstance(value, list | tuple):
        items = [_encode(v, f"{path}.{i}", arrays) for i, v in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    raise ValueError(
        f"A model file cannot hold {value!r}. Kernels given as functions cannot be saved: use one "
        "of the named ones."
    )


def _decode(value: Any, arrays: dict[str, Array]) -> Any:
    """The value that `_encode` was given."""
    if isinstance(value, list):
        return [_decode(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    decoders: dict[str, Callable[[], Any]] = {
        "float": lambda: float.fromhex(value["float"]),
        "array": lambda: arrays[value["array"]],
        "empty": lambda: _empty(value["empty"], value["dtype"]),
        "tuple": lambda: tuple(_decode(v, arrays) for v in value["tuple"]),
        "dict": lambda: {k: _decode(v, arrays) for k, v in value["dict"].items()},
        "type": lambda: _types()[value["type"]](
            **{k: _decode(v, arrays) for k, v in value["fields"].items()}
        ),
        "kernel": lambda: _named_objects()["kernel"][value["kernel"]],
        "construction": lambda: _named_objects()["construction"][value["construction"]],
    }
    return decoders[next(iter(value))]()


def _empty(shape: Sequence[int], name: str) -> Array:
    dtype = np.dtype(name)
    if dtype.hasobject or 0 not in shape:
        raise ModelFileError("A model file holds numbers only, each in its array.")
    return np.empty(shape, dtype)


def _parameters(model: "BNERegressor") -> dict[str, Any]:
    """Constructor arguments that JSON can hold; regressors and random states are left out."""
    parameters = model.get_params(deep=False)
    experts = parameters["estimators"] or [(name, None) for name in model.expert_names_]
    columns = {name: c if isinstance(c, str | int | np.integer) else None for name, c in experts}
    parameters["estimators"] = [
        [name, int(c) if isinstance(c, np.integer) else c] for name, c in columns.items()
    ]
    inputs = parameters["inputs"]
    parameters["inputs"] = inputs if inputs is None else np.asarray(inputs, object).tolist()
    for name in ("cv", "random_state"):
        if not isinstance(parameters[name], int | str | None):
            parameters[name] = None
    parameters["checkpoint"] = None  # a folder of the machine that fitted the model
    return {k: v.item() if isinstance(v, np.generic) else v for k, v in parameters.items()}


def _constructor_arguments(parameters: dict[str, Any]) -> dict[str, Any]:
    """JSON has no tuples."""
    pairs = [(name, column) for name, column in parameters["estimators"]]
    geographic = parameters["geographic"] and tuple(parameters["geographic"])
    return parameters | {"estimators": pairs, "geographic": geographic}


def _to_netcdf(arrays: dict[str, Array]) -> bytes:
    """NetCDF-4 bytes, one variable an array; dimensions are named by their length."""
    import xarray as xr

    dataset = xr.Dataset(
        {
            name: (tuple(f"axis{i}_of_{n}" for i, n in enumerate(a.shape)), a)
            for name, a in arrays.items()
        }
    )
    buffer = io.BytesIO()
    dataset.to_netcdf(buffer, engine="h5netcdf")
    return buffer.getvalue()


def _from_netcdf(data: bytes) -> dict[str, Array]:
    """Arrays of numbers, stored in these bytes and nowhere else."""
    import h5py

    arrays: dict[str, Array] = {}
    with h5py.File(io.BytesIO(data), "r") as file:
        members = {n: file[n] for n in file if isinstance(file.get(n, getlink=True), h5py.HardLink)}
        for name, member in members.items():
            if not isinstance(member, h5py.Dataset) or name.startswith("axis"):
                continue  # the dimensions
            elsewhere = member.is_virtual or member.external or member.chunks is not None
            if elsewhere or member.dtype.kind not in "biuf":
                raise ModelFileError(f"{ARRAYS} holds {name!r} in another way than bne writes it.")
            if member.nbytes > len(data):
                raise ModelFileError(
                    f"{ARRAYS} claims {member.nbytes:,} bytes; it has {len(data):,}."
                )
            values = member[()]
            arrays[name] = values.astype(bool) if member.attrs.get("dtype") == "bool" else values
    return arrays


def _load_estimators(data: bytes | None, trusted: Sequence[str]) -> dict[str, Any]:
    if data is None:
        return {}
    skops = _skops()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        _refuse_bombs(archive.infolist(), len(data), ESTIMATORS)
    unknown = sorted(set(skops.get_untrusted_types(data=data)) - set(trusted))
    if unknown:
        raise ModelFileError(
            f"The file's experts hold types that are not trusted: {unknown}. If you trust them, "
            "pass trusted=[...] with their names."
        )
    return skops.loads(data, trusted=list(trusted))


def _skops() -> Any:
    try:
        import skops.io
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "Fitted experts are stored by skops; pip install skops."
        ) from None
    return skops.io


def _version() -> str:
    from bne import __version__

    return __version__
