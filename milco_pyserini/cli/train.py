"""milco train sap|sct|mine|score: train MILCO checkpoints, and prepare their training data."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

from milco_pyserini.cli import program
from milco_pyserini.cli.parser import Subcommand, dispatch
from milco_pyserini.cli.rendering import flags_of
from milco_pyserini.errors import MilcoError
from milco_pyserini.train.config import SapConfig, SctConfig, with_config_defaults
from milco_pyserini.train.rewriting import MineOptions, ScoreOptions

PROG = "milco train"
SUMMARY = """Train MILCO: align texts with English terms (sap), then contrast queries with passages (sct). mine and
score add hard negatives and a teacher's scores to the training data of sct."""

_RESUME_RUN = "the same command, without --overwrite, resumes from the latest checkpoint"
_RESUME_PARTS = "the same command, without --overwrite, resumes after the last complete part"


def train(config: SapConfig | SctConfig) -> None:
    """Run milco train sap or sct."""
    validate_installation()
    import torch

    from milco_pyserini.train.run import run_stage

    if torch.cuda.is_available() and config.dtype != "float32":
        # Scores are products outside of autocast; the factors have no more than bfloat16's precision.
        torch.set_float32_matmul_precision("high")
    run_stage(config)


def run_mine(options: MineOptions) -> None:
    """Run milco train mine."""
    from milco_pyserini.train.mining import mine_training_set

    mine_training_set(options)


def run_score(options: ScoreOptions) -> None:
    """Run milco train score."""
    from milco_pyserini.train.scoring import score_training_set

    score_training_set(options)


SUBCOMMANDS = {
    "sap": Subcommand(SapConfig, train, _RESUME_RUN),
    "sct": Subcommand(SctConfig, train, _RESUME_RUN),
    "mine": Subcommand(MineOptions, run_mine, _RESUME_PARTS),
    "score": Subcommand(ScoreOptions, run_score, _RESUME_PARTS),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    table = dict(SUBCOMMANDS)
    if arguments[:1] in (["sap"], ["sct"]):
        stage = arguments[0]
        config_class: type = table[stage].options
        try:
            config_class = with_config_defaults(config_class, arguments[1:])
        except MilcoError as error:
            prog = f"{PROG} {stage}"
            return program.fail(prog, str(error), flags_of(prog, config_class))
        table[stage] = replace(table[stage], options=config_class)
    return dispatch(PROG, table, arguments, SUMMARY)


def validate_installation(*further: str) -> None:
    """Raise MilcoError if a package that training needs, or a further one, is not installed."""
    missing = [name for name in ("accelerate", "tensorboard", *further) if find_spec(name) is None]
    if missing:
        raise MilcoError(f"training needs {', '.join(missing)}", "Run pip install '.[train]'.")
