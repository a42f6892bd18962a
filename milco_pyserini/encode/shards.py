"""A corpus into a vector store, part by part: any order, any number of processes, killed and started again.

What a part holds depends on the corpus and the plan alone (design: vector store). Each finished part leaves a
small record beside it; when every part has one, the records become the manifest and the store is finished.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator

from milco_pyserini.console import Progress, counted, say
from milco_pyserini.corpora import Document, Query
from milco_pyserini.corpora.collection import TextDigest
from milco_pyserini.encode.parts import Engine, Job, PartFile, Work, encode_parts
from milco_pyserini.encode.threads import behind, pool
from milco_pyserini.encode.writer import PartRecord, StoreWriter
from milco_pyserini.errors import MilcoError


def encode_corpus(
    records: Iterable[Document | Query],
    total: int,
    writer: StoreWriter,
    work: Work,
    part_size: int,
    shard: int,
    shards: int,
    engine: Engine | None = None,
) -> bool:
    """Write every part of this shard that is not there yet; returns whether the whole store is finished.

    total: the number of records. shard, shards: part k belongs to shard k mod shards. engine: what encodes the parts,
    this process by default. Raises MilcoError, with what was written taken back, if the records are not those of the
    writer's plan (its corpus_hash).
    """
    parts = -(-total // part_size)
    mine = range(shard, parts, shards)
    before = [record for number in mine if (record := writer.done(number))]
    unit = "topics" if work.topics else "documents"
    progress = Progress(unit, _count(mine, parts, part_size, total), sum(record.texts for record in before))
    if before:
        say(f"{writer.path}: {len(before):,} of {counted(len(mine), 'part')} whole, going on from there")
    digest, written = TextDigest(), []
    jobs = _jobs(_parts(_counted(records, digest), part_size), mine, writer)
    reported: dict[int, tuple[int, int]] = {}

    def count(number: int, texts: int, tokens: int) -> None:
        before = reported.get(number, (0, 0))
        reported[number] = before[0] + texts, before[1] + tokens
        progress.add(texts, tokens)

    encoded = engine(jobs, count) if engine else encode_parts(jobs, work, count)

    def write(part: PartFile) -> tuple[PartRecord, int, int]:
        written.append(part.number)
        return _write(writer, part, work.ending), part.number, part.tokens

    with contextlib.closing(encoded), pool(patient=True) as threads:
        for record, number, tokens in behind(encoded, write, threads):
            terms = {f"{view} terms": float(record.terms[view]) for view in work.counted}
            progress.average(record.texts, **terms)
            # A part that was begun twice, after a worker's death, counts once.
            texts_before, tokens_before = reported.pop(number, (0, 0))
            progress.add(record.texts - texts_before, tokens - tokens_before)
    if digest.hexdigest() != writer.plan["corpus_hash"]:
        writer.forget(written)
        raise MilcoError(
            f"{writer.plan['corpus']} has changed while it was encoded: what was written of it is taken back; "
            "run the same command again when it stays as it is"
        )
    progress.close(str(writer.path))
    return writer.finish(parts, work.counted, work.vocabulary)


def _jobs(parts: Iterable[list[Document | Query]], mine: range, writer: StoreWriter) -> Iterator[Job]:
    """The parts that are to be encoded; all the records are read, for the digest."""
    for number, part in enumerate(parts):
        if number in mine and writer.done(number) is None:
            yield number, part


def _write(writer: StoreWriter, part: PartFile, ending: str) -> PartRecord:
    # Another process with the same shard may have been sooner.
    record = writer.done(part.number)
    if record is None:
        record = writer.write(part.number, ending, part.write, **part.counts)
    return record


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
