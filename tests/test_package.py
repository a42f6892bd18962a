"""The package's front door: importing it loads nothing, its names are there when they are used."""

import subprocess
import sys

import pytest

import milco_pyserini
import milco_pyserini.encode

HEAVY = (
    "torch",
    "transformers",
    "numpy",
    "scipy",
    "pyarrow",
    "numba",
    "jnius",
    "pyserini",
    "huggingface_hub",
    "matplotlib",
)


@pytest.mark.parametrize("module", ["milco_pyserini", "milco_pyserini.encode", "milco_pyserini.options"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    """Neither torch nor Java nor numpy is loaded before something is asked for."""
    code = f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("package", [milco_pyserini, milco_pyserini.encode])
def test_every_public_name_is_there(package: object) -> None:
    """__all__ holds what can be had, and a name that is not there is an AttributeError."""
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        package.nothing  # noqa: B018
