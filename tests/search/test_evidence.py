"""Evidence: sentences of hits that answer a query, and contexts of them within a budget of tokens."""

import json
from pathlib import Path

import pytest

from milco_pyserini import Index, MilcoEncoder, Searcher
from milco_pyserini.cli.main import main
from milco_pyserini.encode.corpus import encode_corpus
from milco_pyserini.encode.plan import EncodePlan
from milco_pyserini.errors import MilcoError

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


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_snippet_is_the_sentence_that_answers(searcher: Searcher, question: str) -> None:
    """In the middle of a document, whatever the script of the question."""
    hits = searcher.search(question, k=2)
    snippet = dict(zip(hits.docids, searcher.snippets(question, hits), strict=True))["phone"]
    assert snippet is not None and ANSWER in snippet and 280 <= len(snippet) < 500


def test_hits_of_passages_have_the_sentences_of_their_passage(
    encoder: MilcoEncoder, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Also those of documents by their best passage, and contexts; a passage far behind is not overlooked."""
    text = f"{60 * FILL}{ANSWER} {60 * FILL}"
    question = "Who patented the telephone?"
    plan = EncodePlan(encoder="mini", dtype="float32", split_passages=True, max_length=128)
    encode_corpus([{"id": "phone", "text": text}], tmp_path / "vectors", plan, device="cpu")
    built = Index.build(tmp_path / "vectors", tmp_path / "docs.exact", "exact", store_documents=True)
    command = ["search", "--index", str(built.path), "--query", question, "--k", "1", "--json", "--dtype", "float32"]
    for option in ([], ["--max-passage"]):
        assert main([*command, *option]) == 0
        assert ANSWER in json.loads(capsys.readouterr().out)["hits"][0]["snippet"]
    with Searcher.open(built.path, encoder) as searcher:
        for options in ({}, {"max_passage": True}):
            hits = searcher.search(question, k=1, **options)
            (snippet,) = searcher.snippets(question, hits)
            assert ANSWER in (snippet or "")
            (sentences,) = searcher.context(question, 30, 1, **options).values()
            assert ANSWER in sentences


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
