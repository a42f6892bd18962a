"""Every term of a text has an origin: the tokens of the text that gave it its weight."""

from unicodedata import category

import numpy as np
import pytest
from golden_set import CHECKPOINTS, TEXTS, encoder

from milco_pyserini.explain.explainer import explain_texts
from milco_pyserini.explain.explanation import report_page
from milco_pyserini.explain.origins import encode_with_origins
from milco_pyserini.explain.terms import Contribution, ExplainedText, Origin, Segment, Term, match_terms, sum_scores
from milco_pyserini.index.weights import matched_share
from milco_pyserini.sparse import PIVOT, SOURCE

FILLED = [text for text in TEXTS if text.strip()]
LENGTH = 16


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
@pytest.mark.parametrize("text", TEXTS)
def test_vectors_with_origins_equal_the_encoders(text: str, checkpoint: str) -> None:
    """The same terms and weights, and an origin for each term; without LexEcho there are pivot terms only."""
    tiny = encoder(checkpoint)
    encoded = encode_with_origins(tiny, text, LENGTH)
    expected = tiny.encode([text], max_length=LENGTH)
    assert encoded.batch.columns.tolist() == expected.columns.tolist()
    assert np.allclose(encoded.batch.weights, expected.weights, atol=1e-5)
    assert encoded.origins.keys() == set(tiny.vocabulary.terms[expected.columns])
    assert checkpoint == "distillation" or (encoded.batch.columns < encoded.batch.english_size).all()


@pytest.mark.parametrize("text", FILLED)
def test_a_pivot_term_comes_from_the_word_with_the_largest_logit(text: str) -> None:
    """Words and special tokens, not punctuation. The term's weight is LogSat of the largest logit of all tokens."""
    tiny = encoder("distillation")
    encoded = encode_with_origins(tiny, text, LENGTH)
    columns, weights = encoded.batch.row(0)
    pivot = columns < encoded.batch.english_size
    ids = tiny.tokenizer.tokenize([text], LENGTH)[0].ids
    logits, _ = tiny.network.token_scores([ids], columns[pivot])
    assert logits.shape == (len(ids), pivot.sum())
    assert np.allclose(np.log1p(logits.max(axis=0)), weights[pivot], atol=1e-5)
    encoding = tiny.tokenizer.tokenizer.encode(text)
    pieces = [*encoding.tokens[: len(ids) - 1], encoding.tokens[-1]]
    logits[[piece.strip("▁.?!,:¿،؟。、।") == "" for piece in pieces]] = -np.inf
    for column, token in zip(columns[pivot], logits.argmax(axis=0), strict=True):
        (origin,) = encoded.origins[tiny.vocabulary.terms[column]]
        # The last encoded token is </s>, wherever the text was truncated.
        assert origin.token == pieces[token]


@pytest.mark.parametrize("text", FILLED)
def test_a_source_term_comes_from_every_token_that_repeats_it(text: str) -> None:
    """Shares sum to 1, in proportion to the tokens' echo weights."""
    tiny = encoder("distillation")
    encoded = encode_with_origins(tiny, text, LENGTH)
    ids = np.array(tiny.tokenizer.tokenize([text], LENGTH)[0].ids)
    _, echo = tiny.network.token_scores([ids.tolist()], np.empty(0, np.int32))
    columns, weights = encoded.batch.row(0)
    for column, weight in zip(columns, weights, strict=True):
        if column >= encoded.batch.english_size:
            origins = encoded.origins[tiny.vocabulary.terms[column]]
            amounts = echo[ids == column - encoded.batch.english_size]
            if not origins:
                assert not any(map(str.isalnum, tiny.vocabulary.source[column - encoded.batch.english_size]))
                continue
            assert sum(origin.share for origin in origins) == pytest.approx(1)
            assert [origin.share * weight for origin in origins] == pytest.approx(
                amounts[amounts > 0].tolist(), abs=1e-5
            )


def test_spans_are_characters_of_the_original_text() -> None:
    """Without white space, and also where lowercasing lengthens the text."""
    tiny = encoder("distillation")
    text = "  İstanbul'da  İki nehir"
    for lowercase in (False, True):
        encoded = encode_with_origins(tiny, text, 64, lowercase)
        spans = [origin for origins in encoded.origins.values() for origin in origins if origin.start < origin.stop]
        assert spans
        for origin in spans:
            inside = text[origin.start : origin.stop]
            assert inside == inside.strip()
    last = max(origin.stop for origin in spans)
    assert last == len(text)


def test_truncated_text_has_no_origins() -> None:
    """num_encoded is the end of the last token within the maximum length; no origin is beyond it."""
    tiny = encoder("distillation")
    text = max(TEXTS, key=len)
    encoded = encode_with_origins(tiny, text, 8)
    assert 0 < encoded.num_encoded < len(text)
    assert all(origin.stop <= encoded.num_encoded for origins in encoded.origins.values() for origin in origins)
    assert encode_with_origins(tiny, "ab", 512).num_encoded == 2
    assert encode_with_origins(tiny, "   ", 512).origins == {}


def test_passages_are_encoded_as_the_encoder_splits_them() -> None:
    """A passage has the vector of its tokens, and the text they span."""
    tiny = encoder("distillation")
    text = max(TEXTS, key=len)
    rows = tiny.tokenizer.passages([text], 8)[0]
    expected = tiny.network.encode(rows, tiny.views)
    assert len(rows) > 1
    for number in (0, 1, len(rows) - 1):
        encoded = encode_with_origins(tiny, text, 8, passage=number)
        assert encoded.text in text
        columns, weights = expected.row(number)
        assert encoded.batch.columns.tolist() == columns.tolist()
        assert np.allclose(encoded.batch.weights, weights, atol=1e-5)


@pytest.mark.parametrize("passage", [None, 0, 5])
def test_only_what_is_encoded_of_a_long_text_is_tokenized(passage: int | None) -> None:
    """Its beginning gives the same vector and origins; an explanation has the first 100,000 characters."""
    tiny = encoder("distillation")
    text = " ".join(TEXTS) + 50_000 * " water"
    long, short = (encode_with_origins(tiny, one, 8, passage=passage) for one in (text, text[:6000]))
    assert long.origins == short.origins
    assert long.batch.weights.tolist() == short.batch.weights.tolist()
    if passage is None:
        assert (len(long.text), long.num_omitted) == (100_000, len(text) - 100_000)
        assert "more characters not shown" in report_page(explain_texts(tiny, "water", [text]))
    else:
        assert (long.text, long.num_omitted) == (short.text, 0)


def text(characters: str, **origins: list[Origin]) -> ExplainedText:
    """Make a text with the origins of terms a, b, ..."""
    return ExplainedText("d", characters, dict.fromkeys(origins, 1.0), True, len(characters), origins)


def contribution(name: str, score: float, view: str = PIVOT) -> Contribution:
    """Make a contribution of a term."""
    return Contribution(Term(name, name, view), score, 1.0, score)


def test_segments_are_the_text_with_the_scores_of_its_spans() -> None:
    """Overlapping spans are split; a segment has the view of most of its score."""
    one = text(
        "one two three", a=[Origin(0, 3, "one", 0.25), Origin(8, 13, "three", 0.75)], b=[Origin(2, 5, "e t", 1.0)]
    )
    assert one.highlight([contribution("a", 8.0), contribution("b", 3.0, SOURCE)]) == [
        Segment("on", 2.0, PIVOT, (0,), False),
        Segment("e", 5.0, SOURCE, (0, 1), False),
        Segment(" t", 3.0, SOURCE, (1,), False),
        Segment("wo ", 0, PIVOT, (), False),
        Segment("three", 6.0, PIVOT, (0,), False),
    ]
    truncated = ExplainedText("d", "one two", {}, num_encoded=4).highlight([])
    assert [(segment.text, segment.is_truncated) for segment in truncated] == [("one ", False), ("two", True)]


@pytest.mark.parametrize(("characters", "edge"), [("हिन्दी", 1), ("e\u0301a", 1), ("👨\u200d👩x", 1)])
def test_segments_keep_letters_and_accents_together(characters: str, edge: int) -> None:
    """An edge moves behind combining characters and joined emoji."""
    one = text(characters, a=[Origin(edge, len(characters), "", 1.0)])
    assert len(one.highlight([contribution("a", 1.0)])[0].text) > edge


@pytest.mark.parametrize("content", ["Nile, river?", "ナイル川、は？", "نهر النيل؟", "... ?! ▁ 「」", "50 🐶 = $3."])
def test_punctuation_is_never_an_origin(content: str) -> None:
    """No term of either view has it, even the term that is the punctuation; words, signs and emoji are."""
    encoded = encode_with_origins(encoder("distillation"), content, 64)
    spans = [encoded.text[one.start : one.stop] for origins in encoded.origins.values() for one in origins]
    assert encoded.origins
    assert {"L", "N", "M", "S"} >= {category(sign)[0] for span in spans for sign in span if len(span) == 1}
    assert not {",", "?", "、", "？", "؟", "...", "?!", "「」"} & set(spans)
    assert ExplainedText("d", "", {}).highlight([]) == []


def test_tokens_are_spelled_as_in_the_text() -> None:
    """Each once; a special token represents the entire text, and has no characters to highlight."""
    one = text("one two\none", a=[Origin(0, 3, "x", 0.4), Origin(8, 11, "x", 0.4), Origin(0, 0, "<s>", 0.2)])
    assert one.tokens(Term("a", "a", PIVOT)) == "one (entire text)"
    assert [segment.text for segment in one.highlight([contribution("a", 1.0)])] == ["one", " two\n", "one"]
    assert one.tokens(Term("b", "b", PIVOT)) == ""


@pytest.mark.parametrize(
    ("content", "token", "word"),
    [
        ("Wer fand Penicillin?", "n", "fand"),
        ("Wer fand Penicillin?", "ill", "Penicillin"),
        ("Wer fand Penicillin?", "?", "?"),
        ("भारत की नदी", "द", "नदी"),
        ("ナイル川は長い", "川", "ナイル川"),
        ("紙を発明した国は?", "明", "発明"),
        ("谁发现了青霉素", "现", "现"),
        ("แม่น้ำ", "น", "น"),
        (200 * "a" + "b" + 200 * "a", "b", 50 * "a" + "b" + 50 * "a"),
    ],
)
def test_a_part_of_a_word_is_shown_as_the_word(content: str, token: str, word: str) -> None:
    """In scripts with spaces between words, whatever their accents, and in Japanese between hiragana."""
    start = content.index(token)
    one = text(content, a=[Origin(start, start + len(token), token, 1.0)])
    assert one.tokens(Term("a", "a", SOURCE)) == word


def test_the_matched_share_is_that_of_the_querys_weight() -> None:
    """It is 0 for a document with no term of the query, and for a query without terms."""
    query = {"river": 3.0, "long": 1.0}
    assert [matched_share(query, terms) for terms in (["river", "sea"], query, ["sea"])] == [0.75, 1, 0]
    assert matched_share({}, ["sea"]) == 0


def test_contributions_are_summed_in_the_documents_order() -> None:
    """The order of the engine, which a float sum depends on."""
    vocabulary = encoder("distillation").vocabulary
    terms = vocabulary.terms[[4, 900, 5]].tolist()
    contributions = match_terms(
        dict.fromkeys(terms, 1.0), {terms[2]: 1e16, terms[0]: 1.0, "other": 4.0, terms[1]: -1e16}, vocabulary
    )
    assert [one.term.term for one in contributions] == [terms[2], terms[0], terms[1]]
    assert [one.term.view for one in contributions] == ["pivot", "pivot", "source"]
    assert sum_scores(contributions) == (1e16 + 1.0) - 1e16
