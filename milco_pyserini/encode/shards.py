"""A corpus into a vector store, part by part: any order, any number of processes, killed and started again.

What a part holds depends on the corpus and the plan alone (design: vector store). Each finished part leaves a
small record beside it; when every part has one, the records become the manifest and the store is finished.
"""

import hashlib
import itertools
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from milco_pyserini.console import Progress, say
from milco_pyserini.corpora import Document, Query
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.files import read_json, remove_partial, whole_file, write_json
from milco_pyserini.sparse import SparseBatch
from milco_pyserini.sparse.pruning import Pruning
from milco_pyserini.sparse.store import MANIFEST, PARTS, VOCABULARY, write_jsonl, write_parquet

PART_SIZE = 8192
PASSAGE_DELIMITER = "#"

_PLAN = "plan.json"
_RECORDS = ".records"
# Two runs with different values of these write the same bytes, or would if they ran on the same machine.
_FREE = ("versions",)


@dataclass(frozen=True)
class Work:
    """How one text becomes one or more vectors, and how parts are written."""

    encoder: MilcoEncoder
    max_length: int
    views: tuple[str, ...]
    lowercase: bool
    pruning: Pruning | None
    split_passages: bool
    batch_size: int
    scale: float
    format: str
    keep_contents: bool


@dataclass(frozen=True)
class PartRecord:
    """What the manifest says of one part. terms: total number per view. checksum: BLAKE2b of the file."""

    file: str
    documents: int
    texts: int
    bytes: int
    checksum: str
    terms: dict[str, int]
    empty: int
    truncated: int


class StoreWriter:
    """The directory of a vector store while it is being made.

    plan: everything that decides the bytes of the parts. overwrite: start over if a store of another plan is
    there. Raises MilcoError, naming the first difference, if it may not; and for a directory that is no store.
    """

    def __init__(self, path: Path, plan: dict, overwrite: bool = False) -> None:
        self.path = path
        self.plan = plan
        before = self._before()
        difference = self._difference(before) if before else ""
        if difference and overwrite:
            shutil.rmtree(path)
            before = None
        elif difference:
            raise MilcoError(
                f"{path} was begun with {difference}: choose another --output, or start over with --overwrite"
            )
        if before is None:
            write_json(path / _PLAN, plan)
        self.finished = (path / MANIFEST).is_file()
        if self.finished:
            self._tidy()

    def done(self, number: int) -> PartRecord | None:
        """The record of part number if it is whole."""
        record = self._record(number)
        return PartRecord(**read_json(record)) if record.is_file() else None

    def write(self, number: int, records: Sequence[Document | Query], work: Work) -> tuple[PartRecord, int]:
        """Encode and write one part; returns its record and the number of tokens read."""
        part = encode_part(records, work)
        path = self.path / PARTS / f"part-{number:05d}.{work.format}"
        remove_partial(path)
        with whole_file(path) as handle:
            if work.format == "parquet":
                write_parquet(handle, part.ids, part.batch)
            else:
                write_jsonl(handle, part.ids, part.batch, work.encoder.vocabulary, work.scale, part.contents)
        record = PartRecord(
            file=str(path.relative_to(self.path)),
            documents=len(part.ids),
            texts=len(records),
            bytes=path.stat().st_size,
            checksum=hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest(),
            terms={view: int(part.batch.view(view).indptr[-1]) for view in work.views},
            empty=int((part.batch.lengths() == 0).sum()),
            truncated=part.truncated,
        )
        write_json(self._record(number), asdict(record))
        return record, part.tokens

    def finish(self, parts: int, work: Work) -> bool:
        """Write the manifest if every part is whole; otherwise leave that to the shard that comes last."""
        records = [record for number in range(parts) if (record := self.done(number))]
        if len(records) < parts:
            return False
        documents = sum(record.documents for record in records)
        totals = {
            "documents": documents,
            "terms_per_document": {
                view: round(sum(record.terms[view] for record in records) / max(documents, 1), 3) for view in work.views
            },
            "empty_documents": sum(record.empty for record in records),
            "truncated_documents": sum(record.truncated for record in records),
            "parts": [asdict(record) for record in records],
        }
        try:
            write_json(self.path / VOCABULARY, work.encoder.vocabulary.to_json())
            write_json(self.path / MANIFEST, self.plan | totals)
        except FileNotFoundError:
            # Another shard finished the same store at the same moment and tidied up under our hands.
            if not (self.path / MANIFEST).is_file():
                raise
        self._tidy()
        return True

    def _record(self, number: int) -> Path:
        return self.path / _RECORDS / f"{number:05d}.json"

    def _before(self) -> dict | None:
        """The plan of the store that stands here, finished or not; None where there is nothing."""
        remove_partial(self.path / _PLAN)
        for name in (MANIFEST, _PLAN):
            if (self.path / name).is_file():
                return read_json(self.path / name)
        if self.path.exists() and not (self.path.is_dir() and not any(self.path.iterdir())):
            raise MilcoError(f"{self.path} is there and is no vector store: choose another --output")
        return None

    def _difference(self, before: dict) -> str:
        for name, value in self.plan.items():
            if name not in _FREE and before.get(name) != value:
                return f"{name} {before.get(name)}, not {value}"
        return ""

    def _tidy(self) -> None:
        """Remove what the finished store has no use for, and what killed runs left of its last files."""
        (self.path / _PLAN).unlink(missing_ok=True)
        for name in (_PLAN, VOCABULARY, MANIFEST):
            remove_partial(self.path / name)
        shutil.rmtree(self.path / _RECORDS, ignore_errors=True)


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
    texts = [_text(record) for record in records]
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
    if work.pruning is not None:
        batch = work.pruning(batch)
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

    total: the number of records. shard, shards: part k belongs to shard k mod shards.
    """
    parts = -(-total // part_size)
    mine = range(shard, parts, shards)
    before = [record for number in mine if (record := writer.done(number))]
    unit = "topics" if work.keep_contents else "documents"
    progress = Progress(unit, _count(mine, parts, part_size, total), sum(record.texts for record in before))
    if before:
        say(f"{writer.path}: {len(before)} of {len(mine)} parts are whole, going on from there")
    for number, part in enumerate(_parts(records, part_size)):
        if number in mine and writer.done(number) is None:
            record, tokens = writer.write(number, part, work)
            terms = {f"{view} terms": float(record.terms[view]) for view in work.views}
            progress.add(record.texts, tokens=tokens, **terms)
    progress.close(str(writer.path))
    return writer.finish(parts, work)


def _parts(records: Iterable[Document | Query], size: int) -> Iterator[list[Document | Query]]:
    stream = iter(records)
    while part := list(itertools.islice(stream, size)):
        yield part


def _count(mine: range, parts: int, size: int, total: int) -> int:
    last_is_mine = parts - 1 in mine
    return len(mine) * size - (parts * size - total if last_is_mine else 0)


def _text(record: Document | Query) -> str:
    return record.contents if isinstance(record, Document) else record.text
