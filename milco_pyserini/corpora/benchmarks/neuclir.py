"""NeuCLIR's topics as NeuCLIRBench publishes them on the hub: of three years, title and description in English.

Documents and the topics of 2022, with the title alone, are NeuCLIR's own (names.py, through ir_datasets; from a copy of
their publishers' files DOCUMENTS and TITLES read them). Titles of 2023 come from NIST's files: ir_datasets keeps those
that 2022 judged in a language, which are none. In the bench's one file are the topics of all three years, and their
numbers tell the years apart.
"""

from collections.abc import Callable
from pathlib import Path

from milco_pyserini.corpora.collection import Source
from milco_pyserini.corpora.jsonl import jsonl_documents
from milco_pyserini.corpora.names import CORPORA, NEUCLIR_LANGUAGES, TOPICS
from milco_pyserini.corpora.origin import (
    CorpusOrigin,
    Family,
    Lines,
    TopicsOrigin,
    documents,
    json_reader,
    judged_topics,
    trec_judgements,
)
from milco_pyserini.corpora.records import BadLineError, Query, record_id, text_of
from milco_pyserini.corpora.remote import HubFile, Member, WebFile, lines
from milco_pyserini.corpora.tsv import tsv_queries
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.qrels import Qrels, qrels_of_lines

REPOSITORY = "neuclir/bench"
_QUERIES = HubFile(REPOSITORY, "data/news.eng.tsv")
_YEARS = {"2022": range(200), "2023": range(200, 300), "2024": range(300, 400)}
# In NIST's file, by ir_datasets.
_TOPICS_OF_2023 = 76
# Topics of 2022 were not judged across languages.
_JUDGED = {"multi": ("2023", "2024"), **dict.fromkeys(("zho", "fas", "rus"), tuple(_YEARS))}


def _qrels(language: str, year: str) -> Callable[[Path | None], Qrels]:
    file = HubFile(REPOSITORY, f"data/qrels.{'mlir' if language == 'multi' else language}.gains.txt")
    every = trec_judgements(file)

    def read(copy: Path | None) -> Qrels:
        found = every(copy)
        qrels = {query: grades for query, grades in found.items() if query.isdigit() and int(query) in _YEARS[year]}
        if not qrels:
            numbers = _YEARS[year]
            raise MilcoError(f"{file} judges no topic of {year} (numbers {numbers.start} to {numbers.stop - 1})")
        return qrels

    return read


def _topics(language: str, year: str) -> TopicsOrigin:
    def every(copy: Path | None) -> Source[Query]:
        return Lines([_QUERIES], copy, tsv_queries, "title + ' ' + description")

    return judged_topics(every, _qrels(language, year))


_BENCH = {f"{language}-{year}": _topics(language, year) for language, years in _JUDGED.items() for year in years}
# 2024 is nowhere else; so it goes by the short name too, and by ISO 639-1 as the other years do.
_SHORT = {
    zho: next(name for name in _JUDGED if NEUCLIR_LANGUAGES.get(name) == zh) for zho, zh in NEUCLIR_LANGUAGES.items()
}


# Files of the track -> where ir_datasets keeps them, and their MD5 in its downloads.json (0.6.3).
_NIST = {
    "2022/topics.0720.utf8.jsonl": ("trec-2022/topics.jsonl", "264bf244f798670f063f32ff57ba6135"),
    "2022/2022-qrels.all": ("trec-2022/qrels", "8dc1aecf13fbe358eea74ade7496b085"),
    "2023/neuclir-2023-topics.0605.jsonl": ("trec-2023/topics.jsonl", "3dbb41b02bfbd719d8b55632d9b15b83"),
    "2023/neuclir-2023-qrels.final.tar.gz": ("trec-2023/qrels.tar.gz", "cea4ff3d9eba612c7119e6490217d4e1"),
}


def _nist(path: str) -> WebFile:
    kept, checksum = _NIST[path]
    url = f"https://trec.nist.gov/data/neuclir/{path}"
    return WebFile(url, "neuclir", path.split("/")[1], checksum, also=(f"neuclir/{kept}",))


def _titled(row: dict) -> Query:
    for topic in row["topics"]:
        if topic["lang"] == "eng":
            return Query(record_id(row["topic_id"]), text_of(topic["topic_title"], "topic_title"))
    raise BadLineError("no topic in English")


def _titles(copy: Path | None, file: WebFile) -> Source[Query]:
    return Lines([file], copy, json_reader(_titled), "title")


def _titles_2022(language: str) -> TopicsOrigin:
    """All languages share a file of topics, and one of judgements whose second column is the language."""
    topics = _nist("2022/topics.0720.utf8.jsonl")
    every = _nist("2022/2022-qrels.all")

    def qrels(copy: Path | None) -> Qrels:
        own = ((number, line) for number, line in lines(every, copy) if line.split()[1:2] == [language.encode()])
        return qrels_of_lines(own, every.path)

    return judged_topics(lambda copy: _titles(copy, topics), qrels)


def _titles_2023(language: str) -> TopicsOrigin:
    topics = _nist("2023/neuclir-2023-topics.0605.jsonl")
    archive = _nist("2023/neuclir-2023-qrels.final.tar.gz")
    member = "qrels.final.gains" if language == "multi" else f"qrels.final.gains.{language}"
    return TopicsOrigin(lambda copy: _titles(copy, topics), trec_judgements(Member(archive, member)), _TOPICS_OF_2023)


def _documents(*languages: str) -> CorpusOrigin:
    files = (
        HubFile("neuclir/neuclir1", f"data/{one}-00000-of-00001.jsonl.gz", also=(f"neuclir/1/{one}/docs.jsonl.gz",))
        for one in languages
    )
    return CorpusOrigin(documents(jsonl_documents, "title + ' ' + text", *files))


# By their ids of ir_datasets.
_IDS = {short: language for language, short in NEUCLIR_LANGUAGES.items() if language != short}
DOCUMENTS = {
    **{f"neuclir/1/{short}": _documents(language) for short, language in _IDS.items()},
    "neuclir/1/multi": _documents(*_IDS.values()),
}
TITLES = {f"neuclir/1/{short}/trec-2022": _titles_2022(language) for short, language in _IDS.items()}

FAMILIES = (
    Family(
        name="neuclir",
        title="NeuCLIR, TREC 2022 to 2024",
        patterns=("neuclir-LANG, neuclir-multi", "neuclir-LANG-YEAR, neuclir-multi-YEAR, neuclir-bench-LANG-YEAR"),
        languages=("zho", "fas", "rus", "multi"),
        licence="ODC-BY (documents), CC BY 4.0 (NeuCLIRBench)",
        source=f"ir_datasets neuclir; of 2024 and neuclir-bench-*, Hugging Face hub: {REPOSITORY}, branch main",
        field_rule="title + ' ' + text",
        corpora={name: place for name, place in CORPORA.items() if name.startswith("neuclir-")},
        topics={
            **{name: place for name, place in TOPICS.items() if name.startswith("neuclir-")},
            **{f"neuclir-{code}-2023": _titles_2023(_IDS[short]) for code, short in NEUCLIR_LANGUAGES.items()},
            "neuclir-multi-2023": _titles_2023("multi"),
            **{f"neuclir-bench-{name}": origin for name, origin in _BENCH.items()},
            **{f"neuclir-{short}-2024": _BENCH[f"{long}-2024"] for short, long in _SHORT.items()},
            "neuclir-multi-2024": _BENCH["multi-2024"],
        },
        note="the measure is nDCG@20; queries of neuclir-* of 2022 and 2023 are titles, others title and description",
        unconfirmed="that the topics of 2024 are those with the numbers from 300; NIST's own files of 2024",
    ),
)
