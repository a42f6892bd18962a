"""Training sets into training sets (mining, scoring): one JSONL file a source, in a directory that explains itself."""

import contextlib
import gzip
import itertools
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from milco_pyserini.defaults import directory_name
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import atomic_file, read_json, remove_directory, validate_output_directory, write_json
from milco_pyserini.train.data import UNDETERMINED
from milco_pyserini.train.data.retrieval import RetrievalExample, RetrievalSource, dump_example

MANIFEST = "manifest.json"

_PARTS = ".parts"
_COMPRESSION = 3


def begin(
    output: Path, sources: Sequence[RetrievalSource], plan: dict, overwrite: bool
) -> list[tuple[RetrievalSource, Path]]:
    """The sources whose file is not whole yet, each with that file: output/NAME.LANG.jsonl.gz.

    plan: everything that decides what the files hold; it becomes output/manifest.json, with the sources' sizes, so all
    of them are read through once. overwrite: start over if something else is there. Raises MilcoError, naming the
    first difference, if it may not; and if two sources would share a file.
    """
    files: dict[Path, RetrievalSource] = {}
    for source in sources:
        file = output / _file_name(source)
        if file in files:
            raise MilcoError(f"{files[file].name} and {source.name} would both become {file}: rename one of them")
        files[file] = source
    plan = {**plan, "examples": {file.name: source.size() for file, source in files.items()}}
    _take(output, plan, overwrite)
    return [(source, file) for file, source in files.items() if not file.is_file()]


def write_parts(
    file: Path,
    examples: Iterable[RetrievalExample],
    part_size: int,
    work: Callable[[Sequence[RetrievalExample]], Iterable[RetrievalExample]],
) -> None:
    """Write what work() makes of the examples, part_size of them at a time.

    Each part is kept beside the file until all are there: killed and started again, it goes on after the last one.
    """
    directory = file.parent / _PARTS / file.name
    parts: list[Path] = []
    stream = iter(examples)
    while chunk := list(itertools.islice(stream, part_size)):
        part = directory / f"{len(parts):06d}.jsonl.gz"
        if not part.is_file():
            # Without a time in it, the same work gives the same bytes.
            with atomic_file(part) as handle, gzip.GzipFile("", "wb", _COMPRESSION, handle, mtime=0) as packed:
                packed.writelines(dump_example(example) + b"\n" for example in work(chunk))
        parts.append(part)
    with atomic_file(file) as handle:
        # gzip files one after the other are a gzip file.
        for part in parts:
            with part.open("rb") as written:
                shutil.copyfileobj(written, handle)
    shutil.rmtree(directory, ignore_errors=True)
    with contextlib.suppress(OSError):
        directory.parent.rmdir()


def _file_name(source: RetrievalSource) -> str:
    name = directory_name(source.name)
    if source.language != UNDETERMINED and not name.endswith(f".{source.language}"):
        name = f"{name}.{source.language}"
    return f"{name}.jsonl.gz"


def _take(output: Path, plan: dict, overwrite: bool) -> None:
    validate_output_directory(output, True, lambda path: _command(path) == plan["command"])
    if (output / MANIFEST).is_file():
        before = read_json(output / MANIFEST)
        difference = next((name for name in plan if before.get(name) != plan[name]), None)
        if difference is None:
            return
        if not overwrite:
            raise MilcoError(
                f"{output} was begun with {difference} {before.get(difference)}, not {plan[difference]}: choose "
                "another --output, or start over with --overwrite"
            )
        remove_directory(output)
    write_json(output / MANIFEST, plan)


def _command(output: Path) -> str | None:
    """The command that wrote a directory, if it was one of these."""
    manifest = output / MANIFEST
    return read_json(manifest).get("command") if manifest.is_file() else None
