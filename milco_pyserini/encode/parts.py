"""Encode one part of a corpus, some thousand consecutive records, to the content of one file of a vector store.

The content depends on the records and the plan only, not on where or after which other part it is encoded.
"""

import io
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.corpora import Document, Query
from milco_pyserini.corpora.records import PASSAGE_DELIMITER, encoded_text
from milco_pyserini.defaults import VIEWS
from milco_pyserini.encode.documents import document_records
from milco_pyserini.encode.plan import EncodePlan
from milco_pyserini.sparse import SparseBatch
from milco_pyserini.sparse.store import write_jsonl, write_parquet

# The number of a part and its records.
Job = tuple[int, Sequence[Document | Query]]
# Takes the number of a part and how many of its texts and tokens have been encoded so far.
PartReport = Callable[[int, int, int], None]

# Record kept for each text of a part: 128 bits of BLAKE2b, the number of its vectors (of its passages), how many of
# these are empty, whether the text was truncated, and the number of its terms in each view.
TEXT = np.dtype(
    [
        *(("digest", "<u8", 2), ("vectors", "<u4"), ("empty", "<u4"), ("truncated", "?")),
        *((view, "<u4") for view in VIEWS),
    ]
)


def text_digests(records: Sequence[Document | Query]) -> NDArray[np.uint64]:
    """Return 128 bits of the BLAKE2b of every text: uint64 [B, 2]."""
    texts = (encoded_text(record).encode("utf-8", "surrogatepass") for record in records)
    digests = b"".join(blake2b(text, digest_size=16).digest() for text in texts)
    return np.frombuffer(digests, "<u8").reshape(-1, 2)


@dataclass(frozen=True)
class TokenizedPart:
    """A part as token ids.

    Args:
        number: of the part, from 0.
        ids: document ids, or passage ids.
        rows: token ids of each.
        records: what is stored next to the vector of each; None to store no documents.
        topics: whether the texts are queries.
        texts: TEXT [B], of the vectors only their number.
    """

    number: int
    ids: list[str]
    rows: list[list[int]]
    records: list[bytes] | None
    topics: bool
    texts: NDArray[np.void]


@dataclass(frozen=True)
class EncodedPart:
    """The content of a part's file and of its digests, the counts of its entry, and the number of tokens encoded.

    digests: TEXT [B] in numpy's file format.
    """

    number: int
    content: bytes
    digests: bytes
    counts: dict[str, Any]
    tokens: int

    @classmethod
    def of(cls, number: int, content: bytes, texts: NDArray[np.void], views: Sequence[str], tokens: int) -> Self:
        """Return a part with the sums of the counts of its texts, TEXT [B]. views: those of its vectors."""
        digests = io.BytesIO()
        np.save(digests, texts)
        sums = {name: int(texts[name].sum()) for name in ("vectors", "empty", "truncated", *views)}
        counts = {
            "documents": sums["vectors"],
            "texts": len(texts),
            "terms": {view: sums[view] for view in views},
            "empty": sums["empty"],
            "truncated": sums["truncated"],
        }
        return cls(number, content, digests.getvalue(), counts, tokens)


class PartEncoder:
    """An encoder and the resolved plan by which it encodes the parts of a corpus, in three steps."""

    def __init__(self, plan: EncodePlan, encoder: Any) -> None:
        self.plan = plan
        self.encoder = encoder

    def tokenize(self, number: int, records: Sequence[Document | Query]) -> TokenizedPart:
        """Return consecutive documents, passages ID#0, ID#1, ... of them, or queries as token ids."""
        plan, topics = self.plan, isinstance(records[0], Query)
        tokenizer = self._encoder_of(topics).tokenizer.of_records(records)
        texts = [encoded_text(record) for record in records]
        inputs = [text.lower() for text in texts] if plan.lowercase else texts
        counts = np.zeros(len(records), TEXT)
        counts["digest"] = text_digests(records)
        if plan.split_passages:
            passages = tokenizer.passages(inputs, plan.max_length)
            counts["vectors"] = list(map(len, passages))
            rows = list(itertools.chain.from_iterable(passages))
        else:
            tokenized = tokenizer.tokenize(inputs, plan.max_length)
            counts["vectors"], counts["truncated"] = 1, [row.truncated for row in tokenized]
            rows = [row.ids for row in tokenized]
        ids = vector_ids(records, counts["vectors"], plan.split_passages)
        is_stored = topics or plan.store_documents
        stored = document_records(records, ids, counts["vectors"]) if is_stored else None
        return TokenizedPart(number, ids, rows, stored, topics, counts)

    def encode(self, part: TokenizedPart, report: PartReport) -> SparseBatch:
        """Return the vectors of a part, not pruned. A text that is split is reported by the share of its passages."""
        rows = tokens = 0

        def count(more_rows: int, more_tokens: int) -> None:
            nonlocal rows, tokens
            rows += more_rows
            tokens += more_tokens
            report(part.number, len(part.texts) * rows // len(part.rows), tokens)

        plan, encoder = self.plan, self._encoder_of(part.topics)
        vectors = encoder.network.encode(part.rows, plan.views, plan.batch_size, part.ids, count)
        return encoder.network.limit_terms(vectors, is_query=True) if part.topics else vectors

    def _encoder_of(self, topics: bool) -> Any:
        return self.encoder.query_encoder if topics else self.encoder

    def serialize(self, part: TokenizedPart, vectors: SparseBatch) -> EncodedPart:
        """Prune the vectors of a part and return its file."""
        plan, file = self.plan, io.BytesIO()
        for rule in plan.pruning_rules:
            vectors = rule(vectors)
        if plan.format == "parquet":
            write_parquet(file, part.ids, vectors, part.records)
        else:
            vectors = write_jsonl(file, part.ids, vectors, self.encoder.vocabulary, plan.scale, part.records)
        texts = part.texts.copy()
        first = np.cumsum(texts["vectors"], dtype=np.int64) - texts["vectors"]
        texts["empty"] = np.add.reduceat((vectors.lengths() == 0).astype(np.int64), first)
        for view in plan.views:
            texts[view] = np.add.reduceat(vectors.view(view).lengths(), first)
        return EncodedPart.of(part.number, file.getvalue(), texts, plan.views, sum(map(len, part.rows)))


def vector_ids(records: Sequence[Document | Query], counts: NDArray[np.integer], passages: bool) -> list[str]:
    """Return the ids of the vectors of records: their own, or ID#0, ID#1, ... of their passages.

    counts: number of vectors of each record.
    """
    if not passages:
        return [record.id for record in records]
    pairs = zip(records, counts.tolist(), strict=True)
    return [f"{record.id}{PASSAGE_DELIMITER}{place}" for record, count in pairs for place in range(count)]
