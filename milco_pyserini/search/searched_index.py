"""An open index with its encoder, one or several of which a searcher searches."""

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from milco_pyserini.console import log, printable
from milco_pyserini.corpora.languages import FIELD
from milco_pyserini.errors import MilcoError
from milco_pyserini.index.capabilities import Capability
from milco_pyserini.index.directory import Index, manifest_state, open_index
from milco_pyserini.index.hits import DocStore, Hits
from milco_pyserini.index.protocol import APPROXIMATE, QueryOptions
from milco_pyserini.index.vectors import index_query_encoder
from milco_pyserini.index.weights import TermImpacts
from milco_pyserini.io.records import RunIndex
from milco_pyserini.request import SearchRequest

if TYPE_CHECKING:
    from milco_pyserini.corpora import Document
    from milco_pyserini.encode.contract import MilcoQueryEncoder
    from milco_pyserini.explain.explainer import Explainer


class SearchedIndex:
    """An open index with its encoder, which is loaded when the first text is encoded.

    Several threads may share it: they search at the same time, and encode their queries one after the other.

    Args:
        queries: how queries are encoded.
        settings: settings of the engine for these searches, such as {"query_cut": 20}.
    """

    def __init__(
        self,
        index: Index,
        queries: QueryOptions | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.options = queries or QueryOptions()
        self._state = manifest_state(index.path)
        self.index, self.engine_searcher = index.open_searcher(settings)
        self._settings = settings or {}
        # torch keeps a team of threads for each thread that encodes.
        self._encoding = threading.Lock()
        is_stored = self.engine_searcher.fields is not None
        self.lookup: DocStore | None = self.engine_searcher.documents if is_stored else None

    def close(self) -> None:
        """Close the index and free the encoder; a second call has no effect."""
        self.engine_searcher.close()
        for name in ("query_encoder", "_explainer"):
            vars(self).pop(name, None)

    def reopened(self) -> "SearchedIndex":
        """Open the index as it is now, with the same options and the same encoder."""
        options = self.options
        if options.query_encoder is None and self.query_encoder is not None:
            options = replace(options, encoder=self.query_encoder.encoder)
        return SearchedIndex(open_index(self.index.path), options, self._settings)

    def refreshed(self) -> "SearchedIndex":
        """Return the index as it is now if an update has changed it, or else this one, which stays open.

        An index of another encoder, or one that cannot be opened, does not take its place.
        """
        if self.engine_searcher.is_closed or Capability.BUILD not in self.engine_searcher.capabilities:
            return self
        state = manifest_state(self.index.path)
        if state == self._state:
            return self
        self._state = state
        with contextlib.suppress(MilcoError):
            if open_index(self.index.path).vectors.weight_hash == self.index.vectors.weight_hash:
                return self.reopened()
        return self

    @cached_property
    def query_encoder(self) -> "MilcoQueryEncoder | None":
        """Converts texts to queries; None if texts are queries. Raises MilcoError if it does not fit the index."""
        encoder = index_query_encoder(self.index.vectors, self.options)
        alpha = getattr(encoder.encoder.config, "monolingual_alpha", None)
        if alpha is None or self.options.alpha is not None or len(encoder.views) < 2 or not self._is_monolingual:
            return encoder
        log(f"All documents of {self.name} are in one language: alpha is {alpha:g}")
        return encoder.with_alpha(alpha)

    @property
    def _is_monolingual(self) -> bool:
        """True if one language is known of the documents, and known of most."""
        counts = self.engine_searcher.values(FIELD) if FIELD in (self.engine_searcher.fields or ()) else None
        return counts is not None and len(counts) == 1 and 2 * sum(counts.values()) > self.engine_searcher.num_documents

    @property
    def name(self) -> str:
        """The directory of the index, for messages."""
        return str(self.index.path)

    def record(self, encodes: bool, approximate: bool = False) -> RunIndex:
        """Return what a run states about this index. encodes: topics are texts, so that the encoder is loaded."""
        from milco_pyserini.encode.plan import encoder_identity

        query_encoder = None
        if encodes and self.query_encoder is not None:
            encoder, alpha = self.query_encoder.encoder.query_encoder, self.query_encoder.alpha
            query_encoder = {"encoder": printable(str(encoder.name)), **encoder_identity(encoder), "alpha": alpha}
        engine = self.index.engine
        is_measured = (approximate or engine.exactness == APPROXIMATE) and not engine.tuned.keys() & self._settings
        return RunIndex(
            name=printable(self.name),
            engine=engine.name,
            generation=self.index.generation,
            documents=self.index.manifest.documents,
            vectors=self.index.vectors.without_files(),
            query_encoder=query_encoder,
            recall=self.index.manifest.recall if is_measured else None,
        )

    @property
    def has_documents(self) -> bool:
        """True if the index stores its documents."""
        return self.lookup is not None

    def documents(self, docids: Sequence[str]) -> "Mapping[str, Document]":
        """Return the available documents by docid."""
        self.engine_searcher.require_open()
        return {} if self.lookup is None else self.lookup(docids)

    def encode(self, texts: Sequence[str], request: SearchRequest) -> list[Any]:
        """Return a query of the engine for each text."""
        self.engine_searcher.require_open()
        if not len(texts):
            return []
        with self._encoding:
            encoder = self.query_encoder
            return list(texts) if encoder is None else encoder.of_request(request).encode_batch(list(texts))

    def rank(self, queries: Sequence[Any], request: SearchRequest) -> list[Hits]:
        """Return the engine's hits for each query, with what reads their texts and shares."""
        weights = self._weights
        return [
            replace(
                hits, lookup=self.lookup, shares_of=None if weights is None else partial(weights.matched_shares, query)
            )
            for query, hits in zip(queries, self.engine_searcher.rank(queries, request), strict=True)
        ]

    @property
    def explainer(self) -> "Explainer":
        """Explains the scores of documents."""
        self.engine_searcher.require_open()
        if self.options.query_encoder is not None:
            raise MilcoError("a score is explained by the encoder of the index: omit query_encoder")
        with self._encoding:
            return self._explainer

    @cached_property
    def _weights(self) -> TermImpacts | None:
        """The weights that the engine multiplies; None if its index cannot be read."""
        weights = TermImpacts(self.engine_searcher, self.index)
        return weights if weights.is_readable else None

    @cached_property
    def _explainer(self) -> "Explainer":
        # The only import from a later package: a convenience for users of the library. Nothing else here depends on it.
        from milco_pyserini.explain.contributions import find_store
        from milco_pyserini.explain.explainer import Explainer

        return Explainer(
            self.index,
            cast("MilcoQueryEncoder", self.query_encoder),
            self.lookup,
            find_store(self.index),
            self.engine_searcher,
        )


class SearchedTexts(SearchedIndex):
    """BM25 of the texts that a filled server stores, by the connections of its index, which closes them."""

    def __init__(self, index: SearchedIndex) -> None:
        self.options, self.index, self.lookup = index.options, index.index, index.lookup
        self._settings = index._settings
        self.engine_searcher = index.engine_searcher.bm25()
        self._encoding = threading.Lock()

    @property
    def name(self) -> str:
        """The name of the index and the queries that it takes."""
        return f"{super().name} (bm25)"

    @cached_property
    def query_encoder(self) -> None:
        """None: texts are queries."""
        return None
