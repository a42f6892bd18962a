"""python -m recipes.adapt DOCS --output DIR: a model for one's own documents, and whether it is better for them."""

import sys
from collections.abc import Sequence

from milco_pyserini.cli.parser import run_command

from . import AdaptOptions


def command(options: AdaptOptions) -> None:
    """Run the recipe."""
    from milco_pyserini.train.cli import validate_installation

    validate_installation()
    from .run import adapt

    adapt(options)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    return run_command("recipes.adapt", AdaptOptions, command, argv, "the same command resumes")


if __name__ == "__main__":
    sys.exit(main())
