"""docs/stable.md lists the promised names: those of every __all__, at most 150, with all that pages import."""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import milco_pyserini
from milco_pyserini.errors import MilcoError

ROOT = Path(__file__).resolve().parents[1]
STABLE = ROOT / "docs" / "stable.md"
MOST = 150
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs").glob("*.ipynb"))]
_IMPORT = re.compile(r"^\W*from (milco_pyserini[\w.]*) import (?:\(([^)]*)\)|([\w, ]+))", re.MULTILINE)


def lists_of_names() -> dict[str, list[str]]:
    """Return the __all__ of each module that has one, without importing it."""
    found = {"milco_pyserini": milco_pyserini.__all__}
    for path in sorted((ROOT / "milco_pyserini").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__" and module not in found:
                found[module] = ast.literal_eval(node.value)
    return found


PROMISED = lists_of_names()


def imported_names(text: str) -> list[tuple[str, str]]:
    """Return (module, name) of the imports of this package in the code of a page."""
    return [
        (module, name.split(" as ")[0].strip())
        for module, several, one in _IMPORT.findall(text)
        for name in (several or one).split(",")
        if name.strip()
    ]


def test_the_page_lists_the_promised_names() -> None:
    """A row for each module that has an __all__, with the names in it; 150 in total."""
    rows = re.findall(r"^\| `(milco_pyserini[\w.]*)` \| (.+) \|$", STABLE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {module: re.findall(r"`(\w+)`", names) for module, names in rows} == PROMISED
    assert sum(map(len, PROMISED.values())) <= MOST


@pytest.mark.parametrize("module", PROMISED)
def test_promised_names_can_be_imported_and_have_a_docstring(module: str) -> None:
    """Classes and functions; the sentence that a dataclass generates is not one."""
    try:
        names = {name: getattr(import_module(module), name) for name in PROMISED[module]}
    except MilcoError as error:
        pytest.skip(str(error))
    for name, item in names.items():
        if callable(item):
            assert (inspect.getdoc(item) or f"{name}(").partition("(")[0] != name, f"{module}.{name} has no docstring"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documented_imports_are_promised(page: Path) -> None:
    """A page imports promised names only, or a module that has some."""
    for module, name in imported_names(page.read_text(encoding="utf-8")):
        assert name in PROMISED.get(module, []) or f"{module}.{name}" in PROMISED, f"{module}.{name} is not promised"


def test_imports_of_all_forms_are_found() -> None:
    """Indented, in a notebook's string, several, in parentheses, renamed."""
    text = '    "from milco_pyserini import A, B\\n",\nfrom milco_pyserini.c import (\n    D,\n    E as F,\n)\n'
    assert imported_names(text) == [
        *(("milco_pyserini", name) for name in "AB"),
        *(("milco_pyserini.c", name) for name in "DE"),
    ]
