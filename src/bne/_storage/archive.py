"""Model files: one zip archive of NetCDF arrays and a JSON description, never a pickle.

``model.json`` says what the model is made of, ``arrays.nc`` holds its draws and training rows (any
NetCDF-4 reader opens it), ``estimators.skops`` fitted experts where they were asked for. The
description carries the SHA-256 of the others and, in the archive's comment, its own; so an altered
or truncated file is refused before anything in it is interpreted. Only objects with a tag of
`bne._storage.codec` are ever built.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bne._base.files import atomic
from bne._storage import codec
from bne._storage.errors import ModelFileError
from bne._storage.netcdf import ARRAYS, from_netcdf, to_netcdf

FORMAT = 3
"""Number of the layout that is written. 3 has versioned tags in place of class names."""

READABLE = (2, 3)
"""Layouts that are read."""

FITTED = ("expert_names_", "columns_", "n_rows_", "scaling_", "posterior_", "weights_")

DESCRIPTION, ESTIMATORS = "model.json", "estimators.skops"


def save(model: Any, path: str | Path, *, include_estimators: bool = False) -> None:
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
    arrays = codec.Arrays()
    fields = {name: getattr(model, name) for name in FITTED}
    state = {k: codec.encode(v, k.rstrip("_"), arrays) for k, v in fields.items()}
    members = {ARRAYS: to_netcdf(arrays.by_path)}
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


def load_as(kind: Callable[..., Any], path: str | Path, trusted: Sequence[str] = ()) -> Any:
    """Read a model that `save` wrote; predictions are the same to the last digit.

    Parameters
    ----------
    kind : class
        `BNERegressor`, which is made with the stored parameters.
    trusted : list of str
        Types that stored experts may hold beyond those skops trusts by itself. Loading a file never
        runs code of its own.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no model file {str(path)!r}.")
    try:
        description, members = _read(path)
        arrays = from_netcdf(members[ARRAYS])
        model = kind(**_constructor_arguments(description["parameters"]))
        for name in FITTED:
            setattr(model, name, codec.decode(description["state"][name], arrays))
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
            if int(description["format"]) not in READABLE:
                newer = int(description["format"]) > FORMAT
                remedy = "Upgrade bne" if newer else "Fit the model again"
                raise ModelFileError(
                    f"{str(path)!r} was written by bne {description.get('bne')} in format "
                    f"{description['format']}; this is bne {_version()}, which reads formats "
                    f"{READABLE[0]} to {READABLE[-1]}. {remedy}."
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


def _parameters(model: Any) -> dict[str, Any]:
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
