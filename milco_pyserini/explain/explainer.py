"""Explanations of an index's hits, and of two texts without an index."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from milco_pyserini.errors import MilcoError, shown
from milco_pyserini.explain.documents import Documents, Known
from milco_pyserini.explain.losses import Account
from milco_pyserini.explain.numbers import open_numbers
from milco_pyserini.explain.origins import Reading, read_text
from milco_pyserini.explain.parts import Explanation, Hit, Lost, Side, Term, matched, total
from milco_pyserini.explain.sources import ScannedTexts, Texts, corpus_of, store_of
from milco_pyserini.index import Index, open_index
from milco_pyserini.sparse import PlainStore, SparseBatch, VectorStore, Vocabulary

if TYPE_CHECKING:
    from milco_pyserini.encode import MilcoEncoder, MilcoQueryEncoder

# How deep the engine is asked for the rank and the score of a document that somebody names.
DEPTH = 1000
# Engines that hold weights in 8 or 16 bits stay well within it.
_TOLERANCE = 0.05
_FAR = (
    "the engine's score is far from the sum of the parts: what is at hand is not what was indexed, or the engine "
    "counts in other numbers"
)


class Explainer:
    """Explains what an index finds.

    encoder: the index's own (encode.open_query_encoder). texts, store: where documents' texts and whole vectors are,
    None where they are not at hand; then explanations lack what needs them, and say so. alpha: a query is alpha x its
    pivot view and (1 - alpha) x its source view, as with search --alpha. Raises MilcoError as check_alpha() does.
    """

    def __init__(
        self,
        index: Index,
        encoder: "MilcoQueryEncoder",
        texts: Texts | None = None,
        store: VectorStore | PlainStore | None = None,
        alpha: float | None = None,
    ) -> None:
        check_alpha(alpha, encoder.views)
        self.index = index
        self.encoder = encoder
        self.alpha = alpha
        self._searcher = index.searcher()
        self._numbers = open_numbers(index, self._searcher)
        self._documents = Documents(index, encoder.encoder, texts, store)

    @classmethod
    def open(
        cls,
        index: Index | str | Path,
        encoder: "MilcoQueryEncoder | str | None" = None,
        corpus: str | None = None,
        vectors: Path | None = None,
        alpha: float | None = None,
        device: str = "auto",
        dtype: str = "auto",
    ) -> Self:
        """Open an explainer with the index's own encoder, and the texts and vectors it was built from if available.

        Args:
            index: An open index, or the directory of one.
            encoder: A query encoder that fits the index, or where the index's encoder is now (default: the manifest's).
            corpus: Name or path of the index's documents (default: where they were encoded; nothing is downloaded).
            vectors: The vector store that the index was built from (default: vectors/NAME).
        """
        from milco_pyserini.encode import MilcoQueryEncoder, open_query_encoder

        if not isinstance(index, Index):
            index = open_index(index, sparse=True)
        documents, store = corpus_of(index.vectors, corpus), store_of(index, vectors)
        if not isinstance(encoder, MilcoQueryEncoder):
            encoder = open_query_encoder(index.vectors, encoder, device, dtype)
        return cls(index, encoder, ScannedTexts(documents) if documents else None, store, alpha)

    def search(self, query: str, hits: int) -> list[Hit]:
        """The best hits as the search command finds them, best first, without explanations: nothing else is encoded."""
        encoder = self.encoder
        batch = encoder.encoder.encode([query], encoder.max_length, encoder.views, encoder.lowercase).batch
        vector = _query_vector(batch, encoder.encoder.vocabulary, self.alpha)
        found = self._searcher.search([vector], hits)[0]
        texts = self._documents.texts(found.docids)
        return [
            Hit(docid, score, self._numbers.unit, texts.get(docid))
            for docid, score in zip(found.docids, found.scores.tolist(), strict=True)
        ]

    def explain(self, query: str, docids: Sequence[str] = (), hits: int = 3) -> list[Explanation]:
        """The documents of these ids in their order; without ids, the best hits, best first.

        Raises MilcoError for a document that the index does not have.
        """
        reading = read_text(self.encoder.encoder, query, self.encoder.max_length, self.encoder.lowercase)
        vector = _query_vector(reading.batch.view(*self.encoder.views), self.encoder.encoder.vocabulary, self.alpha)
        found = self._searcher.search([vector], DEPTH if docids else hits)[0]
        ranks = {docid: rank for rank, docid in enumerate(found.docids, 1)}
        wanted = list(docids) or found.docids
        # Before texts are looked for and read: an id that is not there is known at once.
        numbers = {docid: self._numbers_of(docid, vector) for docid in wanted}
        known = self._documents.find(wanted)
        explained = []
        for docid in wanted:
            explanation = self._explain(reading, vector, docid, numbers[docid], known[docid])
            if docid in ranks:
                rank = ranks[docid]
                explanation = self._scored(explanation, float(found.scores[rank - 1]), rank)
            explained.append(explanation)
        return explained

    def _numbers_of(self, docid: str, vector: dict[str, float]) -> dict[str, float] | None:
        """What the index has of the query's terms for a document; None where an index cannot be asked."""
        if not self._numbers.in_index:
            return None
        numbers = self._numbers.document(docid, list(self._numbers.query(vector)))
        if numbers is None:
            passages = "; its documents are passages, ID#0, ID#1, ..." if self._documents.passages else ""
            raise MilcoError(f"{self.index.path} has no document {shown(docid)}, or one without terms{passages}")
        return numbers

    def _explain(
        self, reading: Reading, vector: dict[str, float], docid: str, numbers: dict[str, float] | None, known: Known
    ) -> Explanation:
        vocabulary, query = self.encoder.encoder.vocabulary, self._numbers.query(vector)
        if numbers is None:
            numbers = self._numbers_elsewhere(docid, query, known)
        parts = matched(query, numbers, vocabulary)
        weights = {term: number / self._numbers.scale for term, number in numbers.items()}
        known, notes = self._documents.judged(known, weights)
        text = known.reading
        explanation = Explanation(
            query=Side("query", reading.text, query, True, reading.read, reading.origins),
            document=Side(
                docid,
                text.text if text else None,
                numbers if known.weights is None else {**self._as_numbers(known.weights, query), **numbers},
                known.weights is not None,
                text.read if text else 0,
                text.origins if text else {},
            ),
            engine=self.index.manifest["engine"],
            exactness=self.index.manifest["exactness"],
            unit=self._numbers.unit,
            parts=parts,
            total=total(parts),
            alpha=self.alpha,
            notes=tuple(notes),
            vocabulary=vocabulary,
        )
        return explanation if known.account is None else self._with_losses(explanation, vector, known.account)

    def _numbers_elsewhere(self, docid: str, query: Mapping[str, float], known: Known) -> dict[str, float]:
        """The document's numbers for the query's terms, of an engine that cannot be asked for them."""
        if known.weights is None:
            raise MilcoError(
                f"an index of {self.index.manifest['engine']} cannot be asked for a document's terms, and neither "
                f"text nor vector of {shown(docid)} is at hand: give --corpus or --vectors"
            )
        return {term: weight for term, weight in known.weights.items() if term in query}

    def _as_numbers(self, weights: Mapping[str, float], query: Mapping[str, float]) -> dict[str, float]:
        """The document's weights of terms that the query lacks, as the engine's numbers."""
        scale = self._numbers.scale
        rest = {term: weight for term, weight in weights.items() if term not in query}
        return rest if scale == 1 else {term: round(weight * scale) for term, weight in rest.items()}

    def _with_losses(self, explanation: Explanation, vector: dict[str, float], account: Account) -> Explanation:
        """The explanation with what the steps to the index took away. vector: the query's weights."""
        unit, held = explanation.unit, {part.term.term for part in explanation.parts}
        shared = [term for term in vector if term in account.weights]
        lost = [
            Lost(
                Term.of(term, self.encoder.encoder.vocabulary),
                vector[term],
                account.weights[term],
                vector[term] * account.weights[term] * unit,
                self._why(term, explanation, account),
            )
            for term in shared
            if term not in held
        ]
        return replace(
            explanation,
            lost=tuple(sorted(lost, key=lambda one: -one.contribution)),
            dropped=dict(Counter(account.why.values())),
            unpruned=sum(vector[term] * account.weights[term] for term in shared) * unit,
        )

    def _why(self, term: str, explanation: Explanation, account: Account) -> str:
        if term in account.why:
            return account.why[term]
        if term not in explanation.query.weights:
            return f"in the query, rounds to 0 at scale {self.index.query_scale:g}"
        # A rule that was applied to rounded weights, when the index was built, may decide a tie otherwise.
        rules = self.index.vectors.get("pruning")
        return f"pruning {rules}" if rules else "the index does not have it"

    def _scored(self, explanation: Explanation, score: float, rank: int) -> Explanation:
        rounded = self._numbers.rounded(explanation.total)
        notes = explanation.notes
        if not self._numbers.in_index and not isclose(score, rounded, rel_tol=_TOLERANCE):
            notes = (_FAR, *notes)
        if rounded != explanation.total:
            notes = (*notes, f"{explanation.engine} gives its scores in float32: the sum is compared as such")
        return replace(explanation, score=score, rank=rank, difference=score - rounded, notes=notes)


def explain(
    index: Index | str | Path,
    query: str,
    docids: Sequence[str] = (),
    hits: int = 3,
    encoder: "MilcoQueryEncoder | str | None" = None,
    **options: Any,
) -> list[Explanation]:
    """Explain the scores of some documents of an index for a query, or of its best hits.

    For several queries, Explainer.open(index) loads everything once.

    Args:
        index: An open index, or the directory of one.
        query: The query's text.
        docids: Documents to explain, in this order (default: the best hits, best first).
        hits: Number of best hits where no docids are given.
        encoder: A query encoder that fits the index, or where the index's encoder is now.
        options: Further arguments of Explainer.open().
    """
    return Explainer.open(index, encoder, **options).explain(query, docids, hits)


def explain_texts(
    encoder: "MilcoEncoder", query: str, texts: Sequence[str], lowercase: bool = False, alpha: float | None = None
) -> list[Explanation]:
    """Each text as a document for the query, in the encoder's weights: no index, nothing pruned, nothing rounded.

    encoder: of any kind (encode.open_encoder). alpha: as for Explainer. The sum is a float64 sum of the products
    of float32 weights. Raises MilcoError as check_alpha() does.
    """
    check_alpha(alpha, encoder.views)
    config, vocabulary = encoder.model.config, encoder.vocabulary
    asked = read_text(encoder, query, config.query_max_length, lowercase)
    vector = _query_vector(asked.batch, vocabulary, alpha)
    explained = []
    for number, text in enumerate(texts, 1):
        reading = read_text(encoder, text, config.passage_max_length, lowercase)
        weights = reading.batch.to_dicts(vocabulary)[0]
        parts = matched(vector, weights, vocabulary)
        explained.append(
            Explanation(
                query=Side("query", asked.text, vector, True, asked.read, asked.origins),
                document=Side(f"text {number}", reading.text, weights, True, reading.read, reading.origins),
                engine="no index",
                exactness="exact float",
                unit=1.0,
                parts=parts,
                total=total(parts),
                alpha=alpha,
                vocabulary=vocabulary,
            )
        )
    return explained


def check_alpha(alpha: float | None, views: Sequence[str]) -> None:
    """Raise MilcoError if there is an alpha, and it is not from 0 to 1 or these views of queries are but one."""
    if alpha is None:
        return
    if not 0 <= alpha <= 1:
        raise MilcoError(f"alpha {alpha} is not between 0 and 1")
    if len(views) < 2:
        raise MilcoError(f"alpha {alpha} weighs two views of a query, and here is the {views[0]} view alone")


def _query_vector(batch: SparseBatch, vocabulary: Vocabulary, alpha: float | None) -> dict[str, float]:
    """The one vector of the batch as the engine is given it."""
    return (batch if alpha is None else batch.weighted(alpha)).to_dicts(vocabulary)[0]
