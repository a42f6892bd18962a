"""The two tokenizers: multilingual unigram pieces in the XLM-R layout, and English WordPiece.

Pieces per word decide the quality of a small model more than anything else (a word in one piece is a row of
the table, a word in three pieces has to be composed), so the source vocabulary is as large as the package allows.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import sentencepiece
from tokenizers import BertWordPieceTokenizer, Regex, Tokenizer, normalizers, pre_tokenizers

from milco_pyserini.console import say
from milco_pyserini.io.files import atomic_file

from . import corpus

# Every language has the same number of characters, or the large ones take the vocabulary; more for scripts of thousands
# of characters, for languages of many word forms, and for English, the pivot, which is on one side of every pair.
_CHARACTERS = 700_000
_CHARACTER_FACTOR = {"ja": 1.6, "zh": 1.6, "en": 3.0} | dict.fromkeys(("ar", "el", "fi", "ko", "ru", "te"), 1.5)
# Counts are damped: the aim is to have many words whole, not to have few pieces in running text.
_DAMPING = 0.75

# Log likelihoods: what an English word is above its pieces, and a piece outside the vocabulary.
_WORD_ADVANTAGE, _UNKNOWN_PIECE = 1.0, -20.0

# Scripts written without spaces: their clauses carry no word-initial mark, it would mean nothing there.
_UNSPACED_SCRIPT = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]"


def train_source_tokenizer(data: Path, work: Path, pieces: int, threads: int) -> None:
    """Train ``work/source.model`` (sentencepiece) and convert it to ``work/tokenizer.json``.

    The English words that are English pieces come on top of the given number of pieces.
    """
    lines = [line for language in (*corpus.languages(data), "en") for line in _sample_tokens(data, language)]
    say(f"source tokenizer: {len(lines):,} tokens, {sum(map(len, lines)) / 1e6:.1f} million characters")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(work / "source"),
        model_type="unigram",
        vocab_size=pieces,
        character_coverage=0.9999,  # .9995 leaves one Korean sentence in six with an unknown syllable
        normalization_rule_name="nmt_nfkc_cf",
        add_dummy_prefix=False,  # the pre-tokenizer has set the word-initial marks
        remove_extra_whitespaces=False,
        max_sentencepiece_length=20,
        seed_sentencepiece_size=1_000_000,
        num_threads=threads,
        shuffle_input_sentence=False,
        minloglevel=2,
    )
    terms = Tokenizer.from_file(str(work / "english.json"))
    words = [token.removeprefix("▁") for token, count in _count_tokens(data, "en").items() if count > 1]
    whole = with_whole_words(
        _as_xlmr_tokenizer(work / "source.model"), [word for word in words if _is_term(terms, word)]
    )
    _write(whole, work / "tokenizer.json")


def train_english_tokenizer(data: Path, work: Path, pieces: int) -> None:
    """Train the lower-casing, accent-stripping WordPiece whose entries are the pivot terms."""
    texts = corpus.english_sentences(data)
    texts += corpus.passages(data, "en") * 2
    for language in corpus.LANGUAGES:
        texts += dict.fromkeys(entry.english for entry in corpus.lexicon(data, language))
    tokenizer = BertWordPieceTokenizer(lowercase=True, strip_accents=True)
    tokenizer.train_from_iterator(texts, vocab_size=pieces, min_frequency=3, limit_alphabet=200, show_progress=False)
    _write(tokenizer, work / "english.json")


def with_whole_words(tokenizer: Tokenizer, words: list[str]) -> Tokenizer:
    """The tokenizer with every one of the words as one piece.

    A word is a little likelier than its pieces together, so that it wins where it stands as a word, and seldom else.
    """
    definition = json.loads(tokenizer.to_str())
    vocabulary = definition["model"]["vocab"]
    mask = vocabulary.pop()
    likelihood = dict(vocabulary)
    for word, encoding in zip(words, tokenizer.encode_batch(words, add_special_tokens=False), strict=True):
        if len(encoding.ids) > 1:
            pieces = (likelihood.get(piece, _UNKNOWN_PIECE) for piece in encoding.tokens)
            vocabulary.append([f"▁{word}", sum(pieces) + _WORD_ADVANTAGE])
    vocabulary.append(mask)
    # XLM-R's <mask> is the last piece.
    for added in definition["added_tokens"]:
        if added["content"] == mask[0]:
            added["id"] = len(vocabulary) - 1
    return Tokenizer.from_str(json.dumps(definition))


def _is_term(terms: Tokenizer, word: str) -> bool:
    """Whether an English word is one English piece, so that a text which holds it can keep it as it is."""
    return len(word) > 1 and word.isalpha() and len(terms.encode(word, add_special_tokens=False).ids) == 1


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    """Words as they enter the unigram model: without punctuation, each with a word-initial mark.

    Without this a word after a quotation mark or an apostrophe would be spelled without its mark, and would be
    another row of the table than the same word after a space; and every mark would be a token to encode.
    """
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{P}"), "removed"),
            pre_tokenizers.Split(Regex(r"\p{S}"), "isolated"),
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always"),
            pre_tokenizers.Split(Regex(f"▁(?={_UNSPACED_SCRIPT})"), "removed"),
        ]
    )


def _tokens(text: str) -> list[str]:
    return [token for token, _ in _pre_tokenizer().pre_tokenize_str(corpus.normalise(text))]


def _sample_tokens(data: Path, language: str) -> Iterator[str]:
    """Tokens of one language, each repeated in proportion to its damped count, up to the character budget.

    Systematic sampling over the sorted tokens: no chance in it, and neighbours in spelling share their luck.
    """
    counts = sorted(_count_tokens(data, language).items())
    damped = np.array([count for _, count in counts]) ** _DAMPING
    characters = damped @ np.array([len(token) for token, _ in counts])
    scale = _CHARACTERS * _CHARACTER_FACTOR.get(language, 1.0) / characters
    repetitions = np.diff(np.floor(np.cumsum(damped * scale)), prepend=0).astype(int)
    for (token, _), repeated in zip(counts, repetitions, strict=True):
        # Candidates for pieces are substrings with at least two different characters after them (inner nodes of a
        # suffix tree). A whole word is one only if its end is not always the end of the line.
        for k in range(repeated):
            yield token + "." * (k % 2)


def _count_tokens(data: Path, language: str) -> Counter[str]:
    if language == "en":
        texts, entries = corpus.english_sentences(data, per_language=20_000), []
    else:
        texts = [pair.text for pair in corpus.bitext(data, language)]
        entries = [entry.text for entry in corpus.lexicon(data, language)]
    counts: Counter[str] = Counter()
    split = _pre_tokenizer().pre_tokenize_str
    for text in texts + entries + corpus.passages(data, language):
        counts.update(token for token, _ in split(corpus.normalise(text)))
    return counts


def _write(tokenizer: Tokenizer | BertWordPieceTokenizer, path: Path) -> None:
    """Write a tokenizer as compact JSON: a third of the size of the indented file."""
    with atomic_file(path, "w") as file:
        json.dump(json.loads(tokenizer.to_str()), file, ensure_ascii=False, separators=(",", ":"))


def _folds() -> Iterator[normalizers.Normalizer]:
    """One replacement for all letters that fold to the same."""
    for folded in dict.fromkeys(corpus.FOLDS.values()):
        letters = "".join(letter for letter, to in corpus.FOLDS.items() if to == folded)
        yield normalizers.Replace(Regex(f"[{letters}]"), folded)


def _as_xlmr_tokenizer(model: Path) -> Tokenizer:
    """The sentencepiece model as a fast tokenizer with XLM-R's ids."""
    from transformers import XLMRobertaTokenizerFast

    converted: Tokenizer = XLMRobertaTokenizerFast(vocab_file=str(model)).backend_tokenizer
    # sentencepiece's own case folding leaves these out.
    converted.normalizer = normalizers.Sequence([*_folds(), converted.normalizer])
    converted.pre_tokenizer = _pre_tokenizer()
    return converted
