"""Render statistics of a vector store as tables for the terminal."""

from collections.abc import Mapping
from typing import Any

from milco_pyserini.analysis.statistics import BOTH, TERMS
from milco_pyserini.console import counted
from milco_pyserini.eval.report import ReportTable, render

_SPREAD = {"mean": "mean", "min": "min", "p5": "5 %", "median": "median", "p95": "95 %", "max": "max"}
_SPREAD_DIGITS = (1, 0, 0, 0, 0, 0)


def render_statistics(values: Mapping[str, Any]) -> str:
    """Return the values of StoreStatistics as tables, with a final line end."""
    unit = values["unit"]
    groups = list(values["terms_per_document"])
    # Shared by the tables of lengths and of languages.
    term_heads = [{TERMS: "terms", BOTH: "terms of both"}.get(group, f"{group} terms") for group in groups]
    length_heads = (unit, "mean tokens", *term_heads, "terms per token")
    length_digits = (0, 1, *[1] * len(groups), 2)

    def length_cells(row: Mapping[str, Any]) -> tuple[float | None, ...]:
        return row["documents"], row["tokens"], *(row["terms"][group] for group in groups), row["terms_per_token"]

    rows: list[Any] = [
        (group, *(spread[name] for name in _SPREAD), spread["without"])
        for group, spread in values["terms_per_document"].items()
    ]
    tables = [ReportTable((f"terms per {unit[:-1]}",), (*_SPREAD.values(), "empty"), rows, (*_SPREAD_DIGITS, 0))]

    rows = []
    for group, lists in values["posting_lists"].items():
        inactive = _percent(lists["never_active"] / lists["columns"] if lists["columns"] else None)
        spread = [(lists["length"] or {}).get(name) for name in _SPREAD]
        counts = (lists["columns"], lists["active"], lists["never_active"], inactive)
        rows.append((group, *counts, *spread, _percent(lists["in_longest_percent"])))
    heads = ("columns", "active", "inactive", "inactive (%)", *_SPREAD.values(), "in the longest 1 % (%)")
    note = f"lengths of active columns' posting lists, in {unit}; share of all postings in the longest 1 %"
    tables.append(ReportTable(("posting lists",), heads, rows, (0, 0, 0, 1, *_SPREAD_DIGITS, 1), (note,)))

    for view, terms in values["frequent"].items():
        rows = [(term["term"], term["documents"], _percent(term["share"]), term["mean_weight"]) for term in terms]
        tables.append(ReportTable((f"most frequent: {view}",), (unit, "of all (%)", "mean weight"), rows, (0, 1, 2)))

    rows = [
        (
            *(f"{view}: {kind}", "  ".join(tokens["examples"]) or "-"),
            *(tokens["never_active"], tokens["columns"], _percent(tokens["never_active"] / tokens["columns"])),
        )
        for view, kinds in (values["never_active"] or {}).items()
        for kind, tokens in kinds.items()
    ]
    if rows:
        heads = ("inactive", "columns", "inactive (%)")
        tables.append(ReportTable(("inactive columns", "examples"), heads, rows, (0, 0, 1)))

    if length := values["length"]:
        notes = [
            f"length and {head}: Pearson's r {correlation['pearson']:.3f}, Spearman's {correlation['spearman']:.3f}"
            for head, correlation in zip(term_heads, length["correlation"].values(), strict=True)
            if correlation["pearson"] is not None
        ]
        notes.append("tokens are the encoder's, with <s> and </s>, up to the maximum length")
        if length["truncated"]:
            notes.append(f"truncated: {counted(length['truncated'], 'longer text')}")
        rows = [(f"{row['from']:,} to {row['to']:,}", *length_cells(row)) for row in length["bins"]]
        tables.append(ReportTable(("length in tokens",), length_heads, rows, length_digits, notes))

    if languages := values["languages"]:
        rows = [(row["language"], *length_cells(row), *row["active"].values()) for row in languages]
        heads = (*length_heads, *(f"active: {group}" for group in groups))
        tables.append(ReportTable(("language",), heads, rows, (*length_digits, *[0] * len(groups))))
        rows = [(row["language"], *map("  ".join, row["frequent"].values())) for row in languages]
        tables.append(ReportTable(("language", *(f"most frequent: {view}" for view in values["frequent"])), (), rows))

    corpus = f" of {values['corpus']}" if values["corpus"] else ""
    encoder = f", encoded by {values['encoder']}" if values["encoder"] else ""
    pruning = f", pruned: {values['pruning']}" if values["pruning"] else ""
    documents, postings = counted(values["documents"], unit[:-1]), counted(values["postings"], "posting")
    head = f"{values['vectors']}: {documents}{corpus}{encoder}{pruning}; {postings}\n"
    return "\n".join([head, *map(render, tables)])


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
