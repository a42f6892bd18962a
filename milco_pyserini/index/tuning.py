"""Settings of a Seismic index for a wanted recall: the fastest that reach it become the index's own."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.console import say
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.index.directory import Index
    from milco_pyserini.index.protocol import Searcher, Store
    from milco_pyserini.index.recall import Measured, Truth
    from milco_pyserini.sparse import PlainStore, VectorStore

_QUERY_CUTS = (3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 45, 64)
# From fast to thorough.
_HEAP_FACTORS = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)
_FINALISTS = 6
_FINAL_ROUNDS = 5

Pair = tuple[int, float]


@dataclass(frozen=True)
class Options:
    """Find the query_cut and heap_factor with which a Seismic index is fastest at a recall, and make them its own:
    every later search begins from them. Recall is measured on what the index was measured on when it was built, or
    on --topics. The table of what was tried goes to stdout.
    """

    index: Path = option(help="directory of a Seismic index")
    recall: float = option(
        0.95, above=0, maximum=1, help="share of the exact search's best documents that must be found"
    )
    hits: int = option(10, help="how many are the best: the k of recall@k, up to 100")
    topics: Path | None = option(None, help="vector store of topics to measure recall on; needs --vectors")
    vectors: Path | None = option(None, help="with --topics: the vector store that the index was built of")


def command(options: Options) -> None:
    """Try, print the table, and write the pair down. Raises MilcoError if no pair reaches the recall."""
    from milco_pyserini.index import open_index
    from milco_pyserini.index.recall import DEEPEST, read_truth, report, write_truth

    if not 1 <= options.hits <= DEEPEST:
        raise MilcoError(f"--hits {options.hits}: must be from 1 to {DEEPEST}")
    if (options.topics is None) != (options.vectors is None):
        raise MilcoError("--topics and --vectors go together: the topics' best documents are found in the vectors")
    index = open_index(options.index)
    if "query_cut" not in index.manifest.get("search_settings", {}):
        raise MilcoError(f"{index.path}: {index.engine.name} has nothing to tune, seismic has")
    index.engine.available()
    fresh = _truth_of_topics(options, index)
    truth = fresh or read_truth(index.path)
    query_cut, heap_factor = _fastest(index, truth, options)
    settings = {"query_cut": query_cut, "heap_factor": heap_factor}
    say(f"{index.path} searches with query_cut {query_cut} and heap_factor {heap_factor:g} from now on")
    if fresh:
        write_truth(index.path, fresh)
    index.write_down(settings, report(index.searcher(settings), truth))


def _truth_of_topics(options: Options, index: "Index") -> "Truth | None":
    from milco_pyserini.index.recall import truth_of_topics
    from milco_pyserini.sparse import open_store

    if options.topics is None or options.vectors is None:
        return None
    return truth_of_topics(_as_indexed(index, open_store(options.vectors)), open_store(options.topics))


def _as_indexed(index: "Index", store: "VectorStore | PlainStore") -> "Store":
    """The vectors as the index has them, pruned and with its views. Raises MilcoError if they are others."""
    from milco_pyserini.sparse.pruning import PrunedStore, PruningRule

    ours, theirs = index.vectors, store.manifest
    before, after = theirs.get("pruning") or "", ours.get("pruning") or ""
    if ours.get("parts") != theirs.get("parts") or not after.startswith(before):
        raise MilcoError(f"{index.path} was not built of {store.path}: give the --vectors that it was built of")
    views = ours.get("views") if ours.get("views") != theirs.get("views") else None
    return PrunedStore(store, [PruningRule.parse(rule) for rule in after[len(before) :].split()], views or ())


def _fastest(index: "Index", truth: "Truth", options: Options) -> Pair:
    """The pair that reaches the recall soonest; every pair that was tried is written out, and what it gave."""
    from milco_pyserini.index.recall import measure

    loaded = index.searcher()

    def searcher(pair: Pair) -> "Searcher":
        return loaded.adjusted(*pair)  # type: ignore[attr-defined]

    def tried(pair: Pair) -> "Measured":
        measured = measure(searcher(pair), truth, options.hits, 1)
        sys.stdout.write(f"{pair[0]}\t{pair[1]:g}\t{measured.recall:.4f}\t{measured.milliseconds:.4f}\n")
        return measured

    sys.stdout.write(f"query_cut\theap_factor\trecall@{options.hits}\tmilliseconds\n")
    all_tried = try_pairs(tried, options.recall)
    good = {pair: one.milliseconds for pair, one in all_tried.items() if one.recall >= options.recall}
    if not good:
        pair, best = max(all_tried.items(), key=lambda one: one[1].recall)
        raise MilcoError(
            f"--recall {options.recall:g}: the most that {index.path} reaches is {best.recall:.4f}, with query_cut "
            f"{pair[0]} and heap_factor {pair[1]:g}: build it with a larger --n-postings"
        )
    finalists = sorted(good, key=good.__getitem__)[:_FINALISTS]
    # In turn: on a machine that also does other work, one reading of the clock proves little.
    for _ in range(_FINAL_ROUNDS):
        for pair in finalists:
            good[pair] = min(good[pair], measure(searcher(pair), truth, options.hits, 1).milliseconds)
    return min(finalists, key=good.__getitem__)


def try_pairs(measured: "Callable[[Pair], Measured]", recall: float) -> "dict[Pair, Measured]":
    """What each pair gives. A lower heap_factor and a larger query_cut find more and take longer: of a query_cut, those
    below the first heap_factor that finds enough are spared, and once the highest does, all larger query_cuts.
    """
    results = {}
    for query_cut in _QUERY_CUTS:
        for heap_factor in _HEAP_FACTORS:
            results[query_cut, heap_factor] = one = measured((query_cut, heap_factor))
            if one.recall >= recall:
                break
        if results[query_cut, _HEAP_FACTORS[0]].recall >= recall:
            break
    return results
