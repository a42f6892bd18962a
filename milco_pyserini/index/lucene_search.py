"""Search of a Lucene impact index: LuceneImpactSearcher's docids and scores, without its detours.

Pyserini's searcher reads the whole dictionary when it opens (for an idf that impacts do not use), repeats each
query term as often as its impact says, and loads the stored document of every hit. Here a query is one string that
Lucene's own classes make into the same BooleanQuery, and docids come with the sort values that break ties.
"""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from milco_pyserini import jvm
from milco_pyserini.errors import MilcoError
from milco_pyserini.index.lucene_hits import HitReader
from milco_pyserini.index.protocol import Hits
from milco_pyserini.sparse import DELIMITER
from milco_pyserini.sparse.quantization import quantize_vector

_ANALYSIS = "org.apache.lucene.analysis"
FREQUENCY = f"{_ANALYSIS}.miscellaneous.DelimitedTermFrequencyTokenFilterFactory"
BOOST = f"{_ANALYSIS}.boost.DelimitedBoostTokenFilterFactory"


class LuceneSearcher:
    """A Lucene impact index that is open. Scores are sums of products of whole numbers, exact up to 2**24.

    scale: impact = round(weight x scale), as in the documents. Ties stand in ascending order of docid, also where
    k cuts through them (Anserini's BREAK_SCORE_TIES_BY_DOCID).
    """

    def __init__(self, directory: Path, scale: float) -> None:
        from jnius import JavaException, autoclass, cast

        jvm.start()
        self.scale = scale
        path = autoclass("java.nio.file.Paths").get(str(directory))
        try:
            files = autoclass("org.apache.lucene.store.FSDirectory").open(path)
            reader = autoclass("org.apache.lucene.index.DirectoryReader").open(files)
        except JavaException as error:
            raise MilcoError(f"{directory} is damaged, build it again: {first_sentence(error)}") from None
        make_searcher = autoclass("org.apache.lucene.search.IndexSearcher")
        # A query has as many clauses as terms; the default limit of 1,024 is against careless wildcards.
        make_searcher.setMaxClauseCount(2**31 - 1)
        self._searcher = make_searcher(cast("org.apache.lucene.index.IndexReader", reader))
        self._searcher.setSimilarity(autoclass("io.anserini.search.similarity.ImpactSimilarity")())
        self._queries = autoclass("org.apache.lucene.util.QueryBuilder")(weighted_terms(BOOST))
        self._order = _score_then_docid()
        self._read = HitReader()
        # pyjnius defines the classes of what Java returns at their first use, and not safely in two threads at once.
        for query in ({"a": 1 / scale}, {"a": 1 / scale, "b": 1 / scale}):
            self._search(query, 1)

    def search(self, queries: Sequence[dict[str, float]], k: int, threads: int = 1) -> list[Hits]:
        """The k best documents for each query; scores float32. Java works outside of Python's lock."""
        if threads == 1:
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
        text = " ".join([f"{term}{DELIMITER}{impact}" for term, impact in impacts.items()])
        built = self._queries.createBooleanQuery("contents", text)
        if built is None:
            return Hits([], np.empty(0, np.float32))
        # The score is the first sort value: computing it once more for every hit (True) would cost the search again.
        return self._read(self._searcher.search(built, k, self._order, False))


def weighted_terms(token_filter: str) -> Any:
    """An analyzer for "term<DELIMITER>weight term<DELIMITER>weight ...".

    token_filter: FREQUENCY (weight to term frequency) or BOOST (weight to query boost).
    """
    from jnius import autoclass

    find_class = autoclass("java.lang.Class").forName
    make_map = autoclass("java.util.HashMap")
    split, join = make_map(), make_map()
    # Terms are short enough (sparse.terms), but the tokenizer would count their weights in.
    split.put("maxTokenLen", "1024")
    join.put("delimiter", DELIMITER)
    # By class: to find it by its name, Lucene loads every filter that it has, a third of the time to open an index.
    tokenizer = find_class(f"{_ANALYSIS}.core.WhitespaceTokenizerFactory")
    builder = autoclass(f"{_ANALYSIS}.custom.CustomAnalyzer").builder()
    return builder.withTokenizer(tokenizer, split).addTokenFilter(find_class(token_filter), join).build()


def first_sentence(error: Any) -> str:
    """What a Java exception says, without the advice and the stack behind it; its name where it says nothing."""
    said = re.split(r"(?<=[.!?])\s|\n", (error.innermessage or "").strip(), maxsplit=1)[0]
    return said or str(error.classname)


def _score_then_docid() -> Any:
    from jnius import autoclass

    field = autoclass("org.apache.lucene.search.SortField")
    docid = field("id", autoclass("org.apache.lucene.search.SortField$Type").STRING_VAL)
    return autoclass("org.apache.lucene.search.Sort")(field.FIELD_SCORE, docid)


def _deal(queries: Sequence[dict[str, float]], threads: int) -> list[Sequence[dict[str, float]]]:
    """One share for each thread: long and short queries stand in runs, so they are dealt in turn."""
    return [queries[first::threads] for first in range(threads)]
