"""Write the API reference of the public packages from their docstrings: python docs/api.py DIRECTORY.

A warning of pdoc, such as a public name that does not resolve, is an error.
"""

import sys
import warnings
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

from milco_pyserini.cli.parser import run_command
from milco_pyserini.io.files import atomic_directory
from milco_pyserini.options import option

PACKAGE = "milco_pyserini"
# Public modules of packages that import nothing, because these load torch.
MODULES = (
    *("encode.corpus", "encode.plan", "encode.query_table", "explain.explainer", "explain.explanation"),
    *("serve.server", "errors", "options"),
)


@dataclass(frozen=True)
class ReferenceOptions:
    """Write the API reference of the public packages from their docstrings.

    Example:
      python docs/api.py build/api
    """

    output: Path = option(
        positional=True, metavar="DIRECTORY", help="directory of the pages; an earlier reference there is replaced"
    )


def public_modules() -> list[str]:
    """Return the modules that have a reference page: the packages with public names, and MODULES."""
    root = Path(import_module(PACKAGE).__file__ or "").parent
    packages = [path.parent.name for path in sorted(root.glob("*/__init__.py"))]
    names = [name for name in packages if hasattr(import_module(f"{PACKAGE}.{name}"), "__all__")]
    return [PACKAGE, *(f"{PACKAGE}.{name}" for name in (*names, *MODULES))]


def load_public_names(name: str) -> None:
    """Load the lazy names of a module, because pdoc reads the module's own attributes."""
    module = import_module(name)
    for public in getattr(module, "__all__", ()):
        setattr(module, public, getattr(module, public))


def is_reference(directory: Path) -> bool:
    """Return whether a directory was written by write(); no other directory is ever replaced."""
    return (directory / f"{PACKAGE}.html").is_file()


def write(options: ReferenceOptions) -> None:
    """Write the reference, replacing an earlier one."""
    with atomic_directory(options.output, True, is_reference) as directory:
        import pdoc

        modules = public_modules()
        for name in modules:
            load_public_names(name)
        pdoc.render.configure(docformat="markdown", footer_text=PACKAGE)
        # Docstrings contain no HTML: <s> is a token.
        markdown = pdoc.render_helpers.markdown2
        markdown.markdown = partial(markdown.markdown, safe_mode="escape")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pdoc.pdoc(*modules, output_directory=directory)


if __name__ == "__main__":
    sys.exit(run_command("docs/api.py", ReferenceOptions, write, None, "nothing was written"))
