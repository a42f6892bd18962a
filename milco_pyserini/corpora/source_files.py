"""Records in files: which files a path stands for, and which format each of them has."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Generic, Literal

from milco_pyserini.console import counted, say
from milco_pyserini.corpora.collection import OnBad, RecordT
from milco_pyserini.corpora.jsonl import jsonl_documents, jsonl_queries
from milco_pyserini.corpora.records import Document, Query
from milco_pyserini.corpora.trec_topics import trec_queries
from milco_pyserini.corpora.tsv import tsv_documents, tsv_queries
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.lines import first_line, numbered_lines

Reader = Callable[[Iterator[tuple[int, bytes]], Callable[[int, str], None]], Iterator[tuple[int, RecordT]]]

_ENDINGS = {".jsonl": "JSONL", ".json": "JSONL", ".ndjson": "JSONL", ".tsv": "TSV", ".trec": "TREC topics"}
# In BEIR's layout these two are next to each other.
_BEIR = {"corpus": "corpus.jsonl", "topics": "queries.jsonl"}
# Names of files and directories that hold something else than what is looked for.
_QRELS = r"qrels?|answers?"
_OTHERS = {
    "corpus": re.compile(rf"(quer(y|ies)|topics?|{_QRELS})(?![a-z])", re.IGNORECASE),
    "topics": re.compile(rf"(corpus|corpora|collection|doc(ument)?s|passages|{_QRELS})(?![a-z])", re.IGNORECASE),
}
_LISTED = 8
_DOCUMENT_READERS: dict[str, Reader[Document]] = {"JSONL": jsonl_documents, "TSV": tsv_documents}
_QUERY_READERS: dict[str, Reader[Query]] = {
    "JSONL": jsonl_queries,
    "TSV": tsv_queries,
    "TREC topics": trec_queries,
}


class FileSource(Generic[RecordT]):
    """The records of files, one after the other.

    The ending tells a file's format, and its first line where the ending says nothing (.txt, say).
    """

    def __init__(self, files: list[Path], readers: Mapping[str, Reader[RecordT]], field_rule: str) -> None:
        self.field_rule = field_rule
        self._files: list[tuple[Path, Reader[RecordT]]] = [(path, _reader(path, readers)) for path in files]

    def read(self, bad: OnBad) -> Iterator[tuple[str, int, RecordT]]:
        """Yield (file, line number, record); a broken line goes to bad."""
        for path, reader in self._files:
            where = str(path)
            for number, record in reader(numbered_lines(path, partial(bad, where)), partial(bad, where)):
                yield where, number, record


def document_files(path: Path) -> FileSource[Document]:
    """The documents of a JSONL or TSV file, or of a directory of such files (files_of)."""
    files = files_of(path, "corpus")
    rule = "contents, or else title + ' ' + text"
    if all(_format(file) == "TSV" for file in files):
        rule = "title + ' ' + text"
    return FileSource(files, _DOCUMENT_READERS, rule)


def query_files(path: Path) -> FileSource[Query]:
    """The queries of a TSV, JSONL or TREC topic file, or of a directory of such files (files_of)."""
    return FileSource(files_of(path, "topics"), _QUERY_READERS, "text")


def files_of(path: Path, kind: Literal["corpus", "topics"]) -> list[Path]:
    """The file itself; of a directory those files, at any depth and in sorted order, whose ending tells their format.

    A directory may hold a corpus, its topics and its qrels: files and directories whose name begins as those of
    another kind do (queries, topics, qrels, answers; corpus, docs, ...) are left out. In BEIR's layout corpus.jsonl or
    queries.jsonl is all that is read. Which files of a directory are read is reported.
    Raises MilcoError if there is none, if they differ in format, or if path can be read only once (a pipe).
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise MilcoError(f"{path} is no regular file: it is read more than once, so save it first")
    found = [file for file in sorted(path.rglob("*")) if file.is_file() and not file.name.startswith(".")]
    found = [file for file in found if _ending(file) in _ENDINGS]
    if not found:
        raise MilcoError(f"no file in {path} ends in {', '.join(_ENDINGS)} (.gz may follow)")
    top = {file.name.removesuffix(".gz"): file for file in found if file.parent == path}
    if top.keys() >= set(_BEIR.values()):
        files = [top[_BEIR[kind]]]
    else:
        files = [file for file in found if not any(map(_OTHERS[kind].match, file.relative_to(path).parts))]
    left_out = _listed(path, [file for file in found if file not in files])
    if not files:
        raise MilcoError(f"{path} holds no {kind}, judging by the names of its files: {left_out}. Give the file itself")
    formats = {_ENDINGS[_ending(file)]: file.relative_to(path) for file in reversed(files)}
    if len(formats) > 1:
        two = " and ".join(f"{file} ({name})" for name, file in list(formats.items())[:2])
        raise MilcoError(
            f"{path} mixes formats, such as {two}: a directory's files have one. Give the files themselves"
        )
    left = f"; not read as {kind}: {left_out}" if left_out else ""
    _say_once(f"{path}: reading {counted(len(files), 'file')}: {_listed(path, files)}{left}")
    return files


# Topics are opened a second time where they turn out to be texts.
_say_once = cache(say)


def _listed(directory: Path, files: list[Path]) -> str:
    names = [str(file.relative_to(directory)) for file in files]
    return ", ".join(names if len(names) <= _LISTED else [*names[: _LISTED - 1], "...", names[-1]])


def _reader(path: Path, readers: Mapping[str, Reader[RecordT]]) -> Reader[RecordT]:
    kind = _format(path)
    if kind not in readers:
        raise MilcoError(f"{path} holds {kind}; what is read here is {' or '.join(readers)}")
    return readers[kind]


def _format(path: Path) -> str:
    known = _ENDINGS.get(_ending(path))
    if known:
        return known
    start = first_line(path).lstrip()
    if start.startswith(b"{"):
        return "JSONL"
    return "TREC topics" if start.lower().startswith(b"<top>") else "TSV"


def _ending(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()
