"""Every public name has a full type, as a type checker sees it from outside."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

OTHERS = ("Type of metaclass unknown", "Type of base class unknown")
"""scikit-learn and skpro ship no types, and our estimators inherit from theirs."""


@pytest.mark.slow
def test_public_types_are_complete(tmp_path):
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed; `make setup` does it")
    src = Path(__file__).parents[2] / "src"
    command = f"{sys.executable} -m pyright --verifytypes bne --ignoreexternal --outputjson"
    done = subprocess.run(
        [*command.split(), "--pythonpath", sys.executable],
        cwd=tmp_path,  # our own settings would look for the package elsewhere
        env=os.environ | {"PYTHONPATH": str(src)},
        capture_output=True,
        text=True,
    )
    report = json.loads(done.stdout)["typeCompleteness"]
    assert report["exportedSymbolCounts"]["withKnownType"] > 50  # it did read the package
    found = [
        f"{symbol['name']}: {problem['message']}"
        for symbol in report["symbols"]
        for problem in symbol["diagnostics"]
        if problem["message"] not in OTHERS and '"BNERegressor"' not in problem["message"]
    ]
    assert found == []
