"""The Seismic engine: approximate, by blocks of similar documents in every term's list (Bruch et al., SIGIR 2024).

pyseismic-lsr's index of numbers is used, never the one of strings, which cuts and joins long terms: ids and terms stay
in files of ours. Columns that no document has are left out, for the builder takes time for every column of every list.
The builder holds Python's lock and writes to stdout, so it works in a process of its own.
"""

import copy
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.console import counted, duration, say
from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.index.protocol import TERMS, Built, Hits, Searcher, Store
from milco_pyserini.index.settings import BUILD, SEARCH, setting
from milco_pyserini.index.strings import StringTable, write_strings
from milco_pyserini.io.files import atomic_file, full_disk_errors, read_json, write_json
from milco_pyserini.sparse import SparseBatch

PACKAGE = "pyseismic-lsr"
_INDEX = "index.seismic"
_ABOUT = "seismic.json"
_RANKS = "ranks.npy"
# Read by the package's thread pool when it is first used.
_THREADS = "RAYON_NUM_THREADS"
# Columns that fit into 16 bits make a smaller and quicker index.
_NARROW = 1 << 16
# Weights are kept as 16-bit floats, and so is the number of a document's terms: as 16-bit integer.
_MAX_WEIGHT = 65504.0
_MAX_TERMS = 65535
_LONG = 300.0

# First the kernel is told to end the builder with its parent, whatever ends that one (PR_SET_PDEATHSIG).
_BUILD = """
import ctypes, os, signal, sys
parent, kind, vectors, index, n_postings = sys.argv[1:]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != int(parent):
        sys.exit("its parent has ended")
import seismic
getattr(seismic, kind).build(vectors, n_postings=int(n_postings)).save(index)
"""


@dataclass(frozen=True)
class SeismicEngine:
    """Approximate: the best documents are looked for in a part of the index, and may be missed.

    The settings that are not here are left at the package's defaults. n_postings buys recall with time, memory and
    disk. 200 is for a recall@10 of .95 in 10,000 to 300,000 documents of 124 terms (benchmarks/topical_vectors.py): at
    100,000 it builds in half the time of 500, takes half the disk and two thirds of the memory, and answers a sixth
    sooner when both are tuned to that recall; untuned, recall is .980 instead of .991. A longer list keeps a smaller
    share of its postings: at 300,000 documents the untuned recall is .950 (of 500: .987), and hardly any search
    settings bring it to .98. For more documents, or a higher recall, build with more.
    """

    name = "seismic"
    exactness = "approximate"
    queries = TERMS

    n_postings: int = setting(200, BUILD, 1, 10**9, "postings that a term keeps, on the average")
    query_cut: int = setting(10, SEARCH, 1, 10**6, "strongest terms of a query that are looked up")
    heap_factor: float = setting(0.9, SEARCH, 0.01, 1, "share of the worst hit's score that a block must promise")

    def available(self) -> None:
        """Raise MilcoError if pyseismic-lsr is not installed."""
        if importlib.util.find_spec("seismic") is None:
            raise MilcoError(f"--engine seismic needs {PACKAGE}: pip install 'milco-pyserini[seismic]'")

    def build(self, store: Store, directory: Path, threads: int) -> Built:
        """Write ids, terms, the ranks of ids, and Seismic's own file. The child process holds all vectors in memory."""
        vectors = directory / "vectors.bin"
        with vectors.open("wb") as handle:
            written = _VectorFile(handle)
            for names, batch in store.batches():
                written.add(names, batch)
            written.close()
        if written.ids:
            self._announce(written, threads)
            kind = _kind(len(written.columns))
            _run_builder(threads, kind, str(vectors), str(directory / _INDEX), str(self.n_postings))
            terms = store.terms
            write_strings(directory, "terms", [terms[column] for column in written.columns])
            write_strings(directory, "ids", written.ids)
            with atomic_file(directory / _RANKS) as ranks:
                np.save(ranks, _ranks(written.ids))
            size = (directory / _INDEX).stat().st_size
            write_json(directory / _ABOUT, {"version": _version(), "kind": kind, "bytes": size})
        vectors.unlink()
        return Built(len(written.ids), written.empty)

    def open(self, directory: Path, manifest: dict) -> "SeismicSearcher":
        """Load the index into memory."""
        about = read_json(directory / _ABOUT)
        if about["version"] != _version():
            raise MilcoError(
                f"{directory} was built by {PACKAGE} {about['version']}, here is {_version()}: build it again, or "
                f"pip install {PACKAGE}=={about['version']}"
            )
        size = (directory / _INDEX).stat().st_size
        if size != about["bytes"]:
            raise ValueError(f"{_INDEX} has {size:,} bytes, not {about['bytes']:,}")
        terms, ids = (StringTable(directory, name) for name in ("terms", "ids"))
        ranks = np.load(directory / _RANKS, mmap_mode="r")
        return SeismicSearcher(directory, about["kind"], terms, ids, ranks, self)

    def _announce(self, written: "_VectorFile", threads: int) -> None:
        seconds = build_seconds(len(written.ids), written.postings, len(written.columns), self.n_postings) / threads
        what = f"{counted(len(written.columns), 'list')} of {written.postings:,} postings"
        say(f"Seismic clusters {what}: about {duration(seconds)}, and shows no progress")
        if seconds > _LONG:
            say("  less with --views pivot, with --prune, such as --prune top-k:100, or with a smaller --n-postings")


def build_seconds(documents: int, postings: int, columns: int, n_postings: int) -> float:
    """About how long Seismic builds on one thread. Its time is that of summaries: all terms of each posting's document.

    The constants were measured with pyseismic-lsr 0.5.4; the second term is a table of columns for every list.
    """
    kept = min(postings, n_postings * columns)
    return 5e-8 * kept * postings / documents + 1.3e-9 * columns**2


class SeismicSearcher(Searcher):
    """A Seismic index that is open. ranks: int32 [documents], the place of each row's id among all ids."""

    def __init__(
        self, path: Path, kind: str, terms: StringTable, ids: StringTable, ranks: NDArray[np.int32], how: SeismicEngine
    ) -> None:
        import seismic

        super().__init__(how.name, path, len(ids))
        self.ids = ids
        self.columns = {term: column for column, term in enumerate(terms)}
        self._index = getattr(seismic, kind).load(str(path / _INDEX))
        self._ranks = ranks
        self._how = how.query_cut, how.heap_factor, 0, True

    def adjusted(self, query_cut: int, heap_factor: float) -> "SeismicSearcher":
        """The same index, searched with other settings."""
        other = copy.copy(self)
        other._how = query_cut, heap_factor, 0, True
        return other

    def find(self, queries: Sequence[dict[str, float]], k: int, threads: int) -> list[Hits]:
        """Return about the k best. Scores are of weights that were rounded to 16-bit floats.

        The package's threads are started once in a process, as many as the first call asks for.
        """
        vectors = [self._vector(query) for query in queries]
        if threads > 1:
            found = self._search_together(vectors, k, threads)
        else:
            found = [self._index.search(*vector, k, *self._how) if len(vector[0]) else [] for vector in vectors]
        return [self._hits(one) for one in found]

    def _search_together(self, vectors: Sequence[tuple[NDArray, NDArray]], k: int, threads: int) -> list[list]:
        """The package's own threads read queries from a file; it has no other way to search with several."""
        os.environ.setdefault(_THREADS, str(threads))
        with tempfile.NamedTemporaryFile(suffix=".bin") as handle, full_disk_errors(Path(handle.name)):
            known = [vector for vector in vectors if len(vector[0])]
            handle.write(np.uint32(len(known)).tobytes())
            for columns, weights in known:
                handle.write(np.uint32(len(columns)).tobytes() + columns.tobytes() + weights.tobytes())
            handle.flush()
            found = iter(self._index.batch_search(handle.name, k, *self._how, threads) if known else [])
        return [next(found) if len(vector[0]) else [] for vector in vectors]

    def _vector(self, query: dict[str, float]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Columns, ascending, as Seismic wants them, and weights of the query's known terms."""
        known = sorted((self.columns[term], weight) for term, weight in query.items() if term in self.columns)
        return np.asarray([c for c, _ in known], np.int32), np.asarray([w for _, w in known], np.float32)

    def _hits(self, found: list[tuple[float, int]]) -> Hits:
        scores = np.asarray([score for score, _ in found], np.float32)
        rows = np.asarray([row for _, row in found], np.int64)
        order = np.lexsort((self._ranks[rows], -scores))
        order = order[scores[order] > 0]
        return Hits(self.ids.take(rows[order]), scores[order])


class _VectorFile:
    """Vectors as Seismic reads them: their number, then of each its length, columns and weights, 32 bits each."""

    def __init__(self, handle: IO[bytes]) -> None:
        self.ids: list[str] = []
        self.empty = 0
        self.postings = 0
        # The store's columns in the order of Seismic's, which are numbered as they are met.
        self.columns: list[int] = []
        self._handle = handle
        self._number = np.empty(0, np.int64)
        handle.write(np.uint32(0).tobytes())

    def add(self, names: list[str], batch: SparseBatch) -> None:
        """Write the documents that have terms. Raises MilcoError for weights and lengths beyond Seismic's limits."""
        lengths = batch.lengths()
        if lengths.max(initial=0) > _MAX_TERMS:
            row = int(lengths.argmax())
            raise MilcoError(
                f"document {shown(names[row])} has {lengths[row]:,} terms: Seismic takes up to {_MAX_TERMS:,}. Leave "
                "the weakest out with --prune, such as --prune top-k:1000"
            )
        large = np.flatnonzero(batch.weights > _MAX_WEIGHT)
        if len(large):
            name = names[batch.row_numbers()[large[0]]]
            raise MilcoError(
                f"document {shown(name)}: weight {batch.weights[large[0]]:,.0f}, Seismic takes up to {_MAX_WEIGHT:,.0f}"
            )
        columns = self._renumber(batch.columns)
        order = np.argsort(batch.row_numbers() * len(self.columns) + columns)
        full = np.flatnonzero(lengths)
        self._handle.write(_rows_as_bytes(lengths[full], columns[order], batch.weights[order]))
        self.ids += [names[row] for row in full]
        self.empty += len(names) - len(full)
        self.postings += len(columns)

    def close(self) -> None:
        """Write the number of documents, known only now, where it belongs."""
        self._handle.seek(0)
        self._handle.write(np.uint32(len(self.ids)).tobytes())

    def _renumber(self, columns: NDArray[np.int32]) -> NDArray[np.uint32]:
        missing = int(columns.max(initial=-1)) + 1 - len(self._number)
        self._number = np.concatenate([self._number, np.full(max(missing, 0), -1)])
        met = np.zeros(len(self._number), bool)
        met[columns] = True
        new = np.flatnonzero(met & (self._number < 0))
        self._number[new] = np.arange(len(self.columns), len(self.columns) + len(new))
        self.columns += new.tolist()
        return self._number[columns].astype(np.uint32)


def _rows_as_bytes(lengths: NDArray[np.int64], columns: NDArray[np.uint32], weights: NDArray[np.float32]) -> bytes:
    """Length, columns and weights of every row, one row after the other."""
    words = np.empty(len(lengths) + 2 * len(columns), np.uint32)
    before = np.cumsum(lengths) - lengths
    starts = np.arange(len(lengths)) + 2 * before
    words[starts] = lengths
    places = np.repeat(starts + 1 - before, lengths) + np.arange(len(columns))
    words[places] = columns
    words[places + np.repeat(lengths, lengths)] = weights.astype(np.float32).view(np.uint32)
    return words.tobytes()


def _ranks(ids: list[str]) -> NDArray[np.int32]:
    order = sorted(range(len(ids)), key=ids.__getitem__)
    ranks = np.empty(len(ids), np.int32)
    ranks[order] = np.arange(len(ids), dtype=np.int32)
    return ranks


def _run_builder(threads: int, *arguments: str) -> None:
    """Build in a process of its own. Raises MilcoError with the last line that it says if it fails."""
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, str(os.getpid()), *arguments],
        env={**os.environ, _THREADS: str(threads), "RUST_BACKTRACE": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        killed = "it was killed, probably for want of memory: leave terms out with --prune or --views pivot"
        said = done.stderr.strip().splitlines()
        raise MilcoError(f"Seismic cannot build the index: {said[-1] if said else killed}")


def _kind(columns: int) -> str:
    return "SeismicIndexRaw" if columns <= _NARROW else "SeismicIndexRawLV"


def _version() -> Any:
    return importlib.metadata.version(PACKAGE)
