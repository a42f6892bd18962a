"""Hits as tables: a data frame, and HTML for notebooks."""

from typing import TYPE_CHECKING, Any

from milco_pyserini.errors import MilcoError

if TYPE_CHECKING:
    import pandas

    from milco_pyserini.index.protocol import Hits

_SHOWN = 20
_CHARACTERS = 300
# Colors are the notebook's own, light or dark.
_HTML = """<div style="overflow-x: auto; overflow-wrap: anywhere">
<table>
<tr>{% for name in ("rank", "score", "share", "docid", "text") %}<th>{{ name }}</th>{% endfor %}</tr>
{% for cells, title, text in rows %}
<tr>{% for cell in cells %}<td>{{ cell }}</td>{% endfor %}

<td dir="auto" style="text-align: start">{% if title %}<b>{{ title }}</b> {% endif %}{{ text }}</td></tr>
{% endfor %}
</table>
{% for note in notes %}<p>{{ note }}</p>{% endfor %}
</div>"""


def hits_frame(hits: "Hits") -> "pandas.DataFrame":
    """Return a pandas.DataFrame, as Hits.to_frame() does. Raises MilcoError without pandas."""
    try:
        import pandas
    except ImportError:
        raise MilcoError("to_frame() needs pandas: pip install pandas") from None
    columns = ["rank", "docid", "score", "share", *(["passage"] if hits.passages is not None else []), "title", "text"]
    rows: list[dict[str, Any]] = []
    for rank, hit in enumerate(hits, start=1):
        known = {name: getattr(hit, name) for name in ("docid", "score", "share", "passage", "title")}
        rows.append({**hit.fields, "rank": rank, **known, "text": hit.document and hit.document.text})
    fields = dict.fromkeys(name for row in rows for name in row if name not in ("passage", *columns))
    return pandas.DataFrame(rows, columns=[*columns, *fields])


def hits_html(hits: "Hits") -> str:
    """Return a table of the first hits: rank, score, share, docid, title and the beginning of the text."""
    from jinja2 import Environment

    first, rows = hits[:_SHOWN], []
    notes = [f"and {len(hits) - len(first):,} more"] if len(hits) > len(first) else []
    closed: MilcoError | None = None
    for rank, hit in enumerate(first, start=1):
        share = document = None
        try:
            if closed is None:
                share, document = hit.share, hit.document
        except MilcoError as error:
            closed = error
            notes.append(f"no texts: {error}")
        score = f"{hit.score:,.0f}" if hit.score.is_integer() else f"{hit.score:,.4f}"
        text = "" if document is None else document.text
        text = text if len(text) <= _CHARACTERS else text[:_CHARACTERS] + "…"
        cells = (rank, score, "" if share is None else f"{share:.0%}", hit.docid)
        rows.append((cells, document and document.title, text))
    return Environment(autoescape=True).from_string(_HTML).render(rows=rows, notes=notes)
