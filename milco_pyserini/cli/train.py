"""milco train sap|sct|mine|score."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from milco_pyserini.cli import program
from milco_pyserini.cli.parser import run_command
from milco_pyserini.errors import MilcoError, unknown_name

PROG = "milco train"
STAGES = {
    "sap": "sparse alignment pretraining: sentences towards the English terms of their translations",
    "sct": "sparse contrastive training: queries towards their passages, away from others",
    "mine": "hard negatives for a training set, by our own search",
    "score": "a cross-encoder's scores for a training set",
}


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(_page())
        return 0
    stage, rest = arguments[0], arguments[1:]
    prog = f"{PROG} {stage}"
    try:
        if stage not in STAGES:
            raise unknown_name("stage", stage, STAGES)
        options_class = _with_recipe(stage, rest)
    except MilcoError as error:
        return program.fail(PROG, str(error))
    return run_command(prog, options_class, _run, rest, interrupted="the same command goes on from the last whole part")


def stage_options(stage: str) -> type:
    """The options of a stage, without a recipe."""
    if stage == "mine":
        from milco_pyserini.train.mining import MineOptions

        return MineOptions
    if stage == "score":
        from milco_pyserini.train.scoring import ScoreOptions

        return ScoreOptions
    from milco_pyserini.train.recipe import SapOptions, SctOptions

    return SapOptions if stage == "sap" else SctOptions


def _with_recipe(stage: str, arguments: Sequence[str]) -> type:
    """The options of a stage, with the defaults of the recipe that the arguments name."""
    options_class = stage_options(stage)
    if stage not in ("sap", "sct"):
        return options_class
    from milco_pyserini.train.recipe import with_recipe

    return with_recipe(options_class, arguments)


def _run(options: Any) -> None:
    """Do what the options say; nothing heavy is imported before they have been read."""
    from milco_pyserini.train import mining, recipe, scoring

    if isinstance(options, mining.MineOptions):
        mining.mine_command(options)
    elif isinstance(options, scoring.ScoreOptions):
        scoring.score_command(options)
    else:
        _check_installed()
        from milco_pyserini.train.run import sap_command, sct_command

        (sap_command if isinstance(options, recipe.SapOptions) else sct_command)(options)


def _check_installed() -> None:
    """Raise MilcoError if the extra "train" is not installed."""
    lacking = [name for name in ("accelerate", "tensorboard") if find_spec(name) is None]
    if lacking:
        raise MilcoError(f"training needs {' and '.join(lacking)}: pip install 'milco-pyserini[train]'")


def _page() -> str:
    lines = [f"  {stage:<8}{what}" for stage, what in STAGES.items()]
    return f"usage: {PROG} STAGE [options]\n\n" + "\n".join(lines) + f"\n\n{PROG} STAGE --help lists the options.\n"
