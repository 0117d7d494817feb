"""Deep Ensembles (Lakshminarayanan et al. 2017): networks that predict a mean and a variance."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler

from bne._base.typing import Array
from bne.baselines._laws import Mixture

BATCH = 100
"""Rows of a random batch."""

HIDDEN = 50
"""Units of the hidden layer."""

MIN_VARIANCE = 1e-6
"""Least variance that a network predicts, in units of the variance of y."""


def initial(key: Any, n_features: int) -> dict[str, Any]:
    """Draw the parameters of a network with one hidden layer (He's initial scale)."""
    first, second = jax.random.split(key)
    return {
        "W1": jax.random.normal(first, (n_features, HIDDEN)) * np.sqrt(2.0 / n_features),
        "b1": jnp.zeros(HIDDEN),
        "W2": jax.random.normal(second, (HIDDEN, 2)) * np.sqrt(2.0 / HIDDEN),
        "b2": jnp.zeros(2),
    }


def network(parameters: dict[str, Any], x: Any) -> tuple[Any, Any]:
    """Return the predicted mean and variance at rows of x, (N,) each."""
    hidden = jax.nn.relu(x @ parameters["W1"] + parameters["b1"][None, :])
    out = hidden @ parameters["W2"] + parameters["b2"][None, :]
    return out[:, 0], jax.nn.softplus(out[:, 1]) + MIN_VARIANCE


def negative_log_likelihood(parameters: dict[str, Any], x: Any, y: Any) -> Any:
    """Return the mean Gaussian negative log likelihood over rows, up to a constant."""
    mean, variance = network(parameters, x)
    return 0.5 * jnp.mean(jnp.log(variance) + (y - mean) ** 2 / variance)


@partial(jax.jit, static_argnames=("steps", "optimiser"))
def train(
    key: Any, x: Any, y: Any, step_of_adversary: Any, *, steps: int, optimiser: Any
) -> dict[str, Any]:
    """Train one member on random batches, with adversarial examples.

    Half of the loss is taken at the rows of x. The other half is taken at rows that are moved a
    small step in the direction in which the loss grows.
    """
    key, start = jax.random.split(key)
    parameters = initial(start, x.shape[1])

    def loss(parameters: dict[str, Any], x: Any, y: Any) -> Any:
        against = jnp.sign(jax.grad(negative_log_likelihood, argnums=1)(parameters, x, y))
        moved = jax.lax.stop_gradient(x + step_of_adversary[None, :] * against)
        plain = negative_log_likelihood(parameters, x, y)
        return 0.5 * (plain + negative_log_likelihood(parameters, moved, y))

    def update(carry: Any, key: Any) -> Any:
        parameters, state = carry
        batch = jax.random.choice(key, len(y), (min(BATCH, len(y)),), replace=False)
        gradient = jax.grad(loss)(parameters, x[batch], y[batch])
        change, state = optimiser.update(gradient, state, parameters)
        return (optax.apply_updates(parameters, change), state), None

    carry = parameters, optimiser.init(parameters)
    return jax.lax.scan(update, carry, jax.random.split(key, steps))[0][0]


@dataclass(eq=False, repr=False)
class DeepEnsemble(BaseEstimator):
    """Several networks with adversarial training; they see inputs and experts.

    Parameters
    ----------
    experts, inputs : list of str
        Columns of the experts' predictions and of the inputs.
    members : int, default=5
        Number of networks.
    steps : int, default=2000
        Training steps of each network.
    learning_rate, weight_decay : float
        Settings of the optimiser AdamW.
    adversary : float, default=0.01
        Size of the adversarial step, as a fraction of each feature's range.
    random_state : int, default=0
    """

    experts: list[str]
    inputs: list[str]
    members: int = 5
    steps: int = 2000
    learning_rate: float = 0.01
    weight_decay: float = 1e-3
    adversary: float = 0.01
    random_state: int = 0

    def fit(self, X: Any, y: Array) -> Self:
        """Train all members."""
        columns = [*self.inputs, *self.experts]
        self._scaler = StandardScaler().fit(X[columns].to_numpy(float))
        x = self._scaler.transform(X[columns].to_numpy(float))
        self._centre, self._unit = float(np.mean(y)), float(np.std(y))
        keys = jax.random.split(jax.random.key(self.random_state), self.members)
        member = partial(
            train,
            x=jnp.asarray(x, jnp.float32),
            y=jnp.asarray((y - self._centre) / self._unit, jnp.float32),
            step_of_adversary=jnp.asarray(self.adversary * np.ptp(x, axis=0), jnp.float32),
            steps=self.steps,
            optimiser=_optimiser(self.learning_rate, self.weight_decay),
        )
        members = [member(key) for key in keys]
        self.networks_: Any = jax.tree.map(lambda *a: np.stack(a), *members)
        return self

    def predict_distribution(self, X: Any) -> Mixture:
        """Return the mixture of the members' Gaussians, with equal weights."""
        x = self._scaler.transform(X[[*self.inputs, *self.experts]].to_numpy(float))
        mean, variance = jax.vmap(network, in_axes=(0, None))(
            self.networks_, jnp.asarray(x, jnp.float32)
        )
        means = self._centre + self._unit * np.asarray(mean, float).T
        sds = self._unit * np.sqrt(np.asarray(variance, float)).T
        return Mixture(means, sds, np.full_like(means, 1.0 / self.members))


_OPTIMISERS: dict[tuple[float, float], Any] = {}


def _optimiser(learning_rate: float, weight_decay: float) -> Any:
    """Return the same optimiser object for the same settings.

    jax compiles `train` again for every new object.
    """
    key = (learning_rate, weight_decay)
    return _OPTIMISERS.setdefault(key, optax.adamw(learning_rate, weight_decay=weight_decay))
