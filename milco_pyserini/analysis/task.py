"""What all systems of a sweep or a latency table are asked: the same vectors, topics, judgements and number of hits."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, cast

import orjson

from milco_pyserini.console import counted, duration, say
from milco_pyserini.defaults import directory_name
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.eval.measures import parse_measures
from milco_pyserini.options import MAX_THREADS, option

if TYPE_CHECKING:
    import ir_measures

    from milco_pyserini.analysis.systems import Cut
    from milco_pyserini.io.qrels import Qrels
    from milco_pyserini.sparse import VectorStore
    from milco_pyserini.sparse.pruning import PrunedStore

FIGURES = Path("figures")
# What is retrieved for a measure that looks at the whole ranking.
WHOLE_RANKING = 1000


@dataclass(frozen=True)
class TaskOptions:
    """The options that a sweep and a latency table share."""

    vectors: Path = option(help="vector store of the documents, as milco encode writes it, not pruned")
    topics: str = option(help="a name (miracl-ar-dev), texts, or a vector store of topics")
    qrels: str = option(help="judgements: a name or a file")
    engines: tuple[str, ...] = option(
        ("lucene", "exact"),
        metavar="ENGINE",
        help="lucene, seismic or exact; with settings as seismic:query_cut=10,heap_factor=0.9",
    )
    prune: tuple[str, ...] = option(
        ("none",),
        metavar="RULE",
        help="none, top-k:K, percentile:P, mass:P or threshold:T, over one view alone as pivot:top-k:K; two rules, one "
        "after the other, as RULE+RULE",
    )
    views: tuple[str, ...] = option(
        (), choices=("pivot", "source"), help="the documents' views to index (default: all)"
    )
    measures: tuple[str, ...] = option(("nDCG@10",), names=("-m",), help="as for milco_pyserini.eval --run")
    hits: int | None = option(None, help="documents for each topic (default: as deep as the measures look)")
    rounds: int = option(5, minimum=1, help="how often each topic is timed; its median counts")
    threads: int = option(
        1, minimum=1, maximum=MAX_THREADS, help="threads that build; a search is always timed on one core"
    )
    encoder: str | None = option(None, help="where the vectors' encoder is now, for topics that are texts")
    output: Path | None = option(
        None, help="directory of figures, runs and indexes; what stands there is not made again (default: figures/NAME)"
    )
    format: str = option(
        "text", choices=("text", "markdown", "csv", "latex"), help="how the table on stdout is written"
    )

    @property
    def directory(self) -> Path:
        """Where everything goes."""
        return self.output or FIGURES / directory_name(self.vectors.name)


@dataclass(frozen=True)
class Task:
    """Documents, topics (ids and {term: weight}; texts where they are known), judgements, and what to look at."""

    store: "VectorStore"
    views: tuple[str, ...]
    ids: Sequence[str]
    vectors: Sequence[dict[str, float]]
    texts: Sequence[str] | None
    qrels: "Qrels"
    measures: tuple[str, ...]
    hits: int

    def pruned(self, cut: "Cut") -> "PrunedStore":
        """The documents under a cut."""
        from milco_pyserini.sparse.pruning import PrunedStore

        return PrunedStore(self.store, cut.rules, self.views)

    @cached_property
    def topics_hash(self) -> str:
        """A hash over the topics' ids, and texts or vectors."""
        return digest([self.ids, self.vectors if self.texts is None else self.texts])


def digest(value: object) -> str:
    """BLAKE2b of a value as JSON."""
    return blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()


def open_task(options: TaskOptions) -> Task:
    """Read, and encode where they are texts, what the options name; nothing is written.

    Raises MilcoError for what is not there or does not fit together.
    """
    measures = parse_measures(options.measures)
    hits = _depth(measures, options.hits)
    from milco_pyserini.corpora import open_qrels
    from milco_pyserini.index.directory import Index
    from milco_pyserini.search.topics import read_topics
    from milco_pyserini.sparse import VectorStore, open_store
    from milco_pyserini.sparse.pruning import PrunedStore

    store = cast(VectorStore, open_store(options.vectors))
    if store.manifest.get("split_passages"):
        raise MilcoError(f"{options.vectors} holds passages of documents, and documents are judged: encode them whole")
    # It knows which views there are to choose from.
    PrunedStore(store, (), options.views)
    qrels = open_qrels(options.qrels)
    # The index that they will be asked of is still to be built: what it will say of its vectors is known.
    index = Index(store.path, {"engine": "exact", "vectors": store.manifest, "query_scale": store.manifest["scale"]})
    topics = read_topics(options.topics, index)
    if not qrels.keys() & set(topics.ids):
        raise MilcoError(
            f"no topic of {options.topics} is judged in {options.qrels}: the first topic is {shown(topics.ids[0])}, "
            f"a judged one {shown(min(qrels))}; do they belong together?"
        )
    vectors = topics.vectors
    if vectors is None:
        vectors = _encode(store.manifest, topics.texts or [], options.encoder)
    elif options.encoder is not None:
        raise MilcoError(f"--encoder {options.encoder}: {options.topics} holds vectors, nothing is encoded")
    names = tuple(map(str, measures))
    return Task(store, options.views, topics.ids, vectors, topics.texts, qrels, names, hits)


def _depth(measures: "Sequence[ir_measures.Measure]", hits: int | None) -> int:
    """How many documents to retrieve: as asked for, or as deep as the deepest measure looks."""
    # IPrec has a recall level in place of a cutoff, and reads the complete ranking.
    ranks = [measure.params.get("cutoff") for measure in measures]
    if hits is None:
        return max(rank or WHOLE_RANKING for rank in ranks)
    deepest = max(rank or 1 for rank in ranks)
    if hits < deepest:
        raise MilcoError(f"--hits {hits}: {' '.join(map(str, measures))} looks at {counted(deepest, 'document')}")
    return hits


def _encode(manifest: dict, texts: Sequence[str], encoder: str | None) -> list[dict[str, float]]:
    from milco_pyserini.encode import open_query_encoder

    started = time.monotonic()
    vectors = open_query_encoder(manifest, encoder).encode_batch(texts)
    say(f"encoded {counted(len(texts), 'topic')} in {duration(time.monotonic() - started)}")
    return vectors
