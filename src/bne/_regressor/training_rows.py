"""The data to which a `BNERegressor` is fitted: experts' predictions at the training rows."""

from typing import Any

from numpy.typing import ArrayLike

from bne._base.typing import Array
from bne._data import experts, roles
from bne._data.validation import (
    check_magnitudes,
    check_rows,
    drop_unpredicted,
    warn_constant,
    warn_other_unit,
)


def predict_training_rows(
    model: Any, X: Any, y: ArrayLike, groups: Any
) -> tuple[Array, Array, Array, tuple[int, int] | None]:
    """Fit the experts, and return inputs, predictions, outcomes and the two geographic inputs.

    The model gets its fitted attributes that belong to the experts: `expert_names_`,
    `estimators_` and `columns_`.
    """
    X, y = check_rows(model, X, y, reset=True)
    given = experts.default_estimators(len(y)) if model.estimators is None else model.estimators
    estimators = experts.check_estimators(given)
    experts.check_names([name for name, _ in estimators], list(model.get_params(deep=False)))
    names, width = getattr(model, "feature_names_in_", None), model.n_features_in_
    columns = roles.resolve_columns(estimators, model.inputs, names, width)
    fitted, f = experts.out_of_fold(
        estimators, columns, X, y, cv=model.cv, groups=groups, n_jobs=model.n_jobs
    )
    x = experts.numeric(X, columns.inputs)
    x, f, y = drop_unpredicted(x, f, y)
    check_magnitudes(inputs=x, predictions=f, outcomes=y)
    model.expert_names_ = [name for name, _ in estimators]
    model.estimators_ = fitted
    model.columns_ = columns
    warn_constant(model.expert_names_, f)
    warn_other_unit(model.expert_names_, f, y)
    geographic = roles.resolve_geographic(model.geographic, columns.inputs, names, width, x)
    return x, f, y, geographic
