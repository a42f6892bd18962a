"""Sentence pairs in files of one's own: TSV or JSON lines, plain or gzip, named <language>-en.*."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import orjson

from milco_pyserini.corpora.records import BadLineError
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.lines import first_line, numbered_lines

_FORMAT = re.compile(r"\.(tsv|jsonl)(\.gz)?$")
# A code of ISO 639, and a script or region after it: de, zh-tw, sr-latn.
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_NAMED = re.compile(rf"({_LANGUAGE.pattern})-en\.")
_NAMES = "<language>-en.tsv or <language>-en.jsonl (.gz may follow), such as de-en.tsv.gz"


class BitextPair(NamedTuple):
    """A text and its English translation. language: of the text, as files and collections spell it (de, zh-tw)."""

    language: str
    text: str
    english: str


class BitextSource(Protocol):
    """Pairs of one language, from one place. collection: the name that open_bitext was given for it."""

    collection: str
    name: str
    language: str

    def size(self) -> int:
        """The number of pairs. Raises MilcoError if they cannot be had."""

    def pairs(self) -> Iterator[BitextPair]:
        """The pairs from the start, always in the same order; memory does not grow with their number."""


class FileSource:
    """The pairs of one file. ids: a line may begin with an id, a column before the pair, as those of FLORES do."""

    def __init__(self, path: Path, collection: str, ids: bool = False) -> None:
        """Raises MilcoError if neither the file's name nor its first line tells the language."""
        self.collection = collection
        self.name = str(path)
        self._path = path
        self._ids = ids
        self._json = _is_json(path)
        self.language = _language(path, self._json)
        self._size: int | None = None

    def size(self) -> int:
        """The number of pairs. The first call reads the file: a broken line is found before training starts."""
        if self._size is None:
            self._size = sum(1 for _ in self.pairs())
            if not self._size:
                raise MilcoError(f"{self.name} holds no pairs: leave it away, or fetch it again")
        return self._size

    def pairs(self) -> Iterator[BitextPair]:
        """The pairs in the file's order, without white space around them.

        Raises MilcoError with file and line number at a line that is no pair.
        """
        sides = _json_sides if self._json else partial(_tsv_sides, ids=self._ids)
        language = self.language
        for number, line in numbered_lines(self._path):
            try:
                text, english = sides(line, language)
            except BadLineError as error:
                raise MilcoError(f"{self.name}:{number}: {error}") from None
            yield BitextPair(language, text, english)


def bitext_files(path: Path) -> list[Path]:
    """The file itself; of a directory its .tsv and .jsonl files (.gz may follow) at any depth, in sorted order.

    Raises MilcoError if there is none.
    """
    if path.is_file():
        return [path]
    found = sorted(
        file for file in path.rglob("*") if _FORMAT.search(file.name) and file.is_file() and file.name[0] != "."
    )
    if not found:
        raise MilcoError(f"{path} holds no bitext: its files are named {_NAMES}")
    return found


def _is_json(path: Path) -> bool:
    found = _FORMAT.search(path.name)
    if not found:
        raise MilcoError(f"{path} is no bitext: name it {_NAMES}")
    return found[1] == "jsonl"


def _language(path: Path, is_json: bool) -> str:
    """The language that the file's name tells, or else the first line."""
    named = _NAMED.match(path.name)
    if named:
        return named[1]
    if is_json:
        try:
            language = orjson.loads(first_line(path)).get("language")
        except (orjson.JSONDecodeError, AttributeError):
            language = None
        if isinstance(language, str) and _LANGUAGE.fullmatch(language):
            return language
    wanted = ", or write its language into every line ({'language': 'de', ...})" if is_json else ""
    raise MilcoError(f"{path}: its name does not tell its language; name it {_NAMES}{wanted}")


def _tsv_sides(line: bytes, language: str, ids: bool) -> tuple[str, str]:
    try:
        cells = line.decode("utf-8").split("\t")
    except UnicodeDecodeError as error:
        raise BadLineError(f"not UTF-8 (byte {error.start + 1} of the line)") from None
    if len(cells) == 3 and ids:
        return _filled(cells[1], "second column"), _filled(cells[2], "third column")
    if len(cells) != 2:
        before = ", with or without an id before them" if ids else ""
        raise BadLineError(f"{len(cells)} column(s) between tabs, where 2 are needed: text and English{before}")
    return _filled(cells[0], "first column"), _filled(cells[1], "second column")


def _json_sides(line: bytes, language: str) -> tuple[str, str]:
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadLineError(f"not UTF-8 JSON: {error.msg} (column {error.colno})") from None
    if not isinstance(fields, dict):
        raise BadLineError("not a JSON object")
    found = fields.get("language", language)
    if found != language:
        raise BadLineError(f"language {found!r} in a file of {language!r}: write one file for each language")
    return _field(fields, "text"), _field(fields, "english")


def _field(fields: dict, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise BadLineError(f"{name!r} is {'not there' if name not in fields else 'no string'}")
    return _filled(value, repr(name))


def _filled(side: str, what: str) -> str:
    side = side.strip()
    if not side:
        raise BadLineError(f"{what} is empty")
    return side
