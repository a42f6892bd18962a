"""Queries with their positive and negative passages, and the stream of groups that contrastive training (SCT) reads.

What a record may look like is said in retrieval_records.py.
"""

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

from torch.utils.data import IterableDataset

from milco_pyserini.corpora.records import BadLineError
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.io.lines import numbered_lines
from milco_pyserini.train.retrieval_records import UNDETERMINED, RetrievalExample, parse_line

_ENDINGS = (".jsonl", ".jsonl.gz")
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z0-9]{2,8})*")
_MINE = "find them with milco train mine"
_SCORE = "make them with milco train score"


class Group(NamedTuple):
    """What one training step takes of an example: a positive passage first, then negatives, and the scores of all."""

    language: str
    query: str
    passages: tuple[str, ...]
    scores: tuple[float, ...] | None


class Census(NamedTuple):
    """Number of examples, and where the first one without negatives or without scores stands ("file:line")."""

    examples: int
    without_negatives: str | None = None
    without_scores: str | None = None


class RetrievalSource(Protocol):
    """One collection of examples: the passages of one are candidates for the queries of another."""

    @property
    def name(self) -> str:
        """What errors call it."""

    @property
    def language(self) -> str:
        """Its language; "und" where it is mixed or not known."""

    def census(self) -> Census:
        """What a full pass over it found. Raises MilcoError at the first broken line."""

    def size(self) -> int:
        """Number of examples, by the same pass."""

    def examples(self) -> Iterator[RetrievalExample]:
        """Every example, from the start, in the same order every time."""


class RetrievalFile:
    """The examples of a JSONL file, plain or gzip.

    Their language is the one in the file's name (NAME.LANG.jsonl.gz), or else each line's own, or else "und".
    languages: if given, lines in other languages are passed over.
    """

    def __init__(self, path: Path, languages: Sequence[str] | None = None) -> None:
        self.path = path
        self.name = str(path)
        self.language = language_of(path)
        self._languages = None if languages is None else frozenset(languages)

    def numbered(self) -> Iterator[tuple[int, RetrievalExample]]:
        """Yield (line number, example). Raises MilcoError, with file and line, at the first broken line."""
        for number, line in numbered_lines(self.path):
            try:
                example = parse_line(line, self.language)
            except BadLineError as error:
                raise MilcoError(f"{self.path}:{number}: {error}") from None
            if self._languages is None or example.language in self._languages:
                yield number, example

    def examples(self) -> Iterator[RetrievalExample]:
        """Every example, from the start."""
        return (example for _, example in self.numbered())

    def census(self) -> Census:
        """Read everything once, before expensive work."""
        return self._census

    def size(self) -> int:
        """Number of examples, by the same pass."""
        return self._census.examples

    @cached_property
    def _census(self) -> Census:
        count, without_negatives, without_scores = 0, None, None
        for number, example in self.numbered():
            count += 1
            if not example.negatives and without_negatives is None:
                without_negatives = f"{self.path}:{number}"
            if example.positive_scores is None and without_scores is None:
                without_scores = f"{self.path}:{number}"
        return Census(count, without_negatives, without_scores)


class RetrievalStream(IterableDataset):
    """An endless stream of groups, the same one for the same arguments, every time from its start.

    A source is drawn with p ~ (its examples) ** (1 / temperature), and gives block groups in a row, so that the
    batches of a trainer whose batch size divides block hold passages of one collection. Each source is read in order
    through a shuffle buffer of so many groups, and from the start again when it ends: every example comes once in a
    pass. A group is one of the example's positives, drawn at random, and group_size - 1 of its negatives, each once
    before any comes again. scored: the groups' scores are needed.

    Making it reads every source once. Raises MilcoError for a source without examples; for an example that lacks
    negatives where group_size is above 1, or scores where scored is asked for.
    """

    def __init__(
        self,
        sources: Sequence[RetrievalSource],
        group_size: int,
        seed: int,
        temperature: float = 1.0,
        buffer: int = 10_000,
        block: int = 64,
        scored: bool = False,
    ) -> None:
        for name, value in (("group_size", group_size), ("buffer", buffer), ("block", block)):
            if value < 1:
                raise MilcoError(f"{name} {value}: must be at least 1")
        if not temperature > 0:
            raise MilcoError(f"temperature {temperature}: must be above 0")
        if not sources:
            raise MilcoError("no retrieval data to train on: name files, directories or collections")
        self.sources = list(sources)
        self.group_size = group_size
        self.seed = seed
        self.buffer = buffer
        self.block = block
        self.scored = scored
        self.sizes = [_check(source, group_size, scored) for source in sources]
        self._weights = [size ** (1 / temperature) for size in self.sizes]

    def __iter__(self) -> Iterator[Group]:
        draw = random.Random(str(self.seed))
        streams = [self._groups(source, random.Random(f"{self.seed}:{n}")) for n, source in enumerate(self.sources)]
        while True:
            (stream,) = draw.choices(streams, self._weights)
            yield from itertools.islice(stream, self.block)

    def _groups(self, source: RetrievalSource, rng: random.Random) -> Iterator[Group]:
        # Groups are held, not examples: some collections have a hundred passages for each query.
        held: list[Group] = []
        while True:
            for example in source.examples():
                held.append(self._group(source, example, rng))
                if len(held) > self.buffer:
                    yield _take(held, rng)
            while held:
                yield _take(held, rng)

    def _group(self, source: RetrievalSource, example: RetrievalExample, rng: random.Random) -> Group:
        # A collection of the hub has not been read through before.
        if self.scored and example.positive_scores is None:
            raise MilcoError(f"{source.name}: query {shown(example.query)} has no teacher scores: {_SCORE}")
        return draw_group(example, self.group_size, rng)


def open_retrieval(names: Sequence[str | Path], languages: Sequence[str] | None = None) -> list[RetrievalSource]:
    """The sources that the names stand for: files, directories searched for *.jsonl and *.jsonl.gz, hub collections.

    languages: leave the others out; codes as in file names. Raises MilcoError, with the nearest match, for a name that
    is none of these, and if nothing is left. Nothing is read or fetched yet.
    """
    from milco_pyserini.train.retrieval_hub import open_collection

    sources: list[RetrievalSource] = []
    for name in names:
        if Path(name).exists():
            sources += _open_path(Path(name), languages)
        else:
            sources += open_collection(str(name), languages)
    if not sources:
        wanted = f" in {', '.join(languages)}" if languages is not None else ""
        raise MilcoError(f"no retrieval data{wanted} in {', '.join(map(str, names)) or 'no names at all'}")
    return sources


def language_of(path: Path) -> str:
    """The language in a file's name: "ja" of jaquad.ja.jsonl.gz, "und" where there is none."""
    name = path.name.removesuffix(".gz").removesuffix(".jsonl")
    stem, _, code = name.rpartition(".")
    return code if stem and _LANGUAGE.fullmatch(code) else UNDETERMINED


def draw_group(example: RetrievalExample, group_size: int, rng: random.Random) -> Group:
    """A positive of the example and group_size - 1 negatives. Raises MilcoError if negatives are needed and absent."""
    wanted, there = group_size - 1, len(example.negatives)
    if wanted and not there:
        raise MilcoError(f"query {shown(example.query)} has no negatives, groups of {group_size} need some: {_MINE}")
    first = rng.randrange(len(example.positives))
    rest = [place for _ in range(wanted // there) for place in rng.sample(range(there), there)] if wanted else []
    rest += rng.sample(range(there), wanted - len(rest)) if wanted else []
    passages = (example.positives[first], *(example.negatives[place] for place in rest))
    if example.positive_scores is None or example.negative_scores is None:
        return Group(example.language, example.query, passages, None)
    scores = (example.positive_scores[first], *(example.negative_scores[place] for place in rest))
    return Group(example.language, example.query, passages, scores)


def _check(source: RetrievalSource, group_size: int, scored: bool) -> int:
    census = source.census()
    if not census.examples:
        raise MilcoError(f"{source.name} holds no example, or none in the languages asked for")
    if group_size > 1 and census.without_negatives:
        raise MilcoError(f"{census.without_negatives}: no negatives, groups of {group_size} need some: {_MINE}")
    if scored and census.without_scores:
        raise MilcoError(f"{census.without_scores}: no teacher scores, distillation needs them: {_SCORE}")
    return census.examples


def _take(held: list[Group], rng: random.Random) -> Group:
    place = rng.randrange(len(held))
    held[place], held[-1] = held[-1], held[place]
    return held.pop()


def _open_path(path: Path, languages: Sequence[str] | None) -> list[RetrievalSource]:
    files = [path]
    if path.is_dir():
        files = [file for file in sorted(path.rglob("*")) if file.name.endswith(_ENDINGS) and file.name[0] != "."]
        if not files:
            raise MilcoError(f"no file in {path} ends in {' or '.join(_ENDINGS)}")
    wanted = None if languages is None else {*languages, UNDETERMINED}
    return [RetrievalFile(file, languages) for file in files if wanted is None or language_of(file) in wanted]
