"""Model files of earlier versions still load, and predict what they predicted then."""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bne

FILES = Path(__file__).parents[2] / "files"


@pytest.mark.parametrize(("format", "name"), [(2, "whole"), (2, "shards"), (3, "whole")])
def test_a_file_of_an_earlier_format(format, name, tmp_path):
    """One posterior with the logistic G, and two shards with the paper's.

    The file of format 3 holds the same posterior as that of format 2.
    """
    path = tmp_path / f"{name}.bne"
    path.write_bytes(gzip.decompress((FILES / f"format{format}_{name}.bne.gz").read_bytes()))
    model = bne.load(path)
    answers = json.loads((FILES / "answers.json").read_text())
    X, then = pd.DataFrame(answers["X"]), answers[name]
    law = model.predict_distribution(X)
    np.testing.assert_allclose(law.mean(), then["mean"], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(law.std(), then["sd"], rtol=1e-4)
    quantiles = law.ppf(np.tile([0.05, 0.5, 0.95], (5, 1)))
    np.testing.assert_allclose(quantiles, then["q"], rtol=1e-3, atol=1e-3)
    total = model.decompose(X, measure="variance").total
    np.testing.assert_allclose(total, then["total"], rtol=1e-3)
