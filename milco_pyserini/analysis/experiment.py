"""Define what a sweep or a latency table measures: the retrieval task, and the indexes that are compared on it."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, cast

from milco_pyserini.console import counted, duration, log
from milco_pyserini.corpora import open_qrels
from milco_pyserini.defaults import directory_name
from milco_pyserini.errors import MilcoError, ParameterError, parameter, shown, validate_unique
from milco_pyserini.eval.measures import parse_measures
from milco_pyserini.index.directory import Index
from milco_pyserini.index.protocol import BUILD, SEARCH, Engine, parse_settings
from milco_pyserini.index.registry import find_engine
from milco_pyserini.io.qrels import Qrels
from milco_pyserini.io.records import IndexManifest
from milco_pyserini.search.topics import read_topics
from milco_pyserini.sparse import VectorStore, open_store
from milco_pyserini.sparse.pruning import PrunedStore, PruningRule

UNPRUNED = "none"
# Retrieved for a measure without a cutoff.
_COMPLETE_RANKING = 1000


@dataclass(frozen=True)
class RetrievalTask:
    """Documents, topics and qrels.

    Args:
        store: The vectors of the documents, not pruned.
        views: Views to index; all if empty.
        topics, qrels: The names or paths that were given.
        ids, vectors, texts: Each topic's id, {term: weight}, and text if it is known.
        grades: Query id -> docid -> grade.
        measures: Names of measures.
        k: Documents to retrieve for each topic.
    """

    store: VectorStore
    views: tuple[str, ...]
    topics: str
    qrels: str
    ids: Sequence[str]
    vectors: Sequence[dict[str, float]]
    texts: Sequence[str] | None
    grades: Qrels
    measures: tuple[str, ...]
    k: int

    def pruned(self, rules: Sequence[PruningRule]) -> PrunedStore:
        """Return the documents' vectors after these rules."""
        return PrunedStore(self.store, rules, self.views)


@dataclass(frozen=True)
class IndexVariant:
    """Vectors pruned by rules that apply one after the other, in an index.

    given: settings of the engine that were given, for building or for searching; the others are defaults.
    """

    rules: tuple[PruningRule, ...]
    engine: Engine
    given: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.label(BUILD, SEARCH)}, {self.pruning}"

    @property
    def pruning(self) -> str:
        """The rules as they are written: "none", "top-k:10" or "pivot:top-k:10,source:top-k:20"."""
        return ",".join(map(str, self.rules)) or UNPRUNED

    def label(self, *when: str) -> str:
        """Return the engine with its given settings for BUILD or SEARCH, such as "seismic query_cut=10"."""
        settings = {name: value for setting in when for name, value in self.engine.settings(setting).items()}
        given = (f"{name}={value:g}" for name, value in settings.items() if name in self.given)
        return " ".join([self.engine.name, *given])

    def directory_name(self, views: Sequence[str]) -> str:
        """Return a name for the index, the same for variants that differ only in how they search."""
        return ".".join([directory_name(f"{self.label(BUILD)}.{self.pruning}"), *views])


def parse_variants(prune: Iterable[str], engines: Iterable[str]) -> list[IndexVariant]:
    """Combine pruning with engines: all engines of the first pruning first.

    Args:
        prune: "none" or rules separated by commas, such as "pivot:top-k:10,source:top-k:20".
        engines: "seismic" or, with settings, "seismic:query_cut=10,heap_factor=0.9".

    Raises:
        MilcoError: A rule, an engine or a setting is unknown, out of range or given twice, or an engine is not
            installed.
    """
    prunings = [() if text == UNPRUNED else tuple(map(PruningRule.parse, text.split(","))) for text in prune]
    parsed = []
    for text in engines:
        name, _, settings = text.partition(":")
        given = parse_settings(settings.split(",") if settings else ())
        engine = find_engine(name).with_settings(given)
        engine.available()
        parsed.append((engine, frozenset(given)))
    variants = [IndexVariant(rules, engine, given) for rules, (engine, given) in product(prunings, parsed)]
    validate_unique(parameter("prune"), [variant.pruning for variant in variants[:: len(parsed)]])
    validate_unique(parameter("engines"), [variant.label(BUILD, SEARCH) for variant in variants[: len(parsed)]])
    return variants


def open_task(
    vectors: str | Path,
    topics: str,
    qrels: str,
    *,
    views: Sequence[str] = (),
    measures: Sequence[str] = ("nDCG@10",),
    k: int | None = None,
    encoder: str | None = None,
) -> RetrievalTask:
    """Open vectors, topics and qrels; encode topics that are texts. Nothing is written.

    Args:
        vectors: A vector store of documents.
        topics: A name, texts, or a vector store of topics.
        qrels: A name or a file.
        views: The documents' views to index (default: all).
        measures: Names of measures.
        k: Documents to retrieve for each topic (default: as many as the measures need).
        encoder: Where the vectors' encoder is now, for topics that are texts.

    Raises:
        MilcoError: Something does not exist or they do not belong together.
    """
    parsed = parse_measures(measures)
    # IPrec has a recall level in place of a cutoff, and needs the complete ranking.
    cutoffs = [measure.params.get("cutoff") for measure in parsed]
    deepest = max(cutoff or 1 for cutoff in cutoffs)
    if k is not None and k < deepest:
        raise ParameterError("k", k, f"{' '.join(map(str, parsed))} needs {counted(deepest, 'document')}")

    store = cast(VectorStore, open_store(Path(vectors)))
    if store.manifest.split_passages:
        raise MilcoError(f"{vectors} has passages of documents, and qrels are of documents: encode without splitting")
    # Raises for views that the store does not have.
    PrunedStore(store, (), views)
    grades = open_qrels(qrels)
    # Topics must fit the vectors as they must fit an index of them, which is not built yet.
    about: dict[str, Any] = {"format_version": 1, "engine": "exact", "exactness": "exact float", "id_with_space": None}
    about |= {"documents": 0, "empty_documents": 0, "postings": 0, "query_scale": store.manifest.scale}
    manifest = IndexManifest(**about, vectors=store.manifest)
    index = Index(store.path, manifest)
    queries = read_topics(topics, index)
    if not grades.keys() & set(queries.ids):
        raise MilcoError(
            f"no topic of {topics} is judged in {qrels}: the first topic is {shown(queries.ids[0])}, a judged one "
            f"{shown(min(grades))}",
            "Check that the topics and the qrels are of the same dataset.",
        )
    encoded = queries.vectors
    if encoded is None:
        from milco_pyserini.encode.contract import open_query_encoder

        started = time.monotonic()
        encoded = open_query_encoder(store.manifest, encoder).encode_batch(queries.texts or [])
        log(f"Encoded {counted(len(encoded), 'topic')} ({duration(time.monotonic() - started)})")
    elif encoder is not None:
        raise ParameterError("encoder", encoder, f"{topics} has vectors, nothing is encoded")
    return RetrievalTask(
        store=store,
        views=tuple(views),
        topics=topics,
        qrels=qrels,
        ids=queries.ids,
        vectors=encoded,
        texts=queries.texts,
        grades=grades,
        measures=tuple(map(str, parsed)),
        k=k or max(cutoff or _COMPLETE_RANKING for cutoff in cutoffs),
    )
