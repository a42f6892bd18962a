"""Rewrite training sets, one JSONL file for each source, resumably, in a directory that documents itself."""

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


def pending_files(
    output: Path, sources: Sequence[RetrievalSource], plan: dict, overwrite: bool
) -> list[tuple[RetrievalSource, Path]]:
    """Return the sources whose file is not complete yet, with that file: output/NAME.LANG.jsonl.gz.

    Args:
        output: the directory, which is created.
        sources: each is read once for its size.
        plan: everything that decides the files' content; output/manifest.json is the plan and the sources' sizes.
        overwrite: start over if the directory was written with another plan.

    Raises:
        MilcoError: the directory has another plan (the first difference is named) or other files, or two sources
            would share a file.
    """
    files: dict[Path, RetrievalSource] = {}
    for source in sources:
        name = directory_name(source.name)
        if source.language != UNDETERMINED and not name.endswith(f".{source.language}"):
            name = f"{name}.{source.language}"
        file = output / f"{name}.jsonl.gz"
        if file in files:
            raise MilcoError(f"{files[file].name} and {source.name} would both become {file}: rename one of them")
        files[file] = source
    plan = {**plan, "examples": {file.name: source.size() for file, source in files.items()}}
    manifest = output / MANIFEST
    validate_output_directory(
        output,
        overwrite=True,
        is_owned=lambda path: (
            (path / MANIFEST).is_file() and read_json(path / MANIFEST).get("command") == plan["command"]
        ),
    )
    before = read_json(manifest) if manifest.is_file() else {}
    difference = next((name for name in plan if before.get(name) != plan[name]), None)
    if difference is not None:
        if before and not overwrite:
            raise MilcoError(
                f"{output} was started with {difference} {before.get(difference)}, not {plan[difference]}: choose "
                "another --output, or start over with --overwrite"
            )
        if before:
            remove_directory(output)
        write_json(manifest, plan)
    return [(source, file) for file, source in files.items() if not file.is_file()]


def rewrite(
    file: Path,
    examples: Iterable[RetrievalExample],
    part_size: int,
    work: Callable[[Sequence[RetrievalExample]], Iterable[RetrievalExample]],
) -> None:
    """Write what work() makes of the examples, part_size at a time.

    Parts are kept next to the file until it is complete, so an interrupted run resumes after its last part.
    """
    directory = file.parent / _PARTS / file.name
    parts: list[Path] = []
    stream = iter(examples)
    while chunk := list(itertools.islice(stream, part_size)):
        part = directory / f"{len(parts):06d}.jsonl.gz"
        if not part.is_file():
            # No time stamp: the same work gives the same bytes.
            with atomic_file(part) as handle, gzip.GzipFile("", "wb", _COMPRESSION, handle, mtime=0) as packed:
                packed.writelines(dump_example(example) + b"\n" for example in work(chunk))
        parts.append(part)
    with atomic_file(file) as handle:
        # Concatenated gzip files are a gzip file.
        for part in parts:
            with part.open("rb") as written:
                shutil.copyfileobj(written, handle)
    shutil.rmtree(directory, ignore_errors=True)
    with contextlib.suppress(OSError):
        directory.parent.rmdir()
