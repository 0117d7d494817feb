"""Pictures of a fitted model: each function draws into an Axes and returns it.

They need matplotlib. Over one input a function draws a curve, over two inputs a map. `stages` and
`maps` draw whole figures, which are the paper's Figures 3 and 5.
"""

from bne.plots._answers import bands, bias, part, weights
from bne.plots._figures import maps, stages
from bne.plots._predictions import calibration, density, interval

__all__ = [
    "bands",
    "bias",
    "calibration",
    "density",
    "interval",
    "maps",
    "part",
    "stages",
    "weights",
]
