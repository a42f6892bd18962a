"""Sentence pairs in TSV or JSONL files, plain or gzip, named LANG-en.*."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import orjson

from milco_pyserini.corpora.records import BadLineError
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.lines import first_line, numbered_lines

_FORMAT = re.compile(r"\.(tsv|jsonl)(\.gz)?$")
# An ISO 639 code, optionally with a script or region: de, zh-tw, sr-latn.
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_FILE_NAME = re.compile(rf"({_LANGUAGE.pattern})-en\.")
_NAMING = "LANG-en.tsv or LANG-en.jsonl (optionally .gz), such as de-en.tsv.gz"


class BitextPair(NamedTuple):
    """A text and its English translation. language: of the text, as files and collections spell it (de, zh-tw)."""

    language: str
    text: str
    english: str


class BitextSource(Protocol):
    """Sentence pairs of one language. collection: the name that open_bitext() was given for them."""

    collection: str
    name: str
    language: str

    def size(self) -> int:
        """Return the number of pairs. Raises MilcoError if they cannot be read."""

    def pairs(self) -> Iterator[BitextPair]:
        """Yield the pairs from the start, always in the same order and in constant memory."""


class BitextFile:
    """The sentence pairs of one file.

    Args:
        path: the file.
        collection: the name that the user gave for it: the file or a directory above it.
        ids: accept TSV lines with an id in a column before the pair, as in FLORES.

    Raises:
        MilcoError: neither the file's name nor its first line has the language.
    """

    def __init__(self, path: Path, collection: str, ids: bool = False) -> None:
        found = _FORMAT.search(path.name)
        if not found:
            raise MilcoError(f"{path} is not bitext: its name must be {_NAMING}")
        self.collection = collection
        self.name = str(path)
        self._path = path
        self._ids = ids
        self._is_json = found[1] == "jsonl"
        self.language = self._read_language()
        self._size: int | None = None

    def size(self) -> int:
        """Return the number of pairs. The first call reads the file, so broken lines are found before training."""
        if self._size is None:
            self._size = sum(1 for _ in self.pairs())
            if not self._size:
                raise MilcoError(f"{self.name} has no pairs: remove it or download it again")
        return self._size

    def pairs(self) -> Iterator[BitextPair]:
        """Yield the pairs in file order, stripped of surrounding white space.

        Raises MilcoError with file and line number at the first line that is not a pair.
        """
        for number, line in numbered_lines(self._path):
            try:
                pair = parse_json_pair(line, self.language) if self._is_json else parse_tsv_pair(line, self._ids)
            except BadLineError as error:
                raise MilcoError(f"{self.name}:{number}: {error}") from None
            yield BitextPair(self.language, *pair)

    def _read_language(self) -> str:
        named = _FILE_NAME.match(self._path.name)
        if named:
            return named[1]
        if self._is_json:
            try:
                language = orjson.loads(first_line(self._path)).get("language")
            except (orjson.JSONDecodeError, AttributeError):
                language = None
            if isinstance(language, str) and _LANGUAGE.fullmatch(language):
                return language
        alternative = ", or add the language to every line ({'language': 'de', ...})" if self._is_json else ""
        raise MilcoError(f"{self._path}: no language in the file name: name it {_NAMING}{alternative}")


def find_bitext_files(path: Path) -> list[Path]:
    """Return the file itself, or the .tsv and .jsonl files (optionally .gz) below a directory, sorted.

    Raises MilcoError if there is none.
    """
    if path.is_file():
        return [path]
    found = sorted(
        file for file in path.rglob("*") if _FORMAT.search(file.name) and file.is_file() and file.name[0] != "."
    )
    if not found:
        raise MilcoError(f"{path} has no bitext: file names must be {_NAMING}")
    return found


def parse_tsv_pair(line: bytes, ids: bool = False) -> tuple[str, str]:
    """Return the text and the English of a TSV line. ids: an id column may precede them. Raises BadLineError."""
    try:
        cells = line.decode("utf-8").split("\t")
    except UnicodeDecodeError as error:
        raise BadLineError(f"not UTF-8 (byte {error.start + 1} of the line)") from None
    first = 1 if ids and len(cells) == 3 else 0
    if len(cells) - first != 2:
        layout = "[id TAB] text TAB English" if ids else "text TAB English"
        raise BadLineError(f"{len(cells)} tab-separated column(s): expected {layout}")
    return _stripped(cells[first], f"column {first + 1}"), _stripped(cells[first + 1], f"column {first + 2}")


def parse_json_pair(line: bytes, language: str) -> tuple[str, str]:
    """Return the text and the English of a JSON line. language: of the file. Raises BadLineError."""
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadLineError(f"not UTF-8 JSON: {error.msg} (column {error.colno})") from None
    if not isinstance(fields, dict):
        raise BadLineError("not a JSON object")
    found = fields.get("language", language)
    if found != language:
        raise BadLineError(f"language {found!r} in a file of {language!r}: write one file for each language")
    for name in ("text", "english"):
        if not isinstance(fields.get(name), str):
            raise BadLineError(f"{name!r} is {'not a string' if name in fields else 'missing'}")
    return _stripped(fields["text"], "'text'"), _stripped(fields["english"], "'english'")


def _stripped(text: str, name: str) -> str:
    text = text.strip()
    if not text:
        raise BadLineError(f"{name} is empty")
    return text
