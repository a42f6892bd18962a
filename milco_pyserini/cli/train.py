"""milco train sap|sct|mine|score: train MILCO checkpoints, and prepare their training data."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from milco_pyserini.cli import program
from milco_pyserini.cli.parser import Subcommand, run_subcommand
from milco_pyserini.defaults import DEFAULT_ENCODER, MINI
from milco_pyserini.encode.devices import DTYPES
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import MAX_THREADS, option
from milco_pyserini.train.config import SapConfig, SctConfig, with_config_defaults

PROG = "milco train"
SUMMARY = """Train MILCO: align texts with English terms (sap), then contrast queries with passages (sct). mine and
score add hard negatives and a teacher's scores to the training data of sct."""

_RESUME_RUN = "the same command resumes from the latest checkpoint"
_RESUME_PARTS = "the same command resumes after the last complete part"


@dataclass(frozen=True)
class MineOptions:
    """Mine hard negatives by searching for the queries of a training set among its passages.

    Each source becomes a file of --output: {"query", "positives", "negatives"}, hardest negatives first. Positives of
    the same query and near-duplicates of them are skipped. Queries without a negative are left out.

      milco train mine --data pairs.ja.jsonl.gz --output mined
    """

    data: tuple[str, ...] = option(metavar="SOURCE", help="training data: JSONL files, directories, collection names")
    output: Path = option(metavar="DIR", help="directory of the files with negatives")
    languages: tuple[str, ...] = option((), metavar="LANG", help="languages to keep (default: all)")
    corpus: str | None = option(None, metavar="NAME|PATH", help="corpus with further passages to search")
    encoder: str = option(
        DEFAULT_ENCODER, metavar="CHECKPOINT", help="checkpoint that searches: hub name, directory, or mini (embedded)"
    )
    negatives: int = option(15, minimum=1, help="negatives per query, at most")
    depth: int = option(100, metavar="K", minimum=1, help="hits to choose negatives from")
    max_score: float | None = option(
        None,
        metavar="SHARE",
        above=0,
        maximum=1,
        help="share of the best positive's score above which hits are false negatives, such as 0.95",
    )
    engine: str = option("exact", help="search engine: exact or lucene")
    threads: int = option(1, minimum=1, maximum=MAX_THREADS, help="search threads")
    batch_size: int = option(128, minimum=1, help="texts per forward pass, at most")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", choices=DTYPES, help="matrix product precision")
    overwrite: bool = option(False, help="start over if --output has something else")


@dataclass(frozen=True)
class ScoreOptions:
    """Add a teacher's scores to a training set, for distillation.

    Each source becomes a file of --output: the same lines with "scores", one for each passage, positives first.

      milco train score --data mined --teacher BAAI/bge-reranker-v2-m3 --output scored
    """

    data: tuple[str, ...] = option(metavar="SOURCE", help="training data: JSONL files, directories, collection names")
    output: Path = option(metavar="DIR", help="directory of the files with scores")
    teacher: str = option(
        metavar="CHECKPOINT|lexical",
        help="cross-encoder (directory or hub name), or lexical: BM25 and an encoder's score, without a download",
    )
    languages: tuple[str, ...] = option((), metavar="LANG", help="languages to keep (default: all)")
    encoder: str = option(MINI, metavar="CHECKPOINT", help="encoder of the lexical teacher")
    bm25_weight: float = option(1.0, minimum=0, help="BM25 weight of the lexical teacher")
    encoder_weight: float = option(1.0, minimum=0, help="encoder weight of the lexical teacher")
    label_weight: float = option(0.0, minimum=0, help="bonus added to the scores of positives")
    max_length: int = option(512, minimum=8, help="tokens of query and passage together, for a cross-encoder")
    batch_size: int = option(64, minimum=1, help="texts or pairs per forward pass, at most")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", choices=DTYPES, help="matrix product precision")
    overwrite: bool = option(False, help="start over if --output has something else")


def run_sap(config: SapConfig) -> None:
    """Run milco train sap."""
    _validate_installation()
    from milco_pyserini.train.run import train_sap

    train_sap(config)


def run_sct(config: SctConfig) -> None:
    """Run milco train sct."""
    _validate_installation()
    from milco_pyserini.train.run import train_sct

    train_sct(config)


def run_mine(options: MineOptions) -> None:
    """Run milco train mine."""
    from milco_pyserini.train.mining import mine_training_set

    mine_training_set(**vars(options))


def run_score(options: ScoreOptions) -> None:
    """Run milco train score."""
    from milco_pyserini.train.scoring import score_training_set

    score_training_set(**vars(options))


SUBCOMMANDS = {
    "sap": Subcommand(SapConfig, run_sap, _RESUME_RUN),
    "sct": Subcommand(SctConfig, run_sct, _RESUME_RUN),
    "mine": Subcommand(MineOptions, run_mine, _RESUME_PARTS),
    "score": Subcommand(ScoreOptions, run_score, _RESUME_PARTS),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    table = dict(SUBCOMMANDS)
    if arguments[:1] in (["sap"], ["sct"]):
        stage = arguments[0]
        try:
            config_class: type = with_config_defaults(table[stage].options, arguments[1:])
        except MilcoError as error:
            return program.fail(f"{PROG} {stage}", str(error))
        table[stage] = replace(table[stage], options=config_class)
    return run_subcommand(PROG, SUMMARY, table, arguments)


def _validate_installation() -> None:
    missing = [name for name in ("accelerate", "tensorboard") if find_spec(name) is None]
    if missing:
        raise MilcoError(f"training needs {' and '.join(missing)}", "Run pip install 'milco-pyserini[train]'.")
