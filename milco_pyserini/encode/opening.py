"""Open the encoder of a checkpoint of any kind, by what its files are."""

import os
from importlib import import_module
from typing import TYPE_CHECKING

from milco_pyserini.defaults import DEFAULT_ENCODER
from milco_pyserini.encode.devices import choose_device
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.checkpoint import HEAD, Checkpoint, Kind

if TYPE_CHECKING:
    import torch

    from milco_pyserini.encode.encoder import MilcoEncoder

# The module of each kind: its load(checkpoint, device, dtype, english_prefix) returns the encoder.
_MODULES = {
    Kind.MILCO: "encoder",
    Kind.MASKED_LANGUAGE_MODEL: "splade",
    Kind.M3: "m3",
    Kind.QUERY_NETWORK: "query_network",
    Kind.SENTENCE_TRANSFORMERS: "sentence_transformers",
    Kind.BM25: "bm25",
}


def load_encoder(
    name_or_path: str | os.PathLike = DEFAULT_ENCODER,
    device: "str | torch.device" = "auto",
    dtype: "str | torch.dtype" = "auto",
    english_prefix: str = "",
    revision: str | None = None,
) -> "MilcoEncoder":
    """Load a sparse encoder of any kind: MILCO, a masked language model (SPLADE), BGE-M3, st:NAME|DIR, a QueryNetwork.

    A masked language model has the pivot view, over its own pieces; BGE-M3 has the source view. st: is a SparseEncoder
    of sentence-transformers, with the pivot view. Arguments as for MilcoEncoder.from_pretrained(). Raises MilcoError,
    with the expected kind, for any other checkpoint.
    """
    return open_encoder(Checkpoint.open(name_or_path, revision), device, dtype, english_prefix)


def open_encoder(
    checkpoint: Checkpoint,
    device: "str | torch.device" = "auto",
    dtype: "str | torch.dtype" = "auto",
    english_prefix: str = "",
) -> "MilcoEncoder":
    """Load the sparse encoder of a checkpoint. Arguments and errors as for load_encoder().

    A query network is loaded without torch: its device and dtype have no effect.
    """
    if checkpoint.kind is not Kind.QUERY_NETWORK:
        device = choose_device(device)
    if checkpoint.fetch().kind not in _MODULES:
        config = checkpoint.config
        kind = ", ".join(map(str, config.get("architectures") or ())) or f"model_type {config.get('model_type')}"
        raise MilcoError(
            f"encoder {checkpoint.name} is not a sparse encoder: its config.json names {kind}, which is neither a "
            "MILCO checkpoint (model_type milco) nor a masked language model such as SPLADE (...ForMaskedLM), and "
            f"there is no {HEAD} next to it as in BGE-M3"
        )
    load = import_module(f"milco_pyserini.encode.{_MODULES[checkpoint.kind]}").load
    return load(checkpoint, device, dtype, english_prefix)
