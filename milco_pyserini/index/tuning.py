"""Tune a Seismic index for a recall: find the fastest settings that reach it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milco_pyserini.console import log
from milco_pyserini.errors import Message, MilcoError, ParameterError
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.recall import (
    MAX_RECALL_DEPTH,
    GroundTruth,
    RecallPoint,
    find_ground_truth,
    measure_recall,
    read_ground_truth,
    report_recall,
    write_ground_truth,
)
from milco_pyserini.index.shards import find_shards
from milco_pyserini.options import validate_number
from milco_pyserini.sparse import VectorStore
from milco_pyserini.sparse.pruning import PrunedStore, PruningRule

if TYPE_CHECKING:
    from milco_pyserini.index.directory import Index

_QUERY_CUTS = (3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 45, 64)
# From fast to thorough.
_HEAP_FACTORS = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)
_FINALISTS = 6
_FINAL_ROUNDS = 5

# query_cut and heap_factor.
SettingPair = tuple[int, float]


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
        topics: vector store of topics to measure recall on, with vectors, the store that the index was built from;
            without both, recall is measured on what it was measured on when the index was built.
        report: called with every pair of settings and what it gives.

    Raises:
        MilcoError: if no settings reach the recall, or if the index is not of Seismic.
    """
    validate_number("k", k, 1, MAX_RECALL_DEPTH)
    if (topics is None) != (vectors is None):
        raise MilcoError(Message("{topics} and {vectors} require each other"))
    if index.shards:
        shard = find_shards(index.path)[0]
        raise MilcoError(f"{index.path} has shards, each with its own settings: tune them one by one, such as {shard}")
    index.engine.require(Capability.APPROXIMATE, "path", index.path)
    index.engine.available()
    if topics is None or vectors is None:
        truth = read_ground_truth(index.path)
    else:
        truth = find_ground_truth(_open_indexed_vectors(index, vectors), VectorStore.open(topics), 0)
    query_cut, heap_factor = _fastest_settings(index, truth, recall, k, report)
    log(f"{index.path} now searches with query_cut {query_cut} and heap_factor {heap_factor:g}")
    if topics is not None:
        write_ground_truth(index.path, truth)
    settings = {"query_cut": query_cut, "heap_factor": heap_factor}
    return index.save_settings(settings, report_recall(index.searcher(settings), truth))


def search_grid(
    measure: Callable[[SettingPair], RecallPoint], recall: float
) -> Iterator[tuple[SettingPair, RecallPoint]]:
    """Yield pairs of settings and what they give.

    A lower heap_factor and a larger query_cut find more and take longer. So for each query_cut, heap factors below the
    first that reaches the recall are skipped, and once the highest reaches it, all larger query_cuts.
    """
    for query_cut in _QUERY_CUTS:
        for heap_factor in _HEAP_FACTORS:
            point = measure((query_cut, heap_factor))
            yield (query_cut, heap_factor), point
            if point.recall >= recall:
                break
        if point.recall >= recall and heap_factor == _HEAP_FACTORS[0]:
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


def _fastest_settings(
    index: "Index", truth: GroundTruth, recall: float, k: int, report: Callable[[SettingPair, RecallPoint], None]
) -> SettingPair:
    searcher: Any = index.searcher()

    def measure(pair: SettingPair) -> RecallPoint:
        return measure_recall(searcher.with_settings(*pair), truth, k, 1)

    points = {}
    for pair, point in search_grid(measure, recall):
        points[pair] = point
        report(pair, point)
    good = {pair: point.milliseconds for pair, point in points.items() if point.recall >= recall}
    if not good:
        pair, best = max(points.items(), key=lambda item: item[1].recall)
        raise ParameterError(
            "recall",
            recall,
            f"the highest that {index.path} reaches is {best.recall:.4f}, with query_cut {pair[0]} and heap_factor "
            f"{pair[1]:g}",
            "Build it with a larger n_postings.",
        )
    finalists = sorted(good, key=good.__getitem__)[:_FINALISTS]
    # In turn: on a machine that also does other work, a single measurement proves little.
    for _ in range(_FINAL_ROUNDS):
        for pair in finalists:
            good[pair] = min(good[pair], measure(pair).milliseconds)
    return min(finalists, key=good.__getitem__)
