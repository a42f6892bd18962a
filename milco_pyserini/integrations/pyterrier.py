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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Unpack

from milco_pyserini.corpora import Document
from milco_pyserini.defaults import DEFAULT_ENCODER
from milco_pyserini.encode.contract import MilcoDocumentEncoder, MilcoQueryEncoder, as_encoder
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import Message, MilcoError, installed_by, shown, validate_name
from milco_pyserini.index.directory import is_index
from milco_pyserini.options import validate_number
from milco_pyserini.request import SearchKeywords, SearchRequest
from milco_pyserini.search import Searcher
from milco_pyserini.sparse.quantization import SCALE, quantize_vector

with installed_by("'.[pyterrier]'"):
    import pandas as pd
    import pyterrier as pt

__all__ = ["Milco", "MilcoIndex"]

_TEXTS = ("text", "title", "contents")
_FORMAT = {"type": "sparse_index", "format": "milco", "package_hint": "milco-pyserini"}


class Milco:
    """An encoder as PyTerrier's transformers, which share the loaded checkpoint.

    >>> milco = Milco("mini")
    >>> milco.query_encoder().search("Wer erfand das Telefon?").query_toks[0]  # doctest: +SKIP
    {'m_▁wer': 129, 'm_▁telefon': 117, ...}

    Vectors are impacts, integers as `milco encode` writes them: other engines must not scale them again.

    Args:
        encoder: what load_encoder() accepts or returns.
        device, dtype, english_prefix: as for load_encoder().
        scale: factor from weights to impacts.
        views, lowercase: as for MilcoEncoder.encode().

    Raises:
        MilcoError: as load_encoder() does; scale or views are not possible.
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
        self.encoder = as_encoder(encoder, device, dtype, english_prefix)
        options: dict[str, Any] = {"scale": scale, "views": views, "lowercase": lowercase}
        self._documents = MilcoDocumentEncoder(self.encoder, **options)
        self._queries = MilcoQueryEncoder(self.encoder, **options)

    def doc_encoder(self, text_field: str = "text", batch_size: int = 64, verbose: bool = False) -> "TermEncoder":
        """Return a transformer of documents: adds toks, {term: impact}, to docno and text.

        Args:
            text_field: the column with the texts.
            batch_size: texts at a time.
            verbose: show progress.
        """
        return TermEncoder(self._documents.encode, text_field, "toks", batch_size, verbose)

    def query_encoder(self, alpha: float | None = None, batch_size: int = 64, verbose: bool = False) -> "TermEncoder":
        """Return a transformer of queries: adds query_toks, {term: impact}, to qid and query.

        Args:
            alpha: weigh the views: alpha x pivot + (1 - alpha) x source, alpha from 0 to 1.
            batch_size, verbose: as for doc_encoder().
        """
        queries = self._queries.with_alpha(alpha)

        def encode(texts: list[str]) -> list[dict[str, int]]:
            return [quantize_vector(query, queries.scale) for query in queries.encode_batch(texts)]

        return TermEncoder(encode, "query", "query_toks", batch_size, verbose)

    def scorer(self, text_field: str = "text", batch_size: int = 64, verbose: bool = False) -> "MilcoScorer":
        """Return a transformer that scores the texts of other retrievers' results. Arguments as for doc_encoder()."""
        documents = self.doc_encoder(text_field, batch_size, verbose)
        return MilcoScorer(self.query_encoder(batch_size=batch_size), documents)


@dataclass(eq=False)
class TermEncoder(pt.Transformer):
    """Adds the terms of a column of texts. Milco makes it."""

    encode: Callable[[list[str]], list[dict[str, int]]] = field(repr=False)
    text_field: str
    output: str
    batch_size: int
    verbose: bool

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Return the frame with one more column. Raises pt.validate.InputValidationError without the texts."""
        pt.validate.columns(inp, includes=[self.text_field])
        batches = _batches(inp[self.text_field].tolist(), self.batch_size, self.verbose, self.output)
        return inp.assign(**{self.output: [terms for batch in batches for terms in self.encode(batch)]})


@dataclass(eq=False)
class MilcoScorer(pt.Transformer):
    """Scores results by the impacts of query and text: replaces score and rank. Milco makes it."""

    queries: TermEncoder
    documents: TermEncoder

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Return the frame with new scores and ranks. Raises pt.validate.InputValidationError without the texts."""
        pt.validate.columns(inp, includes=["qid", "query", self.documents.text_field])
        distinct = self.queries.transform(inp[["query"]].drop_duplicates())
        terms = dict(zip(distinct["query"], distinct["query_toks"], strict=True))
        toks = self.documents.transform(inp)["toks"]
        scores = [
            float(sum(weight * document.get(term, 0) for term, weight in terms[query].items()))
            for query, document in zip(inp["query"], toks, strict=True)
        ]
        return pt.model.add_ranks(inp.assign(score=scores))


class MilcoIndex(pt.Artifact):
    """An index that milco index or Index.build() wrote, of any engine.

    >>> index = MilcoIndex("indexes/sample.lucene")  # doctest: +SKIP
    >>> pt.Experiment([index.retriever()], topics, qrels, ["ndcg_cut_10"])  # doctest: +SKIP

    Args:
        path: directory of the index.
        encoder: a loaded encoder, or where the index's encoder is now; unset, it is the one of the manifest.
        device, dtype: as for load_encoder().

    Raises:
        MilcoError: there is no index at path, a file of it is damaged, or its engine is not available.
    """

    ARTIFACT_TYPE = _FORMAT["type"]
    ARTIFACT_FORMAT = _FORMAT["format"]
    ARTIFACT_PACKAGE_HINT = _FORMAT["package_hint"]

    def __init__(
        self,
        path: str | Path,
        encoder: str | Path | MilcoEncoder | None = None,
        device: str = "auto",
        dtype: str = "auto",
    ) -> None:
        super().__init__(path)
        self.searcher = Searcher.open(path, encoder, device=device, dtype=dtype)

    def retriever(
        self, num_results: int = 1000, batch_size: int = 64, verbose: bool = False, **options: Unpack[SearchKeywords]
    ) -> "MilcoRetriever":
        """Return a transformer of queries to results. Arguments as for MilcoRetriever."""
        return MilcoRetriever(self, num_results, batch_size, verbose, options)

    def text_loader(self, *fields: str) -> "MilcoTextLoader":
        """Return a transformer that adds the texts of results, for rerankers. Arguments as for MilcoTextLoader.

        Raises:
            MilcoError: the index stores its documents, and none has such a field.
        """
        stored = self.searcher.engine_searcher.fields
        if stored is not None:
            for name in fields:
                validate_name("field", name, [*_TEXTS, *stored])
        return MilcoTextLoader(self, fields or ("text",))

    def __len__(self) -> int:
        """Return the number of documents."""
        return self.searcher.index.manifest.documents

    def __repr__(self) -> str:
        return f"MilcoIndex({str(self.path)!r})"


@dataclass(eq=False)
class MilcoRetriever(pt.Transformer):
    """Searches an index for queries, as Searcher does: qid and query in; docno, score and rank (from 0) are added.

    Indexes of sparse vectors also take query_toks, which come before query: {term: impact} with int impacts, as
    query_encoder() makes them, or {term: weight} with float weights.

    Args:
        index: an open index.
        num_results: documents per query.
        batch_size: queries that are encoded and searched at a time.
        verbose: show progress.
        options: those of Searcher.search(), such as filters, threads and alpha; query_encoder() weighs query_toks.
    """

    index: MilcoIndex
    num_results: int = 1000
    batch_size: int = 64
    verbose: bool = False
    options: SearchKeywords = field(default_factory=lambda: SearchKeywords())

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Return the hits of every query, best first, with the columns of the query.

        Raises:
            pt.validate.InputValidationError: there are no queries, or results already.
            MilcoError: query_toks are not dicts, or alpha is given for them.
        """
        searcher = self.index.searcher
        with pt.validate.any(inp) as columns:
            columns.query_frame(extra_columns=["query_toks"], mode="query_toks")
            columns.query_frame(extra_columns=["query"], mode="query")
        queries = inp[columns.mode].tolist()
        is_text = columns.mode == "query"
        request = SearchRequest.of(self.num_results, self.options)
        searcher.validate(request)
        if not is_text:
            if request.alpha is not None:
                raise MilcoError("alpha weighs the views of texts, not of query_toks: pass it to query_encoder()")
            # The searcher multiplies by it.
            queries = [_weights(query, searcher.index.manifest.query_scale) for query in queries]
        rows: list[int] = []
        docnos: list[str] = []
        scores: list[float] = []
        ranks: list[int] = []
        found = (
            hits
            for batch in _batches(queries, self.batch_size, self.verbose, repr(self.index))
            for hits in searcher.rank(
                searcher.encode(batch, request) if is_text else [(query,) for query in batch], request
            )
        )
        for row, hits in enumerate(found):
            rows += [row] * len(hits)
            docnos += hits.docids
            scores += hits.scores.tolist()
            ranks += range(pt.model.FIRST_RANK, pt.model.FIRST_RANK + len(hits))
        return inp.iloc[rows].reset_index(drop=True).assign(docno=docnos, score=scores, rank=ranks)

    def fuse_rank_cutoff(self, k: int) -> "MilcoRetriever | None":
        """Return the same retriever for k documents, of which a pipeline with `% k` makes use."""
        return replace(self, num_results=k) if k < self.num_results else None


@dataclass(eq=False)
class MilcoTextLoader(pt.Transformer):
    """Adds texts of documents to a frame with docno: those that the index stores.

    Args:
        index: an open index.
        fields: columns to add: text, title, contents (both), or a field of the documents.
    """

    index: MilcoIndex
    fields: Sequence[str]

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Return the frame with a column for each field; None where a document lacks it.

        Raises:
            pt.validate.InputValidationError: there is no docno.
            MilcoError: a document is not available.
        """
        pt.validate.columns(inp, includes=["docno"])
        documents = self.index.searcher.documents(inp["docno"].unique().tolist())
        if missing := [docno for docno in inp["docno"] if docno not in documents]:
            fix = Message("Build the index with {store_documents}.", store_documents=True)
            raise MilcoError(f"the text of {missing[0]} is not available", fix)
        found = [documents[docno] for docno in inp["docno"]]
        return inp.assign(**{name: [_field(document, name) for document in found] for name in self.fields})


def _field(document: Document, name: str) -> Any:
    return getattr(document, name) if name in _TEXTS else document.fields.get(name)


def find_metadata(path: str, listing: Sequence[str]) -> dict[str, str] | None:
    """Return what PyTerrier needs to load the artifact at path, if it is an index of this package."""
    return dict(_FORMAT) if is_index(Path(path)) else None


def _weights(query: Any, scale: float) -> dict[str, float]:
    """Return the weights of query_toks: impacts, which are integers, are divided by the scale."""
    if not isinstance(query, Mapping):
        raise MilcoError(f"query_toks: expected a dict of terms and impacts, got {shown(str(query))}")
    is_impact = all(isinstance(weight, Integral) for weight in query.values())
    return {term: weight / scale for term, weight in query.items()} if is_impact else dict(query)


def _batches(values: list[Any], size: int, verbose: bool, name: str) -> Iterable[list[Any]]:
    """Yield the values in batches, with progress by values."""
    validate_number("batch_size", size, minimum=1)
    with pt.tqdm(total=len(values), desc=name, unit="text", disable=not verbose) as progress:
        for start in range(0, len(values), size):
            yield values[start : start + size]
            progress.update(min(size, len(values) - start))
