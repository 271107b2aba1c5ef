"""Which module imports what: light ones stay light, and imports point one way."""

import ast
import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import byteseam

PACKAGE = Path(byteseam.__file__).parent
MODULES = sorted(
    module.name for module in pkgutil.walk_packages([str(PACKAGE)], "byteseam.") if module.name != "byteseam.__main__"
)

LAYERS = (
    {"config_values", "console", "errors", "text", "threads", "types"},
    {"rl", "model"},
    {"strategies"},
    {"config"},
    {"config_file", "data", "language_model"},
    {"training", "evaluation", "generation", "inspect", "serve", "integrations"},
    {"trained"},
    {"laboratory"},
    {"comparison"},
    {"commands"},
    {"cli"},
    {"__main__"},
)
"""From the bottom; an import inside `byteseam` points to the same layer or one below it. A new module needs a place."""

INDEPENDENT = ("rl", "model")
"""Packages of one layer that do not know each other."""


def imported_by(python, module):
    script = f"import {module}, sys; print(*sorted(name.partition('.')[0] for name in sys.modules))"
    done = python("-c", script)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_byteseam_loads_nothing_heavy(python):
    assert not imported_by(python, "byteseam") & {"torch", "numpy", "pydantic", "rich", "jaxtyping"}


@pytest.mark.parametrize("module", ["byteseam.rl", "byteseam.model.pooling"])
def test_the_reusable_parts_import_torch_alone(python, module):
    assert not imported_by(python, module) & {"pydantic", "rich", "datasets", "pyarrow", "transformers", "safetensors"}


@pytest.mark.parametrize("name", MODULES)
def test_every_module_imports_and_its_examples_hold(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_public_names_load_on_first_use():
    for name in byteseam.__all__:
        assert getattr(byteseam, name) is not None
        assert name in dir(byteseam)
    assert byteseam.load_config is importlib.import_module("byteseam.config_file").load
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        byteseam.nonsense  # noqa: B018


def test_public_names_are_declared_alike():
    assert sorted(byteseam.__all__) == sorted({*byteseam._LAZY, "__version__"})
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    declared = {alias.asname or alias.name: (node.module, alias.name) for node in block.body for alias in node.names}
    assert declared == byteseam._LAZY


def imports(tree):
    """The names that a module imports, wherever in it, but for those that only type checkers see."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom():
                assert node.level == 0, f"line {node.lineno} imports relatively"
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            case _:
                yield from imports(node)


def test_imports_point_one_way():
    layer = {name: number for number, names in enumerate(LAYERS) for name in names}
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        importer = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if importer == "__init__":
            continue
        assert importer in layer, f"give {importer} a place in LAYERS"
        for name in imports(ast.parse(path.read_text())):
            root, imported = [*name.split("."), ""][:2]
            if root != "byteseam" or imported not in layer or imported == importer:
                continue
            apart = importer in INDEPENDENT and imported in INDEPENDENT
            if layer[imported] > layer[importer] or apart:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert wrong == []
