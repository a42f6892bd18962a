"""The embedded sample collection: short passages on the same subjects in 13 languages, queries, qrels."""

from collections.abc import Callable
from pathlib import Path

import milco_pyserini.resources
from milco_pyserini.corpora.collection import RecordT, Source
from milco_pyserini.corpora.jsonl import jsonl_documents
from milco_pyserini.corpora.origin import CorpusOrigin, Family, TopicsOrigin
from milco_pyserini.corpora.source_files import FileSource, Reader
from milco_pyserini.corpora.tsv import tsv_queries
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.qrels import Qrels, read_qrels

# Not imported as files of a package: what is read is a directory like any other.
ROOT = Path(milco_pyserini.resources.__path__[0]) / "sample"
ALL = "sample"
_LANGUAGES = "ar de en es fi fr hi id ja ko ru sw zh".split()
_SIZE = 50
# sample is all of them, sample-ar one.
_NAMES = {ALL: _LANGUAGES, **{f"{ALL}-{code}": [code] for code in _LANGUAGES}}
_FIELD_RULE = "contents, or else title + ' ' + text"


def _embedded(
    folder: str, ending: str, codes: list[str], reader: Reader[RecordT], rule: str
) -> Callable[[Path | None], Source[RecordT]]:
    files = [ROOT / folder / f"{code}{ending}" for code in codes]

    def opened(copy: Path | None) -> Source[RecordT]:
        _refuse_copy(copy)
        return FileSource(files, dict.fromkeys(("JSONL", "TSV"), reader), rule)

    return opened


def _qrels(name: str) -> Callable[[Path | None], Qrels]:
    """Of sample all qrels; of sample-ar those of Arabic queries for Arabic documents. Ids begin with the language."""

    def read(copy: Path | None) -> Qrels:
        _refuse_copy(copy)
        qrels = read_qrels(ROOT / "qrels.txt")
        prefix = name.removeprefix(ALL).removeprefix("-")
        return {
            query: {document: grade for document, grade in grades.items() if document.startswith(prefix)}
            for query, grades in qrels.items()
            if query.startswith(prefix)
        }

    return read


def _refuse_copy(copy: Path | None) -> None:
    if copy is not None:
        raise MilcoError(f"{ALL}@{copy}: the sample is embedded and has no copies. Give {ALL}, or the path alone")


FAMILIES = (
    Family(
        name=ALL,
        title="The embedded sample: the same 50 subjects in 13 languages",
        patterns=("sample, sample-LANG", "sample, sample-LANG"),
        languages=tuple(_LANGUAGES),
        licence="Apache-2.0",
        source="part of milco_pyserini: read without a network",
        field_rule="title + ' ' + text",
        corpora={
            name: CorpusOrigin(_embedded("corpus", ".jsonl", codes, jsonl_documents, _FIELD_RULE), _SIZE * len(codes))
            for name, codes in _NAMES.items()
        },
        topics={
            name: TopicsOrigin(
                _embedded("topics", ".tsv", codes, tsv_queries, "text"), _qrels(name), _SIZE * len(codes)
            )
            for name, codes in _NAMES.items()
        },
        note="qrels of sample-LANG are within the language; those of sample are across all of them",
    ),
)
