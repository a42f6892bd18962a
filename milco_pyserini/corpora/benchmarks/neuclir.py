"""NeuCLIR: English queries against Chinese, Persian and Russian news, TREC 2022 to 2024.

Documents and the topics of 2022 (titles) come from ir_datasets. Titles of 2023 come from NIST's files: ir_datasets
keeps those that have judgments of 2022 in a language, which are none. NeuCLIRBench (neuclir-bench-*) has the topics of
all years with title and description in one file, where the numbers determine the year.
"""

from milco_pyserini.corpora.benchmark import Benchmark, BenchmarkTopics, dataset_corpus, dataset_topics, language_code
from milco_pyserini.corpora.readers import json_reader, tsv_queries
from milco_pyserini.corpora.records import BadLineError, Query, record_id, text_of
from milco_pyserini.corpora.remote import ArchiveMember, HubFile, RemoteQrels, RemoteRecords, WebFile

_BENCH = "neuclir/bench"
_LANGUAGES = ("zho", "fas", "rus")
# Numbers of the topics of each year in NeuCLIRBench.
_YEARS = {"2022": range(200), "2023": range(200, 300), "2024": range(300, 400)}
# Files of the track -> MD5 in ir_datasets' downloads.json (0.6.3).
_NIST = {
    "2023/neuclir-2023-topics.0605.jsonl": "3dbb41b02bfbd719d8b55632d9b15b83",
    "2023/neuclir-2023-qrels.final.tar.gz": "cea4ff3d9eba612c7119e6490217d4e1",
}


def _topics_2023(language: str) -> BenchmarkTopics:
    topics, archive = (
        WebFile(f"https://trec.nist.gov/data/neuclir/{path}", "neuclir", path.removeprefix("2023/"), checksum)
        for path, checksum in _NIST.items()
    )
    qrels = ArchiveMember(archive, "qrels.final.gains" if language == "multi" else f"qrels.final.gains.{language}")
    return BenchmarkTopics(RemoteRecords(json_reader(read_english_title), [topics], "title"), RemoteQrels([qrels]), 76)


def read_english_title(row: dict) -> Query:
    """Return the English title of a topic."""
    for topic in row["topics"]:
        if topic["lang"] == "eng":
            return Query(record_id(row["topic_id"]), text_of(topic["topic_title"], "topic_title"))
    raise BadLineError("no topic in English")


def _bench_topics(language: str, year: str) -> BenchmarkTopics:
    qrels = HubFile(_BENCH, f"data/qrels.{'mlir' if language == 'multi' else language}.gains.txt")
    queries = RemoteRecords(tsv_queries, [HubFile(_BENCH, "data/news.eng.tsv")], "title + ' ' + description")
    return BenchmarkTopics(queries, RemoteQrels([qrels], keep=frozenset(map(str, _YEARS[year]))), judged_only=True)


def _topics() -> dict[str, BenchmarkTopics]:
    # 2022 has no judgments across languages.
    topics = {f"neuclir-bench-multi-{year}": _bench_topics("multi", year) for year in ("2023", "2024")}
    topics |= {"neuclir-multi-2023": _topics_2023("multi"), "neuclir-multi-2024": topics["neuclir-bench-multi-2024"]}
    for language in _LANGUAGES:
        topics |= {f"neuclir-bench-{language}-{year}": _bench_topics(language, year) for year in _YEARS}
        years = {
            "2022": dataset_topics(f"neuclir/1/{language_code(language)}/trec-2022"),
            "2023": _topics_2023(language),
            "2024": topics[f"neuclir-bench-{language}-2024"],
        }
        for spelling in (language, language_code(language)):
            topics |= {f"neuclir-{spelling}-{year}": queries for year, queries in years.items()}
    return topics


NEUCLIR = Benchmark(
    name="neuclir",
    title="NeuCLIR, TREC 2022 to 2024",
    corpus_names="neuclir-LANG, neuclir-multi",
    topics_names="neuclir-LANG-YEAR, neuclir-multi-YEAR, neuclir-bench-LANG-YEAR",
    languages=(*_LANGUAGES, "multi"),
    license="ODC-BY (documents), CC BY 4.0 (NeuCLIRBench)",
    citation="Lawrie et al. Overview of the TREC 2022 NeuCLIR Track. TREC 2022; Lawrie et al. NeuCLIRBench: A Modern "
    "Evaluation Collection for Monolingual, Cross-Language, and Multilingual Information Retrieval. arXiv:2511.14758, "
    "2025",
    source="ir_datasets neuclir; titles of 2023: NIST; 2024 and neuclir-bench-*: Hugging Face hub, "
    f"{_BENCH}, branch main",
    # Both spellings of a language are accepted.
    corpora={
        "neuclir-multi": dataset_corpus("neuclir/1/multi", None),
        **{
            f"neuclir-{spelling}": dataset_corpus(f"neuclir/1/{language_code(language)}", language_code(language))
            for language in _LANGUAGES
            for spelling in (language, language_code(language))
        },
    },
    topics=_topics(),
    note="the measure is nDCG@20; queries of neuclir-* of 2022 and 2023 are titles, others title and description",
    unconfirmed="that the topics of 2024 are those numbered from 300; NIST's own files of 2024",
)
