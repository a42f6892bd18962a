"""Open the encoder of a checkpoint of any kind, by what its files are."""

import os
from typing import TYPE_CHECKING

from milco_pyserini.defaults import DEFAULT_ENCODER, ST, with_revision
from milco_pyserini.encode.devices import choose_device, choose_dtype
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.m3 import HEAD, empty_vocabulary, find_head, load_m3
from milco_pyserini.encode.query_table import QUERY_TABLE, QueryTable
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import read_json
from milco_pyserini.model.configuration import is_milco
from milco_pyserini.model.finding import find_checkpoint
from milco_pyserini.model.tokenization import load_english_tokenizer, load_tokenizer
from milco_pyserini.model.weights import load_checkpoint

if TYPE_CHECKING:
    import torch

    from milco_pyserini.model.modeling import SparseEncoderModel
    from milco_pyserini.model.weights import NetworkWeights


def load_encoder(
    name_or_path: str | os.PathLike = DEFAULT_ENCODER,
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
    name = with_revision(os.fspath(name_or_path), revision)
    device = choose_device(device)
    directory = find_checkpoint(name)
    if name.startswith(ST):
        from milco_pyserini.encode.sentence_transformers import load_sparse_encoder

        models = load_sparse_encoder(directory, choose_dtype(dtype, device))
        (queries, query_tokenizer), (documents, tokenizer) = models
        query_encoder = MilcoEncoder(
            queries, query_tokenizer, query_tokenizer.tokenizer, name, device, dtype, english_prefix
        )
        return MilcoEncoder(
            documents, tokenizer, tokenizer.tokenizer, name, device, dtype, english_prefix, query_encoder
        )
    config = read_json(directory / "config.json")
    if config.get("model_type") == QUERY_TABLE:
        return QueryTable.from_pretrained(name, device, dtype, english_prefix)
    model: SparseEncoderModel | NetworkWeights
    tokenizer = load_tokenizer(directory)
    is_masked = any(str(kind).endswith("ForMaskedLM") for kind in config.get("architectures") or ())
    if is_milco(config):
        model, english_tokenizer = load_checkpoint(directory, {}), load_english_tokenizer(directory)
    elif is_masked and not (directory / HEAD).is_file():
        from milco_pyserini.encode.splade import load_splade

        model, english_tokenizer = load_splade(directory, tokenizer), tokenizer.tokenizer
    elif head := find_head(name, directory):
        model, english_tokenizer = load_m3(directory, head), empty_vocabulary()
    else:
        kind = ", ".join(map(str, config.get("architectures") or ())) or f"model_type {config.get('model_type')}"
        raise MilcoError(
            f"encoder {name} is not a sparse encoder: its config.json names {kind}, which is neither a MILCO "
            "checkpoint (model_type milco) nor a masked language model such as SPLADE (...ForMaskedLM), and there is "
            f"no {HEAD} next to it as in BGE-M3"
        )
    return MilcoEncoder(model, tokenizer, english_tokenizer, name, device, dtype, english_prefix)
