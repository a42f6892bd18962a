"""The directory of a vector store while it is being made: its plan, the parts that are whole, and who is at work."""

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import orjson

from milco_pyserini.console import counted, say
from milco_pyserini.errors import MilcoError
from milco_pyserini.io import locks
from milco_pyserini.io.files import (
    PARTIAL,
    atomic_file,
    checksum,
    is_json_with,
    json_bytes,
    read_json,
    remove_directory,
    remove_partial,
    remove_partial_in,
    write_json,
)
from milco_pyserini.io.manifest import MANIFEST, DamagedError, describe_files, read_checked, write_checked
from milco_pyserini.sparse import Vocabulary
from milco_pyserini.sparse.store import PART_FORMATS, PARTS, VOCABULARY

_PLAN = "plan.json"
_RECORDS = ".records"
# Two runs with different values of these write the same bytes, or would if they ran on the same machine.
_FREE = ("versions",)


@dataclass(frozen=True)
class PartRecord:
    """What the manifest says of one part. terms: total number per view, if any. checksum: BLAKE2b of the file."""

    file: str
    documents: int
    texts: int
    bytes: int
    checksum: str
    terms: dict[str, int]
    empty: int
    truncated: int


def check_output(path: Path, plan: dict, overwrite: bool) -> None:
    """Raise MilcoError if a store of this plan cannot be at path: the plan may be a part of the later one.

    What is there must be a store, finished or begun, of the same kind, and of the same plan unless overwrite says
    that it may go. Nothing is written.
    """
    _check(path, _before(path), plan, overwrite)


class StoreWriter:
    """A vector store that is being filled, by this process and by others. Use it in a with statement.

    plan: everything that decides the bytes of the parts. overwrite: start over if a store of another plan, or a
    finished one, is there. Raises MilcoError, naming the first difference, if it may not; and as check_output does.
    """

    def __init__(self, path: Path, plan: dict, overwrite: bool = False) -> None:
        self.path = path
        self.plan = plan
        place = path.resolve()
        place.parent.mkdir(parents=True, exist_ok=True)
        with locks.locked_directory(place.parent):
            remove_partial(place)
            before = _before(path)
            if _check(path, before, plan, overwrite):
                _remove_store(path)
                before = None
            if before is None:
                write_json(path / _PLAN, plan)
            # Held while this process works here, so that none that starts over takes the directory away.
            self._descriptor = os.open(path, os.O_RDONLY)
            with contextlib.suppress(OSError):
                locks.try_lock(self._descriptor, shared=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    @property
    def finished(self) -> bool:
        """Whether every part is whole and the manifest says so."""
        return (self.path / MANIFEST).is_file()

    def done(self, number: int) -> PartRecord | None:
        """Return the record of a part that is complete: its file is there and of the recorded size."""
        record = self._recorded(number)
        if record is None:
            return None
        path = self.path / record.file
        return record if path.is_file() and path.stat().st_size == record.bytes else None

    def mend(self, numbers: Sequence[int], vocabulary: Vocabulary | None) -> None:
        """Forget the parts that are missing or whose checksum is not the recorded one: they are encoded again.

        numbers: the parts to compare; of a finished store all are. A finished store in which a part, or the
        vocabulary, is missing or changed becomes an unfinished one.
        """
        finished = self.finished
        numbers = range(len(read_json(self.path / MANIFEST)["parts"])) if finished else numbers
        records = {number: record for number in numbers if (record := self.done(number))}
        if records:
            say(f"{self.path}: comparing {counted(len(records), 'part')} with the recorded checksums")
        intact = {
            number: record for number, record in records.items() if checksum(self.path / record.file) == record.checksum
        }
        damaged = [number for number in numbers if number not in intact and (finished or self._record(number).exists())]
        if damaged:
            say(f"{self.path}: {counted(len(damaged), 'part')} missing or changed, the first is number {damaged[0]}")
        if finished and (damaged or not self._holds(vocabulary)):
            self._reopen(intact)
        self.forget(damaged)
        if self.finished:
            with contextlib.suppress(OSError):
                self._tidy()

    def _holds(self, vocabulary: Vocabulary | None) -> bool:
        try:
            return vocabulary is None or (self.path / VOCABULARY).read_bytes() == json_bytes(vocabulary.to_json())
        except FileNotFoundError:
            return False

    def _reopen(self, records: dict[int, PartRecord]) -> None:
        """Make a finished store an unfinished one that has these parts."""
        with locks.locked_directory(self.path.resolve().parent):
            write_json(self.path / _PLAN, self.plan)
            for number, record in records.items():
                write_json(self._record(number), asdict(record))
            (self.path / MANIFEST).unlink(missing_ok=True)

    def write(self, number: int, ending: str, write: Callable[[IO[bytes]], None], **counts: Any) -> PartRecord:
        """Write one part and its record. write: what writes the part's bytes. counts: the rest of PartRecord."""
        path = self.path / PARTS / f"part-{number:05d}.{ending}"
        with atomic_file(path) as handle:
            write(handle)
        record = PartRecord(
            file=str(path.relative_to(self.path)),
            bytes=path.stat().st_size,
            checksum=checksum(path),
            **counts,
        )
        try:
            write_json(self._record(number), asdict(record))
        except FileNotFoundError:
            # Another process finished the same store at the same moment and tidied up under our hands.
            if not self.finished:
                raise
        if self.finished:
            # So did one that was done before the record was there: nobody else would remove it.
            self._tidy()
        return record

    def forget(self, numbers: list[int]) -> None:
        """Remove parts: their records first, so that none is taken for whole."""
        for number in numbers:
            self._record(number).unlink(missing_ok=True)
        for number in numbers:
            for part in (self.path / PARTS).glob(f"part-{number:05d}.*"):
                part.unlink(missing_ok=True)

    def finish(self, parts: int, views: tuple[str, ...], vocabulary: Vocabulary | None) -> bool:
        """Write the manifest if every part is whole; otherwise leave that to the shard that comes last.

        views, vocabulary: of term vectors; dense ones have neither.
        """
        records = [record for number in range(parts) if (record := self.done(number))]
        if len(records) < parts:
            return False
        documents = sum(record.documents for record in records)
        terms = {view: round(sum(record.terms[view] for record in records) / max(documents, 1), 3) for view in views}
        totals = {
            "documents": documents,
            **({"terms_per_document": terms} if views else {}),
            "empty_documents": sum(record.empty for record in records),
            "truncated_documents": sum(record.truncated for record in records),
            "parts": [asdict(record) for record in records],
        }
        files = []
        if vocabulary is not None:
            write_json(self.path / VOCABULARY, vocabulary.to_json())
            files = describe_files(self.path, [Path(VOCABULARY)])
        write_checked(self.path / MANIFEST, self.plan | totals | {"files": files})
        self._tidy()
        return True

    def _recorded(self, number: int) -> PartRecord | None:
        with contextlib.suppress(orjson.JSONDecodeError, TypeError):
            if self._record(number).exists():
                return PartRecord(**orjson.loads(self._record(number).read_bytes()))
            # Another process may have finished the store, and tidied up.
            parts = read_json(self.path / MANIFEST)["parts"] if self.finished else []
            return PartRecord(**parts[number]) if number < len(parts) else None
        return None

    def _record(self, number: int) -> Path:
        return self.path / _RECORDS / f"{number:05d}.json"

    def _tidy(self) -> None:
        """Remove what the finished store has no use for, and what killed runs left of its last files."""
        (self.path / _PLAN).unlink(missing_ok=True)
        for directory in (self.path, self.path / PARTS):
            remove_partial_in(directory)
        shutil.rmtree(self.path / _RECORDS, ignore_errors=True)


def _before(path: Path) -> dict | None:
    """The plan of the store that stands here, finished or not; None where there is nothing.

    Empty where a store has lost its plan: its manifest is missing or damaged.
    """
    for name, key in ((MANIFEST, "parts"), (_PLAN, "texts")):
        if is_json_with(path / name, "format_version", key):
            with contextlib.suppress(DamagedError):
                return read_checked(path / name)
    # A run that was killed while it wrote its plan leaves nothing but a fragment of it.
    left = [each for each in path.iterdir() if not each.name.startswith(f".{_PLAN}")] if path.is_dir() else []
    if left and _is_store(path):
        return {}
    if left or (path.exists() and not path.is_dir()):
        raise MilcoError(f"{path} is there and is no vector store, so it is never replaced: choose another --output")
    return None


def _is_store(path: Path) -> bool:
    """Whether a directory has a folder of parts, and holds nothing that a store does not."""
    names = {each.name for each in path.iterdir() if PARTIAL not in each.name}
    parts = list((path / PARTS).iterdir()) if PARTS in names else []
    return (
        bool(parts)
        and names <= {MANIFEST, VOCABULARY, PARTS, _PLAN, _RECORDS}
        and all(re.fullmatch(rf"(part-\d+\.({'|'.join(PART_FORMATS)})|\..*{PARTIAL}.*)", part.name) for part in parts)
    )


def _check(path: Path, before: dict | None, plan: dict, overwrite: bool) -> bool:
    """Whether the store that is here has to go. Raises MilcoError if it may not."""
    if before is None:
        return False
    if not before:
        if not overwrite:
            raise MilcoError(
                f"the {MANIFEST} of {path} is missing or damaged, so nothing vouches for its parts: choose another "
                "--output, or start over with --overwrite"
            )
        return True
    there, wanted = _held({"kind": plan["kind"]} | before), _held(plan)
    if there != wanted:
        # Not a case for --overwrite: whoever encodes topics does not mean to lose the documents, or the other way.
        raise MilcoError(f"{path} holds {there}, not {wanted}: choose another --output")
    difference = _difference(before, plan)
    if difference and not overwrite:
        raise MilcoError(f"{path} was begun with {difference}: choose another --output, or start over with --overwrite")
    return overwrite and bool(difference or "parts" in before)


def _held(plan: dict) -> str:
    """What a store of this plan holds."""
    return f"dense vectors of {plan['kind']}" if plan.get("dense") else f"encoded {plan['kind']}"


def _difference(before: dict, plan: dict) -> str:
    if plan.get("corpus_hash", before.get("corpus_hash")) != before.get("corpus_hash"):
        return (
            f"other {plan['kind']}: ids or texts of {plan['corpus']} have changed since "
            f"({before.get('texts', 0):,} then, {plan['texts']:,} now)"
        )
    for name, value in plan.items():
        if name not in _FREE and before.get(name) != value:
            return f"{name} {before.get(name)}, not {value}"
    return ""


def _remove_store(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if not _take_alone(descriptor):
            raise MilcoError(f"another process is writing {path}: stop it, or wait for it, before --overwrite")
        remove_directory(path)
    finally:
        os.close(descriptor)


def _take_alone(descriptor: int) -> bool:
    try:
        return locks.try_lock(descriptor)
    except OSError:
        # The file system has no locks: the user knows who is at work.
        return True
