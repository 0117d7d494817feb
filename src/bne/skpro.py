"""The ensemble with the interface of skpro; it needs the extra ``skpro``."""

from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.base import clone
from skpro.distributions.base import BaseDistribution
from skpro.regression.base import BaseProbaRegressor

from bne._base.typing import Array
from bne._regressor.estimator import BNERegressor


class BNEDistribution(BaseDistribution):
    """Predictive distribution of a fitted `BNERegressor` at the rows of a frame.

    Parameters
    ----------
    model : BNERegressor
        The fitted model.
    X : DataFrame
        Rows to predict.
    index, columns : pandas.Index, optional
        Labels of the rows and of the one column; by default the index of X and ``y``.
    """

    _tags: ClassVar[dict[str, Any]] = {
        "capabilities:exact": ["mean", "var", "pdf", "log_pdf", "cdf", "ppf"],
        "capabilities:approx": ["energy", "pdfnorm"],
        "distr:measuretype": "continuous",
        "distr:paramtype": "nonparametric",
    }

    def __init__(self, model: Any, X: Any, index: Any = None, columns: Any = None) -> None:
        self.model = model
        self.X = X
        super().__init__(
            index=X.index if index is None else index,
            columns=pd.Index(["y"]) if columns is None else columns,
        )

    def _iat(self, rowidx: Any = None, colidx: Any = None) -> "BNEDistribution":
        """Return the distribution of one row, still as a frame."""
        return self._iloc(rowidx, colidx)

    def _law(self) -> Any:
        return self.model.predict_distribution(self.X)

    def _iloc(self, rowidx: Any = None, colidx: Any = None) -> "BNEDistribution":
        """Return the distribution of some rows. There is only one column."""
        del colidx
        rows = slice(None) if rowidx is None else rowidx
        rows = np.atleast_1d(np.arange(len(self.X))[rows])
        return BNEDistribution(self.model, self.X.iloc[rows], self.index[rows], self.columns)

    def _mean(self) -> Array:
        return self._law().mean()[:, None]

    def _var(self) -> Array:
        return self._law().var()[:, None]

    def _pdf(self, x: Array) -> Array:
        return self._law().pdf(x)

    def _log_pdf(self, x: Array) -> Array:
        return self._law().logpdf(x)

    def _cdf(self, x: Array) -> Array:
        return self._law().cdf(x)

    def _ppf(self, p: Array) -> Array:
        return self._law().ppf(p)

    def sample(self, n_samples: int | None = None) -> Any:
        """Draw from the distribution.

        Returns
        -------
        draws : DataFrame
            One draw for each row; with `n_samples`, so many frames of draws, one below the other.
        """
        values = self._law().sample(1 if n_samples is None else n_samples)
        if n_samples is None:
            return pd.DataFrame(values, index=self.index, columns=self.columns)
        index = pd.MultiIndex.from_product([range(n_samples), self.index])
        return pd.DataFrame(values.T.ravel(), index=index, columns=self.columns)


class BNEProbaRegressor(BaseProbaRegressor):
    """`BNERegressor` with skpro's interface.

    Parameters
    ----------
    regressor : BNERegressor, default=None
        The model to fit; None means ``BNERegressor()``. A clone of it is fitted.
    """

    _tags: ClassVar[dict[str, Any]] = {
        "capability:multioutput": False,
        "capability:missing": False,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, regressor: Any = None) -> None:
        self.regressor = regressor
        super().__init__()

    def _fit(self, X: Any, y: Any, C: Any = None) -> "BNEProbaRegressor":
        del C
        model = BNERegressor() if self.regressor is None else clone(self.regressor)
        self.regressor_: BNERegressor = model.fit(X, y.iloc[:, 0].to_numpy())
        self.columns_: Any = y.columns
        return self

    def _predict(self, X: Any) -> Any:
        mean = self.regressor_.predict(X)
        return pd.DataFrame(mean, index=X.index, columns=self.columns_)

    def _predict_proba(self, X: Any) -> BNEDistribution:
        return BNEDistribution(self.regressor_, X, index=X.index, columns=self.columns_)
