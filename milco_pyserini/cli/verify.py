"""milco verify PATH: compare every file of a vector store or an index with the checksums of its manifest."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import Progress, counted, printable
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import checksum, is_json_with, read_json
from milco_pyserini.io.manifest import (
    MANIFEST,
    OTHER_CONTENT,
    RECALL,
    DamagedError,
    list_files,
    read_checked,
    read_record,
    validate_documents,
    validate_size,
)
from milco_pyserini.io.records import FilesRecord, StoreManifest
from milco_pyserini.options import option

_COPY = "Copy the damaged files again, rebuild the index with --overwrite, or rerun the encode command"
_REMOVE = "Remove the files that are not in the manifest: a copy over an older directory leaves such files"


@dataclass(frozen=True)
class VerifyOptions:
    """Compare every file of vector stores and indexes with the checksums in their manifests.

    Prints one line for each damaged, missing or unexpected file, and exits with code 2 if there are any. Opening an
    index compares the sizes of all files but reads only the smallest ones, so verify an index after you have copied or
    downloaded it.

    Example:
      milco verify vectors/sample indexes/sample.lucene
    """

    paths: tuple[Path, ...] = option(positional=True, metavar="PATH", help="vector stores and indexes")


def verify(options: VerifyOptions) -> None:
    """Verify all paths. Raises MilcoError if one is damaged, or before any work if one is not a store or an index."""
    paths = [each for path in options.paths for each in _directories(path)]
    for path in paths:
        _validate_kind(path)
    fixes = {path: _verify(path) for path in paths}
    if damaged := [str(path) for path in paths if fixes[path]]:
        needed = dict.fromkeys(fix for path in paths for fix in fixes[path])
        raise MilcoError(f"damaged: {', '.join(damaged)}", hint=". ".join(needed))


def _directories(path: Path) -> list[Path]:
    """Return the shards of an index, or the path itself. Raises MilcoError if shards are missing."""
    # Imported here: the help page does not wait for numpy.
    from milco_pyserini.index.shards import find_shards, missing_shards

    shards = find_shards(path)
    if shards and (missing := missing_shards(path)):
        raise MilcoError(f"{path} lacks {missing}: build them, or verify single shards")
    return shards or [path]


def _validate_kind(path: Path) -> None:
    if is_json_with(path / "plan.json", "texts") and not (path / MANIFEST).exists():
        raise MilcoError(f"{path} is not complete: rerun its milco encode command to resume")
    try:
        is_owned = not {"engine", "parts", "files"}.isdisjoint(read_json(path / MANIFEST))
    except (MilcoError, NotADirectoryError):
        # A manifest that is not JSON is damaged, and reported as such.
        is_owned = (path / MANIFEST).is_file()
    if not is_owned:
        raise MilcoError(
            f"{path} is neither a vector store nor an index (by its {MANIFEST}): milco verify expects a directory "
            "written by milco encode or milco index"
        )


def _verify(path: Path) -> list[str]:
    """Print one line for each problem, or a summary if there is none; return the fixes that are needed."""
    try:
        content = read_checked(path / MANIFEST)
        manifest = read_record({"scale": 1.0} | content, StoreManifest if "parts" in content else FilesRecord, path)
    except DamagedError as error:
        _write(f"{path / error.file}: {error.reason}. Without it the other files cannot be verified")
        return [_COPY]
    listed = list(manifest.files)
    if isinstance(manifest, StoreManifest):
        listed += [file for part in manifest.parts for file in part.files]
    checked = [MANIFEST, RECALL] if "recall" in content else [MANIFEST]
    problems: list[DamagedError] = []

    def is_intact(check: Callable[..., object], *arguments: object) -> bool:
        try:
            check(*arguments)
        except DamagedError as error:
            problems.append(error)
            return False
        return True

    for file in checked:
        is_intact(read_checked, path / file)
    if isinstance(manifest, StoreManifest):
        is_intact(validate_documents, path, manifest)
    right_size = [file for file in listed if is_intact(validate_size, path, file)]
    stated = {file.file: file.checksum for file in right_size}
    progress = Progress("MB", sum((path / file).stat().st_size for file in stated) // 10**6)
    for file, expected in stated.items():
        try:
            if checksum(path / file, lambda size: progress.add(size // 10**6)) != expected:
                problems.append(DamagedError(path, file, OTHER_CONTENT))
        except OSError as error:
            problems.append(DamagedError(path, file, error.strerror or error))
    progress.close(None)
    checked += stated
    others = [file.as_posix() for file in list_files(path, [*checked, *(file.file for file in listed)])]
    for problem in problems:
        _write(f"{path / problem.file}: {problem.reason}")
    fixes = [_COPY] if problems else []
    if others:
        for file in others:
            _write(f"{path / file}: not in the manifest, remove it")
        fixes.append(_REMOVE)
    if not fixes:
        size = sum((path / file).stat().st_size for file in checked)
        _write(f"Verified {path}: {counted(len(checked), 'file')}, {size:,} bytes, all checksums match")
    return fixes


def _write(line: str) -> None:
    sys.stdout.write(f"{printable(line)}\n")


main = partial(run_command, "milco verify", VerifyOptions, verify)
