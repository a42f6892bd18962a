"""Render statistics of a vector store as tables for the terminal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from milco_pyserini.analysis.statistics import BOTH, TERMS
from milco_pyserini.console import counted
from milco_pyserini.eval.report import ReportTable, render

_SPREAD = {"mean": "mean", "min": "min", "p5": "5 %", "median": "median", "p95": "95 %", "max": "max"}
_SPREAD_DIGITS = (1, 0, 0, 0, 0, 0)


def render_statistics(value: Mapping[str, Any]) -> str:
    """Return the values of StoreStatistics as tables, with a final line end."""
    tables = [
        _terms(value),
        _posting_lists(value),
        *_frequent(value),
        *_inactive(value),
        *_length(value),
        *_languages(value),
    ]
    return "\n".join([_head(value), *map(render, tables)])


def _head(value: Mapping[str, Any]) -> str:
    of = f" of {value['corpus']}" if value["corpus"] else ""
    by = f", encoded by {value['encoder']}" if value["encoder"] else ""
    pruning = f", pruned: {value['pruning']}" if value["pruning"] else ""
    unit = counted(value["documents"], value["unit"][:-1])
    return f"{value['vectors']}: {unit}{of}{by}{pruning}; {counted(value['postings'], 'posting')}\n"


def _terms(value: Mapping[str, Any]) -> ReportTable:
    rows = [
        (group, *(each[name] for name in _SPREAD), each["without"])
        for group, each in value["terms_per_document"].items()
    ]
    heads = (*_SPREAD.values(), "empty")
    return ReportTable((f"terms per {value['unit'][:-1]}",), heads, rows, (*_SPREAD_DIGITS, 0))


def _posting_lists(value: Mapping[str, Any]) -> ReportTable:
    rows = []
    for group, each in value["posting_lists"].items():
        never = each["never_active"] / each["columns"] if each["columns"] else None
        length = each["length"] or {}
        rows.append(
            (
                *(group, each["columns"], each["active"], each["never_active"], _percent(never)),
                *(length.get(name) for name in _SPREAD),
                _percent(each["in_longest_percent"]),
            )
        )
    heads = ("columns", "active", "inactive", "inactive (%)", *_SPREAD.values(), "in the longest 1 % (%)")
    note = f"lengths of active columns' posting lists, in {value['unit']}; share of all postings in the longest 1 %"
    return ReportTable(("posting lists",), heads, rows, (0, 0, 0, 1, *_SPREAD_DIGITS, 1), (note,))


def _frequent(value: Mapping[str, Any]) -> Iterator[ReportTable]:
    for view, terms in value["frequent"].items():
        rows = [(term["term"], term["documents"], _percent(term["share"]), term["mean_weight"]) for term in terms]
        yield ReportTable((f"most frequent: {view}",), (value["unit"], "of all (%)", "mean weight"), rows, (0, 1, 2))


def _inactive(value: Mapping[str, Any]) -> Iterator[ReportTable]:
    rows = []
    for view, kinds in (value["never_active"] or {}).items():
        for kind, each in kinds.items():
            counts = (each["never_active"], each["columns"], _percent(each["never_active"] / each["columns"]))
            rows.append((f"{view}: {kind}", "  ".join(each["examples"]) or "-", *counts))
    if rows:
        yield ReportTable(("inactive columns", "examples"), ("inactive", "columns", "inactive (%)"), rows, (0, 0, 1))


def _length(value: Mapping[str, Any]) -> Iterator[ReportTable]:
    length = value["length"]
    if length is None:
        return
    groups = list(value["terms_per_document"])
    rows = [(f"{each['from']:,} to {each['to']:,}", *_lengths(each, groups)) for each in length["bins"]]
    heads = (value["unit"], "mean tokens", *map(_terms_head, groups), "terms per token")
    digits = (0, 1, *[1] * len(groups), 2)
    yield ReportTable(("length in tokens",), heads, rows, digits, list(_length_notes(value, length)))


def _length_notes(value: Mapping[str, Any], length: Mapping[str, Any]) -> Iterator[str]:
    for group, each in length["correlation"].items():
        if each["pearson"] is not None:
            figures = f"Pearson's r {each['pearson']:.3f}, Spearman's {each['spearman']:.3f}"
            yield f"length and {_terms_head(group)}: {figures}"
    yield "tokens are the encoder's, with <s> and </s>, up to the maximum length"
    if length["truncated"]:
        yield f"truncated: {counted(length['truncated'], 'longer text')}"
    if length["without_text"]:
        yield f"not in the corpus: {counted(length['without_text'], value['unit'][:-1])}"
    if length["same_texts"] is False:
        yield "the corpus is not exactly the one that was encoded: lengths may differ"


def _languages(value: Mapping[str, Any]) -> Iterator[ReportTable]:
    languages = value["languages"]
    if languages is None:
        return
    groups = list(value["terms_per_document"])
    rows = [
        (each["language"], *_lengths(each, groups), *(each["active"][group] for group in groups)) for each in languages
    ]
    heads = (value["unit"], "mean tokens", *map(_terms_head, groups), "terms per token")
    digits = (0, 1, *[1] * len(groups), 2, *[0] * len(groups))
    yield ReportTable(("language",), (*heads, *(f"active: {group}" for group in groups)), rows, digits)
    views = list(value["frequent"])
    frequent = [(each["language"], *("  ".join(each["frequent"][view]) for view in views)) for each in languages]
    yield ReportTable(("language", *(f"most frequent: {view}" for view in views)), (), frequent)


def _lengths(each: Mapping[str, Any], groups: Sequence[str]) -> tuple[float | None, ...]:
    return each["documents"], each["tokens"], *(each["terms"][group] for group in groups), each["terms_per_token"]


def _terms_head(group: str) -> str:
    return {TERMS: "terms", BOTH: "terms of both"}.get(group, f"{group} terms")


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
