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
from milco_pyserini.index.protocol import Hits
from milco_pyserini.sparse import DELIMITER
from milco_pyserini.sparse.quantization import quantize_vector

# A FieldDoc as Java prints it: "... fields=[761570.0, [64 6f 63 31]]", the score and the bytes of the docid.
_HIT = re.compile(r"fields=\[([^,]+), \[([0-9a-f ]*)\]\]")


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
        self._queries = autoclass("org.apache.lucene.util.QueryBuilder")(weighted_terms("delimitedBoost"))
        self._order = _score_then_docid()
        self._print = _HitPrinter()
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
        found = _HIT.findall(self._print(self._searcher.search(built, k, self._order, False)))
        docids = [_read_docid(docid) for _, docid in found]
        return Hits(docids, np.asarray([float(score) for score, _ in found], np.float32))


def weighted_terms(token_filter: str) -> Any:
    """An analyzer for "term<DELIMITER>weight term<DELIMITER>weight ...".

    token_filter: delimitedTermFrequency (weight to term frequency) or delimitedBoost (weight to query boost).
    """
    from jnius import autoclass

    make_map = autoclass("java.util.HashMap")
    split, join = make_map(), make_map()
    # Terms are short enough (sparse.terms), but the tokenizer would count their weights in.
    split.put("maxTokenLen", "1024")
    join.put("delimiter", DELIMITER)
    builder = autoclass("org.apache.lucene.analysis.custom.CustomAnalyzer").builder()
    return builder.withTokenizer("whitespace", split).addTokenFilter(token_filter, join).build()


def first_sentence(error: Any) -> str:
    """What a Java exception says, without the advice and the stack behind it; its name where it says nothing."""
    said = re.split(r"(?<=[.!?])\s|\n", (error.innermessage or "").strip(), maxsplit=1)[0]
    return said or str(error.classname)


class _HitPrinter:
    """Arrays.toString(hits.scoreDocs) as one call: a thousand hits cross into Python as one string.

    Crossing one by one takes five times as long as the search itself, and Python's lock.
    """

    def __init__(self) -> None:
        from jnius import autoclass

        find_class = autoclass("java.lang.Class").forName
        handles = autoclass("java.lang.invoke.MethodHandles")
        lookup = handles.publicLookup()
        method_type = autoclass("java.lang.invoke.MethodType").methodType
        hits, text = find_class("[Lorg.apache.lucene.search.ScoreDoc;"), find_class("java.lang.String")
        score_docs = lookup.findGetter(find_class("org.apache.lucene.search.TopDocs"), "scoreDocs", hits)
        arrays, objects = find_class("java.util.Arrays"), find_class("[Ljava.lang.Object;")
        to_string = lookup.findStatic(arrays, "toString", method_type(text, objects))
        self._handle = handles.filterReturnValue(score_docs, to_string.asType(method_type(text, hits)))
        self._only = autoclass("java.util.Collections").singletonList

    def __call__(self, top_docs: Any) -> str:
        return self._handle.invokeWithArguments(self._only(top_docs))


def _read_docid(printed: str) -> str:
    try:
        return bytes.fromhex(printed).decode()
    except ValueError:
        # Java prints a byte below 16 as one digit, which only ids with control characters have.
        return bytes(int(byte, 16) for byte in printed.split()).decode()


def _score_then_docid() -> Any:
    from jnius import autoclass

    field = autoclass("org.apache.lucene.search.SortField")
    docid = field("id", autoclass("org.apache.lucene.search.SortField$Type").STRING_VAL)
    return autoclass("org.apache.lucene.search.Sort")(field.FIELD_SCORE, docid)


def _deal(queries: Sequence[dict[str, float]], threads: int) -> list[Sequence[dict[str, float]]]:
    """One share for each thread: long and short queries stand in runs, so they are dealt in turn."""
    return [queries[first::threads] for first in range(threads)]
