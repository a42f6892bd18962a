"""The two kinds of vector store that encode fills: of terms, and of dense vectors."""

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.console import Report
from milco_pyserini.encode.dense_store import write_dense
from milco_pyserini.encode.parts import Tokenised, Work
from milco_pyserini.encode.prompts import DOCUMENTS, QUERIES
from milco_pyserini.sparse import SparseBatch, Vocabulary
from milco_pyserini.sparse.pruning import PruningRule
from milco_pyserini.sparse.store import write_jsonl, write_parquet

if TYPE_CHECKING:
    from milco_pyserini.encode.dense import DenseEncoder
    from milco_pyserini.encode.encoder import MilcoEncoder


@dataclass(frozen=True)
class TermWork(Work):
    """Texts to {term: weight}: of these views, pruned, in parts of JSONL or Parquet."""

    encoder: "MilcoEncoder"
    views: tuple[str, ...]
    pruning: tuple[PruningRule, ...]
    scale: float
    format: str

    @property
    def ending(self) -> str:
        """The format is its own ending."""
        return self.format

    @property
    def counted(self) -> tuple[str, ...]:
        """Those that are encoded."""
        return self.views

    @property
    def vocabulary(self) -> Vocabulary:
        """The encoder's."""
        return self.encoder.vocabulary

    @property
    def described(self) -> dict[str, Any]:
        """Views, and the spelling of the source view."""
        return {"views": list(self.views), "source_prefix": self.vocabulary.source_prefix}

    @property
    def loading(self) -> dict[str, Any]:
        """How terms are spelled."""
        return {"english_prefix": self.vocabulary.english_prefix}

    @staticmethod
    def load(name: str, device: str, dtype: str, **loading: Any) -> "MilcoEncoder":
        """The encoder of that name."""
        from milco_pyserini.encode.encoder import open_encoder

        return open_encoder(name, device, dtype, **loading)

    def vectors(self, part: Tokenised, report: Report) -> SparseBatch:
        """Not pruned yet."""
        return self.encoder.encode_rows(part.rows, self.views, self.batch_size, part.ids, report)

    def write(self, handle: IO[bytes], part: Tokenised, vectors: SparseBatch) -> dict[str, Any]:
        """Prune and write."""
        for rule in self.pruning:
            vectors = rule(vectors)
        if self.format == "parquet":
            write_parquet(handle, part.ids, vectors)
        else:
            write_jsonl(handle, part.ids, vectors, self.vocabulary, self.scale, part.contents)
        return {
            "terms": {view: int(vectors.view(view).indptr[-1]) for view in self.views},
            "empty": int((vectors.lengths() == 0).sum()),
        }


@dataclass(frozen=True)
class DenseWork(Work):
    """Texts to dense vectors, in parts of Parquet."""

    encoder: "DenseEncoder"

    @property
    def ending(self) -> str:
        """There is but the one format."""
        return "parquet"

    @property
    def counted(self) -> tuple[str, ...]:
        """They have no views."""
        return ()

    @property
    def vocabulary(self) -> None:
        """Their columns have no names."""
        return

    @property
    def kind(self) -> str:
        """Which prompt stands before the texts."""
        return QUERIES if self.topics else DOCUMENTS

    @property
    def described(self) -> dict[str, Any]:
        """Their length, how states are pooled, and what stands before a text."""
        prompts = self.encoder.prompts
        return {
            "format": self.ending,
            "dimensions": self.encoder.dimensions,
            "pooling": self.encoder.pooling,
            "query_prompt": prompts[QUERIES],
            "document_prompt": prompts[DOCUMENTS],
        }

    @property
    def loading(self) -> dict[str, Any]:
        """How states are pooled, and what stands before a text."""
        return {"pooling": self.encoder.pooling, "prompts": self.encoder.prompts}

    @staticmethod
    def load(name: str, device: str, dtype: str, **loading: Any) -> "DenseEncoder":
        """The encoder of that name."""
        from milco_pyserini.encode.dense import DenseEncoder

        return DenseEncoder(name, device=device, dtype=dtype, **loading)

    def spelled(self, text: str) -> str:
        """Behind the prompt of its kind."""
        return self.encoder.spelled(text, self.kind, self.lowercase)

    def vectors(self, part: Tokenised, report: Report) -> NDArray[np.float32]:
        """Float32 [rows, d]."""
        return self.encoder.encode_rows(part.rows, self.batch_size, part.ids, report)

    def write(self, handle: IO[bytes], part: Tokenised, vectors: NDArray[np.float32]) -> dict[str, Any]:
        """Write ids and vectors."""
        write_dense(handle, part.ids, vectors)
        return {"terms": {}, "empty": sum(not row for row in part.rows)}
