"""One part of a corpus, some thousand consecutive records, to the bytes of one file of a vector store.

What a part holds depends on its records and the Work alone, not on where or after which other part it is encoded.
"""

import io
import itertools
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Any

from milco_pyserini.console import Report
from milco_pyserini.corpora import Document, Query
from milco_pyserini.corpora.records import PASSAGE_DELIMITER, encoded_text
from milco_pyserini.encode.threads import ahead, behind, pool
from milco_pyserini.sparse import Vocabulary

# A part's number and its records.
Job = tuple[int, Sequence[Document | Query]]


@dataclass(frozen=True)
class Work:
    """How one text becomes one or more vectors, and how parts are written: what both kinds of store have in common.

    encoder: its tokenizer, name, dtype and encode_rows() are used here. topics: whether the texts are queries.
    """

    encoder: Any
    max_length: int
    lowercase: bool
    split_passages: bool
    batch_size: int
    topics: bool

    @property
    def ending(self) -> str:
        """What the parts' files end in."""
        raise NotImplementedError

    @property
    def counted(self) -> tuple[str, ...]:
        """The views whose terms are counted; none where vectors are not of terms."""
        raise NotImplementedError

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The terms of the vectors' columns; None where these are none."""
        raise NotImplementedError

    @property
    def described(self) -> dict[str, Any]:
        """What the manifest says of the vectors that the encoder alone decides."""
        raise NotImplementedError

    @property
    def loading(self) -> dict[str, Any]:
        """What load() needs, besides a name, a device and a dtype, for an encoder like this one."""
        raise NotImplementedError

    @staticmethod
    def load(name: str, device: str, dtype: str, **loading: Any) -> Any:
        """An encoder for work of this kind."""
        raise NotImplementedError

    def spelled(self, text: str) -> str:
        """A text as it is tokenised."""
        return text.lower() if self.lowercase else text

    def vectors(self, part: "Tokenised", report: Report) -> Any:
        """The vectors of tokenised texts. report: called for each batch."""
        raise NotImplementedError

    def write(self, handle: IO[bytes], part: "Tokenised", vectors: Any) -> dict[str, Any]:
        """Write a part's file. vectors: of its rows. Returns terms, of each view, and empty, how many say nothing."""
        raise NotImplementedError


@dataclass(frozen=True)
class PartFile:
    """The content of one part's file. counts: what its record tells of it. tokens: how many were encoded."""

    number: int
    content: bytes
    counts: dict[str, Any]
    tokens: int

    def write(self, handle: IO[bytes]) -> None:
        """Write the content."""
        handle.write(self.content)


Parts = Generator[PartFile, None, None]
# Takes a part's number, how many more of its texts are encoded, and their tokens, batch by batch.
PartReport = Callable[[int, int, int], None]
# What encodes parts: this process, others, or other machines. The order of what it yields is its own.
Engine = Callable[[Iterable[Job], PartReport], Parts]


@dataclass(frozen=True)
class Tokenised:
    """A part whose texts are token ids. texts: how many records it was; truncated: how many were too long."""

    number: int
    texts: int
    ids: list[str]
    rows: list[list[int]]
    contents: list[str] | None
    truncated: int


def encode_parts(
    jobs: Iterable[Job], work: Work, report: PartReport, deliver: Callable[[PartFile], None] | None = None
) -> Parts:
    """The jobs' parts in their order. Reading and tokenising go one part ahead of the network, writing one behind.

    deliver: called with each part as soon as there is one, in another thread; what is yielded comes a part later.
    """

    def made(each: tuple[Tokenised, Any]) -> PartFile:
        part = part_file(*each, work)
        if deliver is not None:
            deliver(part)
        return part

    with pool(patient=False) as threads:
        tokenised = ahead((tokenise(number, records, work) for number, records in jobs), threads)
        encoded = ((part, encode_part(part, work, report)) for part in tokenised)
        yield from behind(encoded, made, threads)


def tokenise(number: int, records: Sequence[Document | Query], work: Work) -> Tokenised:
    """Consecutive documents, or their passages as ID#0, ID#1, ..., as token ids."""
    texts = [encoded_text(record) for record in records]
    spelled = [work.spelled(text) for text in texts]
    tokenizer, truncated = work.encoder.tokenizer, 0
    if work.split_passages:
        passages = tokenizer.passages(spelled, work.max_length)
        ids = [
            f"{record.id}{PASSAGE_DELIMITER}{place}"
            for record, rows in zip(records, passages, strict=True)
            for place in range(len(rows))
        ]
        rows = list(itertools.chain.from_iterable(passages))
    else:
        tokens = tokenizer.tokenize(spelled, work.max_length)
        ids, rows = [record.id for record in records], [row.ids for row in tokens]
        truncated = sum(row.truncated for row in tokens)
    return Tokenised(number, len(texts), ids, rows, texts if work.topics else None, truncated)


def encode_part(part: Tokenised, work: Work, report: PartReport) -> Any:
    """The vectors of a part's rows. Of texts that are several rows each, report gets a share."""
    rows = texts = 0

    def count(more: int, tokens: int) -> None:
        nonlocal rows, texts
        rows += more
        before, texts = texts, part.texts * rows // len(part.rows)
        report(part.number, texts - before, tokens)

    return work.vectors(part, count)


def part_file(part: Tokenised, vectors: Any, work: Work) -> PartFile:
    """The file of a part. vectors: of its rows, as the encoder gave them."""
    handle = io.BytesIO()
    made = work.write(handle, part, vectors)
    counts = {"documents": len(part.ids), "texts": part.texts, "truncated": part.truncated, **made}
    return PartFile(part.number, handle.getvalue(), counts, sum(map(len, part.rows)))
