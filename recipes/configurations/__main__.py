"""python -m recipes.configurations --data DATA --start mini --work WORK --probe FLORES: the paper's configurations.

All eight start from one checkpoint (start.py), see the same data in the same order for the same number of steps, and
are compared on queries that none of them saw (data.py). Besides the size, two things differ from the paper: the
teacher of SAP is the lexical one, and the scores to distill are BM25's plus the starting checkpoint's, with a bonus for
the labeled passage, because there is no cross-encoder without a download. The starting checkpoint's vocabulary and
document frequencies come from data that contains the test passages, but no query; that is the same for every
configuration.

Each stage leaves a directory in WORK and is skipped if it exists, so an interrupted run resumes.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from milco_pyserini.cli.parser import run_command

from .catalogue import CONFIGURATIONS, DENSE, Configuration, ConfigurationsOptions

if TYPE_CHECKING:
    from .data import TestCollection
    from .evaluation import Probe
    from .table import Outcome

_NEGATIVES = 15
_LABEL_WEIGHT = 5.0
# Options that do not change the content of a work directory.
_FREE = ("probe", "configurations")


def command(options: ConfigurationsOptions) -> None:
    """Run every stage that is not complete, then print the tables."""
    from milco_pyserini.train.cli import validate_installation

    validate_installation()
    import torch

    from milco_pyserini.eval import render
    from milco_pyserini.io.files import atomic_file, write_json

    from .data import read_collections
    from .evaluation import read_probe
    from .table import as_json, collapse_table, retrieval_table

    torch.set_num_threads(options.threads)
    probe = read_probe(options.probe)
    prepare_training(options)
    collections = read_collections(options.work / "retrieval")
    chosen = [configuration for configuration in CONFIGURATIONS if configuration.number in options.configurations]
    outcomes = [measure(options, configuration, collections, probe) for configuration in chosen]
    text = f"{render(retrieval_table(outcomes))}\n{render(collapse_table(outcomes))}"
    with atomic_file(options.work / "table.txt", "w") as handle:
        handle.write(text)
    write_json(options.work / "table.json", as_json(outcomes))
    sys.stdout.write(text)


def prepare_training(options: ConfigurationsOptions) -> None:
    """Write training data with negatives and scores, test collections, and the two starting checkpoints."""
    from milco_pyserini.train.config import LEXICAL
    from milco_pyserini.train.data.retrieval import open_retrieval
    from milco_pyserini.train.mining import mine_training_set
    from milco_pyserini.train.rewriting import MineOptions, ScoreOptions
    from milco_pyserini.train.scoring import score_training_set

    from .data import prepare
    from .stages import MULTILINGUAL_START, SCORED, START
    from .start import write_multilingual_start, write_pivot_start

    work = options.work
    options.begin(_FREE)
    retrieval, mined, scored = work / "retrieval", work / "mined", work / SCORED
    prepare(options.data, retrieval, options.train_queries, options.queries, options.passages)
    start = options.start
    mine_training_set(MineOptions(data=(str(retrieval / "train"),), output=mined, encoder=start, negatives=_NEGATIVES))
    score_training_set(
        ScoreOptions(data=(str(mined),), output=scored, teacher=LEXICAL, encoder=start, label_weight=_LABEL_WEIGHT)
    )
    write_pivot_start(start, options.seed, work / START)
    texts = (
        text
        for source in open_retrieval([retrieval / "train"])
        for example in source.examples()
        for text in (example.query, *example.positives)
    )
    write_multilingual_start(start, options.seed, texts, work / MULTILINGUAL_START)


def measure(
    options: ConfigurationsOptions,
    configuration: Configuration,
    collections: "Sequence[TestCollection]",
    probe: "Probe",
) -> "Outcome":
    """Train and measure a configuration; results of the same weights are read from WORK/figures."""
    from milco_pyserini.console import log
    from milco_pyserini.encode.encoder import MilcoEncoder
    from milco_pyserini.io.files import read_json, write_json

    from .evaluation import collapse_figures, retrieval_figures
    from .stages import train
    from .table import Outcome

    log(f"({configuration.number}) {configuration.name}")
    encoder = MilcoEncoder.from_pretrained(train(options, configuration))
    path = options.work / "figures" / f"{configuration.number}.json"
    key = {"weight_hash": encoder.hashes["weight_hash"], "probe": str(options.probe)}
    if not (path.is_file() and key.items() <= read_json(path).items()):
        retrieval = retrieval_figures(encoder, configuration, collections)
        collapse = None
        if configuration.output != DENSE:
            collapse = collapse_figures(encoder, configuration, probe)
        write_json(path, key | {"retrieval": retrieval, "collapse": collapse})
    figures = read_json(path)
    return Outcome(configuration, figures["retrieval"], figures["collapse"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    return run_command(
        "recipes.configurations", ConfigurationsOptions, command, argv, "the same command resumes at the next stage"
    )


if __name__ == "__main__":
    sys.exit(main())
