"""Files of a publisher: on the Hugging Face hub, on a server, or within an archive; or in a local copy of them.

A copy has the publisher's layout: it is a hub repository's folder, or holds such folders by their repositories' names;
a server's files lie as the class says; or a file is in one of the other places that it names (also). It may be gzip or
plain, whichever the publisher has. Where a copy is given nothing is fetched, and nothing is written into it. What is
fetched is kept: the hub's files in the hub's cache (HF_HOME), others in MILCO_DATA.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from milco_pyserini.errors import MilcoError
from milco_pyserini.io.archives import archived_lines, is_archive
from milco_pyserini.io.hub import DATASET, fetch_hub_file, list_hub_files
from milco_pyserini.io.lines import numbered_lines


@dataclass(frozen=True)
class HubFile:
    """A file of a data set on the hub. revision: a commit, where one is known to hold it, or a branch."""

    repository: str
    path: str
    revision: str = "main"
    also: tuple[str, ...] = ()

    @property
    def publisher(self) -> str:
        """Whose layout a copy must have."""
        return f"{self.repository} on the Hugging Face hub"

    def __str__(self) -> str:
        return f"{self.path} of {self.publisher}"


@dataclass(frozen=True)
class WebFile:
    """A file on a server. path: under MILCO_DATA's folder of that name, and in a copy.

    checksum: 64 hexadecimal digits of SHA-256 or 32 of MD5, where they are known.
    """

    url: str
    folder: str
    path: str
    checksum: str | None = None
    also: tuple[str, ...] = ()

    @property
    def publisher(self) -> str:
        """Whose layout a copy must have."""
        return self.url.removesuffix(self.path)

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True)
class Member:
    """A file in a zip or tar archive. A copy may hold the archive, or what was in it."""

    archive: HubFile | WebFile
    path: str
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.path} in {self.archive}"


RemoteFile = HubFile | WebFile | Member

_WITHOUT_NETWORK = (
    "With a network the same command fetches it; without one, pass a copy of the repository as NAME@PATH."
)


def located(file: HubFile | WebFile, copy: Path | None) -> Path:
    """Where the file lies: in the copy, or else in a cache, to which it is fetched if it is not there.

    Raises MilcoError if the copy does not hold it, or it cannot be fetched.
    """
    if copy is not None:
        path = _in_copy(copy, file)
        if path is None:
            raise _not_there(copy, f"no {file.path}", file)
        return path
    if isinstance(file, HubFile):
        return fetch_hub_file(
            file.repository, file.path, revision=file.revision, repo_type=DATASET, hint=_WITHOUT_NETWORK
        )
    from milco_pyserini.io.downloads import data_home, download

    path = data_home() / file.folder / file.path
    if not path.exists():
        download(file.url, path, file.checksum)
    return path


def lines(file: RemoteFile, copy: Path | None) -> Iterator[tuple[int, bytes]]:
    """The numbered lines of a file (lines.numbered_lines), plain, gzip or in an archive."""
    if not isinstance(file, Member):
        yield from numbered_lines(located(file, copy))
        return
    unpacked = _in_copy(copy, file) if copy is not None and not is_archive(copy) else None
    if unpacked:
        yield from numbered_lines(unpacked)
        return
    if copy is not None and not _in_copy(copy, file.archive):
        raise _not_there(copy, f"neither {file.path} nor {file.archive.path}", file.archive)
    yield from archived_lines(located(file.archive, copy), file.path)


def matching(repository: str, revision: str, pattern: str, copy: Path | None) -> list[HubFile]:
    """The files of a hub repository, or of its copy, whose paths match a pattern (train-*), in sorted order.

    Raises MilcoError if there is none, or if a numbered set (-of-00003) is not whole.
    """
    if copy is not None:
        paths = [path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()]
    else:
        paths = list_hub_files(repository, revision=revision, repo_type=DATASET, hint=_WITHOUT_NETWORK)
    files = [HubFile(repository, path, revision) for path in sorted(paths) if fnmatchcase(path, pattern)]
    where = str(copy) if copy is not None else f"{repository} on the Hugging Face hub, or its cache,"
    if not files:
        raise MilcoError(f"{where} holds no {pattern}")
    parts = PurePosixPath(files[0].path).name.rpartition("-of-")[2].split(".")[0]
    if parts.isdigit() and len(files) != int(parts):
        raise MilcoError(f"{where} holds {len(files)} of {int(parts)} files of {pattern}")
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
    places += [copy / other for other in file.also]
    spellings = (spelling for place in places for spelling in (place, _other_spelling(place)))
    return next((spelling for spelling in spellings if spelling.is_file()), None)


def _other_spelling(path: Path) -> Path:
    """Plain where path is gzip, and gzip where it is plain."""
    return path.with_suffix("") if path.suffix == ".gz" else path.with_name(f"{path.name}.gz")


def _not_there(copy: Path, what: str, of: HubFile | WebFile) -> MilcoError:
    return MilcoError(f"{copy} holds {what}: a copy must have the layout of {of.publisher}")
