"""An endless, reproducible stream of query groups: a positive passage and negatives, for contrastive training."""

import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from torch.utils.data import IterableDataset

from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.options import validate_number
from milco_pyserini.train.data import UNDETERMINED
from milco_pyserini.train.data.retrieval import RetrievalExample, RetrievalFile, RetrievalSource, file_language
from milco_pyserini.train.data.retrieval_hub import open_collection

_SUFFIXES = (".jsonl", ".jsonl.gz")
_MINE_HINT = "Mine them with milco train mine."
_SCORE_HINT = "Add them with milco train score."


class QueryGroup(NamedTuple):
    """A query with a positive passage, then negatives, and the teacher's score of each passage, or None."""

    language: str
    query: str
    passages: tuple[str, ...]
    scores: tuple[float, ...] | None


def open_retrieval(names: Sequence[str | Path], languages: Sequence[str] | None = None) -> list[RetrievalSource]:
    """Resolve names to sources: JSONL files, directories of them at any depth, collections on the hub.

    Nothing is read or downloaded yet. Raises MilcoError for an unknown name, and if nothing remains.

    Args:
        names: paths, or names of retrieval_hub.COLLECTIONS.
        languages: keep only these.
    """
    sources: list[RetrievalSource] = []
    for name in names:
        path = Path(name)
        if not path.exists():
            sources += open_collection(str(name), languages)
            continue
        files = [path]
        if path.is_dir():
            files = [file for file in sorted(path.rglob("*")) if file.name.endswith(_SUFFIXES) and file.name[0] != "."]
            if not files:
                raise MilcoError(f"{path} has no {' or '.join(_SUFFIXES)} files")
        if languages is not None:
            files = [file for file in files if file_language(file) in {*languages, UNDETERMINED}]
        sources += [RetrievalFile(file, languages) for file in files]
    if not sources:
        wanted = f" in {', '.join(languages)}" if languages is not None else ""
        raise MilcoError(f"no retrieval data{wanted} in {', '.join(map(str, names)) or 'an empty list of names'}")
    return sources


class RetrievalStream(IterableDataset):
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
            validate_number(name, value, minimum=1)
        validate_number("temperature", temperature, above=0)
        if not sources:
            raise MilcoError("no retrieval data to train on: name files, directories or collections")
        self.sources = list(sources)
        self.group_size = group_size
        self.seed = seed
        self.buffer = buffer
        self.block = block
        self.scored = scored
        self.sizes: list[int] = []
        for source in self.sources:
            stats = source.stats()
            if not stats.examples:
                raise MilcoError(f"{source.name} has no examples in the languages requested")
            if group_size > 1 and stats.without_negatives:
                raise MilcoError(f"{stats.without_negatives}: no negatives for groups of {group_size}", _MINE_HINT)
            if scored and stats.without_scores:
                raise MilcoError(f"{stats.without_scores}: no teacher scores to distill", _SCORE_HINT)
            self.sizes.append(stats.examples)
        self._weights = [size ** (1 / temperature) for size in self.sizes]

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
