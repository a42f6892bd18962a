"""The demo's figures as text for a terminal."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from textwrap import indent
from typing import Any

from milco_pyserini.demo.evaluation import BM25, SHOWN, DemoCost, DemoResult, LanguageMatrix, across
from milco_pyserini.eval import ReportTable, render

NAMES = dict(
    zip(
        "ar de en es fi fr hi id ja ko ru sw zh".split(),
        "Arabic German English Spanish Finnish French Hindi Indonesian Japanese Korean Russian Swahili Chinese".split(),
        strict=True,
    )
)
WHY = """\
The source view finds passages that share words with the query, which are those of its own language: it helps within a
language. The pivot view alone ranks languages more alike where all are searched at once, as here."""
TERMS = "Strongest terms of some queries"


def demo_text(result: DemoResult) -> str:
    """Return all tables and examples."""
    milco, passages = result.matrices[SHOWN], result.passages
    blocks = [
        languages_table(SHOWN, milco, result.matrices[BM25], passages // len(milco)),
        matrix_table(SHOWN, milco),
        summary_table(result.summaries, passages),
        WHY,
        cost_table(result.costs),
        TERMS,
        *(
            f"  {text}\n    in English:          {_terms(pivot)}\n    in its own language: {_terms(source)}"
            for text, pivot, source in result.examples
        ),
    ]
    return "\n\n".join(blocks)


def languages_table(name: str, milco: LanguageMatrix, bm25: LanguageMatrix, passages: int) -> str:
    """Return a line for each language of the queries: both systems, within the language and across to the others."""
    rows: list[list[Any]] = [
        [
            f"{asked}  {NAMES.get(asked, asked)}",
            bm25[asked][asked],
            milco[asked][asked],
            across(bm25, asked),
            across(milco, asked),
        ]
        for asked in milco
    ]
    rows.append(["mean", *(fmean(column) for column in list(zip(*rows, strict=True))[1:])])
    heads = ("BM25 within", "MILCO within", "BM25 across", "MILCO across")
    title = f"{name}, nDCG@10, ranking the {passages} passages of one language at a time (across: mean of the others)"
    return _titled(title, ReportTable(("queries in",), heads, rows, (3,) * 4))


def matrix_table(name: str, milco: LanguageMatrix) -> str:
    """Return the queries' languages (rows) by the passages' (columns), in hundredths."""
    rows = [[asked, *(100 * value for value in values.values())] for asked, values in milco.items()]
    title = f"{name}, nDCG@10 x 100: queries in (down), passages in (across)"
    return _titled(title, ReportTable(("",), tuple(milco), rows, (0,) * len(milco)))


def summary_table(summaries: Mapping[str, Mapping[str, float]], passages: int) -> str:
    """Return a line for each system: all languages' passages ranked together, and the means of the matrices."""
    rows = [[name, *figures.values()] for name, figures in summaries.items()]
    title = (
        f"nDCG@10 and R@100, ranking all {passages} passages at once, with relevant ones in every language; and the "
        "mean nDCG@10\nwithin a language and across languages, ranking the passages of one language at a time"
    )
    return _titled(title, ReportTable(("",), ("nDCG@10", "R@100", "within", "across"), rows, (3,) * 4))


def cost_table(costs: Sequence[DemoCost]) -> str:
    """Return a line for each system: time and disk."""
    rows = [[one.name, one.encode or None, one.index, one.query, one.size / 1e6] for one in costs]
    return _titled("Cost", ReportTable(("",), ("encode s", "index s", "query ms", "disk MB"), rows, (1, 1, 2, 2)))


def _titled(title: str, table: ReportTable) -> str:
    return f"{title}\n\n{indent(render(table).rstrip(), '  ')}"


def _terms(terms: Sequence[tuple[str, float]]) -> str:
    return "  ".join(f"{term} {weight:.2f}" for term, weight in terms)
