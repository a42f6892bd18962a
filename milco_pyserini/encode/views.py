"""Views, lengths and limits of an encoder of token ids, whether it is a network or a table.

It loads no torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from milco_pyserini.errors import Message, MilcoError, unknown_name
from milco_pyserini.model.configuration import term_limit
from milco_pyserini.model.tokenization import TextTokenizer
from milco_pyserini.sparse import PIVOT, SOURCE, VIEWS, SparseBatch
from milco_pyserini.sparse.pruning import PruningRule

if TYPE_CHECKING:
    import torch


@dataclass(eq=False, repr=False)
class ViewEncoder:
    """Converts token ids to sparse vectors.

    Args:
        _source: has the configuration: the fields of MilcoConfig.
        tokenizer: its special tokens are not terms of the source view if the configuration drops them.
        english_size: number of pivot terms.
        device: a torch.device, or its name.
        dtype: of the matrix products: a torch.dtype, or its name.
    """

    _source: Any
    name: str
    tokenizer: TextTokenizer
    english_size: int
    device: "torch.device | str"
    dtype: "torch.dtype | str"

    # False for encoders of queries only (QueryNetwork).
    encodes_documents = True
    # True if tokens have states; encoders of sentence-transformers and query networks only have weights.
    has_token_states = False

    def on(self, device: "torch.device", dtype: "torch.dtype") -> Self:
        """Return the same on another device or with another dtype."""
        return self

    @property
    def config(self) -> Any:
        """Sizes and variants: the fields of MilcoConfig."""
        return self._source.config

    @property
    def views(self) -> tuple[str, ...]:
        """The views that it has."""
        has = {PIVOT: self.config.english_vocab_size > 0, SOURCE: self.config.echo}
        return tuple(view for view in VIEWS if has[view])

    def resolve_views(self, views: str | Sequence[str] | None) -> tuple[str, ...]:
        """Return the views to encode, all by default. Raises MilcoError for a view that the checkpoint lacks."""
        views = (views,) if isinstance(views, str) else views
        for view in views or ():
            if view not in VIEWS:
                raise unknown_name("view", str(view), VIEWS)
            if view not in self.views:
                lacking = "LexEcho head" if view == SOURCE else "English vocabulary"
                other = " ".join(self.views)
                fix = Message("Use {views}.", views=other)
                raise MilcoError(f"encoder {self.name} has no {lacking}, so no {view} view", fix)
        return tuple(views or self.views)

    @property
    def token_limit(self) -> int:
        """The number of tokens, special ones included, that it takes."""
        return self.config.token_limit

    def validate_length(self, max_length: int) -> None:
        """Raise MilcoError for a maximum length in tokens that it has no positions for."""
        if not isinstance(max_length, int) or not 3 <= max_length <= self.token_limit:
            raise MilcoError(f"maximum length {max_length!r}: encoder {self.name} takes 3 to {self.token_limit} tokens")

    def limit_terms(self, vectors: SparseBatch, is_query: bool = False) -> SparseBatch:
        """Return vectors with only the strongest terms of each view, as many as the configuration keeps."""
        for view in VIEWS:
            limit = term_limit(self.config, view, is_query)
            if limit is not None and vectors.lengths().max(initial=0) > limit:
                vectors = PruningRule("top-k", limit, view)(vectors)
        return vectors
