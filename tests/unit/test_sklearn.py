"""scikit-learn's contract in full."""

from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from bne import BNERegressor

SMALL = {"chains": 2, "warmup": 50, "draws": 50, "random_state": 0}


@parametrize_with_checks(
    [BNERegressor([("ridge", Ridge()), ("knn", KNeighborsRegressor(3))], cv=3, **SMALL)]
)
def test_check_estimator(estimator, check):
    check(estimator)
