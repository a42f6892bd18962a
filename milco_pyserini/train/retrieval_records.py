"""One training example for retrieval, and the three layouts of a JSON record that hold one.

Ours: {"query": str, "positives": [str, ...], "negatives": [str, ...]}, with "scores" of a teacher for all passages,
positives first, and "language", where they are known. Pairs: {"query", "positive", "title"}. The BGE data's: {"query",
"pos", "neg", "pos_scores", "neg_scores"}.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import orjson

from milco_pyserini.corpora.records import BadLineError

UNDETERMINED = "und"


class RetrievalExample(NamedTuple):
    """A query with its passages. The scores are a teacher's, one a passage, or None where there are none."""

    language: str
    query: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...]
    positive_scores: tuple[float, ...] | None = None
    negative_scores: tuple[float, ...] | None = None


def parse_line(line: bytes, language: str = UNDETERMINED) -> RetrievalExample:
    """The example that a line holds. Raises BadLineError if it holds none."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadLineError(f"not JSON: {error.msg} (column {error.colno})") from None
    if not isinstance(value, dict):
        raise BadLineError("not a JSON object")
    return read_example(value, language)


def read_example(fields: Mapping[str, object], language: str = UNDETERMINED) -> RetrievalExample:
    """The example that a record holds, in any of the three layouts.

    language: the one to use; "und" lets the record's own count. Raises BadLineError if a field is missing or of
    another type, if the query or a positive is blank, or if the scores are not one finite number for each passage.
    """
    if language == UNDETERMINED and fields.get("language") is not None:
        language = _text(fields["language"], "language")
    query = _text(fields.get("query"), "query")
    if "positive" in fields:
        title = "" if fields.get("title") is None else _string(fields["title"], "title")
        positive = _text(fields["positive"], "positive")
        return RetrievalExample(language, query, (f"{title} {positive}" if title else positive,), ())
    if "pos" in fields:
        return _bge_example(fields, language, query)
    positives = _positives(fields.get("positives"), "positives")
    negatives = _strings(fields.get("negatives"), "negatives")
    count = len(positives)
    scores = _scores(fields.get("scores"), "scores", count + len(negatives), "positives and negatives")
    if scores is None:
        return RetrievalExample(language, query, positives, negatives)
    return RetrievalExample(language, query, positives, negatives, scores[:count], scores[count:])


def write_example(example: RetrievalExample) -> bytes:
    """The example as a line of ours, without its end."""
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


def _bge_example(fields: Mapping[str, object], language: str, query: str) -> RetrievalExample:
    positives, negatives = _positives(fields["pos"], "pos"), _strings(fields.get("neg"), "neg")
    positive_scores = _scores(fields.get("pos_scores"), "pos_scores", len(positives), "pos")
    negative_scores = _scores(fields.get("neg_scores"), "neg_scores", len(negatives), "neg")
    if positive_scores is None or negative_scores is None:
        positive_scores = negative_scores = None
    return RetrievalExample(language, query, positives, negatives, positive_scores, negative_scores)


def _string(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise BadLineError(f"{name!r} is {_kind(value)}, where a string is needed")
    return value


def _text(value: object, name: str) -> str:
    if not _string(value, name).strip():
        raise BadLineError(f"{name!r} is empty")
    return str(value)


def _strings(value: object, name: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise BadLineError(f"{name!r} is {_kind(value)}, where a list of strings is needed")
    return tuple(_string(item, f"{name}[{place}]") for place, item in enumerate(value))


def _positives(value: object, name: str) -> tuple[str, ...]:
    positives = _strings(value, name)
    if not positives:
        raise BadLineError(f"{name!r} is empty")
    return tuple(_text(item, f"{name}[{place}]") for place, item in enumerate(positives))


def _scores(value: object, name: str, count: int, what: str) -> tuple[float, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise BadLineError(f"{name!r} is {_kind(value)}, where a list of numbers is needed")
    if len(value) != count:
        raise BadLineError(f"{name!r} holds {len(value)} numbers for {count} passages in {what}")
    return tuple(_score(item, f"{name}[{place}]") for place, item in enumerate(value))


def _score(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadLineError(f"{name!r} is {_kind(value)}, where a finite number is needed")
    return float(value)


def _kind(value: object) -> str:
    names = {type(None): "missing or null", bool: "a truth value", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), f"the number {value}")
