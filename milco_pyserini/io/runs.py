"""Read and write run files: TREC (qid Q0 docid rank score tag) and MS MARCO (qid docid rank), plain or .gz.

trec_eval reads scores as 32-bit floats and sorts by them again, ties by descending docid. A ranking with ties survives
that only if no two printed scores are equal, so each tie is printed one float32 step below the last.
"""

import hashlib
import io
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol, cast

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from milco_pyserini.console import printable, warn
from milco_pyserini.errors import MilcoError, ParameterError, shown, value_text
from milco_pyserini.io.files import STDOUT, checksum_bytes, is_json_with, text_output, validate_output_file
from milco_pyserini.io.lines import first_line, numbered_lines, open_lines
from milco_pyserini.io.manifest import DamagedError, read_checked, read_record, write_checked
from milco_pyserini.io.records import RunRecord

__all__ = ["read_run"]

Run = dict[str, dict[str, float]]

TREC_COLUMNS = 6
MSMARCO_COLUMNS = 3
FORMATS = ("trec", "msmarco")
_TRAINED_ON = "-trained-on-"
_FLOAT32_MAX = 3.4028234663852886e38
# Options that the name of the system states, or that do not change the hits.
_IN_NO_TAG = {"fuse", "method", "threads", "batch_size", "device"}
# Characters of the options in a tag; more are replaced by their hash.
_LONGEST = 60
_DIGEST = partial(hashlib.blake2b, digest_size=16)


class Ranking(Protocol):
    """Docids and scores, best first: index.Hits."""

    @property
    def docids(self) -> Sequence[str]:
        """One string per document."""

    @property
    def scores(self) -> NDArray[np.floating]:
        """Never increasing."""


def read_run(path: str | Path) -> Run:
    """Read a run: query id -> document id -> score, in the order of the file.

    As in trec_eval, the rank column of a TREC run is ignored: scores order the documents. An MS MARCO run has no
    scores, minus the rank replaces them. The number of columns of the first line decides which of the two it is.

    Raises:
        MilcoError: with file and line, for a line of another form, a score that is not a finite float32, and a document
            that is repeated for a query; and for a path that is not a regular file.
    """
    run: Run = {}
    columns = 0
    for number, line in numbered_lines(path):
        # Bytes split only at ASCII white space, as in trec_eval: other spaces may be part of an id.
        fields = line.split()
        columns = columns or len(fields)
        try:
            if b"\r" in line:
                raise ValueError("a carriage return within the line: lines end in \\n or \\r\\n. Convert the line ends")
            if len(fields) != columns or columns not in (TREC_COLUMNS, MSMARCO_COLUMNS):
                raise ValueError(
                    f"{len(fields)} columns; a TREC run has {TREC_COLUMNS} (qid Q0 docid rank score tag), "
                    f"an MS MARCO run {MSMARCO_COLUMNS} (qid docid rank), the same in every line"
                )
            # A UnicodeDecodeError is a ValueError.
            query, document = fields[0].decode(), fields[2 if columns == TREC_COLUMNS else 1].decode()
            score = _score(fields[4]) if columns == TREC_COLUMNS else -float(_rank(fields[2]))
        except ValueError as error:
            raise MilcoError(f"{path}:{number}: {error}") from None
        scores = run.setdefault(query, {})
        if document in scores:
            raise MilcoError(f"{path}:{number}: document {shown(document)} is repeated for query {shown(query)}")
        scores[document] = score
    if not run:
        raise MilcoError(f"{path} holds no results")
    return run


@contextmanager
def run_output(path: Path, record: RunRecord, overwrite: bool = True) -> Iterator[IO[str]]:
    """Open a run for writing, as text_output() does; when it is complete, its record is written next to it.

    A kill in between leaves a run without a record, or with that of the run that it replaced, which does not count.
    """
    started = time.monotonic()
    with text_output(path, overwrite) as handle:
        digested = _Digested(handle)
        yield cast(IO[str], digested)
    name, checksum = printable(str(path)), digested.digest.hexdigest()
    # A rerun that keeps its run keeps the record, too.
    if path != STDOUT and (overwrite or not read_run_record(path, checksum).tag):
        seconds = round(time.monotonic() - started, 3)
        made = structs.replace(record, name=name, run_checksum=checksum, seconds=seconds)
        write_checked(_record_path(path), made)


def read_run_record(path: Path, checksum: str = "") -> RunRecord:
    """Return the record of a run; without one, a record of its name and checksum only.

    A record that is damaged, or is that of another run, is reported and ignored. checksum: of the run, if it is known.
    """
    place = _record_path(path)
    if not checksum:
        with open_lines(path) as handle:
            checksum = hashlib.file_digest(handle, _DIGEST).hexdigest()  # type: ignore[arg-type]
    if place.is_file():
        try:
            record = read_record(read_checked(place), RunRecord, place.parent, place.name)
            if record.run_checksum == checksum:
                return record
            reason = f"{path} is another run than the one that it describes"
        except DamagedError as error:
            reason = error.reason
        warn(f"{place} is ignored: {reason}")
    return RunRecord(name=printable(str(path)), run_checksum=checksum)


def option_text(value: Any) -> str:
    """Return the value of an option for tags and tables; "" for one that is not given.

    >>> option_text({"lang": ["de", "fr"], "year": {">=": 2000}}), option_text((2.0, 1.0)), option_text(None)
    ('lang=de,fr,year>=2000', '2,1', '')
    """
    if isinstance(value, Mapping):
        # The names of a range are operators.
        signs = {name: "" if isinstance(inner, Mapping) or name[0] in "<>" else "=" for name, inner in value.items()}
        return ",".join(f"{name}{signs[name]}{option_text(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return ",".join(map(option_text, value))
    return {None: "", False: "", True: "yes"}[value] if value is None or isinstance(value, bool) else value_text(value)


def default_tag(system: str, trained_on: str = "", changed: Mapping[str, Any] | None = None) -> str:
    """Return the tag of a run: system, options that are not the default, and the benchmark its encoder was trained on.

    >>> default_tag("lucene"), default_tag("lucene", changed={"alpha": 0.3, "remove_query": True})
    ('milco-lucene', 'milco-lucene-alpha=0.3-remove_query')
    """
    changed = {name: value for name, value in (changed or {}).items() if name not in _IN_NO_TAG}
    options = "-".join(name if value is True else f"{name}={option_text(value)}" for name, value in changed.items())
    if len(options) > _LONGEST or " " in options or not options.isprintable():
        options = checksum_bytes(options.encode("utf-8", "surrogatepass"))[:8]
    return f"milco-{system}{'-' * bool(options)}{options}{_TRAINED_ON if trained_on else ''}{trained_on}"


def read_trained_on(path: Path) -> str:
    """Return the benchmark that the default_tag() of a run names, or ""."""
    return first_line(path).decode(errors="replace").partition(_TRAINED_ON)[2].strip()


def validate_run_output(path: Path, overwrite: bool, tag: str | None) -> None:
    """Raise MilcoError for a tag that no run can hold, and if a run or its record cannot be written at path."""
    if tag is not None and tag.split() != [tag]:
        rule = "must not be empty or contain white space, which separates the columns of a run"
        raise ParameterError("tag", tag, rule)
    if path == STDOUT:
        return
    validate_output_file(path, overwrite)
    record = _record_path(path)
    if record.exists() and not is_json_with(record, "run_checksum"):
        rule = f"the record of the run would replace {record}, which is not a record"
        raise ParameterError("output", path, rule, "Choose another, or move that file.")


def write_hits(handle: IO[str], topic: str, hits: Ranking, format: str, tag: str) -> None:
    """Write the lines of one topic: "topic Q0 docid rank score tag", or MS MARCO's "topic<TAB>docid<TAB>rank"."""
    if format == "msmarco":
        lines = [f"{topic}\t{docid}\t{rank}\n" for rank, docid in enumerate(hits.docids, 1)]
    else:
        scored = zip(hits.docids, decreasing_scores(hits.scores), strict=True)
        lines = [f"{topic} Q0 {docid} {rank} {score} {tag}\n" for rank, (docid, score) in enumerate(scored, 1)]
    handle.write("".join(lines))


def decreasing_scores(scores: NDArray[np.floating]) -> list[str]:
    """Return never increasing scores as float32 texts that strictly decrease, as close to them as that allows."""
    strict = scores.astype(np.float32)
    for place in np.flatnonzero(strict[1:] >= strict[:-1]) + 1:
        # A step may reach the next lower score, and so on down the list.
        while place < len(strict) and strict[place] >= strict[place - 1]:
            strict[place] = np.nextafter(strict[place - 1], np.float32(-np.inf))
            place += 1
    return [str(score) for score in strict]


def _record_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


class _Digested(io.TextIOBase):
    """Writes to a file, and computes the checksum of the text."""

    def __init__(self, handle: IO[str]) -> None:
        self._handle, self.digest = handle, _DIGEST()

    def write(self, text: str) -> int:
        """Write a text."""
        self.digest.update(text.encode())
        return self._handle.write(text)


def _score(text: bytes) -> float:
    try:
        # Python reads 1_000 as a number; no program that writes runs means it as one.
        score = math.nan if b"_" in text else float(text)
    except ValueError:
        score = math.nan
    if abs(score) <= _FLOAT32_MAX:
        return score
    raise ValueError(f"the score {text.decode(errors='replace')!r} is not a finite number")


def _rank(text: bytes) -> int:
    if text.isdigit() and len(text) < 10 and (rank := int(text)) > 0:
        return rank
    raise ValueError(f"the rank {text.decode(errors='replace')!r} is not an integer of at least 1")
