"""Keywords of a text: pivot terms that are words, joined pieces, and the text's own names and numbers."""

from collections.abc import Iterable
from types import SimpleNamespace

import pytest
from golden_set import encoder
from tokenizers import Tokenizer, models, pre_tokenizers

from milco_pyserini.errors import MilcoError
from milco_pyserini.keywords import keywords
from milco_pyserini.sparse import SparseBatch, Vocabulary

PIECES = "[UNK] river telephone invented who ka photos ##ynth ##esis ##port 1876 1890 three seas é ?".split()
SOURCE = "<unk> ▁Wer ▁Bell ▁1876 ▁das </s>".split()


class Encoder:
    """Has the given weights for every text. In the source view, each word is one piece."""

    name, views = "stub", ("pivot", "source")
    vocabulary = Vocabulary(PIECES, SOURCE)
    tokenizer = SimpleNamespace(
        ids=lambda words: [[SOURCE.index(f"▁{word}") if f"▁{word}" in SOURCE else 0, 5] for word in words],
        pieces=SOURCE,
        special_ids=[0, 5],
    )

    def __init__(self, **weights: float) -> None:
        pieces = {name.replace("__", "##").lstrip("n"): weight for name, weight in weights.items() if name[:2] != "m_"}
        source = {f"m_▁{name[2:]}": weight for name, weight in weights.items() if name[:2] == "m_"}
        source = {name.replace("▁end", "</s>"): weight for name, weight in source.items()}
        self._vector = pieces | source
        self.english_tokenizer = Tokenizer(
            models.WordPiece(vocab={piece: n for n, piece in enumerate(PIECES)}, unk_token="[UNK]")
        )
        self.english_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()

    def encode_query(self, texts: Iterable[str]) -> SparseBatch:
        return SparseBatch.from_dicts([self._vector for _ in texts], self.vocabulary)

    encode_document = encode_query


def found(text: str, top_k: int | None = 10, words: Iterable[str] = (), **weights: float) -> dict[str, float]:
    """Return the keywords of a text that has these terms, rounded. A term of digits begins with n."""
    (row,) = keywords(Encoder(**weights), text, top_k, words=words)  # type: ignore[arg-type]
    assert [weight for _, weight in row] == sorted((weight for _, weight in row), reverse=True)
    return {word: round(weight, 3) for word, weight in row}


def test_complete_words_are_kept() -> None:
    """Parts of words, function words, beginnings of names, foreign letters and signs are left out."""
    terms = {"river": 0.9, "__port": 0.8, "who": 0.7, "ka": 0.6, "é": 0.5, "?": 0.4, "three": 0.3}
    assert found("川", **terms) == {"river": 0.9, "three": 0.3}
    assert found("川", 1, **terms) == {"river": 0.9}


def test_numbers_are_those_of_the_text() -> None:
    """The network knows numbers roughly; the text's own are kept, in the digits of English texts."""
    weights = {"n1876": 0.5, "n1890": 0.6, "river": 0.8, "m_1876": 1.0}
    assert found("川", **weights) == {"river": 0.8}
    for text in ("1876年の川", "١٨٧٦", "१८७६ नदी", "１８７６"):
        assert found(text, **weights) == {"river": 0.8, "1876": 0.8}, text


def test_names_of_the_text_are_kept() -> None:
    """Words with capitals, by their weights in the source view, scaled to the pivot view; others only without any.

    A word that the limits of the source view left out has the least weight.
    """
    weights = {"telephone": 0.8, "m_Bell": 2.0, "m_Wer": 1.0, "m_das": 0.5}
    assert found("Wer rief das Bell an?", **weights) == {"bell": 0.8, "telephone": 0.8, "wer": 0.4}
    assert found("das wer", **weights) == {"telephone": 0.8, "das": 0.2, "wer": 0.2}
    assert found("Κουδούνι das", **weights) == {"telephone": 0.8, "das": 0.2}


def test_special_tokens_weigh_no_words() -> None:
    """They are the strongest of a checkpoint that keeps them, and no piece of a name."""
    weights = {"telephone": 0.8, "m_Bell": 0.4, "m_1876": 0.2}
    for more in ({}, {"m_end": 2.0}):
        assert found("Bell 1876", **weights, **more) == {"telephone": 0.8, "bell": 0.8, "1876": 0.4}


def test_pieces_are_joined_into_words_of_the_collection() -> None:
    """If a text has all pieces of a word; the pieces are then no words of their own."""
    weights = {"photos": 0.9, "__ynth": 0.4, "__esis": 0.6, "river": 0.5}
    assert found("光合成", **weights) == {"photos": 0.9, "river": 0.5}
    words = ["Photosynthesis", "photosynth", "photosport", "river", "two words"]
    assert found("光合成", words=words[2:], **weights) == {"photos": 0.9, "river": 0.5}
    assert found("光合成", words=words, **weights) == {"river": 0.5, "photosynthesis": 0.4, "photosynth": 0.4}


@pytest.mark.parametrize("text", ["", "  \n", "…?!", "「」"])
def test_a_text_without_letters_has_no_keywords(text: str) -> None:
    """Whatever terms the network gives it."""
    assert found(text, river=0.5) == {}


def test_several_texts_are_returned_in_their_order() -> None:
    """As a list for each text, also if one is empty; documents are encoded as such."""
    rows = keywords(Encoder(river=0.5), ["Bell", "", "川"], documents=True)  # type: ignore[arg-type]
    assert [[word for word, _ in row] for row in rows] == [["bell", "river"], [], ["river"]]


def test_bad_arguments_are_refused() -> None:
    """An encoder without English terms, and no words at all."""
    milco = encoder("distillation")
    with pytest.raises(MilcoError, match="top_k=0"):
        keywords(milco, "a", 0)
    only_source = SimpleNamespace(name="bm25:de", views=("source",))
    with pytest.raises(MilcoError, match="bm25:de has no English terms"):
        keywords(only_source, "a")  # type: ignore[arg-type]


@pytest.mark.integration
def test_words_of_the_embedded_model_are_letters_and_digits() -> None:
    """No text, however hostile, has others; and a question in another language has the English word."""
    from milco_pyserini import MilcoEncoder

    milco = MilcoEncoder.from_pretrained("mini", dtype="float32")
    texts = [
        "Wer erfand 1876 das Telefon?",
        'x" OR 1=1; --',
        "a'b\\c\0d\ud800 ^9 * NEAR(",
        "🙂 مَن؟ 電話",
        "Zoë & ÆØÅ-42",
    ]
    rows = keywords(milco, texts, None)
    assert {"telephone", "1876"} <= dict(rows[0]).keys()
    assert all(word.isalnum() and word == word.lower() and weight > 0 for row in rows for word, weight in row)
    assert "zoë" in dict(rows[4]) and "42" in dict(rows[4])
