"""Encode one part of a corpus, some thousand consecutive records, to the content of one file of a vector store.

The content depends on the records and the plan only, not on where or after which other part it is encoded.
"""

import io
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from milco_pyserini.corpora import Document, Query
from milco_pyserini.corpora.records import PASSAGE_DELIMITER, encoded_text
from milco_pyserini.encode.dense_store import write_dense
from milco_pyserini.encode.plan import EncodePlan
from milco_pyserini.sparse.store import write_jsonl, write_parquet

# The number of a part and its records.
Job = tuple[int, Sequence[Document | Query]]
# Takes the number of a part and how many of its texts and tokens have been encoded so far.
PartReport = Callable[[int, int, int], None]


@dataclass(frozen=True)
class TokenizedPart:
    """A part as token ids.

    Args:
        number: of the part, from 0.
        texts: number of records.
        ids: document ids, or passage ids.
        rows: token ids of each.
        contents: the texts of queries, which are stored with the vectors; None for documents.
        truncated: number of texts that were longer than the maximum length.
    """

    number: int
    texts: int
    ids: list[str]
    rows: list[list[int]]
    contents: list[str] | None
    truncated: int


@dataclass(frozen=True)
class EncodedPart:
    """The content of a part's file, the counts of its manifest entry, and the number of tokens encoded."""

    number: int
    content: bytes
    counts: dict[str, Any]
    tokens: int


class PartEncoder:
    """An encoder and the resolved plan by which it encodes the parts of a corpus, in three steps."""

    def __init__(self, plan: EncodePlan, encoder: Any) -> None:
        self.plan = plan
        self.encoder = encoder

    def tokenize(self, number: int, records: Sequence[Document | Query]) -> TokenizedPart:
        """Return consecutive documents, passages ID#0, ID#1, ... of them, or queries as token ids."""
        plan, topics = self.plan, isinstance(records[0], Query)
        tokenizer = self._encoder_of(topics).tokenizer
        texts = [encoded_text(record) for record in records]
        if plan.dense:
            prompt = plan.query_prompt if topics else plan.document_prompt
            inputs = self.encoder.prompted(texts, prompt, plan.lowercase)
        else:
            inputs = [text.lower() for text in texts] if plan.lowercase else texts
        ids, truncated = [record.id for record in records], 0
        if plan.split_passages:
            passages = tokenizer.passages(inputs, plan.max_length)
            ids = [
                f"{docid}{PASSAGE_DELIMITER}{place}"
                for docid, rows in zip(ids, passages, strict=True)
                for place in range(len(rows))
            ]
            rows = list(itertools.chain.from_iterable(passages))
        else:
            tokenized = tokenizer.tokenize(inputs, plan.max_length)
            rows, truncated = [row.ids for row in tokenized], sum(row.truncated for row in tokenized)
        return TokenizedPart(number, len(texts), ids, rows, texts if topics else None, truncated)

    def encode(self, part: TokenizedPart, report: PartReport) -> Any:
        """Return the vectors of a part, not pruned: a SparseBatch, or float32 [rows, d] for dense ones.

        Args:
            report: called after each batch. A text that is split counts by the share of its passages.
        """
        rows = tokens = 0

        def count(more_rows: int, more_tokens: int) -> None:
            nonlocal rows, tokens
            rows += more_rows
            tokens += more_tokens
            report(part.number, part.texts * rows // len(part.rows), tokens)

        plan, encoder = self.plan, self._encoder_of(part.contents is not None)
        if plan.dense:
            return encoder.encode_rows(part.rows, plan.batch_size, part.ids, count)
        return encoder.encode_rows(part.rows, plan.views, plan.batch_size, part.ids, count)

    def _encoder_of(self, topics: bool) -> Any:
        return self.encoder.query_encoder if topics and not self.plan.dense else self.encoder

    def serialize(self, part: TokenizedPart, vectors: Any) -> EncodedPart:
        """Prune the vectors of a part and return its file."""
        plan, file = self.plan, io.BytesIO()
        counts: dict[str, Any] = {"documents": len(part.ids), "texts": part.texts, "truncated": part.truncated}
        if plan.dense:
            write_dense(file, part.ids, vectors)
            counts |= {"terms": {}, "empty": sum(not row for row in part.rows)}
        else:
            for rule in plan.pruning_rules:
                vectors = rule(vectors)
            if plan.format == "parquet":
                write_parquet(file, part.ids, vectors)
            else:
                write_jsonl(file, part.ids, vectors, self.encoder.vocabulary, plan.scale, part.contents)
            terms = {view: int(vectors.view(view).indptr[-1]) for view in plan.views}
            counts |= {"terms": terms, "empty": int((vectors.lengths() == 0).sum())}
        return EncodedPart(part.number, file.getvalue(), counts, sum(map(len, part.rows)))
