"""milco index --vectors vectors/miracl-ar: a vector store to an index.

milco index --engine bm25 --corpus miracl-ar: a corpus to an index of its words.
milco index tune --index indexes/miracl-ar.seismic: the fastest settings that find enough.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import counted, say
from milco_pyserini.defaults import INDEXES, directory_name
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import MAX_THREADS, option

if TYPE_CHECKING:
    from milco_pyserini.index.protocol import Documents, Engine

# Options that mean something for indexes of one kind alone.
_FOR_TERMS = ("prune", "views", "plain", "scale")
_FOR_TEXTS = ("corpus", "language", "tokenizer")


@dataclass(frozen=True)
class Options:
    """Build an index. Of a store of term vectors: lucene (exact whole numbers, what Pyserini and Anserini read), exact
    (float scores, the ground truth) or seismic (approximate, for millions of documents; its recall is measured). Of a
    store of dense vectors (encode --dense): flat (exact) or hnsw (approximate). Of a corpus: bm25 (the baseline; no
    vectors, no encoder). The index takes its name when it is whole, and knows how its queries are made.

    "tune" as the first word finds a seismic index's settings for a wanted recall: tune --help.
    """

    vectors: Path | None = option(None, help="vector store, as milco encode writes it (not for bm25)")
    engine: str = option("lucene", help="lucene, exact, seismic; flat, hnsw; bm25")
    corpus: str | None = option(None, help="bm25: a name (miracl-ar), or a file or directory of JSONL or TSV")
    language: str | None = option(
        None, help="bm25: whose analyzer makes the words, such as ar (default: the corpus' own, if its name says it)"
    )
    tokenizer: str | None = option(
        None, help="bm25: the words are the pieces of this checkpoint's tokenizer, whatever the language"
    )
    output: Path | None = option(None, help="directory of the index (default: indexes/NAME.ENGINE)")
    threads: int = option(
        1, minimum=1, maximum=MAX_THREADS, help="threads that build; in Lucene each begins a segment of its own"
    )
    prune: tuple[str, ...] = option(
        (),
        help="leave out weak terms, without encoding again: top-k:100, percentile:50, mass:30, threshold:0.1; "
        "pivot:top-k:80 source:top-k:20 for each view by itself",
        metavar="RULE",
    )
    views: tuple[str, ...] = option((), help="views to index: pivot, source (default: all that --vectors has)")
    n_postings: int | None = option(
        None,
        help="seismic: postings that a term keeps, on the average (default: 200, for recall@10 .95 in up to 300,000 "
        "documents; more for more, or for a higher recall); fewer build faster and find less",
    )
    topics: Path | None = option(
        None, help="seismic, hnsw: vector store of topics to measure recall on (default: made of drawn documents)"
    )
    plain: bool = option(False, help="--vectors is Anserini JSONL that others wrote: a directory or a file")
    scale: float | None = option(
        None, above=0, maximum=2**31 - 1, help="with --plain: impact = round(weight x scale), if weights are not whole"
    )
    overwrite: bool = option(False, help="replace what is at --output, once the new index is whole")


def command(options: Options) -> None:
    """Build the index. Raises MilcoError before anything is written if that cannot be done."""
    from milco_pyserini.encode.dense_store import open_dense_store
    from milco_pyserini.index.directory import build_index, is_index
    from milco_pyserini.index.protocol import DENSE
    from milco_pyserini.index.recall import APPROXIMATE
    from milco_pyserini.index.registry import find_engine
    from milco_pyserini.index.settings import BUILD, adjusted, given
    from milco_pyserini.io.files import validate_output_directory
    from milco_pyserini.sparse import open_store
    from milco_pyserini.sparse.pruning import PrunedStore

    if options.scale is not None and not options.plain:
        raise MilcoError("--scale is for --plain: a vector store states its own")
    engine = adjusted(find_engine(options.engine), given(n_postings=options.n_postings), BUILD)
    name, open_source = _source(options, engine)
    if options.topics and engine.exactness != APPROXIMATE:
        raise MilcoError(f"--topics: {engine.name} is exact, there is no recall to measure")
    output = options.output or INDEXES / f"{directory_name(name)}.{engine.name}"
    validate_output_directory(output, options.overwrite, is_index)
    store = open_source()
    topics = None
    if options.topics:
        topics = open_dense_store(options.topics) if engine.queries == DENSE else open_store(options.topics)
    index = build_index(store, engine, output, options.threads, options.overwrite, topics=topics)
    if isinstance(store, PrunedStore):
        say(f"pruning left {store.kept / max(store.entries, 1):.1%} of the terms")
        if store.emptied:
            say(f"pruning left {counted(store.emptied, 'document')} without terms")
    if index.manifest["empty_documents"]:
        empty = counted(index.manifest["empty_documents"], "document")
        say(f"left out {empty} without terms (empty), which no query could find")


def _source(options: Options, engine: "Engine") -> "tuple[str, Callable[[], Documents]]":
    """The name of what is indexed, and what opens it as the engine takes it.

    Raises MilcoError if that is not given, or if an option is given that means nothing for it.
    """
    from milco_pyserini.encode.dense_store import open_dense_store
    from milco_pyserini.index.protocol import DENSE, TERMS, TEXT

    vectors, corpus = options.vectors, options.corpus
    for kind, what, names in ((TERMS, "indexes of term vectors", _FOR_TERMS), (TEXT, "--engine bm25", _FOR_TEXTS)):
        for name in names:
            if engine.queries != kind and getattr(options, name) not in (None, (), False):
                raise MilcoError(f"--{name} is for {what}: --engine {engine.name} has no use for it")
    if engine.queries == TEXT:
        if vectors is not None:
            raise MilcoError(f"--engine {engine.name} indexes the words of a corpus: give --corpus, not --vectors")
        if corpus is None:
            raise MilcoError(f"--engine {engine.name} needs --corpus: a name, or a file or directory of documents")
        return corpus, lambda: _texts(corpus, options)
    if vectors is None:
        raise MilcoError(f"--engine {engine.name} needs --vectors: a store that milco encode wrote")
    if engine.queries == DENSE:
        return vectors.name, lambda: open_dense_store(vectors)
    return vectors.name, lambda: _terms(vectors, options)


def _terms(vectors: Path, options: Options) -> "Documents":
    from milco_pyserini.sparse import open_store
    from milco_pyserini.sparse.pruning import PrunedStore, PruningRule

    rules = [PruningRule.parse(rule) for rule in options.prune]
    store = open_store(vectors, options.plain, 1.0 if options.scale is None else options.scale)
    return PrunedStore(store, rules, options.views) if rules or options.views else store


def _texts(name: str, options: Options) -> "Documents":
    from milco_pyserini.corpora import open_corpus
    from milco_pyserini.index.texts import corpus_language, corpus_texts

    corpus = open_corpus(name)
    if options.language and options.tokenizer:
        raise MilcoError(f"--tokenizer {options.tokenizer} makes words of any language: leave --language out")
    language = None if options.tokenizer else options.language or corpus_language(name)
    if language is None and options.tokenizer is None:
        raise MilcoError(
            f"--corpus {name} does not say one language: give --language, whose analyzer makes the words (ar, "
            "bn, en, ...), or --tokenizer mini, whose pieces are words of any language"
        )
    return corpus_texts(corpus, language, options.tokenizer)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["tune"]:
        from milco_pyserini.index import tuning

        prog, kept = "milco index tune", "the index is as it was"
        return run_command(prog, tuning.Options, tuning.command, arguments[1:], interrupted=kept)
    return run_command("milco index", Options, command, argv, interrupted="no index was written")
