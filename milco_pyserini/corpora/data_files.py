"""Files of training data of both kinds: files in a directory, parsed lines, Parquet files from the hub."""

import re
from pathlib import Path
from typing import Any

import orjson

from milco_pyserini.corpora.records import BadLineError
from milco_pyserini.errors import MilcoError, require_package
from milco_pyserini.io.files import visible_files


def find_data_files(path: Path, name: re.Pattern[str]) -> list[Path]:
    """Return the file itself, or the files below a directory whose names match, sorted, without hidden ones."""
    if path.is_file():
        return [path]
    return [file for file in visible_files(path) if name.search(file.name)]


def parse_json(line: bytes) -> dict[str, Any]:
    """Return the object of a JSON line. Raises BadLineError."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadLineError(f"not UTF-8 JSON: {error.msg} (column {error.colno})") from None
    if not isinstance(value, dict):
        raise BadLineError("not a JSON object")
    return value


def open_parquet(path: Path, *columns: str) -> Any:
    """Open a Parquet file with these columns. Raises MilcoError if it is damaged or lacks one."""
    require_package("pyarrow", "parquet", str(path))
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(path)
    except ArrowInvalid as error:
        fix = "Remove it to download it again."
        raise MilcoError(f"{path} is not a complete Parquet file ({error})", fix) from None
    names = file.schema_arrow.names
    for column in columns:
        if column not in names:
            raise MilcoError(f"{path} has no column {column!r}: its columns are {', '.join(names)}")
    return file
