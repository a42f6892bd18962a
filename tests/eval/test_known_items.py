"""Topics and qrels that are made of documents."""

from pathlib import Path

import pytest

from milco_pyserini.cli.eval import main
from milco_pyserini.corpora import Document, open_corpus, open_qrels, open_topics
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval.known_items import KnownItems, make_known_items, sentences


def town(number: int, **fields: str) -> Document:
    """Return a document of three sentences and a title."""
    text = f"The river {number} flows through it to the sea. "
    text += f"Its bridge {number} is made of stone, and the market {number} is old. "
    text += f"A train leaves every {number} minutes."
    return Document(f"d{number}", f"Town {number}", text, {"lang": "en", **fields})


TOWNS = [town(number) for number in range(200)]


@pytest.fixture(scope="module")
def made() -> KnownItems:
    """Two hundred documents, a tenth of which is held out."""
    return make_known_items(TOWNS)


def test_topics_are_taken_out_of_the_documents_that_they_search_for(made: KnownItems) -> None:
    """No held-out document has the text of its topics, and no other document has changed."""
    documents = {document.id: document for document in made.documents}
    assert 5 < len(made.held_out) < 40 and len(made.topics) == 2 * len(made.held_out)
    for topic in made.topics:
        (docid,) = made.qrels[topic.id]
        assert docid in made.held_out and topic.text not in documents[docid].contents
    assert [one for one in made.documents if one.id not in made.held_out] == [
        one for one in TOWNS if one.id not in made.held_out
    ]


def test_the_choice_depends_on_ids_only(made: KnownItems) -> None:
    """Other documents and another order hold out the same."""
    fewer = make_known_items(list(reversed(TOWNS[:150])))
    assert fewer.held_out == {docid for docid in made.held_out if int(docid[1:]) < 150}


def test_passages_of_a_document_are_held_out_together() -> None:
    """DOCID#0 and DOCID#1 are on the same side."""
    documents = [Document(f"d{n // 2}#{n % 2}", "", one.text, one.fields) for n, one in enumerate(TOWNS)]
    made = make_known_items(documents, 0.3)
    assert {docid.replace("#0", "#1") for docid in made.held_out} == {docid for docid in made.held_out if "#1" in docid}


def test_a_title_of_several_documents_is_not_a_topic() -> None:
    """A title that several documents have identifies none."""
    made = make_known_items([Document(one.id, "Introduction", one.text, one.fields) for one in TOWNS])
    assert {topic.id.split("-")[1] for topic in made.topics} == {"sentence"}


def test_describes_what_a_collection_lacks() -> None:
    """Duplicates, titles and languages are reported."""
    documents = [Document(one.id, "", one.text, one.fields) for one in TOWNS]
    lines = "\n".join(make_known_items([*documents, Document("copy", "", TOWNS[0].text)]).describe())
    assert "Left out 1 document whose text another one has" in lines
    assert "One language only, en" in lines and "200 documents without a title" in lines


@pytest.mark.parametrize(
    ("documents", "problem"),
    [
        ([], "0 documents, 0 of them different: at least 50"),
        ([TOWNS[0]] * 80, "80 documents, 1 of them different"),
        ([Document(str(n), "", "short", {"lang": "en"}) for n in range(80)], "1 of them different"),
        ([Document(str(n), "", f"short {n}", {"lang": "en"}) for n in range(80)], "a test of significance needs 20"),
    ],
)
def test_refuses_what_cannot_be_measured(documents: list[Document], problem: str) -> None:
    """Too few documents or topics are one error."""
    with pytest.raises(MilcoError, match=problem):
        make_known_items(documents)


def test_splits_sentences_of_any_script() -> None:
    """A number keeps its point."""
    assert sentences("Version 3.5 is new. Es läuft!\nほんとう。はい。क्या?") == [
        "Version 3.5 is new.",
        "Es läuft!",
        "ほんとう。",
        "はい。",
        "क्या?",
    ]


def test_the_command_writes_what_others_read(tmp_path: Path, made: KnownItems, capfd: pytest.CaptureFixture) -> None:
    """Corpus, topics and qrels are the function's. The same command once more has nothing to do, another one replaces
    nothing unasked.
    """
    docs, output = tmp_path / "docs.jsonl", tmp_path / "made"
    lines = (f'{{"id": "{one.id}", "title": "{one.title}", "text": "{one.text}", "lang": "en"}}\n' for one in TOWNS)
    docs.write_text("".join(lines))
    assert main(["--make", str(docs), "--output", str(output)]) == 0
    assert list(open_topics(str(output / "topics.tsv"))) == made.topics
    assert open_qrels(str(output / "qrels.txt")) == made.qrels
    assert list(open_corpus(str(output / "corpus.jsonl"))) == made.documents
    assert main(["--make", str(docs), "--output", str(output)]) == 0
    assert capfd.readouterr().err.endswith(f"{output} is up to date\n")
    assert main(["--make", str(docs), "--output", str(output), "--held-out", "0.5"]) == 2
    assert f"--output {output}: has topics of other documents, vectors, or another share" in capfd.readouterr().err
    assert main(["--make", str(docs), "--output", str(output), "--held-out", "0.5", "--overwrite"]) == 0
    assert open_qrels(str(output / "qrels.txt")).keys() > made.qrels.keys()


def test_translations_are_relevant_together() -> None:
    """All documents of a group are held out, and each is relevant to the topics of every other."""
    groups = {document.id: f"group-{number // 2}" for number, document in enumerate(TOWNS)}
    made = make_known_items(TOWNS, 0.3, groups)
    assert made.topics and all(len(made.qrels[topic.id]) == 2 for topic in made.topics)
    for grades in made.qrels.values():
        assert grades.keys() <= made.held_out and len({groups[docid] for docid in grades}) == 1
