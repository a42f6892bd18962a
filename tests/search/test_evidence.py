"""Evidence: sentences of hits that answer a query, and contexts of them within a budget of tokens."""

import re
from pathlib import Path

import pytest

from milco_pyserini import Index, MilcoEncoder, Searcher
from milco_pyserini.errors import MilcoError
from milco_pyserini.search.evidence import Sentence, extract, score_sentences, split_sentences

FILL = "The orchestra played music by Mozart on a long summer evening in the old hall of the harbour town. "
ANSWER = "Alexander Graham Bell patented the telephone in 1876."
TEXTS = {"phone": f"{4 * FILL}{ANSWER} {4 * FILL}".strip(), "river": f"The Nile is a long river. {3 * FILL}".strip()}
# "Who invented the telephone?"
QUESTIONS = ("Wer erfand das Telefon?", "谁发明了电话？", "من اخترع الهاتف؟")


@pytest.fixture(scope="module")
def encoder() -> MilcoEncoder:
    return MilcoEncoder.from_pretrained("mini", device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def searcher(encoder: MilcoEncoder, tmp_path_factory: pytest.TempPathFactory) -> Searcher:
    path = tmp_path_factory.mktemp("evidence") / "docs.exact"
    documents = [{"id": docid, "text": text} for docid, text in TEXTS.items()]
    return Searcher.open(Index.build(documents, path, "exact", encoder=encoder).path, encoder)


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


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_snippet_is_the_sentence_that_answers(searcher: Searcher, question: str) -> None:
    """In the middle of a document, whatever the script of the question."""
    hits = searcher.search(question, k=2)
    snippet = dict(zip(hits.docids, searcher.snippets(question, hits), strict=True))["phone"]
    assert snippet is not None and snippet.startswith(ANSWER) and len(snippet) < 400


def test_a_sentence_scores_what_its_vector_does(encoder: MilcoEncoder) -> None:
    """The dot product with the query, as the encoder computes it."""
    query = encoder.encode_query(QUESTIONS[0])
    (found,) = score_sentences(encoder, query.to_dicts()[0], [f"{ANSWER} {FILL}"])
    expected = encoder.similarity(query, [ANSWER, FILL.strip()])[0].tolist()
    assert [sentence.score for sentence in found] == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_the_query_is_encoded_once(searcher: Searcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences are compared with the query that searched."""
    texts: list[str] = []
    encode = Searcher.encode

    def counting(self: Searcher, given: list[str], *arguments: object) -> list[tuple]:
        texts.extend(given)
        return encode(self, given, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Searcher, "encode", counting)
    assert searcher.context(QUESTIONS[0], tokens=60)
    assert texts == [QUESTIONS[0]]


@pytest.mark.parametrize("text", ["", " \n", None])
def test_an_empty_text_is_refused(searcher: Searcher, text: str) -> None:
    """As in a search, whatever the hits are."""
    hits = searcher.search(QUESTIONS[0], k=2)
    for method in (searcher.context, lambda text: searcher.snippets(text, hits)):
        with pytest.raises((MilcoError, TypeError), match=r"is empty|expects one text"):
            method(text)


def test_a_short_best_sentence_has_its_neighbors() -> None:
    """The next ones, then those before it; a text without sentences has an empty extract."""
    text = "One. Two. Three."
    assert extract(text, [Sentence(0, 4, 0), Sentence(5, 9, 0), Sentence(10, 16, 1)]) == text
    assert extract("", []) == ""


def test_a_context_keeps_the_answer_within_its_budget(searcher: Searcher, encoder: MilcoEncoder) -> None:
    """Sentences in their order, and … between those that are not neighbors."""
    for question in QUESTIONS:
        context = searcher.context(question, tokens=60)
        assert ANSWER in context["phone"]
        assert sum(len(ids) - 2 for ids in encoder.tokenizer.ids(list(context.values()))) <= 60
    assert searcher.context(QUESTIONS[0], tokens=100_000)["phone"] == TEXTS["phone"]
    assert searcher.context(QUESTIONS[0], tokens=1) == {}
    with pytest.raises(MilcoError, match="tokens"):
        searcher.context(QUESTIONS[0], tokens=0)


def test_a_context_needs_stored_documents(encoder: MilcoEncoder, tmp_path: Path) -> None:
    """It is refused before the search; hits without documents have no snippet."""
    path = Index.build([ANSWER], tmp_path / "bare.exact", "exact", encoder=encoder, store_documents=False).path
    with Searcher.open(path, encoder) as searcher:
        assert searcher.snippets(QUESTIONS[0], searcher.search(QUESTIONS[0])) == [None]
        with pytest.raises(MilcoError, match="does not store its documents"):
            searcher.context(QUESTIONS[0])
