"""The figures of a store's sparsity as tables for the terminal."""

from collections.abc import Iterator, Mapping, Sequence
from math import nan
from typing import Any

from milco_pyserini.console import counted
from milco_pyserini.eval.formats import text
from milco_pyserini.eval.tables import Figure, Row, Table

_SPREAD = ("mean", "min", "p5", "median", "p95", "max")
_SPREAD_HEADS = ("mean", "min", "5 %", "median", "95 %", "max")
_KINDS = {"words": "words", "insides": "insides of words", "signs": "signs", "special": "special"}


def shown_report(value: Mapping[str, Any]) -> str:
    """What report() gave, table after table; it ends with a line end."""
    tables = [_terms(value), _lists(value), *_frequent(value), *_never(value), *_length(value), *_languages(value)]
    return "\n".join([_head(value), *map(text, tables)])


def _head(value: Mapping[str, Any]) -> str:
    of = f" of {value['corpus']}" if value["corpus"] else ""
    by = f", encoded by {value['encoder']}" if value["encoder"] else ""
    pruning = f", pruned: {value['pruning']}" if value["pruning"] else ""
    unit = counted(value["documents"], value["unit"][:-1])
    return f"{value['vectors']}: {unit}{of}{by}{pruning}; {counted(value['postings'], 'posting')}\n"


def _terms(value: Mapping[str, Any]) -> Table:
    unit = value["unit"][:-1]
    rows = [
        Row((group,), (*_spread(each), _whole(each["without"]))) for group, each in value["terms_per_document"].items()
    ]
    return Table((f"terms per {unit}",), (*_SPREAD_HEADS, "without a term"), tuple(rows))


def _lists(value: Mapping[str, Any]) -> Table:
    heads = ("columns", "active", "never", "never (%)", *_SPREAD_HEADS, "in the longest 1 % (%)")
    rows = []
    for group, each in value["posting_lists"].items():
        never = each["never_active"] / each["columns"] if each["columns"] else None
        figures = (
            *(_whole(each[name]) for name in ("columns", "active", "never_active")),
            _percent(never),
            *_spread(each["length"] or {}),
            _percent(each["in_longest_percent"]),
        )
        rows.append(Row((group,), figures))
    note = (
        f"lengths of the lists of active columns, in {value['unit']}; the share of all postings that 1 % of them hold"
    )
    return Table(("posting lists",), heads, tuple(rows), (note,))


def _frequent(value: Mapping[str, Any]) -> Iterator[Table]:
    for view, terms in value["frequent"].items():
        rows = [
            Row((term["term"],), (_whole(term["documents"]), _percent(term["share"]), _figure(term["mean_weight"], 2)))
            for term in terms
        ]
        yield Table((f"most frequent: {view}",), (value["unit"], "of all (%)", "mean weight"), tuple(rows))


def _never(value: Mapping[str, Any]) -> Iterator[Table]:
    rows = []
    for view, kinds in (value["never_active"] or {}).items():
        for kind, each in kinds.items():
            share = _percent(each["never_active"] / each["columns"])
            figures = (_whole(each["never_active"]), _whole(each["columns"]), share)
            rows.append(Row((f"{view}: {_KINDS[kind]}", "  ".join(each["examples"]) or "-"), figures))
    if rows:
        yield Table(("never active", "the first of them"), ("never", "columns", "never (%)"), tuple(rows))


def _length(value: Mapping[str, Any]) -> Iterator[Table]:
    length = value["length"]
    if length is None:
        return
    groups = list(value["terms_per_document"])
    rows = [
        Row(
            (f"{each['from']:,} to {each['to']:,}",),
            _lengths(each, groups),
        )
        for each in length["bins"]
    ]
    heads = (value["unit"], "mean tokens", *(_terms_head(group) for group in groups), "terms per token")
    yield Table(("length in tokens",), heads, tuple(rows), tuple(_length_notes(value, length)))


def _length_notes(value: Mapping[str, Any], length: Mapping[str, Any]) -> Iterator[str]:
    for group, each in length["correlation"].items():
        if each["pearson"] is not None:
            figures = f"Pearson's r {each['pearson']:.3f}, Spearman's {each['spearman']:.3f}"
            yield f"length and {_terms_head(group)}: {figures}"
    yield "tokens are the encoder's, <s> and </s> among them, as far as they were read"
    if length["truncated"]:
        yield f"cut at the maximum length: {counted(length['truncated'], 'longer text')}"
    if length["without_text"]:
        yield f"without a text in the corpus: {counted(length['without_text'], value['unit'][:-1])}"
    if length["same_texts"] is False:
        yield "the texts are not exactly those that were encoded: lengths may differ from what was read"


def _languages(value: Mapping[str, Any]) -> Iterator[Table]:
    languages = value["languages"]
    if languages is None:
        return
    groups = list(value["terms_per_document"])
    rows = [
        Row(
            (each["language"],),
            (
                *_lengths(each, groups),
                *(_whole(each["active"][group]) for group in groups),
            ),
        )
        for each in languages
    ]
    heads = (value["unit"], "mean tokens", *map(_terms_head, groups), "terms per token")
    yield Table(("language",), (*heads, *(f"active: {group}" for group in groups)), tuple(rows))
    views = list(value["frequent"])
    shown = [Row((each["language"], *("  ".join(each["frequent"][view]) for view in views)), ()) for each in languages]
    yield Table(("language", *(f"most frequent: {view}" for view in views)), (), tuple(shown))


def _lengths(each: Mapping[str, Any], groups: Sequence[str]) -> tuple[Figure, ...]:
    """Of some documents: how many they are, their mean tokens and terms, and terms per token."""
    terms = (_figure(each["terms"][group]) for group in groups)
    return _whole(each["documents"]), _figure(each["tokens"]), *terms, _figure(each["terms_per_token"], 2)


def _terms_head(group: str) -> str:
    return group if group == "terms" else f"{group} terms" if group != "both" else "terms of both"


def _spread(each: Mapping[str, float]) -> Sequence[Figure]:
    return [_figure(each.get(name), 1 if name == "mean" else 0) for name in _SPREAD]


def _whole(value: float | None) -> Figure:
    return _figure(value, 0)


def _percent(share: float | None) -> Figure:
    return _figure(None if share is None else 100 * share, 1)


def _figure(value: float | None, digits: int = 1) -> Figure:
    return Figure(nan if value is None else value, digits=digits)
