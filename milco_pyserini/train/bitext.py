"""Bitext for sparse alignment pretraining: names to sources of sentence pairs, and an endless mixture of sources."""

import itertools
import math
import random
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torch.utils.data import IterableDataset

from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.train.bitext_files import BitextPair, BitextSource, FileSource, bitext_files
from milco_pyserini.train.bitext_hub import COLLECTIONS, hub_sources

__all__ = ["BitextPair", "BitextSource", "BitextStream", "open_bitext"]

_PASSAGES = (2, 4, 8)
# A rare source has some disorder too.
_LEAST_BUFFER = 256
# The collections without a weight: no path and no collection has this name.
_REST = ""


def open_bitext(
    names: Sequence[str | Path], languages: Sequence[str] | None = None, ids: bool = False
) -> list[BitextSource]:
    """The sources that names stand for, one for each language and file, in the order of names.

    names: files and directories of bitext (bitext_files), and collections of the paper (COLLECTIONS); a path that
    exists comes first. languages: take only these. ids: lines of a file may begin with an id, a column of its own.
    Raises MilcoError if a name or a language is unknown, a name stands there twice, a file does not tell its language
    or the hub cannot be reached. No pair is read or fetched.
    """
    given = [str(name) for name in names]
    for name, count in zip(given, map(given.count, given), strict=True):
        if count > 1:
            raise MilcoError(
                f"bitext {name} is given {count} times: once is enough, and weights say how often it is read"
            )
    sources = [source for name in given for source in _sources(name, ids)]
    if languages is None:
        return sources
    known = {source.language for source in sources}
    for language in languages:
        if language not in known:
            raise unknown_name("language", language, known)
    return [source for source in sources if source.language in languages]


def _sources(name: str, ids: bool) -> list[BitextSource]:
    path = Path(name)
    if name and path.exists():
        return [FileSource(file, name, ids) for file in bitext_files(path)]
    if name in COLLECTIONS:
        return [*hub_sources(name)]
    if "/" in name or path.suffix:
        raise MilcoError(f"{name}: no such file or directory of bitext")
    raise unknown_name("bitext", name, COLLECTIONS, "A file or a directory is bitext too.")


class BitextStream(IterableDataset):
    """An endless stream of pairs from many sources, the same whenever it is read from the start.

    A language is drawn with probability in proportion to n ** (1 / temperature), n being its number of pairs, and
    one of its sources in proportion to the source's. Where collections have weights, one is drawn first, and the
    language within it. A source is read in its own order through a shuffle buffer: each of its pairs comes once
    before any comes twice.
    """

    def __init__(
        self,
        sources: Sequence[BitextSource],
        temperature: float,
        seed: int,
        buffer: int = 100_000,
        concatenate: float = 0.0,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Ask every source for its size, which for files is a checking pass.

        temperature: >= 1; 1 takes languages as they are, more makes rare ones more frequent. buffer: pairs held in
        memory, shared out among the sources in proportion to how often they are drawn. concatenate: the share, 0
        to 1, of examples that are 2, 4 or 8 draws from one source, joined by spaces into a passage. weights: the
        shares of collections (names as given to open_bitext) in the draws, > 0; those without one share what is
        left of 1, and if none is without, only the proportions count. Raises MilcoError if a value is out of its
        range, a weight's name is unknown, or a source is broken.
        """
        if not sources:
            raise MilcoError("no bitext is left to train on: name at least one source that has the languages")
        _check("temperature", temperature, temperature >= 1, "1 or more")
        _check("buffer", buffer, buffer >= 1, "1 or more")
        _check("concatenate", concatenate, 0 <= concatenate <= 1, "between 0 and 1")
        self.sources = list(sources)
        self.seed = seed
        self.concatenate = concatenate
        self.sizes = [source.size() for source in self.sources]
        self.probabilities = source_probabilities(self.sources, self.sizes, temperature, weights)
        self._buffers = [
            min(size, max(_LEAST_BUFFER, math.ceil(buffer * probability)))
            for size, probability in zip(self.sizes, self.probabilities, strict=True)
        ]

    def __iter__(self) -> Iterator[BitextPair]:
        draws = random.Random(f"{self.seed}")
        streams = [
            _shuffled(source, size, random.Random(f"{self.seed} {number}"))
            for number, (source, size) in enumerate(zip(self.sources, self._buffers, strict=True))
        ]
        bounds = list(itertools.accumulate(self.probabilities))
        last = len(streams) - 1
        while True:
            stream = streams[min(bisect(bounds, draws.random() * bounds[-1]), last)]
            if draws.random() < self.concatenate:
                yield _joined(list(itertools.islice(stream, draws.choice(_PASSAGES))))
            else:
                yield next(stream)


def source_probabilities(
    sources: Sequence[BitextSource], sizes: Sequence[int], temperature: float, weights: Mapping[str, float] | None
) -> list[float]:
    """How probable each source is in a draw; they add up to 1. Arguments and errors as BitextStream's."""
    shares = _shares({source.collection for source in sources}, weights or {})
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


def _shares(collections: set[str], weights: Mapping[str, float]) -> dict[str, float]:
    """The share of each collection that has a weight, and of the _REST; they add up to 1."""
    for name, weight in weights.items():
        if name not in collections:
            hint = "One that has no pairs in the languages asked for needs no weight."
            raise unknown_name("bitext among the weights", name, collections, hint)
        _check(f"the weight of {name}", weight, 0 < weight < math.inf, "more than 0")
    total = sum(weights.values())
    without = sorted(collections - weights.keys())
    if not without:
        return {name: weight / total for name, weight in weights.items()}
    if total >= 1:
        raise MilcoError(
            f"the weights add up to {total:g}, and {without[0]} has none: leave a rest, or give every bitext one"
        )
    return {**weights, _REST: 1 - total}


def _check(what: str, value: float, good: bool, limit: str) -> None:
    if not good:
        raise MilcoError(f"{what} is {value}: it must be {limit}")


def _shuffled(source: BitextSource, buffer: int, generator: random.Random) -> Iterator[BitextPair]:
    """The pairs of source for ever, each pass through a buffer of its own: no pair is lost between two passes."""
    draw = generator.random
    while True:
        pairs = source.pairs()
        held = list(itertools.islice(pairs, buffer))
        if not held:
            raise MilcoError(f"{source.name} holds no pairs")
        for pair in pairs:
            place = int(draw() * buffer)
            yield held[place]
            held[place] = pair
        generator.shuffle(held)
        yield from held


def _joined(pairs: list[BitextPair]) -> BitextPair:
    return BitextPair(
        pairs[0].language, " ".join(pair.text for pair in pairs), " ".join(pair.english for pair in pairs)
    )
