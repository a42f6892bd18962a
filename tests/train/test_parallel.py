"""Sentence pairs joined by their English sides, and streams of translations."""

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from milco_pyserini.corpora.bitext import open_bitext
from milco_pyserini.errors import MilcoError
from milco_pyserini.train.data.parallel import MixedStream, ParallelCollection, ParallelStream, Translations

BLOCK = 4


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> ParallelCollection:
    """Two hundred English sentences in German, half of them in French, the first ten in Swahili."""
    directory = tmp_path_factory.mktemp("bitext")
    for language, size in (("de", 200), ("fr", 100), ("sw", 10)):
        lines = [f"{language} {number}\tenglish {number}\n" for number in range(size)]
        (directory / f"{language}-en.tsv").write_text("".join(lines))
    return ParallelCollection.join(str(directory), open_bitext([str(directory)]))


def stream(collection: ParallelCollection, **options: float) -> ParallelStream:
    return ParallelStream(
        [collection], {collection.name: None}, **{"translations": 3, "seed": 1, "block": BLOCK} | options
    )


def test_pairs_with_the_same_english_side_are_one_row(collection: ParallelCollection) -> None:
    """English is a language like the others; several texts in one language are kept."""
    assert len(collection.rows) == 200
    assert collection.rows[3] == {language: [f"{language} 3"] for language in ("de", "fr", "sw")} | {
        "en": ["english 3"]
    }
    assert {language: len(places) for language, places in collection.places.items()} == {"de": 200, "fr": 100, "sw": 10}


def test_a_group_is_one_sentence_in_several_languages(collection: ParallelCollection) -> None:
    """No sentence comes twice in a batch, and the stream is the same every time."""
    groups = list(islice(stream(collection), 100 * BLOCK))
    assert groups == list(islice(stream(collection), 100 * BLOCK))
    assert groups != list(islice(stream(collection, seed=2), 100 * BLOCK))
    for group in groups:
        assert len(set(group.languages)) == len(group.languages) in (2, 3)
        assert not any(group.joined)
        assert len({text.split()[1] for text in group.texts}) == 1
        assert all(
            text.split()[0] == language.replace("en", "english") for language, text in zip(*group[:2], strict=True)
        )
    for start in range(0, len(groups), BLOCK):
        assert len({group.texts[0].split()[1] for group in groups[start : start + BLOCK]}) == BLOCK


def test_temperature_makes_rare_languages_more_frequent(collection: ParallelCollection) -> None:
    """Swahili has 10 of 310 sentences: 3 % of the groups begin with it at temperature 1, a third at infinity."""
    shares = {
        temperature: Counter(group.languages[0] for group in islice(stream(collection, temperature=temperature), 2000))[
            "sw"
        ]
        for temperature in (1, 2, 1e6)
    }
    assert 20 < shares[1] < 120 < shares[2] < 450 < shares[1e6]


def test_joined_texts_are_passages_around_the_sentence(collection: ParallelCollection) -> None:
    """They hold the group's sentence and are not queries. Each group has a query; no two groups share a sentence."""
    groups = list(islice(stream(collection, concatenate=0.7), 50 * BLOCK))
    for start in range(0, len(groups), BLOCK):
        taken = [{text.split(" ")[1::2][0] for text in group.texts[:1]} for group in groups[start : start + BLOCK]]
        assert len(set.union(*taken)) == BLOCK
    for group in groups:
        assert not group.joined[0]
        number = group.texts[0].split()[1]
        for text, joined in zip(group.texts, group.joined, strict=True):
            numbers = [int(word) for word in text.split()[1::2]]
            assert int(number) in numbers
            assert numbers == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) <= (7 if joined else 1)
        for text, english in zip(group.texts, group.english, strict=True):
            assert english.split()[1::2] == text.split()[1::2]
    assert 0.3 < sum(map(sum, (group.joined for group in groups))) / sum(len(group.texts) for group in groups) < 0.6


def test_collections_are_drawn_by_their_shares(collection: ParallelCollection) -> None:
    """And block by block; without a share, a collection is drawn as often as the others on average."""
    names = ["a", "b", "c"]
    collections = [
        ParallelCollection(
            name, [{"en": [f"{name}"], "de": [name]} for _ in collection.rows], {"de": collection.places["de"]}
        )
        for name in names
    ]
    found = ParallelStream(collections, {"a": 0.6, "b": 0.2, "c": None}, 2, 1, block=BLOCK)
    groups = list(islice(found, 3000 * BLOCK))
    counts = Counter(group.texts[0] for group in groups)
    assert [counts[name] / len(groups) for name in names] == pytest.approx([0.5, 1 / 6, 1 / 3], abs=0.03)
    assert all(len({group.texts for group in groups[i : i + BLOCK]}) == 1 for i in range(0, len(groups), BLOCK))


def test_streams_are_mixed_block_by_block() -> None:
    """In proportion to their shares."""
    one, two = ([Translations(("en",), (name,), (False,), (name,))] * 9000 for name in ("one", "two"))
    found = list(islice(MixedStream([(0.25, one), (0.75, two)], BLOCK, 1), 2000 * BLOCK))
    assert sum(group.texts[0] == "one" for group in found) / len(found) == pytest.approx(0.25, abs=0.03)
    assert all(len({group.texts for group in found[i : i + BLOCK]}) == 1 for i in range(0, len(found), BLOCK))


def test_too_few_sentences_are_refused(collection: ParallelCollection, tmp_path: Path) -> None:
    """A batch needs different sentences, and joined ones their neighbors."""
    with pytest.raises(MilcoError, match=r"200 English.* 101 .*batch_size"):
        stream(collection, block=101)
    with pytest.raises(MilcoError, match=r" 20 .*batch_size"):
        stream(collection, block=20, concatenate=0.1)
    (tmp_path / "de-en.tsv").write_text("eins\tone\nein\tone\n")
    with pytest.raises(MilcoError, match="parallel='one': 1 English"):
        ParallelCollection.join("one", open_bitext([str(tmp_path)]))
    (tmp_path / "de-en.tsv").rename(tmp_path / "en-en.tsv")
    (tmp_path / "en-en.tsv").write_text("one\tone\ntwo\ttwo\n")
    with pytest.raises(MilcoError, match="parallel='one': every sentence is English"):
        ParallelCollection.join("one", open_bitext([str(tmp_path)]))
