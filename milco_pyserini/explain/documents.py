"""What can be told of a document beside its numbers in the index: its text read once more, or its stored vector."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milco_pyserini.corpora.records import PASSAGE_DELIMITER
from milco_pyserini.explain.losses import Account, Steps, follow
from milco_pyserini.explain.origins import Reading, passage_text, read_text
from milco_pyserini.explain.sources import Texts, stored_impacts, stored_vector
from milco_pyserini.index import Index
from milco_pyserini.sparse import PlainStore, VectorStore

if TYPE_CHECKING:
    from milco_pyserini.encode import MilcoEncoder

# A weight that is encoded again may round to the neighbour, and bfloat16 has three digits.
_TOLERANCE = 0.03
_OTHERS = "others wrote these vectors: where a document's terms came from is not known"
_MISFIT = (
    "the text at hand does not give the vector that is in the index: it has changed, or was encoded elsewhere in "
    "another precision; the parts are the index's own, where they came from may not be right"
)


@dataclass(frozen=True)
class Known:
    """reading, account: of the text; account alone: of the vector in the store; weights: as the index has them."""

    reading: Reading | None = None
    account: Account | None = None
    weights: Mapping[str, float] | None = None


class Documents:
    """The documents of an index, as far as texts and store are at hand."""

    def __init__(
        self, index: Index, encoder: "MilcoEncoder", texts: Texts | None, store: VectorStore | PlainStore | None
    ) -> None:
        self._vectors = index.vectors
        self._encoder = encoder
        self._texts = texts
        self._store = store
        self.plain = bool(index.vectors.get("plain"))
        self.passages = bool(index.vectors.get("split_passages"))
        self._lowercase = index.vectors.get("lowercase", False)
        self._steps = Steps.of(index.manifest["engine"], index.vectors)

    def texts(self, docids: Iterable[str]) -> dict[str, str]:
        """Return the available texts by docid, of passages their own part of the document's text."""
        return {
            docid: text
            if number is None
            else passage_text(self._encoder, text, self._vectors["max_length"], self._lowercase, number)
            for docid, (text, number) in self._available(docids).items()
        }

    def find(self, docids: Sequence[str]) -> dict[str, Known]:
        """What is known of each; the text is preferred to the stored vector."""
        available = self._available(docids)
        return {docid: self._read(*available[docid]) if docid in available else self._stored(docid) for docid in docids}

    def _available(self, docids: Iterable[str]) -> dict[str, tuple[str, int | None]]:
        """The documents' complete texts by docid, with the numbers of passages."""
        places = {docid: _passage(docid) if self.passages else (docid, None) for docid in docids}
        readable = None if self.plain else self._texts
        texts = readable.find({name for name, _ in places.values()}) if readable else {}
        return {docid: (texts[name], number) for docid, (name, number) in places.items() if name in texts}

    def judged(self, known: Known, weights: Mapping[str, float]) -> tuple[Known, list[str]]:
        """What can be told of what is known, and what a reader should know of that.

        weights: the index's, of the terms that it multiplies. Of a text that does not give them, the vector is not
        the document's.
        """
        if self.plain:
            return known, [_OTHERS]
        if known.reading is None:
            rest = "its other terms are those of the vector store" if known.account else "only shared terms are known"
            return known, [f"the document's text is not at hand (--corpus): {rest}"]
        return (Known(known.reading), [_MISFIT]) if self._misfits(known.account, weights) else (known, [])

    def _read(self, text: str, passage: int | None) -> Known:
        reading = read_text(self._encoder, text, self._vectors["max_length"], self._lowercase, passage)
        account = follow(reading.batch, self._steps, self._encoder.vocabulary)
        return Known(reading, account, account.kept)

    def _stored(self, docid: str) -> Known:
        if isinstance(self._store, PlainStore):
            impacts = stored_impacts(self._store, docid)
            scale = self._store.scale
            return Known(weights=impacts and {term: impact / scale for term, impact in impacts.items()})
        vector = stored_vector(self._store, docid) if self._store else None
        if vector is None or self._store is None:
            return Known()
        steps = self._steps.after(self._store.manifest.get("pruning"))
        account = follow(vector, steps, self._encoder.vocabulary)
        return Known(account=account, weights=account.kept)

    def _misfits(self, account: Account | None, weights: Mapping[str, float]) -> bool:
        """Whether more than one in ten of the index's weights is not what the text gives now."""
        slack = 1.0 / self._vectors["scale"]
        # Before pruning: what is as strong as the last that is kept may have been kept in its place.
        now = account.weights if account else {}
        wrong = sum(abs(weight - now.get(term, 0.0)) > slack + _TOLERANCE * weight for term, weight in weights.items())
        return wrong > len(weights) / 10


def _passage(docid: str) -> tuple[str, int | None]:
    """The document and the number of a passage ID#N."""
    name, _, number = docid.rpartition(PASSAGE_DELIMITER)
    return (name, int(number)) if name and number.isdecimal() else (docid, None)
