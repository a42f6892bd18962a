"""Write a vector store part by part: resumable, and by several processes at once.

While a store is incomplete, plan.json holds everything that determines its parts, and .records/ an entry for each
complete part. When no part is missing, both become manifest.json.
"""

import contextlib
import re
import shutil
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from msgspec.structs import replace

from milco_pyserini.console import counted, log
from milco_pyserini.errors import Message, MilcoError
from milco_pyserini.io import locks
from milco_pyserini.io.artifact import Action, Artifact
from milco_pyserini.io.files import (
    PARTIAL,
    atomic_file,
    checksum,
    checksum_bytes,
    is_json_with,
    json_bytes,
    read_json,
    remove_directory,
    remove_partial,
    remove_partial_in,
    scratch_directory,
    write_json,
)
from milco_pyserini.io.manifest import MANIFEST, describe_files, read_checked, read_record, write_checked
from milco_pyserini.io.records import RESUME, FileRecord, PartRecord, StoreManifest, may_differ
from milco_pyserini.model.checkpoint import BM25_FILE
from milco_pyserini.sparse import Vocabulary
from milco_pyserini.sparse.store import DIGESTS, PART_FORMATS, PARTS, VOCABULARY

_PLAN = "plan.json"
_RECORDS = ".records"
# Each process that writes to a store keeps a partial directory of this name in it: nobody removes the store meanwhile.
_WRITER = "writer"


def validate_output(path: Path, plan: StoreManifest, overwrite: bool) -> Action:
    """Return what to do about the store at path; see Artifact.action(). plan: the fields that are known so far.

    Raises MilcoError also if the store is of another kind, with or without overwrite.
    """
    store = _open_artifact(path)
    recorded = store.recorded
    if isinstance(recorded, StoreManifest):
        if (kind := recorded.kind or plan.kind) != plan.kind:
            # Refused even with --overwrite: replacing documents by topics is surely a mistake.
            raise MilcoError(f"{path} holds vectors of {kind}, not of {plan.kind}", Message("Choose another {output}."))
        changed = ""
        if plan.store_documents and not recorded.store_documents:
            changed = "without the texts and fields of its documents"
        elif None is not plan.corpus_hash != recorded.corpus_hash:
            counts = f"({recorded.texts or 0:,} then, {plan.texts:,} now)"
            changed = f"with other {plan.kind}: ids or texts of {plan.corpus} have changed since {counts}"
        elif None is not plan.documents_hash != recorded.documents_hash:
            changed = f"with other documents: titles or fields of {plan.corpus} have changed since"
        if changed and not overwrite:
            can_reuse = store.is_complete and not (path / BM25_FILE).is_file()
            reuse = " with {reuse}, so that only new texts are encoded" if can_reuse else ""
            raise MilcoError(
                f"{path} was begun {changed}",
                Message(
                    f"Choose another {{output}}{reuse}, or start over with {{overwrite}}.", reuse=path, overwrite=True
                ),
            )
    try:
        return store.action(plan, overwrite)
    except MilcoError:
        if recorded is None and _open_artifact(path).recorded is not None:
            # Another process began the store after it was read.
            return validate_output(path, plan, overwrite)
        raise


class StoreWriter:
    """A vector store that this process, and possibly others, are filling. Use it in a with statement.

    Args:
        plan: everything that determines the bytes of the parts; the first fields of the manifest.
        overwrite: start over if path holds a complete store or one of another plan.

    Raises:
        MilcoError: as validate_output(), and if another process is writing the store that is to be overwritten.
    """

    def __init__(self, path: Path, plan: StoreManifest, overwrite: bool = False) -> None:
        self.path = path
        self.plan = plan
        target = path.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        with locks.locked_directory(target.parent):
            remove_partial(target)
            action = validate_output(path, plan, overwrite)
            if action is Action.REPLACE:
                _remove_store(path)
                # If path is a link, it leads to this directory.
                target.mkdir()
            if action in (Action.CREATE, Action.REPLACE):
                write_json(path / _PLAN, plan.to_json())
            self._writing = contextlib.ExitStack()
            # A complete store may be on a read-only file system.
            with contextlib.suppress(OSError):
                self._writing.enter_context(scratch_directory(path / _WRITER))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writing.close()

    @property
    def is_complete(self) -> bool:
        """True if the store has its manifest, which is written last."""
        return (self.path / MANIFEST).is_file()

    def record(self, number: int) -> PartRecord | None:
        """Return the record of a part if the part is complete: its files exist and have the recorded sizes."""
        record = None
        with contextlib.suppress(MilcoError):
            if self._record_path(number).exists():
                record = read_record(read_json(self._record_path(number)), PartRecord, self.path)
            elif self.is_complete:
                # Another process may have completed the store and removed the records.
                record = dict(enumerate(self._manifest.parts)).get(number)
        if record is None:
            return None
        files = [(self.path / file.file, file.bytes) for file in record.files]
        return record if all(path.is_file() and path.stat().st_size == size for path, size in files) else None

    @cached_property
    def _manifest(self) -> StoreManifest:
        return read_record(read_json(self.path / MANIFEST), StoreManifest, self.path)

    def remove_damaged(self, numbers: Iterable[int], vocabulary: Vocabulary) -> None:
        """Remove parts that do not match their recorded checksums, so that they are encoded again.

        A complete store with a damaged or missing part or vocabulary becomes an incomplete one.
        numbers: the parts to verify; of a complete store all are.
        """
        was_complete = self.is_complete
        numbers = range(len(self._manifest.parts)) if was_complete else list(numbers)
        records = {number: record for number in numbers if (record := self.record(number))}
        if records:
            log(f"{self.path}: verifying the checksums of {counted(len(records), 'part')}")
        intact = {
            number: record
            for number, record in records.items()
            if all(checksum(self.path / file.file) == file.checksum for file in record.files)
        }
        recorded = numbers if was_complete else [number for number in numbers if self._record_path(number).exists()]
        damaged = [number for number in recorded if number not in intact]
        if damaged:
            log(f"{self.path}: {counted(len(damaged), 'part')} missing or damaged, the first is number {damaged[0]}")
        file = self.path / VOCABULARY
        has_vocabulary = file.is_file() and file.read_bytes() == json_bytes(vocabulary.to_json())
        if was_complete and (damaged or not has_vocabulary):
            with locks.locked_directory(self.path.resolve().parent):
                write_json(self.path / _PLAN, self.plan.to_json())
                for number, record in intact.items():
                    write_json(self._record_path(number), record.to_json())
                (self.path / MANIFEST).unlink(missing_ok=True)
        self.remove(damaged)
        if self.is_complete:
            # On a read-only file system a complete store may stay untidy.
            with contextlib.suppress(OSError):
                self._remove_leftovers()

    def write(self, number: int, suffix: str, content: bytes, digests: bytes = b"", **counts: Any) -> PartRecord:
        """Write one part and its record, unless another process has done so already.

        Args:
            suffix: of the file: "jsonl" or "parquet".
            digests: of the part's texts; empty if they are not known.
            counts: the fields of PartRecord that are not about the files.
        """
        if (record := self.record(number)) is not None:
            return record
        files: list[FileRecord] = []
        for directory, ending, data in ((PARTS, suffix, content), (DIGESTS, "npy", digests)):
            if data:
                path = self.path / directory / f"part-{number:05d}.{ending}"
                with atomic_file(path) as handle:
                    handle.write(data)
                file = path.relative_to(self.path).as_posix()
                files.append(FileRecord(file=file, bytes=len(data), checksum=checksum_bytes(data)))
        part, *others = files
        record = PartRecord(**part.to_json(), **counts, digests=others[0] if others else None)
        try:
            write_json(self._record_path(number), record.to_json())
        except FileNotFoundError:
            # Another process completed the same store at this moment and removed the records.
            if not self.is_complete:
                raise
        if self.is_complete:
            # The store was completed before this record was written: remove the record.
            self._remove_leftovers()
        return record

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove parts, their records first: a part without a record is incomplete."""
        numbers = list(numbers)
        for number in numbers:
            self._record_path(number).unlink(missing_ok=True)
        for number in numbers:
            for directory in (PARTS, DIGESTS):
                for file in (self.path / directory).glob(f"part-{number:05d}.*"):
                    file.unlink(missing_ok=True)

    def complete(self, num_parts: int, views: Iterable[str], vocabulary: Vocabulary) -> bool:
        """Write the manifest if no part is missing; return whether the store is complete.

        Missing parts belong to other shards, the last of which completes the store.
        """
        records = [record for number in range(num_parts) if (record := self.record(number))]
        if len(records) < num_parts:
            return False
        documents = sum(record.documents for record in records)
        terms = {view: round(sum(record.terms[view] for record in records) / max(documents, 1), 3) for view in views}
        write_json(self.path / VOCABULARY, vocabulary.to_json())
        kept = [Path(name) for name in (VOCABULARY, BM25_FILE) if (self.path / name).is_file()]
        manifest = replace(
            self.plan,
            documents=documents,
            terms_per_document=terms,
            empty_documents=sum(record.empty for record in records),
            truncated_documents=sum(record.truncated for record in records),
            parts=records,
            files=describe_files(self.path, kept),
        )
        write_checked(self.path / MANIFEST, manifest)
        self._remove_leftovers()
        return True

    def _record_path(self, number: int) -> Path:
        return self.path / _RECORDS / f"{number:05d}.json"

    def _remove_leftovers(self) -> None:
        """Remove files that a complete store does not need, and partial files of killed processes."""
        (self.path / _PLAN).unlink(missing_ok=True)
        for directory in (self.path, self.path / PARTS, self.path / DIGESTS):
            remove_partial_in(directory)
        shutil.rmtree(self.path / _RECORDS, ignore_errors=True)


def _open_artifact(path: Path) -> Artifact:
    """Return the store at path as it is."""
    described = _described_by(path)
    for name in described:
        with contextlib.suppress(MilcoError):
            # A plan has no checksum.
            value = read_checked(path / name) if name == MANIFEST else read_json(path / name)
            recorded = read_record(value, StoreManifest, path, name)
            ignored = may_differ(RESUME, recorded)
            return Artifact(path, lambda _: True, recorded, name == MANIFEST, ignored, in_place=True)
    is_store = path.is_dir() and _has_lost_its_manifest(path)
    if _described_by(path) != described:
        # Another process began or completed the store after the first look.
        return _open_artifact(path)
    return Artifact(path, lambda _: is_store, in_place=True)


def _described_by(path: Path) -> list[str]:
    """Return the names of the files at path that describe a store: its manifest and its plan."""
    keys = {MANIFEST: "parts", _PLAN: "texts"}
    return [name for name, key in keys.items() if is_json_with(path / name, "format_version", key)]


def _has_lost_its_manifest(path: Path) -> bool:
    """Return whether a directory has parts of a store, or only what a process left that was killed at its plan."""
    names = {entry.name for entry in path.iterdir() if PARTIAL not in entry.name}
    parts = [part.name for part in (path / PARTS).iterdir()] if PARTS in names else []
    part_name = re.compile(rf"part-\d+\.({'|'.join(PART_FORMATS)})|\..*{PARTIAL}.*")
    only_store_files = names <= {MANIFEST, VOCABULARY, BM25_FILE, PARTS, DIGESTS, _PLAN, _RECORDS}
    return not names or (bool(parts) and only_store_files and all(map(part_name.fullmatch, parts)))


def _remove_store(path: Path) -> None:
    remove_partial(path / _WRITER)
    if any(path.glob(f".{_WRITER}{PARTIAL}*")):
        fix = Message("Stop it, or wait for it, before {overwrite}.", overwrite=True)
        raise MilcoError(f"another process is writing {path}", fix)
    remove_directory(path)
