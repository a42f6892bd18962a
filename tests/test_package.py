"""The public names of the package are loaded on first use."""

import ast
import inspect
import os
import shutil
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path
from typing import get_overloads, get_type_hints

import grimp
import pytest

import milco_pyserini
from milco_pyserini.index import hits

SLOW = (
    "transformers sklearn pandas scipy.stats datasets tensorboard torch._dynamo torch.distributed.tensor sympy".split()
)
PUBLIC = {*milco_pyserini.__all__} - {"__version__"}
CHECKPOINT = Path(__file__).parent / "data" / "golden" / "ckpt_distillation"
HEAVY = "torch transformers numpy scipy pyarrow numba jnius pyserini huggingface_hub matplotlib filelock".split()


def test_importing_loads_nothing_heavy() -> None:
    """Importing loads neither torch nor Java nor numpy."""
    modules = "milco_pyserini.io.files, milco_pyserini.encode, milco_pyserini.options"
    code = f"import sys, {modules}; print(sys.modules.keys() & {HEAVY})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_no_two_modules_import_each_other() -> None:
    """Not for type checking either, which import-linter's contracts of setup.cfg leave out."""
    graph = grimp.build_graph("milco_pyserini", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert [(one, two) for one in imports for two in imports[one] if one in imports[two]] == []


def test_completion_shows_public_names_only() -> None:
    """Not what the package imports for itself, nor modules that happen to be loaded."""
    assert {name for name in dir(milco_pyserini) if not name.startswith("__")} == PUBLIC


def test_commands_on_the_cpu_load_no_transformers(tmp_path: Path) -> None:
    """Encoding, searching and explaining with a MILCO checkpoint need torch, and none of what takes seconds to load."""
    (tmp_path / "corpus.tsv").write_text("d1\tBell patented the telephone in 1876.\n")
    code = f"""
import sys
from milco_pyserini.cli.main import main
ask = "--index index --query Telefon --device cpu"
for command in (
    "encode --corpus corpus.tsv --output vectors --encoder {CHECKPOINT} --device cpu",
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


def test_every_public_name_is_available() -> None:
    """Names in __all__ can be loaded; any other is an AttributeError."""
    for name in PUBLIC:
        assert getattr(milco_pyserini, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        milco_pyserini.nothing  # noqa: B018
    assert {*milco_pyserini.__all__, "__name__"} <= {*dir(milco_pyserini)}


def test_type_checkers_see_every_public_name() -> None:
    """Lazy names are also imported under TYPE_CHECKING, from the modules that define them."""
    imported = {
        alias.name: node.module
        for block in ast.parse(inspect.getsource(milco_pyserini)).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported.keys() == PUBLIC
    for name, module in imported.items():
        assert getattr(import_module(str(module)), name) is getattr(milco_pyserini, name)


@pytest.mark.parametrize("command", ["encode", "search"])
def test_modules_that_users_know_from_pyserini_are_commands(command: str) -> None:
    """python -m milco_pyserini.encode equals milco encode."""
    program = [sys.executable, "-m", f"milco_pyserini.{command}", "--help"]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"usage: milco {command} ")


def test_type_checkers_know_a_hit() -> None:
    """An element of Hits is a Hit, and a slice is Hits."""
    returned = [get_type_hints(form, vars(hits))["return"] for form in get_overloads(hits.Hits.__getitem__)]
    assert returned == [hits.Hit, hits.Hits]


def test_type_checkers_find_an_editable_installation(tmp_path: Path) -> None:
    """It is a path, not a hook of imports, which they do not run."""
    root = Path(__file__).parents[1]
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "milco_pyserini/entry_points.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(root / name, tmp_path / name)
    (tmp_path / "milco_pyserini" / "__init__.py").write_text('__version__ = "1.0"\n')
    code = "from setuptools.build_meta import build_editable; print(build_editable('.'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / done.stdout.splitlines()[-1]) as wheel:
        (path,) = (name for name in wheel.namelist() if ".dist-info/" not in name)
        assert wheel.read(path).decode().split() == [str(tmp_path)]


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


def test_a_class_name_occurs_once() -> None:
    """A name in a message or an import line means one class, private or not."""
    places: dict[str, list[str]] = {}
    for path in sorted(Path(milco_pyserini.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), []).append(path.name)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
