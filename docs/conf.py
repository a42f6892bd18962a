"""The site of the documentation: make docs builds it with Sphinx from the Markdown pages and the docstrings.

The source directory is the repository, so that links between pages and to files resolve as they do on a code host.
"""

import inspect
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import inspect as sphinx_inspect

import milco_pyserini
from milco_pyserini.errors import MilcoError

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "milco_pyserini"
SECTIONS = {
    "Guide": (
        "README python encoding indexing hybrid keywords export cluster serving web memory deployment "
        "seismic checkpoints"
    ),
    "Other libraries": "pyserini sentence-transformers pyterrier frameworks onnx spark",
    "Research": "adapt training reproducing upstream",
    "Reference": "stable reference/milco_pyserini formats glossary",
    "Development": "extending decisions",
}
FURTHER = {
    "Research": (
        *("benchmarks/README", "experiments/paper/README", "recipes/configurations/README"),
        f"{PACKAGE}/resources/milco-mini/README",
    ),
    "Development": ("CONTRIBUTING", "CHANGELOG", "deploy/upstream/README"),
}

project = PACKAGE
version = release = milco_pyserini.__version__
author = "The milco_pyserini developers"
project_copyright = author

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
root_doc = "README"
include_patterns = [
    *("README.md", "docs/*.md", "docs/reference/*.rst"),
    *(f"{page}.md" for pages in FURTHER.values() for page in pages),
]
exclude_patterns = [".*", "build", "dist", "tests", "vectors", "indexes", "runs"]
suppress_warnings = ["misc.highlighting_failure"]

myst_heading_anchors = 4

# Backticks in docstrings are code, as in the Markdown pages.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
python_maximum_signature_line_length = 130

html_theme = "furo"
html_title = f"{PACKAGE} {release}"
html_copy_source = False
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_sphinx = False


def add_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    """Append the site's table of contents to the README, which is the first page."""
    if docname != root_doc:
        return
    for caption, pages in SECTIONS.items():
        names = [*(f"docs/{page}" for page in pages.split()), *FURTHER.get(caption, ())]
        source[0] += "\n".join(["\n```{toctree}", ":hidden:", f":caption: {caption}", "", *names, "```\n"])


def write_reference(app: Sphinx) -> None:
    """Write a page of the promised names of each module, and one that lists what the package itself exports."""
    pages = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        homed = [name for name, home in milco_pyserini._LAZY.items() if home == module]
        has_all = "\n__all__ = [" in path.read_text(encoding="utf-8")
        if module != PACKAGE and (homed or has_all) and is_installed(module):
            pages[module] = module_page(module, "" if has_all else ", ".join(homed))
    pages[PACKAGE] = contents_page(list(pages))
    directory = ROOT / "docs" / "reference"
    directory.mkdir(exist_ok=True)
    for path in directory.glob("*.rst"):
        if path.stem not in pages:
            path.unlink()
    for name, text in pages.items():
        path = directory / f"{name}.rst"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def is_installed(module: str) -> bool:
    """Return whether a module's requirements are installed; those of LangChain and others are not."""
    try:
        import_module(module)
    except MilcoError:
        return False
    return True


def module_page(module: str, names: str) -> str:
    """Return the page of a module: some names of it, or those of its __all__."""
    return f"{module}\n{'=' * len(module)}\n\n.. automodule:: {module}\n   :members: {names}".rstrip() + "\n"


def contents_page(modules: list[str]) -> str:
    """Return the first page of the reference: a table of the names in the root package, and links to all modules."""
    lines = ["API reference", "=============", "", f"Names of ``{PACKAGE}`` itself:", "", ".. list-table::", ""]
    for name, home in sorted(milco_pyserini._LAZY.items()):
        summary = (inspect.getdoc(getattr(milco_pyserini, name)) or "").partition("\n\n")[0].replace("\n", " ")
        lines += [f"   * - :py:obj:`{name} <{home}.{name}>`", f"     - {summary}"]
    return "\n".join(
        [*lines, "", "Modules:", "", ".. toctree::", "   :maxdepth: 1", "", *(f"   {name}" for name in modules), ""]
    )


def constructor_signature(
    app: Sphinx, what: str, name: str, item: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None] | None:
    """Return the parameters of __init__() for a class whose __new__() only validates them."""
    if what != "class" or not item.__module__.startswith(PACKAGE) or not {"__new__", "__init__"} <= vars(item).keys():
        return None
    parameters = sphinx_inspect.signature(item.__init__, bound_method=True)
    return sphinx_inspect.stringify_signature(
        parameters, unqualified_typehints=True, show_return_annotation=False
    ), returns


def copy_first_page(app: Sphinx, error: Exception | None) -> None:
    """Give hosts the index.html that they look for."""
    if error is None and app.builder.format == "html":
        shutil.copy(app.outdir / f"{root_doc}.html", app.outdir / "index.html")


def setup(app: Sphinx) -> None:
    """Connect the steps above."""
    app.connect("builder-inited", write_reference)
    app.connect("source-read", add_contents)
    app.connect("autodoc-process-signature", constructor_signature)
    app.connect("build-finished", copy_first_page)
