"""The house: folders are layers, and who predicts does not load the sampler."""

import ast
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "bne"

LAYERS = (
    "_base",
    "_data",
    "_process",
    "_calibration",
    "_mean",
    "_draws",
    "_law",
    "_answers",
    "_sampler",
    "_fitting",
    "_storage",
    "_regressor",
    "public",
)
"""A layer imports from itself and from the layers before it."""

ANSWERING, SAMPLING = {"_law", "_answers", "_storage"}, {"_sampler", "_fitting"}
"""Neither imports the other."""

EXCEPTIONS: set[tuple[str, str]] = set()
"""Imports (module, imported module) that break a rule; this may only shrink."""

MOST_LINES, MOST_STATEMENT_LINES, MOST_PARAMETERS = 350, 50, 8


@cache
def modules():
    """Every module's name, path and syntax tree."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(p for p in parts if p != "__init__")] = path, ast.parse(path.read_text())
    return found


def layer(module):
    """The folder of a module of the core; all other modules are public."""
    name = module.split(".")[1] if "." in module else ""
    return name if name in LAYERS else "public"


@cache
def imports():
    """(importing module, imported module, imported names), lazy and typing imports included."""
    found = []
    for name, (_, tree) in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found += [(name, a.name, ()) for a in node.names if a.name.startswith("bne")]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bne"):
                assert node.level == 0, f"{name} has a relative import"
                names = [alias.name for alias in node.names]
                inner = [f"{node.module}.{n}" for n in names if f"{node.module}.{n}" in modules()]
                rest = tuple(n for n in names if f"{node.module}.{n}" not in modules())
                found += [(name, module, ()) for module in inner]
                if rest:
                    found.append((name, node.module, rest))
    return [one for one in found if one[:2] not in EXCEPTIONS]


def test_every_folder_of_the_core_is_a_layer():
    folders = {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name.startswith("_")}
    assert folders - {"__pycache__"} == set(LAYERS) - {"public"}


def test_layers_import_only_from_the_layers_before_them():
    against = [
        f"{module} imports {imported}"
        for module, imported, _ in imports()
        if imported != "bne"  # the version
        and module != "bne"
        and LAYERS.index(layer(imported)) > LAYERS.index(layer(module))
    ]
    assert not against


def test_within_a_layer_no_modules_import_each_other():
    """An order of the modules exists: there are no cycles."""
    after = {name: set() for name in modules()}
    for module, imported, _ in imports():
        if imported in after and imported != module and layer(module) != "public":
            after[module].add(imported)
    left = dict(after)
    while left:
        free = [name for name, needs in left.items() if not needs & left.keys()]
        assert free, f"these import each other: {sorted(left)}"
        for name in free:
            del left[name]


def test_who_answers_does_not_import_who_samples_nor_the_reverse():
    for module, imported, _ in imports():
        pair = layer(module), layer(imported)
        assert not (pair[0] in ANSWERING and pair[1] in SAMPLING), (module, imported)
        assert not (pair[0] in SAMPLING and pair[1] in ANSWERING), (module, imported)


def test_private_names_stay_in_their_folder():
    for module, imported, names in imports():
        if layer(module) != layer(imported) or layer(module) == "public":
            private = [n for n in names if n.startswith("_") and not n.startswith("__")]
            same = module.rsplit(".", 1)[0] == imported.rsplit(".", 1)[0]
            assert same or not private, (module, imported, private)


def test_no_module_reaches_into_another_ones_private_names():
    """``other._private`` where `other` is an imported module."""
    for name, (_, tree) in modules().items():
        known = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bne"):
                for alias in node.names:
                    if f"{node.module}.{alias.name}" in modules():
                        known.add(alias.asname or alias.name)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                reached = node.value.id in known and node.attr.startswith("_")
                assert not reached, f"{name}: {node.value.id}.{node.attr}"


def definitions(tree):
    return [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]


def core():
    return {n: m for n, m in modules().items() if layer(n) != "public"}


def test_no_name_means_two_things_in_the_core():
    names = Counter(
        node.name
        for _, tree in core().values()
        for node in definitions(tree)
        if not node.name.startswith("_") or isinstance(node, ast.ClassDef)
    )
    assert not [name for name, times in names.items() if times > 1]


def test_functions_fit_a_screen_and_take_few_parameters():
    """The estimator's constructor and keyword-only public calls aside."""
    wrong = []
    for name, (_, tree) in core().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef):
                continue
            lines = (node.end_lineno or 0) - node.lineno + 1
            positional = len(node.args.posonlyargs) + len(node.args.args)
            positional -= bool(node.args.args) and node.args.args[0].arg in ("self", "cls")
            keyword = 0 if not node.name.startswith("_") else len(node.args.kwonlyargs)
            if node.name == "__init__" and name == "bne._regressor.estimator":
                continue
            if lines > MOST_STATEMENT_LINES or positional + keyword > MOST_PARAMETERS:
                wrong.append(f"{name}.{node.name}: {lines} lines, {positional + keyword}")
    assert not wrong


def test_files_have_one_subject():
    """Longer ones say why in their first lines."""
    long = []
    for name, (path, tree) in modules().items():
        lines = len(path.read_text().splitlines())
        reason = "This file is long because" in (ast.get_docstring(tree) or "")
        if lines > MOST_LINES and not reason:
            long.append(f"{name}: {lines}")
    assert not long


def pages():
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("page", pages(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_module_that_the_docs_name_exists(page):
    text = page.read_text()
    for name in re.findall(r"[\w./*-]+\.py\b", text):
        if "*" in name:
            continue
        places = [base / name for base in (ROOT, ROOT / "src", PACKAGE, page.parent)]
        assert any(p.exists() for p in places), f"{page.name} names {name}"
    for name in re.findall(r"\bbne\._[\w.]*\w", text):
        known = [n for n in modules() if name == n or name.startswith(f"{n}.")]
        assert known, f"{page.name} names {name}"


def equations():
    table = (ROOT / "docs" / "notation.md").read_text().split("## Equations")[1]
    rows = [line.split("|")[2:4] for line in table.splitlines() if "`" in line]
    names = [(re.findall("`(.+?)`", functions), path.strip(" `")) for functions, path in rows]
    return [(name, path) for functions, path in names for name in functions]


@pytest.mark.parametrize(("name", "path"), equations())
def test_every_function_of_an_equation_is_where_the_notation_says(name, path):
    file = PACKAGE / path if (PACKAGE / path).exists() else ROOT / path
    defined = {n.name for n in ast.parse(file.read_text()).body if hasattr(n, "name")}
    assert name in defined


def test_the_page_of_the_command_line_has_the_declared_columns():
    from bne._answers.columns import as_markdown

    assert as_markdown() in (ROOT / "docs" / "shell.md").read_text()


LOADED = """
import sys

class Refused:
    def find_spec(self, name, *_):
        if name.split(".")[0] in ("blackjax", "optax"):
            raise ImportError(f"{name} is not for who predicts")

sys.meta_path.insert(0, Refused())
import bne
import pandas as pd
model = bne.load(sys.argv[1])
X = pd.DataFrame({name: [0.5, 1.5] for name in model.feature_names_in_})
model.predict(X, return_std=True)
model.predict_quantiles(X)
model.decompose(X)
model.detect_bias(X)
loaded = [n for n in sys.modules if n.startswith(("bne._sampler", "bne._fitting", "blackjax"))]
assert not loaded, loaded
"""


def test_a_saved_model_predicts_where_the_sampler_cannot_be_imported(tmp_path):
    import gzip

    packed = ROOT / "tests" / "files" / "format2_whole.bne.gz"
    path = tmp_path / "model.bne"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    subprocess.run([sys.executable, "-W", "ignore", "-c", LOADED, str(path)], check=True)
