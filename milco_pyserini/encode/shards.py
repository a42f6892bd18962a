"""A corpus into a vector store, part by part: any order, any number of processes, killed and started again.

What a part holds depends on the corpus and the plan alone (design: vector store). Each finished part leaves a
small record beside it; when every part has one, the records become the manifest and the store is finished.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from milco_pyserini.console import Progress, counted, say
from milco_pyserini.corpora import Document, Query
from milco_pyserini.corpora.collection import TextDigest
from milco_pyserini.corpora.records import encoded_text
from milco_pyserini.encode.writer import PartRecord, StoreWriter
from milco_pyserini.errors import MilcoError
from milco_pyserini.sparse import SparseBatch
from milco_pyserini.sparse.pruning import Pruning
from milco_pyserini.sparse.store import write_jsonl, write_parquet

if TYPE_CHECKING:
    from milco_pyserini.encode.encoder import MilcoEncoder

PASSAGE_DELIMITER = "#"


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
class Part:
    """The vectors of one part and what is worth counting."""

    ids: list[str]
    batch: SparseBatch
    contents: list[str] | None
    tokens: int
    truncated: int


def encode_part(records: Sequence[Document | Query], work: Work) -> Part:
    """The vectors of consecutive documents, or of their passages as ID#0, ID#1, ..."""
    texts = [encoded_text(record) for record in records]
    spelled = [text.lower() for text in texts] if work.lowercase else texts
    tokenizer, truncated = work.encoder.tokenizer, 0
    if work.split_passages:
        passages = tokenizer.passages(spelled, work.max_length)
        ids = [
            f"{record.id}{PASSAGE_DELIMITER}{number}"
            for record, rows in zip(records, passages, strict=True)
            for number in range(len(rows))
        ]
        rows = list(itertools.chain.from_iterable(passages))
    else:
        tokens = tokenizer.tokenize(spelled, work.max_length)
        ids, rows = [record.id for record in records], [row.ids for row in tokens]
        truncated = sum(row.truncated for row in tokens)
    batch = work.encoder.encode_rows(rows, work.views, work.batch_size)
    for rule in work.pruning:
        batch = rule(batch)
    return Part(ids, batch, texts if work.keep_contents else None, sum(map(len, rows)), truncated)


def encode_corpus(
    records: Iterable[Document | Query],
    total: int,
    writer: StoreWriter,
    work: Work,
    part_size: int,
    shard: int,
    shards: int,
) -> bool:
    """Write every part of this shard that is not there yet; returns whether the whole store is finished.

    total: the number of records. shard, shards: part k belongs to shard k mod shards. Raises MilcoError, with what
    was written taken back, if the records are not those of the writer's plan (its corpus_hash).
    """
    parts = -(-total // part_size)
    mine = range(shard, parts, shards)
    before = [record for number in mine if (record := writer.done(number))]
    unit = "topics" if work.keep_contents else "documents"
    progress = Progress(unit, _count(mine, parts, part_size, total), sum(record.texts for record in before))
    if before:
        say(f"{writer.path}: {len(before):,} of {counted(len(mine), 'part')} whole, going on from there")
    digest, written = TextDigest(), []
    for number, part in enumerate(_parts(_counted(records, digest), part_size)):
        if number in mine and writer.done(number) is None:
            written.append(number)
            record, tokens = _write(writer, number, encode_part(part, work), work, len(part))
            terms = {f"{view} terms": float(record.terms[view]) for view in work.views}
            progress.add(record.texts, tokens=tokens, **terms)
    if digest.hexdigest() != writer.plan["corpus_hash"]:
        writer.forget(written)
        raise MilcoError(
            f"{writer.plan['corpus']} has changed while it was encoded: what was written of it is taken back; "
            "run the same command again when it stays as it is"
        )
    progress.close(str(writer.path))
    return writer.finish(parts, work.views, work.encoder.vocabulary)


def _write(writer: StoreWriter, number: int, part: Part, work: Work, texts: int) -> tuple[PartRecord, int]:
    """Write one part; returns its record and the number of tokens read."""

    def write(handle: IO[bytes]) -> None:
        if work.format == "parquet":
            write_parquet(handle, part.ids, part.batch)
        else:
            write_jsonl(handle, part.ids, part.batch, work.encoder.vocabulary, work.scale, part.contents)

    record = writer.done(number)  # Another process with the same shard may have been sooner.
    if record is None:
        record = writer.write(
            number,
            work.format,
            write,
            documents=len(part.ids),
            texts=texts,
            terms={view: int(part.batch.view(view).indptr[-1]) for view in work.views},
            empty=int((part.batch.lengths() == 0).sum()),
            truncated=part.truncated,
        )
    return record, part.tokens


def _counted(records: Iterable[Document | Query], digest: TextDigest) -> Iterator[Document | Query]:
    for record in records:
        digest.add(record)
        yield record


def _parts(records: Iterable[Document | Query], size: int) -> Iterator[list[Document | Query]]:
    stream = iter(records)
    while part := list(itertools.islice(stream, size)):
        yield part


def _count(mine: range, parts: int, size: int, total: int) -> int:
    last_is_mine = parts - 1 in mine
    return len(mine) * size - (parts * size - total if last_is_mine else 0)
