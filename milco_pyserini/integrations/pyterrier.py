"""MILCO in PyTerrier: transformers that encode documents and queries, and indexes of this package as artifacts.

    from milco_pyserini.integrations.pyterrier import Milco, MilcoIndex

    index = MilcoIndex("indexes/sample.lucene")
    search = index.retriever(num_results=10)
    hits = search.search("Wer erfand das Telefon?")

    milco = Milco("mini")  # for other engines of PyTerrier, such as PISA
    indexing = milco.doc_encoder() >> PisaIndex("sample.pisa", stemmer="none").toks_indexer(scale=1.0)

Columns have the names of PyTerrier's other packages for learned sparse retrieval: toks of documents, query_toks of
queries.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from milco_pyserini.defaults import DEFAULT_ENCODER
from milco_pyserini.encode import MilcoDocumentEncoder, MilcoEncoder, MilcoQueryEncoder, open_encoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.index import open_index
from milco_pyserini.index.directory import is_index
from milco_pyserini.index.protocol import Hits, QueryOptions
from milco_pyserini.index.sparse_engine import SparseEngine
from milco_pyserini.search import Searcher
from milco_pyserini.sparse.quantization import SCALE, quantize_vector

try:
    import pyterrier as pt
except ModuleNotFoundError:
    raise MilcoError("PyTerrier is not installed", "Run pip install 'milco-pyserini[pyterrier]'") from None

import pandas as pd

_FORMAT = {"type": "sparse_index", "format": "milco", "package_hint": "milco-pyserini"}


class Milco:
    """An encoder as PyTerrier's transformers, which share the loaded checkpoint.

    >>> milco = Milco("mini")
    >>> milco.query_encoder().search("Wer erfand das Telefon?").query_toks[0]  # doctest: +SKIP
    {'m_▁wer': 129, 'm_▁telefon': 117, ...}

    Vectors are impacts, integers as `milco encode` writes them: other engines must not scale them again.

    Args:
        encoder: what open_encoder() accepts or returns.
        device, dtype, english_prefix: as for open_encoder().
        scale: factor from weights to impacts.
        views, lowercase: as for MilcoEncoder.encode().

    Raises:
        MilcoError: as open_encoder() does; scale or views are not possible.
    """

    def __init__(
        self,
        encoder: str | os.PathLike | MilcoEncoder = DEFAULT_ENCODER,
        device: str = "auto",
        dtype: str = "auto",
        scale: float = SCALE,
        views: str | Sequence[str] | None = None,
        lowercase: bool = False,
        english_prefix: str = "",
    ) -> None:
        if isinstance(encoder, str | os.PathLike):
            encoder = open_encoder(encoder, device, dtype, english_prefix)
        self.encoder = encoder
        options: dict[str, Any] = {"scale": scale, "views": views, "lowercase": lowercase}
        self._documents = MilcoDocumentEncoder(encoder, **options)
        self._queries = MilcoQueryEncoder(encoder, **options)

    def doc_encoder(self, text_field: str = "text", batch_size: int = 64, verbose: bool = False) -> "TermEncoder":
        """Return a transformer of documents: adds toks, {term: impact}, to docno and text.

        Args:
            text_field: the column with the texts.
            batch_size: texts at a time.
            verbose: show progress.
        """
        return TermEncoder("milco.doc_encoder", self._documents.encode, text_field, "toks", batch_size, verbose)

    def query_encoder(self, alpha: float | None = None, batch_size: int = 64, verbose: bool = False) -> "TermEncoder":
        """Return a transformer of queries: adds query_toks, {term: impact}, to qid and query.

        Args:
            alpha: weigh the views: alpha x pivot + (1 - alpha) x source, alpha from 0 to 1.
            batch_size, verbose: as for doc_encoder().
        """
        queries = self._queries.with_alpha(alpha)

        def encode(texts: list[str]) -> list[dict[str, int]]:
            return [quantize_vector(query, queries.scale) for query in queries.encode_batch(texts)]

        return TermEncoder("milco.query_encoder", encode, "query", "query_toks", batch_size, verbose)


class TermEncoder(pt.Transformer):
    """Adds the terms of a column of texts. Milco makes it."""

    def __init__(
        self,
        name: str,
        encode: Callable[[list[str]], list[dict[str, int]]],
        text_field: str,
        output: str,
        batch_size: int,
        verbose: bool,
    ) -> None:
        self.name = name
        self.encode = encode
        self.text_field = text_field
        self.output = output
        self.batch_size = batch_size
        self.verbose = verbose

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Return the frame with one more column. Raises pt.validate.InputValidationError without the texts."""
        pt.validate.columns(inp, includes=[self.text_field])
        batches = _batches(inp[self.text_field].tolist(), self.batch_size, self.verbose, self.name)
        return inp.assign(**{self.output: [terms for batch in batches for terms in self.encode(batch)]})

    def __repr__(self) -> str:
        return f"{self.name}(text_field={self.text_field!r})"


class MilcoIndex(pt.Artifact):
    """An index that milco index or Index.build() wrote, of any engine.

    >>> index = MilcoIndex("indexes/sample.lucene")  # or pt.Artifact.load("indexes/sample.lucene")
    >>> pt.Experiment([index.retriever()], topics, qrels, ["nDCG@10"])  # doctest: +SKIP

    Args:
        path: directory of the index.
        encoder: a loaded encoder, or where the index's encoder is now; unset, it is the one of the manifest.
        device, dtype: as for open_encoder().

    Raises:
        MilcoError: there is no index at path, or it is not finished.
    """

    ARTIFACT_TYPE = _FORMAT["type"]
    ARTIFACT_FORMAT = _FORMAT["format"]
    ARTIFACT_PACKAGE_HINT = _FORMAT["package_hint"]

    def __init__(
        self,
        path: str | Path,
        encoder: str | os.PathLike | MilcoEncoder | None = None,
        device: str = "auto",
        dtype: str = "auto",
    ) -> None:
        super().__init__(path)
        self.index = open_index(path)
        self._encoder = encoder
        self._device = device
        self._dtype = dtype

    def retriever(
        self,
        num_results: int = 1000,
        alpha: float | None = None,
        threads: int = 1,
        batch_size: int = 64,
        verbose: bool = False,
    ) -> "MilcoRetriever":
        """Return a transformer of queries to results.

        Args:
            num_results: documents per query.
            alpha: weigh the views of queries: alpha x pivot + (1 - alpha) x source, alpha from 0 to 1.
            threads: threads that search.
            batch_size: queries that are encoded and searched at a time.
            verbose: show progress.

        Raises:
            MilcoError: a file of the index is damaged, or its engine is not available.
        """
        options = QueryOptions(self._encoder, self._device, self._dtype, alpha)
        searcher = Searcher(self.index, options)
        return MilcoRetriever(searcher, num_results, threads, batch_size, verbose)

    def __len__(self) -> int:
        """Return the number of documents."""
        return self.index.manifest["documents"]

    def __repr__(self) -> str:
        return f"MilcoIndex({str(self.path)!r})"


class MilcoRetriever(pt.Transformer):
    """Searches an index for queries, as Searcher does: qid and query in; docno, score and rank (from 0) are added.

    Indexes of sparse vectors also take query_toks, which come before query: {term: impact}, as query_encoder() makes
    them, or {term: weight} if a weight of the frame is not an integer.

    Args:
        searcher: an open index with its encoder.
        num_results, threads, batch_size, verbose: as for MilcoIndex.retriever().
    """

    def __init__(
        self, searcher: Searcher, num_results: int = 1000, threads: int = 1, batch_size: int = 64, verbose: bool = False
    ) -> None:
        self.searcher = searcher
        self.num_results = num_results
        self.threads = threads
        self.batch_size = batch_size
        self.verbose = verbose

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Return the hits of every query, best first, with the columns of the query.

        Raises pt.validate.InputValidationError if there are no queries, or results already.
        """
        with pt.validate.any(inp) as columns:
            if isinstance(self.searcher.index.engine, SparseEngine):
                columns.query_frame(extra_columns=["query_toks"], mode="query_toks")
            columns.query_frame(extra_columns=["query"], mode="query")
        rows: list[int] = []
        docnos: list[str] = []
        scores: list[float] = []
        ranks: list[int] = []
        search = self._search_terms if columns.mode == "query_toks" else self._search_texts
        for row, hits in enumerate(search(inp[columns.mode].tolist())):
            rows += [row] * len(hits)
            docnos += hits.docids
            scores += hits.scores.tolist()
            ranks += range(pt.model.FIRST_RANK, pt.model.FIRST_RANK + len(hits))
        return inp.iloc[rows].reset_index(drop=True).assign(docno=docnos, score=scores, rank=ranks)

    def fuse_rank_cutoff(self, k: int) -> "MilcoRetriever | None":
        """Return the same retriever for k documents, of which a pipeline with `% k` makes use."""
        if k >= self.num_results:
            return None
        return MilcoRetriever(self.searcher, k, self.threads, self.batch_size, self.verbose)

    def __repr__(self) -> str:
        return f"MilcoRetriever({str(self.searcher.index.path)!r}, num_results={self.num_results})"

    def _search_texts(self, texts: list[str]) -> Iterable[Hits]:
        for batch in _batches(texts, self.batch_size, self.verbose, repr(self)):
            yield from self.searcher.search_batch(batch, self.num_results, self.threads)

    def _search_terms(self, queries: list[dict[str, float]]) -> Iterable[Hits]:
        if all(float(weight).is_integer() for query in queries for weight in query.values()):
            # Which the searcher multiplies by.
            scale = self.searcher.index.query_scale
            queries = [{term: weight / scale for term, weight in query.items()} for query in queries]
        for batch in _batches(queries, self.batch_size, self.verbose, repr(self)):
            yield from self.searcher.engine_searcher.search(batch, self.num_results, self.threads)


def find_metadata(path: str, listing: Sequence[str]) -> dict[str, str] | None:
    """Return what PyTerrier needs to load the artifact at path, if it is an index of this package."""
    return dict(_FORMAT) if is_index(Path(path)) else None


def _batches(values: list[Any], size: int, verbose: bool, name: str) -> Iterable[list[Any]]:
    """Yield the values in batches, with progress by values."""
    with pt.tqdm(total=len(values), desc=name, unit="text", disable=not verbose) as progress:
        for start in range(0, len(values), size):
            yield values[start : start + size]
            progress.update(min(size, len(values) - start))
