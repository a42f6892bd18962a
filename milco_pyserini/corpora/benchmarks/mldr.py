"""MLDR: long documents in thirteen languages, from the publisher's repository.

The paper splits documents into passages of 512 tokens and scores a document by its best one: encode --split-passages.
"""

from milco_pyserini.corpora.benchmark import Benchmark, BenchmarkCorpus, file_topics, size_table
from milco_pyserini.corpora.readers import Judgment, json_reader, jsonl_documents, jsonl_queries
from milco_pyserini.corpora.remote import HubFile, RemoteRecords

_REPOSITORY = "Shitao/MLDR"
_REVISION = "d076455304da5ccf7adf3a644325100062994718"

# Documents, and queries in train, dev and test, according to the repository's card.
_SIZES = size_table("""
ar=7607/1817/200/200 de=10_000/1847/200/200 en=200_000/10_000/200/800 es=9551/2254/200/200 fr=10_000/1608/200/200
hi=3806/1618/200/200 it=10_000/2151/200/200 ja=10_000/2262/200/200 ko=6176/2198/200/200 pt=6569/1845/200/200
ru=10_000/1864/200/200 th=10_000/1970/200/200 zh=200_000/10_000/200/800
""")


def _file(code: str, name: str) -> HubFile:
    return HubFile(_REPOSITORY, f"mldr-v1.0-{code}/{name}.jsonl.gz", _REVISION)


def read_judgments(row: dict) -> list[Judgment]:
    """Return the positive and negative passages of a row."""
    query = str(row["query_id"])
    grades = (("negative_passages", 0), ("positive_passages", 1))
    return [(query, str(passage["docid"]), grade) for field, grade in grades for passage in row[field]]


MLDR = Benchmark(
    name="mldr",
    title="MLDR",
    corpus_names="mldr-LANG",
    topics_names="mldr-LANG-SPLIT",
    languages=tuple(_SIZES),
    license="MIT",
    citation="Chen et al. BGE M3-Embedding: Multi-Lingual, Multi-Functionality, Multi-Granularity Text Embeddings "
    "Through Self-Knowledge Distillation. Findings of ACL 2024",
    source=f"Hugging Face hub: {_REPOSITORY} at {_REVISION[:10]}",
    field_rule="text",
    corpora={
        f"mldr-{code}": BenchmarkCorpus(RemoteRecords(jsonl_documents, [_file(code, "corpus")]), code, sizes[0])
        for code, sizes in _SIZES.items()
    },
    topics={
        f"mldr-{code}-{split}": file_topics(_file(code, split), jsonl_queries, json_reader(read_judgments), count)
        for code, sizes in _SIZES.items()
        for split, count in zip(("train", "dev", "test"), sizes[1:], strict=True)
    },
    note="long documents: use milco encode --split-passages, so that the best passage of a document counts",
)
