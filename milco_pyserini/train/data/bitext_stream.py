"""An endless, reproducible mixture of sentence pairs from many sources."""

import itertools
import math
import random
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from torch.utils.data import IterableDataset

from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.options import validate_number
from milco_pyserini.train.data.bitext import BitextFile, BitextPair, BitextSource, find_bitext_files
from milco_pyserini.train.data.bitext_hub import COLLECTIONS, hub_sources

_CONCATENATED = (2, 4, 8)
# A rarely drawn source is shuffled too.
_MIN_BUFFER = 256
# Stands for all collections without a weight: no path and no collection has this name.
_REST = ""


def open_bitext(
    names: Sequence[str | Path], languages: Sequence[str] | None = None, ids: bool = False
) -> list[BitextSource]:
    """Resolve names to sources, one for each language and file, in the order of the names. No pair is read yet.

    Args:
        names: files, directories, and the paper's collections by name (COLLECTIONS); an existing path comes first.
        languages: keep only these.
        ids: TSV lines may begin with an id column.

    Raises:
        MilcoError: a name or language is unknown, a name is given twice, the language of a file is unknown, or the
            hub cannot be reached.
    """
    given = [str(name) for name in names]
    sources: list[BitextSource] = []
    for name in given:
        if given.count(name) > 1:
            raise MilcoError(f"bitext {name} is given {given.count(name)} times: name it once; NAME=SHARE weights it")
        path = Path(name)
        if name and path.exists():
            sources += [BitextFile(file, name, ids) for file in find_bitext_files(path)]
        elif name in COLLECTIONS:
            sources += hub_sources(name)
        elif "/" in name or path.suffix:
            raise MilcoError(f"{name}: no such bitext file or directory")
        else:
            raise unknown_name("bitext", name, COLLECTIONS, "A file or directory is accepted too.")
    if languages is None:
        return sources
    known = {source.language for source in sources}
    for language in languages:
        if language not in known:
            raise unknown_name("language", language, known)
    return [source for source in sources if source.language in languages]


class BitextStream(IterableDataset):
    """An endless stream of pairs from many sources, identical every time it is read from the start.

    A language is drawn with probability proportional to n ** (1 / temperature), n being its number of pairs, then one
    of its sources in proportion to the source's size. Where collections have weights, a collection is drawn first. A
    source is read in order through a shuffle buffer: each of its pairs comes once before any comes twice.

    Args:
        sources: at least one. Each is asked for its size, which reads files once and finds broken lines.
        temperature: at least 1; 1 samples languages by size, more makes rare ones more frequent.
        seed: of all draws.
        buffer: pairs in memory, shared among the sources in proportion to their probability.
        concatenate: share of examples, 0 to 1, that join 2, 4 or 8 pairs of one source with spaces.
        weights: shares of collections (names as given to open_bitext()), above 0. Collections without one share the
            rest of 1; if all have one, only the proportions count.

    Raises:
        MilcoError: a value is out of range, a weight's name is unknown, or a source is broken.
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
        if not sources:
            raise MilcoError("no bitext to train on: name at least one source in the languages requested")
        validate_number("temperature", temperature, minimum=1)
        validate_number("buffer", buffer, minimum=1)
        validate_number("concatenate", concatenate, minimum=0, maximum=1)
        self.sources = list(sources)
        self.seed = seed
        self.concatenate = concatenate
        self.sizes = [source.size() for source in self.sources]
        self.probabilities = source_probabilities(self.sources, self.sizes, temperature, weights or {})
        self._buffers = [
            min(size, max(_MIN_BUFFER, math.ceil(buffer * probability)))
            for size, probability in zip(self.sizes, self.probabilities, strict=True)
        ]

    def __iter__(self) -> Iterator[BitextPair]:
        rng = random.Random(f"{self.seed}")
        streams = [
            shuffled_pairs(source, size, random.Random(f"{self.seed} {number}"))
            for number, (source, size) in enumerate(zip(self.sources, self._buffers, strict=True))
        ]
        bounds = list(itertools.accumulate(self.probabilities))
        last = len(streams) - 1
        while True:
            stream = streams[min(bisect(bounds, rng.random() * bounds[-1]), last)]
            if rng.random() < self.concatenate:
                languages, texts, english = zip(*itertools.islice(stream, rng.choice(_CONCATENATED)), strict=True)
                yield BitextPair(languages[0], " ".join(texts), " ".join(english))
            else:
                yield next(stream)


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


def shuffled_pairs(source: BitextSource, buffer: int, rng: random.Random) -> Iterator[BitextPair]:
    """Yield the pairs of a source forever, each pass through a shuffle buffer that is emptied at its end."""
    draw = rng.random
    while True:
        pairs = source.pairs()
        held = list(itertools.islice(pairs, buffer))
        if not held:
            raise MilcoError(f"{source.name} has no pairs")
        for pair in pairs:
            place = int(draw() * buffer)
            yield held[place]
            held[place] = pair
        rng.shuffle(held)
        yield from held
