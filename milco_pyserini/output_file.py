"""What --output may name where a command writes one file."""

import os
from pathlib import Path

from milco_pyserini.errors import MilcoError
from milco_pyserini.files import refuse_existing


def refuse_output(path: Path, overwrite: bool) -> None:
    """Raise MilcoError, before any work, if no file can be written at path, or if one is there that must stay."""
    refuse_existing(path, overwrite)
    if path.exists() and not path.is_file():
        raise MilcoError(f"{path} is no regular file: choose another --output")
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir():
        raise MilcoError(f"--output {path}: {above} is a file, nothing can be written below it")
    if not os.access(above, os.W_OK | os.X_OK):
        raise MilcoError(f"--output {path}: no permission to write in {above}")
