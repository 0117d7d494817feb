"""Posterior draws -> ArviZ DataTree, in the user's units and words."""

from typing import Any

import arviz_base
import numpy as np

from bne._posterior import Posterior, Residual, StageDraws
from bne._scaling import Scaling


def to_datatree(
    draws: StageDraws,
    posterior: Posterior,
    residual: Residual | None,
    scaling: Scaling,
    expert_names: list[str],
) -> Any:
    """Named quantities with dims (chain, draw, ...); log likelihood in the units of y."""
    rows, scale = posterior.rows, scaling.y_scale
    mu = draws.conditional(residual, rows).mu
    named = {
        "weights": draws.omega,
        "weight_scale": draws.sigma_omega,
        "noise_scale": draws.sigma_eps * scale,
        "mean": scaling.undo_outcome(mu),
    }
    if residual is not None:
        assert draws.sigma_delta is not None and draws.log_ell is not None
        named |= {
            "residual_scale": draws.sigma_delta * scale,
            "length_scale": np.exp(draws.log_ell),
            "residual": scale * draws.residual(residual, rows),
        }
    log_likelihood = draws.log_likelihood(residual, rows, posterior.y) - np.log(scale)
    return arviz_base.from_dict(
        {
            "posterior": {k: draws.by_chain(v) for k, v in named.items()},
            "unconstrained_posterior": {"position": draws.position},
            "sample_stats": draws.statistics,
            "log_likelihood": {"y": draws.by_chain(log_likelihood)},
            "observed_data": {"y": scaling.undo_outcome(posterior.y)},
        },
        coords={"expert": expert_names, "row": np.arange(len(posterior.y))},
        dims={
            "weights": ["expert"],
            "mean": ["row"],
            "residual": ["row"],
            "y": ["row"],
            "position": ["coordinate"],
        },
        attrs={"/": {"inference_library": "bne"}},
    )
