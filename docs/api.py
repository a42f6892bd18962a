"""python docs/api.py DIRECTORY: the reference of the public packages, of their docstrings, by pdoc.

A warning of pdoc's is an error: a public name that does not resolve, an annotation that cannot be read.
"""

import sys
import warnings
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

from milco_pyserini.cli.parser import first_words, run_command
from milco_pyserini.io.files import atomic_directory
from milco_pyserini.options import option

PACKAGE = "milco_pyserini"
# The rooms that have names for others, and the modules that docs/extending.md builds upon.
MODULES = (
    "corpora",
    "corpora.benchmark",
    "corpora.catalog",
    "corpora.readers",
    "corpora.remote",
    "encode",
    "errors",
    "eval",
    "explain",
    "index",
    "index.protocol",
    "index.registry",
    "index.sparse_engine",
    "integrations.pyserini",
    "model",
    "io.runs",
    "options",
    "search",
    "sparse",
    "sparse.pruning",
    "train.alarms",
    "train.recipe",
)


@dataclass(frozen=True)
class Options:
    """The reference of the public packages, of their docstrings: docs/api.py DIRECTORY."""

    output: Path = option(help="directory of the pages, in place of an earlier run's")


def resolve(name: str) -> str:
    """Load what a package loads when it is first used, for pdoc reads the module's own names; returns the name."""
    module = import_module(name)
    for public in getattr(module, "__all__", ()):
        setattr(module, public, getattr(module, public))
    return name


def is_reference(directory: Path) -> bool:
    """Whether a directory is what write() made: others are never replaced."""
    return (directory / f"{PACKAGE}.html").is_file()


def write(options: Options) -> None:
    """Write the reference, in place of what an earlier run left there."""
    with atomic_directory(options.output, True, is_reference) as place:
        import pdoc

        modules = [resolve(name) for name in (PACKAGE, *(f"{PACKAGE}.{each}" for each in MODULES))]
        pdoc.render.configure(docformat="markdown", footer_text=PACKAGE)
        # Docstrings hold no HTML: <s> is a token there, not text that is struck out.
        markdown = pdoc.render_helpers.markdown2
        markdown.markdown = partial(markdown.markdown, safe_mode="escape")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pdoc.pdoc(*modules, output_directory=place)


if __name__ == "__main__":
    words = first_words("--output", sys.argv[1:])
    sys.exit(run_command("docs/api.py", Options, write, words, "nothing was written"))
