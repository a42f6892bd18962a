"""Translations that are found by vectors, and topics that count them as relevant."""

from pathlib import Path

import pytest
from synthetic_stores import vocabulary, write_store
from training_set import write_lines

from milco_pyserini.cli.eval import main
from milco_pyserini.corpora import Document, open_corpus, open_qrels, open_topics
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval.parallel import find_parallel
from milco_pyserini.sparse import SparseBatch, Vocabulary

TOWNS = 60


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """Towns in English and German, the last ones without a translation."""
    texts = {
        "en": "The river {0} flows to the sea. Its bridge {0} is made of stone. A train leaves every {0} minutes.",
        "de": "Der Fluss {0} fließt ins Meer. Seine Brücke {0} ist aus Stein. Ein Zug fährt alle {0} Minuten.",
    }
    records = (
        {"id": f"{language}-{number}", "text": texts[language].format(number), "lang": language}
        for language, first in (("en", 0), ("de", 20))
        for number in range(first, first + TOWNS)
    )
    return write_lines(tmp_path / "docs.jsonl", *records)


def store(docs: Path, path: Path, **fields: object) -> Path:
    """Write vectors in which a town has the same two pivot terms in both languages, in an order of their own."""
    corpus = open_corpus(str(docs))
    ids = sorted(document.id for document in corpus)
    weights = [dict.fromkeys((f"w{docid[3:]}", f"w{int(docid[3:]) + 80}"), 1.0) for docid in ids]
    batch = SparseBatch.from_dicts(weights, vocabulary())
    return write_store(path, ids, batch, **{"corpus_hash": corpus.check().digest, **fields})


def test_translations_are_each_others_nearest() -> None:
    """Similar documents of one language are not translations, nor is a text that is nearer to another one."""
    weights = {"a-en": "w x y", "a-de": "w x y", "b-en": "w x z", "b-de": "z q r", "c-de": "s t u"}
    documents = [Document(name, "", words, {"lang": name[2:]}) for name, words in weights.items()]
    known = Vocabulary("w x y z q r s t u".split(), [])
    found = SparseBatch.from_dicts([dict.fromkeys(words.split(), 1.0) for words in weights.values()], known)
    assert find_parallel(documents, found) == {"a-en": "a-en", "a-de": "a-en"}


def test_a_group_has_one_document_of_a_language() -> None:
    """The most similar pairs are joined first; a pair that would bring a second document of a language is not."""
    weights = {"a-en": "w x y z", "a-de": "w x y z", "a-fr": "x y z q", "b-de": "x y q r"}
    documents = [Document(name, "", words, {"lang": name[2:]}) for name, words in weights.items()]
    known = Vocabulary("w x y z q r".split(), [])
    found = SparseBatch.from_dicts([dict.fromkeys(words.split(), 1.0) for words in weights.values()], known)
    groups = find_parallel(documents, found)
    assert groups["a-en"] == groups["a-de"] == "a-en" and "b-de" not in groups


def test_the_command_counts_translations_as_relevant(docs: Path, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """Both languages of a town are relevant to its topics, and neither is left among the others."""
    command = ["--make", str(docs), "--held-out", ".4", "--output", str(tmp_path / "made")]
    assert main([*command, "--vectors", str(store(docs, tmp_path / "vectors"))]) == 0
    assert "Parallel texts: 80 documents in 40 groups" in capfd.readouterr().err
    qrels = open_qrels(str(tmp_path / "made" / "qrels.txt"))
    topics = {topic.id for topic in open_topics(str(tmp_path / "made" / "topics.tsv"))}
    assert topics == qrels.keys()
    for grades in qrels.values():
        (number,) = {int(docid[3:]) for docid in grades}
        assert len(grades) == (2 if 20 <= number < TOWNS else 1)


def test_vectors_of_other_documents_are_refused(docs: Path, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """So are vectors without a pivot view: with either, no document would have a translation."""
    made, ids = tmp_path / "made", [document.id for document in open_corpus(str(docs))]
    source = SparseBatch.from_dicts([{"m_OR": 1.0}] * len(ids), vocabulary())
    digest = open_corpus(str(docs)).check().digest
    stores = [
        store(docs, tmp_path / "changed", corpus_hash="0" * 32),
        write_store(tmp_path / "fewer", ids[1:], source[1:], corpus_hash=digest),
        write_store(tmp_path / "source", ids, source, corpus_hash=digest),
    ]
    for path in stores:
        assert main(["--make", str(docs), "--output", str(made), "--vectors", str(path)]) == 2
        lines = capfd.readouterr().err.strip().splitlines()
        assert len(lines) == 1 and f"--vectors {path}: does not have the pivot views of {docs}" in lines[0]
        assert not made.exists()


def test_passages_are_refused() -> None:
    """Their documents could not be held out with their translations."""
    documents = [Document("a#0", "", "text", {"lang": "en"})]
    vectors = SparseBatch.from_dicts([{"text": 1.0}], Vocabulary(["text"], []))
    with pytest.raises(MilcoError, match="a#0 is a passage"):
        find_parallel(documents, vectors)
