"""The paper's analyses of one model: pruning, the weight of its views, latency, lengths, coverage of the alignment."""

from collections.abc import Mapping, Sequence
from functools import partial

from milco_pyserini.reproduce.cells import (
    DIFFERENCE,
    Cell,
    Table,
    another,
    correlated_length,
    counted_length,
    effect,
    terms_of,
    timed,
)
from milco_pyserini.reproduce.published import Figures, published, renamed
from milco_pyserini.reproduce.records import ANOTHER_MACHINE, CURVE, SCATTER
from milco_pyserini.reproduce.roads import Collection, Roads, Variant
from milco_pyserini.reproduce.systems import DENSE, MILCO, SYSTEMS, System
from milco_pyserini.reproduce.tables import MIRACL, miracl_collections, miracl_hn

TOP_K = (10, 20, 50, 100, 200, 300, 500, 700, 1000)
# The paper's p drops the weakest p per cent of a text's terms by their number, which is our percentile.
PERCENTILES = (10, 20, 50, 70, 80, 85, 90, 95, 97, 99)
MASSES = (0, 10, 30, 50, 60)
ALPHAS = ("0.00", "0.20", "0.40", "0.50", "0.60", "0.80", "1.00")
SEISMIC = "seismic:n_postings=15000,query_cut=10,heap_factor=0.9"
BINS = 10
VIEWS = ("pivot", "source", "both")
AVERAGE = "avg"
OF_THE_DATA = "of the paper's training data: there is nothing to measure"

# Name of its column -> collection.
Collections = Mapping[str, Collection]


def pruning_top_k(roads: Roads, systems: Sequence[System], columns: Sequence[str]) -> list[Table]:
    """Pruning to the k strongest terms, on MIRACL's hard negatives."""
    rules = {str(k): f"top-k:{k}" for k in TOP_K}
    caption = "Only the k strongest terms of a document are indexed. Queries are whole."
    collections = miracl_collections("miracl-hn", columns)
    return [
        pruning("pruning-top-k", "Pruning to k terms", caption, rules, roads, collections, published("pruning_top_k"))
    ]


def pruning_mass(roads: Roads, systems: Sequence[System], columns: Sequence[str]) -> list[Table]:
    """Pruning of the p per cent weakest terms, on MIRACL's hard negatives."""
    rules = {str(p): f"percentile:{p}" for p in PERCENTILES}
    caption = "A document's weakest p per cent of terms, by their number, are not indexed. Queries are whole."
    return [
        pruning(
            "pruning-mass",
            "Pruning by percentile",
            caption,
            rules,
            roads,
            miracl_collections("miracl-hn", columns),
            renamed(published("pruning_mass"), {"tokens": "terms"}),
        )
    ]


def pruning(
    name: str,
    title: str,
    caption: str,
    rules: Mapping[str, str],
    roads: Roads,
    collections: Collections,
    figures: Figures,
) -> Table:
    """A row for each rule: the terms that are left, and the effectiveness on each collection.

    Terms, and the average, are over all languages: of some of MIRACL's there are none.
    """
    milco, cells = SYSTEMS[MILCO], []
    whole = set(collections) == set(MIRACL)
    part = not whole and set(collections) <= set(MIRACL)
    for row, rule in rules.items():
        indexes = [roads.index(milco, collection, rule) for collection in collections.values()]
        steps = tuple(dict.fromkeys(step for index in indexes for step in index.steps))
        read = partial(terms_of, [index.output for index in indexes])
        if not part:
            published_terms = figures.get((row, "terms"))
            cells.append(Cell(name, row, "terms", "terms", published_terms, steps, read, unlike=another(roads, milco)))
        if whole:
            cells.append(_average(name, row, collections, figures, roads))
        cells += _varied(name, row, roads, collections, figures, Variant(prune=rule))
    shown = (AVERAGE, *collections) if whole else tuple(collections)
    return Table(name, title, caption, tuple(cells), CURVE, name.rpartition("-")[2], "nDCG@10", y=shown)


def _varied(
    name: str, row: str, roads: Roads, collections: Collections, figures: Figures, variant: Variant
) -> list[Cell]:
    """MILCO's effectiveness on each collection, with something changed on the way."""
    milco = SYSTEMS[MILCO]
    return [
        effect(name, row, column, roads, milco, collection, figures.get((row, column)), variant)
        for column, collection in collections.items()
    ]


def alpha(roads: Roads, systems: Sequence[System], columns: Sequence[str]) -> list[Table]:
    """The sweep between the views, on MIRACL's hard negatives."""
    collections = miracl_collections("miracl-hn", columns)
    return [views("alpha", "Between the views", roads, collections, published("lexecho_alpha"))]


def views(name: str, title: str, roads: Roads, collections: Collections, figures: Figures) -> Table:
    """A row for each alpha: the score is alpha x pivot view + (1 - alpha) x source view."""
    cells = []
    for row in ALPHAS:
        cells += _varied(name, row, roads, collections, figures, Variant(alpha=row))
        if set(collections) == set(MIRACL):
            cells.append(_average(name, row, collections, figures, roads))
    caption = "alpha x the pivot view's score + (1 - alpha) x the source view's: at 0 the source view alone counts."
    return Table(name, title, caption, tuple(cells), CURVE, "alpha", "nDCG@10")


def _average(name: str, row: str, collections: Collections, figures: Figures, roads: Roads) -> Cell:
    parts = tuple((name, row, column) for column in collections)
    unlike = another(roads, SYSTEMS[MILCO])
    return Cell(name, row, AVERAGE, "nDCG@10", figures.get((row, AVERAGE)), parts=parts, unlike=unlike)


def coverage(roads: Roads, systems: Sequence[System], columns: Sequence[str]) -> list[Table]:
    """How much bitext each language had, and what MILCO gains there on the dense model of the same training data."""
    dense = SYSTEMS["milco-dense"]
    (measured,) = miracl_hn(roads, [SYSTEMS[MILCO], dense], columns)
    figures = published("alignment_coverage")
    keys = {
        title: {code: ("miracl-hn", title, code) for code in columns} for title in (SYSTEMS[MILCO].title, dense.title)
    }
    cells = []
    for code in columns:
        milco = keys[SYSTEMS[MILCO].title][code]
        gain = (milco, keys[dense.title][code])
        unlike = another(roads, SYSTEMS[MILCO])
        cells += [
            Cell("coverage", code, "nDCG@10", "nDCG@10", figures.get((code, "ndcg@10")), parts=(milco,), unlike=unlike),
            Cell(
                "coverage",
                code,
                "gain on dense",
                "nDCG@10",
                figures.get((code, "delta_vs_dense")),
                parts=gain,
                combine=DIFFERENCE,
                unlike=unlike,
            ),
            Cell("coverage", code, "bitext pairs", "pairs", figures.get((code, "bitext_pairs")), quoted=OF_THE_DATA),
            Cell("coverage", code, "% of bitext", "%", figures.get((code, "percentage")), quoted=OF_THE_DATA),
        ]
    caption = "Shares of the paper's alignment data are quoted; there is nothing in them to measure."
    labels = {"x_label": "% of the alignment bitext", "y_label": "nDCG@10"}
    table = Table(
        "coverage", "Alignment coverage", caption, tuple(cells), SCATTER, x="% of bitext", y=("nDCG@10",), **labels
    )
    return [measured, table]


def latency(roads: Roads, systems: Sequence[System], columns: Sequence[str]) -> list[Table]:
    """Latency on English MIRACL, all of it."""
    collections = miracl_collections("miracl", ("en",))
    figures = published("latency_miracl_en", 2)
    named = {(row.rpartition(" ")[0], column): value for (row, column), value in figures.items()}
    return [timings("latency", "Latency", roads, systems, collections["en"], named)]


def timings(
    name: str,
    title: str,
    roads: Roads,
    systems: Sequence[System],
    collection: Collection,
    figures: Figures,
) -> Table:
    """A row for each pruned index of the pivot view with Seismic, and for each dense system with HNSW; on one core."""
    milco = SYSTEMS[MILCO]
    dense = {
        one.title: roads.checkpoints[str(one.checkpoint)] for one in systems if one.kind == DENSE and roads.has(one)
    }
    rules = {f"MILCO (p={p})": f"mass:{p}" if p else "none" for p in MASSES}
    road = roads.latency(milco, collection, SEISMIC, tuple(rules.values()), tuple(dense.values()))
    differs = another(roads, milco)
    kinds = {
        "avg ms": ("avg_ms", "mean_ms", 1.0, ANOTHER_MACHINE),
        "p95 ms": ("p95_ms", "p95_ms", 1.0, ANOTHER_MACHINE),
        "queries/s": ("qps", "queries_per_second", 1.0, ANOTHER_MACHINE),
        "nDCG@10": ("ndcg@10", "nDCG@10", 100.0, ""),
        # Bytes; the paper's are in GB.
        "index MB": ("index_size", "size", 1e-6, ""),
    }
    cells = []
    for row, vectors in (rules | dense).items():
        for column, (label, field, factor, machine) in kinds.items():
            figure = figures.get((row, label))
            if figure is not None and column == "index MB":
                figure *= 1000
            read = partial(timed, road.output, vectors, field, factor)
            cells.append(Cell(name, row, column, column, figure, road.steps, read, unlike=machine or differs))
    caption = "One query at a time on one core, encoded beforehand; Seismic with the paper's settings, pivot view."
    labels = {"x_label": "ms per query", "y_label": "nDCG@10"}
    return Table(name, title, caption, tuple(cells), SCATTER, x="avg ms", y=("nDCG@10",), size="index MB", **labels)


def lengths(roads: Roads, systems: Sequence[System], columns: Sequence[str]) -> list[Table]:
    """Text length against sparsity, on MIRACL's hard negatives: a table for each language."""
    return [
        sparsity(f"lengths-{code}", f"Length against sparsity: {code}", roads, collection)
        for code, collection in miracl_collections("miracl-hn", columns).items()
    ]


def sparsity(name: str, title: str, roads: Roads, collection: Collection) -> Table:
    """Ten bins of documents by length, their terms in each view, and the correlation."""
    milco = SYSTEMS[MILCO]
    road = roads.statistics(milco, collection)
    cells = []
    for number in range(BINS):
        row = f"{number + 1}/{BINS}"
        reads = {"tokens": ("tokens",), **{view: ("terms", view) for view in VIEWS}}
        cells += [
            Cell(
                name,
                row,
                column,
                "tokens" if column == "tokens" else "terms",
                None,
                road.steps,
                partial(counted_length, road.output, number, *keys),
            )
            for column, keys in reads.items()
        ]
    cells += [
        Cell(name, "Pearson's r", view, "r", None, road.steps, partial(correlated_length, road.output, view, "pearson"))
        for view in VIEWS
    ]
    caption = "Documents in ten bins from the shortest, by tokens. The paper prints no figures beside its picture."
    labels = {"x_label": "tokens", "y_label": "terms"}
    return Table(name, title, caption, tuple(cells), SCATTER, x="tokens", y=VIEWS[::-1], **labels)
