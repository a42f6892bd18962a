"""Texts that are trained on again and again, with what is frozen about them computed once.

The lower layers of the network are not trained, so their states of every text are kept in a file; and the teacher's
vector of every text, centered per language. A step then costs a third of one that begins at the tokens.
"""

import itertools
import json
import random
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from milco_pyserini.console import log
from milco_pyserini.corpora.bitext import open_bitext
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.io.files import atomic_file, write_json
from milco_pyserini.model.packed import PackedEncoder, native_dtype
from milco_pyserini.model.tokenization import TextTokenizer
from milco_pyserini.train.data.parallel import ENGLISH, ParallelCollection, ParallelStream
from milco_pyserini.train.data.retrieval import open_retrieval

from ..dense.encoder import pool_packed
from . import MiniOptions
from .base import Base, to_xlm_r
from .data import NOT_TRAINED_ON, is_for_training
from .spelling import spell

FROZEN = 6
# Shares of the groups of translations. Technical prose is a third at most.
PARALLEL = {
    "bitext/bible": 0.06,
    "bitext/tico19": 0.15,
    "bitext/mkqa-queries": 0.13,
    "bitext/talpco": 0.02,
    "bitext/tatoeba-anki": 0.16,
    "bitext/wikipedia-indic": 0.07,
    "bitext/python-docs": 0.03,
    "bitext/ms-courses": 0.25,
    "bitext/korean-news": 0.04,
    "lexicon/omw": 0.03,
    "lexicon/wiktionary": 0.03,
    "lexicon/cldr-names": 0.03,
}
# Kinds of texts: those that search and are searched, that only search, that only are searched, that nobody searches.
SENTENCE, QUERY, PASSAGE, NOTHING = range(4)
# Texts without meaning.
MEANINGLESS = """
    - -- — … ... ? ?? ! !!! * # & % + = / () (1) [ ] • · ・ 。 、 № _ 0 1 2 7 10 00 1. a) a b x n/a N/A n.a. &nbsp;
    """.split()
# The source of entries that are translations of each other.
PARALLEL_SOURCE = "parallel"
_QUERY, _PASSAGE = "query: ", "passage: "
_QUERY_LENGTH, _LENGTH = 64, 192
_TOKENS = 4096
# Texts of all languages that a language's mean is shrunk toward.
_PRIOR = 8
# The tokenizer folds width.
_SPELLED, _SPELLINGS = 0.75, ("lower", "marks", "ue", "characters", "kana", "alef", "typos")


@dataclass
class Entry:
    """A text of the pool. meaning: the number that it shares with its translations, spellings and answers."""

    text: str
    language: str
    kind: int
    meaning: int
    english: str = ""
    source: str = ""
    # The number of the entry of which it is another spelling.
    spelling_of: int | None = None


def draw(data: Path, groups: int, queries: int, seed: int) -> list[Entry]:
    """Return the entries: groups of translations, then up to so many queries of each set with their passages."""
    rng = random.Random(f"{seed} pool")
    entries: list[Entry] = []
    collections, shares = [], {}
    for name, share in PARALLEL.items():
        if not (data / name).is_dir():
            continue
        collection = ParallelCollection.join(str(data / name), open_bitext([data / name]))
        collections.append(collection)
        shares[collection.name] = share
    stream = ParallelStream(collections, shares, 3, seed, temperature=2.5, concatenate=0.3, block=32)
    for meaning, group in enumerate(islice(stream, groups)):
        first = len(entries)
        for language, text, joined, english in zip(*group, strict=True):
            entries.append(Entry(text, language, PASSAGE if joined else SENTENCE, meaning, english, PARALLEL_SOURCE))
        _add_spelling(entries, rng.randrange(first, len(entries)), rng)
    meaning = groups
    for source in open_retrieval([data / "retrieval"]):
        if Path(source.name).name.startswith(NOT_TRAINED_ON):
            continue
        examples = [example for example in source.examples() if is_for_training(example)]
        passages: dict[str, int] = {}
        for example in rng.sample(examples, min(queries, len(examples))):
            passage = example.positives[0]
            if passage not in passages:
                passages[passage] = meaning
                language = ENGLISH if "afriqa" in source.name else source.language
                entries.append(Entry(passage, language, PASSAGE, meaning, "", source.name))
                meaning += 1
            language = source.language
            entries.append(Entry(example.query, language, QUERY, passages[passage], "", source.name))
            _add_spelling(entries, len(entries) - 1, rng)
    return entries + [Entry(text, "", NOTHING, meaning + n, text) for n, text in enumerate(MEANINGLESS)]


def _add_spelling(entries: list[Entry], number: int, rng: random.Random) -> None:
    entry = entries[number]
    if rng.random() < _SPELLED and entry.kind != PASSAGE:
        text = spell(entry.text, entry.language, rng, _SPELLINGS)
        if text != entry.text:
            entries.append(Entry(text, entry.language, QUERY, entry.meaning, entry.english, entry.source, number))


class Pool:
    """The entries, the frozen states of their tokens, and the teacher's vectors, float32 [N, D]."""

    def __init__(self, directory: Path) -> None:
        self.entries = [Entry(**values) for values in json.loads((directory / "entries.json").read_text())]
        self.states: NDArray[np.float16] = np.load(directory / "states.npy", mmap_mode="c")
        self.ids: NDArray[np.int32] = np.load(directory / "ids.npy")
        self.starts: NDArray[np.int64] = np.load(directory / "starts.npy")
        self.teacher = torch.from_numpy(np.load(directory / "teacher.npy"))

    def batch(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the states, float32 [B, S, D], and the mask, int64 [B, S], of some entries."""
        rows = [torch.from_numpy(self.states[self.starts[n] : self.starts[n + 1]].astype(np.float32)) for n in numbers]
        states = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        lengths = torch.tensor([len(row) for row in rows])
        return states, (torch.arange(states.shape[1]) < lengths.unsqueeze(1)).long()


def write_pool(
    directory: Path,
    data: Path,
    encoder: MilcoEncoder,
    base: Base,
    options: MiniOptions,
) -> None:
    """Write what a Pool reads to a directory; a file that exists is kept."""
    if not (directory / "entries.json").exists():
        write_entries(draw(data, options.groups, options.queries, options.seed), encoder.tokenizer, directory)
    if not (directory / "states.npy").exists():
        write_states(encoder, directory)
    if not (directory / "teacher.npy").exists():
        write_teacher(encoder.config.encoder, encoder.tokenizer, base, directory)


def write_entries(entries: list[Entry], tokenizer: TextTokenizer, directory: Path) -> None:
    """Write the entries and the ids of their tokens to a directory."""
    rows = tokenizer.tokenize([entry.text for entry in entries], _LENGTH)
    limits = [_LENGTH if entry.kind == PASSAGE else _QUERY_LENGTH for entry in entries]
    ids = [
        row.ids if len(row.ids) <= n else [*row.ids[: n - 1], row.ids[-1]] for row, n in zip(rows, limits, strict=True)
    ]
    directory.mkdir(exist_ok=True)
    np.save(directory / "starts.npy", np.concatenate([[0], np.cumsum([len(row) for row in ids])]))
    np.save(directory / "ids.npy", np.concatenate(ids).astype(np.int32))
    write_json(directory / "entries.json", [vars(entry) for entry in entries])
    log(f"Pool: {len(entries):,} texts, {sum(map(len, ids)):,} tokens")


def write_states(encoder: MilcoEncoder, directory: Path) -> None:
    """Write the states of the frozen layers."""
    starts, ids = (np.load(directory / f"{name}.npy") for name in ("starts", "ids"))
    rows = [ids[start:stop].tolist() for start, stop in itertools.pairwise(starts)]
    config = copy(encoder.config.encoder)
    config.num_hidden_layers = FROZEN
    lower = PackedEncoder(config, encoder.model.encoder.state_dict(), native_dtype())
    with atomic_file(directory / "states.npy") as handle:
        states = np.zeros((len(ids), config.hidden_size), np.float16)
        for numbers in _batches(rows):
            hidden = lower([rows[number] for number in numbers])
            place = 0
            for number in numbers:
                states[starts[number] : starts[number + 1]] = hidden[place : place + len(rows[number])].half().numpy()
                place += len(rows[number])
        np.save(handle, states)


def write_teacher(config: Any, tokenizer: TextTokenizer, base: Base, directory: Path) -> None:
    """Write the base's vectors of the texts, centered per language. Another spelling has that of the text itself."""
    entries = [Entry(**values) for values in json.loads((directory / "entries.json").read_text())]
    places = {piece: place for place, (piece, _) in enumerate(base.pieces)}
    config = copy(config)
    config.num_hidden_layers = base.sizes["layers"]
    state = to_xlm_r(base.state(), [places[piece] for piece in tokenizer.pieces])
    dense = PackedEncoder(config, state, native_dtype())
    own = [number for number, entry in enumerate(entries) if entry.spelling_of is None]
    kinds = [(_PASSAGE if e.kind == PASSAGE and e.source != PARALLEL_SOURCE else _QUERY, e.language) for e in entries]
    rows = [row.ids for row in tokenizer.tokenize([kinds[n][0] + entries[n].text for n in own], _LENGTH)]
    vectors = np.zeros((len(entries), config.hidden_size), np.float32)
    for numbers in _batches(rows):
        pooled = pool_packed(dense([rows[n] for n in numbers]), [len(rows[n]) for n in numbers], "mean")
        vectors[[own[n] for n in numbers]] = functional.normalize(pooled, dim=1).numpy()
    mean = vectors[own].mean(axis=0)
    for kind in {kinds[number] for number in own}:
        same = [number for number in own if kinds[number] == kind]
        vectors[same] -= (vectors[same].sum(axis=0) + _PRIOR * mean) / (len(same) + _PRIOR)
    for number, entry in enumerate(entries):
        if entry.spelling_of is not None:
            vectors[number] = vectors[entry.spelling_of]
    with atomic_file(directory / "teacher.npy") as handle:
        np.save(handle, functional.normalize(torch.from_numpy(vectors), dim=1).numpy())


def _batches(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the numbers of the rows in batches of similar length."""
    found: list[list[int]] = []
    tokens = _TOKENS
    for number in sorted(range(len(rows)), key=lambda one: len(rows[one])):
        if tokens + len(rows[number]) > _TOKENS:
            found.append([])
            tokens = 0
        found[-1].append(number)
        tokens += len(rows[number])
    return found
