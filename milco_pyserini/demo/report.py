"""What the demo ends with: tables and examples that a person reads in a terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from milco_pyserini.demo.figures import Matrix, across, mean, within

NAMES = {
    "ar": "Arabic",
    "de": "German",
    "en": "English",
    "es": "Spanish",
    "fi": "Finnish",
    "fr": "French",
    "hi": "Hindi",
    "id": "Indonesian",
    "ja": "Japanese",
    "ko": "Korean",
    "ru": "Russian",
    "sw": "Swahili",
    "zh": "Chinese",
}


@dataclass(frozen=True)
class Cost:
    """What one road took: seconds to encode and to index, milliseconds a query, bytes on disk."""

    name: str
    encode: float
    index: float
    query: float
    size: int


@dataclass(frozen=True)
class Example:
    """A text and its strongest terms of both views, as they are read."""

    text: str
    pivot: Sequence[tuple[str, float]]
    source: Sequence[tuple[str, float]]


def languages_table(name: str, milco: Matrix, bm25: Matrix, passages: int) -> str:
    """One line a query language: both systems within the language and across to the others.

    name: what MILCO's figures are of. passages: of each language.
    """
    lines = [
        f"{name}, nDCG@10, ranking the {passages} passages of one language at a time (across: mean of the others)",
        "",
        "                           within the language      across languages",
        "queries in                  BM25       MILCO         BM25     MILCO",
    ]
    columns = []
    for asked in milco:
        values = (within(bm25, asked), within(milco, asked), across(bm25, asked), across(milco, asked))
        columns.append(values)
        lines.append(_row(f"  {asked}  {NAMES.get(asked, asked)}", values))
    lines.append(_row("  mean", [mean(column) for column in zip(*columns, strict=True)]))
    return "\n".join(lines)


def summary_table(summaries: Mapping[str, Mapping[str, float]], passages: int) -> str:
    """One line a system: its figures where every query ranks the passages of all languages together, and its means."""
    lines = [
        f"Ranking all {passages} passages at once, with relevant ones in every language, and the means of such tables",
        "",
        " " * 36 + "all at once            nDCG@10, one language at a time",
        " " * 36 + "nDCG@10     R@100       within    across",
    ]
    for name, figures in summaries.items():
        lines.append(f"  {name:<32}" + "{nDCG@10:>9.3f}{R@100:>10.3f}{within:>13.3f}{across:>10.3f}".format(**figures))
    return "\n".join(lines)


def matrix_table(name: str, milco: Matrix) -> str:
    """Every query language (rows) on every language's passages (columns), in hundredths."""
    names = list(milco)
    lines = [
        f"{name}, nDCG@10 x 100: queries in (down), passages in (across)",
        "      " + "".join(f"{n:>5}" for n in names),
    ]
    lines += [f"  {asked}  " + "".join(f"{100 * milco[asked][found]:5.0f}" for found in names) for asked in names]
    return "\n".join(lines)


def cost_table(costs: Sequence[Cost]) -> str:
    """One line a road: time and disk."""
    lines = ["                              encode      index      query       disk"]
    for cost in costs:
        encode = f"{cost.encode:8.1f} s" if cost.encode else f"{'-':>8}  "
        lines.append(f"  {cost.name:<24}{encode} {cost.index:8.1f} s {cost.query:7.2f} ms {cost.size / 1e6:7.2f} MB")
    return "\n".join(lines)


def examples_text(examples: Sequence[Example]) -> str:
    """Each text with its English terms and its own."""
    blocks = []
    for example in examples:
        pivot = "  ".join(f"{term} {weight:.2f}" for term, weight in example.pivot)
        source = "  ".join(f"{term} {weight:.2f}" for term, weight in example.source)
        blocks.append(f"  {example.text}\n    in English:    {pivot}\n    in its words:  {source}")
    return "\n\n".join(blocks)


def _row(name: str, values: Sequence[float]) -> str:
    inside, outside = values[:2], values[2:]
    return (
        f"{name:<24}"
        + "".join(f"{v:>8.3f}   " for v in inside)
        + "   "
        + "".join(f"{v:>7.3f}   " for v in outside).rstrip()
    )
