"""python -m recipes.configurations --data DATA --start mini --work WORK --probe FLORES: the paper's configurations.

All eight start from one checkpoint (start.py), see the same data in the same order for the same number of steps, and
are compared on questions that none of them saw (data.py). Two things differ from the paper besides the size: SAP's
teacher is the lexical one, and the scores for distillation are BM25's plus the starting checkpoint's own, with a bonus
for the labelled passage, as there is no cross-encoder without a download. The starting checkpoint's pieces and their
frequencies come from data that holds the test passages, but no question; that is the same for every configuration.

Each stage leaves a directory in WORK and is passed over where it stands: an interrupted run goes on.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.cli.parser import run_command
from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.options import option

from .catalogue import CONFIGURATIONS, DENSE, NUMBERS, Configuration

if TYPE_CHECKING:
    from .data import Collection
    from .evaluation import Probe
    from .stages import Plan
    from .table import Outcome

_NEGATIVES = 15
_LABEL_WEIGHT = 5.0
# Options that change nothing of what a work directory holds.
_FREE = {"work", "probe", "configurations", "threads"}


@dataclass(frozen=True)
class Options:
    """Train the paper's configurations small, and print one table beside the paper's figures.

    Configurations: 1 SAP + SCT-KD + LexEcho, 2 the same without LexEcho, 3 as 1 with InfoNCE, 4 SAP alone, 5 SCT-KD
    alone, 6 noMILCO (multilingual head), 7 dense with alignment, 8 dense without.
    """

    data: Path = option(help="directory with bitext/, lexicon/ (may be absent) and retrieval/")
    work: Path = option(help="directory for what the stages leave; the tables are there too, as text and JSON")
    probe: Path = option(help="directory of sentence pairs (LANGUAGE-en.tsv) not trained on: are terms grounded?")
    start: str = option("mini", help="checkpoint whose encoder and English head all start from")
    configurations: tuple[int, ...] = option(NUMBERS, help="which to train")
    sap_steps: int = option(1000, help="steps of alignment")
    sct_steps: int = option(250, help="steps of contrast")
    sap_batch: int = option(32, help="sentence pairs a step")
    sct_batch: int = option(16, help="queries a step, 4 passages each")
    train_queries: int = option(600, help="training queries of each set, at most")
    queries: int = option(200, help="test questions of each set, at most")
    passages: int = option(1000, help="passages of each test collection")
    threads: int = option(2, help="processor threads")
    seed: int = option(1, help="of the new connector, the order of the data and every random number")


def command(options: Options) -> None:
    """Run every stage that is not finished, then print the tables."""
    chosen = _chosen(options)
    import torch

    from milco_pyserini.eval import render
    from milco_pyserini.io.files import atomic_file, write_json

    from .data import read_collections
    from .evaluation import read_probe
    from .table import as_json, collapse_table, retrieval_table

    torch.set_num_threads(options.threads)
    probe = read_probe(options.probe)
    plan = _prepare(options)
    collections = read_collections(options.work / "retrieval")
    outcomes = [_outcome(options, plan, configuration, collections, probe) for configuration in chosen]
    text = f"{render(retrieval_table(outcomes))}\n{render(collapse_table(outcomes))}"
    with atomic_file(options.work / "table.txt", "w") as handle:
        handle.write(text)
    write_json(options.work / "table.json", as_json(outcomes))
    sys.stdout.write(text)


def _chosen(options: Options) -> list[Configuration]:
    for number in options.configurations:
        if number not in NUMBERS:
            raise unknown_name("configuration", str(number), map(str, NUMBERS))
    for name in ("sap_steps", "sct_steps", "sap_batch", "sct_batch", "train_queries", "queries", "passages"):
        if getattr(options, name) < 1:
            raise MilcoError(f"--{name.replace('_', '-')} {getattr(options, name)}: must be at least 1")
    for directory in (options.data / "bitext", options.data / "retrieval", options.probe):
        if not directory.is_dir():
            raise MilcoError(f"{directory} is not there: see --help for what --data and --probe are")
    return [configuration for configuration in CONFIGURATIONS if configuration.number in options.configurations]


def _prepare(options: Options) -> "Plan":
    """Training data with negatives and scores, test collections, and the two checkpoints to start from."""
    from milco_pyserini.train.data.retrieval_stream import open_retrieval
    from milco_pyserini.train.mining import MineOptions, mine_command
    from milco_pyserini.train.scoring import ScoreOptions, score_command

    from .data import prepare
    from .stages import Plan
    from .start import write_multilingual_start, write_pivot_start

    work = options.work
    _take(options)
    retrieval, mined, scored = work / "retrieval", work / "mined", work / "scored"
    prepare(options.data, retrieval, options.train_queries, options.queries, options.passages)
    mine_command(MineOptions((str(retrieval / "train"),), mined, encoder=options.start, negatives=_NEGATIVES))
    score_command(ScoreOptions((str(mined),), scored, "lexical", encoder=options.start, label_weight=_LABEL_WEIGHT))
    starts = work / "start", work / "start-multilingual"
    write_pivot_start(options.start, options.seed, starts[0])
    texts = (
        text
        for source in open_retrieval([retrieval / "train"])
        for example in source.examples()
        for text in (example.query, *example.positives)
    )
    write_multilingual_start(options.start, options.seed, texts, starts[1])
    steps = options.sap_steps, options.sct_steps, options.sap_batch, options.sct_batch
    return Plan(work, options.data / "bitext", options.data / "lexicon", *starts, scored, *steps, options.seed)


def _take(options: Options) -> None:
    """Say in WORK what it is for. Raises MilcoError if it is for something else."""
    from milco_pyserini.io.files import read_json, write_json

    values = {name: str(value) for name, value in asdict(options).items() if name not in _FREE}
    manifest = options.work / "manifest.json"
    if manifest.is_file():
        before = read_json(manifest)
        changed = next((name for name in values if before.get(name) != values[name]), None)
        if changed:
            raise MilcoError(
                f"{options.work} was begun with {changed} {before.get(changed)}, not {values[changed]}: choose another "
                "--work, or go on with the same options"
            )
    elif options.work.is_dir() and any(options.work.iterdir()):
        raise MilcoError(f"{options.work} was not made by this command: choose another --work")
    write_json(manifest, values)


def _outcome(
    options: Options, plan: "Plan", configuration: Configuration, collections: "Sequence[Collection]", probe: "Probe"
) -> "Outcome":
    """Train and measure a configuration; figures of the same weights that stand in WORK/figures are taken."""
    from milco_pyserini.console import say
    from milco_pyserini.encode import MilcoEncoder
    from milco_pyserini.io.files import read_json, write_json

    from .evaluation import collapse_figures, retrieval_figures
    from .stages import train
    from .table import Outcome

    say(f"({configuration.number}) {configuration.name}")
    encoder = MilcoEncoder.from_pretrained(train(plan, configuration))
    path = options.work / "figures" / f"{configuration.number}.json"
    key = {"weight_hash": encoder.weight_hash, "probe": str(options.probe)}
    if not (path.is_file() and key.items() <= read_json(path).items()):
        retrieval = retrieval_figures(encoder, configuration, collections)
        collapse = None
        if configuration.output != DENSE:
            collapse = collapse_figures(encoder, configuration, probe)
        write_json(path, key | {"retrieval": retrieval, "collapse": collapse})
    figures = read_json(path)
    return Outcome(configuration, figures["retrieval"], figures["collapse"])


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    return run_command("recipes.configurations", Options, command, argv, "the same command goes on where it stopped")


if __name__ == "__main__":
    sys.exit(main())
