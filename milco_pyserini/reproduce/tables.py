"""The paper's tables of effectiveness: a column for each language, task or data set."""

from collections.abc import Mapping, Sequence

from milco_pyserini.reproduce.cells import Cell, Table, effect, effect_cells, labelled, mean_cells, others
from milco_pyserini.reproduce.published import Figures, published, renamed, turned
from milco_pyserini.reproduce.records import BARS
from milco_pyserini.reproduce.roads import Collection, Roads
from milco_pyserini.reproduce.systems import System

MIRACL = "ar bn en es fa fi fr hi id ja ko ru sw te th zh de yo".split()
MLDR = "ar de en es fr hi it ja ko pt ru th zh".split()
MKQA = "ar da de es fi fr he hu it ja km ko ms nl no pl pt ru sv th tr vi zh_cn zh_hk zh_tw".split()
NEUCLIR = {"mlir_2023": "neuclir-bench-multi-2023", "mlir_2024": "neuclir-bench-multi-2024"}
BEIR = {
    "ArguAna": "beir-arguana-test",
    "FiQA2018": "beir-fiqa-test",
    "NFCorpus": "beir-nfcorpus-test",
    "QuoraRetrieval": "beir-quora-test",
    "SCIDOCS": "beir-scidocs-test",
    "SciFact": "beir-scifact-test",
    "TRECCOVID": "beir-trec-covid-test",
    "Touche2020": "beir-webis-touche2020-test",
    "ClimateFEVER": "beir-climate-fever-test",
    "DBPedia": "beir-dbpedia-entity-test",
    "FEVER": "beir-fever-test",
    "HotpotQA": "beir-hotpotqa-test",
    "MSMARCO": "beir-msmarco-dev",
    "NQ": "beir-nq-test",
}
# Of millions of documents: the paper's second average.
LARGE = tuple(BEIR)[8:]
# Their topics stand among their documents.
OF_ITSELF = ("ArguAna", "QuoraRetrieval")
LIMIT = {"recall@2": "R@2", "recall@10": "R@10", "recall@100": "R@100"}

Systems = Sequence[System]
Columns = Sequence[str]


def miracl_collections(name: str, columns: Columns) -> dict[str, Collection]:
    """MIRACL's dev topics on its passages (miracl), or on MTEB's hard negatives (miracl-hn), by language."""
    return {code: Collection(f"{name}-{code}", f"{name}-{code}-dev", code) for code in columns}


def miracl(roads: Roads, systems: Systems, columns: Columns) -> list[Table]:
    """MIRACL, with the configurations."""
    caption = "Topics of MIRACL's dev sets on all of its passages."
    return [_miracl("miracl", "MIRACL", caption, roads, systems, columns)]


def miracl_hn(roads: Roads, systems: Systems, columns: Columns) -> list[Table]:
    """The same on MTEB's hard negatives, a hundredth of the documents."""
    caption = (
        "MTEB's selection of MIRACL's topics and passages, as the authors' evaluation code reads it, beside what the "
        "paper prints for MIRACL's dev sets."
    )
    return [_miracl("miracl-hn", "MIRACL, hard negatives", caption, roads, systems, columns)]


def _miracl(name: str, title: str, caption: str, roads: Roads, systems: Systems, columns: Columns) -> Table:
    collections, means = miracl_collections(name, columns), {"avg": MIRACL}
    return _table(name, title, caption, roads, systems, collections, published("miracl"), "miracl", means)


def mldr(roads: Roads, systems: Systems, columns: Columns) -> list[Table]:
    """MLDR: documents in passages of 512 tokens, the best of which counts."""
    by_language = published("mldr")
    # The two tables write some names with and without spaces.
    names = {row.replace(" - ", "-"): row for row, _ in by_language}
    averages = {(names.get(row, row), column): value for (row, column), value in published("mldr_avg").items()}
    collections = {code: Collection(f"mldr-{code}", f"mldr-{code}-test", code, split=True) for code in columns}
    caption = (
        "Long documents. MILCO and SPLADE encode passages of 512 tokens, and a document's best passage counts; BGE-M3 "
        "reads 8,192 tokens at once, BM25 whole documents."
    )
    figures = {**by_language, **averages}
    return [_table("mldr", "MLDR", caption, roads, systems, collections, figures, "mldr", {"avg": MLDR})]


def mkqa(roads: Roads, systems: Systems, columns: Columns) -> list[Table]:
    """MKQA: questions of 25 languages against passages of English Wikipedia."""
    figures = renamed(turned(published("mkqa")), {"Avg": "avg"})
    collections = {
        code: Collection(
            "mkqa", f"mkqa-{code.replace('_', '-')}-test", "en", measure="Success@100", judged_by_answers=True
        )
        for code in columns
    }
    caption = (
        "Questions with an answer that a passage can hold; R@100 in the paper is the share of them with an answer in "
        "the first 100 passages."
    )
    means = {"avg": MKQA}
    return [_table("mkqa", "MKQA", caption, roads, systems, collections, figures, "mkqa", means, "R@100")]


def neuclir(roads: Roads, systems: Systems, columns: Columns) -> list[Table]:
    """NeuCLIR's multilingual task: English topics, documents in Chinese, Persian and Russian."""
    collections = {year: Collection("neuclir-multi", NEUCLIR[year], "en", measure="nDCG@20") for year in columns}
    caption = "English topics (title and description) on news in Chinese, Persian and Russian; the paper's x 100."
    figures, means = published("neuclir", factor=100), {"avg": tuple(NEUCLIR)}
    table = _table(
        "neuclir", "NeuCLIR, MLIR", caption, roads, systems, collections, figures, "neuclir", means, "nDCG@20"
    )
    return [table]


def beir(roads: Roads, systems: Systems, columns: Columns) -> list[Table]:
    """BEIR, in English."""
    means = {"Avg (All)": tuple(BEIR), "Avg (Large)": LARGE}
    published_rows = turned(published("beir", 3))
    # They are headed by name, size and whether MTEB v2 has them.
    names = {head: next(name for name in (*BEIR, *means) if head.startswith(f"{name} ")) for _, head in published_rows}
    figures = renamed(published_rows, names)
    collections = {
        name: Collection(BEIR[name].rpartition("-")[0], BEIR[name], "en", remove_query=name in OF_ITSELF)
        for name in columns
    }
    caption = "English. Large: the six data sets of millions of documents."
    return [_table("beir", "BEIR", caption, roads, systems, collections, figures, "beir", means)]


def limit(roads: Roads, systems: Systems, columns: Columns) -> list[Table]:
    """LIMIT: three depths of one run."""
    figures, label = published("limit", 2), "limit"
    measures, collection = tuple(LIMIT.values()), Collection("limit", "limit-test", "en")
    cells = [
        effect(
            "limit",
            system.title,
            column,
            roads,
            system,
            collection,
            labelled(figures, label)(system, column),
            measures=measures,
            measure=LIMIT[column],
        )
        for system in systems
        for column in columns
    ]
    cells += others("limit", figures, label, {column: LIMIT[column] for column in columns})
    caption = "Simple questions on 50,000 documents, each of which two of them answer."
    return [Table("limit", "LIMIT", caption, tuple(cells), BARS, y_label="recall")]


def _table(
    name: str,
    title: str,
    caption: str,
    roads: Roads,
    systems: Systems,
    collections: Mapping[str, Collection],
    figures: Figures,
    label: str,
    means: Mapping[str, Sequence[str]],
    y_label: str = "nDCG@10",
) -> Table:
    """A row for each system, and one for each other that was published under that label.

    means: columns that are means, and the columns that they are of.
    """
    ours = labelled(figures, label)
    cells: list[Cell] = effect_cells(name, roads, systems, collections, ours)
    for mean, over in means.items():
        cells += mean_cells(name, roads, systems, tuple(collections), over, ours, mean, y_label)
    measures = {column: collection.measure for column, collection in collections.items()}
    cells += others(name, figures, label, measures | dict.fromkeys(means, y_label))
    return Table(name, title, caption, tuple(cells), BARS, y_label=y_label)
