"""Examples in docstrings are run, and give what they say."""

import doctest
import importlib
import warnings

import pytest

MODULES = ("bne._regressor.estimator", "bne.datasets", "bne.grid", "bne.metrics", "bne.plots")
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def examples():
    """Every docstring of a public object that holds an example."""
    finder, found = doctest.DocTestFinder(exclude_empty=True), {}
    for name in MODULES:
        module = importlib.import_module(name)
        objects = [module, *(getattr(module, n) for n in getattr(module, "__all__", ()))]
        for one in objects:
            for test in finder.find(one, getattr(one, "__name__", name)):
                if test.examples:
                    found[test.name] = test
    return found


EXAMPLES = examples()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_gives_what_it_says(name):
    runner = doctest.DocTestRunner(verbose=False, optionflags=OPTIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short chains are warned of
        result = runner.run(EXAMPLES[name], out=lambda text: print(text, end=""))
    assert result.failed == 0


def test_examples_are_found():
    assert {"BNERegressor", "crps"} <= {name.split(".")[-1] for name in EXAMPLES}
