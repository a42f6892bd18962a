"""An explanation as lines that a person reads in a terminal. Terms come last: their width is not known everywhere."""

from collections.abc import Sequence

from milco_pyserini.console import counted
from milco_pyserini.explain.numerals import mixture, numeral, share
from milco_pyserini.explain.parts import Comparison, Explanation, Part, Side, Term, by_view
from milco_pyserini.sparse import SOURCE
from milco_pyserini.sparse.listing import readable

_BAR = 12
_SHOWN_TEXT = 300
_ALONE = 12
# They print nothing, and join letters in Persian, Hindi and emoji.
_JOINERS = "\u200c\u200d"


def explanation_text(explanation: Explanation, top_k: int) -> str:
    """One document: its score, the views' shares, the top_k strongest parts, and what did not count."""
    parts = explanation.strongest
    lines = [_head(explanation), *(f"  note: {note}" for note in explanation.notes), *_quoted(explanation.document)]
    lines += [] if explanation.alpha is None else [f"  {mixture(explanation.alpha)}"]
    if parts:
        shares = ", ".join(f"{name} {part:.1%}" for name, part in explanation.shares.items() if part)
        of = counted(len(explanation.query.weights), "term")
        lines += [f"  {len(parts)} of the query's {of} matched: {shares}", "", _parts_head(explanation)]
        lines += [_part_line(part, explanation) for part in parts[:top_k]]
        lines += [_rest(parts[top_k:], explanation)] if parts[top_k:] else []
        lines += ["", *_checks(explanation)]
    else:
        lines.append("  no term of the query is in this document")
    lines += _alone("the query's alone", explanation.query_only, explanation)
    lines += _alone("the document's alone", explanation.document_only or [], explanation)
    lines += _losses(explanation, top_k)
    return _written(lines)


def comparison_text(comparison: Comparison, top_k: int) -> str:
    """Two documents: by which terms the first stands above the second."""
    first = comparison.first
    lines = [_verdict(comparison), *([f"  note: {comparison.note}"] if comparison.note else [])]
    rest = comparison.differences[top_k:]
    shown = [*comparison.differences[:top_k], *([comparison.rounding] if comparison.rounding else [])]
    if shown:
        lines.append(f"  {'difference':>12}  {'first':>12}  {'second':>12}  {'view':<6}  term")
    for row in shown:
        numbers = "  ".join(f"{numeral(value, first):>12}" for value in (row.difference, row.first, row.second))
        lines.append(f"  {numbers}  {row.term.view or '':<6}  {shown_piece(row.term)}")
    if rest:
        total = sum(row.difference for row in rest)
        lines.append(f"  {numeral(total, first):>12}  {counted(len(rest), 'more term')}")
    return _written(lines)


def _written(lines: Sequence[str]) -> str:
    """The lines with escapes for what would act on a terminal: texts and ids come from anywhere."""
    return "".join(
        "".join(sign if sign.isprintable() or sign in _JOINERS else ascii(sign)[1:-1] for sign in line) + "\n"
        for line in lines
    )


def _verdict(comparison: Comparison) -> str:
    first, second = (one.document.name for one in (comparison.first, comparison.second))
    one, other, distance = (numeral(value, comparison.first) for value in (*comparison.scores, comparison.total))
    if not comparison.total:
        return f"{first} and {second} have the same score, {one}"
    unit = comparison.first.unit
    in_weights = f" = {comparison.total / unit:.4f} in weights" if unit != 1 else ""
    return f"why {first} ({one}) stands above {second} ({other}): {distance}{in_weights}"


def shown_piece(term: Term) -> str:
    """A term as a reader knows it: ▁ marks a word's beginning in source terms, and says nothing here."""
    return readable((term.piece.replace("▁", "") if term.view == SOURCE else "") or term.piece)


def tokens(side: Side, term: str) -> str:
    """The tokens of a text that a term came from, as they are spelled there."""
    found = []
    for origin in side.origins.get(term, ()):
        word = " ".join((side.text or "")[origin.start : origin.stop].split()) or origin.token
        if word not in found:
            found.append(word)
    return " ".join(found)


def _head(explanation: Explanation) -> str:
    score = explanation.total if explanation.score is None else explanation.score
    parts = [f"{explanation.document.name}: score {numeral(score, explanation)}"]
    if explanation.unit != 1:
        parts.append(f"{score / explanation.unit:.4f} in weights")
    if explanation.rank is not None:
        parts.append(f"rank {explanation.rank:,}")
    return ", ".join([*parts, f"{explanation.engine} ({explanation.exactness})"])


def _quoted(side: Side) -> list[str]:
    if side.text is None:
        return []
    text = " ".join(side.text.split())
    return [f"  {text if len(text) <= _SHOWN_TEXT else text[:_SHOWN_TEXT] + '…'}"]


def _parts_head(explanation: Explanation) -> str:
    numbers = f"{'score':>12}  {'share':>6}  {'':<{_BAR}}  {'query x document':>19}"
    return f"  {numbers}  {'view':<6}  term: query's tokens → document's tokens"


def _part_line(part: Part, explanation: Explanation) -> str:
    portion = share(part.contribution, explanation.total)
    strongest = explanation.strongest[0].contribution or 1
    bar = "█" * max(1, round(_BAR * part.contribution / strongest))
    product = f"{numeral(part.query, explanation)} x {numeral(part.document, explanation)}"
    term = part.term
    came = [tokens(side, term.term) for side in (explanation.query, explanation.document)]
    origin = f": {' → '.join(word for word in came if word)}" if any(came) else ""
    amount = numeral(part.contribution, explanation)
    numbers = f"  {amount:>12}  {portion:>6.1%}  {bar:<{_BAR}}  {product:>19}"
    return f"{numbers}  {term.view or '':<6}  {shown_piece(term)}{origin}"


def _rest(parts: Sequence[Part], explanation: Explanation) -> str:
    amount = sum(part.contribution for part in parts)
    portion = share(amount, explanation.total)
    return f"  {numeral(amount, explanation):>12}  {portion:>6.1%}  {counted(len(parts), 'more term')}"


def _checks(explanation: Explanation) -> list[str]:
    line = f"  sum of the parts {numeral(explanation.total, explanation)}"
    if explanation.difference is not None:
        score = numeral(explanation.score or 0, explanation)
        line += f", the engine's score {score}, difference {explanation.difference:g}"
    elif explanation.engine != "no index":
        line += ": the engine was not asked so deep for its own"
    lines = [line]
    if explanation.unpruned:
        left = share(explanation.total, explanation.unpruned)
        before = numeral(explanation.unpruned, explanation)
        lines.append(f"  {left:.1%} of the {before} that it would be before pruning and rounding")
    return lines


def _alone(title: str, terms: Sequence[tuple[Term, float]], explanation: Explanation) -> list[str]:
    lines = []
    for view, mine in by_view(terms).items():
        first = ", ".join(f"{shown_piece(term)} {numeral(number, explanation)}" for term, number in mine[:_ALONE])
        more = f", and {len(mine) - _ALONE:,} more" if len(mine) > _ALONE else ""
        lines.append(f"  {title}, {view}: {first}{more}")
    return lines


def _losses(explanation: Explanation, top_k: int) -> list[str]:
    lines = [
        f"  of the document, {why}: {counted(number, 'term')}" for why, number in (explanation.dropped or {}).items()
    ]
    lines += [
        f"  would have matched: {shown_piece(one.term)}, {numeral(one.contribution, explanation)} ({one.why})"
        for one in (explanation.lost or ())[:top_k]
    ]
    more = len(explanation.lost or ()) - top_k
    return [*lines, *([f"  would have matched: {counted(more, 'more term')}"] if more > 0 else [])]
