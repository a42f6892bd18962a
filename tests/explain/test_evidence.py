"""Evidence: the sentences of a text that have a query's words, or its meaning, with these words highlighted."""

import re

import pytest
from golden_set import encoder

from milco_pyserini import MilcoEncoder, load_encoder
from milco_pyserini.explain.evidence import Evidence, Snippet, split_sentences

FILL = "Ships sail on the sea every day of the year. "
# "The orchestra plays in the old hall.", and "The Nile is 6,650 kilometres long.", in Hindi.
HINDI_FILL = "ऑर्केस्ट्रा पुराने सभागार में बजाता है। "
HINDI = "नील नदी 6,650 किलोमीटर लंबी है। "


@pytest.fixture(scope="module")
def mini() -> MilcoEncoder:
    return MilcoEncoder.from_pretrained("mini", device="cpu", dtype="float32")


def evidence(milco: MilcoEncoder, question: str, *texts: str) -> Evidence:
    return Evidence(milco.encode_query(question).to_dicts()[0], texts, milco)


def snippet(query: str | dict[str, float], text: str, length: int = 120) -> Snippet:
    """Return the snippet of a text for a query, by the tiny checkpoint's tokenizer and vocabulary."""
    milco = encoder("distillation")
    weights = milco.encode_query(query).to_dicts()[0] if isinstance(query, str) else query
    return Evidence(weights, [text], milco).snippet(0, length)


def highlighted(found: Snippet) -> list[str]:
    return [found.text[span["start"] : span["stop"]] for span in found.highlights()]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("It has 3.5 km. A “river.” Yes", ["It has 3.5 km.", "A “river.”", "Yes"]),
        ("長い川。海！終", ["長い川。", "海！", "終"]),
        ("ما هذا؟ نهر.", ["ما هذا؟", "نهر."]),
        ("नील नदी है। लंबी।", ["नील नदी है।", "लंबी।"]),
        ("a\n\n b ", ["a", "b"]),
        (" ", []),
    ],
)
def test_texts_of_any_script_are_split_at_the_ends_of_sentences(text: str, sentences: list[str]) -> None:
    """A number's period does not end one; white space belongs to none."""
    assert [text[start:stop] for start, stop in split_sentences(text)] == sentences


@pytest.mark.parametrize("text", ["แม่น้ำไนล์ยาว " * 60, "ก" * 1000, "x" * 301])
def test_texts_without_sentences_are_split_by_length(text: str) -> None:
    """No character other than white space is lost."""
    parts = [text[start:stop] for start, stop in split_sentences(text)]
    assert len(parts) > 1 and max(map(len, parts)) <= 300
    assert re.sub(r"\s", "", "".join(parts)) == re.sub(r"\s", "", text)


def test_a_snippet_has_most_of_the_query() -> None:
    """Sentences count together, and each term once: neighbors with two terms come before one that repeats one."""
    text = f"{3 * FILL}Market and market. {3 * FILL}A market day. It is in the harbour. {3 * FILL}"
    found = snippet({"market": 2.0, "harbour": 1.0}, text, 30)
    assert found.text == "A market day. It is in the harbour."
    assert highlighted(found) == ["market", "harbour"]


@pytest.mark.parametrize("length", [1, 10, 40, 300])
def test_a_snippet_is_complete_sentences_of_a_length(length: int) -> None:
    """As many as have the length, of which the first ones are taken for a query that they do not have."""
    text = f"Day. {3 * FILL}The end. Harbour."
    for query, side in (({"nothing": 1.0}, text.startswith), ({"harbour": 1.0}, text.endswith)):
        found = snippet(query, text, length).text
        assert side(found) and len(found) >= min(length, len(text))
        assert {sentence.strip() for sentence in re.findall("[^.]+.", found)} <= {
            "Day.",
            FILL.strip(),
            "The end.",
            "Harbour.",
        }


def test_words_are_highlighted() -> None:
    """By the pivot view English ones; by the source view those that have a piece of the query, not punctuation."""
    found = snippet({"book": 1.0, "m_▁histor": 0.5}, "A book of history.")
    assert {found.text[span["start"] : span["stop"]]: span["view"] for span in found.highlights()} == {
        "book": "pivot",
        "history": "source",
    }
    query = {"m_▁histor": 0.5, "m_?": 1.0, "m_,": 1.0}
    assert highlighted(snippet(query, "A history? of, history?")) == ["history"] * 2


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("ナイル川", "ナイル川はアフリカ大陸を流れる世界で最も長い川である。" * 20),
        ("نهر النيل", "نهر النيل أطول أنهار القارة الأفريقية. " * 20),
        ("नील नदी", "नील अफ़्रीका की सबसे लंबी नदी है। " * 20),
        ("nothing of it", FILL * 20),
        ("river", "x" * 5000),
        ("river", "a\ud800river. " * 100),
    ],
)
def test_snippets_of_any_script_have_about_the_length(query: str, text: str) -> None:
    """They are a part of the text, and highlights cover no more than it."""
    found = snippet(query, text)
    assert 110 <= len(found.text) <= 300
    assert found.text in text.replace("\ud800", "\ufffd")
    assert all(0 <= span["start"] < span["stop"] <= len(found.text) for span in found.highlights())


def test_short_texts_are_complete() -> None:
    """An empty one has an empty snippet; white space is one space; a query may have no terms, and no encoder."""
    assert snippet("river", "").text == ""
    assert snippet("river", "A \n river").text == "A river"
    assert snippet("", "A river").highlights() == []
    assert Evidence({}, ["A river."], None).snippet(0).text == "A river."


def test_the_network_finds_the_sentence_in_another_script(mini: MilcoEncoder) -> None:
    """Words do not; what it finds are words of the text, in which punctuation and spaces have no part."""
    text = 12 * HINDI_FILL + HINDI + 12 * HINDI_FILL
    found = evidence(mini, "How long is the river?", text)
    assert found.unclear() == [0] and HINDI.strip() not in found.snippet(0, 20).text
    assert found.read([0]) == [0]
    best = found.snippet(0, 20)
    assert best.text == HINDI.strip()
    assert {"नदी", "लंबी"} <= set(highlighted(best)) <= set(re.findall(r"[^\s।]+", HINDI))


def test_texts_with_the_words_of_the_query_are_not_read(mini: MilcoEncoder) -> None:
    """Nor is one without a choice of sentences, whatever its script."""
    question = "How long is the Nile?"
    found = evidence(mini, question, f"{9 * FILL}The Nile is a long river.", 12 * HINDI_FILL, HINDI)
    assert found.unclear() == [1]
    assert Evidence({}, [9 * FILL], None).unclear() == []


def test_texts_are_read_as_each_alone_and_within_a_number_of_tokens(mini: MilcoEncoder) -> None:
    """Texts beyond the number, and those for an encoder of queries only, keep what their words tell."""
    texts = [count * HINDI_FILL + HINDI + 12 * HINDI_FILL for count in (9, 3, 6)]
    question = "How long is the river?"
    together = evidence(mini, question, *texts)
    assert together.read([0, 1, 2]) == [0, 1, 2]
    for number, text in enumerate(texts):
        alone = evidence(mini, question, text)
        alone.read([0])
        assert together.snippet(number, 20) == alone.snippet(0, 20)
    tokens = len(mini.tokenizer.ids(texts[:1])[0])
    limited = evidence(mini, question, *texts)
    assert limited.read([0, 1, 2], tokens + 1) == [0] and limited.unclear()[-2:] == [1, 2]
    assert limited.read([0, 1, 2], 0) == []
    # The CPU reads more tokens in the same time by a smaller network, and fewer by a larger one.
    tiny = encoder("distillation")
    assert Evidence({"river": 1.0}, texts, tiny).read([0, 1, 2], 100) == [0, 1, 2]
    queries = load_encoder("mini-query")
    assert Evidence(queries.encode_query(question).to_dicts()[0], texts, queries).read([0, 1, 2]) == []


def test_all_of_a_long_text_is_read(mini: MilcoEncoder) -> None:
    """In passages of the encoder's length."""
    text = 120 * HINDI_FILL + HINDI
    assert len(mini.tokenizer.ids([text])[0]) > 2 * mini.config.passage_max_length
    query = mini.encode_query("How long is the river?").to_dicts()[0]
    for characters, is_found in ((None, True), (3000, False)):
        found = Evidence(query, [text[:characters]], mini)
        found.read([0])
        assert (found.snippet(0, 20).text == HINDI.strip()) == is_found


def test_a_context_has_the_best_sentences_in_their_order(mini: MilcoEncoder) -> None:
    """… is between those that are not neighbors."""
    found = evidence(mini, "a long river", f"The Nile is a river. {FILL}The Congo is a long river. {FILL}", FILL)
    assert found.context(18) == ["The Nile is a river. … The Congo is a long river.", ""]
    assert found.context(1000)[1] == FILL.strip()


def test_a_context_prefers_the_text_that_has_most_of_the_query() -> None:
    """A sentence with one term counts more where others have the other term."""
    texts = ["The river is here. Ships sail.", "The harbour. The river is here. Ships sail."]
    found = Evidence({"river": 1.0, "harbour": 0.5}, texts, encoder("distillation"))
    tokens = sum(len(tokens) - 2 for tokens in encoder("distillation").tokenizer.ids(["The river is here. … "]))
    assert found.context(tokens) == ["", "The river is here."]
