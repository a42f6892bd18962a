"""Promises of where a term is said to come from."""

import numpy as np
import pytest
from golden_set import TEXTS, encoder

from milco_pyserini.explain.highlights import from_the_whole, stretches
from milco_pyserini.explain.origins import read_text, token_scores
from milco_pyserini.explain.parts import Origin, Part, Side, Term, matched, total
from milco_pyserini.sparse import PIVOT, SOURCE

FILLED = [text for text in TEXTS if text.strip()]
LENGTH = 16


@pytest.mark.parametrize("text", TEXTS)
def test_reading_gives_the_encoders_vector(text: str) -> None:
    """The same terms and weights as encode(), and an origin for each of them."""
    tiny = encoder("distillation")
    reading = read_text(tiny, text, LENGTH)
    expected = tiny.encode([text], LENGTH).batch
    assert reading.batch.columns.tolist() == expected.columns.tolist()
    assert np.allclose(reading.batch.weights, expected.weights, atol=1e-5)
    assert reading.origins.keys() == set(tiny.vocabulary.terms[expected.columns])


@pytest.mark.parametrize("text", FILLED)
def test_a_pivot_term_comes_from_the_token_whose_logit_won(text: str) -> None:
    """LogSat of that token's logit is the term's weight, and no other token's is larger."""
    tiny = encoder("distillation")
    reading = read_text(tiny, text, LENGTH)
    columns, weights = reading.batch.row(0)
    pivot = columns < reading.batch.english_size
    ids = tiny.tokenizer.tokenize([text], LENGTH)[0].ids
    logits, _ = token_scores(tiny, ids, columns[pivot])
    assert logits.shape == (len(ids), pivot.sum())
    assert np.allclose(np.log1p(logits.max(axis=0)), weights[pivot], atol=1e-5)
    encoding = tiny.tokenizer.tokenizer.encode(text)
    for column, token in zip(columns[pivot], logits.argmax(axis=0), strict=True):
        (origin,) = reading.origins[tiny.vocabulary.terms[column]]
        # The last token that is read is </s>, wherever the text was cut.
        assert origin.token == (encoding.tokens[token] if token < len(ids) - 1 else encoding.tokens[-1])


@pytest.mark.parametrize("text", FILLED)
def test_a_source_term_comes_from_all_tokens_that_repeat_it(text: str) -> None:
    """Their shares are 1 together, and go with the weights of the tokens."""
    tiny = encoder("distillation")
    reading = read_text(tiny, text, LENGTH)
    ids = np.array(tiny.tokenizer.tokenize([text], LENGTH)[0].ids)
    _, echo = token_scores(tiny, ids.tolist(), np.empty(0, np.int32))
    columns, weights = reading.batch.row(0)
    for column, weight in zip(columns, weights, strict=True):
        if column >= reading.batch.english_size:
            origins = reading.origins[tiny.vocabulary.terms[column]]
            amounts = echo[ids == column - reading.batch.english_size]
            assert sum(origin.share for origin in origins) == pytest.approx(1)
            assert [origin.share * weight for origin in origins] == pytest.approx(
                amounts[amounts > 0].tolist(), abs=1e-5
            )


def test_spans_are_characters_of_the_text_as_it_was_given() -> None:
    """White space is not part of a span; a text that lower case makes longer keeps its places."""
    tiny = encoder("distillation")
    text = "  İstanbul'da  İki nehir"
    for lowercase in (False, True):
        reading = read_text(tiny, text, 64, lowercase)
        spans = [origin for origins in reading.origins.values() for origin in origins if origin.start < origin.stop]
        assert spans
        for origin in spans:
            inside = text[origin.start : origin.stop]
            assert inside == inside.strip()
    last = max(origin.stop for origin in spans)
    assert last == len(text)


def test_what_was_cut_is_not_read() -> None:
    """read is the end of the last token within the length; no origin lies beyond it."""
    tiny = encoder("distillation")
    text = max(TEXTS, key=len)
    reading = read_text(tiny, text, 8)
    assert 0 < reading.read < len(text)
    assert all(origin.stop <= reading.read for origins in reading.origins.values() for origin in origins)
    assert read_text(tiny, "ab", 512).read == 2
    assert read_text(tiny, "   ", 512).origins == {}


def test_passages_are_read_as_the_encoder_cuts_them() -> None:
    """Each passage's vector is that of its tokens; its text is where they stand."""
    tiny = encoder("distillation")
    text = max(TEXTS, key=len)
    rows = tiny.tokenizer.passages([text], 8)[0]
    expected = tiny.encode_rows(rows, tiny.views)
    assert len(rows) > 1
    for number in (0, 1, len(rows) - 1):
        reading = read_text(tiny, text, 8, passage=number)
        assert reading.text in text
        columns, weights = expected.row(number)
        assert reading.batch.columns.tolist() == columns.tolist()
        assert np.allclose(reading.batch.weights, weights, atol=1e-5)


def test_a_view_less_checkpoint_has_pivot_origins_alone() -> None:
    """Without LexEcho there is no source term to explain."""
    tiny = encoder("alignment")
    reading = read_text(tiny, FILLED[0], LENGTH)
    assert reading.origins
    assert (reading.batch.columns < reading.batch.english_size).all()


def side(text: str, **origins: list[Origin]) -> Side:
    """A side with the origins of terms a, b, ..."""
    return Side("d", text, dict.fromkeys(origins, 1.0), origins=origins)


def part(name: str, amount: float, view: str = PIVOT) -> Part:
    """A part that gives so much."""
    return Part(Term(name, name, view), amount, 1.0, amount)


def test_stretches_are_the_text_and_hold_what_the_parts_gave() -> None:
    """Side by side they are the whole text; amounts add up to what came from places in it."""
    found = stretches(
        side(
            "one two three", a=[Origin(0, 3, "one", 0.25), Origin(8, 13, "three", 0.75)], b=[Origin(2, 5, "e t", 1.0)]
        ),
        [part("a", 8.0), part("b", 3.0, SOURCE)],
    )
    assert [(one.start, one.stop) for one in found] == [(0, 2), (2, 3), (3, 5), (5, 8), (8, 13)]
    assert [one.parts for one in found] == [(0,), (0, 1), (1,), (), (0,)]
    assert [one.amount for one in found] == [2.0, 5.0, 3.0, 0, 6.0]
    assert [one.view for one in found] == [PIVOT, SOURCE, SOURCE, PIVOT, PIVOT]


def test_a_letter_is_never_cut_from_its_accents() -> None:
    """Edges move behind combining marks and joined emoji."""
    for text, edge in (("हिन्दी", 1), ("e\u0301a", 1), ("👨\u200d👩x", 1)):
        edges = {one.start for one in stretches(side(text, a=[Origin(edge, len(text), "", 1.0)]), [part("a", 1.0)])}
        assert edge not in edges


def test_what_the_text_as_a_whole_gave_is_listed() -> None:
    """<s> stands for no characters."""
    sides = side("abc", a=[Origin(0, 0, "<s>", 1.0)], b=[Origin(0, 1, "a", 1.0)])
    assert from_the_whole(sides, [part("b", 1.0), part("a", 2.0)]) == [1]
    assert len(stretches(sides, [part("a", 2.0)])) == 1
    assert stretches(Side("d", "", {}), []) == []


def test_parts_stand_in_the_documents_order_and_are_added_up_in_it() -> None:
    """A float sum depends on its order, and this one is the engine's."""
    vocabulary = encoder("distillation").vocabulary
    terms = vocabulary.terms[[4, 900, 5]].tolist()
    parts = matched(
        dict.fromkeys(terms, 1.0), {terms[2]: 1e16, terms[0]: 1.0, "other": 4.0, terms[1]: -1e16}, vocabulary
    )
    assert [one.term.term for one in parts] == [terms[2], terms[0], terms[1]]
    assert [one.term.view for one in parts] == ["pivot", "pivot", "source"]
    assert total(parts) == (1e16 + 1.0) - 1e16
