"""Write the files of an export: a directory that is complete or absent, and explains itself."""

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from milco_pyserini import __version__
from milco_pyserini.console import counted, log
from milco_pyserini.errors import MilcoError, ParameterError
from milco_pyserini.export.protocol import ExportJob, ExportTarget, render
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.shards import shard_name
from milco_pyserini.io.artifact import Action, Artifact
from milco_pyserini.io.files import atomic_directory, is_json_with
from milco_pyserini.io.manifest import (
    MANIFEST,
    DamagedError,
    describe_files,
    list_files,
    read_manifest,
    validate_files,
    write_checked,
)
from milco_pyserini.io.records import ExportManifest, FilesRecord, ShardRecord
from milco_pyserini.sparse.store import VOCABULARY

ManifestT = TypeVar("ManifestT", bound=FilesRecord)
FORMAT_VERSION = 1


def export_files(export: ExportJob, target: ExportTarget, output: Path, overwrite: bool = False) -> ExportManifest:
    """Write the files of an export to the directory output, which exists only when it is complete.

    A shard has a subdirectory of its own. If the directory holds the same export already, nothing is written.

    Returns:
        Its manifest: target, documents, deleted, the encoder's fingerprint as vectors, and the files.

    Raises:
        MilcoError: output exists, the target cannot hold a document, or takes no changes (export.since).
    """
    if export.since is not None:
        target.require(Capability.UPDATE, "since", export.since.path, "Export all documents.")
    if export.is_shard:
        output /= shard_name(export.shard_id, export.shard_num)
    if export.corpus is not None:
        target.validate_stores(export.corpus.fields)
        if export.since is not None:
            rule = "cannot tell which of the stored documents of files have changed"
            raise ParameterError("since", None, rule, "Export all, or fill the server.")
    determining: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "target": target.name,
        "collection": export.collection,
        "vectors": export.documents.about,
        "fingerprint": export.documents.fingerprint,
        "since": None if export.since is None else export.since.fingerprint,
        "shard": ShardRecord(id=export.shard_id, num=export.shard_num) if export.is_shard else None,
        "topics": None if export.topics is None else export.topics.fingerprint,
        "stored_checksum": None if export.corpus is None else export.corpus.checksum,
        "milco_pyserini": __version__,
    }
    if (finished := finished_export(output, ExportManifest, determining, overwrite)) is not None:
        return finished
    with atomic_directory(output, overwrite, is_export) as directory:
        target.write(export, directory)
        if not export.written + len(export.deleted):
            what = (
                "no document with a term" if export.since is None else f"nothing that differs from {export.since.path}"
            )
            raise MilcoError(f"{export.documents.path} holds {what}: nothing to export")
        shutil.copyfile(export.documents.path / VOCABULARY, directory / VOCABULARY)
        render(f"{target.name}.md", export, directory / "README.md", name=target.name, title=target.title)
        counts = {"documents": export.written, "empty_documents": export.empty, "deleted": len(export.deleted)}
        manifest = write_manifest(directory, ExportManifest, **determining, **counts)
    report(export, target)
    export.progress.close(f"Exported {counted(export.written, 'document')} for {target.title} into {output}")
    return manifest


def report(export: ExportJob, target: ExportTarget) -> None:
    """Log documents that were left out or deleted, and impacts that the target rounds."""
    if export.empty:
        log(f"Skipped {counted(export.empty, 'document')} without terms, which no query can find")
    if export.deleted:
        log(f"{counted(len(export.deleted), 'document')} to delete")
    if export.largest > target.exact_up_to:
        log(
            f"{target.title} is exact for impacts up to {target.exact_up_to:,}, the largest here is "
            f"{export.largest:,}: such scores differ by up to 0.4 %"
        )


def finished_export(
    output: Path, kind: type[ManifestT], determining: Mapping[str, Any], overwrite: bool
) -> ManifestT | None:
    """Return the manifest of a finished export of these parameters, with all of its files; None if there is none.

    Raises MilcoError if output holds something else, or, without overwrite, an export of other parameters.
    """
    recorded = None
    with contextlib.suppress(DamagedError):
        recorded = read_manifest(output, kind)
    artifact = Artifact(output, is_export, recorded)
    if artifact.action(determining, overwrite) is not Action.KEEP or recorded is None:
        return None
    validate_files(output, recorded.files)
    artifact.keep()
    return recorded


def write_manifest(directory: Path, kind: type[ManifestT], **fields: Any) -> ManifestT:
    """Write the manifest of an export, which lists the files of its directory; return it."""
    manifest = kind(**fields, files=describe_files(directory, list_files(directory)))
    write_checked(directory / MANIFEST, manifest)
    return manifest


def is_export(path: Path) -> bool:
    """Return whether a directory holds an export."""
    return is_json_with(path / MANIFEST, "format_version", "target")
