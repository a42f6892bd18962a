"""The embedded sample: short passages on the same 50 subjects in 13 languages, with queries and qrels."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import milco_pyserini.resources
from milco_pyserini.corpora.benchmark import Benchmark, BenchmarkCorpus, BenchmarkTopics
from milco_pyserini.corpora.local_files import QUERY_READERS, LocalRecords
from milco_pyserini.corpora.readers import BadLine, Lines, jsonl_documents
from milco_pyserini.corpora.records import Document
from milco_pyserini.io.qrels import Qrels, read_qrels

# A directory of files, not package data: it is read like any other directory.
ROOT = Path(milco_pyserini.resources.__path__[0]) / "sample"
_LANGUAGES = "ar de en es fi fr hi id ja ko ru sw zh".split()
_SIZE = 50
# sample has all languages, sample-ar has one.
_NAMES = {"sample": _LANGUAGES, **{f"sample-{code}": [code] for code in _LANGUAGES}}


@dataclass(frozen=True)
class SampleQrels:
    """The qrels whose query and document ids begin with the prefix, which is a language or ""."""

    prefix: str

    def read_qrels(self) -> Qrels:
        """Return query id -> document id -> grade."""
        return {
            query: {document: grade for document, grade in grades.items() if document.startswith(self.prefix)}
            for query, grades in read_qrels(ROOT / "qrels.txt").items()
            if query.startswith(self.prefix)
        }


def _read_passages(lines: Lines, bad: BadLine) -> Iterator[tuple[int, Document]]:
    """Read passages; the language, with which each id begins, is their field."""
    for number, passage in jsonl_documents(lines, bad):
        yield number, replace(passage, fields={"lang": passage.id.partition("-")[0]})


def _corpus(codes: list[str]) -> BenchmarkCorpus:
    files = [ROOT / "corpus" / f"{code}.jsonl" for code in codes]
    source = LocalRecords(files, {"JSONL": _read_passages}, "contents, or else title + ' ' + text")
    return BenchmarkCorpus(source, codes[0] if len(codes) == 1 else None, _SIZE * len(codes))


def _topics(codes: list[str]) -> BenchmarkTopics:
    files = [ROOT / "topics" / f"{code}.tsv" for code in codes]
    qrels = SampleQrels(codes[0] if len(codes) == 1 else "")
    return BenchmarkTopics(LocalRecords(files, QUERY_READERS, "text"), qrels, _SIZE * len(codes))


SAMPLE = Benchmark(
    name="sample",
    title="The embedded sample: the same 50 subjects in 13 languages",
    corpus_names="sample, sample-LANG",
    topics_names="sample, sample-LANG",
    languages=tuple(_LANGUAGES),
    license="Apache-2.0",
    citation="milco_pyserini, CITATION.cff",
    source="part of milco_pyserini: read without a network",
    corpora={name: _corpus(codes) for name, codes in _NAMES.items()},
    topics={name: _topics(codes) for name, codes in _NAMES.items()},
    note="the qrels of sample-LANG are within the language; those of sample are across all languages",
)
