"""Posterior draws -> ArviZ DataTree, in the user's units and words."""

from typing import Any

import arviz_base
import numpy as np

from bne._base.typing import Array
from bne._data.scaling import Scaling
from bne._draws.stage import Rows, Stage


def to_datatree(
    stage: Stage, rows: Rows, y: Array, scaling: Scaling, expert_names: list[str]
) -> Any:
    """Named quantities with dims (chain, draw, ...); log likelihood in the units of y."""
    stage = stage.as_sampled()
    draws, scale = stage.draws, scaling.y_scale
    named = {
        "weights": draws.omega,
        "weight_scale": draws.sigma_omega,
        "noise_scale": draws.sigma_eps * scale,
        "mean": scaling.undo_outcome(stage.mu(rows)),
    }
    if draws.sigma_delta is not None and draws.log_ell is not None:
        named |= {
            "residual_scale": draws.sigma_delta * scale,
            "length_scale": np.exp(draws.log_ell),
            "residual": scale * stage.delta(rows),
        }
    if draws.calibration is not None:
        named |= {
            "calibration_scale": draws.calibration.sigma_G,
            "calibration_length_scale_t": np.exp(draws.calibration.log_ell_t),
            "calibration_length_scale_x": np.exp(draws.calibration.log_ell_x),
        }
    log_likelihood = stage.log_likelihood(rows, y) - np.log(scale)
    return arviz_base.from_dict(
        {
            "posterior": {k: draws.by_chain(v) for k, v in named.items()},
            "unconstrained_posterior": {"position": draws.position},
            "sample_stats": draws.statistics,
            "log_likelihood": {"y": draws.by_chain(log_likelihood)},
            "observed_data": {"y": scaling.undo_outcome(y)},
        },
        coords={"expert": expert_names, "row": np.arange(len(y))},
        dims={
            "weights": ["expert"],
            "mean": ["row"],
            "residual": ["row"],
            "y": ["row"],
            "position": ["coordinate"],
        },
        attrs={"/": {"inference_library": "bne"}},
    )
