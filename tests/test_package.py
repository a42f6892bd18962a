"""The public names of the package are loaded on first use."""

import ast
import inspect
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import milco_pyserini
import milco_pyserini.encode

SLOW = (
    "transformers sklearn pandas scipy.stats datasets tensorboard torch._dynamo torch.distributed.tensor sympy".split()
)
HEAVY = "torch transformers numpy scipy pyarrow numba jnius pyserini huggingface_hub matplotlib".split()


def test_importing_loads_nothing_heavy() -> None:
    """Importing loads neither torch nor Java nor numpy."""
    code = f"import sys, milco_pyserini.encode, milco_pyserini.options; print(sys.modules.keys() & {HEAVY})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_completion_shows_public_names_only() -> None:
    """Not what the package imports for itself, nor modules that happen to be loaded."""
    for package in (milco_pyserini, milco_pyserini.encode):
        assert {name for name in dir(package) if not name.startswith("__")} == set(package.__all__) - {"__version__"}


def test_commands_on_the_cpu_load_no_transformers(tmp_path: Path) -> None:
    """Encoding, searching and explaining with a MILCO checkpoint need torch, and none of what takes seconds to load."""
    (tmp_path / "corpus.tsv").write_text("d1\tBell patented the telephone in 1876.\n")
    code = f"""
import sys
from milco_pyserini.cli.main import main
ask = "--index index --query Telefon --device cpu"
for command in (
    "encode --corpus corpus.tsv --output vectors --encoder mini --device cpu",
    "index --vectors vectors --output index --engine exact",
    f"search {{ask}}",
    f"explain {{ask}} --json",
):
    assert main(command.split()) == 0, command
loaded = sys.modules.keys() & {SLOW}
assert "torch" in sys.modules and not loaded, loaded
"""
    surroundings = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=surroundings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '"d1"' in done.stdout


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


def test_importing_the_library_sets_nothing() -> None:
    """No environment variable, and no handler but the one that keeps it silent; commands set how threads wait."""
    code = """
import logging, os, signal
def state():
    loggers = [logging.getLogger(), logging.getLogger("milco_pyserini")]
    handlers = [type(one).__name__ for logger in loggers for one in logger.handlers]
    return dict(os.environ), signal.getsignal(signal.SIGINT), handlers
before = state()
import milco_pyserini.search.searcher, milco_pyserini.encode.devices, milco_pyserini.index.registry
after = state()
assert before[:2] == after[:2] and after[2] == ["NullHandler"], after[1:]
import milco_pyserini.cli
print(os.environ["OMP_WAIT_POLICY"], os.environ["GOMP_SPINCOUNT"])
"""
    environment = {**os.environ, "GOMP_SPINCOUNT": "7"}
    environment.pop("OMP_WAIT_POLICY", None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "passive 7\n"), done.stderr


def test_settings_of_threads_that_come_too_late_are_known() -> None:
    """torch reads them once: when they are applied after it was imported, its threads may spin."""
    code = "import sys; from milco_pyserini import threads; print(threads.may_spin())"
    code += "; sys.modules['torch'] = None; threads.apply(); print(threads.may_spin())"
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    for given, expected in (({}, "True\nTrue\n"), ({"OMP_WAIT_POLICY": "active"}, "False\nFalse\n")):
        done = subprocess.run([sys.executable, "-c", code], env=environment | given, capture_output=True, text=True)
        assert done.stdout == expected
