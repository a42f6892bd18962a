"""The Seismic engine: approximate, by blocks of similar documents in every posting list (Bruch et al., SIGIR 2024).

The index of integer columns of pyseismic-lsr is used. Its index of strings truncates and joins long terms, so ids and
terms are in our own files. Columns that no document has are left out, because the builder takes time for every column
of every list. It holds Python's lock and writes to stdout, so it runs in a process of its own.
"""

import copy
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.console import counted, log
from milco_pyserini.errors import Message, MilcoError, require_package, shown
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.documents import CheckedDocuments
from milco_pyserini.index.hits import Hits
from milco_pyserini.index.protocol import APPROXIMATE, BUILD, SEARCH, BuildResult, Engine, EngineSearcher
from milco_pyserini.index.storage import StringTable, map_array, write_strings
from milco_pyserini.io.files import atomic_file, full_disk_errors, read_json, write_json
from milco_pyserini.io.records import IndexManifest
from milco_pyserini.options import option
from milco_pyserini.request import SearchRequest
from milco_pyserini.sparse import SparseBatch

__all__ = ["Seismic"]

PACKAGE = "pyseismic-lsr"
_INDEX = "index.seismic"
_ABOUT = "seismic.json"
_RANKS = "ranks.npy"
# Read by the package's thread pool when it is first used.
_THREADS = "RAYON_NUM_THREADS"
# Columns that fit into 16 bits make a smaller and faster index.
_NARROW = 1 << 16
# Weights are stored as 16-bit floats, the number of a document's terms as 16-bit integer.
_MAX_WEIGHT = 65504.0
_MAX_TERMS = 65535

# First the kernel is asked to end the builder with its parent, whatever ends that one (PR_SET_PDEATHSIG).
_BUILD = """
import ctypes, os, signal, sys
parent, kind, vectors, index, n_postings, energy = sys.argv[1:]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != int(parent):
        sys.exit("its parent has ended")
import seismic
getattr(seismic, kind).build(vectors, n_postings=int(n_postings), summary_energy=float(energy)).save(index)
"""


@dataclass(frozen=True)
class Seismic(Engine):
    """Approximate: the best documents are searched for in a part of the index, and may be missed.

    >>> Index.build("vectors/miracl-ar", "indexes/miracl-ar.seismic", Seismic(n_postings=500))  # doctest: +SKIP

    Settings that are not listed here have the package's defaults. n_postings buys recall with time, memory and disk.
    200 gives a recall@10 of .95 in 10,000 to 300,000 documents of 124 terms (benchmarks/topical_vectors.py): at 100,000
    it builds in half the time of 500, takes half the disk and two thirds of the memory, and answers a sixth faster when
    both are tuned to that recall; untuned, recall is .980 instead of .991. A longer list keeps a smaller share of its
    postings: at 300,000 documents the untuned recall is .950 (with 500: .987), and hardly any search settings bring it
    to .98. For more documents, or a higher recall, build with more. summary_energy buys recall with disk and memory:
    most of an index with many rare terms is summaries.
    """

    name = "seismic"
    exactness = APPROXIMATE
    capabilities = frozenset({Capability.BUILD, Capability.APPROXIMATE})
    tuned = MappingProxyType(
        {
            "query_cut": (3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 45, 64),
            "heap_factor": (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5),
        }
    )

    n_postings: int = option(
        200, group=BUILD, minimum=1, maximum=10**9, help="postings that a term keeps, on average; fewer build faster"
    )
    summary_energy: float = option(
        0.4, group=BUILD, minimum=0.05, maximum=1, help="share of the weight of its documents that a summary keeps"
    )
    query_cut: int = option(
        10, group=SEARCH, minimum=1, maximum=10**6, help="strongest terms of a query that are looked up"
    )
    heap_factor: float = option(
        0.9, group=SEARCH, minimum=0.01, maximum=1, help="skip blocks with bounds below this share of the k-th score"
    )

    def available(self) -> None:
        """Raise MilcoError if pyseismic-lsr is not installed."""
        require_package("seismic", "seismic", "engine seismic")

    def build(self, documents: CheckedDocuments, directory: Path, threads: int) -> BuildResult:
        """Write ids, terms, the ranks of ids, and Seismic's own file. The child process holds all vectors in memory."""
        vectors = directory / "vectors.bin"
        with vectors.open("wb") as handle:
            ids, used, empty, postings = _write_vectors(handle, documents.batches())
        if ids:
            columns = len(used)
            lists = f"{counted(columns, 'list')} of {postings:,} postings"
            log(f"Seismic clusters {lists}; it shows no progress (docs/seismic.md has times, memory and sizes)")
            kind = "SeismicIndexRaw" if columns <= _NARROW else "SeismicIndexRawLV"
            settings = str(self.n_postings), str(self.summary_energy)
            _run_builder(threads, kind, str(vectors), str(directory / _INDEX), *settings)
            terms = documents.terms
            write_strings(directory, "terms", [terms[column] for column in used])
            write_strings(directory, "ids", ids)
            ranks = np.empty(len(ids), np.int32)
            ranks[sorted(range(len(ranks)), key=ids.__getitem__)] = np.arange(len(ranks), dtype=np.int32)
            with atomic_file(directory / _RANKS) as handle:
                np.save(handle, ranks)
            size = (directory / _INDEX).stat().st_size
            version = importlib.metadata.version(PACKAGE)
            write_json(directory / _ABOUT, {"version": version, "kind": kind, "bytes": size})
        vectors.unlink()
        return BuildResult(len(ids), empty)

    def open(self, directory: Path, manifest: IndexManifest) -> "SeismicSearcher":
        """Load the index into memory."""
        return SeismicSearcher(directory, self)


class SeismicSearcher(EngineSearcher):
    """An open Seismic index. engine: the settings of searches."""

    def __init__(self, directory: Path, engine: Seismic) -> None:
        import seismic

        about, version = read_json(directory / _ABOUT), importlib.metadata.version(PACKAGE)
        if about["version"] != version:
            raise MilcoError(
                f"{directory} was built by {PACKAGE} {about['version']}, {version} is installed: build it again, or "
                f"pip install {PACKAGE}=={about['version']}"
            )
        size = (directory / _INDEX).stat().st_size
        if size != about["bytes"]:
            raise ValueError(f"{_INDEX} has {size:,} bytes, not {about['bytes']:,}")
        self.ids = StringTable(directory, "ids")
        super().__init__(engine.name, directory, len(self.ids))
        self.columns = {term: column for column, term in enumerate(StringTable(directory, "terms"))}
        # The position of each row's id among the sorted ids: int32 [documents].
        self._ranks = map_array(directory, _RANKS, np.int32, len(self.ids))
        self._index = getattr(seismic, about["kind"]).load(str(directory / _INDEX))
        self._settings = engine.query_cut, engine.heap_factor, 0, True

    def with_settings(self, query_cut: int, heap_factor: float) -> "SeismicSearcher":
        """Return the same index, searched with other settings."""
        other = copy.copy(self)
        other._settings = query_cut, heap_factor, 0, True
        return other

    def find(self, queries: Sequence[dict[str, float]], request: SearchRequest) -> list[Hits]:
        """Return about the k best. Scores are sums over weights that were rounded to 16-bit floats.

        The package starts its threads once per process, as many as the first call asks for.
        """
        vectors = []
        for query in queries:
            # Columns ascend, as Seismic needs them.
            known = sorted((self.columns[term], weight) for term, weight in query.items() if term in self.columns)
            columns = np.asarray([column for column, _ in known], np.int32)
            vectors.append((columns, np.asarray([weight for _, weight in known], np.float32)))
        k = request.k
        if request.threads > 1:
            results = self._search_in_threads(vectors, k, request.threads)
        else:
            results = [self._index.search(*vector, k, *self._settings) if len(vector[0]) else [] for vector in vectors]
        return [self._hits(result) for result in results]

    def _search_in_threads(self, vectors: Sequence[tuple[NDArray, NDArray]], k: int, threads: int) -> list[list]:
        """Search queries from a file: the package has no other way to search with several threads."""
        os.environ.setdefault(_THREADS, str(threads))
        with tempfile.NamedTemporaryFile(suffix=".bin") as handle, full_disk_errors(Path(handle.name)):
            known = [vector for vector in vectors if len(vector[0])]
            handle.write(np.uint32(len(known)).tobytes())
            for columns, weights in known:
                handle.write(np.uint32(len(columns)).tobytes() + columns.tobytes() + weights.tobytes())
            handle.flush()
            results = iter(self._index.batch_search(handle.name, k, *self._settings, threads) if known else [])
        return [next(results) if len(vector[0]) else [] for vector in vectors]

    def _hits(self, result: list[tuple[float, int]]) -> Hits:
        scores = np.asarray([score for score, _ in result], np.float32)
        rows = np.asarray([row for _, row in result], np.int64)
        order = np.lexsort((self._ranks[rows], -scores))
        order = order[scores[order] > 0]
        return Hits(self.ids.take(rows[order]), scores[order])


def _write_vectors(
    handle: IO[bytes], batches: Iterable[tuple[list[str], SparseBatch]]
) -> tuple[list[str], list[int], int, int]:
    """Write vectors as Seismic reads them: their number, then length, columns and weights of each, 32 bits each.

    Returns the ids that are written, the documents' columns in the order of Seismic's, which are numbered in the order
    of their first use, the number of documents without terms, and that of postings. Raises MilcoError for weights and
    lengths beyond Seismic's limits.
    """
    ids: list[str] = []
    columns: list[int] = []
    numbers = np.empty(0, np.int64)
    empty = postings = 0
    handle.write(np.uint32(0).tobytes())
    for names, batch in batches:
        lengths = batch.lengths()
        if lengths.max(initial=0) > _MAX_TERMS:
            row = int(lengths.argmax())
            message = f"document {shown(names[row])} has {lengths[row]:,} terms: Seismic takes up to {_MAX_TERMS:,}"
            raise MilcoError(message, Message("Drop the weakest, such as by {prune}.", prune="top-k:1000"))
        large = np.flatnonzero(batch.weights > _MAX_WEIGHT)
        if len(large):
            name = names[batch.row_numbers()[large[0]]]
            raise MilcoError(
                f"document {shown(name)}: weight {batch.weights[large[0]]:,.0f}, Seismic takes up to {_MAX_WEIGHT:,.0f}"
            )
        missing = int(batch.columns.max(initial=-1)) + 1 - len(numbers)
        numbers = np.concatenate([numbers, np.full(max(missing, 0), -1)])
        used = np.zeros(len(numbers), bool)
        used[batch.columns] = True
        new = np.flatnonzero(used & (numbers < 0))
        numbers[new] = np.arange(len(columns), len(columns) + len(new))
        columns += new.tolist()
        numbered = numbers[batch.columns].astype(np.uint32)
        order = np.argsort(batch.row_numbers() * len(columns) + numbered)
        full = np.flatnonzero(lengths)
        handle.write(_rows_as_bytes(lengths[full], numbered[order], batch.weights[order]))
        ids += [names[row] for row in full]
        empty += len(names) - len(full)
        postings += len(numbered)
    # Known only now.
    handle.seek(0)
    handle.write(np.uint32(len(ids)).tobytes())
    return ids, columns, empty, postings


def _rows_as_bytes(lengths: NDArray[np.int64], columns: NDArray[np.uint32], weights: NDArray[np.float32]) -> bytes:
    """Return length, columns and weights of every row, row by row."""
    words = np.empty(len(lengths) + 2 * len(columns), np.uint32)
    before = np.cumsum(lengths) - lengths
    starts = np.arange(len(lengths)) + 2 * before
    words[starts] = lengths
    places = np.repeat(starts + 1 - before, lengths) + np.arange(len(columns))
    words[places] = columns
    words[places + np.repeat(lengths, lengths)] = weights.astype(np.float32).view(np.uint32)
    return words.tobytes()


def _run_builder(threads: int, *arguments: str) -> None:
    """Build in a process of its own. Raises MilcoError with the last line of its stderr if it fails."""
    # -P: no module in the working directory is imported.
    done = subprocess.run(
        [sys.executable, "-P", "-c", _BUILD, str(os.getpid()), *arguments],
        env={**os.environ, _THREADS: str(threads), "RUST_BACKTRACE": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        killed = Message(
            "it was killed, probably for lack of memory: drop terms with {prune} or {views}", views="pivot"
        )
        lines = done.stderr.strip().splitlines()
        raise MilcoError(f"Seismic cannot build the index: {lines[-1] if lines else killed}")
