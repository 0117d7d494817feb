"""`BNERegressor`, the public class: it checks arguments, calls other layers, and labels answers."""

from bne._regressor.estimator import BNERegressor

__all__ = ["BNERegressor"]
