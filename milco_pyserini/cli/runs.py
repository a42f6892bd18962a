"""milco search fuse and rerank: runs made of runs."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milco_pyserini import __version__
from milco_pyserini.console import Progress, counted, log
from milco_pyserini.defaults import RUNS, directory_name
from milco_pyserini.errors import MilcoError, Parameter, parameter
from milco_pyserini.options import DeviceOptions, one_of, option, option_fields, option_values
from milco_pyserini.request import HYBRID_METHODS, Balance

if TYPE_CHECKING:
    from milco_pyserini.corpora import Document
    from milco_pyserini.io.records import RunRecord

# A record has other fields for these options, or the run itself shows them.
_ELSEWHERE = {"query", "json", "topics", "index", "corpus", "runs", "run", "output", "overwrite", "format", "tag"}
_PACKAGES = ("numpy", "torch", "transformers", "pyserini")


@dataclass(frozen=True)
class FuseOptions:
    """Fuse runs as Pyserini does, or by normalized scores.

    rrf sums 1 / (--rrf-k + rank); rsf takes the mean of min-max normalized
    scores; interpolation weighs the scores of two runs by --alpha and 1 - alpha; average takes
    the mean score. A document that a run does not have gets nothing from it.

      milco search fuse --runs runs/bm25.txt runs/milco.txt
    """

    runs: tuple[Path, ...] = option(metavar="FILE", help="TREC or MS MARCO runs; their scores order the documents")
    output: Path | None = option(None, metavar="FILE", help="the fused run (default: runs/A+B.METHOD.txt)")
    method: str = option("rrf", choices=("rrf", "rsf", "interpolation", "average"), help="fusion method")
    weights: tuple[float, ...] = option(
        (),
        above=0,
        metavar="X",
        requires=Parameter("method", HYBRID_METHODS),
        help="rrf, rsf: a weight for each run (default: equal)",
    )
    rrf_k: int | None = option(
        None,
        minimum=1,
        requires=Parameter("method", ("rrf",)),
        help="rrf: the larger, the less the first ranks dominate (default: 60)",
    )
    alpha: float | None = option(
        None,
        minimum=0,
        maximum=1,
        requires=Parameter("method", ("interpolation",)),
        help="interpolation: weight of the first run (default: 0.5)",
    )
    normalize: bool = option(
        False,
        requires=Parameter("method", ("interpolation", "average")),
        help="interpolation, average: min-max normalize the scores of each run and topic first",
    )
    depth: int = option(1000, minimum=1, metavar="K", help="documents of each run and topic that count")
    k: int = option(1000, minimum=1, names=("--hits",), help="documents per topic in the fused run")
    tag: str | None = option(None, help="last column of the run (default: milco-METHOD-OPTIONS)")
    overwrite: bool = option(False, help="replace a run at --output, once the new one is complete")


@dataclass(frozen=True)
class RerankOptions(DeviceOptions):
    """Rerank a run by a cross-encoder, which reads a query and a document together.

    The first --k documents of each topic are scored, and are the new run. Texts are those of --corpus, or those that
    --index stores.

      milco search rerank --run runs/milco.txt --topics miracl-ar-dev --corpus miracl-ar \\
        --encoder BAAI/bge-reranker-v2-m3
    """

    run: Path = option(metavar="FILE", help="TREC or MS MARCO run")
    topics: str = option(metavar="NAME|FILE", help="topics of the run: a name, or texts (TSV, JSONL, TREC)")
    encoder: str = option(metavar="NAME|DIR", help="cross-encoder: a sequence classifier with one logit")
    index: Path | None = option(None, metavar="DIR", help="index of the run, for its documents")
    corpus: str | None = option(None, metavar="NAME|PATH", help="documents of the run")
    output: Path | None = option(None, metavar="FILE", help="the new run (default: runs/RUN.reranked.txt)")
    k: int = option(100, minimum=1, names=("--hits",), help="documents per topic that are scored")
    tag: str | None = option(None, help="last column of the run (default: milco-rerank-OPTIONS)")
    overwrite: bool = option(False, help="replace a run at --output, once the new one is complete")
    max_length: int = option(512, minimum=8, help="tokens of query and document together")
    batch_size: int = option(64, minimum=1, help="pairs per forward pass")

    def conflicts(self) -> Iterator[MilcoError]:
        """Yield an error unless one source of texts is given."""
        return one_of(self, "index", "corpus")


def make_record(
    options: Any, system: str, trained_on: str = "", defaults: Mapping[str, Any] | None = None, **about: Any
) -> "RunRecord":
    """Return the record of a command's run, and in it the tag: --tag, or the system and options that are not default.

    trained_on: a benchmark, or "". defaults: of options whose own is None. about: further fields of the record.
    """
    from milco_pyserini.io.records import RunRecord
    from milco_pyserini.io.runs import default_tag, option_text

    usual = {name: field.default for name, field in option_fields(options).items()} | dict(defaults or {})
    given = {name: value for name, value in option_values(options).items() if name not in _ELSEWHERE}
    values = {name: usual[name] if value is None else value for name, value in given.items()}
    changed = {name: value for name, value in values.items() if option_text(value) != option_text(usual[name])}
    return RunRecord(
        tag=options.tag or default_tag(system, trained_on, changed),
        options={name: str(value) if isinstance(value, Balance | Path) else value for name, value in values.items()},
        versions={name: version(name) for name in _PACKAGES} | {"milco_pyserini": __version__},
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        **about,
    )


def fuse(options: FuseOptions) -> None:
    """Fuse and write the run. Raises MilcoError before anything is written if something does not fit."""
    from milco_pyserini.io.files import STDOUT
    from milco_pyserini.io.lines import first_line
    from milco_pyserini.io.runs import (
        MSMARCO_COLUMNS,
        read_run,
        read_run_record,
        run_output,
        validate_run_output,
        write_hits,
    )
    from milco_pyserini.search.fusion import fuse as fuse_runs

    names = "+".join(directory_name(str(path)) for path in options.runs)
    output = options.output or RUNS / f"{names}.{options.method}.txt"
    validate_run_output(output, True, options.tag)
    is_new = options.overwrite or not output.exists()
    runs = []
    for path in options.runs:
        run = read_run(path)
        if options.method != "rrf" and len(first_line(path).split()) == MSMARCO_COLUMNS:
            fix = "Fuse it with " + parameter("method", "rrf")
            raise MilcoError(f"{path} has ranks and no scores (MS MARCO)", fix)
        unsorted = sum(list(scores.values()) != sorted(scores.values(), reverse=True) for scores in run.values())
        if unsorted:
            log(f"{path}: {counted(unsorted, 'topic')} not sorted by score; scores are used")
        runs.append(run)
    if not set.intersection(*map(set, runs)):
        raise MilcoError(
            f"{' and '.join(map(str, options.runs))} have no topic in common: fuse runs of the same topics"
        )
    topics = set().union(*runs)
    for path, run in zip(options.runs, runs, strict=True):
        if missing := len(topics) - len(run):
            log(f"{path} lacks {missing:,} of {counted(len(topics), 'topic')}: they come only from the other runs")
    fused = fuse_runs(
        runs,
        options.method,
        rrf_k=options.rrf_k or 60,
        weights=options.weights or None,
        alpha=0.5 if options.alpha is None else options.alpha,
        normalize=options.normalize,
        depth=options.depth,
        k=options.k,
    )
    record = make_record(options, options.method, inputs=[read_run_record(path) for path in options.runs])
    with run_output(output, record, options.overwrite) as handle:
        for topic, hits in fused:
            write_hits(handle, topic, hits, "trec", record.tag)
    if is_new:
        place = "stdout" if output == STDOUT else output
        log(f"Fused {len(runs)} runs ({options.method}) into {place}: {counted(len(topics), 'query', 'queries')}")


def rerank(options: RerankOptions) -> None:
    """Rerank and write the run. Raises MilcoError before anything is written if something does not fit."""
    from milco_pyserini.corpora import open_corpus, open_topics
    from milco_pyserini.index.documents import DiskDocuments
    from milco_pyserini.io.files import STDOUT
    from milco_pyserini.io.runs import read_run, read_run_record, run_output, validate_run_output, write_hits
    from milco_pyserini.search.reranking import CrossEncoder
    from milco_pyserini.search.reranking import rerank as rerank_run
    from milco_pyserini.search.searcher import Searcher
    from milco_pyserini.search.topics import SearchTopics

    output = options.output or RUNS / f"{directory_name(str(options.run))}.reranked.txt"
    validate_run_output(output, options.overwrite, options.tag)
    run = read_run(options.run)
    queries = {topic.id: topic.text for topic in open_topics(options.topics)}
    # Before all documents are read.
    scorer = CrossEncoder(options.encoder, options.max_length, options.batch_size, options.device, options.dtype)
    with contextlib.ExitStack() as stack:
        if options.index is not None:
            searcher = stack.enter_context(Searcher.open(options.index))
            find = searcher.documents
        else:
            scored = (sorted(scores, key=lambda docid: -scores[docid])[: options.k] for scores in run.values())
            wanted = set().union(*scored)
            corpus = (item for item in open_corpus(str(options.corpus)) if item.id in wanted)
            texts = stack.enter_context(contextlib.closing(DiskDocuments(corpus)))

            def find(docids: Sequence[str]) -> "dict[str, Document]":
                found = ((docid, texts.get(docid)) for docid in docids)
                return {docid: document for docid, document in found if document is not None}

        record = make_record(
            options,
            "rerank",
            defaults={"encoder": options.encoder},
            topics=SearchTopics(list(queries), list(queries.values()), name=options.topics).record(),
            encoder={"encoder": options.encoder, "weight_hash": scorer.identity},
            inputs=[read_run_record(options.run)],
        )
        progress = Progress("queries", len(run))
        with run_output(output, record) as handle:
            for topic, hits in rerank_run(run, queries, find, scorer, options.k):
                write_hits(handle, topic, hits, "trec", record.tag)
                progress.add(1, pairs=len(hits))
    progress.close(f"Reranked {options.run} into {'stdout' if output == STDOUT else output}")
