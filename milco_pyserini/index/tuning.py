"""Tune an index for a recall of approximate searches: find the fastest settings that reach it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milco_pyserini.console import log
from milco_pyserini.errors import Message, MilcoError, ParameterError
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.protocol import APPROXIMATE
from milco_pyserini.index.recall import (
    MAX_RECALL_DEPTH,
    GroundTruth,
    RecallPoint,
    find_ground_truth,
    measure_recall,
    read_ground_truth,
    report_recall,
    search_ground_truth,
    write_ground_truth,
)
from milco_pyserini.index.shards import find_shards
from milco_pyserini.index.vectors import validate_same_encoder
from milco_pyserini.options import validate_number
from milco_pyserini.request import SearchRequest
from milco_pyserini.sparse import VectorStore
from milco_pyserini.sparse.pruning import PrunedStore, PruningRule

if TYPE_CHECKING:
    from milco_pyserini.index.directory import Index

_FINALISTS = 6
_FINAL_ROUNDS = 5

# Values of the two settings of Engine.tuned.
SettingPair = tuple[float, ...]


def tune_index(
    index: "Index",
    recall: float = 0.95,
    k: int = 10,
    topics: Path | None = None,
    vectors: Path | None = None,
    report: Callable[[SettingPair, RecallPoint], None] = lambda pair, point: None,
) -> "Index":
    """Make the fastest settings that reach a recall@k the index's own. Every later search begins with them.

    Args:
        k: from 1 to 100.
        topics: vector store of topics to measure recall on; without it, recall is measured on what it was measured on
            when the index was built or last tuned.
        vectors: the store that the index was built from, in which the best documents of the topics are searched for. An
            index that can search exactly needs none.
        report: called with every pair of settings and what it gives.

    Raises:
        MilcoError: if no settings reach the recall, or if the index has no approximate searches.
    """
    validate_number("k", k, 1, MAX_RECALL_DEPTH)
    index.engine.require(Capability.APPROXIMATE, "path", index.path)
    needs_vectors = index.engine.exactness == APPROXIMATE or topics is None
    if (topics is None) != (vectors is None) and needs_vectors:
        raise MilcoError(Message("{topics} and {vectors} require each other"))
    if index.shards:
        shard = find_shards(index.path)[0]
        raise MilcoError(f"{index.path} has shards, each with its own settings: tune them one by one, such as {shard}")
    if topics is None and index.manifest.recall is None:
        raise ParameterError("topics", None, f"is missing: the recall of {index.path} was never measured")
    index.engine.available()
    store = None if topics is None else VectorStore.open(topics)
    if store is not None:
        validate_same_encoder(store.path, store.manifest, index.path, index.vectors)
    searcher: Any
    with index.searcher() as searcher:
        searcher.validate(SearchRequest(approximate=True))
        if store is None:
            truth = read_ground_truth(index.path)
        elif vectors is None:
            truth = search_ground_truth(searcher, store)
        else:
            truth = find_ground_truth(_open_indexed_vectors(index, vectors), store, 0)
        fastest = _fastest_settings(index, searcher, truth, recall, k, report)
        settings = dict(zip(index.engine.tuned, fastest, strict=True))
        tuned = index.save_settings(settings, report_recall(searcher.with_settings(*fastest), truth))
        if topics is not None:
            write_ground_truth(index.path, truth)
        log(f"{index.path} now searches with {_named(index.engine.tuned, fastest)}")
        return tuned


def search_grid(
    tuned: Mapping[str, Sequence[float]], measure: Callable[[SettingPair], RecallPoint], recall: float
) -> Iterator[tuple[SettingPair, RecallPoint]]:
    """Yield pairs of the values of two settings, each from fast to thorough, and what they give.

    More thorough values find more and take longer. So for each value of the first setting, values of the second after
    the first that reaches the recall are skipped, and once the fastest reaches it, all later ones of the first.
    """
    firsts, seconds = tuned.values()
    for first in firsts:
        for second in seconds:
            point = measure((first, second))
            yield (first, second), point
            if point.recall >= recall:
                break
        if point.recall >= recall and second == seconds[0]:
            break


def _open_indexed_vectors(index: "Index", vectors: Path) -> PrunedStore:
    """Open vectors as the index has them, pruned and with its views. Raises MilcoError if they are others."""
    store = VectorStore.open(vectors)
    indexed = index.vectors
    before, after = ((manifest.pruning or "") for manifest in (store.manifest, indexed))
    if indexed.parts != store.manifest.parts or not after.startswith(before):
        fix = Message("Give the {vectors} that it was built from.")
        raise MilcoError(f"{index.path} was not built from {store.path}", fix)
    if shard := index.manifest.shard:
        store = store.take_shard(shard.id, shard.num)
    views = indexed.views if indexed.views != store.manifest.views else None
    return PrunedStore(store, [PruningRule.parse(rule) for rule in after[len(before) :].split()], views or ())


def _named(tuned: Iterable[str], pair: SettingPair) -> str:
    return " and ".join(f"{name} {value:g}" for name, value in zip(tuned, pair, strict=True))


def _fastest_settings(
    index: "Index",
    searcher: Any,
    truth: GroundTruth,
    recall: float,
    k: int,
    report: Callable[[SettingPair, RecallPoint], None],
) -> SettingPair:
    tuned = index.engine.tuned

    def measure(pair: SettingPair) -> RecallPoint:
        return measure_recall(searcher.with_settings(*pair), truth, k, 1)

    points = {}
    for pair, point in search_grid(tuned, measure, recall):
        points[pair] = point
        report(pair, point)
    good = {pair: point.milliseconds for pair, point in points.items() if point.recall >= recall}
    if not good:
        pair, best = max(points.items(), key=lambda item: item[1].recall)
        raise ParameterError(
            "recall",
            recall,
            f"the highest that {index.path} reaches is {best.recall:.4f}, with {_named(tuned, pair)}",
            "Build it with a larger n_postings." if index.engine.exactness == APPROXIMATE else "Give a lower one.",
        )
    finalists = sorted(good, key=good.__getitem__)[:_FINALISTS]
    # In turn: on a machine that also does other work, a single measurement proves little.
    for _ in range(_FINAL_ROUNDS):
        for pair in finalists:
            good[pair] = min(good[pair], measure(pair).milliseconds)
    return min(finalists, key=good.__getitem__)
