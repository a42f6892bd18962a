"""Endless, reproducible streams of training examples: sentence pairs, and queries with a group of passages."""

import itertools
import random
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.corpora.bitext import BitextPair, BitextSource
from milco_pyserini.corpora.pair_index import BLOCK
from milco_pyserini.errors import MilcoError, shown, unknown_name
from milco_pyserini.options import validate_number
from milco_pyserini.train.data.retrieval import RetrievalExample, RetrievalSource

_CONCATENATED = (2, 4, 8)
# Examples of a block where a stream is read one by one.
_BLOCK = 256
# Rounds of a permutation's network, and the constant of its multiplicative hash (2 ** 64 / the golden ratio).
_ROUNDS, _GOLDEN = 6, 0x9E3779B97F4A7C15
# Examples among which the sources of a BitextStream are shuffled; each has its share of them, to one example.
_CHUNK = 16_384
# Stands for all collections without a weight: no path and no collection has this name.
_REST = ""
_MINE_HINT = "Mine them with milco train mine."
_SCORE_HINT = "Add them with milco train score."


class ExampleStream(ABC):
    """An endless stream of training examples, identical every time it is read from the start."""

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """Yield examples forever."""

    def blocks(self, first: int, size: int, share: slice) -> Iterator[list]:
        """Yield a share of each block of consecutive examples, forever.

        Args:
            first: number of the example at which the first block begins.
            size: examples of a block.
            share: those of a block that are returned; the others need not be read.
        """
        examples = itertools.islice(self, first, None)
        while True:
            yield list(itertools.islice(examples, size))[share]


@dataclass(eq=False)
class BitextStream(ExampleStream):
    """An endless stream of pairs from many sources, which can be read from any example on.

    A language has a share proportional to n ** (1 / temperature), n being its number of pairs, and its sources in
    proportion to their sizes. Where collections have weights, a collection has its share first. The shares hold to one
    example per source among every 16,384 examples, which are shuffled. Each pair of a source comes once before any
    comes twice, in an order of random access: neither neighbors in a file nor sources in the same order, such as the
    translations of mmarco, meet in a batch more often than by chance.

    Args:
        sources: at least one. Each is asked for its size, which reads files once and finds broken lines.
        temperature: at least 1; 1 samples languages by size, more makes rare ones more frequent.
        seed: of all draws.
        concatenate: share of examples, 0 to 1, that join 2, 4 or 8 pairs of one source with spaces.
        weights: shares of collections (names as given to open_bitext()), above 0. Collections without one share the
            rest of 1; if all have one, only the proportions count.

    Raises:
        MilcoError: a value is out of range, a weight's name is unknown, or a source is broken.
    """

    sources: Sequence[BitextSource]
    temperature: float
    seed: int
    concatenate: float = 0.0
    weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.sources:
            raise MilcoError("no bitext to train on: name at least one source in the languages requested")
        validate_number("temperature", self.temperature, minimum=1)
        validate_number("concatenate", self.concatenate, minimum=0, maximum=1)
        self.sizes = [source.index.pairs for source in self.sources]
        self.probabilities = source_probabilities(self.sources, self.sizes, self.temperature, self.weights)
        # Random phase of each source, in units of its sampling interval.
        draw = random.Random(f"{self.seed}")
        self._phases = np.array([draw.random() for _ in self.sources])

    def __iter__(self) -> Iterator[BitextPair]:
        return itertools.chain.from_iterable(self.blocks(0, _BLOCK, slice(None)))

    def blocks(self, first: int, size: int, share: slice) -> Iterator[list[BitextPair]]:
        readers = [
            ShuffledPairs(source, size, f"{self.seed} {number}")
            for number, (source, size) in enumerate(zip(self.sources, self.sizes, strict=True))
        ]
        drawn = self._drawn(first)
        while True:
            block = list(itertools.islice(drawn, size))
            yield [self._example(readers[source], number) for source, number in block[share]]

    def _drawn(self, first: int) -> Iterator[tuple[int, int]]:
        """Yield the source of each example from the first-th on, and the example's number in that source."""
        most = (first + len(self.sources)) // _CHUNK + 2
        chunk = bisect_right(range(most), first, key=lambda chunk: int(self._before(chunk).sum())) - 1
        begun = self._before(chunk)
        skipped = first - int(begun.sum())
        while True:
            ended = self._before(chunk + 1)
            sources = np.repeat(np.arange(len(begun)), ended - begun)
            sources = np.random.default_rng((self.seed, chunk)).permutation(sources)
            numbers = np.empty_like(sources)
            ranges = [np.arange(*bounds) for bounds in zip(begun.tolist(), ended.tolist(), strict=True)]
            numbers[np.argsort(sources, kind="stable")] = np.concatenate(ranges)
            yield from zip(sources[skipped:].tolist(), numbers[skipped:].tolist(), strict=True)
            chunk, begun, skipped = chunk + 1, ended, 0

    def _before(self, chunk: int) -> NDArray[np.int64]:
        """Return the number of examples of each source before a chunk."""
        return np.ceil(chunk * _CHUNK * np.array(self.probabilities) - self._phases).astype(np.int64)

    def _example(self, reader: "ShuffledPairs", number: int) -> BitextPair:
        pairs = [reader.pair(place) for place in range(self._pairs_before(number), self._pairs_before(number + 1))]
        if len(pairs) == 1:
            return pairs[0]
        languages, texts, english = zip(*pairs, strict=True)
        return BitextPair(languages[0], " ".join(texts), " ".join(english))

    def _pairs_before(self, number: int) -> int:
        """Return the pairs of a source in its examples before this one; joined ones have 2, 4, 8, 2, ... pairs."""
        rounds, rest = divmod(int(number * self.concatenate), len(_CONCATENATED))
        further = [size - 1 for size in _CONCATENATED]
        return number + rounds * sum(further) + sum(further[:rest])


@dataclass(eq=False)
class ShuffledPairs:
    """The pairs of a source in random order, each once in a pass. size: number of pairs. seed: of the order."""

    source: BitextSource
    size: int
    seed: str
    _turn: int = -1

    def pair(self, place: int) -> BitextPair:
        """Return the pair at a place of the endless sequence of passes."""
        turn, within = divmod(place, self.size)
        if turn != self._turn:
            draw = random.Random(f"{self.seed} {turn}")
            self._turn, self._keys = turn, [draw.getrandbits(64) for _ in range(_ROUNDS)]
        block, row = divmod(permuted(within, self.size, self._keys), BLOCK)
        return self.source.parse(self.source.rows(block)[row])


def permuted(place: int, size: int, keys: Sequence[int]) -> int:
    """Return the number at a place of a random permutation of 0 to size - 1, without the permutation in memory.

    A Feistel network permutes the numbers of an even number of bits; it is repeated until the number is below size.
    """
    half = max(2, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = place >> half, place & mask
        for key in keys:
            left, right = right, left ^ ((right ^ key) * _GOLDEN >> 32 & mask)
        place = left << half | right
        if place < size:
            return place


def source_probabilities(
    sources: Sequence[BitextSource], sizes: Sequence[int], temperature: float, weights: Mapping[str, float]
) -> list[float]:
    """Return the probability of each source, summing to 1. Arguments and errors as in BitextStream."""
    collections = {source.collection for source in sources}
    for name, weight in weights.items():
        if name not in collections:
            hint = "A collection without pairs in the languages requested needs no weight."
            raise unknown_name("bitext among the weights", name, collections, hint)
        validate_number(f"weight of {name}", weight, above=0)
    total = sum(weights.values())
    unweighted = sorted(collections - weights.keys())
    if unweighted and total >= 1:
        raise MilcoError(
            f"the weights sum to {total:g}, which leaves nothing for {unweighted[0]}: lower them or weight every bitext"
        )
    shares = {**weights, _REST: 1 - total} if unweighted else {name: weights[name] / total for name in weights}
    groups = [source.collection if source.collection in shares else _REST for source in sources]
    pairs: dict[tuple[str, str], int] = defaultdict(int)
    for group, source, size in zip(groups, sources, sizes, strict=True):
        pairs[group, source.language] += size
    tempered = {key: count ** (1 / temperature) for key, count in pairs.items()}
    totals: dict[str, float] = defaultdict(float)
    for (group, _), value in tempered.items():
        totals[group] += value
    return [
        shares[group] * tempered[group, source.language] / totals[group] * size / pairs[group, source.language]
        for group, source, size in zip(groups, sources, sizes, strict=True)
    ]


class QueryGroup(NamedTuple):
    """A query with a positive passage, then negatives, and the teacher's score of each passage, or None."""

    language: str
    query: str
    passages: tuple[str, ...]
    scores: tuple[float, ...] | None


@dataclass(eq=False)
class RetrievalStream(ExampleStream):
    """An endless stream of groups, identical every time it is read from the start.

    A source is drawn with probability proportional to n ** (1 / temperature), n being its number of examples, and
    yields block groups in a row: if a trainer's batch size divides block, the passages of a batch are of one
    collection. A source is read in order through a shuffle buffer, and again from its start when it ends, so every
    example comes once in a pass. A group is one of the example's positives, drawn at random, and group_size - 1 of
    its negatives, each once before any is repeated.

    Args:
        sources: at least one; each is read once at construction.
        group_size: passages of a group.
        seed: of all draws.
        temperature: above 0; more than 1 makes small sources more frequent.
        buffer: groups of each source in memory.
        block: consecutive groups from one source.
        scored: require a teacher's scores.

    Raises:
        MilcoError: a value is out of range, a source is empty, or an example lacks negatives (group_size above 1) or
            scores.
    """

    sources: Sequence[RetrievalSource]
    group_size: int
    seed: int
    temperature: float = 1.0
    buffer: int = 10_000
    block: int = 64
    scored: bool = False

    def __post_init__(self) -> None:
        for name in ("group_size", "buffer", "block"):
            validate_number(name, getattr(self, name), minimum=1)
        validate_number("temperature", self.temperature, above=0)
        if not self.sources:
            raise MilcoError("no retrieval data to train on: name files, directories or collections")
        for source in self.sources:
            stats = source.stats
            if not stats.examples:
                raise MilcoError(f"{source.name} has no examples in the languages requested")
            if self.group_size > 1 and stats.without_negatives:
                raise MilcoError(f"{stats.without_negatives}: no negatives for groups of {self.group_size}", _MINE_HINT)
            if self.scored and stats.without_scores:
                raise MilcoError(f"{stats.without_scores}: no teacher scores to distill", _SCORE_HINT)
        self.sizes = [source.stats.examples for source in self.sources]
        self._weights = [size ** (1 / self.temperature) for size in self.sizes]

    def __iter__(self) -> Iterator[QueryGroup]:
        rng = random.Random(str(self.seed))
        streams = [self._groups(source, random.Random(f"{self.seed}:{n}")) for n, source in enumerate(self.sources)]
        while True:
            (stream,) = rng.choices(streams, self._weights)
            yield from itertools.islice(stream, self.block)

    def _groups(self, source: RetrievalSource, rng: random.Random) -> Iterator[QueryGroup]:
        # Groups are buffered rather than examples: some collections have a hundred passages for each query.
        held: list[QueryGroup] = []
        while True:
            for example in source.examples():
                # Collections on the hub are not read through before training.
                if self.scored and example.positive_scores is None:
                    raise MilcoError(f"{source.name}: query {shown(example.query)} has no teacher scores", _SCORE_HINT)
                held.append(draw_group(example, self.group_size, rng))
                if len(held) > self.buffer:
                    yield _pop_random(held, rng)
            while held:
                yield _pop_random(held, rng)


def draw_group(example: RetrievalExample, group_size: int, rng: random.Random) -> QueryGroup:
    """Draw a positive and group_size - 1 negatives. Raises MilcoError if negatives are needed and absent."""
    wanted, available = group_size - 1, len(example.negatives)
    if wanted and not available:
        raise MilcoError(f"query {shown(example.query)} has no negatives for groups of {group_size}", _MINE_HINT)
    first = rng.randrange(len(example.positives))
    rest: list[int] = []
    while len(rest) < wanted:
        rest += rng.sample(range(available), min(available, wanted - len(rest)))
    passages = (example.positives[first], *(example.negatives[place] for place in rest))
    if example.positive_scores is None or example.negative_scores is None:
        return QueryGroup(example.language, example.query, passages, None)
    scores = (example.positive_scores[first], *(example.negative_scores[place] for place in rest))
    return QueryGroup(example.language, example.query, passages, scores)


def _pop_random(held: list[QueryGroup], rng: random.Random) -> QueryGroup:
    place = rng.randrange(len(held))
    held[place], held[-1] = held[-1], held[place]
    return held.pop()
