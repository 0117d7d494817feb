"""`BNERegressor`: validate, delegate, return. No maths."""

from bne._regressor.estimator import BNERegressor

__all__ = ["BNERegressor"]
