"""Show sparse vectors to people: readable terms, bars for terminals and notebooks."""

from collections.abc import Sequence

from milco_pyserini.console import counted
from milco_pyserini.errors import MilcoError
from milco_pyserini.sparse.terms import unescape

_BAR = 24
_TITLES = {"pivot": "pivot view (English)", "source": "source view (the text's own words, prefix m_)"}
_HTML = """<div style="font: 12px monospace"><p>{{ title }}</p>
{% for terms, total in vectors %}<table style="margin: 0 0 1em">
{% for term, weight in terms %}<tr><td style="text-align: right">{{ "%.2f" | format(weight) }}</td>\
<td><div style="height: 0.8em; background: #47a; width: {{ (120 * weight / terms[0][1]) | round | int }}px"></div>\
</td><td style="text-align: left">{{ readable(term) }}</td></tr>
{% endfor %}{% if total > terms | length %}<tr><td></td><td></td><td>and {{ total - terms | length }} more</td></tr>
{% endif %}</table>
{% endfor %}</div>"""


def listing(view: str, terms: Sequence[tuple[str, float]], total: int) -> str:
    """Return lines "weight bar term" for the strongest terms of one view, and their number of total.

    terms: (escaped term, weight > 0), strongest first.
    """
    lines = [f"{_TITLES[view]}: {counted(total, 'term')}"]
    if len(terms) < total:
        lines[0] += f", the strongest {len(terms)}"
    strongest = terms[0][1] if terms else 1.0
    for term, weight in terms:
        bar = "█" * max(1, round(_BAR * weight / strongest))
        lines.append(f"  {weight:6.2f}  {bar:<{_BAR}}  {readable(term)}")
    return "\n".join(lines) + "\n"


def html_bars(title: str, vectors: Sequence[Sequence[tuple[str, float]]], totals: Sequence[int]) -> str:
    """Return HTML with bars of each vector's strongest terms. totals: numbers of terms of the complete vectors."""
    from jinja2 import Environment

    template = Environment(autoescape=True).from_string(_HTML)
    return template.render(title=title, vectors=list(zip(vectors, totals, strict=False)), readable=readable)


def readable(term: str) -> str:
    """Return the text of an escaped term, with escapes for what a terminal cannot show."""
    try:
        text = unescape(term)
    except MilcoError:
        text = term
    return text if text.isprintable() else ascii(text)
