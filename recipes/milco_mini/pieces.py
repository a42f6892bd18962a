"""Train the two tokenizers: a multilingual unigram model in the XLM-R layout, and English WordPiece.

The number of tokens per word decides the quality of a small model more than anything else (a word of one token is a
row of the table, a word of three has to be composed), so the source vocabulary is as large as the package allows.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import sentencepiece
from tokenizers import BertWordPieceTokenizer, Regex, Tokenizer, normalizers, pre_tokenizers

from milco_pyserini.console import log
from milco_pyserini.io.files import atomic_file

from . import corpus

# Every language has the same number of characters, or large ones would take the vocabulary; more for scripts with
# thousands of characters, for languages with many word forms, and for English, the pivot.
_CHARACTERS = 700_000
_CHARACTER_FACTOR = {"ja": 1.6, "zh": 1.6, "en": 3.0} | dict.fromkeys(("ar", "el", "fi", "ko", "ru", "te"), 1.5)
# Counts are damped: the aim is many words of one token, not few tokens in running text.
_DAMPING = 0.75

# Log likelihoods: advantage of an English word over its tokens, and of a token outside the vocabulary.
_WORD_ADVANTAGE, _UNKNOWN_PIECE = 1.0, -20.0

# Scripts without spaces: a word-initial mark would mean nothing there.
_UNSPACED_SCRIPT = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]"


def train_source_tokenizer(data: Path, work: Path, pieces: int, threads: int) -> None:
    """Train work/source.model (sentencepiece) and convert it to work/tokenizer.json.

    English words that are one English token are added to the given number of tokens.
    """
    lines = [line for language in (*corpus.languages(data), "en") for line in sample_words(data, language)]
    log(f"Source tokenizer: {len(lines):,} tokens, {sum(map(len, lines)) / 1e6:.1f} million characters")
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
    words = [token.removeprefix("▁") for token, count in _count_words(data, "en").items() if count > 1]
    # English words of one English token become one source token, so that a text with the word can keep its term.
    words = [
        word
        for word in words
        if len(word) > 1 and word.isalpha() and len(terms.encode(word, add_special_tokens=False).ids) == 1
    ]
    from transformers import XLMRobertaTokenizerFast

    # The sentencepiece model as a fast tokenizer with the ids of XLM-R.
    converted: Tokenizer = XLMRobertaTokenizerFast(vocab_file=str(work / "source.model")).backend_tokenizer
    # Letters that sentencepiece does not fold: one replacement for all that fold to the same.
    folds = []
    for folded in dict.fromkeys(corpus.FOLDS.values()):
        letters = "".join(letter for letter, to in corpus.FOLDS.items() if to == folded)
        folds.append(normalizers.Replace(Regex(f"[{letters}]"), folded))
    converted.normalizer = normalizers.Sequence([*folds, converted.normalizer])
    converted.pre_tokenizer = _pre_tokenizer()
    _write(with_complete_words(converted, words), work / "tokenizer.json")


def train_english_tokenizer(data: Path, work: Path, pieces: int) -> None:
    """Train work/english.json, a WordPiece without case and accents whose tokens are the pivot terms."""
    texts = corpus.english_sentences(data)
    texts += corpus.passages(data, "en") * 2
    for language in corpus.LANGUAGES:
        texts += dict.fromkeys(entry.english for entry in corpus.lexicon(data, language))
    tokenizer = BertWordPieceTokenizer(lowercase=True, strip_accents=True)
    tokenizer.train_from_iterator(texts, vocab_size=pieces, min_frequency=3, limit_alphabet=200, show_progress=False)
    _write(tokenizer, work / "english.json")


def with_complete_words(tokenizer: Tokenizer, words: list[str]) -> Tokenizer:
    """Return the tokenizer with each of the words as one token.

    A word is a little likelier than its tokens together: it wins as a word, and rarely within longer words.
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
    # <mask> of XLM-R is the last token.
    for added in definition["added_tokens"]:
        if added["content"] == mask[0]:
            added["id"] = len(vocabulary) - 1
    return Tokenizer.from_str(json.dumps(definition))


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    """Split texts into words without punctuation, each with a word-initial mark.

    Otherwise a word after a quotation mark or an apostrophe would have no mark, and another row of the table than the
    same word after a space; and every mark would be a token to encode.
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


def sample_words(data: Path, language: str) -> Iterator[str]:
    """Yield the words of one language, each repeated in proportion to its damped count, up to the character budget.

    Systematic sampling over the sorted words: deterministic, and similar spellings are treated alike.
    """
    counts = sorted(_count_words(data, language).items())
    damped = np.array([count for _, count in counts]) ** _DAMPING
    characters = damped @ np.array([len(token) for token, _ in counts])
    scale = _CHARACTERS * _CHARACTER_FACTOR.get(language, 1.0) / characters
    repetitions = np.diff(np.floor(np.cumsum(damped * scale)), prepend=0).astype(int)
    for (token, _), repeated in zip(counts, repetitions, strict=True):
        # Candidates of the unigram model are substrings with at least two different successors (inner nodes of a suffix
        # tree). A complete word is one only if it does not always end the line.
        for k in range(repeated):
            yield token + "." * (k % 2)


def _count_words(data: Path, language: str) -> Counter[str]:
    if language == "en":
        texts, entries = corpus.english_sentences(data, per_language=20_000), []
    else:
        texts = [pair.text for pair in corpus.bitext(data, language)]
        entries = [entry.text for entry in corpus.lexicon(data, language)]
    counts: Counter[str] = Counter()
    split = _pre_tokenizer().pre_tokenize_str
    for text in texts + entries + corpus.passages(data, language):
        counts.update(token for token, _ in split(corpus.normalize(text)))
    return counts


def _write(tokenizer: Tokenizer | BertWordPieceTokenizer, path: Path) -> None:
    """Write a tokenizer as compact JSON, a third of the size of an indented file."""
    with atomic_file(path, "w") as file:
        json.dump(json.loads(tokenizer.to_str()), file, ensure_ascii=False, separators=(",", ":"))
