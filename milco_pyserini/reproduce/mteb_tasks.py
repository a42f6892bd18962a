"""The six retrieval tasks of MTEB v2 in the paper's table: each the mean over its languages, or pairs of languages.

Which pairs and splits count is as in MTEB's task definitions (2.26).
"""

from collections.abc import Callable, Mapping, Sequence

from milco_pyserini.reproduce.cells import Cell, Table, effect_cells, labelled, mean_cells, nothing, others
from milco_pyserini.reproduce.published import published, renamed
from milco_pyserini.reproduce.records import BARS
from milco_pyserini.reproduce.roads import Collection, Roads
from milco_pyserini.reproduce.systems import System

TASKS = {
    "Belebele": "Belebele (M)",
    "MIRACL-HN": "MIRACL-HN (M)",
    "MLQA": "MLQA (C)",
    "Statcan": "Statcan (M)",
    "Twitter": "Twitter (M)",
    "Wiki": "Wiki (C)",
}
AVERAGE = "Avg."
ENGLISH = "eng_Latn"
# Belebele's languages that are written in Latin letters too: the two are searched in each other.
_TWO_SCRIPTS = ("arb_Arab", "ben_Beng", "hin_Deva", "npi_Deva", "sin_Sinh", "urd_Arab")


def belebele_pairs(languages: Sequence[str]) -> list[tuple[str, str]]:
    """Documents' and questions' languages: each with itself, with English both ways, and with its other script."""
    pairs = []
    for language in languages:
        pairs.append((language, language))
        if language != ENGLISH:
            pairs += [(language, ENGLISH), (ENGLISH, language)]
    for language in _TWO_SCRIPTS:
        latin = f"{language[:3]}_Latn"
        pairs += [(language, latin), (latin, language)]
    return pairs


def _belebele() -> dict[str, Collection]:
    from milco_pyserini.corpora.benchmark import language_code
    from milco_pyserini.corpora.benchmarks.belebele import LANGUAGES

    return {
        f"{documents}-{questions}": Collection(
            f"belebele-{documents}", f"belebele-{questions}-test", language_code(documents)
        )
        for documents, questions in belebele_pairs(LANGUAGES)
    }


def _miracl() -> dict[str, Collection]:
    from milco_pyserini.corpora.benchmarks.miracl import LANGUAGES

    return {code: Collection(f"miracl-hn-{code}", f"miracl-hn-{code}-dev", code) for code in LANGUAGES}


def _mlqa() -> dict[str, Collection]:
    from milco_pyserini.corpora.catalog import BENCHMARKS

    return {
        name.removeprefix("mteb-mlqa-"): Collection(name, name, corpus.language or "")
        for name, corpus in BENCHMARKS["mteb-mlqa"].corpora.items()
    }


def _statcan() -> dict[str, Collection]:
    return {
        f"{code}-{split}": Collection(f"mteb-statcan-{code}", f"mteb-statcan-{code}-{split}", code, measure="R@10")
        for code in ("en", "fr")
        for split in ("dev", "test")
    }


def _twitter() -> dict[str, Collection]:
    return {"da": Collection("mteb-twitterhjerne", "mteb-twitterhjerne-train", "da")}


def _wikipedia() -> dict[str, Collection]:
    from milco_pyserini.corpora.catalog import BENCHMARKS

    return {
        code: Collection(f"mteb-wikipedia-{code}", f"mteb-wikipedia-{code}-test", code)
        for code in BENCHMARKS["mteb-wikipedia"].languages
    }


_COLLECTIONS: Mapping[str, Callable[[], dict[str, Collection]]] = {
    "Belebele": _belebele,
    "MIRACL-HN": _miracl,
    "MLQA": _mlqa,
    "Statcan": _statcan,
    "Twitter": _twitter,
    "Wiki": _wikipedia,
}


def mteb(roads: Roads, systems: Sequence[System], columns: Sequence[str]) -> list[Table]:
    """The paper's table, and one for each of its tasks, whose means are its cells."""
    parts = [_task(task, roads, systems) for task in columns]
    by_task = renamed(published("mteb_v2"), {head: task for task, head in TASKS.items()})
    # The paper's other table of averages has more systems.
    figures = {**renamed(published("mteb_v2_avg"), {"avg": AVERAGE}), **by_task}
    ours = labelled(figures, "mteb_v2")
    cells: list[Cell] = []
    for task, part in zip(columns, parts, strict=True):
        cells += [_mean(task, system, part, ours(system, task)) for system in systems]
    cells += mean_cells("mteb-v2", roads, systems, columns, tuple(TASKS), ours, AVERAGE)
    measures = {task: part.cells[0].measure for task, part in zip(columns, parts, strict=True)}
    cells += others("mteb-v2", figures, "mteb_v2", measures | {AVERAGE: "nDCG@10"})
    caption = (
        "M: documents and queries in one language; C: across languages. A task's figure is the mean over its languages "
        "or pairs, in tables of their own; nDCG@10, of Statcan recall@10."
    )
    return [Table("mteb-v2", "MTEB v2, multilingual", caption, tuple(cells), BARS, y_label="points"), *parts]


def _task(task: str, roads: Roads, systems: Sequence[System]) -> Table:
    name = f"mteb-v2-{task.lower()}"
    cells = effect_cells(name, roads, systems, _COLLECTIONS[task](), nothing)
    return Table(
        name, f"MTEB v2: {task}", "Every language, or pair of documents' and queries' languages.", tuple(cells)
    )


def _mean(task: str, system: System, part: Table, figure: float | None) -> Cell:
    mine = [cell for cell in part.cells if cell.row == system.title]
    keys = tuple(cell.key for cell in mine)
    return Cell("mteb-v2", system.title, task, mine[0].measure, figure, parts=keys, unlike=mine[0].unlike)
