"""Explain the hits of an index, or the similarity of texts without an index."""

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isclose
from typing import TYPE_CHECKING

from milco_pyserini.corpora.records import PASSAGE
from milco_pyserini.errors import Message, MilcoError, UnknownDocument, shown
from milco_pyserini.explain.contributions import VectorTrace, trace_vector
from milco_pyserini.explain.explanation import Explanation
from milco_pyserini.explain.origins import EncodedText, encode_with_origins, validate_network
from milco_pyserini.explain.terms import ExplainedText, LostTerm, Term, match_terms, sum_scores
from milco_pyserini.index import Index
from milco_pyserini.index.hits import BalanceTerm, DocStore
from milco_pyserini.index.protocol import EngineSearcher
from milco_pyserini.index.weights import TermImpacts
from milco_pyserini.request import SearchRequest
from milco_pyserini.sparse import PlainStore, SparseBatch, VectorStore, Vocabulary

if TYPE_CHECKING:
    from milco_pyserini.corpora import Document
    from milco_pyserini.encode.contract import MilcoQueryEncoder
    from milco_pyserini.encode.encoder import MilcoEncoder

__all__ = ["Explainer"]

# Hits that the engine is asked for to find rank and score of a named document.
DEPTH = 1000
_THREE_HITS = SearchRequest(3)
# Rounding to the next impact, and bfloat16 with its three digits, stay within it.
_WEIGHT_TOLERANCE = 0.03
# Engines that store weights in 8 or 16 bits stay well within it.
_SCORE_TOLERANCE = 0.05
_EXTERNAL = "these are external vectors: the origins of the document's terms are unknown"
_CHANGED_TEXT = (
    "the text does not give the vector in the index: it has changed, or was encoded in another precision; the "
    "contributions are the index's own, but their origins may be wrong"
)
_FAR_SCORE = (
    "the engine's score is far from the sum of the contributions: the available text or vector is not what was "
    "indexed, or the engine scores differently"
)


# A document's text encoded again, or the trace of its stored vector, and {term: weight} as the index should have them;
# all None if neither is available.
_EncodedDocument = tuple[EncodedText | None, VectorTrace | None, Mapping[str, float] | None]


class Explainer:
    """Explains hits of an index of terms.

    Example:
        >>> explainer = Searcher.open("indexes/sample.lucene").explainer()
        >>> explainer.explain("Wer machte Penicillin zum Arzneimittel?", ["en-29"])[0]
        Explanation(docid='en-29', score=16,891, rank=2, 14 of 59 query terms matched)

    Args:
        index: an open index of terms.
        encoder: a query encoder that fits the index.
        documents: looks up documents by docid, those of passages by the passage's docid. Without documents and store,
            explanations have neither origins nor lost terms.
        store: the vector store that the index was built from, for documents without a text.
        searcher: the open index, if it is open already.
    """

    def __init__(
        self,
        index: Index,
        encoder: "MilcoQueryEncoder",
        documents: DocStore | None = None,
        store: VectorStore | PlainStore | None = None,
        searcher: EngineSearcher | None = None,
    ) -> None:
        validate_network(encoder.encoder)
        self.encoder = encoder
        self._documents = documents
        self._store = store
        if searcher is None:
            index, searcher = index.open_searcher()
        self.index, self._searcher = index, searcher
        self._engine = TermImpacts(searcher, index)

    def explain(
        self, query: str, docids: Sequence[str] = (), request: SearchRequest = _THREE_HITS
    ) -> list[Explanation]:
        """Explain the scores of the named documents in their order, or of the k best hits, best first.

        Args:
            request: that of the search.

        Raises:
            MilcoError: the index lacks one of the documents, cannot be searched in that way, or is closed.
        """
        self._searcher.require_open()
        self._searcher.validate(request)
        if request.alpha is not None or request.views:
            other = copy.copy(self)
            other.encoder = self.encoder.of_request(request)
            return other.explain(query, docids, replace(request, alpha=None, views=()))
        encoder, length = self.encoder.encoder.query_encoder, self.encoder.max_length
        encoded = encode_with_origins(encoder, query, length, self.encoder.lowercase, query=True)
        batch = encoded.batch.view(*self.encoder.views)
        vector = query_vector(batch, self.encoder.encoder.vocabulary, self.encoder.alpha)
        hits = self._searcher.rank([vector], replace(request, k=DEPTH) if docids else request)[0]
        ranked = {
            docid: (rank, score)
            for rank, (docid, score) in enumerate(zip(hits.docids, hits.scores.tolist(), strict=True), 1)
        }
        wanted = list(docids) or hits.docids
        # Before texts are read and encoded: an unknown docid is reported at once.
        terms = list(self._engine.query(vector))
        indexed = {docid: indexed_weights(self._engine, self.index, docid, terms) for docid in wanted}
        balances = self._searcher.balance_terms(vector, wanted, request.balance) if request.balance else {}
        explanations = []
        lookup = None if self.index.vectors.plain else self._documents
        found = {} if lookup is None else lookup(wanted)
        for docid in wanted:
            document = self._document(docid, found.get(docid))
            balance_term, place = balances.get(docid), ranked.get(docid, (None, None))
            explanations.append(self._explain(encoded, vector, docid, indexed[docid], document, balance_term, *place))
        return explanations

    def _explain(
        self,
        query: EncodedText,
        vector: dict[str, float],
        docid: str,
        indexed: Mapping[str, float] | None,
        document: _EncodedDocument,
        balance: BalanceTerm | None,
        rank: int | None,
        score: float | None,
    ) -> Explanation:
        engine, vocabulary, (encoded, trace, known) = self._engine, self.encoder.encoder.vocabulary, document
        numbers = engine.query(vector)
        if indexed is None:
            if known is None:
                raise MilcoError(
                    f"the terms of {shown(docid)} are unknown: a {self.index.manifest.engine} index cannot be read, "
                    "and neither text nor vector is available",
                    Message("Pass {vectors}."),
                )
            indexed = {term: weight for term, weight in known.items() if term in numbers}
        contributions = match_terms(numbers, indexed, vocabulary)
        total = sum_scores(contributions)
        notes = []
        if self.index.vectors.plain:
            notes.append(_EXTERNAL)
        elif encoded is None:
            rest = "its other terms are from the vector store" if trace else "only shared terms are known"
            notes.append(f"the index does not store the document's text: {rest}")
        elif trace and self._has_changed(trace, {term: number / engine.scale for term, number in indexed.items()}):
            notes.append(_CHANGED_TEXT)
            trace = known = None
        rounded, difference = engine.round_score(total), None
        if score is not None:
            difference = score - (rounded + (balance.score if balance else 0.0))
            if not engine.is_readable and not isclose(score, rounded, rel_tol=_SCORE_TOLERANCE):
                notes.insert(0, _FAR_SCORE)
            if rounded != total:
                notes.append(f"{self.index.manifest.engine} returns float32 scores: the sum is rounded to compare")
        weights = dict(indexed)
        if known is not None:
            others = {term: weight for term, weight in known.items() if term not in numbers}
            if engine.scale != 1:
                others = {term: round(weight * engine.scale) for term, weight in others.items()}
            weights = {**others, **indexed}
        text = encoded.explained(docid, weights) if encoded else ExplainedText(docid, None, weights)
        explanation = Explanation(
            query=query.explained("query", numbers),
            document=replace(text, complete=known is not None),
            engine=self.index.manifest.engine,
            exactness=self.index.manifest.exactness,
            unit=engine.unit,
            contributions=contributions,
            alpha=self.encoder.alpha,
            score=score,
            rank=rank,
            difference=difference,
            notes=tuple(notes),
            balance=balance,
            vocabulary=vocabulary,
        )
        return explanation if trace is None else self._with_losses(explanation, vector, trace)

    def _with_losses(self, explanation: Explanation, vector: dict[str, float], trace: VectorTrace) -> Explanation:
        """Add the terms that the steps from encoder to index removed. vector: the query's weights."""
        matched = {contribution.term.term for contribution in explanation.contributions}
        pruning = self.index.vectors.pruning
        lost, unpruned = [], 0.0
        for term, weight in vector.items():
            if term not in trace.encoded:
                continue
            score = weight * trace.encoded[term] * self._engine.unit
            unpruned += score
            if term in matched:
                continue
            if term in trace.removed:
                reason = trace.removed[term]
            elif term not in explanation.query.weights:
                reason = f"in the query, rounds to 0 at scale {self.index.manifest.query_scale:g}"
            else:
                # A rule applied to quantized weights, as the index was built, may break a tie differently.
                reason = f"pruning {pruning}" if pruning else "not in the index"
            described = Term.of(term, self.encoder.encoder.vocabulary)
            lost.append(LostTerm(described, weight, trace.encoded[term], score, reason))
        lost.sort(key=lambda match: -match.score)
        dropped = dict(Counter(trace.removed.values()))
        return replace(explanation, lost=tuple(lost), dropped=dropped, unpruned=unpruned)

    def _has_changed(self, trace: VectorTrace, indexed: Mapping[str, float]) -> bool:
        """Return True if the text encoded again does not give one in ten of the index's weights."""
        # Before pruning: an equally strong term may have been kept instead.
        encoded = trace.encoded
        slack = 1.0 / self.index.vectors.scale
        wrong = sum(
            abs(weight - encoded.get(term, 0.0)) > slack + _WEIGHT_TOLERANCE * weight
            for term, weight in indexed.items()
        )
        return wrong > len(indexed) / 10

    def _document(self, docid: str, document: "Document | None") -> _EncodedDocument:
        """Encode a document's text, or one passage of it, again, or look up its stored vector."""
        encoder, vectors, exactness = self.encoder.encoder, self.index.vectors, self.index.manifest.exactness
        if document is not None:
            number = PASSAGE.search(docid) if vectors.split_passages else None
            passage = None if number is None else int(number[1])
            # The manifest of vectors that were encoded in Python does not state it.
            length = vectors.max_length or encoder.config.passage_max_length
            text, lowercase = document.contents, bool(vectors.lowercase)
            encoded = encode_with_origins(encoder.query_encoder, text, length, lowercase, passage)
            if not encoder.query_encoder.network.encodes_documents:
                # BM25: the weights of the document's other terms are those of its statistics.
                return encoded, None, None
            trace = trace_vector(encoded.batch, encoder.vocabulary, exactness, vectors)
            return encoded, trace, trace.indexed
        if isinstance(self._store, PlainStore):
            impacts, scale = self._store.get(docid), self._store.manifest.scale
            return None, None, impacts and {term: impact / scale for term, impact in impacts.items()}
        vector = self._store.get(docid) if self._store else None
        if vector is None or self._store is None:
            return None, None, None
        trace = trace_vector(vector, encoder.vocabulary, exactness, vectors, self._store.manifest.pruning or "")
        return None, trace, trace.indexed


def indexed_weights(engine: TermImpacts, index: Index, docid: str, terms: Sequence[str]) -> Mapping[str, float] | None:
    """Return a document's weights of terms in the index, in the engine's numbers; None if the index cannot be read.

    Raises:
        UnknownDocument: the index has no such document.
    """
    if not engine.is_readable:
        return None
    numbers = engine.document(docid, terms)
    if numbers is None:
        passages = "; its documents are passages, ID#0, ID#1, ..." if index.vectors.split_passages else ""
        raise UnknownDocument(f"{index.path} has no document {shown(docid)}, or it has no terms{passages}")
    return numbers


def explain_texts(
    encoder: "MilcoEncoder", query: str, texts: Sequence[str], lowercase: bool = False, alpha: float | None = None
) -> list[Explanation]:
    """Explain each text as a document for the query, in the encoder's weights: no index, no pruning, no rounding.

    The total is a float64 sum of products of float32 weights.

    Args:
        encoder: an encoder of any kind; see encode.load_encoder().
        alpha: weight of the query's pivot view, in [0, 1]; its source view has 1 - alpha (default: both count fully).

    Raises:
        MilcoError: alpha is out of its range, or the encoder has only one view.
    """
    validate_network(encoder)
    from milco_pyserini.encode.contract import MilcoQueryEncoder

    queries, vocabulary = MilcoQueryEncoder(encoder).with_alpha(alpha), encoder.vocabulary
    encoded_query = encode_with_origins(encoder.query_encoder, query, queries.max_length, lowercase, query=True)
    vector = query_vector(encoded_query.batch, vocabulary, alpha)
    explanations = []
    for number, text in enumerate(texts, 1):
        encoded = encode_with_origins(encoder, text, encoder.config.passage_max_length, lowercase)
        weights = encoded.batch.to_dicts(vocabulary)[0]
        explanations.append(
            Explanation(
                query=encoded_query.explained("query", vector),
                document=encoded.explained(f"text {number}", weights),
                engine="no index",
                exactness="exact float",
                unit=1.0,
                contributions=match_terms(vector, weights, vocabulary),
                alpha=alpha,
                vocabulary=vocabulary,
            )
        )
    return explanations


def query_vector(batch: SparseBatch, vocabulary: Vocabulary, alpha: float | None) -> dict[str, float]:
    """Return the only vector of a batch as {term: weight}, its views weighted by alpha."""
    return (batch if alpha is None else batch.weighted(alpha)).to_dicts(vocabulary)[0]
