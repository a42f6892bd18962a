"""Explanations as a page for a browser: one HTML document that needs nothing else. Every text is escaped here."""

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files

from milco_pyserini.console import counted
from milco_pyserini.explain.highlights import Stretch, from_the_whole, stretches
from milco_pyserini.explain.numerals import mixture, numeral, share
from milco_pyserini.explain.parts import Comparison, Difference, Explanation, Hit, Part, Side, Term, by_view
from milco_pyserini.explain.terminal import shown_piece, tokens
from milco_pyserini.sparse import PIVOT, SOURCE

# Parts that stand on the page at once; the others unfold.
_FIRST = 20
_ALONE = 30
# Characters of a hit's text before it is explained.
_PREVIEW = 600
_VIEWS = {PIVOT: "English terms (pivot view)", SOURCE: "the texts' own words (source view)", "other": "other terms"}
WHY = "Why this matches"
# Kana, Hangul, Han: one Han character is drawn differently in Japanese and in Chinese fonts.
_SCRIPTS = [re.compile(script) for script in ("[\u3040-\u30ff]", "[\uac00-\ud7a3]", "[\u3400-\u9fff]")]
_LOOKED_AT = 500


def report_page(query: str, explanations: Sequence[Explanation], comparison: Comparison | None = None) -> str:
    """The explanations of one query's documents, and why the first of two stands above the second."""
    body = [f'<h1>Why these documents match: <bdi lang="{language_of(query)}">{escape(query)}</bdi></h1>']
    if not explanations:
        body.append("<p>No document has a term of this query.</p>")
    body += [comparison_html(comparison)] if comparison else []
    body += [explanation_html(one) for one in explanations]
    return whole_page(f"{query} – explained", "\n".join(body))


def whole_page(title: str, body: str) -> str:
    """A complete HTML document. title: text. body: HTML."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{_asset("page.css")}</style>
</head>
<body>
{body}
<script>{_asset("page.js")}</script>
</body>
</html>
"""


@cache
def content_security_policy() -> str:
    """The header that lets a page of ours use its own script and style, and nothing from anywhere."""
    digest = base64.b64encode(hashlib.sha256(_asset("page.js").encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


def explanation_html(explanation: Explanation, head: str | None = None) -> str:
    """One document as an article. head: HTML in place of its name."""
    name = head or f"<bdi>{escape(explanation.document.name)}</bdi>"
    return f"<article>\n<h2>{name}</h2>\n{_score(explanation)}\n{explanation_body(explanation)}\n</article>"


def explanation_body(explanation: Explanation, foldable: bool = False) -> str:
    """Return what an article has below its score: both texts highlighted, terms and what was lost.

    foldable: terms and what follows can be folded, and are unfolded.
    """
    parts = explanation.strongest
    blocks = [*map(_note, explanation.notes), _texts(explanation, parts)]
    if parts:
        blocks.append(_shares(explanation))
    details = [*_tables(explanation, parts), _losses(explanation)]
    details += [_alone("only in the query", explanation.query_only, explanation)]
    details += [_alone("only in the document", explanation.document_only or [], explanation)]
    inner = "\n".join(filter(None, [*details, _audit(explanation)]))
    blocks.append(f"<details open><summary>{WHY}</summary>{inner}</details>" if foldable else inner)
    return "\n".join(['<div class="body">', *blocks, "</div>"])


def hit_html(hit: Hit, rank: int, name: str, links: Sequence[str], explanation: str) -> str:
    """One hit as an article that is explained when it is unfolded.

    name, links, explanation (address of the explanation_body() of this hit): HTML. The last link leads there without a
    script.
    """
    facts = [_ranked(hit.score, rank, hit), *links[:-1]]
    shown = "" if hit.text is None else _plain_text(hit.text)
    fold = f'<details data-from="{explanation}"><summary>{WHY}</summary><p>{links[-1]}</p></details>'
    return (
        f'<article>\n<h2>{name}</h2>\n<p class="score">{" · ".join(facts)}</p>\n'
        f'<div class="body">{shown}{fold}</div>\n</article>'
    )


def language_of(text: str) -> str:
    """Return the language of a text whose script tells it, for its font: "ja", "ko", "zh"; else "", for unknown."""
    start = text[:_LOOKED_AT]
    kana, hangul, han = (len(script.findall(start)) for script in _SCRIPTS)
    if 2 * (kana + hangul + han) <= sum(map(str.isalpha, start)):
        return ""
    return "ko" if hangul > kana + han else "ja" if kana else "zh"


def _plain_text(text: str) -> str:
    shown = escape(text if len(text) <= _PREVIEW else f"{text[:_PREVIEW].rstrip()} …")
    return f'<p class="text" dir="auto" lang="{language_of(text)}">{shown}</p>'


def _note(note: str) -> str:
    return f'<p class="note">{escape(note)}</p>'


def _tables(explanation: Explanation, parts: Sequence[Part]) -> list[str]:
    if not parts:
        return ["<p>No term of the query is in this document.</p>"]
    rest = parts[_FIRST:]
    tables = [_parts_table(explanation, parts[:_FIRST], 0)]
    if rest:
        amount = sum(part.contribution for part in rest)
        label = f"{counted(len(rest), 'more term')}, {share(amount, explanation.total):.1%} of the score"
        tables.append(_details(label, _parts_table(explanation, rest, _FIRST)))
    return tables


def comparison_html(comparison: Comparison) -> str:
    """The terms by which the first of two documents stands above the second."""
    first = comparison.first
    names = [f"<bdi>{escape(one.document.name)}</bdi>" for one in (first, comparison.second)]
    rows = [_difference(row, first) for row in comparison.differences]
    shown = [*rows[:_FIRST], *([_difference(comparison.rounding, first)] if comparison.rounding else [])]
    heads = [("", "term"), ("", "view"), *(("number", name) for name in names), ("number", "difference")]
    scores = " − ".join(numeral(score, first) for score in comparison.scores)
    caption = f"Terms by what they add to the distance of {numeral(comparison.total, first)} ({scores})"
    same = f"{names[0]} and {names[1]} have the same score, {numeral(comparison.scores[0], first)}"
    head = f"Why {names[0]} stands above {names[1]}" if comparison.total else same
    blocks = [f'<section class="comparison">\n<h2>{head}</h2>', *([_note(comparison.note)] if comparison.note else [])]
    blocks += [_table(caption, heads, shown)] if shown else []
    if rows[_FIRST:]:
        blocks.append(_details(counted(len(rows) - _FIRST, "more term"), _table(caption, heads, rows[_FIRST:])))
    return "\n".join(blocks) + "\n</section>"


def _difference(row: Difference, explanation: Explanation) -> list[tuple[str, str]]:
    return [
        ("", _term(row.term)),
        ("", row.term.view or ""),
        ("number", numeral(row.first, explanation)),
        ("number", numeral(row.second, explanation)),
        ("number", f"{'+' if row.difference > 0 else ''}{numeral(row.difference, explanation)}"),
    ]


def _ranked(score: float, rank: int | None, numbers: Explanation | Hit) -> str:
    ranked = "" if rank is None else f"rank {rank:,} · "
    return f"{ranked}score <strong>{numeral(score, numbers)}</strong>"


def _score(explanation: Explanation) -> str:
    score = explanation.total if explanation.score is None else explanation.score
    return f'<p class="score">{_ranked(score, explanation.rank, explanation)}</p>'


def _audit(explanation: Explanation) -> str:
    """How the contributions add up to the engine's score, and what they would be of unrounded weights."""
    facts = [f"{escape(explanation.engine)} ({escape(explanation.exactness)})"]
    if explanation.alpha is not None:
        facts.append(mixture(explanation.alpha))
    facts.append(f"sum of the contributions {numeral(explanation.total, explanation)}")
    if explanation.unit != 1:
        facts.append(f"{explanation.total / explanation.unit:.4f} in weights")
    if explanation.difference is not None:
        facts.append(f"difference from the score {explanation.difference:g}")
    if explanation.unpruned:
        left = share(explanation.total, explanation.unpruned)
        facts.append(f"{left:.1%} of the {numeral(explanation.unpruned, explanation)} before pruning and rounding")
    return f'<p class="key audit">{" · ".join(facts)}</p>'


def _texts(explanation: Explanation, parts: Sequence[Part]) -> str:
    sides = ((explanation.query, "query"), (explanation.document, "document"))
    return f'<div class="texts">{"".join(_text(side, label, parts) for side, label in sides)}</div>'


def _text(side: Side, label: str, parts: Sequence[Part]) -> str:
    head = f'<p class="label">{label}</p>'
    if side.text is None:
        return f'<div>{head}<p class="text absent">The text is not available.</p></div>'
    found = stretches(side, parts)
    most = max((stretch.amount for stretch in found), default=0.0) or 1.0
    inner = "".join(_stretch(side, stretch, parts, most) for stretch in found)
    whole = from_the_whole(side, parts)
    said = ", ".join(_term(parts[number].term) for number in whole)
    under = f'<p class="key">from the text as a whole: {said}</p>' if whole else ""
    return f'<div>{head}<p class="text" dir="auto" lang="{language_of(side.text)}">{inner}</p>{under}</div>'


def _stretch(side: Side, stretch: Stretch, parts: Sequence[Part], most: float) -> str:
    text = side.text or ""
    read, beyond = (
        text[stretch.start : min(stretch.stop, side.read)],
        text[max(stretch.start, side.read) : stretch.stop],
    )
    tail = f'<span class="beyond" title="not read: the text was cut here">{escape(beyond)}</span>' if beyond else ""
    if not stretch.parts:
        return escape(read) + tail
    # What gave little must still be seen.
    strength = 0.15 + 0.85 * stretch.amount / most
    title = ", ".join(shown_piece(parts[number].term) for number in stretch.parts)
    return (
        f'<mark class="{stretch.view}" style="--s:{strength:.2f}" data-parts="{" ".join(map(str, stretch.parts))}" '
        f'title="{escape(title)}">{escape(read)}</mark>{tail}'
    )


def _shares(explanation: Explanation) -> str:
    shares = {name: part for name, part in explanation.shares.items() if part}
    bars = "".join(f'<span class="{name}" style="width:{100 * part:.2f}%"></span>' for name, part in shares.items())
    said = " &nbsp; ".join(_swatch(name, f"{part:.1%} ") for name, part in shares.items())
    return f'<div class="shares" aria-hidden="true">{bars}</div>\n<p class="key">{said}</p>'


def _parts_table(explanation: Explanation, parts: Sequence[Part], first: int) -> str:
    strongest = explanation.strongest[0].contribution or 1
    rows = []
    for number, part in enumerate(parts, first):
        view = part.term.view or "other"
        width = max(0.0, 100 * part.contribution / strongest)
        name = escape(shown_piece(part.term))
        button = (
            f'<button type="button" class="term" aria-pressed="false" data-part="{number}"><bdi>{name}</bdi></button>'
        )
        product = f"{numeral(part.query, explanation)} × {numeral(part.document, explanation)}"
        came = [tokens(side, part.term.term) for side in (explanation.query, explanation.document)]
        origins = " → ".join(f"<bdi>{escape(word)}</bdi>" for word in came if word)
        rows.append(
            [
                ("", f"{button}<small>{origins}</small>"),
                ("number", numeral(part.contribution, explanation)),
                ("number", f"{share(part.contribution, explanation.total):.1%}"),
                ("bars", f'<span class="bar {view}" style="width:{width:.1f}%"></span>'),
                ("number", product),
                ("view", view),
            ]
        )
    heads = [
        *(("", "term"), ("number", "contribution"), ("number", "share")),
        *(("bars", '<span class="hidden">share as a bar</span>'), ("number", "query × document"), ("view", "view")),
    ]
    return _table(
        "Matching terms, each with the tokens it comes from (query → document); press one to outline them", heads, rows
    )


def _table(caption: str, heads: Iterable[tuple[str, str]], rows: Iterable[Iterable[tuple[str, str]]]) -> str:
    """Cells are (class, HTML)."""
    head = "".join(f'<th scope="col"{_class(kind)}>{cell}</th>' for kind, cell in heads)
    body = "\n".join(f"<tr>{''.join(f'<td{_class(kind)}>{cell}</td>' for kind, cell in row)}</tr>" for row in rows)
    return (
        f'<div class="wide"><table>\n<caption>{caption}</caption>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _alone(title: str, terms: Sequence[tuple[Term, float]], explanation: Explanation) -> str:
    if not terms:
        return ""
    lists = []
    for view, mine in by_view(terms).items():
        items = [
            f"<li>{_term(term)} <small>{numeral(number, explanation)}</small></li>" for term, number in mine[:_ALONE]
        ]
        more = f"<li><small>and {len(mine) - _ALONE:,} more</small></li>" if len(mine) > _ALONE else ""
        lists.append(f'<p class="key">{_swatch(view)}</p><ul class="terms">{"".join(items)}{more}</ul>')
    return _details(f"Terms {title}: {len(terms):,}", "".join(lists))


def _swatch(view: str, said: str = "") -> str:
    return f'<i class="{view}"></i> {said}{_VIEWS[view]}'


def _losses(explanation: Explanation) -> str:
    dropped = explanation.dropped or {}
    if not dropped and not explanation.lost:
        return ""
    said = "; ".join(f"{escape(why)}: {counted(number, 'term')}" for why, number in dropped.items())
    lost = [
        [
            ("", _term(one.term)),
            ("", one.term.view or ""),
            ("number", numeral(one.contribution, explanation)),
            ("", escape(one.why)),
        ]
        for one in explanation.lost or ()
    ]
    heads = [("", "term"), ("", "view"), ("number", "would have contributed"), ("", "removed by")]
    table = _table("Terms of both texts that do not count", heads, lost) if lost else ""
    label = f"Removed: {sum(dropped.values()):,} of the document's terms, {counted(len(lost), 'match', 'matches')}"
    return _details(label, (f"<p>{said}</p>" if said else "") + table)


def _term(term: Term) -> str:
    return f"<bdi>{escape(shown_piece(term))}</bdi>"


def _details(label: str, inner: str) -> str:
    return f"<details><summary>{label}</summary>{inner}</details>"


@cache
def _asset(name: str) -> str:
    return (files("milco_pyserini.explain") / "assets" / name).read_text(encoding="utf-8")
