"""Find the files of a corpus or of topics in a directory, recognize their format, and read their records."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Generic, Literal

import orjson

from milco_pyserini.console import counted, log, warn
from milco_pyserini.corpora.collection import OnBad, RecordT
from milco_pyserini.corpora.readers import (
    Reader,
    jsonl_documents,
    jsonl_queries,
    trec_queries,
    tsv_documents,
    tsv_queries,
)
from milco_pyserini.corpora.records import Document, Query
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import visible_files
from milco_pyserini.io.lines import first_line, numbered_lines

DOCUMENT_READERS: dict[str, Reader[Document]] = {"JSONL": jsonl_documents, "TSV": tsv_documents}
QUERY_READERS: dict[str, Reader[Query]] = {"JSONL": jsonl_queries, "TSV": tsv_queries, "TREC topics": trec_queries}

_FORMATS = {".jsonl": "JSONL", ".json": "JSONL", ".ndjson": "JSONL", ".tsv": "TSV", ".trec": "TREC topics"}
_OTHER_FORMATS = {b"PAR1": "a Parquet file", b"PK\x03\x04": "a ZIP archive"}
_BEIR_FILES = {"corpus": "corpus.jsonl", "topics": "queries.jsonl"}
# Names of files and directories that hold records of another kind.
_QRELS = r"qrels?|answers?"
_OTHER_KINDS = {
    "corpus": re.compile(rf"(quer(y|ies)|topics?|{_QRELS})(?![a-z])", re.IGNORECASE),
    "topics": re.compile(rf"(corpus|corpora|collection|doc(ument)?s|passages|{_QRELS})(?![a-z])", re.IGNORECASE),
}
_OTHER_COMPRESSION = (".bz2", ".xz", ".zip", ".zst")
_MAX_LISTED = 8


class LocalRecords(Generic[RecordT]):
    """The records of local files, one file after the other, as a RecordSource.

    The ending of a file determines its format; the first line does where the ending does not (.txt).
    """

    def __init__(self, files: Sequence[Path], readers: Mapping[str, Reader[RecordT]], field_rule: str) -> None:
        self.field_rule = field_rule
        self._files: list[tuple[Path, Reader[RecordT]]] = []
        for path in files:
            file_format = _format_of(path)
            if file_format not in readers:
                raise MilcoError(f"{path} is in the format {file_format}: expected {' or '.join(readers)}")
            self._files.append((path, readers[file_format]))

    def read(self, bad: OnBad) -> Iterator[tuple[str, int, RecordT]]:
        """Yield (file, line number, record)."""
        for path, reader in self._files:
            where = str(path)
            for number, record in reader(numbered_lines(path, partial(bad, where)), partial(bad, where)):
                yield where, number, record


def local_documents(path: Path) -> LocalRecords[Document]:
    """Return the documents of a JSONL or TSV file, or of the files that find_files() finds in a directory."""
    files = find_files(path, "corpus")
    rule = "title + ' ' + text"
    if any(_format_of(file) != "TSV" for file in files):
        rule = f"contents, or else {rule}"
    return LocalRecords(files, DOCUMENT_READERS, rule)


def local_queries(path: Path) -> LocalRecords[Query]:
    """Return the queries of a TSV, JSONL or TREC topic file, or of the files that find_files() finds."""
    files = find_files(path, "topics")
    names = first_object(files).keys()
    if "contents" in names or {"title", "text"} <= names:
        _warn_once(f"{path} looks like a corpus, by the fields of its first line: its documents are read as queries")
    return LocalRecords(files, QUERY_READERS, "text")


def first_object(files: Sequence[Path]) -> dict[str, Any]:
    """Return the JSON object in the first line of files; an empty one if that is anything else."""
    try:
        record = orjson.loads(first_line(files[0]))
    except orjson.JSONDecodeError:
        return {}
    return record if isinstance(record, dict) else {}


def find_files(path: Path, kind: Literal["corpus", "topics"]) -> list[Path]:
    """Return the files to read: path itself, or of a directory those at any depth, sorted, with a known ending.

    A directory may hold a corpus with its topics and qrels: files and directories whose names begin like another kind
    (queries, topics, qrels, answers; corpus, docs, ...) are skipped. In BEIR's layout only corpus.jsonl or
    queries.jsonl is read. The choice is reported.

    Raises:
        MilcoError: there is no such file, the files differ in format, or path can be read only once (a pipe).
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise MilcoError(f"{path} is not a regular file: it is read more than once. Save it to a file first.")
    visible = visible_files(path)
    readable = [file for file in visible if _ending(file) in _FORMATS]
    for file in visible:
        if file.suffix.lower() in _OTHER_COMPRESSION and _ending(file.with_suffix("")) in _FORMATS:
            raise MilcoError(
                f"{file} is compressed, which only .gz files may be: decompress it, or remove it from {path}"
            )
    if not readable:
        raise MilcoError(f"{path} holds no file that ends in {', '.join(_FORMATS)} (or these with .gz)")
    top = {file.name.lower().removesuffix(".gz"): file for file in readable if file.parent == path}
    if top.keys() >= set(_BEIR_FILES.values()):
        files = [top[_BEIR_FILES[kind]]]
    else:
        files = [file for file in readable if not any(map(_OTHER_KINDS[kind].match, file.relative_to(path).parts))]
    read = set(files)
    skipped = _listed(path, [file for file in visible if file not in read])
    if not files:
        raise MilcoError(f"{path} holds no {kind}, judging by the names of its files: {skipped}. Pass the file itself.")
    formats = {_FORMATS[_ending(file)]: file.relative_to(path) for file in reversed(files)}
    if len(formats) > 1:
        two = " and ".join(f"{file} ({name})" for name, file in list(formats.items())[:2])
        raise MilcoError(f"{path} mixes formats, such as {two}: a directory must have one. Pass the files themselves.")
    note = f"; not read as {kind}: {skipped}" if skipped else ""
    _log_once(f"{path}: reading {counted(len(files), 'file')}: {_listed(path, files)}{note}")
    return files


# Topics are opened a second time if they turn out to be texts.
_log_once, _warn_once = cache(log), cache(warn)


def _listed(directory: Path, files: list[Path]) -> str:
    names = [str(file.relative_to(directory)) for file in files]
    return ", ".join(names if len(names) <= _MAX_LISTED else [*names[: _MAX_LISTED - 1], "...", names[-1]])


def _format_of(path: Path) -> str:
    if _ending(path) in _FORMATS:
        return _FORMATS[_ending(path)]
    start = first_line(path).lstrip()
    for magic, name in _OTHER_FORMATS.items():
        if start.startswith(magic):
            raise MilcoError(f"{path} is {name}: expected a file of lines in {', '.join(_FORMATS)} or .txt")
    if start.startswith(b"{"):
        return "JSONL"
    if _ending(path) == ".csv" and b"\t" not in start:
        raise MilcoError(f"{path} is CSV, which is not read: write JSONL, or TSV with a tab between id and text")
    return "TREC topics" if start.lower().startswith(b"<top>") else "TSV"


def _ending(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix
