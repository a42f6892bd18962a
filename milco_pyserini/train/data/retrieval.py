"""Training examples for retrieval: JSON records in three layouts, and JSONL files of them.

| layout | record |
|---|---|
| ours | {"query", "positives", "negatives"}, optionally "scores" (a teacher's, positives first) and "language" |
| pairs | {"query", "positive", "title"} |
| BGE | {"query", "pos", "neg", "pos_scores", "neg_scores"} |
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

import orjson

from milco_pyserini.corpora.records import BadLineError
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.lines import numbered_lines
from milco_pyserini.train.data import UNDETERMINED

_LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z0-9]{2,8})*")


class RetrievalExample(NamedTuple):
    """A query with its passages. Scores are a teacher's, one for each passage, or None."""

    language: str
    query: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...]
    positive_scores: tuple[float, ...] | None = None
    negative_scores: tuple[float, ...] | None = None


class RetrievalStats(NamedTuple):
    """Number of examples, and the location ("file:line") of the first without negatives and without scores."""

    examples: int
    without_negatives: str | None = None
    without_scores: str | None = None


class RetrievalSource(Protocol):
    """Examples of one collection: passages of one example are candidates for the queries of the others."""

    @property
    def name(self) -> str:
        """Name used in messages."""

    @property
    def language(self) -> str:
        """Language code; "und" if mixed or unknown."""

    def stats(self) -> RetrievalStats:
        """Return counts from a full pass, which is made once. Raises MilcoError at the first broken line."""

    def size(self) -> int:
        """Return the number of examples."""

    def examples(self) -> Iterator[RetrievalExample]:
        """Yield every example from the start, always in the same order."""


class RetrievalFile:
    """The examples of a JSONL file, plain or gzip.

    The language is the one in the file's name (NAME.LANG.jsonl.gz), or else that of each line, or else "und".

    Args:
        path: the file.
        languages: skip lines in other languages.
    """

    def __init__(self, path: Path, languages: Sequence[str] | None = None) -> None:
        self.path = path
        self.name = str(path)
        self.language = file_language(path)
        self._languages = None if languages is None else frozenset(languages)

    def numbered(self) -> Iterator[tuple[int, RetrievalExample]]:
        """Yield (line number, example). Raises MilcoError with file and line at the first broken line."""
        for number, line in numbered_lines(self.path):
            try:
                example = parse_example(line, self.language)
            except BadLineError as error:
                raise MilcoError(f"{self.path}:{number}: {error}") from None
            if self._languages is None or example.language in self._languages:
                yield number, example

    def examples(self) -> Iterator[RetrievalExample]:
        """Yield every example from the start."""
        return (example for _, example in self.numbered())

    def stats(self) -> RetrievalStats:
        """Return counts from a full pass, made once, before expensive work."""
        return self._stats

    def size(self) -> int:
        """Return the number of examples."""
        return self._stats.examples

    @cached_property
    def _stats(self) -> RetrievalStats:
        count, without_negatives, without_scores = 0, None, None
        for number, example in self.numbered():
            count += 1
            if not example.negatives and without_negatives is None:
                without_negatives = f"{self.path}:{number}"
            if example.positive_scores is None and without_scores is None:
                without_scores = f"{self.path}:{number}"
        return RetrievalStats(count, without_negatives, without_scores)


def file_language(path: Path) -> str:
    """Return the language in a file's name: "ja" for jaquad.ja.jsonl.gz, "und" if there is none."""
    name = path.name.removesuffix(".gz").removesuffix(".jsonl")
    stem, _, code = name.rpartition(".")
    return code if stem and _LANGUAGE.fullmatch(code) else UNDETERMINED


def parse_example(line: bytes, language: str = UNDETERMINED) -> RetrievalExample:
    """Return the example of a JSON line. Raises BadLineError as read_example() does."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadLineError(f"not JSON: {error.msg} (column {error.colno})") from None
    if not isinstance(value, dict):
        raise BadLineError("not a JSON object")
    return read_example(value, language)


def read_example(fields: Mapping[str, object], language: str = UNDETERMINED) -> RetrievalExample:
    """Return the example of a record in any of the three layouts.

    Args:
        fields: the record.
        language: of the example; "und" takes the record's own.

    Raises:
        BadLineError: a field is missing or of another type, the query or a positive is blank, or the scores are not
            one finite number for each passage.
    """
    if language == UNDETERMINED and fields.get("language") is not None:
        language = _text(fields["language"], "language")
    query = _text(fields.get("query"), "query")
    if "positive" in fields:
        title = "" if fields.get("title") is None else _text(fields["title"], "title", blank=True)
        positive = _text(fields["positive"], "positive")
        return RetrievalExample(language, query, (f"{title} {positive}" if title else positive,), ())
    if "pos" in fields:
        positives, negatives = _texts(fields["pos"], "pos"), _texts(fields.get("neg"), "neg", blank=True)
        positive_scores = _scores(fields.get("pos_scores"), "pos_scores", len(positives))
        negative_scores = _scores(fields.get("neg_scores"), "neg_scores", len(negatives))
        if positive_scores is None or negative_scores is None:
            positive_scores = negative_scores = None
        return RetrievalExample(language, query, positives, negatives, positive_scores, negative_scores)
    positives = _texts(fields.get("positives"), "positives")
    negatives = _texts(fields.get("negatives"), "negatives", blank=True)
    scores = _scores(fields.get("scores"), "scores", len(positives) + len(negatives))
    if scores is None:
        return RetrievalExample(language, query, positives, negatives)
    return RetrievalExample(language, query, positives, negatives, scores[: len(positives)], scores[len(positives) :])


def dump_example(example: RetrievalExample) -> bytes:
    """Return the example as a JSON line in our layout, without the line end."""
    fields: dict[str, object] = {
        "query": example.query,
        "positives": example.positives,
        "negatives": example.negatives,
    }
    if example.positive_scores is not None and example.negative_scores is not None:
        fields["scores"] = example.positive_scores + example.negative_scores
    if example.language != UNDETERMINED:
        fields["language"] = example.language
    return orjson.dumps(fields)


def distinct_passages(source: RetrievalSource) -> dict[str, int]:
    """Number the distinct passages of a source, positives and negatives, in order of first occurrence."""
    passages: dict[str, int] = {}
    for example in source.examples():
        for passage in (*example.positives, *example.negatives):
            passages.setdefault(passage, len(passages))
    return passages


def _text(value: object, name: str, blank: bool = False) -> str:
    if not isinstance(value, str):
        raise BadLineError(f"{name!r} is {_describe(value)}: expected a string")
    if not blank and not value.strip():
        raise BadLineError(f"{name!r} is empty")
    return value


def _texts(value: object, name: str, blank: bool = False) -> tuple[str, ...]:
    """Return a list of strings. blank: the list, and strings in it, may be empty."""
    if not isinstance(value, list):
        raise BadLineError(f"{name!r} is {_describe(value)}: expected a list of strings")
    if not blank and not value:
        raise BadLineError(f"{name!r} is empty")
    return tuple(_text(item, f"{name}[{place}]", blank) for place, item in enumerate(value))


def _scores(value: object, name: str, count: int) -> tuple[float, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise BadLineError(f"{name!r} is {_describe(value)}: expected a list of numbers")
    if len(value) != count:
        raise BadLineError(f"{name!r} has {len(value)} numbers for {count} passages")
    for place, item in enumerate(value):
        if isinstance(item, bool) or not isinstance(item, int | float) or not math.isfinite(item):
            raise BadLineError(f"'{name}[{place}]' is {_describe(item)}: expected a finite number")
    return tuple(map(float, value))


def _describe(value: object) -> str:
    names = {type(None): "missing or null", bool: "a boolean", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), f"the number {value}")
