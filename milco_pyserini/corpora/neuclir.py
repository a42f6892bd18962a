"""NeuCLIR's topics as NeuCLIRBench publishes them on the hub: of three years, title and description in English.

Documents are NeuCLIR's own (names.py, through ir_datasets). Topics of 2022 and 2023 stand there too, as neuclir-*, with
the title alone. In one file are the topics of all three years, and their numbers tell the years apart.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from milco_pyserini.corpora.collection import OnBad
from milco_pyserini.corpora.names import CORPORA, NEUCLIR_LANGUAGES, TOPICS
from milco_pyserini.corpora.origin import Family, Lines, TopicsOrigin
from milco_pyserini.corpora.qrels import Qrels, read_qrels
from milco_pyserini.corpora.records import Query
from milco_pyserini.corpora.remote import HubFile, located
from milco_pyserini.corpora.tsv import tsv_queries
from milco_pyserini.errors import MilcoError

REPOSITORY = "neuclir/bench"
_QUERIES = HubFile(REPOSITORY, "data/news.eng.tsv")
_YEARS = {"2022": range(200), "2023": range(200, 300), "2024": range(300, 400)}
# Topics of 2022 were not judged across languages.
_JUDGED = {"multi": ("2023", "2024"), **dict.fromkeys(("zho", "fas", "rus"), tuple(_YEARS))}


def _qrels(language: str, year: str) -> Callable[[Path | None], Qrels]:
    file = HubFile(REPOSITORY, f"data/qrels.{'mlir' if language == 'multi' else language}.gains.txt")

    def read(copy: Path | None) -> Qrels:
        found = read_qrels(located(file, copy))
        qrels = {query: grades for query, grades in found.items() if query.isdigit() and int(query) in _YEARS[year]}
        if not qrels:
            numbers = _YEARS[year]
            raise MilcoError(f"{file} judges no topic of {year} (numbers {numbers.start} to {numbers.stop - 1})")
        return qrels

    return read


class _JudgedQueries(Lines[Query]):
    def __init__(self, copy: Path | None, qrels: Callable[[Path | None], Qrels]) -> None:
        super().__init__([_QUERIES], copy, tsv_queries, "title + ' ' + description")
        self._judged = lambda: qrels(copy).keys()

    def read(self, bad: OnBad) -> Iterator[tuple[str, int, Query]]:
        """Yield (file, line, query) of the topics that are judged."""
        judged = self._judged()
        return (found for found in super().read(bad) if found[2].id in judged)


def _topics(language: str, year: str) -> TopicsOrigin:
    qrels = _qrels(language, year)
    return TopicsOrigin(lambda copy: _JudgedQueries(copy, qrels), qrels)


_BENCH = {f"{language}-{year}": _topics(language, year) for language, years in _JUDGED.items() for year in years}
# 2024 is nowhere else; so it goes by the short name too, and by ISO 639-1 as the other years do.
_SHORT = {
    zho: next(name for name in _JUDGED if NEUCLIR_LANGUAGES.get(name) == zh) for zho, zh in NEUCLIR_LANGUAGES.items()
}

FAMILIES = (
    Family(
        name="neuclir",
        title="NeuCLIR, TREC 2022 to 2024",
        patterns=("neuclir-LANG, neuclir-multi", "neuclir-LANG-YEAR, neuclir-multi-YEAR, neuclir-bench-LANG-YEAR"),
        languages=("zho", "fas", "rus", "multi"),
        licence="ODC-BY (documents), CC BY 4.0 (NeuCLIRBench)",
        source=f"ir_datasets neuclir; of 2024 and neuclir-bench-*, Hugging Face hub: {REPOSITORY}",
        field_rule="title + ' ' + text",
        corpora={name: place for name, place in CORPORA.items() if name.startswith("neuclir-")},
        topics={
            **{name: place for name, place in TOPICS.items() if name.startswith("neuclir-")},
            **{f"neuclir-bench-{name}": origin for name, origin in _BENCH.items()},
            **{f"neuclir-{short}-2024": _BENCH[f"{long}-2024"] for short, long in _SHORT.items()},
            "neuclir-multi-2024": _BENCH["multi-2024"],
        },
        note="the measure is nDCG@20; queries of neuclir-* of 2022 and 2023 are titles, others title and description",
        unconfirmed="that the topics of 2024 are those with the numbers from 300; NIST's own files of 2024",
    ),
)
