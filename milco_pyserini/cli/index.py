"""milco index --vectors vectors/miracl-ar: index a vector store.

milco index update --index indexes/miracl-ar.lucene --vectors vectors/new: add, replace and delete documents.
milco index tune --index indexes/miracl-ar.seismic: find the fastest settings that reach a recall.
"""

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from milco_pyserini.cli.parser import Subcommand, dispatch
from milco_pyserini.console import log
from milco_pyserini.defaults import INDEXES, directory_name, missing_vectors
from milco_pyserini.errors import Message, MilcoError
from milco_pyserini.options import option, options_of
from milco_pyserini.request import BuildRequest, IndexRequest

# Below it, clusters gain nothing and take much more than postings.
_FEW_DOCUMENTS = 100_000
# Bytes of a posting in Lucene.
_LUCENE_BYTES = 4


@dataclass(frozen=True)
class IndexOptions:
    """Build an index.

    Engines: lucene (exact integers, readable by Pyserini and Anserini), exact (float scores, the ground truth), qdrant
    (exact integers, without Java), seismic (approximate, for millions of documents; recall is measured). An index of a
    running server (engine remote) is written by milco export --url.

      milco index --vectors vectors/miracl-ar
      milco index --vectors vectors/miracl-ar --no-store
    """

    vectors: Path | None = option(None, metavar="DIR", parameters=("source",), help="vector store of milco encode")
    engine: str = option("lucene", metavar="ENGINE", help="lucene, exact, qdrant or seismic")
    set: tuple[str, ...] = option(
        (),
        repeatable=True,
        metavar="NAME=VALUE",
        parameters=("n_postings", "summary_energy", "query_cut", "heap_factor", "store_vectors"),
        help="settings of the engine: n_postings=500 (seismic); --set help lists them",
    )
    output: Path | None = option(
        None, metavar="DIR", parameters=("path",), help="directory of the index (default: indexes/NAME.ENGINE)"
    )
    request: BuildRequest = options_of(BuildRequest)


@dataclass(frozen=True)
class UpdateOptions:
    """Add, replace and delete documents of an index (lucene, exact, qdrant).

    Documents of --vectors are added, in place of those with the same id. With --since, only what differs is written.
    Pruning rules and views are those that the index was built with.
    Documents of --corpus are encoded by the encoder of the index first.

      milco index update --index indexes/news.lucene --vectors vectors/today --since vectors/yesterday
      milco index update --index indexes/news.lucene --corpus today.jsonl
      milco index update --index indexes/news.lucene --delete gone.txt
    """

    index: Path = option(metavar="DIR", parameters=("path",), help="index to change")
    vectors: Path | None = option(
        None, metavar="DIR", parameters=("source",), help="vector store of milco encode, whose documents are added"
    )
    corpus: str | None = option(
        None,
        metavar="NAME|PATH",
        excludes=("vectors",),
        help="texts that are encoded and added: a name (miracl-ar), or JSONL or TSV",
    )
    since: Path | None = option(
        None,
        metavar="DIR",
        help="store that the index was built from: write only what differs, and delete documents that --vectors lacks",
    )
    delete: Path | None = option(None, metavar="FILE", help="docids to delete, one per line")
    request: IndexRequest = options_of(IndexRequest)

    def conflicts(self) -> Iterator[MilcoError]:
        """Yield an error if there is nothing to do."""
        if self.vectors is None and self.delete is None and self.corpus is None:
            needed = Message("documents to add ({vectors} or {corpus}) or ids to delete ({delete})")
            yield MilcoError("an update needs " + needed)


@dataclass(frozen=True)
class TuneOptions:
    """Find the fastest settings with which approximate searches reach a recall, and save them in the index.

    Later searches use them: all of a Seismic index, and those with --approximate of an index in OpenSearch or
    Elasticsearch. Recall is measured on the queries used when a Seismic index was built, or on --topics. stdout gets a
    table of all settings that were tried.
    """

    index: Path = option(
        metavar="DIR", parameters=("path",), help="Seismic index, or one that milco export --url filled"
    )
    recall: float = option(0.95, above=0, maximum=1, help="share of the exact search's best documents to find")
    k: int = option(10, minimum=1, maximum=100, names=("--hits",), help="k of recall@k")
    topics: Path | None = option(
        None, metavar="DIR", help="encoded topics to measure recall on; a Seismic index needs --vectors, too"
    )
    vectors: Path | None = option(
        None, metavar="DIR", requires="topics", help="vector store that the Seismic index was built from"
    )


def command(options: IndexOptions) -> None:
    """Build the index."""
    from milco_pyserini.index import build_index, find_engine
    from milco_pyserini.index.protocol import parse_settings

    if options.set == ("help",):
        sys.stdout.writelines(f"{line}\n" for line in describe_settings())
        return
    engine = find_engine(options.engine).with_settings(parse_settings(options.set))
    if options.vectors is None:
        raise missing_vectors()
    output = options.output or INDEXES / f"{directory_name(options.vectors.name)}.{engine.name}"
    index = build_index(options.vectors, engine, output, options.request)
    if engine.name == "seismic" and index.manifest.documents < _FEW_DOCUMENTS:
        size = index.manifest.postings * _LUCENE_BYTES / 1e6
        log(f"Below {_FEW_DOCUMENTS:,} documents --engine lucene is exact and takes about {size:,.1f} MB")


def describe_settings() -> Iterator[str]:
    """Yield a line for each setting of every engine: its default, when it applies, its range, and its meaning."""
    from milco_pyserini.index.registry import ENGINES

    for name, engine in ENGINES.available().items():
        for field in dataclasses.fields(engine):
            low, high, _ = field.metadata["range"]
            default = f"={str(field.default).lower()}"
            limits = "" if low is None else f", {low:,} to {high:,}"
            yield f"{name}: {field.name}{default} ({field.metadata['group']}{limits}): {field.metadata['help']}"


def update(options: UpdateOptions) -> None:
    """Update the index."""
    from milco_pyserini.corpora import open_corpus
    from milco_pyserini.index import open_index
    from milco_pyserini.index.update import read_docids

    delete = None if options.delete is None else read_docids(options.delete)
    source: Any = options.vectors if options.corpus is None else open_corpus(options.corpus)
    request = cast(Any, vars(options.request))
    open_index(options.index).update(source, since=options.since, delete=delete, **request)


def tune(options: TuneOptions) -> None:
    """Tune the index."""
    from milco_pyserini.index import open_index
    from milco_pyserini.index.recall import RecallPoint
    from milco_pyserini.index.tuning import SettingPair, tune_index

    index = open_index(options.index)
    header = iter(["\t".join([*index.engine.tuned, f"recall@{options.k}", "milliseconds\n"])])

    def report(pair: SettingPair, point: RecallPoint) -> None:
        # The header comes with the first row: an index that cannot be tuned has neither.
        row = f"{pair[0]:g}\t{pair[1]:g}\t{point.recall:.4f}\t{point.milliseconds:.4f}\n"
        sys.stdout.write(next(header, "") + row)

    tune_index(index, options.recall, options.k, options.topics, options.vectors, report)


SUBCOMMANDS = {
    "update": Subcommand(UpdateOptions, update, "the index is unchanged"),
    "tune": Subcommand(TuneOptions, tune, "the index is unchanged"),
}
main = partial(dispatch, "milco index", SUBCOMMANDS, Subcommand(IndexOptions, command, "no index was written"))
