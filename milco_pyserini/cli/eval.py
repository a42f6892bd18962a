"""milco eval --run runs/ar.txt --qrels miracl-ar-dev"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from milco_pyserini.cli.parser import Subcommand, dispatch
from milco_pyserini.console import counted, log
from milco_pyserini.errors import Message, MilcoError, Parameter, ParameterError, validate_name, validate_unique
from milco_pyserini.eval.evaluation import HELD_OUT
from milco_pyserini.eval.measures import EXAMPLES
from milco_pyserini.eval.report import FORMATS
from milco_pyserini.eval.significance import CORRECTIONS, NO_TEST, TESTS
from milco_pyserini.io.files import atomic_directory, atomic_file, validate_output_directory, validate_output_file
from milco_pyserini.options import option

PROG = "milco eval"
_FAIRNESS = "language fairness"
_KNOWN_ITEMS = "topics from documents"


@dataclass(frozen=True)
class EvalOptions:
    """Evaluate runs as `trec_eval -c` does: judged queries without results count 0.

    All runs against the same qrels, one row each:
      --run runs/bm25.txt runs/milco.txt --qrels miracl-ar-dev
    As many qrels as runs, paired in order, and the mean over them:
      --run runs/ar.txt runs/bn.txt --qrels miracl-ar-dev miracl-bn-dev
    Several systems on several datasets, all runs of the first system first:
      --run bm25/ar.txt bm25/bn.txt milco/ar.txt milco/bn.txt --qrels miracl-ar-dev miracl-bn-dev
    Runs with one name are seeds of a system, which has a row of their means, with a standard deviation:
      --run runs/seed1.txt runs/seed2.txt runs/bm25.txt --qrels miracl-ar-dev --names milco milco bm25

    The other systems are tested against the baseline, paired by query; * marks p < 0.05. The p-values of one measure
    are corrected together. `milco eval measures` lists the measures with their sources.

    --fairness measures language fairness of runs over multilingual collections:
      --run runs/sample.txt --qrels sample --fairness

    --make writes topics and qrels for documents without judgments, to compare models on. With their vectors,
    translations are relevant together:
      --make docs.jsonl --vectors vectors/docs --output made
    """

    run: tuple[Path, ...] = option((), metavar="FILE", help="TREC or MS MARCO runs, plain or .gz")
    qrels: tuple[str, ...] = option((), metavar="NAME|FILE", help="qrels: one for all runs, or one for each")
    measures: tuple[str, ...] = option(
        ("nDCG@10", "R@100"),
        names=("-m",),
        metavar="MEASURE",
        help=f"any of {' '.join(EXAMPLES.values())}, with other cutoffs, with parameters such as P(rel=2)@10, or "
        "trec_eval's names such as ndcg_cut.10",
    )
    names: tuple[str, ...] = option((), metavar="NAME", help="of the systems (default: of files or directories)")
    per_query: bool = option(False, help="a row for each query too")
    effects: bool = option(
        False,
        excludes=("per_query",),
        requires=Parameter("test", tuple(TESTS)),
        help="means and gains with 95 % intervals, effect sizes and p-values",
    )
    efficiency: bool = option(False, help="add mean terms and FLOPs, of the index and topics in a run's record")
    baseline: str | None = option(None, metavar="NAME", help="system to test against (default: the first)")
    test: str = option("t", choices=(*TESTS, NO_TEST), metavar="TEST", help=f"{', '.join(TESTS)} or {NO_TEST}")
    correction: str = option("holm", choices=tuple(CORRECTIONS), help="correction of p-values for multiple comparisons")
    format: str = option("text", choices=(*FORMATS, "json"), help="format of the table")
    output: Path | None = option(None, metavar="PATH", help="file for the table (default: stdout); directory of --make")
    overwrite: bool = option(False, help="replace an existing --output")
    fairness: bool = option(
        False,
        group=_FAIRNESS,
        help="add PEER@100 (1 if documents of all languages are ranked alike, 0 if not) and OwnLanguage@10 (share of "
        "the ten best hits in the language of the query)",
    )
    corpus: tuple[str, ...] = option(
        (),
        group=_FAIRNESS,
        metavar="NAME|PATH",
        parameters=("corpora",),
        requires="fairness",
        help="corpora of the documents, each of one language (neuclir-fa neuclir-ru neuclir-zh), or with a field lang "
        "(default: ids begin with the language, as ar-07)",
    )
    make: str | None = option(
        None,
        group=_KNOWN_ITEMS,
        metavar="NAME|PATH",
        excludes=("run", "qrels"),
        help="make topics and qrels of a corpus: titles and sentences that are taken out of some of its documents",
    )
    held_out: float = option(
        HELD_OUT,
        group=_KNOWN_ITEMS,
        metavar="SHARE",
        above=0,
        maximum=0.5,
        requires="make",
        help="share of the documents whose titles and sentences are topics",
    )
    vectors: Path | None = option(
        None, group=_KNOWN_ITEMS, metavar="DIR", requires="make", help="vector store of the corpus: finds translations"
    )

    def conflicts(self) -> Iterator[MilcoError]:
        """Yield an error for each option that is missing."""
        for name in ("run", "qrels") if self.make is None else ("output",):
            if not getattr(self, name):
                yield ParameterError(name, None, "is required")


@dataclass(frozen=True)
class MeasuresOptions:
    """List the measures of milco eval -m, with their sources."""


def _list_measures(options: MeasuresOptions) -> None:
    from milco_pyserini.eval.measures import measures_table
    from milco_pyserini.eval.report import render

    sys.stdout.write(render(measures_table()))


def _make(options: EvalOptions, output: Path) -> None:
    from milco_pyserini.corpora import open_corpus
    from milco_pyserini.eval.known_items import CORPUS, QRELS, TOPICS, known_item_files, make_known_items
    from milco_pyserini.eval.parallel import read_parallel

    def is_made(path: Path) -> bool:
        return all((path / name).is_file() for name in (CORPUS, TOPICS, QRELS))

    if not (is_again := is_made(output) and not options.overwrite):
        validate_output_directory(output, options.overwrite, is_made)
    corpus = open_corpus(str(options.make))
    parallel = read_parallel(corpus, options.vectors) if options.vectors else None
    made = make_known_items(corpus, options.held_out, parallel)
    for line in made.describe():
        log(line)
    files = known_item_files(made)
    if is_again:
        if any((output / name).read_bytes() != content for name, content in files.items()):
            fix = Message("Choose another one, or pass {overwrite}.", overwrite=True)
            raise ParameterError("output", output, "has topics of other documents, vectors, or another share", fix)
        log(f"{output} is up to date")
        return
    with atomic_directory(output, options.overwrite, is_made) as directory:
        for name, content in files.items():
            (directory / name).write_bytes(content)
    log(f"Wrote {output}. Next: milco encode --encoder NAME --corpus {output / CORPUS}")


def _evaluate(options: EvalOptions) -> None:
    if options.make is not None and options.output is not None:
        _make(options, options.output)
        return
    from milco_pyserini.eval.measures import parse_measures

    measures = [str(measure) for measure in parse_measures(options.measures)]
    systems = _systems(options)
    datasets = _short_names(options.qrels, lambda name: _stem(name) if Path(name).exists() else name)
    _validate_files(options)

    from milco_pyserini.eval.report import render
    from milco_pyserini.eval.significance import compare_evaluations
    from milco_pyserini.eval.systems import evaluate_systems

    qrels = dict(zip(datasets, options.qrels, strict=True))
    costs = None
    if options.efficiency:
        # It loads what searches need.
        from milco_pyserini.search.costs import search_costs

        costs = search_costs
    results = evaluate_systems(systems, qrels, measures, options.fairness, options.corpus, costs)
    comparison = compare_evaluations(results, options.baseline, options.test, options.correction)
    if options.format == "json":
        text = comparison.to_json(options.per_query)
    else:
        table = comparison.effects() if options.effects else comparison.to_table(options.per_query)
        text = render(table, options.format)
    if options.output is None:
        sys.stdout.write(text)
        return
    with atomic_file(options.output, "w") as file:
        file.write(text)


def _systems(options: EvalOptions) -> dict[str, tuple[Path, ...]]:
    """Return the runs of each system by its name, one for each of the qrels and of its seeds."""
    runs, size = options.run, len(options.qrels)
    if len(runs) % size:
        raise MilcoError(
            f"{counted(len(runs), 'run')} cannot be paired with {size} qrels: give one --qrels for all runs, "
            "or all runs of one system, then all runs of the next"
        )
    groups = [runs[start : start + size] for start in range(0, len(runs), size)]
    if options.names and len(options.names) != len(groups):
        raise MilcoError(
            f"--names has {counted(len(options.names), 'name')}: it needs one for each of "
            f"{counted(len(groups), 'system')}"
        )
    firsts = [str(group[0]) for group in groups]
    shorten = _stem if size == 1 else lambda path: Path(path).absolute().parent.name
    names = options.names or _short_names(firsts, shorten)
    if options.baseline is not None:
        validate_name("baseline", options.baseline, names)
    systems: dict[str, tuple[Path, ...]] = {}
    for name, group in zip(names, groups, strict=True):
        systems[name] = systems.get(name, ()) + group
        validate_unique("run", systems[name][::size], "Name each by --names: runs of one name are its seeds.")
    return systems


def _stem(path: str) -> str:
    return Path(path.removesuffix(".gz")).stem


def _short_names(names: Sequence[str], shorten: Callable[[str], str]) -> tuple[str, ...]:
    """Return shortened names if they are unique, else the names."""
    short = tuple(map(shorten, names))
    return short if len(set(short)) == len(short) else tuple(names)


def _validate_files(options: EvalOptions) -> None:
    """Raise MilcoError for files that cannot be read or written, before qrels are downloaded and runs are read."""
    validate_unique("--qrels", options.qrels)
    for run in options.run:
        if not run.is_file():
            reason = "is a directory" if run.is_dir() else "is not a regular file" if run.exists() else "does not exist"
            raise MilcoError(f"--run {run} {reason}: it expects TREC or MS MARCO run files")
    if options.output is not None:
        validate_output_file(options.output, options.overwrite)


SUBCOMMANDS = {"measures": Subcommand(MeasuresOptions, _list_measures)}
main = partial(dispatch, PROG, SUBCOMMANDS, Subcommand(EvalOptions, _evaluate, "nothing was written"))
