"""One pass over vectors: how many terms each has, how many have each term, in which language they are."""

import re
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.console import Progress
from milco_pyserini.corpora.catalog import corpus_language, corpus_languages
from milco_pyserini.errors import MilcoError
from milco_pyserini.sparse import PIVOT, SOURCE, VIEWS, PlainStore, VectorStore

BOTH = "both"
# The name of the terms of vectors that others wrote: their views are not known.
TERMS = "terms"
_BEGINS_WITH_CODE = re.compile(r"([a-z]{2,3})-")


@dataclass(frozen=True)
class Counts:
    """What a pass over N vectors with V columns found.

    names: the piece of text that each column stands for; of vectors that others wrote, its term. groups: columns of
    each view, by name, and of both where there are two. terms: by group, int32 [N], terms of each document. ids: hash
    of each id in this process, int64 [N]. language: number of its language, int32 [N]. postings: by language, int64
    [V], documents with the column; one key, None, where the language is not known. weights: float64 [V], sum over all
    documents.
    """

    names: list[str]
    groups: dict[str, slice]
    terms: dict[str, NDArray[np.int32]]
    ids: NDArray[np.int64]
    language: NDArray[np.int32]
    postings: dict[str | None, NDArray[np.int64]]
    weights: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def all_postings(self) -> NDArray[np.int64]:
        """Documents with each column: int64 [V], the lengths of the posting lists."""
        return _summed(self.postings)


@dataclass
class _Tally:
    """The counts while they grow. codes: number of each language, in the order in which they were met."""

    codes: dict[str | None, int] = field(default_factory=dict)
    ids: array = field(default_factory=lambda: array("q"))
    language: array = field(default_factory=lambda: array("i"))
    pivot: array = field(default_factory=lambda: array("i"))
    source: array = field(default_factory=lambda: array("i"))
    postings: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))


def count(store: VectorStore | PlainStore) -> Counts:
    """Read a store once. Raises MilcoError for a store without a document, and where a part is damaged.

    Memory: 24 bytes a document, 8 a column and language, and a part of the store.
    """
    tally = _Tally()
    name_tells = corpus_language(str(store.manifest.get("corpus") or ""))
    progress = Progress("vectors", store.manifest.get("documents"))
    for names, batch in store.batches():
        codes = np.asarray([tally.codes.setdefault(code, len(tally.codes)) for code in _languages(names, name_tells)])
        tally.ids.extend(map(hash, names))
        tally.language.extend(codes.tolist())
        rows = batch.row_numbers()
        pivot = np.bincount(rows[batch.columns < batch.english_size], minlength=len(batch))
        tally.pivot.extend(pivot.tolist())
        tally.source.extend((batch.lengths() - pivot).tolist())
        _add_columns(tally, batch.columns, batch.weights, codes[rows] if len(rows) else rows)
        progress.add(len(names), terms=len(batch.columns))
    progress.close("read")
    if not tally.ids:
        raise MilcoError(f"{store.path} holds no vectors: there is nothing to count")
    return _counts(store, tally)


def _languages(names: Iterable[str], told: str | None) -> Iterable[str | None]:
    if told is not None:
        return (told for _ in names)
    known = corpus_languages()
    begins = (_BEGINS_WITH_CODE.match(name) for name in names)
    return (found[1] if found and found[1] in known else None for found in begins)


def _add_columns(
    tally: _Tally, columns: NDArray[np.int32], weights: NDArray[np.float32], codes: NDArray[np.int64]
) -> None:
    tally.weights = _plus(tally.weights, np.bincount(columns, weights))
    for code in np.unique(codes).tolist():
        before = tally.postings.get(code, np.zeros(0, np.int64))
        tally.postings[code] = _plus(before, np.bincount(columns[codes == code]))


def _plus(left: NDArray, right: NDArray) -> NDArray:
    """Their sum, the shorter one continued with zeros: plain vectors have as many columns as were met."""
    if len(left) < len(right):
        left, right = right.astype(left.dtype), left
    left[: len(right)] += right.astype(left.dtype)
    return left


def _summed(postings: Mapping[str | None, NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.asarray(np.sum(list(postings.values()), axis=0), np.int64)


def _counts(store: VectorStore | PlainStore, tally: _Tally) -> Counts:
    names = store.terms
    if isinstance(store, VectorStore):
        names = [*store.vocabulary.english, *store.vocabulary.source]
    groups = {TERMS: slice(0, len(names))}
    pivot, source = (np.frombuffer(values, np.int32) for values in (tally.pivot, tally.source))
    terms = {TERMS: pivot}
    if isinstance(store, VectorStore):
        english = store.vocabulary.english_size
        views = store.manifest.get("views", VIEWS)
        spans = {PIVOT: slice(0, english), SOURCE: slice(english, len(names))}
        groups = {view: spans[view] for view in VIEWS if view in views}
        terms = {view: values for view, values in zip(VIEWS, (pivot, source), strict=True) if view in views}
        if len(groups) > 1:
            groups[BOTH] = slice(0, len(names))
            terms[BOTH] = pivot + source
    language = np.frombuffer(tally.language, np.int32)
    widened: dict[str | None, NDArray[np.int64]] = {
        code: _plus(np.zeros(len(names), np.int64), tally.postings.get(number, np.zeros(0, np.int64)))
        for code, number in tally.codes.items()
    }
    # One id that begins otherwise, and what the others begin with may be no language.
    if None in widened:
        widened = {None: _summed(widened)}
        language = np.zeros(len(language), np.int32)
    ids = np.frombuffer(tally.ids, np.int64)
    return Counts(names, groups, terms, ids, language, widened, _plus(np.zeros(len(names)), tally.weights))
