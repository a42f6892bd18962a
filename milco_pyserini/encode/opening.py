"""Open the encoder of a checkpoint of any kind, by what its files are."""

import os
from typing import TYPE_CHECKING

from milco_pyserini.defaults import DEFAULT_ENCODER
from milco_pyserini.encode.devices import choose_device, choose_dtype
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.m3 import load_m3
from milco_pyserini.encode.query_table import QueryTable
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.checkpoint import HEAD, Checkpoint, Kind
from milco_pyserini.model.weights import load_checkpoint

if TYPE_CHECKING:
    import torch

    from milco_pyserini.model.modeling import SparseEncoderModel
    from milco_pyserini.model.weights import NetworkWeights


def load_encoder(
    name_or_path: str | os.PathLike | Checkpoint = DEFAULT_ENCODER,
    device: "str | torch.device" = "auto",
    dtype: "str | torch.dtype" = "auto",
    english_prefix: str = "",
    revision: str | None = None,
) -> MilcoEncoder:
    """Load a sparse encoder of any kind: MILCO, a masked language model (SPLADE), BGE-M3, st:NAME|DIR, a QueryTable.

    A masked language model has the pivot view, over its own pieces; BGE-M3 has the source view. st: is a SparseEncoder
    of sentence-transformers, with the pivot view. Arguments as for MilcoEncoder.from_pretrained(). Raises MilcoError,
    with what was expected, for any other checkpoint.
    """
    checkpoint, device = Checkpoint.open(name_or_path, revision), choose_device(device)
    name, options = checkpoint.fetch().name, (device, dtype, english_prefix)
    model: SparseEncoderModel | NetworkWeights
    match checkpoint.kind:
        case Kind.SENTENCE_TRANSFORMERS:
            from milco_pyserini.encode.sentence_transformers import load_sparse_encoder

            models = load_sparse_encoder(checkpoint, choose_dtype(dtype, device))
            (queries, query_tokenizer), (documents, tokenizer) = models
            query_encoder = MilcoEncoder(queries, query_tokenizer, query_tokenizer.tokenizer, name, *options)
            return MilcoEncoder(documents, tokenizer, tokenizer.tokenizer, name, *options, query_encoder)
        case Kind.QUERY_TABLE:
            return QueryTable.from_pretrained(checkpoint, *options)
        case Kind.MILCO:
            model = load_checkpoint(checkpoint, {})
        case Kind.MASKED_LANGUAGE_MODEL:
            from milco_pyserini.encode.splade import load_splade

            model = load_splade(checkpoint)
        case Kind.M3:
            model = load_m3(checkpoint)
        case _:
            config = checkpoint.config
            kind = ", ".join(map(str, config.get("architectures") or ())) or f"model_type {config.get('model_type')}"
            raise MilcoError(
                f"encoder {name} is not a sparse encoder: its config.json names {kind}, which is neither a MILCO "
                "checkpoint (model_type milco) nor a masked language model such as SPLADE (...ForMaskedLM), and there "
                f"is no {HEAD} next to it as in BGE-M3"
            )
    return MilcoEncoder(model, checkpoint.tokenizer, checkpoint.english_tokenizer, name, *options)
