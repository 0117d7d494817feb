"""`make bench` runs what is there."""

import ast
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"


def test_every_benchmark_has_a_file_that_runs():
    tree = ast.parse((FOLDER / "run.py").read_text(encoding="utf-8"))
    names = next(ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign))
    assert len(names) > 5
    for name in names:
        module = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
        assert "run" in {f.name for f in module.body if isinstance(f, ast.FunctionDef)}, name
