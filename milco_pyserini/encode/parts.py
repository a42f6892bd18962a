"""One part of a corpus, some thousand consecutive records, to the bytes of one file of a vector store.

What a part holds depends on its records and the Work alone, not on where or after which other part it is encoded.
"""

import io
import itertools
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from milco_pyserini.corpora import Document, Query
from milco_pyserini.corpora.records import encoded_text
from milco_pyserini.encode.threads import ahead, behind, pool
from milco_pyserini.sparse import SparseBatch
from milco_pyserini.sparse.pruning import Pruning
from milco_pyserini.sparse.store import write_jsonl, write_parquet

if TYPE_CHECKING:
    from milco_pyserini.encode.encoder import MilcoEncoder

PASSAGE_DELIMITER = "#"
# A part's number and its records.
Job = tuple[int, Sequence[Document | Query]]


@dataclass(frozen=True)
class Work:
    """How one text becomes one or more vectors, and how parts are written."""

    encoder: "MilcoEncoder"
    max_length: int
    views: tuple[str, ...]
    lowercase: bool
    pruning: tuple[Pruning, ...]
    split_passages: bool
    batch_size: int
    scale: float
    format: str
    keep_contents: bool


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
# What encodes parts: this process, others, or other machines. The order of what it yields is its own.
Engine = Callable[[Iterable[Job]], Parts]


@dataclass(frozen=True)
class Tokenised:
    """A part whose texts are token ids. texts: how many records it was; truncated: how many were too long."""

    number: int
    texts: int
    ids: list[str]
    rows: list[list[int]]
    contents: list[str] | None
    truncated: int


def encode_parts(jobs: Iterable[Job], work: Work, deliver: Callable[[PartFile], None] | None = None) -> Parts:
    """The jobs' parts in their order. Reading and tokenising go one part ahead of the network, writing one behind.

    deliver: called with each part as soon as there is one, in another thread; what is yielded comes a part later.
    """

    def made(each: tuple[Tokenised, SparseBatch]) -> PartFile:
        part = part_file(*each, work)
        if deliver is not None:
            deliver(part)
        return part

    with pool(patient=False) as threads:
        tokenised = ahead((tokenise(number, records, work) for number, records in jobs), threads)
        encoded = ((part, work.encoder.encode_rows(part.rows, work.views, work.batch_size)) for part in tokenised)
        yield from behind(encoded, made, threads)


def tokenise(number: int, records: Sequence[Document | Query], work: Work) -> Tokenised:
    """Consecutive documents, or their passages as ID#0, ID#1, ..., as token ids."""
    texts = [encoded_text(record) for record in records]
    spelled = [text.lower() for text in texts] if work.lowercase else texts
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
    return Tokenised(number, len(texts), ids, rows, texts if work.keep_contents else None, truncated)


def part_file(part: Tokenised, batch: SparseBatch, work: Work) -> PartFile:
    """The file of a part. batch: the vectors of its rows, before pruning."""
    for rule in work.pruning:
        batch = rule(batch)
    handle = io.BytesIO()
    if work.format == "parquet":
        write_parquet(handle, part.ids, batch)
    else:
        write_jsonl(handle, part.ids, batch, work.encoder.vocabulary, work.scale, part.contents)
    counts = {
        "documents": len(part.ids),
        "texts": part.texts,
        "terms": {view: int(batch.view(view).indptr[-1]) for view in work.views},
        "empty": int((batch.lengths() == 0).sum()),
        "truncated": part.truncated,
    }
    return PartFile(part.number, handle.getvalue(), counts, sum(map(len, part.rows)))
