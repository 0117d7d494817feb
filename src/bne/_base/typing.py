"""The array types of the package."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
Integers = NDArray[np.integer[Any]]
