"""Texts in many languages at once, for contrast across languages: sentence pairs that share their English side."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.corpora.bitext import BitextSource
from milco_pyserini.errors import Message, ParameterError
from milco_pyserini.options import validate_number
from milco_pyserini.train.data.streams import ExampleStream, QueryGroup

ENGLISH = "en"
# Neighbors on each side that a joined text has at most.
_NEIGHBORS = 3


class Translations(NamedTuple):
    """A text in several languages: texts[i] is in languages[i], and english[i] is its translation.

    joined[i]: it has neighbors, so it is not a query.
    """

    languages: tuple[str, ...]
    texts: tuple[str, ...]
    joined: tuple[bool, ...]
    english: tuple[str, ...]


@dataclass
class ParallelCollection:
    """Sentence pairs joined by their English sides, in memory and in the order of the files.

    name: of the collection. rows: the texts of each English side, itself included, by language. places: numbers of the
    rows that have a text in each language. digest: of the pairs.
    """

    name: str
    rows: list[dict[str, list[str]]] = field(default_factory=list)
    places: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    digest: str = ""

    @classmethod
    def join(cls, name: str, sources: Sequence[BitextSource]) -> "ParallelCollection":
        """Read all pairs. Raises MilcoError at a broken line, and if there are fewer than two English sides."""
        rows: dict[str, dict[str, list[str]]] = {}
        digest = blake2b(digest_size=16)
        for source in sources:
            for pair in source.pairs():
                digest.update("\t".join(pair).encode())
                rows.setdefault(pair.english, {ENGLISH: [pair.english]}).setdefault(pair.language, []).append(pair.text)
        if len(rows) < 2:
            raise ParameterError("parallel", name, f"{len(rows)} English sentences, but contrast needs at least 2")
        by_language: dict[str, list[int]] = {}
        for number, row in enumerate(rows.values()):
            for language in row.keys() - {ENGLISH}:
                by_language.setdefault(language, []).append(number)
        if not by_language:
            raise ParameterError("parallel", name, "every sentence is English, but contrast needs another language")
        places = {language: np.array(numbers) for language, numbers in sorted(by_language.items())}
        return cls(name, list(rows.values()), places, digest.hexdigest())


def least_sentences(block: int, concatenate: float) -> int:
    """Return the English sentences that a collection needs for a ParallelStream."""
    return 2 * block * (_reach(concatenate) + 1)


def _reach(concatenate: float) -> int:
    # Neighbors are reserved for a joined text, so a short collection has room for few groups.
    return 2 * _NEIGHBORS if concatenate else 0


@dataclass(eq=False)
class ParallelStream(ExampleStream):
    """An endless stream of Translations, identical every time it is read from the start.

    A collection is drawn by its share and yields block groups in a row, no two of which share a sentence. For each, a
    language is drawn with probability proportional to n ** (1 / temperature), n being its number of sentences, then one
    of these sentences, with a text in that language and in others that it has.

    Args:
        collections: at least one.
        shares: of the collections, above 0; only their proportions count. None is the mean of the others.
        translations: languages of a group, at most.
        seed: of all draws.
        temperature: at least 1.
        concatenate: share of texts, 0 to 1, that are joined with up to three sentences before and after them, as a
            passage is.
        block: consecutive groups from one collection.

    Raises:
        MilcoError: a value is out of range, or a collection has fewer than block sentences.
    """

    collections: Sequence[ParallelCollection]
    shares: Mapping[str, float | None]
    translations: int
    seed: int
    temperature: float = 1.0
    concatenate: float = 0.0
    block: int = 64

    def __post_init__(self) -> None:
        validate_number("translations", self.translations, minimum=2)
        validate_number("temperature", self.temperature, minimum=1)
        validate_number("concatenate", self.concatenate, minimum=0, maximum=1)
        self._reach = _reach(self.concatenate)
        for collection in self.collections:
            if len(collection.rows) < least_sentences(self.block, self.concatenate):
                raise ParameterError(
                    "parallel",
                    collection.name,
                    f"{len(collection.rows):,} English sentences are too few for batches of {self.block} groups; "
                    + Message("lower {batch_size}"),
                )
        given = [share for share in self.shares.values() if share is not None]
        mean = sum(given) / len(given) if given else 1.0
        self._weights = [self.shares[collection.name] or mean for collection in self.collections]
        self.size = sum(len(collection.rows) for collection in self.collections)

    def __iter__(self) -> Iterator[Translations]:
        rng = random.Random(f"{self.seed}")
        languages = [
            (list(collection.places), [len(found) ** (1 / self.temperature) for found in collection.places.values()])
            for collection in self.collections
        ]
        while True:
            (place,) = rng.choices(range(len(self.collections)), self._weights)
            collection, taken = self.collections[place], list[int]()
            while len(taken) < self.block:
                (language,) = rng.choices(*languages[place])
                number = int(rng.choice(collection.places[language]))
                if all(abs(number - other) > self._reach for other in taken):
                    taken.append(number)
                    yield self._draw(collection, number, language, rng)

    def _draw(self, collection: ParallelCollection, number: int, first: str, rng: random.Random) -> Translations:
        others = sorted(collection.rows[number].keys() - {first})
        languages = (first, *rng.sample(others, min(len(others), self.translations - 1)))
        texts: list[str] = []
        english: list[str] = []
        joined: list[bool] = []
        for language in languages:
            # A group has at least one query.
            joined.append(bool(texts) and rng.random() < self.concatenate)
            before, after = (rng.randint(0, _NEIGHBORS), rng.randint(0, _NEIGHBORS)) if joined[-1] else (0, 0)
            neighbors = collection.rows[max(0, number - before) : number + after + 1]
            rows = [row for row in neighbors if language in row]
            texts.append(" ".join(rng.choice(row[language]) for row in rows))
            english.append(" ".join(row[ENGLISH][0] for row in rows))
        return Translations(languages, tuple(texts), tuple(joined), tuple(english))


@dataclass(eq=False)
class MixedStream(ExampleStream):
    """An endless stream of blocks of examples, each from one of several streams.

    Args:
        streams: with their shares of the blocks.
        block: consecutive examples of a stream.
        seed: of all draws.
    """

    streams: Sequence[tuple[float, ExampleStream]]
    block: int
    seed: int

    def __iter__(self) -> Iterator[QueryGroup | Translations]:
        rng = random.Random(f"{self.seed} mixed")
        weights = [share for share, _ in self.streams]
        streams = [iter(stream) for _, stream in self.streams]
        while True:
            (stream,) = rng.choices(streams, weights)
            yield from islice(stream, self.block)
