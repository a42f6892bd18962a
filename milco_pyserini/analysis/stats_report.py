"""The figures of a store's sparsity, ready for JSON: plain numbers, every digit."""

import unicodedata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milco_pyserini import __version__
from milco_pyserini.analysis.stats_counts import BOTH, Counts
from milco_pyserini.analysis.stats_lengths import UNKNOWN, Lengths
from milco_pyserini.sparse import PlainStore, VectorStore
from milco_pyserini.sparse.listing import readable

FREQUENT = 15
FREQUENT_OF_LANGUAGE = 5
EXAMPLES = 10
KINDS = ("words", "insides", "signs", "special")
_BINS = 10
_WORD_BEGINS = "▁"
_WORD_GOES_ON = "##"


def report(store: VectorStore | PlainStore, counts: Counts, lengths: Lengths | None) -> dict[str, Any]:
    """All figures. Terms are as a person reads them; shares are from 0 to 1; figures that nothing gives are None."""
    manifest = store.manifest
    views = [group for group in counts.groups if group != BOTH]
    return {
        "version": __version__,
        "vectors": str(store.path),
        "unit": _unit(manifest),
        "documents": len(counts),
        "corpus": manifest.get("corpus"),
        "encoder": manifest["encoder"],
        "pruning": manifest.get("pruning"),
        "views": views if isinstance(store, VectorStore) else None,
        "postings": int(counts.all_postings.sum()),
        "terms_per_document": {
            group: spread(terms) | {"without": int((terms == 0).sum())} for group, terms in counts.terms.items()
        },
        "posting_lists": {group: _lists(store, counts, span) for group, span in counts.groups.items()},
        "frequent": {view: _frequent(counts, counts.groups[view]) for view in views},
        "never_active": {view: _never(counts, counts.groups[view]) for view in views}
        if isinstance(store, VectorStore)
        else None,
        "length": None if lengths is None else _length(counts, lengths),
        "languages": _by_language(counts, lengths, views),
    }


def spread(values: NDArray) -> dict[str, float]:
    """Mean, extremes and quantiles of numbers, at least one."""
    quantiles = np.percentile(values, [0, 5, 50, 95, 100]).tolist()
    return {"mean": float(values.mean())} | dict(zip(("min", "p5", "median", "p95", "max"), quantiles, strict=True))


def piece_kind(piece: str, word_begins: bool) -> str:
    """What a piece of a vocabulary is: "words" (or how words begin), "insides" of words, "signs" or "special" ([PAD]).

    word_begins: whether the vocabulary marks how words begin (▁) and not how they go on (##).
    """
    if len(piece) > 2 and piece[0] + piece[-1] in ("[]", "<>"):
        return "special"
    # Vowel signs and the like are parts of words, although no letters.
    if not any(character.isalnum() or unicodedata.category(character)[0] == "M" for character in piece):
        return "signs"
    inside = not piece.startswith(_WORD_BEGINS) if word_begins else piece.startswith(_WORD_GOES_ON)
    return "insides" if inside else "words"


def _unit(manifest: dict) -> str:
    if manifest.get("split_passages"):
        return "passages"
    return "topics" if manifest.get("kind") == "topics" else "documents"


def _lists(store: VectorStore | PlainStore, counts: Counts, span: slice) -> dict[str, Any]:
    postings = counts.all_postings[span]
    active = np.sort(postings[postings > 0])
    total = int(active.sum())
    longest = active[len(active) - max(1, len(active) // 100) :]
    return {
        # Who wrote plain vectors knows which terms there could have been.
        "columns": len(postings) if isinstance(store, VectorStore) else None,
        "active": len(active),
        "never_active": len(postings) - len(active) if isinstance(store, VectorStore) else None,
        "postings": total,
        "length": spread(active) if len(active) else None,
        "in_longest_percent": float(longest.sum() / total) if total else None,
    }


def _frequent(counts: Counts, span: slice) -> list[dict[str, Any]]:
    postings = counts.all_postings
    return [
        {
            "term": readable(counts.names[column]),
            "documents": int(postings[column]),
            "share": float(postings[column] / len(counts)),
            "mean_weight": float(counts.weights[column] / postings[column]),
        }
        for column in _longest(postings, span, FREQUENT)
    ]


def _longest(postings: NDArray[np.int64], span: slice, limit: int) -> list[int]:
    """The columns in span with the most documents, of equals the lower one first; none without a document."""
    inside = postings[span]
    first = np.argsort(-inside, kind="stable")[:limit]
    return (first[inside[first] > 0] + span.start).tolist()


def _never(counts: Counts, span: slice) -> dict[str, Any]:
    """By kind of piece, how many columns no document has, of how many, and the first of them."""
    pieces = counts.names[span]
    word_begins = any(piece.startswith(_WORD_BEGINS) for piece in pieces)
    postings = counts.all_postings[span]
    found: dict[str, Any] = {}
    for column, piece in enumerate(pieces):
        kind = found.setdefault(piece_kind(piece, word_begins), {"columns": 0, "never_active": 0, "examples": []})
        kind["columns"] += 1
        if postings[column] == 0:
            kind["never_active"] += 1
            if len(kind["examples"]) < EXAMPLES:
                kind["examples"].append(readable(piece))
    return {kind: found[kind] for kind in KINDS if kind in found}


def _length(counts: Counts, lengths: Lengths) -> dict[str, Any]:
    known = lengths.tokens != UNKNOWN
    tokens = lengths.tokens[known]
    terms = {group: values[known] for group, values in counts.terms.items()}
    return {
        "documents": len(tokens),
        "without_text": int((~known).sum()),
        "truncated": lengths.truncated,
        "same_texts": lengths.same,
        "tokens": spread(tokens),
        "correlation": {
            group: {"pearson": _correlation(tokens, values), "spearman": _rank_correlation(tokens, values)}
            for group, values in terms.items()
        },
        "bins": _bins(tokens, terms),
    }


def _bins(tokens: NDArray[np.int32], terms: dict[str, NDArray[np.int32]]) -> list[dict[str, Any]]:
    """Ten bins of about as many documents each, from the shortest; texts of one length are never parted."""
    edges = np.unique(np.percentile(tokens, np.linspace(0, 100, _BINS + 1)[1:], method="higher"))
    number = np.searchsorted(edges, tokens)
    bins = []
    for place in np.unique(number).tolist():
        mine = number == place
        bins.append(
            {
                "from": int(tokens[mine].min()),
                "to": int(tokens[mine].max()),
                "documents": int(mine.sum()),
                "tokens": float(tokens[mine].mean()),
                "terms": {group: float(values[mine].mean()) for group, values in terms.items()},
                "terms_per_token": _per_token(tokens[mine], _last(terms)[mine]),
            }
        )
    return bins


def _by_language(counts: Counts, lengths: Lengths | None, views: list[str]) -> list[dict[str, Any]] | None:
    """A value for each language, in alphabetic order; None where languages are not known."""
    if None in counts.postings:
        return None
    found = []
    for number, (language, postings) in enumerate(counts.postings.items()):
        mine = counts.language == number
        with_text = mine & (lengths.tokens != UNKNOWN) if lengths is not None else np.zeros_like(mine)
        tokens = lengths.tokens[with_text] if lengths is not None else np.zeros(0)
        found.append(
            {
                "language": language,
                "documents": int(mine.sum()),
                "tokens": float(tokens.mean()) if len(tokens) else None,
                "terms": {group: float(values[mine].mean()) for group, values in counts.terms.items()},
                "terms_per_token": _per_token(tokens, _last(counts.terms)[with_text]),
                "active": {group: int(np.count_nonzero(postings[span])) for group, span in counts.groups.items()},
                "frequent": {
                    view: [
                        readable(counts.names[column])
                        for column in _longest(postings, counts.groups[view], FREQUENT_OF_LANGUAGE)
                    ]
                    for view in views
                },
            }
        )
    return sorted(found, key=lambda each: str(each["language"]))


def _last(terms: dict[str, NDArray[np.int32]]) -> NDArray[np.int32]:
    """All terms of each document: those of the last group."""
    return terms[list(terms)[-1]]


def _per_token(tokens: NDArray, terms: NDArray) -> float | None:
    total = int(tokens.sum())
    return float(terms.sum() / total) if total else None


def _correlation(left: NDArray, right: NDArray) -> float | None:
    """Pearson's r; None where one of them is always the same."""
    if len(left) < 2 or np.ptp(left) == 0 or np.ptp(right) == 0:
        return None
    return float(np.corrcoef(left, right)[0, 1])


def _rank_correlation(left: NDArray, right: NDArray) -> float | None:
    from scipy.stats import rankdata

    return _correlation(rankdata(left), rankdata(right)) if len(left) else None
