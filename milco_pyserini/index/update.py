"""Update an index: a copy of it, with documents added, replaced and deleted, takes its place in one step."""

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from milco_pyserini import __version__
from milco_pyserini.console import Progress, counted, log
from milco_pyserini.corpora.records import PASSAGE
from milco_pyserini.encode.documents import joined_fields
from milco_pyserini.errors import Message, MilcoError, ParameterError, shown
from milco_pyserini.index.documents import (
    CheckedDocuments,
    SparseDocuments,
    StoredDocuments,
)
from milco_pyserini.index.protocol import Engine
from milco_pyserini.io.files import atomic_directory, checksum_bytes, copy_file, json_bytes, size_on_disk
from milco_pyserini.io.lines import numbered_lines
from milco_pyserini.io.locks import locked_file
from milco_pyserini.io.manifest import (
    MANIFEST,
    OTHER_CONTENT,
    DamagedError,
    describe_files,
    list_files,
    named_files,
    read_manifest,
    unlisted_files,
    validate_files,
    write_checked,
)
from milco_pyserini.io.records import (
    INDEX,
    UNSET,
    UPDATE,
    FileRecord,
    IndexManifest,
    StoreManifest,
    UpdateRecord,
    fields_to_match,
    option_of,
)
from milco_pyserini.sparse import SparseBatch
from milco_pyserini.sparse.changes import OlderVectors, vector_bytes
from milco_pyserini.sparse.quantization import quantized_vectors

_LOCK_SECONDS = 600.0
# Updates that a manifest lists.
_MOST_UPDATES = 100


@dataclass
class DocumentChanges:
    """Documents to write into an index, and ids to delete.

    Args:
        path, manifest: of the documents.
        source: the documents; None if there are only ids to delete.
        since: the documents of which the index was made: those that differ are written, those that source lacks are
            deleted. Documents that do not differ may be missing from both.
        delete: further ids to delete.
        request: update_request() of the above; None if it is not known.
        corpus: what the index is to store of the documents.
        replaces_passages: documents are replaced and deleted with all passages that the index has of them.

    Attributes:
        written, deleted, emptied: when vectors() has ended, the number of documents with terms that it yielded, ids,
            and the number of documents in since without terms.

    Raises:
        MilcoError: from vectors(), for a document that is both in source and in delete.
    """

    path: Path
    manifest: StoreManifest
    source: SparseDocuments | None
    since: SparseDocuments | None
    delete: set[str]
    request: str | None
    corpus: StoredDocuments | None = None
    replaces_passages: bool = False
    written: int = 0
    emptied: int = 0
    deleted: Sequence[str] = ()

    @property
    def terms(self) -> list[str]:
        """Term of each column."""
        return [] if self.source is None else self.source.terms

    def vectors(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield ids and {term: impact}, {} for a document without terms."""
        if self.source is None or self.since is not None:
            for names, batch in self.batches():
                vectors = quantized_vectors(batch, self.manifest.scale, np.asarray(self.terms, object))
                yield from zip(names, vectors, strict=True)
            return
        self.written, self.deleted = 0, sorted(self.delete)
        for docid, vector in self.source.vectors():
            self._count([docid], int(bool(vector)))
            yield docid, vector

    def batches(self) -> Iterator[tuple[list[str], SparseBatch]]:
        """Yield ids and float weights."""
        self.written, self.deleted = 0, sorted(self.delete)
        for names, batch in self._differing():
            self._count(names, int((batch.lengths() > 0).sum()))
            yield names, batch

    def _count(self, names: Sequence[str], written: int) -> None:
        for docid in names:
            if docid in self.delete or (self.replaces_passages and PASSAGE.sub("", docid) in self.delete):
                raise self._contradiction(docid)
        self.written += written

    def _contradiction(self, docid: str) -> MilcoError:
        return MilcoError(
            f"document {shown(docid)} is in {self.path} " + Message("and in {delete}: remove it from one")
        )

    def _differing(self) -> Iterator[tuple[list[str], SparseBatch]]:
        if self.source is None or self.since is None:
            yield from () if self.source is None else self.source.batches()
            return
        is_stored = self.corpus is not None
        older = OlderVectors(self.since, is_stored)
        for names, batch, content in vector_bytes(self.source, is_stored):
            for name in filter(self.delete.__contains__, names):
                raise self._contradiction(name)
            same = [key is not None and older.is_same(name, key) for name, key in zip(names, content, strict=True)]
            kept = [row for row in range(len(names)) if not same[row]]
            yield [names[row] for row in kept], batch.take(kept)
        self.emptied = older.empty
        self.deleted = sorted({*self.delete, *older.remaining()})


def locked_index(path: Path) -> contextlib.AbstractContextManager[None]:
    """Hold the lock of an index while it is changed. Other programs wait for it, up to ten minutes."""
    place = path.resolve()
    # A name may have 255 bytes, and a character 4.
    return locked_file(place.with_name(f".{place.name[:50]}.lock"), _LOCK_SECONDS)


def update_directory(
    path: Path, manifest: IndexManifest, engine: Engine, changes: DocumentChanges, threads: int
) -> IndexManifest:
    """Replace the index at path by one with the changes; return its manifest. Open searchers continue with the old one.

    Raises MilcoError if the index is damaged, would have no document, or was changed by another command meanwhile.
    """
    progress = Progress("documents", None if changes.since is not None else changes.manifest.documents or None)
    checked = CheckedDocuments(changes, progress, changes.corpus)

    def is_unchanged(place: Path) -> bool:
        if read_manifest(place, type(manifest)) != manifest:
            raise MilcoError(
                f"{path} was changed since it was opened: run the command again, or, in Python, use the Index that "
                "update() returned"
            )
        return True

    with atomic_directory(path, True, is_unchanged) as directory:
        try:
            if others := unlisted_files(path, manifest):
                raise MilcoError(
                    f"{path} holds {named_files(others)}, which its manifest does not list: an update would lose such "
                    "files. Move or remove them"
                )
            validate_files(path, manifest.files)
            _copy_files(path, directory, manifest, engine)
            built = engine.update(checked, directory, threads)
        except (FileNotFoundError, MilcoError):
            is_unchanged(path)
            raise
        checked.validate_unique_ids()
        if not built.documents and not engine.may_be_empty:
            raise MilcoError(f"{path} would hold no document after the update: remove it instead")
        added = changes.manifest
        update = UpdateRecord(
            documents=changes.written,
            deleted=len(changes.deleted) if changes.source else manifest.documents - built.documents,
            since=changes.since is not None,
            corpus=added.corpus,
            request=changes.request,
        )
        updated = replace(
            manifest,
            documents=built.documents,
            empty_documents=max(0, manifest.empty_documents - changes.emptied) + built.empty,
            # The number of terms of replaced and deleted documents is not known.
            postings=manifest.postings + checked.postings,
            id_with_space=manifest.id_with_space or checked.id_with_space,
            milco_pyserini=__version__,
            **engine.versions(),
            updates=[*manifest.updates, update][-_MOST_UPDATES:],
            files=describe_files(directory, list_files(directory), _shared_files(path, directory, manifest)),
        )
        if changes.since is not None:
            updated = replace(updated, vectors=added)
        if changes.corpus is not None:
            updated = replace(updated, fields=joined_fields(manifest.fields or {}, changes.corpus.fields))
        write_checked(directory / MANIFEST, updated)
    progress.close(f"Updated {path}")
    if built.empty:
        log(f"{counted(built.empty, 'document')} without terms among these, which no query can find")
    if changes.deleted:
        _report_deleted(changes, manifest, manifest.documents - built.documents)
    log(f"{path} holds {counted(built.documents, 'document')} and takes {size_on_disk(path) / 1e6:,.1f} MB on disk")
    return updated


def _report_deleted(changes: DocumentChanges, manifest: IndexManifest, fewer: int) -> None:
    """Report deletions, and whether the index had all docids. fewer: documents than before, if none were added."""
    asked = counted(len(changes.deleted), "docid")
    adds = changes.source is not None
    if adds and changes.since is None:
        # How many documents are new is not known.
        log(f"Deleted {asked}, as far as the index had them")
    elif changes.replaces_passages:
        log(f"Deleted {counted(fewer, 'passage')} of {asked}")
    elif adds or fewer == len(changes.deleted):
        log(f"Deleted {asked}")
    else:
        hint = "; it holds passages, whose docids are DOCID#N" if manifest.vectors.split_passages else ""
        log(f"Deleted {fewer:,} of {asked}: the index does not have all of them{hint}")


def update_request(delete: Collection[str], *manifests: StoreManifest | None) -> str | None:
    """Return a digest of what an update is asked for; None if the content of its vectors is not known.

    manifests: of the vectors and of those that since names; None for what is not given.
    """
    if not all(manifest.has_checksums for manifest in manifests if manifest is not None):
        return None
    content = json_bytes([manifest and manifest.to_json() for manifest in manifests])
    return checksum_bytes(content + repr(sorted(set(delete))).encode())


def validate_update(path: Path, vectors: StoreManifest, index: Path, indexed: StoreManifest) -> None:
    """Raise MilcoError unless vectors were encoded and are read as those in an index. vectors, indexed: manifests."""
    for name in (*fields_to_match(UPDATE), *fields_to_match(INDEX)):
        new, old = getattr(vectors, name), getattr(indexed, name)
        is_set, fix = name in fields_to_match(INDEX), "encode them as those of the index were"
        if is_set:
            new, old, fix = new or None, old or None, f"give the same --{option_of(name)} as for the index"
        if new != old and (is_set or not {None, UNSET} & {new, old}):
            raise MilcoError(f"{path} cannot update {index}: its {name} is {new!r}, the index has {old!r}: {fix}")


def read_docids(path: Path) -> list[str]:
    """Return the docids in a file, one per line."""
    if not path.is_file():
        raise ParameterError("delete", path, "no such file", "Expected a file of docids, one per line.")
    docids = []
    for number, line in numbered_lines(path):
        try:
            docids.append(line.decode())
        except UnicodeDecodeError as error:
            raise MilcoError(f"{path}:{number}: a docid is not UTF-8: {error.reason}") from None
    return docids


def _copy_files(old: Path, directory: Path, manifest: IndexManifest, engine: Engine) -> None:
    """Copy an index's files, or give them second names where the engine changes none and the file system can.

    Raises DamagedError for a copy with another checksum: a new one would hide the damage.
    """
    for listed in manifest.files:
        source, target = old / listed.file, directory / listed.file
        target.parent.mkdir(parents=True, exist_ok=True)
        if not engine.changes_files:
            with contextlib.suppress(OSError):
                target.hardlink_to(source)
                continue
        found = copy_file(source, target)
        if listed.checksum != found:
            raise DamagedError(old, listed.file, OTHER_CONTENT)


def _shared_files(old: Path, directory: Path, manifest: IndexManifest) -> list[FileRecord]:
    """Return the files that an index has under second names, too."""
    both = [listed for listed in manifest.files if (directory / listed.file).exists()]
    return [listed for listed in both if (directory / listed.file).samefile(old / listed.file)]
