"""Checkpoints of a training run: complete or absent, verified by checksums, resumed from the newest intact one."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from milco_pyserini.console import log
from milco_pyserini.errors import MilcoError, parameter
from milco_pyserini.io.files import checksum, publish, read_json, visible_files, write_json

CHECKSUMS = "checksums.json"

_NAME = re.compile(r"checkpoint-(\d+)")
# How the system, safetensors and torch.save report a full disk.
_DISK_FULL = ("No space left", "quota exceeded", "unexpected pos", "file write failed")


def list_checkpoints(run: Path) -> list[Path]:
    """Return the complete checkpoints of a run, oldest first."""
    return sorted((path for path in run.glob("checkpoint-*") if _NAME.fullmatch(path.name)), key=checkpoint_step)


def newest_checkpoint(run: Path) -> Path | None:
    """Return the latest complete checkpoint of a run, or None."""
    return next(reversed(list_checkpoints(run)), None)


def checkpoint_step(checkpoint: Path | None) -> int:
    """Return the step after which a checkpoint was written; 0 for None."""
    return int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0


def publish_checkpoint(written: Path, run: Path) -> None:
    """Add checksums to a written checkpoint, flush it to disk and move it into the run."""
    files = sorted(path for path in written.rglob("*") if path.is_file())
    write_json(written / CHECKSUMS, {path.relative_to(written).as_posix(): checksum(path) for path in files})
    publish(written, run / written.name)


def find_damage(directory: Path) -> str | None:
    """Return which file of a checkpoint or a model differs from what was written, and how; None if it is intact.

    Without checksums, as in a model, whose files users may edit, files are only known not to be empty.
    """
    try:
        if (directory / CHECKSUMS).exists():
            checksums = read_json(directory / CHECKSUMS)
        else:
            if _NAME.fullmatch(directory.name):
                return f"{CHECKSUMS} is missing"
            files = sorted(path for path in visible_files(directory) if path.is_file())
            checksums = dict.fromkeys(path.relative_to(directory).as_posix() for path in files)
        for name, expected in checksums.items():
            file = directory / name
            if not file.is_file() or not file.stat().st_size:
                return f"{name} is {'empty' if file.is_file() else 'missing'}"
            if expected and checksum(file) != expected:
                return f"{name} has changed"
    except MilcoError as error:
        return str(error)
    return None


def set_aside_damaged(run: Path, model: Path) -> None:
    """Rename a damaged model, and damaged checkpoints from the newest to the first intact one; report each.

    Args:
        run: the run directory.
        model: the directory that a finished run ends with.
    """
    reasons = {}
    for path in [model, *reversed(list_checkpoints(run))]:
        reason = find_damage(path) if path.exists() else None
        if reason is not None:
            aside = path.with_name(f"{path.name}.damaged")
            shutil.rmtree(aside, ignore_errors=True)
            path.replace(aside)
            reasons[path] = f"{reason}; renamed to {aside.name}"
        elif path != model:
            break
    newest = newest_checkpoint(run)
    for path, reason in reasons.items():
        log(f"{path} is damaged: {reason}. Training resumes from {newest.name if newest else 'the start'}.")


@contextmanager
def reporting_write_errors(what: str, run: Path) -> Iterator[None]:
    """Turn errors of a block that writes to a run into MilcoError, with the reason and the newest checkpoint."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        # safetensors and torch.save have their own errors for a full disk.
        full = any(words in str(error) for words in _DISK_FULL)
        newest = newest_checkpoint(run)
        kept = (
            f"{newest} is complete: the same command resumes from it, without " + parameter("overwrite")
            if newest
            else "there is no checkpoint yet"
        )
        raise MilcoError(
            f"{what} could not be written: {f'the disk of {run} is full' if full else error}; {kept}"
        ) from error
