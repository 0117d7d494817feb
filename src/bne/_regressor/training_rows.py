"""What a `BNERegressor` is fitted to: the experts' predictions of the training rows."""

from typing import Any

from numpy.typing import ArrayLike

from bne._base.typing import Array
from bne._data import experts
from bne._data.validation import check_rows, drop_unpredicted, warn_constant


def predict_training_rows(
    model: Any, X: Any, y: ArrayLike, groups: Any
) -> tuple[Array, Array, Array, tuple[int, int] | None]:
    """Fit the experts: inputs, predictions, outcomes, and which inputs are degrees.

    Sets the fitted attributes of the model that belong to the experts.
    """
    X, y = check_rows(model, X, y, reset=True)
    given = experts.default_estimators(len(y)) if model.estimators is None else model.estimators
    estimators = experts.check_estimators(given)
    names, width = getattr(model, "feature_names_in_", None), model.n_features_in_
    columns = experts.resolve_columns(estimators, model.inputs, names, width)
    fitted, f = experts.out_of_fold(
        estimators, columns, X, y, cv=model.cv, groups=groups, n_jobs=model.n_jobs
    )
    x = experts.numeric(X, columns.inputs)
    x, f, y = drop_unpredicted(x, f, y)
    model.expert_names_ = [name for name, _ in estimators]
    model.estimators_ = fitted
    model.columns_ = columns
    warn_constant(model.expert_names_, f)
    geographic = experts.resolve_geographic(model.geographic, columns.inputs, names, width, x)
    return x, f, y, geographic
