"""milco train sap|sct|mine|score: train MILCO checkpoints, and prepare their training data."""

import itertools
from collections.abc import Sequence
from functools import partial

from milco_pyserini.cli.parser import Subcommand, dispatch
from milco_pyserini.errors import require_package
from milco_pyserini.options import replace_options
from milco_pyserini.train.config import SapConfig, SctConfig
from milco_pyserini.train.presets import find_preset
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

    if torch.cuda.is_available() and config.loop.dtype != "float32":
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


def preset_of(config_class: type[SapConfig | SctConfig], argv: Sequence[str]) -> SapConfig | SctConfig | None:
    """Return the preset that the arguments name, if they do: a model replaces its encoder and its English head."""
    names = [after for before, after in itertools.pairwise(argv) if before == "--preset"]
    names += [argument.partition("=")[2] for argument in argv if argument.startswith("--preset=")]
    # The parser refuses a second one.
    if not names or not names[0]:
        return None
    preset = find_preset(config_class, names[0])
    given = {argument.partition("=")[0] for argument in argv}
    if "--model" in given:
        return replace_options(preset, encoder=None, english=None)
    return replace_options(preset, model=None) if given & {"--encoder", "--english"} else preset


SUBCOMMANDS = {
    "sap": Subcommand(SapConfig, train, _RESUME_RUN, partial(preset_of, SapConfig)),
    "sct": Subcommand(SctConfig, train, _RESUME_RUN, partial(preset_of, SctConfig)),
    "mine": Subcommand(MineOptions, run_mine, _RESUME_PARTS),
    "score": Subcommand(ScoreOptions, run_score, _RESUME_PARTS),
}
main = partial(dispatch, PROG, SUBCOMMANDS, SUMMARY)


def validate_installation(*further: str) -> None:
    """Raise MilcoError if a package that training needs, or a further one, is not installed."""
    for package in ("accelerate", "tensorboard", *further):
        require_package(package, "train", "training")
