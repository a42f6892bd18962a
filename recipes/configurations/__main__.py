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
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.cli.parser import run_command
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option

from .catalogue import CONFIGURATIONS, DENSE, Configuration

if TYPE_CHECKING:
    from .data import TestCollection
    from .evaluation import Probe
    from .stages import StagePlan
    from .table import Outcome

_NUMBERS = tuple(configuration.number for configuration in CONFIGURATIONS)
_NEGATIVES = 15
_LABEL_WEIGHT = 5.0
# Options that do not change the content of a work directory.
_FREE = {"work", "probe", "configurations", "threads"}


@dataclass(frozen=True)
class ConfigurationsOptions:
    """Train the paper's configurations small, and print a table next to the paper's results.

    Configurations: 1 SAP + SCT-KD + LexEcho, 2 the same without LexEcho, 3 as 1 with InfoNCE, 4 SAP only, 5 SCT-KD
    only, 6 noMILCO (multilingual head), 7 dense with alignment, 8 dense without.
    """

    data: Path = option(metavar="DIR", help="directory with bitext/, retrieval/ and optionally lexicon/")
    work: Path = option(metavar="DIR", help="directory for the stages and the tables (text and JSON)")
    probe: Path = option(metavar="DIR", help="held-out sentence pairs (LANG-en.tsv): are terms grounded?")
    start: str = option("mini", metavar="CHECKPOINT", help="checkpoint whose encoder and English head all start from")
    configurations: tuple[int, ...] = option(_NUMBERS, minimum=1, maximum=len(_NUMBERS), help="which to train")
    sap_steps: int = option(1000, minimum=1, help="steps of alignment")
    sct_steps: int = option(250, minimum=1, help="steps of contrastive training")
    sap_batch: int = option(32, minimum=1, help="sentence pairs per step")
    sct_batch: int = option(16, minimum=1, help="queries per step, 4 passages each")
    train_queries: int = option(600, minimum=1, help="training queries of each set, at most")
    queries: int = option(200, minimum=1, help="test queries of each set, at most")
    passages: int = option(1000, minimum=1, help="passages of each test collection")
    threads: int = option(2, minimum=1, help="CPU threads")
    seed: int = option(1, minimum=0, help="random seed")

    def conflicts(self) -> Iterator[str]:
        """Yield which directories are missing."""
        for directory in (self.data / "bitext", self.data / "retrieval", self.probe):
            if not directory.is_dir():
                yield f"{directory} does not exist: see --help for --data and --probe"


def command(options: ConfigurationsOptions) -> None:
    """Run every stage that is not complete, then print the tables."""
    import torch

    from milco_pyserini.eval import render
    from milco_pyserini.io.files import atomic_file, write_json

    from .data import read_collections
    from .evaluation import read_probe
    from .table import as_json, collapse_table, retrieval_table

    torch.set_num_threads(options.threads)
    probe = read_probe(options.probe)
    plan = prepare_training(options)
    collections = read_collections(options.work / "retrieval")
    chosen = [configuration for configuration in CONFIGURATIONS if configuration.number in options.configurations]
    outcomes = [measure(options, plan, configuration, collections, probe) for configuration in chosen]
    text = f"{render(retrieval_table(outcomes))}\n{render(collapse_table(outcomes))}"
    with atomic_file(options.work / "table.txt", "w") as handle:
        handle.write(text)
    write_json(options.work / "table.json", as_json(outcomes))
    sys.stdout.write(text)


def prepare_training(options: ConfigurationsOptions) -> "StagePlan":
    """Write training data with negatives and scores, test collections, and the two starting checkpoints."""
    from milco_pyserini.io.files import read_json, write_json
    from milco_pyserini.train.config import LEXICAL
    from milco_pyserini.train.data.retrieval import open_retrieval
    from milco_pyserini.train.mining import mine_training_set
    from milco_pyserini.train.rewriting import MineOptions, ScoreOptions
    from milco_pyserini.train.scoring import score_training_set

    from .data import prepare
    from .stages import StagePlan
    from .start import write_multilingual_start, write_pivot_start

    work = options.work
    values = {name: str(value) for name, value in asdict(options).items() if name not in _FREE}
    manifest = work / "manifest.json"
    if manifest.is_file():
        before = read_json(manifest)
        changed = next((name for name in values if before.get(name) != values[name]), None)
        if changed:
            raise MilcoError(
                f"{work} was started with {changed} {before.get(changed)}, not {values[changed]}: choose another "
                "--work, or resume with the same options"
            )
    elif work.is_dir() and any(work.iterdir()):
        raise MilcoError(f"{work} was not created by this command: choose another --work")
    write_json(manifest, values)
    retrieval, mined, scored = work / "retrieval", work / "mined", work / "scored"
    prepare(options.data, retrieval, options.train_queries, options.queries, options.passages)
    start = options.start
    mine_training_set(MineOptions(data=(str(retrieval / "train"),), output=mined, encoder=start, negatives=_NEGATIVES))
    score_training_set(
        ScoreOptions(data=(str(mined),), output=scored, teacher=LEXICAL, encoder=start, label_weight=_LABEL_WEIGHT)
    )
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
    return StagePlan(work, options.data / "bitext", options.data / "lexicon", *starts, scored, *steps, options.seed)


def measure(
    options: ConfigurationsOptions,
    plan: "StagePlan",
    configuration: Configuration,
    collections: "Sequence[TestCollection]",
    probe: "Probe",
) -> "Outcome":
    """Train and measure a configuration; results of the same weights are read from WORK/figures."""
    from milco_pyserini.console import log
    from milco_pyserini.encode import MilcoEncoder
    from milco_pyserini.io.files import read_json, write_json

    from .evaluation import collapse_figures, retrieval_figures
    from .stages import train
    from .table import Outcome

    log(f"({configuration.number}) {configuration.name}")
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
    """Run the command line; return the exit code."""
    return run_command(
        "recipes.configurations", ConfigurationsOptions, command, argv, "the same command resumes at the next stage"
    )


if __name__ == "__main__":
    sys.exit(main())
