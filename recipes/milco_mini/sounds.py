"""Sound terms: names that no dictionary has, matched across scripts by their consonants.

A name is translated by its sound: Морозов is Morozov. Its romanized letters differ between languages, its vowels most,
its consonants by class hardly (Zobel and Dart, Phonetic String Matching, 1996). The pivot vocabulary therefore ends
with all four-grams of consonant classes and word boundaries: "~-mls", "~mlsp" and "~lsp-" are those of Morozov. A word
that is one token has none: the token embeddings translate it.

A trained network learns them in place of the directions that its English terms read least: there its embeddings get
the first and the last sounds of each token (graft()), and its layers learn to join those of a word's tokens (teach()).
That moves the English terms, which all of the network then learns again from what it was before (restore()).
"""

import copy
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import regex
import scipy.sparse as sp
import torch
from anyascii import anyascii
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from milco_pyserini.console import log
from milco_pyserini.encode import MilcoEncoder
from milco_pyserini.model import MilcoConfig, MilcoModel
from milco_pyserini.train.data.bitext import open_bitext
from milco_pyserini.train.data.streams import BitextStream

from . import corpus
from .export import FREQUENT, rounded_words
from .network import code_size, set_echo

# Each class is named by its first letter.
_CLASSES = ("pbfv", "td", "kgcq", "szj", "lr", "m", "n")
_BOUNDARY = "-"
_SYMBOLS = "".join(letters[0] for letters in _CLASSES) + _BOUNDARY
_LENGTH = 4
_MARK = "~"
# Romanized letters of one sound, longest first.
_DIGRAPHS = {"tch": "s", "sch": "s", "sh": "s", "ch": "s", "ts": "s", "dz": "s", "zh": "s"} | {
    "th": "t",
    "ph": "p",
    "kh": "k",
    "gh": "k",
    "ck": "k",
    "qu": "k",
    "x": "ks",
}
_DIGRAPH = regex.compile("|".join(_DIGRAPHS))
_SOFT_C = regex.compile("c(?=[eiy])")
_CLASS_OF = str.maketrans({letter: letters[0] for letters in _CLASSES for letter in letters})
_OTHER = regex.compile(f"[^{_SYMBOLS[:-1]}]")
_REPEATED = regex.compile(r"(.)\1+")
# A word of scripts with spaces, or of katakana, which Japanese uses for foreign names.
_WORD = regex.compile(r"[\p{Katakana}ー]{3,}|[^\s\p{N}\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]{3,}")
_PUNCTUATION = regex.compile(r"[\p{P}\p{S}]")
_UNREAD = regex.compile(r"[^\p{L}\p{M}ー]|[\p{Han}\p{Hiragana}\p{Thai}]")
_SPACE = "▁"
# Texts of each language whose terms are counted.
_TEXTS = 2_500
_SMOOTHING = 1e-4
# As the weights of English terms (english.py), and a little larger.
_LARGEST_WEIGHT, _IDF_SCALE, _IDF_POWER = 1.1, 9.0, 0.7
# Sounds at each end of a token that its embedding has, each as a point of an octahedron in four dimensions.
_ENDS = 3
_POINT = len(_SYMBOLS) // 2
_SIZE = 2 * _ENDS * _POINT
_AMPLITUDE = 1.5
# Texts of a step: of random words, but every third time both sides of sentence pairs and dictionary entries.
_TEXTS_OF_STEP, _WORDS_OF_TEXT, _WORDS_OF_LANGUAGE, _LONGEST = 48, 6, 25_000, 72
_SHARES = {"bitext": 0.7, "lexicon": 0.3}
_EVERY = 3
_RATE, _DECODER_RATE, _WARMUP_STEPS, _CLIP = 1e-3, 4e-3, 100, 2.0
# First logits: a term is rare. Logit whose weight is that of the term.
_RARE, _SURE = -8.0, 4.0
_LOG_STEPS = 100
# restore(): texts of random tokens in a step and their length, parts of a step, and the logit below which none matters.
_RANDOM, _PARTS, _MARGIN, _SPECIALS = (24, 14), 8, 0.1, 4


def sounds(word: str) -> str:
    """Return the classes of a normalized word's consonants, neighbors of one class once: "mlsp" of "морозов"."""
    letters = _DIGRAPH.sub(lambda found: _DIGRAPHS[found[0]], anyascii(word).lower())
    return _REPEATED.sub(r"\1", _OTHER.sub("", _SOFT_C.sub("s", letters).translate(_CLASS_OF)))


def sound_terms() -> list[str]:
    """Return all terms: four-grams without repetitions, boundaries at their ends only."""
    inner = _SYMBOLS[:-1]
    grams = itertools.product(_SYMBOLS, inner, inner, _SYMBOLS)
    return [_MARK + "".join(gram) for gram in grams if all(a != b for a, b in itertools.pairwise(gram))]


def has_sound_terms(english: Tokenizer) -> bool:
    """Return whether the English vocabulary has the sound terms."""
    return english.token_to_id(sound_terms()[0]) is not None


def with_sound_terms(english: Tokenizer) -> Tokenizer:
    """Return the English tokenizer with the sound terms as its last tokens, which no text has."""
    definition = json.loads(english.to_str())
    vocabulary = definition["model"]["vocab"]
    vocabulary.update({term: len(vocabulary) + place for place, term in enumerate(sound_terms())})
    return Tokenizer.from_str(json.dumps(definition))


class TokenTerm(NamedTuple):
    """A sound term of a text, as its place in sound_terms(), and the number of the token that completes it."""

    token: int
    term: int


class SoundReader:
    """Find the sound terms of texts, tokenized by the source tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._place = {term.removeprefix(_MARK): place for place, term in enumerate(sound_terms())}
        self._known: dict[tuple[str, ...], list[list[int]]] = {}

    def read(self, tokens: Sequence[str]) -> list[TokenTerm]:
        """Return the terms of the words that have several tokens. tokens: of a text, without special tokens."""
        shown = [_PUNCTUATION.sub(" ", token.replace(_SPACE, " ")) for token in tokens]
        owner = [number for number, token in enumerate(shown) for _ in token]
        text = "".join(shown)
        found: list[TokenTerm] = []
        for word in _WORD.finditer(text):
            parts: dict[int, str] = {}
            for number, letter in zip(owner[word.start() : word.end()], word[0], strict=True):
                parts[number] = parts.get(number, "") + letter
            if len(parts) > 1:
                terms = self._word(tuple(parts.values()))
                found += (TokenTerm(n, term) for n, new in zip(parts, terms, strict=True) for term in new)
        return found

    def bag(self, texts: Sequence[str]) -> sp.csr_matrix:
        """Return 1 for each sound term of each text, float32 [texts, terms]."""
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        rows = [sorted({found.term for found in self.read(encoding.tokens)}) for encoding in encodings]
        columns = np.fromiter(itertools.chain.from_iterable(rows), np.int32)
        ends = np.cumsum([0, *map(len, rows)])
        return sp.csr_matrix((np.ones(len(columns), np.float32), columns, ends), (len(texts), len(self._place)))

    def _word(self, parts: tuple[str, ...]) -> list[list[int]]:
        """Return the terms that each part of a word completes; every term of the word occurs once."""
        if parts not in self._known:
            missing = dict.fromkeys(_grams(_BOUNDARY + sounds("".join(parts)) + _BOUNDARY))
            new: list[list[int]] = []
            for number in range(1, len(parts) + 1):
                is_last = number == len(parts)
                read = _grams(_BOUNDARY + sounds("".join(parts[:number])) + _BOUNDARY * is_last)
                # Letters of one sound may be in two tokens: what their end does not complete, the word's end does.
                completed = list(missing) if is_last else [gram for gram in missing if gram in read]
                new.append([self._place[gram] for gram in completed])
                for gram in completed:
                    del missing[gram]
            self._known[parts] = new
        return self._known[parts]


def _grams(spelled: str) -> list[str]:
    return [spelled[i : i + _LENGTH] for i in range(len(spelled) - _LENGTH + 1)]


def measure_weights(data: Path, tokenizer: Tokenizer) -> NDArray[np.float32]:
    """Return the weights of sound terms, float32 [terms], by idf in the language where a term is most frequent."""
    reader = SoundReader(tokenizer)
    share = np.zeros(len(sound_terms()))
    for language in (*corpus.languages(data), "en"):
        if language == "en":
            texts = corpus.english_sentences(data, per_language=_TEXTS // 10)
        else:
            pairs = corpus.bitext(data, language)
            texts = [pair.text for pair in pairs[:: max(1, len(pairs) // _TEXTS)]]
        texts += corpus.passages(data, language)[:_TEXTS]
        share = np.maximum(share, reader.bag(texts).getnnz(axis=0) / max(len(texts), _TEXTS // 5))
    idf = np.maximum(-np.log(share + _SMOOTHING), 0)
    return (_LARGEST_WEIGHT * (idf / _IDF_SCALE) ** _IDF_POWER).astype(np.float32)


def token_sounds(tokenizer: Tokenizer) -> NDArray[np.float32]:
    """Return what embeddings have of every token's sounds, float32 [V_m, 24]: the first three, and the last three.

    A word-initial token begins with a boundary; a token of other scripts or without letters is one.
    """
    found = np.zeros((tokenizer.get_vocab_size(), 2 * _ENDS, _POINT), np.float32)
    for row in range(len(found)):
        token = tokenizer.id_to_token(row)
        word = token.removeprefix(_SPACE)
        spelled = _BOUNDARY if _UNREAD.search(word) else sounds(word)
        if token.startswith(_SPACE):
            spelled = _BOUNDARY + spelled
        for place, symbol in [*enumerate(spelled[:_ENDS]), *enumerate(spelled[: -_ENDS - 1 : -1], _ENDS)]:
            number = _SYMBOLS.index(symbol)
            found[row, place, number // 2] = _AMPLITUDE * (-1) ** (number % 2)
    return found.reshape(len(found), _SIZE)


@torch.no_grad()
def graft(model: MilcoModel, sounds_of_tokens: NDArray[np.float32]) -> None:
    """Put the sounds of tokens where the English terms read least of their embeddings, in place.

    sounds_of_tokens: float32 [V_m, 24], from token_sounds().
    """
    words = model.encoder.embeddings.word_embeddings.weight
    codes = words[:, : code_size(words.shape[1])]
    # The layers are close to the identity, and so are the activations of the connector.
    read = (model.decoder.weight @ model.connector.dense.weight @ model.connector.projector.weight)[:, : codes.shape[1]]
    _, directions = torch.linalg.eigh((read.T @ read).double())
    least = directions[:, :_SIZE].float()
    codes += (torch.from_numpy(sounds_of_tokens) - codes @ least) @ least.T


def teach(encoder: MilcoEncoder, data: Path, weights: NDArray[np.float32], steps: int, seed: int) -> MilcoEncoder:
    """Return a MILCO encoder with sound terms; its English terms are close to those of a trained one.

    Embeddings are fixed. The loss is the cross entropy of every token's terms, and how far the connector's output moves
    in what English terms read of it.

    Args:
        encoder: MILCO, without sound terms.
        data: the data directory.
        weights: float32 [terms], from measure_weights().
        steps: number of steps.
        seed: of texts and initial values.
    """
    torch.manual_seed(seed)
    before: MilcoModel = encoder.model
    tokenizer = encoder.tokenizer.tokenizer
    reader = SoundReader(tokenizer)
    model = copy.deepcopy(before).train()
    graft(model, token_sounds(tokenizer))
    model.encoder.embeddings.word_embeddings.weight.requires_grad_(False)
    decoder = nn.Linear(model.config.english_hidden_size, len(sound_terms()))
    nn.init.normal_(decoder.weight, std=0.02)
    nn.init.constant_(decoder.bias, _RARE)
    english = (before.decoder.weight.T @ before.decoder.weight).detach()
    english /= english.trace()
    network = [p for part in (model.encoder, model.connector) for p in part.parameters() if p.requires_grad]
    groups = [{"params": network, "lr": _RATE}, {"params": list(decoder.parameters()), "lr": _DECODER_RATE}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0, betas=(0.9, 0.98))
    schedule = _schedule(optimizer, steps)
    for step, texts in enumerate(islice(_texts(data, seed), steps), start=1):
        encodings = sorted(tokenizer.encode_batch(texts), key=len)
        terms = [[found for found in reader.read(e.tokens[1:-1]) if found.token < _LONGEST - 2] for e in encodings]
        count = max(1, sum(map(len, terms)))
        losses = np.zeros(2)
        half = len(encodings) // 2
        for part in (slice(None, half), slice(half, None)):
            ids, mask = _padded([torch.tensor(encoding.ids[:_LONGEST]) for encoding in encodings[part]])
            present = torch.zeros(*ids.shape, len(sound_terms()))
            for row, found in enumerate(terms[part]):
                for token, term in found:
                    present[row, token + 1, term] = 1
            with torch.no_grad():
                old = _projected(before, ids, mask)
            new = _projected(model, ids, mask)
            real = mask.bool()
            missed = functional.binary_cross_entropy_with_logits(decoder(new[real]), present[real], reduction="sum")
            moved = (new - old)[real]
            loss = torch.stack([missed / count, ((moved @ english) * moved).sum(dim=1).mean()])
            loss.sum().backward()
            losses += loss.detach().numpy() / (1, 2)
        nn.utils.clip_grad_norm_([*network, *decoder.parameters()], _CLIP)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        if step % _LOG_STEPS == 0:
            log(f"sounds: step {step:,} of {steps:,}, loss {losses[0]:.3f}, English terms moved by {losses[1]:.4f}")
    scale = torch.from_numpy(np.expm1(weights)) / _SURE
    return _with_terms(encoder, model, decoder.weight * scale.unsqueeze(1), decoder.bias * scale)


def restore(
    before: MilcoEncoder,
    taught: MilcoEncoder,
    data: Path,
    weights: NDArray[np.float32],
    echo: NDArray[np.float32],
    steps: int,
    seed: int,
) -> None:
    """Train all of a network, whose English terms teach() has moved, to have them and exact sound terms, in place.

    The loss is the squared error of every token's logits, before max pooling, above a margin. Embeddings are rounded
    as the final checkpoint will have them, with the gradients of unrounded ones (straight-through estimator; Bengio
    and others, 2013): rounding after training nearly doubled the error of the sound terms.

    Args:
        before: the encoder before teach(), whose English terms are the target.
        taught: the encoder that is trained.
        data: the data directory, whose sentence pairs and dictionary entries are the texts, next to random tokens.
        weights: float32 [terms], from measure_weights().
        echo: float32 [V_m], LexEcho weights that embeddings have and keep.
        steps: number of steps.
        seed: of the texts.
    """
    old: MilcoModel = before.model
    model: MilcoModel = taught.model.train()
    tokenizer = before.tokenizer.tokenizer
    reader, sure = SoundReader(tokenizer), torch.from_numpy(np.expm1(weights))
    bos, *_, eos = tokenizer.encode("").ids
    pairs, generator = _pairs(data, seed), np.random.default_rng(seed)
    words = model.encoder.embeddings.word_embeddings
    parts: list[tuple[nn.Module, float]] = [
        (words, 1e-3),
        (model.encoder.encoder, 2e-4),
        (model.connector, 1e-4),
        (model.decoder, 1e-4),
    ]
    groups = [{"params": list(part.parameters()), "lr": rate} for part, rate in parts]
    parameters = [parameter for part, _ in parts for parameter in part.parameters()]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0, betas=(0.9, 0.98))
    schedule = _schedule(optimizer, steps)
    hook = words.register_forward_hook(_round_embeddings)
    recent: list[float] = []
    for step in range(1, steps + 1):
        set_echo(model, echo)
        texts = [encoding.ids[1 : _LONGEST - 1] for encoding in tokenizer.encode_batch(next(pairs))]
        texts += generator.integers(_SPECIALS, tokenizer.get_vocab_size() - 1, _RANDOM).tolist()
        texts.sort(key=len)
        count = sum(map(len, texts))
        size = -(-len(texts) // _PARTS)
        lost = whole = 0.0
        for part in (texts[start : start + size] for start in range(0, len(texts), size)):
            ids, mask = _padded([torch.tensor([bos, *text, eos]) for text in part])
            real = mask.bool()
            target = torch.full((int(mask.sum()), model.config.english_vocab_size), -_MARGIN)
            with torch.no_grad():
                target[:, : -len(sure)] = old.decoder(_projected(old, ids, mask)[real]).clamp_(min=-_MARGIN)
            first = 1
            for text in part:
                for token, term in reader.read([tokenizer.id_to_token(token) for token in text]):
                    target[first + token, term - len(sure)] = sure[term]
                first += len(text) + 2
            logits = model.decoder(_projected(model, ids, mask)[real])
            error = logits.detach().clamp(min=-_MARGIN) - target
            # Not the gradient of clamp: a term that is missing has to come back.
            logits.backward(error / count)
            lost += error.square().sum().item()
            whole += target.clamp_(min=0).square().sum().item()
        nn.utils.clip_grad_norm_(parameters, _CLIP)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        recent.append(lost / whole)
        if step % _LOG_STEPS == 0:
            log(f"sounds: step {step:,} of {steps:,} with the English terms, loss {np.mean(recent[-_LOG_STEPS:]):.4f}")
    hook.remove()
    model.eval()


def _projected(model: MilcoModel, ids: Tensor, mask: Tensor) -> Tensor:
    """Return the connector's output, float32 [B, S, D_e]."""
    return model.connector(model.encoder(input_ids=ids, attention_mask=mask).last_hidden_state)


def _round_embeddings(_: nn.Module, inputs: tuple[Tensor], rows: Tensor) -> Tensor:
    """Round the embeddings of rare tokens; gradients pass."""
    with torch.no_grad():
        rare = inputs[0] >= FREQUENT
        change = torch.zeros_like(rows)
        change[rare] = rounded_words(rows[rare]) - rows[rare]
    return rows + change


@torch.no_grad()
def _with_terms(encoder: MilcoEncoder, model: MilcoModel, weight: Tensor, bias: Tensor) -> MilcoEncoder:
    """Return an encoder of a network with further terms. weight, bias: [terms, D_e] and [terms], of their decoder."""
    config: MilcoConfig = copy.deepcopy(model.config)
    config.english_vocab_size += len(bias)
    state = model.state_dict()
    state["decoder.weight"] = torch.cat([state["decoder.weight"], weight])
    state["decoder.bias"] = torch.cat([state["decoder.bias"], bias])
    extended = MilcoModel(config)
    extended.load_state_dict(state)
    english = with_sound_terms(encoder.english_tokenizer)
    return MilcoEncoder(extended, encoder.tokenizer, english, encoder.name, "cpu", "float32")


def _schedule(optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
    """Return a cosine schedule with a warm-up."""
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / _WARMUP_STEPS, 0.5 * (1 + math.cos(math.pi * step / steps)))
    )


def _padded(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return token ids and their mask, int64 [B, S]."""
    mask = nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    return nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=1), mask


def _texts(data: Path, seed: int) -> Iterator[list[str]]:
    """Yield the texts of every step."""
    generator = np.random.default_rng(seed)
    words: list[str] = []
    for language in (*corpus.languages(data), "en"):
        if language == "en":
            texts = corpus.english_sentences(data, per_language=_TEXTS)
        else:
            texts = [pair.text for pair in corpus.bitext(data, language) + corpus.lexicon(data, language)]
        found = sorted({word for text in texts for word in _WORD.findall(" ".join(corpus.words(text)))})
        words += generator.permutation(np.array(found, object))[:_WORDS_OF_LANGUAGE].tolist()
    pairs = _pairs(data, seed)
    for step in itertools.count(1):
        if step % _EVERY == 0:
            yield next(pairs)
        else:
            chosen = generator.integers(0, len(words), (_TEXTS_OF_STEP, _WORDS_OF_TEXT))
            yield [" ".join(words[i] for i in row) for row in chosen]


def _pairs(data: Path, seed: int) -> Iterator[list[str]]:
    """Yield both sides of sentence pairs and dictionary entries, as many texts as a step has."""
    sources = open_bitext([str(data / name) for name in _SHARES], corpus.languages(data))
    weights = {str(data / name): share for name, share in _SHARES.items()}
    pairs = iter(BitextStream(sources, temperature=2, seed=seed, concatenate=0.05, weights=weights))
    while True:
        yield [side for pair in islice(pairs, _TEXTS_OF_STEP // 2) for side in (pair.text, pair.english)]
