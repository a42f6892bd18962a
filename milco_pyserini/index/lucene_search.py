"""Search of a Lucene impact index: LuceneImpactSearcher's docids and scores, without its detours.

Pyserini's searcher reads the whole dictionary when it opens (for an idf that impacts do not use), repeats each
query term as often as its impact says, sorts by docid as it goes, and loads the stored document of every hit. Here
a query goes to Java as one string, the postings of its terms are added up, the docids of the best are read from the
column that breaks ties, and ties are sorted at the end; scores and docids come back as one array of bytes.

Every posting of a query's terms is read. Lucene passes over postings that cannot matter; queries as long as MILCO's
leave few of those, and each posting that Lucene does read takes it longer (benchmarks/README.md).
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from milco_pyserini.index.lucene_java import REFERENCE, STRING, java_function
from milco_pyserini.index.protocol import Hits, Searcher
from milco_pyserini.sparse import DELIMITER
from milco_pyserini.sparse.quantization import quantize_vector

# No byte of UTF-8, whatever an id may hold.
_END = b"\xff"


class LuceneSearcher(Searcher):
    """A Lucene impact index that is open. Scores are sums of products of whole numbers, exact up to 2**24.

    scale: impact = round(weight x scale), as in the documents. Ties stand in ascending order of docid, also where
    k cuts through them (Anserini's BREAK_SCORE_TIES_BY_DOCID).
    """

    def __init__(self, engine: str, directory: Path, scale: float, documents: int) -> None:
        super().__init__(engine, directory, documents)
        open_index = java_function("ImpactSearcher", "open", f"({STRING}){REFERENCE}")
        self._find = java_function("ImpactSearcher", "search", f"({REFERENCE}{STRING}{STRING})[B")
        self.scale = scale
        self._index = open_index(str(directory.absolute()))
        # pyjnius defines the classes of what Java returns at their first use, and not safely in two threads at once.
        self._search({"a": 1 / scale}, 1)

    def find(self, queries: Sequence[dict[str, float]], k: int, threads: int) -> list[Hits]:
        """Scores are float32. Java works outside of Python's lock."""
        threads = min(threads, len(queries))
        if threads <= 1:
            return [self._search(query, k) for query in queries]
        with ThreadPoolExecutor(threads) as pool:
            shares = list(pool.map(lambda share: self._search_in_thread(share, k), _deal(queries, threads)))
        return [shares[number % threads][number // threads] for number in range(len(queries))]

    def _search_in_thread(self, queries: Sequence[dict[str, float]], k: int) -> list[Hits]:
        import jnius

        try:
            return [self._search(query, k) for query in queries]
        finally:
            jnius.detach()

    def _search(self, query: dict[str, float], k: int) -> Hits:
        impacts = quantize_vector(query, self.scale)
        if not impacts:
            return Hits([], np.empty(0, np.float32))
        text = "".join([f"{term}{DELIMITER}{impact} " for term, impact in impacts.items()])
        return _read_hits(self._find(self._index, text, str(k)).tostring())


def _read_hits(written: bytes) -> Hits:
    """What ImpactSearcher wrote: the number of hits and their scores, four bytes each, and docids that end in _END."""
    count = int.from_bytes(written[:4])
    scores = np.frombuffer(written, ">f4", count, 4).astype(np.float32)
    return Hits([docid.decode() for docid in written[4 + 4 * count :].split(_END)[:-1]], scores)


def _deal(queries: Sequence[dict[str, float]], threads: int) -> list[Sequence[dict[str, float]]]:
    """One share for each thread: long and short queries stand in runs, so they are dealt in turn."""
    return [queries[first::threads] for first in range(threads)]
