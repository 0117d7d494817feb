"""`BNERegressor`, the public class: it checks arguments, calls other layers, and labels answers.

There are no formulas here. This file is long because it documents every parameter and every answer
of the class that users meet first.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from bne._base.checks import check_levels
from bne._base.typing import Array
from bne._data import experts
from bne._data.validation import check_magnitudes, check_rows, unchanged_by_failure
from bne._process.kernels import KernelFunction
from bne._regressor.labels import index_of, labelled
from bne._regressor.settings import check_settings
from bne._regressor.training_rows import predict_training_rows

if TYPE_CHECKING:
    from bne._answers.fitted import Fitted
    from bne._answers.reports import BiasReport, Decomposition
    from bne._data.scaling import Scaling
    from bne._draws.posterior import Posterior
    from bne._law.distribution import Law


class BNERegressor(RegressorMixin, BaseEstimator):
    """Bayesian Nonparametric Ensemble of several models of one quantity.

    The ensemble has three nested stages: `ensemble` is the weighted models (Eq. 1), `additive` adds
    the residual process (Eq. 2), and `full` adds the calibration function (Eq. 4). One fit samples
    all three.

    Parameters
    ----------
    estimators : list of (str, model) pairs, default=None
        The models to combine, with their names. A model is a regressor, or the name or index of a
        column of X that already holds the predictions of a model. Regressors are fitted out of fold
        (see `cv`), then on all rows; they never see columns of predictions. None uses three models:
        a linear one, nearest neighbours, and boosting.
    inputs : list of column names or indices, default=None
        Columns on which the residual process and the calibration function depend. None uses every
        column that is not a prediction.
    geographic : (longitude, latitude), default=None
        Names or indices of two inputs in degrees. Their distances are measured in kilometres. None
        treats every input as a plain number.
    residual : {"matern12", "matern32", "matern52", "rbf"}, function or None, default="matern32"
        Kernel of the residual process: a name, or a positive-definite function of the scaled
        Euclidean distance with k(0) = 1. None leaves the process out.
    calibration : {"logistic", "cgp"} or None, default="logistic"
        Construction of the calibration function G. "logistic" is a logistic Gaussian process.
        "cgp" is the paper's constrained one, which is slower and less accurate (see
        docs/deviations.md). None leaves G out: the noise is Gaussian, and the fit is much quicker.
    length_scales : {"shared", "per_input"}, default="shared"
        Whether all inputs share one length-scale, or each has its own.
    orthogonalize : bool, default=False
        Make the residual process orthogonal to the models on the training rows, so that it holds
        only what no weights can express. Then the data can tell it apart from the weights.
        ``total`` of `detect_bias` does not need this.
    feature_points : int, default=None
        Number of rows of inputs on which the residual process is built. It is exact if there are
        at most this many distinct ones, and an approximation if there are more. The cost grows
        with this number times the number of rows. None uses 128, and up to 512 if many rows share
        their inputs (such as the days of one station).
    cv : int, splitter, iterable or "prefit", default=None
        How regressors predict rows that they have not seen. None uses 5 folds. "prefit" uses
        regressors that are already fitted, as they are.
    chains : int, default=4
        Number of Markov chains.
    warmup : int, default=400
        Iterations of each chain in which the sampler adapts. They are thrown away.
    draws : int, default=1000
        Iterations of each chain that are kept.
    target_acceptance : float, default=0.95
        Target acceptance rate of the sampler of the full stage. Closer to 1 is slower, and gives
        fewer divergent transitions.
    partitions : int, default=1
        Number of shards. With more than 1, the rows are divided into that many equal shards, each
        is sampled by itself, and their answers are averaged. This is for data that are too large
        for one posterior (see docs/scaling.md).
    checkpoint : path, default=None
        Folder in which a fit stores its draws while it runs. If the fit is killed, repeat the same
        call: it continues from there, and gives the draws of an unbroken fit.
    n_jobs : int, default=None
        Number of chains, models or shards that run at the same time. The results do not depend on
        it.
    random_state : int, RandomState or None, default=None
        Seed. The same integer gives the same results.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    weights_ : (K,) array
        Posterior mean of each model's weight in the last stage of the model.
    estimators_ : dict
        Fitted regressors by name.
    expert_names_ : list of str
        Names of the models, in their order.
    n_rows_ : int
        Number of training rows to which the ensemble was fitted.

    Examples
    --------
    >>> from bne import BNERegressor
    >>> from bne.datasets import make_wave_1d
    >>> data = make_wave_1d(60, random_state=0)
    >>> columns = ["rbf_short", "rbf_long", "periodic"]
    >>> quick = {"chains": 2, "warmup": 100, "draws": 100, "random_state": 0}
    >>> model = BNERegressor([(c, c) for c in columns], inputs=["x"], **quick)
    >>> model.fit(data.X, data.y).predict(data.X).shape
    (60,)
    """

    def __init__(
        self,
        estimators: Sequence[tuple[str, Any]] | None = None,
        *,
        inputs: Sequence[str | int] | None = None,
        geographic: tuple[str | int, str | int] | None = None,
        residual: str | KernelFunction | None = "matern32",
        calibration: str | None = "logistic",
        length_scales: str = "shared",
        orthogonalize: bool = False,
        feature_points: int | None = None,
        cv: Any = None,
        chains: int = 4,
        warmup: int = 400,
        draws: int = 1000,
        target_acceptance: float = 0.95,
        partitions: int = 1,
        checkpoint: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.estimators: Sequence[tuple[str, Any]] | None = estimators
        self.inputs = inputs
        self.geographic = geographic
        self.residual = residual
        self.calibration = calibration
        self.length_scales = length_scales
        self.orthogonalize = orthogonalize
        self.feature_points = feature_points
        self.cv = cv
        self.chains = chains
        self.warmup = warmup
        self.draws = draws
        self.target_acceptance = target_acceptance
        self.partitions = partitions
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, and with `deep` those of the models too (``ridge__alpha``)."""
        params = super().get_params(deep=False)
        if deep:
            for name, expert in self._regressor_pairs():
                params[name] = expert
                params |= {f"{name}__{k}": v for k, v in expert.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters: ``ridge=...`` replaces a model, ``ridge__alpha=...`` changes one."""
        names = {name for name, _ in self._regressor_pairs()}
        replaced = {k: params.pop(k) for k in list(params) if k in names}
        if replaced and self.estimators is not None:
            self.estimators = [(name, replaced.get(name, e)) for name, e in self.estimators]
        super().set_params(**params)
        return self

    def _regressor_pairs(self) -> list[tuple[str, Any]]:
        pairs = self.estimators if isinstance(self.estimators, Sequence) else []
        pairs = [p for p in pairs if isinstance(p, tuple) and len(p) == 2]
        return [(n, e) for n, e in pairs if hasattr(e, "get_params") and not isinstance(e, type)]

    def fit(self, X: Any, y: ArrayLike, groups: Any = None) -> Self:
        """Fit the models that are regressors, and sample the posterior of every stage.

        Parameters
        ----------
        X : (n, p) array or DataFrame
            Inputs, features of the regressors, and columns of predictions.
        y : (n,) array
            Outcomes.
        groups : (n,) array, default=None
            Group of each row, passed to the splitter `cv`.
        """
        check_settings(self)
        with unchanged_by_failure(self):
            self._sample(*predict_training_rows(self, X, y, groups))
        return self

    def _sample(self, x: Array, f: Array, y: Array, geographic: tuple[int, int] | None) -> None:
        """Sample the posterior of every stage."""
        from bne._regressor.sampling import sample_model

        self.n_rows_: int = len(y)
        self.scaling_: Scaling
        self.posterior_: Posterior
        self.scaling_, self.posterior_ = sample_model(self, x, f, y, geographic)
        stages = self.posterior_.stages("full")
        self.weights_: Array = np.mean([stage.draws.omega for stage in stages], axis=(0, 1))

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return the predictive mean, and with `return_std` the standard deviation: (N,) each."""
        distribution = self.predict_distribution(X)
        return (distribution.mean(), distribution.std()) if return_std else distribution.mean()

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Any:
        """Return the central predictive interval (Eq. 6): ``lower`` and ``upper``, (N, 2)."""
        ends = np.column_stack(self.predict_distribution(X).interval(coverage))
        return labelled(ends, ["lower", "upper"], X)

    def predict_quantiles(self, X: Any, quantiles: ArrayLike = (0.05, 0.5, 0.95)) -> Any:
        """Return predictive quantiles, one column for each level: (N, Q)."""
        levels = np.atleast_1d(np.asarray(quantiles, dtype=np.float64))
        if levels.ndim != 1:
            raise ValueError(
                f"`quantiles` must be a list of levels; got shape {levels.shape}. Pass a flat list."
            )
        distribution = self.predict_distribution(X)
        values = distribution.ppf(np.tile(levels, (len(distribution), 1)))
        return labelled(values, list(levels), X)

    def predict_distribution(self, X: Any, stage: str = "full") -> "Law":
        """Return the predictive distribution at the rows of X.

        Parameters
        ----------
        X : (N, p) array or DataFrame
        stage : {"ensemble", "additive", "full"}, default="full"
            Eq. (1), Eq. (2) or Eq. (4) of the paper. Each stage has its own posterior.

        Returns
        -------
        Law
            A `PredictiveDistribution`; with partitions, an average over shards that has the same
            methods.
        """
        return self._fitted().law(self._rows(X), stage)

    def decompose(self, X: Any, measure: str = "entropy", stage: str = "full") -> "Decomposition":
        """Split the uncertainty at the rows of X by where it comes from (Eq. 7).

        Parameters
        ----------
        X : (N, p) array or DataFrame
        measure : {"entropy", "variance"}, default="entropy"
            Entropies are in nats, variances in squared units of y.
        stage : {"full", "additive", "ensemble"}, default="full"
            The stage whose uncertainty is split.

        Returns
        -------
        Decomposition
            It has the attributes ``total aleatoric epistemic parametric structural_delta
            structural_G hyperparameters``, their Monte-Carlo ``errors``, and ``to_frame()``.
        """
        from bne._answers.reports import Decomposition
        from bne._answers.uncertainty import decompose

        parts, mean = decompose(self._fitted(), self._rows(X), measure, stage)
        return Decomposition(
            **parts.values,
            errors=parts.errors,
            mean=mean,
            measure=measure,
            index=index_of(X, mean),
        )

    def detect_bias(
        self,
        X: Any,
        statistic: str | float = "mean",
        *,
        coverage: float = 0.9,
        threshold: float = 0.95,
    ) -> "BiasReport":
        """Say with a probability where the models are wrong (section 3.1 of the paper, Eq. 5).

        The verdict is about the weighted sum of the models, not about each of them. In each draw
        it takes the weights whose sum comes nearest to E[y|x] on the training rows, and reports
        the difference that remains. No other weights could remove it.

        Parameters
        ----------
        X : (N, p) array or DataFrame
        statistic : {"mean", "variance", "skewness", "modes", "median"} or level in (0, 1)
            The statistic of y given x, default="mean". A number is a quantile level. Statistics
            other than the mean compare the noise with Gaussian noise about the same centre, so
            their ``delta`` is 0.
        coverage : float, default=0.9
            Coverage of the intervals.
        threshold : float, default=0.95
            The verdict names a bias if its probability is at least this.

        Returns
        -------
        BiasReport
            It has ``delta`` and ``G``, the paper's two differences, and the ``total``: each with
            its mean, interval, P(D > 0) and evidence. ``verdict`` judges the total in words, and
            ``to_frame()`` returns all as a frame.
        """
        from bne._answers.bias import bias, check_statistic
        from bne._answers.reports import BiasReport

        statistic = check_statistic(statistic)
        check_levels(threshold, "threshold")
        summaries = bias(self._fitted(), self._rows(X), statistic, coverage)
        return BiasReport(*summaries, statistic, threshold, index_of(X, summaries[0].mean))

    def explain_weights(self, stage: str = "full", coverage: float = 0.9) -> pd.DataFrame:
        """Return the posterior of each model's weight, and its share of the ensemble's variance.

        A warning names pairs of models that are too alike for their weights to be told apart.
        """
        from bne._answers.weights import warn_if_collinear, weights_table

        omegas, f = [s.draws.omega for s in self._stages(stage)], self.posterior_.rows.f
        warn_if_collinear(f, self.expert_names_)
        return weights_table(omegas, f, self.expert_names_, coverage)

    def diagnostics(self, stage: str = "full") -> pd.DataFrame:
        """Return ESS and R-hat of the weights and hyperparameters, one row each.

        ``.attrs`` of the frame holds the number of divergences and the steps per draw.
        """
        from bne._sampler.diagnostics import health

        stages = self._stages(stage)
        quantities = [one.quantities(self.expert_names_) for one in stages]
        table, statistics = health(quantities, [one.draws.statistics for one in stages])
        table.attrs = {
            "divergences": int(np.sum(statistics["diverging"])),
            "steps_per_draw": float(np.mean(statistics["n_steps"])),
        }
        return table

    def to_datatree(self, stage: str = "full", shard: int = 0) -> Any:
        """Return posterior, sampler statistics and log likelihood as an ArviZ ``DataTree``.

        With ``partitions``, choose one `shard`: there are no joint draws of all shards.
        """
        from bne._answers.datatree import to_datatree

        stages, shards = self._stages(stage), self.posterior_.shards
        if not 0 <= shard < len(shards):
            raise ValueError(
                f"`shard` must lie in 0 ... {len(shards) - 1}; got {shard}. Shards count from 0."
            )
        return to_datatree(stages[shard], shards[shard], self.scaling_, self.expert_names_)

    def save(self, path: Any, *, include_estimators: bool = False) -> None:
        """Write the fitted model to one file, which `bne.load` reads (see `bne.load`)."""
        from bne._storage.archive import save

        save(self, path, include_estimators=include_estimators)

    def _fitted(self) -> "Fitted":
        """Collect what the answers read."""
        from bne._answers.fitted import Fitted

        check_is_fitted(self)
        return Fitted(self.posterior_, self.scaling_, self.expert_names_)

    def _stages(self, stage: str) -> list[Any]:
        """Return this stage of every shard, or the last one before it that the model has."""
        check_is_fitted(self)
        return self.posterior_.stages(stage)

    def _rows(self, X: Any) -> Any:
        """Find the inputs and the experts' predictions at the rows of X, in the model's units."""
        from bne._data.rows import Rows

        check_is_fitted(self)
        X, _ = check_rows(self, X, None, reset=False)
        f = experts.predict_experts(self.expert_names_, self.estimators_, self.columns_, X)
        x = experts.numeric(X, self.columns_.inputs)
        check_magnitudes(inputs=x, predictions=f)
        return Rows(self.scaling_.inputs(x), self.scaling_.outcome(f))
