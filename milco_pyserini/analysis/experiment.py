"""Define what a sweep or a latency table measures: the retrieval task, and the indexes that are compared on it."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import cast

import orjson

from milco_pyserini.console import counted, duration, log
from milco_pyserini.corpora import open_qrels
from milco_pyserini.defaults import directory_name
from milco_pyserini.errors import MilcoError, shown, validate_unique
from milco_pyserini.eval.measures import parse_measures
from milco_pyserini.index.directory import Index
from milco_pyserini.index.protocol import BUILD, SEARCH, Engine, parse_settings
from milco_pyserini.index.registry import find_engine
from milco_pyserini.index.sparse_engine import SparseEngine
from milco_pyserini.io.qrels import Qrels
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
        views: Those to index; all if empty.
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

    @cached_property
    def topics_hash(self) -> str:
        """A hash of the topics' ids, and texts or vectors."""
        return digest([self.ids, self.vectors if self.texts is None else self.texts])


@dataclass(frozen=True)
class IndexSpec:
    """An engine with settings. given: those that were given, for building or for searching; the others are defaults."""

    engine: Engine
    given: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.label(BUILD, SEARCH)

    def label(self, *when: str) -> str:
        """Return the engine with its given settings for BUILD or SEARCH, such as "seismic query_cut=10"."""
        settings = {name: value for setting in when for name, value in self.engine.settings(setting).items()}
        given = (f"{name}={value:g}" for name, value in settings.items() if name in self.given)
        return " ".join([self.engine.name, *given])

    @classmethod
    def parse(cls, text: str) -> "IndexSpec":
        """Parse "seismic" or "seismic:query_cut=10,heap_factor=0.9".

        Raises:
            MilcoError: The engine, or a setting of it, is unknown, or a value is out of range.
        """
        name, _, settings = text.partition(":")
        given = parse_settings(settings.split(",") if settings else ())
        return cls(find_engine(name).with_settings(given), frozenset(given))

    def settings(self) -> dict[str, float]:
        """Return all settings of the engine, with its defaults."""
        return self.engine.settings(BUILD) | self.engine.settings(SEARCH)


@dataclass(frozen=True)
class IndexVariant:
    """Vectors pruned by rules that apply one after the other, in an index."""

    rules: tuple[PruningRule, ...]
    spec: IndexSpec

    def __str__(self) -> str:
        return f"{self.spec}, {self.pruning}"

    @property
    def pruning(self) -> str:
        """The rules as they are written: "none", "top-k:10" or "pivot:top-k:10,source:top-k:20"."""
        return ",".join(map(str, self.rules)) or UNPRUNED

    @property
    def name(self) -> str:
        """A file name."""
        return directory_name(f"{self.spec}.{self.pruning}")

    @property
    def index_name(self) -> str:
        """A directory name, the same for variants that differ only in how they search."""
        return directory_name(f"{self.spec.label(BUILD)}.{self.pruning}")


def parse_variants(prune: Iterable[str], engines: Iterable[str]) -> list[IndexVariant]:
    """Combine pruning with engines: all engines of the first pruning first.

    Args:
        prune: "none" or rules separated by commas, such as "pivot:top-k:10,source:top-k:20".
        engines: See IndexSpec.parse().

    Raises:
        MilcoError: A rule or engine is invalid or given twice, or an engine is not installed or not of weighted terms.
    """
    prunings = [() if text == UNPRUNED else tuple(map(PruningRule.parse, text.split(","))) for text in prune]
    specs = [IndexSpec.parse(text) for text in engines]
    validate_unique("`prune`", [",".join(map(str, rules)) or UNPRUNED for rules in prunings])
    validate_unique("`engines`", specs)
    for spec in specs:
        if not isinstance(spec.engine, SparseEngine):
            raise MilcoError(
                f"`engines={spec}`: its queries are {spec.engine.query_type}, vectors of MILCO are weighted terms",
                "Compare dense encoders and BM25 with milco eval.",
            )
        spec.engine.available()
    return [IndexVariant(rules, spec) for rules, spec in product(prunings, specs)]


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
        raise MilcoError(f"`k={k}`: {' '.join(map(str, parsed))} needs {counted(deepest, 'document')}")

    store = cast(VectorStore, open_store(Path(vectors)))
    if store.manifest.get("split_passages"):
        raise MilcoError(f"{vectors} has passages of documents, and qrels are of documents: encode without splitting")
    # Raises for views that the store does not have.
    PrunedStore(store, (), views)
    grades = open_qrels(qrels)
    # Topics must fit the vectors as they must fit an index of them, which is not built yet.
    index = Index(store.path, {"engine": "exact", "vectors": store.manifest, "query_scale": store.manifest["scale"]})
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
        raise MilcoError(f"`encoder={encoder}`: {topics} has vectors, nothing is encoded")
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


def digest(value: object) -> str:
    """Return BLAKE2b of a value as JSON."""
    return blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()
