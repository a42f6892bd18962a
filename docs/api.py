"""python docs/api.py DIRECTORY: the reference of the public packages, of their docstrings, by pdoc.

A warning of pdoc's is an error: a public name that does not resolve, an annotation that cannot be read.
"""

import shutil
import sys
import warnings
from importlib import import_module
from pathlib import Path

import pdoc

PACKAGE = "milco_pyserini"
# The rooms that have names for others, and the modules that docs/extending.md builds upon.
MODULES = (
    "corpora",
    "corpora.origin",
    "corpora.remote",
    "encode",
    "errors",
    "eval",
    "explain",
    "index",
    "index.protocol",
    "index.registry",
    "index.settings",
    "jvm",
    "model",
    "options",
    "search.run_file",
    "sparse",
    "sparse.pruning",
    "train.alarms",
    "train.recipe",
)


def resolve(name: str) -> str:
    """Load what a package loads when it is first used, for pdoc reads the module's own names; returns the name."""
    module = import_module(name)
    for public in getattr(module, "__all__", ()):
        setattr(module, public, getattr(module, public))
    return name


def main(directory: Path) -> None:
    """Write the reference to directory, in place of what an earlier run left there."""
    modules = [resolve(name) for name in (PACKAGE, *(f"{PACKAGE}.{each}" for each in MODULES))]
    shutil.rmtree(directory, ignore_errors=True)
    pdoc.render.configure(docformat="markdown", footer_text=PACKAGE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pdoc.pdoc(*modules, output_directory=directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
