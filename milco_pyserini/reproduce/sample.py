"""The offline page: the paper's kinds of tables on the embedded sample, of which the paper knows nothing."""

from collections.abc import Sequence

from milco_pyserini.reproduce.analyses import PERCENTILES, TOP_K, pruning, sparsity, timings, views
from milco_pyserini.reproduce.cells import Cell, Table, effect, effect_cells, mean_cells, nothing
from milco_pyserini.reproduce.records import BARS
from milco_pyserini.reproduce.roads import Collection, Roads
from milco_pyserini.reproduce.systems import MILCO, SYSTEMS, System

LANGUAGES = "ar de en es fi fr hi id ja ko ru sw zh".split()
# One analyzer for thirteen languages: whichever it is, it is the wrong one for most.
POOL = Collection("sample", "sample", "en", lowercase=False)
MEASURES = ("nDCG@10", "R@100")


def sample(roads: Roads, systems: Sequence[System], columns: Sequence[str]) -> list[Table]:
    """Within each language; all passages at once; and, with MILCO, its analyses there."""
    found = [_languages(roads, systems, columns), _pool(roads, systems)]
    return [*found, *_analyses(roads, systems)] if SYSTEMS[MILCO] in systems else found


def _analyses(roads: Roads, systems: Sequence[System]) -> list[Table]:
    """What pruning, the views, latency and lengths are."""
    apart = "The paper's figures are of MIRACL, with milco-650m, and not compared: they are in table"
    collections = {"nDCG@10": POOL}
    return [
        pruning(
            "sample-top-k",
            "Pruning to k terms: sample",
            f"Only the k strongest terms of a document are indexed, all passages at once. {apart} pruning-top-k.",
            {str(k): f"top-k:{k}" for k in TOP_K},
            roads,
            collections,
            {},
        ),
        pruning(
            "sample-percentile",
            "Pruning by percentile: sample",
            f"A document's weakest p per cent of terms are not indexed, all passages at once. {apart} pruning-mass.",
            {str(p): f"percentile:{p}" for p in PERCENTILES},
            roads,
            collections,
            {},
        ),
        views("sample-alpha", "Between the views: sample", roads, collections, {}),
        timings("sample-latency", "Latency: sample", roads, systems, POOL, {}),
        sparsity("sample-lengths", "Length against sparsity: sample", roads, POOL),
    ]


def _languages(roads: Roads, systems: Sequence[System], columns: Sequence[str]) -> Table:
    collections = {code: Collection(f"sample-{code}", f"sample-{code}", code, lowercase=False) for code in columns}
    cells = effect_cells("sample", roads, systems, collections, nothing)
    cells += mean_cells("sample", roads, systems, columns, LANGUAGES, nothing)
    caption = (
        "50 queries of a language on the 50 passages of the same language, which are parallel in all 13. The paper's "
        "configurations have a row here where --systems and --checkpoints name them. Alignment coverage has no table: "
        "a checkpoint does not tell how much bitext of each language it was trained on."
    )
    return Table("sample", "The sample, within each language", caption, tuple(cells), BARS, y_label="nDCG@10")


def _pool(roads: Roads, systems: Sequence[System]) -> Table:
    cells: list[Cell] = [
        effect("sample-pool", system.title, measure, roads, system, POOL, None, measures=MEASURES, measure=measure)
        for system in systems
        for measure in MEASURES
    ]
    caption = "Every query on the 650 passages of all languages at once; its passage is relevant in each of them."
    return Table("sample-pool", "The sample, across languages", caption, tuple(cells), BARS, y_label="points")
