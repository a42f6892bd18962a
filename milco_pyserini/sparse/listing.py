"""A term vector as lines that a person reads: strongest first, with bars."""

from collections.abc import Sequence

from milco_pyserini.errors import MilcoError
from milco_pyserini.sparse.batch import PIVOT
from milco_pyserini.sparse.terms import unescape

_BAR = 24
_TITLES = {PIVOT: "pivot view (English)", "source": "source view (the text's own words)"}


def listing(view: str, terms: Sequence[tuple[str, float]], total: int) -> str:
    """Lines "weight bar term" for the strongest terms of one view, and how many of total they are.

    terms: (escaped term, weight > 0), strongest first.
    """
    lines = [f"{_TITLES[view]}: {total} terms" + (f", the strongest {len(terms)}" if len(terms) < total else "")]
    strongest = terms[0][1] if terms else 1.0
    for term, weight in terms:
        bar = "█" * max(1, round(_BAR * weight / strongest))
        lines.append(f"  {weight:6.2f}  {bar:<{_BAR}}  {readable(term)}")
    return "\n".join(lines) + "\n"


def readable(term: str) -> str:
    """A term as the text that it stands for; what a terminal cannot show as escapes."""
    try:
        text = unescape(term)
    except MilcoError:
        text = term
    return text if text.isprintable() else ascii(text)
