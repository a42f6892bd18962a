"""The plan of an encoding: every setting that determines how texts become vectors, and the encoder that it names."""

import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from milco_pyserini.defaults import BATCH_SIZE, DEFAULT_ENCODER, ENCODER_DTYPES, VIEWS
from milco_pyserini.errors import MilcoError, ParameterError, parameter
from milco_pyserini.model.checkpoint import Checkpoint
from milco_pyserini.model.configuration import QUERY_LIMITS, VIEW_VARIANTS
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.encode.encoder import MilcoEncoder
    from milco_pyserini.sparse.pruning import PruningRule

__all__ = ["EncodePlan"]

FORMATS = ("jsonl", "parquet")
# <s>, one token, </s>.
MIN_LENGTH = 3
_ENCODER = "encoder"
_SPARSE = "sparse vectors"
_SCALE_OUT = "scale-out"


@dataclass(frozen=True)
class EncodePlan:
    """How texts become the vectors of a store: with the texts, it determines every byte of the parts.

    resolve() fills in the values that the checkpoint determines; the resolved plan is written to the manifest and sent
    to the processes that encode.

        plan = EncodePlan(encoder="mini", prune=("top-k:100",))
        encode_corpus("sample", "vectors/sample", plan)
    """

    encoder: str = option(
        DEFAULT_ENCODER,
        metavar="NAME|DIR",
        group=_ENCODER,
        help="checkpoint: hub name (NAME@REVISION pins a commit), directory, or mini (embedded); st:NAME|DIR for a "
        "SparseEncoder of sentence-transformers; bm25 or bm25:LANG",
    )
    max_length: int | None = option(
        None, minimum=MIN_LENGTH, group=_ENCODER, help="tokens of a text (default: the checkpoint's)"
    )
    split_passages: bool = option(
        False, group=_ENCODER, help="passages ID#0, ID#1, ... of documents longer than --max-length"
    )
    lowercase: bool = option(
        False, group=_ENCODER, help="lowercase texts, as the authors' evaluation on MIRACL's hard negatives does"
    )
    dtype: str = option(
        "auto",
        choices=ENCODER_DTYPES,
        group=_ENCODER,
        help="precision of matrix products: auto is the checkpoint's, fast is bfloat16 where the device multiplies it "
        "natively, int8 is for large networks on the CPU",
    )
    batch_size: int = option(
        BATCH_SIZE, minimum=1, group=_ENCODER, help="maximum texts per batch (the token budget adapts to the device)"
    )
    views: tuple[str, ...] = option(
        (), choices=VIEWS, group=_SPARSE, help="views to encode (default: all that the checkpoint has)"
    )
    prune: tuple[str, ...] = option(
        (),
        metavar="RULE",
        group=_SPARSE,
        help="pruning rules, applied in order: top-k:K, percentile:P, mass:P or threshold:T over both views of a "
        "vector, or over one, as in pivot:top-k:K",
    )
    scale: float = option(
        100.0, above=0, maximum=2**31 - 1, group=_SPARSE, help="scale of impacts: round(weight x scale)"
    )
    english_prefix: str = option(
        "", metavar="PREFIX", group=_SPARSE, help="prefix of English terms (the authors use e_)"
    )
    format: str = option(
        "auto",
        choices=("auto", *FORMATS),
        group=_SPARSE,
        help="jsonl (integer impacts, Anserini's), parquet (float weights), or auto: parquet for bm25, else jsonl",
    )
    store_documents: bool = option(True, flag="store", group=_SPARSE, help="store documents next to their vectors")
    part_size: int = option(8192, minimum=1, group=_SCALE_OUT, help="documents per part file")

    def conflicts(self) -> Iterator[MilcoError | str]:
        """Yield what is wrong about combinations of settings."""
        for rule in self.pruning_rules:
            if rule.view and self.views and rule.view not in self.views:
                what = f"the {rule.view} view is not encoded by " + parameter("views", self.views)
                yield ParameterError("prune", rule, what)

    @property
    def pruning_rules(self) -> "list[PruningRule]":
        """The rules of `prune`. Raises MilcoError for one that is invalid."""
        if not self.prune:
            return []
        from milco_pyserini.sparse.pruning import PruningRule

        return [PruningRule.parse(rule) for rule in self.prune]

    def load_encoder(self, checkpoint: Checkpoint, device: str) -> "MilcoEncoder":
        """Load the encoder on a device. Raises MilcoError if the checkpoint is not available or not of this kind."""
        # Before torch is loaded, which takes seconds.
        checkpoint.fetch()
        from milco_pyserini.encode.opening import open_encoder

        return open_encoder(checkpoint, device, self.dtype, self.english_prefix)

    def resolve(self, encoder: Any, topics: bool) -> "EncodePlan":
        """Return the plan with the values of its encoder in place of None, () and "auto".

        topics: whether the texts are queries, which have a maximum length of their own. Raises MilcoError if the
        encoder lacks a view, or has no positions for the maximum length.
        """
        network = encoder.network
        default_length = network.config.query_max_length if topics else network.config.passage_max_length
        max_length = default_length if self.max_length is None else self.max_length
        network.validate_length(max_length)
        dtype = str(network.dtype).removeprefix("torch.")
        return replace(self, max_length=max_length, dtype=dtype, views=network.resolve_views(self.views))

    def manifest_fields(self) -> dict[str, Any]:
        """Return the settings as fields of a StoreManifest, without those that resolve() has yet to fill in."""
        values = {field.name: getattr(self, field.name) for field in fields(EncodePlan) if field.name != "prune"}
        values["views"] = list(self.views)
        resolved = {name: value for name, value in values.items() if value not in (None, [], "auto")}
        return resolved | {"pruning": " ".join(map(str, self.pruning_rules)) or None}


def encoder_identity(encoder: Any) -> dict[str, Any]:
    """Return the hashes of an encoder; a query network has those of the documents' model, and other vectors."""
    own = getattr(encoder.config, "query_network", None)
    return encoder.hashes | ({"query_network": own} if own else {})


def encoder_fields(checkpoint: Checkpoint, encoder: Any, device: str, topics: bool) -> dict[str, Any]:
    """Return the manifest fields that an encoder and this machine determine; of the device, only the type."""
    import numpy
    import torch

    from milco_pyserini import __version__

    return {
        **encoder_identity(encoder),
        "source_prefix": encoder.vocabulary.source_prefix,
        **{name: getattr(encoder.config, name, None) for name in VIEW_VARIANTS + QUERY_LIMITS * topics},
        "device": device.partition(":")[0],
        "versions": {
            "milco_pyserini": __version__,
            **({"checkpoint": checkpoint.commit} if checkpoint.commit else {}),
            "torch": str(torch.__version__),
            # Importing it takes seconds, and the vectors may not need it.
            "transformers": importlib.metadata.version("transformers"),
            "numpy": numpy.__version__,
        },
    }
