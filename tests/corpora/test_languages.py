"""The languages of documents, detected offline by py3langid."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from milco_pyserini.cli.corpora import main
from milco_pyserini.corpora import Document, open_corpus
from milco_pyserini.corpora.languages import detect_languages
from milco_pyserini.errors import MilcoError


@pytest.fixture
def sample() -> Sequence[Document]:
    """The passages of the sample without their fields; their ids begin with their language. Needs py3langid."""
    pytest.importorskip("py3langid", reason="py3langid is not installed: pip install '.[detect]'")
    return [replace(document, fields={}) for document in open_corpus("sample")]


def test_passages_get_their_language_or_none(sample: Sequence[Document]) -> None:
    """None of the sample's 13 languages is taken for another, and few texts are uncertain."""
    found = {document.id: document.fields.get("lang") for document in detect_languages(sample)}
    assert {name: lang for name, lang in found.items() if lang not in (None, name.partition("-")[0])} == {}
    assert sum(lang is None for lang in found.values()) < 0.05 * len(sample)


def test_languages_of_the_corpus_make_detection_certain(sample: Sequence[Document]) -> None:
    """Indonesian and Malay are alike; where Malay is excluded, no Indonesian text is uncertain."""
    indonesian = [document for document in sample if document.id.startswith("id-")]
    found = [document.fields.get("lang") for document in detect_languages(indonesian, ["id", "en", "zh"])]
    assert found == ["id"] * len(indonesian)
    with pytest.raises(MilcoError, match="unknown language 'indonesian'"):
        list(detect_languages(indonesian, ["indonesian"]))


@pytest.mark.usefixtures("sample")
def test_documents_keep_their_lang_and_other_fields() -> None:
    """A document that has the field is not changed, nor is one without words; others keep their other fields."""
    kept = [Document("a", "", "Der Nil ist ein Fluss in Afrika.", {"lang": "nds"}), *map(_document, ("", "12 3", "ok"))]
    assert list(detect_languages(kept)) == kept
    (found,) = detect_languages([Document("a", "Der Nil", "Er ist ein Fluss in Afrika.", {"year": 2024})])
    assert found.fields == {"year": 2024, "lang": "de"}


def _document(text: str) -> Document:
    return Document(text, "", text)


@pytest.mark.usefixtures("sample")
def test_the_command_writes_the_same_texts_with_languages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So the vectors of the corpus can be indexed with the new file. Another file is not replaced unasked."""
    corpus = tmp_path / "docs.jsonl"
    corpus.write_text(
        '{"_id": "a", "title": "Der Nil", "text": "Er ist ein Fluss in Afrika.", "year": 2024, "tags": ["x", "y"]}\n'
        '{"id": "b", "contents": "Le Nil est un fleuve d\'Afrique.", "title": "a field", "lang": "fr-FR"}\n',
        encoding="utf-8",
    )
    output = tmp_path / "docs.lang.jsonl.gz"
    arguments = ["detect", "--corpus", str(corpus), "--output", str(output)]
    assert main(arguments) == 0
    assert "docs.lang.jsonl.gz, 2 with a lang: 2 documents" in capsys.readouterr().err
    before, after = open_corpus(corpus), open_corpus(output)
    assert after.check().digest == before.check().digest
    assert [document.fields for document in after] == [
        {"year": 2024, "tags": ["x", "y"], "lang": "de"},
        {"title": "a field", "lang": "fr-FR"},
    ]
    content = output.read_bytes()
    assert main(arguments) == 0 and capsys.readouterr().err.endswith(f"{output} is up to date\n")
    assert output.read_bytes() == content
    output.write_bytes(content[:-9])
    assert main(arguments) == 2 and "exists" in capsys.readouterr().err


def test_without_py3langid_one_sentence_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No file is written."""
    monkeypatch.setitem(sys.modules, "py3langid", None)
    output = tmp_path / "docs.jsonl"
    assert main(["detect", "--corpus", "sample", "--output", str(output), "--languages", "xx"]) == 2
    assert capsys.readouterr().err.endswith("needs the package py3langid. Run pip install '.[detect]'.\n")
    assert not output.exists()
