"""BM25 as an encoder: scores, statistics, languages; and what every index of vectors can do, for words."""

import math
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milco_pyserini import Index, Searcher, load_encoder
from milco_pyserini.cli.main import main
from milco_pyserini.corpora import open_corpus, open_topics
from milco_pyserini.encode.analyzers import OpenVocabulary, analyze, find_analyzer, places
from milco_pyserini.encode.bm25 import BM25Encoder, stored_length
from milco_pyserini.encode.corpus import encode_corpus
from milco_pyserini.encode.plan import EncodePlan
from milco_pyserini.errors import MilcoError
from milco_pyserini.index.vectors import read_queries
from milco_pyserini.io.manifest import read_manifest
from milco_pyserini.io.records import StoreManifest
from milco_pyserini.sparse import open_store

pytestmark = pytest.mark.integration

ENGLISH = ["The Nile is a river, a long river.", "Bell patented the telephone.", "", "A telephone rings by the river."]
GERMAN = ["Der Nil ist ein Fluss.", "Ein Haus am Fluss"]
BOTH = [
    *({"id": f"en-{place}", "text": text, "lang": "en"} for place, text in enumerate(ENGLISH)),
    *({"id": f"de-{place}", "text": text, "lang": "de"} for place, text in enumerate(GERMAN)),
]


@pytest.fixture(scope="module", autouse=True)
def java() -> None:
    """Java, before anything else starts it."""
    pytest.importorskip("pyserini", reason="Pyserini is not installed")
    find_analyzer("en")


def reference(query: Sequence[str], documents: Sequence[Sequence[str]], k1: float, b: float) -> list[float]:
    """BM25 as Lucene's documentation has it, of words, for documents of up to 40 of these."""
    filled = [words for words in documents if words]
    mean = sum(map(len, filled)) / len(filled)
    scores = []
    for words in documents:
        counts, score = Counter(words), 0.0
        for word in query:
            frequency = sum(word in other for other in filled)
            idf = math.log(1 + (len(filled) - frequency + 0.5) / (frequency + 0.5))
            if word in counts:
                score += idf * counts[word] / (counts[word] + k1 * (1 - b + b * len(words) / mean))
        scores.append(score)
    return scores


@pytest.mark.parametrize("settings", [{}, {"k1": 1.5, "b": 0.75}, {"k1": 0.0, "b": 0.0}])
def test_a_dot_product_is_the_score(settings: dict[str, float]) -> None:
    """Also for a word twice in a query, one in no document, and an empty document."""
    encoder, analyzer = BM25Encoder.fit(ENGLISH, "en", **settings), find_analyzer("en")
    query = "River river telephones quokka"
    words = [analyze(analyzer, text) for text in ENGLISH]
    expected = reference(analyze(analyzer, query), words, settings.get("k1", 0.9), settings.get("b", 0.4))
    scores = encoder.similarity(query, encoder.encode_document(ENGLISH))
    assert scores[0].tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("language", ["en", "ar", "zh", "sw"])
def test_hits_are_pyserinis(language: str, tmp_path: Path) -> None:
    """LuceneIndexer and LuceneSearcher, for a language analyzer, English, bigrams and white space."""
    from pyserini.index.lucene import LuceneIndexer
    from pyserini.search.lucene import LuceneSearcher

    name = f"sample-{language}"
    indexer = LuceneIndexer(args=["-index", str(tmp_path / "theirs"), "-language", language], threads=1)
    for document in open_corpus(name):
        indexer.add_doc_dict({"id": document.id, "contents": document.contents})
    indexer.close()
    theirs = LuceneSearcher(str(tmp_path / "theirs"))
    theirs.set_language(language)
    index = Index.build(open_corpus(name), tmp_path / "ours", "exact", encoder="bm25")
    with Searcher.open(index.path) as ours:
        for query in open_topics(name):
            hits, expected = ours.search(query.text, 9), theirs.search(query.text, 9)
            assert hits.docids == [hit.docid for hit in expected]
            assert hits.scores.tolist() == pytest.approx([hit.score for hit in expected], abs=2e-4)


def test_lengths_are_rounded_as_lucene_stores_them() -> None:
    """SmallFloat, of all lengths that differ and some large ones."""
    from jnius import autoclass

    stored = autoclass("org.apache.lucene.util.SmallFloat")
    lengths = np.array([*range(3000), 10**5, 10**9 + 7, 2**31 - 1])
    expected = [stored.byte4ToInt(stored.intToByte4(int(length))) for length in lengths]
    assert stored_length(lengths).tolist() == expected


def test_each_language_has_its_statistics_and_its_analyzer() -> None:
    """Words of the same spelling are one term; a query of any language is split by the analyzers of all."""
    encoder = BM25Encoder.fit(BOTH)
    assert encoder.languages == ("de", "en") and encoder.name == "bm25:de,en"
    for language, texts in (("de", GERMAN), ("en", ENGLISH)):
        alone = BM25Encoder.fit(texts, language)
        expected = alone.encode_document(texts).to_dicts()
        vectors = encoder.encode_document(texts, language=language).to_dicts()
        assert all(vector == pytest.approx(other) for vector, other in zip(vectors, expected, strict=True))
    # "Flüsse" is a word of English, too, as it is; "the" is none there, and one in German.
    query = dict(encoder.decode(encoder.encode_query("The Flüsse, the Nile"))[0])
    assert query == {"the": 2, "fluss": 1, "flüsse": 1, "nil": 1, "nile": 1}
    with pytest.raises(MilcoError, match="has several languages"):
        encoder.encode_document(ENGLISH)
    with pytest.raises(MilcoError, match="unknown language 'fr': valid are de, en"):
        encoder.encode_document(ENGLISH, language="fr")


def test_saved_statistics_give_the_same_vectors(tmp_path: Path) -> None:
    """By load_encoder(), with the same hashes; other statistics have another one."""
    encoder = BM25Encoder.fit(ENGLISH, "en", k1=1.2)
    encoder.save_pretrained(tmp_path)
    loaded = load_encoder(tmp_path)
    assert loaded.hashes == encoder.hashes and loaded.name == "bm25:en,k1=1.2"
    assert loaded.encode_document(ENGLISH).to_dicts() == encoder.encode_document(ENGLISH).to_dicts()
    hashes = {BM25Encoder.fit(*other).hashes["weight_hash"] for other in ((ENGLISH, "en"), (ENGLISH[:2], "en", 1.2))}
    assert len(hashes | {encoder.hashes["weight_hash"]}) == 3
    (tmp_path / "bm25.npz").write_bytes(b"PK")
    with pytest.raises(MilcoError, match=r"bm25.npz cannot be read as statistics of BM25"):
        load_encoder(tmp_path)


def test_new_terms_beyond_the_room_replace_the_oldest() -> None:
    """A server meets ever more words; those of the documents stay."""
    vocabulary = OpenVocabulary(["river"], room=2)
    assert [vocabulary.column(piece) for piece in ("river", "a", "b", "a", "c", "b", "a")] == [0, 1, 2, 1, 1, 2, 2]
    assert vocabulary.terms.tolist() == ["river", "c", "a"] and len(vocabulary) == 3


def test_places_of_words_are_characters() -> None:
    """Java counts UTF-16 units, and both ways of asking it give the same words."""
    encoder = load_encoder("bm25:en")
    text = "😀 Rivers, and a 𠀀 river"
    (encoding,) = encoder.tokenizer.tokenizer.encode_batch([text])
    spans = [text[start:stop] for start, stop in encoding.offsets]
    assert list(zip(encoding.tokens, spans, strict=True)) == [
        ("bm25:en", ""),
        ("😀", "😀"),
        ("river", "Rivers"),
        ("𠀀", "𠀀"),
        ("river", "river"),
    ]
    for language in ("ja", "sw", "ar"):
        analyzer = find_analyzer(language)
        for document in open_corpus(f"sample-{language}"):
            assert analyze(analyzer, document.contents) == [word for word, *_ in places(analyzer, document.contents)]
    assert analyze(find_analyzer("sw"), "a, b ,, , c") == ["a,", "b", ",,", ",", "c"]
    assert analyze(find_analyzer("en"), "") == analyze(find_analyzer("en"), "the ,") == []


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the documents of both languages."""
    path = tmp_path_factory.mktemp("bm25") / "store"
    encode_corpus(BOTH, path, EncodePlan(encoder="bm25"))
    return path


def test_a_store_has_the_statistics_and_resumes_with_the_same(store: Path, tmp_path: Path) -> None:
    """A complete store is left as it is; other settings are refused; a damaged file is written again."""
    manifest = read_manifest(store, StoreManifest)
    assert (manifest.encoder, manifest.format, manifest.empty_documents) == ("bm25:de,en", "parquet", 1)
    assert {"bm25.npz"} < {file.file for file in manifest.files}
    assert manifest.weight_hash == load_encoder(store).hashes["weight_hash"]
    copy = shutil.copytree(store, tmp_path / "copy")
    (copy / "bm25.npz").write_bytes(b"")
    assert encode_corpus(BOTH, copy, EncodePlan(encoder="bm25")) == manifest
    assert (copy / "bm25.npz").read_bytes() == (store / "bm25.npz").read_bytes()
    with pytest.raises(MilcoError, match=r"was begun with encoder bm25:de,en, not bm25:de,en,k1=2"):
        encode_corpus(BOTH, copy, EncodePlan(encoder="bm25:k1=2"))


@pytest.mark.parametrize("encoder", ["bm25", "bm25:en,de", "saved"])
def test_a_store_is_resumed_by_the_statistics_that_it_has(
    encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No text is split again, but those of a missing part."""
    BM25Encoder.fit(BOTH[:2]).save_pretrained(tmp_path / "saved")
    plan = EncodePlan(encoder=str(tmp_path / "saved") if encoder == "saved" else encoder, part_size=1)
    corpus = BOTH[:4] if encoder == "saved" else BOTH
    manifest = encode_corpus(corpus, tmp_path / "store", plan)
    split: list[str] = []

    def spied(analyzer: Any, text: str) -> list[str]:
        split.append(text)
        return analyze(analyzer, text)

    monkeypatch.setattr("milco_pyserini.encode.analyzers.analyze", spied)
    assert encode_corpus(corpus, tmp_path / "store", plan) == manifest
    (tmp_path / "store" / "parts" / "part-00003.parquet").unlink()
    assert encode_corpus(corpus, tmp_path / "store", plan) == manifest
    # Java is asked for "a" to find whether it can split a language.
    assert [text for text in split if text != "a"] == [corpus[3]["text"]]


def test_parts_and_workers_share_the_statistics(store: Path, tmp_path: Path) -> None:
    """Parts of two documents, encoded by two processes."""
    encode_corpus(BOTH, tmp_path / "parts", EncodePlan(encoder="bm25", part_size=2), device="cpu,cpu")
    one, several = (open_store(path).load() for path in (store, tmp_path / "parts"))
    assert one[0] == several[0] and one[1].to_dicts() == several[1].to_dicts()


def test_topics_of_several_parts_have_the_columns_of_one_vocabulary(tmp_path: Path) -> None:
    """Processes would add terms one by one, each in its order."""
    (tmp_path / "topics.tsv").write_text("q1\triver\nq2\ttelephone\nq3\triver quokka\n")
    topics = open_topics(str(tmp_path / "topics.tsv"))
    for name, device in (("one", "cpu"), ("two", "cpu,cpu")):
        encode_corpus(topics, tmp_path / name, EncodePlan(encoder="bm25:en", part_size=1), device=device)
    one, two = (open_store(tmp_path / name).load() for name in ("one", "two"))
    assert one[1].to_dicts() == two[1].to_dicts() and one[1].columns.tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize("engine", ["exact", "lucene"])
def test_an_index_of_words_filters_and_finds_without_the_store(engine: str, store: Path, tmp_path: Path) -> None:
    """Its manifest names the analyzers, which is all that a query needs."""
    moved = shutil.copytree(store, tmp_path / "store")
    index = Index.build(moved, tmp_path / "index", engine)
    shutil.rmtree(moved)
    with Searcher.open(index.path) as searcher:
        assert searcher.search("Fluss river").docids[0] == "en-0"
        assert searcher.search("Nil Fluss river", filters=["lang=de"]).docids == ["de-0", "de-1"]
        assert searcher.search("quokka").docids == []
        score = searcher.search("a river").scores[0]
        explanation = searcher.explainer().explain("a river")[0]
    (contribution,) = explanation.contributions
    assert explanation.total == pytest.approx(score) and not explanation.notes
    assert explanation.document.tokens(contribution.term) == "river"


def test_added_documents_have_the_weights_of_the_first(store: Path, tmp_path: Path) -> None:
    """Texts, by the statistics that the index keeps, or a store; words that are new are found."""
    index = Index.build(BOTH, tmp_path / "index", "lucene", encoder="bm25")
    index = index.add([{"id": "new", "text": "Quokkas by a river", "lang": "en"}])
    with Searcher.open(index.path) as searcher:
        assert searcher.search("quokkas").docids == ["new"]
        assert {"new", "en-0"} < set(searcher.search("river").docids)
    more = [*BOTH, {"id": "newer", "text": "Wombats", "lang": "en"}]
    encode_corpus(more, tmp_path / "more", EncodePlan(encoder=str(store)))
    index = Index.build(store, tmp_path / "other", "lucene").update(tmp_path / "more", since=store)
    with Searcher.open(index.path) as searcher:
        assert searcher.search("wombats").docids == ["newer"] and searcher.search("Haus").docids == ["de-1"]
    encode_corpus(BOTH[:3], tmp_path / "others", EncodePlan(encoder="bm25:de,en"))
    with pytest.raises(MilcoError, match=r"cannot update .*: its weight_hash is"):
        index.update(tmp_path / "others")


def test_encoded_topics_find_what_texts_find(store: Path, tmp_path: Path) -> None:
    """They need the analyzers of the index; those of one language have another hash."""
    (tmp_path / "topics.tsv").write_text("q1\triver\nq2\tHaus quokka\n")
    index = Index.build(store, tmp_path / "index", "exact")
    topics = open_topics(str(tmp_path / "topics.tsv"))
    encode_corpus(topics, tmp_path / "topics", EncodePlan(encoder="bm25:en,de"))
    ids, queries = read_queries(tmp_path / "topics", index.path, index.manifest)
    assert dict(zip(ids, queries, strict=True))["q2"] == {"haus": 1, "hau": 1, "quokka": 1}
    encode_corpus(topics, tmp_path / "english", EncodePlan(encoder="bm25:en"))
    with pytest.raises(MilcoError, match=r"its tokenizer_hash is .*--encoder bm25:de,en"):
        read_queries(tmp_path / "english", index.path, index.manifest)


def test_invalid_input_is_one_line(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown languages, none, no words, settings out of range, and what words do not have."""
    corpus, empty, topics = tmp_path / "corpus.jsonl", tmp_path / "empty.jsonl", tmp_path / "topics.tsv"
    corpus.write_text('{"id": "d", "text": "one"}\n')
    empty.write_text('{"id": "d", "text": "the"}\n')
    topics.write_text("q\tone\n")
    cases = {
        f"--corpus {corpus} --encoder bm25": "of document 'd' is not known. Pass one language for all, as in",
        f"--topics {topics} --encoder bm25": "not known. Name it, as in --encoder bm25:en",
        f"--corpus {corpus} --encoder bm25:german": "unknown language 'german': valid are ar, bn,",
        f"--corpus {corpus} --encoder bm25:en,b=2": "b=2: must be from 0 to 1",
        f"--corpus {corpus} --encoder bm25:en,k1=x": "k1=x is not one of languages, k1=NUMBER or b=NUMBER",
        f"--corpus {corpus} --encoder bm25:en --reuse {store}": f"on this machine. Omit --reuse {store}.",
        f"--corpus {corpus} --encoder bm25:en --launcher ray": "on this machine. Omit --launcher ray.",
        f"--corpus {corpus} --encoder bm25:en --views pivot": "so no pivot view. Use --views source",
        f"--corpus {corpus} --encoder bm25:en --english-prefix e_": "has no English terms",
        f"--corpus {empty} --encoder bm25:en": "holds no document with a word",
        "--text one --encoder bm25": "the language of the texts is not known",
    }
    for arguments, message in cases.items():
        output = [] if "--text" in arguments else ["--output", str(tmp_path / "out")]
        assert main(["encode", *arguments.split(), *output]) == 2, arguments
        assert message in capsys.readouterr().err.splitlines()[-1], arguments
    assert not (tmp_path / "out").exists()
    with pytest.raises(MilcoError, match=r"encodes queries only"):
        load_encoder("bm25:en").encode_document("one")
