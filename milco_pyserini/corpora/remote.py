"""Read records and qrels from a publisher's files: on the Hugging Face hub, on a server, in an archive, or in a copy.

A local copy (NAME@PATH) has the publisher's layout: the directory of a hub repository, or its parent; a server's files
or archive; or an unpacked archive. Files may be gzip or plain, whatever the publisher has. Reading a copy fetches
nothing and writes nothing.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Generic, TypeVar

from milco_pyserini.corpora.collection import OnBad, refuse_bad_line
from milco_pyserini.corpora.readers import Judgment, Reader
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.hub import DATASET, fetch_hub_file, list_hub_files
from milco_pyserini.io.lines import archived_lines, is_archive, numbered_lines
from milco_pyserini.io.qrels import Qrels, qrels_of_lines

T = TypeVar("T")
SelfT = TypeVar("SelfT", bound="RemoteSource")

_WITHOUT_NETWORK = "With a network the same command fetches it; without one, pass a copy of the files as NAME@PATH."


@dataclass(frozen=True)
class HubFile:
    """A file of a dataset repository on the Hugging Face hub. revision: a commit, if one is known, or a branch."""

    repository: str
    path: str
    revision: str = "main"

    @property
    def publisher(self) -> str:
        """The origin whose layout a copy must have."""
        return f"{self.repository} on the Hugging Face hub"

    def __str__(self) -> str:
        return f"{self.path} of {self.publisher}"


@dataclass(frozen=True)
class WebFile:
    """A file on a server.

    Args:
        folder: subdirectory of MILCO_DATA that keeps the file.
        path: path in that directory and in a copy.
        checksum: hexadecimal digits of SHA-256 (64) or MD5 (32), if known.
    """

    url: str
    folder: str
    path: str
    checksum: str | None = None

    @property
    def publisher(self) -> str:
        """The origin whose layout a copy must have."""
        return self.url.removesuffix(self.path)

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True)
class ArchiveMember:
    """A file in a zip or tar archive. A copy may be the archive or its unpacked contents."""

    archive: HubFile | WebFile
    path: str

    def __str__(self) -> str:
        return f"{self.path} in {self.archive}"


RemoteFile = HubFile | WebFile | ArchiveMember


@dataclass(frozen=True, kw_only=True)
class RemoteSource:
    """Something that is read from a publisher's files. copy: a local copy to read in their place."""

    copy: Path | None = None

    def at(self: SelfT, copy: Path) -> SelfT:
        """Return the same source, read from a local copy."""
        return replace(self, copy=copy)


@dataclass(frozen=True)
class RemoteRecords(RemoteSource, Generic[T]):
    """The records of a publisher's files, one after the other; a file is fetched when it is reached.

    Args:
        field_rule: how the text to encode is made from the files' fields.
        unique: skip records whose id occurred before, if several rows contain the same passage.
    """

    reader: Reader[T]
    files: Sequence[RemoteFile]
    field_rule: str = "text"
    unique: bool = False

    def read(self, bad: OnBad) -> Iterator[tuple[str, int, T]]:
        """Yield (file, line number, record)."""
        if self.copy is not None and self.copy.is_file() and not is_archive(self.copy) and len(self.files) > 1:
            raise MilcoError(
                f"{self.copy} is one file: pass the directory that contains {self.files[0].path} to "
                f"{self.files[-1].path}"
            )
        seen: set[str] = set()
        for file in self.files:
            for number, record in self.reader(remote_lines(file, self.copy), partial(bad, file.path)):
                if self.unique:
                    identity: str = record.id  # type: ignore[attr-defined]
                    if identity in seen:
                        continue
                    seen.add(identity)
                yield file.path, number, record


@dataclass(frozen=True)
class RemoteQrels(RemoteSource):
    """The qrels in a publisher's files.

    Args:
        reader: yields the judgments of a line; None for TREC's and BEIR's own format.
        keep: the query ids to keep; None keeps all.
    """

    files: Sequence[RemoteFile]
    reader: Reader[list[Judgment]] | None = None
    keep: Container[str] | None = None

    def __call__(self) -> Qrels:
        """Return query id -> document id -> grade. Raises MilcoError for a malformed line, or if nothing is left."""
        qrels: Qrels = {}
        for file in self.files:
            if self.reader is None:
                qrels |= qrels_of_lines(remote_lines(file, self.copy), file.path)
                continue
            for _, judgments in self.reader(remote_lines(file, self.copy), partial(refuse_bad_line, file.path)):
                for query, document, grade in judgments:
                    qrels.setdefault(query, {})[document] = grade
        if self.keep is not None:
            qrels = {query: grades for query, grades in qrels.items() if query in self.keep}
            if not qrels:
                raise MilcoError(f"{self.files[0]} has no judgments for these topics")
        return qrels


def locate(file: HubFile | WebFile, copy: Path | None) -> Path:
    """Return the path of a file: in the copy, or else in a cache (HF_HOME, MILCO_DATA), fetched if missing there.

    Raises MilcoError if the copy does not contain the file, Unreachable if it cannot be fetched.
    """
    if copy is not None:
        path = _in_copy(copy, file)
        if path is None:
            raise MilcoError(f"{copy} holds no {file.path}: a copy must have the layout of {file.publisher}")
        return path
    if isinstance(file, HubFile):
        return fetch_hub_file(
            file.repository, file.path, revision=file.revision, repo_type=DATASET, hint=_WITHOUT_NETWORK
        )
    from milco_pyserini.defaults import data_home
    from milco_pyserini.io.downloads import download

    path = data_home() / file.folder / file.path
    if not path.exists():
        download(file.url, path, file.checksum)
    return path


def remote_lines(file: RemoteFile, copy: Path | None) -> Iterator[tuple[int, bytes]]:
    """Yield the numbered lines of a file, plain, gzip or in an archive."""
    if not isinstance(file, ArchiveMember):
        yield from numbered_lines(locate(file, copy))
        return
    if copy is not None and not is_archive(copy):
        unpacked = _in_copy(copy, file)
        if unpacked:
            yield from numbered_lines(unpacked)
            return
        if not _in_copy(copy, file.archive):
            raise MilcoError(
                f"{copy} holds neither {file.path} nor {file.archive.path}: a copy must have the layout of "
                f"{file.archive.publisher}"
            )
    yield from archived_lines(locate(file.archive, copy), file.path)


def find_hub_files(repository: str, revision: str, pattern: str, copy: Path | None) -> list[HubFile]:
    """Return the files of a hub repository, or of its copy, whose paths match a pattern such as train-*, sorted.

    Raises MilcoError if there is none, or if a numbered set (-of-00003) is incomplete.
    """
    if copy is not None:
        paths = [path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()]
    else:
        paths = list_hub_files(repository, revision=revision, repo_type=DATASET, hint=_WITHOUT_NETWORK)
    files = [HubFile(repository, path, revision) for path in sorted(paths) if fnmatchcase(path, pattern)]
    where = str(copy) if copy is not None else f"{repository} on the Hugging Face hub, or its cache,"
    if not files:
        raise MilcoError(f"{where} holds no {pattern}")
    total = PurePosixPath(files[0].path).name.rpartition("-of-")[2].split(".")[0]
    if total.isdigit() and len(files) != int(total):
        raise MilcoError(f"{where} holds {len(files)} of {int(total)} files of {pattern}")
    return files


def _in_copy(copy: Path, file: RemoteFile) -> Path | None:
    if copy.is_file():
        return copy
    path = PurePosixPath(file.path)
    places = [copy / path]
    if len(path.parts) > 1 and copy.resolve().name == path.parts[0]:
        places.append(copy / PurePosixPath(*path.parts[1:]))
    if isinstance(file, HubFile):
        places.append(copy / PurePosixPath(file.repository).name / path)
    for place in places:
        other = place.with_suffix("") if place.suffix == ".gz" else place.with_name(f"{place.name}.gz")
        for spelling in (place, other):
            if spelling.is_file():
                return spelling
    return None
