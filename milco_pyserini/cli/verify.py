"""milco verify PATH: compare every file of a vector store or an index with the checksums of its manifest."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import counted
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import is_json_with, read_json
from milco_pyserini.io.manifest import (
    FILES,
    MANIFEST,
    OTHER_CONTENT,
    RECALL,
    DamagedError,
    describe_files,
    list_files,
    read_checked,
    validate_fields,
    validate_size,
)
from milco_pyserini.options import option


@dataclass(frozen=True)
class Options:
    """Read every file of vector stores and indexes and compare it with the checksum in the manifest. Each damaged,
    missing or unexpected file is one line on stdout, and the exit code is 2 if there is one. Opening an index compares
    the sizes of all files, but the content of the smallest only: verify an index after it was copied or downloaded,
    and whenever its results are in doubt.
    """

    paths: tuple[Path, ...] = option(positional=True, metavar="PATH", help="vector stores and indexes")


def command(options: Options) -> None:
    """Verify all paths. Raises MilcoError at the end if one is damaged, at the start for one that is something else."""
    for path in options.paths:
        _refuse_others(path)
    damaged = [path for path in options.paths if not _verify(path)]
    if damaged:
        raise MilcoError(
            f"{', '.join(map(str, damaged))}: damaged. Copy the damaged files again, build an index again with "
            "--overwrite, encode a vector store again with the same command"
        )


def _refuse_others(path: Path) -> None:
    if is_json_with(path / "plan.json", "texts") and not (path / MANIFEST).exists():
        raise MilcoError(f"{path} is not finished: run the same milco encode command again, which resumes")
    try:
        is_owned = not {"engine", "parts", "files"}.isdisjoint(read_json(path / MANIFEST))
    except MilcoError:
        # A manifest that is no JSON is damage, to be reported.
        is_owned = (path / MANIFEST).is_file()
    if not is_owned:
        raise MilcoError(
            f"{path} is neither a vector store nor an index (by its {MANIFEST}): milco verify expects what milco "
            "encode or milco index completed"
        )


def _verify(path: Path) -> bool:
    """Write one line for each problem, or a summary if there is none; return whether there is none."""
    try:
        manifest = read_checked(path / MANIFEST)
        validate_fields(manifest, {"files?": FILES, "parts?": FILES}, path, MANIFEST)
    except DamagedError as error:
        sys.stdout.write(f"{path / error.file}: {error.reason}. Without it the other files cannot be verified\n")
        return False
    # Version 0.1 wrote no list of files, and checksums of a store's parts only.
    is_complete = "files" in manifest
    # The parts that an index names are those of the vectors it was built from.
    listed = manifest.get("files", []) + ([] if "engine" in manifest else manifest.get("parts", []))
    checked = ([MANIFEST, RECALL] if "recall" in manifest else [MANIFEST]) if is_complete else []
    problems = [error for file in checked for error in _damage(read_checked, path / file, True)]
    right_size = []
    for one in listed:
        found = _damage(validate_size, path, one)
        problems += found
        right_size += [] if found else [one]
    stated = {one["file"]: one["checksum"] for one in right_size if "checksum" in one}
    for one in describe_files(path, map(Path, stated)):
        if one["checksum"] != stated[one["file"]]:
            problems.append(DamagedError(path, one["file"], OTHER_CONTENT))
    checked += stated
    others = [file.as_posix() for file in list_files(path, [*checked, *(one["file"] for one in listed)])]
    if is_complete:
        problems += [DamagedError(path, file, "unexpected: the manifest does not list it") for file in others]
    for problem in problems:
        sys.stdout.write(f"{path / problem.file}: {problem.reason}\n")
    if not problems:
        size = sum((path / file).stat().st_size for file in checked)
        what = f"{counted(len(checked), 'file')}, {size:,} bytes, all checksums match"
        without = len(listed) - len(stated) + len(others) + (MANIFEST not in checked)
        if without:
            what += f"; {counted(without, 'file')} without a checksum, as version 0.1 wrote them, could not be verified"
        sys.stdout.write(f"Verified {path}: {what}\n")
    return not problems


def _damage(check: Callable[..., object], *arguments: object) -> list[DamagedError]:
    try:
        check(*arguments)
    except DamagedError as error:
        return [error]
    return []


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return run_command("milco verify", Options, command, argv)
