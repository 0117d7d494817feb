"""Model files: a zip archive with NetCDF arrays and a JSON description, never a pickle.

The archive has these members:

* ``model.json`` describes the objects of which the model is made.
* ``arrays.nc`` holds its draws and training rows. Any NetCDF-4 reader opens it.
* ``estimators.skops`` holds fitted regressors, if they were asked for.

The description holds the SHA-256 of the other members, and the comment of the archive holds the
SHA-256 of the description. So an altered or truncated file is refused before anything in it is
interpreted. Only objects with a tag of `bne._storage.codec` are ever built.
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
"""Number of the format that is written. Format 3 has versioned tags in place of class names."""

READABLE = (2, 3)
"""Numbers of the formats that are read."""

FITTED = ("expert_names_", "columns_", "n_rows_", "scaling_", "posterior_", "weights_")
"""Fitted attributes of the model that a file holds."""

DESCRIPTION, ESTIMATORS = "model.json", "estimators.skops"
"""Names of the members with the description and with fitted regressors."""


def save(model: Any, path: str | Path, *, include_estimators: bool = False) -> None:
    """Write a fitted model to one file. An existing file is replaced whole or not at all.

    Parameters
    ----------
    model : BNERegressor
        The fitted model.
    path : path
        The file to write.
    include_estimators : bool, default=False
        Also store the fitted regressors, with skops (``pip install skops``). A model whose experts
        are all columns does not need it.
    """
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model)
    if model.estimators_ and not include_estimators:
        raise ValueError(
            f"The experts {sorted(model.estimators_)} are fitted regressors; a model file stores "
            "these only on request. Pass include_estimators=True, or fit the model to columns of "
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
    """Read a model that `save` wrote. Its predictions are the same to the last digit.

    Loading a file never runs code that the file holds.

    Parameters
    ----------
    kind : class
        `BNERegressor`, which is made with the stored parameters.
    path : path
        The model file.
    trusted : list of str
        Types that stored regressors may contain, besides those that skops trusts by itself.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no model file {str(path)!r}. Check the path.")
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
    except Exception as error:  # a broken description may raise any error
        raise ModelFileError(
            f"{str(path)!r} is not a valid model file ({error!r}). Save the model again."
        ) from error
    model.estimators_ = _load_estimators(members.get(ESTIMATORS), trusted)
    if model.estimators_:
        pairs: list[tuple[str, Any]] = list(model.estimators or [])
        model.estimators = [(name, model.estimators_.get(name, c)) for name, c in pairs]
    return model


def _read(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read the description and the members of an archive, and check them."""
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
    except Exception as error:  # zipfile raises many kinds of errors for a damaged file
        raise ModelFileError(f"{damaged} ({type(error).__name__}: {error}).") from error
    for name, data in members.items():
        if hashlib.sha256(data).hexdigest() != description["sha256"][name]:
            raise ModelFileError(f"{damaged}: the checksum of {name} differs.")
    return description, members


def _refuse_bombs(members: list[zipfile.ZipInfo], size: int, damaged: str) -> None:
    """Raise an error if a member is compressed, or claims more bytes than the file has.

    bne does not compress. A small file that does could unpack to more than memory holds.
    """
    if any(info.compress_type != zipfile.ZIP_STORED for info in members):
        raise ModelFileError(f"{damaged}: its members are compressed.")
    if sum(info.file_size for info in members) > size:
        raise ModelFileError(f"{damaged}: its members claim more than its {size:,} bytes.")


def _parameters(model: Any) -> dict[str, Any]:
    """Return the constructor arguments in a form that JSON can hold.

    Regressors, splitters and random states are left out.
    """
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
    parameters["checkpoint"] = None  # it is a folder on the machine that fitted the model
    return {k: v.item() if isinstance(v, np.generic) else v for k, v in parameters.items()}


def _constructor_arguments(parameters: dict[str, Any]) -> dict[str, Any]:
    """Turn lists back into tuples where the constructor takes tuples: JSON has none."""
    pairs = [(name, column) for name, column in parameters["estimators"]]
    geographic = parameters["geographic"] and tuple(parameters["geographic"])
    # a folder that a file names must not be written to by the next fit
    return parameters | {"estimators": pairs, "geographic": geographic, "checkpoint": None}


def _load_estimators(data: bytes | None, trusted: Sequence[str]) -> dict[str, Any]:
    if data is None:
        return {}
    skops = _skops()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        _refuse_bombs(archive.infolist(), len(data), ESTIMATORS)
    unknown = sorted(set(skops.get_untrusted_types(data=data)) - set(trusted))
    if unknown:
        raise ModelFileError(
            f"The experts in the file contain types that are not trusted: {unknown}. If you trust "
            "them, pass trusted=[...] with their names."
        )
    return skops.loads(data, trusted=list(trusted))


def _skops() -> Any:
    try:
        import skops.io
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "Fitted experts are stored with skops, which is missing. Run `pip install skops`."
        ) from None
    return skops.io


def _version() -> str:
    from bne import __version__

    return __version__
