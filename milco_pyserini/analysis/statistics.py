"""Compute statistics of a vector store: terms per document, posting lists, frequent and inactive terms, languages."""

import unicodedata
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from milco_pyserini import __version__
from milco_pyserini.analysis.text_lengths import TextLengths, measure_lengths, open_tokenizer
from milco_pyserini.console import Progress
from milco_pyserini.corpora.catalog import corpus_language, languages_of_ids
from milco_pyserini.errors import MilcoError
from milco_pyserini.sparse import PIVOT, SOURCE, VIEWS, PlainStore, VectorStore, open_store
from milco_pyserini.sparse.listing import readable

BOTH = "both"
# The name of all terms of external vectors, whose views are not known.
TERMS = "terms"
TOKEN_KINDS = ("words", "continuations", "punctuation", "special")
_FREQUENT = 15
_FREQUENT_PER_LANGUAGE = 5
_EXAMPLES = 10
_BINS = 10


@dataclass(frozen=True)
class VectorCounts:
    """Counts over N vectors with V columns.

    Args:
        names: The token of each column; of external vectors, the term.
        groups: Columns of each view, and of both if there are two.
        terms: By group, terms of each document, int32 [N].
        ids: Hash of each id in this process, int64 [N].
        language: Index into postings of each document's language, int32 [N].
        postings: By language, documents with each column, int64 [V]. The only key is None if languages are not known.
        weights: Sum of the weights of each column, float64 [V].
    """

    names: list[str]
    groups: dict[str, slice]
    terms: dict[str, NDArray[np.int32]]
    ids: NDArray[np.int64]
    language: NDArray[np.int32]
    postings: dict[str | None, NDArray[np.int64]]
    weights: NDArray[np.float64]

    @property
    def views(self) -> list[str]:
        """The groups without BOTH."""
        return [group for group in self.groups if group != BOTH]

    @property
    def all_postings(self) -> NDArray[np.int64]:
        """Documents with each column, int64 [V]."""
        return np.asarray(np.sum(list(self.postings.values()), axis=0), np.int64)


@dataclass(frozen=True)
class StoreStatistics:
    """Statistics of a vector store.

    Args:
        values: All of them as plain numbers, for JSON. Shares are from 0 to 1; what is not known is None.
        counts: Counts for pictures.
        lengths: Lengths of the texts in tokens; None if the texts are not known.
    """

    values: dict[str, Any]
    counts: VectorCounts
    lengths: TextLengths | None

    def to_json(self) -> str:
        """Return the values as indented JSON."""
        return orjson.dumps(self.values, option=orjson.OPT_INDENT_2).decode() + "\n"


def compute_statistics(
    vectors: str | Path, encoder: str | None = None, plain: bool = False, scale: float = 1.0
) -> StoreStatistics:
    """Read a vector store once, and the texts in it once.

    Memory: one part of the store, 24 bytes per document (28 with text lengths), 8 bytes per column and language.

    Args:
        vectors: Vector store of documents or topics.
        encoder: Where the encoder is now, whose tokens are counted.
        plain: The vectors are Anserini JSONL, a file or directory.
        scale: With plain: impact = round(weight * scale).

    Raises:
        MilcoError: The vectors or the encoder do not exist or do not belong together.
    """
    store = open_store(Path(vectors), plain, scale)
    # Opened first: an unknown name should not cost a pass over the vectors.
    tokenizer = open_tokenizer(store, encoder)
    counts = count_vectors(store)
    lengths = None if tokenizer is None else measure_lengths(store, tokenizer)
    manifest = store.manifest
    is_own = isinstance(store, VectorStore)
    unit = "topics" if manifest.kind == "topics" else "documents"
    values = {
        "version": __version__,
        "vectors": str(store.path),
        "unit": "passages" if manifest.split_passages else unit,
        "documents": len(counts.ids),
        "corpus": manifest.corpus,
        "encoder": manifest.encoder or None,
        "pruning": manifest.pruning or None,
        "views": counts.views if is_own else None,
        "postings": int(counts.all_postings.sum()),
        "terms_per_document": {
            group: _spread(terms) | {"without": int((terms == 0).sum())} for group, terms in counts.terms.items()
        },
        "posting_lists": {
            group: _posting_lists(counts.all_postings[span], is_own) for group, span in counts.groups.items()
        },
        "frequent": {view: _frequent(counts, counts.groups[view]) for view in counts.views},
        "never_active": {view: _inactive(counts, counts.groups[view]) for view in counts.views} if is_own else None,
        "length": None if lengths is None else _length(counts, lengths),
        "languages": _by_language(counts, lengths),
    }
    return StoreStatistics(values, counts, lengths)


def count_vectors(store: VectorStore | PlainStore) -> VectorCounts:
    """Count terms and postings in one pass. Raises MilcoError if the store is empty or damaged."""
    codes: dict[str | None, int] = {}
    ids, language, pivot, source = array("q"), array("i"), array("i"), array("i")
    postings: dict[int, NDArray[np.int64]] = {}
    weights = np.zeros(0)
    corpus_code = corpus_language(str(store.manifest.corpus or ""))
    progress = Progress("vectors", store.manifest.documents or None)
    for names, batch in store.batches():
        languages = [corpus_code] * len(names) if corpus_code else languages_of_ids(names)
        numbers = np.asarray([codes.setdefault(code, len(codes)) for code in languages])
        ids.extend(map(hash, names))
        language.extend(numbers.tolist())
        rows = batch.row_numbers()
        in_pivot = np.bincount(rows[batch.columns < batch.english_size], minlength=len(batch))
        pivot.extend(in_pivot.tolist())
        source.extend((batch.lengths() - in_pivot).tolist())
        weights = _add(weights, np.bincount(batch.columns, batch.weights))
        entry_numbers = numbers[rows] if len(rows) else rows
        for number in np.unique(entry_numbers).tolist():
            added = np.bincount(batch.columns[entry_numbers == number])
            postings[number] = _add(postings.get(number, np.zeros(0, np.int64)), added)
        progress.add(len(names), terms=len(batch.columns))
    progress.close("Read")
    if not ids:
        raise MilcoError(f"{store.path} has no vectors: there is nothing to count")

    columns = store.terms
    terms = {PIVOT: np.frombuffer(pivot, np.int32), SOURCE: np.frombuffer(source, np.int32)}
    if isinstance(store, VectorStore):
        columns = [*store.vocabulary.english, *store.vocabulary.source]
        spans = {
            PIVOT: slice(0, store.vocabulary.english_size),
            SOURCE: slice(store.vocabulary.english_size, len(columns)),
        }
        views = [view for view in VIEWS if view in (store.manifest.views or VIEWS)]
        groups = {view: spans[view] for view in views}
        terms = {view: terms[view] for view in views}
        if len(views) > 1:
            groups[BOTH] = slice(0, len(columns))
            terms[BOTH] = terms[PIVOT] + terms[SOURCE]
    else:
        groups, terms = {TERMS: slice(0, len(columns))}, {TERMS: terms[PIVOT]}
    by_language: dict[str | None, NDArray[np.int64]] = {
        code: _add(np.zeros(len(columns), np.int64), postings.get(number, np.zeros(0, np.int64)))
        for code, number in codes.items()
    }
    documents = np.frombuffer(language, np.int32)
    # If one id begins differently, the beginnings of the others may be no languages.
    if None in by_language:
        by_language = {None: np.asarray(np.sum(list(by_language.values()), axis=0), np.int64)}
        documents = np.zeros(len(documents), np.int32)
    total = _add(np.zeros(len(columns)), weights)
    return VectorCounts(columns, groups, terms, np.frombuffer(ids, np.int64), documents, by_language, total)


def token_kind(token: str, has_word_prefix: bool) -> str:
    """Return the kind of a vocabulary's token, one of TOKEN_KINDS.

    Args:
        has_word_prefix: Tokens that begin a word have a prefix ("▁"); else those that continue one have ("##").
    """
    if len(token) > 2 and token[0] + token[-1] in ("[]", "<>"):
        return "special"
    # Vowel signs and the like are parts of words, although they are not letters.
    if not any(character.isalnum() or unicodedata.category(character)[0] == "M" for character in token):
        return "punctuation"
    is_continuation = not token.startswith("▁") if has_word_prefix else token.startswith("##")
    return "continuations" if is_continuation else "words"


def _add(left: NDArray, right: NDArray) -> NDArray:
    """Return the sum, the shorter one continued with zeros: external vectors have as many columns as were read."""
    if len(left) < len(right):
        left, right = right.astype(left.dtype), left
    left[: len(right)] += right.astype(left.dtype)
    return left


def _spread(values: NDArray) -> dict[str, float]:
    quantiles = np.percentile(values, [0, 5, 50, 95, 100]).tolist()
    return {"mean": float(values.mean())} | dict(zip(("min", "p5", "median", "p95", "max"), quantiles, strict=True))


def _posting_lists(postings: NDArray[np.int64], is_own: bool) -> dict[str, Any]:
    """Return statistics of columns. The number of columns of external vectors is unknown."""
    active = np.sort(postings[postings > 0])
    total = int(active.sum())
    longest = active[len(active) - max(1, len(active) // 100) :]
    return {
        "columns": len(postings) if is_own else None,
        "active": len(active),
        "never_active": len(postings) - len(active) if is_own else None,
        "postings": total,
        "length": _spread(active) if len(active) else None,
        "in_longest_percent": float(longest.sum() / total) if total else None,
    }


def _frequent(counts: VectorCounts, span: slice) -> list[dict[str, Any]]:
    postings = counts.all_postings
    return [
        {
            "term": readable(counts.names[column]),
            "documents": int(postings[column]),
            "share": float(postings[column] / len(counts.ids)),
            "mean_weight": float(counts.weights[column] / postings[column]),
        }
        for column in _longest(postings, span, _FREQUENT)
    ]


def _longest(postings: NDArray[np.int64], span: slice, limit: int) -> list[int]:
    """Return the active columns in span with the most documents, the lower of equal ones first."""
    inside = postings[span]
    first = np.argsort(-inside, kind="stable")[:limit]
    return (first[inside[first] > 0] + span.start).tolist()


def _inactive(counts: VectorCounts, span: slice) -> dict[str, Any]:
    """Count columns that no document has, by kind of token, with the first of them."""
    tokens = counts.names[span]
    has_word_prefix = any(token.startswith("▁") for token in tokens)
    kinds: dict[str, Any] = {kind: {"columns": 0, "never_active": 0, "examples": []} for kind in TOKEN_KINDS}
    for token, documents in zip(tokens, counts.all_postings[span].tolist(), strict=True):
        kind = kinds[token_kind(token, has_word_prefix)]
        kind["columns"] += 1
        kind["never_active"] += documents == 0
        if documents == 0 and len(kind["examples"]) < _EXAMPLES:
            kind["examples"].append(readable(token))
    return {kind: value for kind, value in kinds.items() if value["columns"]}


def _length(counts: VectorCounts, lengths: TextLengths) -> dict[str, Any]:
    """Relate lengths in tokens to terms: correlations, and ten bins of about as many documents each."""
    tokens = lengths.tokens
    # Texts of equal length are in one bin.
    edges = np.unique(np.percentile(tokens, np.linspace(0, 100, _BINS + 1)[1:], method="higher"))
    numbers = np.searchsorted(edges, tokens)
    bins = []
    for number in np.unique(numbers).tolist():
        chosen = np.flatnonzero(numbers == number)
        inside = tokens[chosen]
        bins.append({"from": int(inside.min()), "to": int(inside.max()), **_means(counts, lengths, chosen)})
    return {
        "documents": len(tokens),
        "truncated": lengths.truncated,
        "tokens": _spread(tokens),
        "correlation": {group: _correlations(tokens, values) for group, values in counts.terms.items()},
        "bins": bins,
    }


def _correlations(left: NDArray, right: NDArray) -> dict[str, float | None]:
    """Return Pearson's and Spearman's correlation; None if one side is constant."""
    if len(left) < 2 or np.ptp(left) == 0 or np.ptp(right) == 0:
        return {"pearson": None, "spearman": None}
    from scipy.stats import pearsonr, spearmanr

    return {"pearson": float(pearsonr(left, right).statistic), "spearman": float(spearmanr(left, right).statistic)}


def _by_language(counts: VectorCounts, lengths: TextLengths | None) -> list[dict[str, Any]] | None:
    """Return a value for each language in alphabetical order; None if languages are not known."""
    if None in counts.postings:
        return None
    rows = []
    for number, (language, postings) in enumerate(counts.postings.items()):
        frequent = {view: _longest(postings, counts.groups[view], _FREQUENT_PER_LANGUAGE) for view in counts.views}
        rows.append(
            {
                "language": language,
                **_means(counts, lengths, np.flatnonzero(counts.language == number)),
                "active": {group: int(np.count_nonzero(postings[span])) for group, span in counts.groups.items()},
                "frequent": {
                    view: [readable(counts.names[column]) for column in columns] for view, columns in frequent.items()
                },
            }
        )
    return sorted(rows, key=lambda row: str(row["language"]))


def _means(counts: VectorCounts, lengths: TextLengths | None, chosen: NDArray[np.int64]) -> dict[str, Any]:
    """Return the number of chosen documents, their mean tokens and terms, and terms per token, None without texts."""
    tokens = np.zeros(0) if lengths is None else lengths.tokens[chosen]
    # The last group has all views.
    terms = list(counts.terms.values())[-1][chosen]
    return {
        "documents": len(chosen),
        "tokens": float(tokens.mean()) if len(tokens) else None,
        "terms": {group: float(values[chosen].mean()) for group, values in counts.terms.items()},
        "terms_per_token": float(terms.sum() / tokens.sum()) if tokens.sum() else None,
    }
