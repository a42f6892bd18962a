"""The public names of the package are loaded on first use."""

import ast
import inspect
import os
import subprocess
import sys
from importlib import import_module

import pytest

import milco_pyserini
import milco_pyserini.encode

HEAVY = "torch transformers numpy scipy pyarrow numba jnius pyserini huggingface_hub matplotlib".split()


def test_importing_loads_nothing_heavy() -> None:
    """Importing loads neither torch nor Java nor numpy."""
    code = f"import sys, milco_pyserini.encode, milco_pyserini.options; print(sys.modules.keys() & {HEAVY})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("package", [milco_pyserini, milco_pyserini.encode])
def test_every_public_name_is_available(package: object) -> None:
    """Names in __all__ can be loaded; any other is an AttributeError."""
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        package.nothing  # noqa: B018
    assert {*package.__all__, "__name__"} <= {*dir(package)}


def test_type_checkers_see_every_public_name() -> None:
    """Lazy names are also imported under TYPE_CHECKING, from the same modules."""
    for name in ("", ".encode", ".eval", ".explain", ".export", ".index", ".search"):
        package = import_module(f"milco_pyserini{name}")
        tree = ast.parse(inspect.getsource(package))
        imported = {
            (alias.name, node.module)
            for block in tree.body
            if isinstance(block, ast.If)
            for node in block.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        assert imported == set(package._LAZY.items())


def test_importing_the_package_sets_how_threads_wait() -> None:
    """The settings of the commands apply in Python, and a user's settings are kept."""
    code = "import milco_pyserini, os; print(os.environ['OMP_WAIT_POLICY'], os.environ['GOMP_SPINCOUNT'])"
    environment = {**os.environ, "GOMP_SPINCOUNT": "7"}
    environment.pop("OMP_WAIT_POLICY", None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "passive 7\n"
