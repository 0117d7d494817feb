"""Real monitors, where their file is at hand."""

import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conftest import shifted

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("BNE_DATA", ROOT.parent / "shared" / "data"))
sys.path.insert(0, str(ROOT / "examples"))


def test_air_pollution():
    path = DATA / "eastma_pm25_2011" / "training51_kmeans6.csv"
    if not path.exists():
        pytest.skip(f"{path.name} is not here: set BNE_DATA to the folder of the data sets")
    import air_pollution

    monitors = pd.read_csv(path, index_col="mon_id")
    model = air_pollution.fit(monitors, chains=2, draws=300, random_state=shifted(0), n_jobs=2)
    table = air_pollution.report(model, monitors)
    assert list(table.index) == list(monitors.index)
    share = table["epistemic"].sum() / table["total"].sum()
    assert 0.05 < share < 0.95
    parts = table[["parametric", "structural_delta", "structural_G", "hyperparameters"]]
    np.testing.assert_allclose(parts.sum(axis=1), table["epistemic"], atol=1e-10)
    sure = table["verdict"].str.startswith("models too")
    bound = table["delta_prob_positive"]
    assert np.all(sure == ((bound >= 0.95) | (bound <= 0.05)))
