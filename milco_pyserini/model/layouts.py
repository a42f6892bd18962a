"""MILCO checkpoints on disk: the authors' layout and our own, read as one configuration and one set of tensors.

Our own: config.json, model.safetensors, tokenizer.json, english/tokenizer.json, and what sentence-transformers needs to
load it as a SparseEncoder. The authors': pytorch_model.bin or safetensors, in one file or in shards, with the two
sub-models that config.json names inside it or next to it. A SparseEncoder may have either in a directory of its own.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.io.files import write_json
from milco_pyserini.model.checkpoint import (
    MODEL_CLASS,
    MODULES,
    Checkpoint,
    listed,
    loading,
    validate_weights,
)
from milco_pyserini.model.configuration import VARIANTS, NetworkConfig, is_milco
from milco_pyserini.model.gte import gte_config, is_gte, rename_gte
from milco_pyserini.model.quantized import QuantizedMatrix, Weight, Weights

_SCALE = "_scale"
# Parts that inference does not use.
_DROPPED = re.compile(r"(^|\.)(en_lsr\.|m_model\.pooler\.|pooler\.)|\.position_ids$")
# The authors' names (model-notes 1.3) and our own. RoBERTa-style heads have no "predictions.transform".
_RENAMED = (
    (re.compile(r"^(module\.|milco\.|model\.)+"), ""),
    (re.compile(r"^m_model\."), "encoder."),
    (re.compile(r"^projector\."), "connector.projector."),
    (re.compile(r"^mlm_head\.predictions\.transform\.dense\."), "connector.dense."),
    (re.compile(r"^mlm_head\.predictions\.transform\.LayerNorm\."), "connector.layer_norm."),
    (re.compile(r"^mlm_head\.(dense|layer_norm)\."), r"connector.\1."),
    (re.compile(r"^mlm_head\.(predictions\.)?decoder\."), "decoder."),
    (re.compile(r"^mlm_head\.(predictions\.)?bias$"), "decoder.bias"),
    (re.compile(r"^scale$"), "echo.scale"),
)
_TIED_DECODER = "en_lsr.bert.embeddings.word_embeddings.weight"
_NOT_IN_SHAPES = (
    *("model_type", "num_hidden_layers", "num_attention_heads", "layer_norm_eps", "hidden_act", "pad_token_id"),
)
# The tensors whose shapes give the sizes of a network.
_WORDS = "encoder.embeddings.word_embeddings.weight"
_POSITIONS = "encoder.embeddings.position_embeddings.weight"
_TYPES = "encoder.embeddings.token_type_embeddings.weight"
_LAYERS = "encoder.encoder.layer."
_INTERMEDIATE = "encoder.encoder.layer.0.intermediate.dense.weight"
_QKV = re.compile(r"\.attention\.qkv_proj\.")
_PROJECTOR = "connector.projector.weight"
_DECODER = "decoder.weight"
_CODE = "milco_sentence_transformers.py"
_CODE_TEXT = '''"""This MILCO checkpoint in sentence-transformers: SparseEncoder(PATH, trust_remote_code=True)."""

from milco_pyserini.integrations.sentence_transformers import MilcoModule
'''


def write_sentence_transformers_files(directory: Path) -> None:
    """Write the files by which sentence-transformers loads a checkpoint of our own layout. Existing ones are kept."""
    modules = [{"idx": 0, "name": "0", "path": "", "type": f"{Path(_CODE).stem}.MilcoModule"}]
    for file, content in (
        (MODULES, modules),
        (MODEL_CLASS, {"model_type": "SparseEncoder", "similarity_fn_name": "dot"}),
    ):
        if not (directory / file).exists():
            write_json(directory / file, content)
    (directory / _CODE).write_text(_CODE_TEXT, encoding="utf-8")


def read_checkpoint(checkpoint: Checkpoint, variants: Iterable[str]) -> tuple[dict[str, Any], Weights]:
    """Return the fields of the configuration, and the tensors by our own names.

    variants: names of fields to be replaced. Raises MilcoError for an unknown one, and as read_tensors() and
    read_config() do.
    """
    for name in variants:
        if name not in VARIANTS:
            raise unknown_name("variant", name, VARIANTS)
    tensors = rename_tensors(read_tensors(checkpoint))
    values = read_config(checkpoint, tensors)
    return values, rename_gte(tensors) if any(_QKV.search(name) for name in tensors) else tensors


def read_tensors(checkpoint: Checkpoint) -> dict[str, Weight]:
    """Return every tensor by its name in the checkpoint, quantized matrices as such.

    Raises MilcoError for a file that cannot be read, for integers without a scale, and for values of used tensors
    that are not finite.
    """
    raw: dict[str, Tensor] = {}
    files, directory = checkpoint.weight_files, checkpoint.directory
    for path in files:
        with loading(path):
            # safetensors reports a file without read permission as one that does not exist.
            path.open("rb").close()
            if path.suffix == ".safetensors":
                from safetensors.torch import load_file

                values = load_file(path)
            else:
                values = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        if not isinstance(values, dict) or not all(isinstance(value, Tensor) for value in values.values()):
            raise MilcoError(f"{path} has something other than tensors by name. Save the model's state_dict() in it.")
        if twice := raw.keys() & values.keys():
            raise MilcoError(f"checkpoint {directory}: two files have {listed(sorted(twice))}. Download it again.")
        raw.update(values)
    scales = {name: raw.pop(name + _SCALE) for name in list(raw) if name + _SCALE in raw}
    tensors: dict[str, Weight] = {**raw}
    for name, tensor in raw.items():
        if name in scales:
            matrix = QuantizedMatrix.of(tensor, scales[name])
            if matrix is None:
                raise MilcoError(
                    f"checkpoint {directory}: {name} {tuple(tensor.shape)} has a scale {tuple(scales[name].shape)}: a "
                    "quantized matrix needs the scale of each row, or of blocks of each row. Download the checkpoint "
                    "again."
                )
            tensors[name] = matrix
        elif not (tensor.is_floating_point() or _is_unused(name)):
            raise MilcoError(
                f"checkpoint {directory}: {name} has {tensor.dtype} values without their {name}{_SCALE}: a quantized "
                "matrix needs the scale of each row. Download the checkpoint again."
            )
    used = {name: tensor for name, tensor in tensors.items() if not _is_unused(name)}
    limits = {name: tensor.limits() if isinstance(tensor, QuantizedMatrix) else tensor for name, tensor in used.items()}
    validate_weights(directory, limits)
    return tensors


def _is_unused(name: str) -> bool:
    return bool(_DROPPED.search(name)) and not name.endswith(_TIED_DECODER)


def rename_tensors(tensors: Weights) -> dict[str, Weight]:
    """Return copies of the tensors by our own names, without those that inference does not use.

    Raises MilcoError if two that differ have the same name.
    """
    renamed: dict[str, Weight] = {}
    for before, tensor in tensors.items():
        if not _DROPPED.search(before):
            name = before
            for pattern, replacement in _RENAMED:
                name = pattern.sub(replacement, name)
            if name in renamed and not torch.equal(renamed[name].float(), tensor.float()):
                raise MilcoError(f"two tensors of the checkpoint are {name}, and differ: one of them is {before}")
            # A copy: tensors of a file change with it.
            renamed[name] = tensor.clone()
    if _DECODER not in renamed:
        # A decoder that was saved as tied is the English model's embedding matrix.
        tied = [tensor for name, tensor in tensors.items() if name.endswith(_TIED_DECODER)]
        if tied:
            renamed[_DECODER] = tied[0].clone()
    return renamed


def read_config(checkpoint: Checkpoint, tensors: Weights) -> dict[str, Any]:
    """Return a configuration's fields; in the authors' layout the sizes come from the tensors, by our names."""
    values = checkpoint.config
    if not is_milco(values):
        what = values.get("model_type")
        raise MilcoError(f"{checkpoint.directory} has a {what!r} model, not a MILCO checkpoint")
    if "encoder" not in values:
        return _authors_config(checkpoint, tensors)
    if isinstance(values["encoder"], Mapping) and is_gte(values["encoder"]):
        return values | {"encoder": gte_config(values["encoder"])}
    return values


def _authors_config(checkpoint: Checkpoint, tensors: Weights) -> dict[str, Any]:
    """Shapes give the sizes; the rest, the number of heads above all, is in the config.json of the encoder."""
    sizes = [_WORDS, _PROJECTOR, _DECODER]
    known, directory = checkpoint.encoder_config, checkpoint.directory
    if not is_gte(known):
        sizes += [_POSITIONS, _TYPES, _INTERMEDIATE]
    missing = [name for name in sizes if name not in tensors]
    if missing:
        raise MilcoError(f"checkpoint {directory} lacks {listed(missing)}")
    for name in sizes:
        if tensors[name].ndim != 2:
            raise MilcoError(f"checkpoint {directory}: {name} has {tensors[name].ndim} dimensions, not 2")
    if is_gte(known):
        encoder = gte_config(known)
    else:
        encoder = {
            "model_type": "xlm-roberta",
            "hidden_size": tensors[_WORDS].shape[1],
            "num_hidden_layers": len({name.split(".")[3] for name in tensors if name.startswith(_LAYERS)}),
            "intermediate_size": tensors[_INTERMEDIATE].shape[0],
            "max_position_embeddings": tensors[_POSITIONS].shape[0],
            "type_vocab_size": tensors[_TYPES].shape[0],
            "layer_norm_eps": 1e-5,
            **{name: known[name] for name in _NOT_IN_SHAPES if name in known},
        }
    return {
        "encoder": encoder | {"vocab_size": tensors[_WORDS].shape[0]},
        "english_hidden_size": tensors[_PROJECTOR].shape[0],
        "english_vocab_size": tensors[_DECODER].shape[0],
        "echo": any(name.startswith("echo.") for name in tensors),
    }


def model_card(config: NetworkConfig) -> str:
    """Return the Markdown card of a checkpoint without one: sizes, lengths and views, as its configuration has them."""
    encoder, source, echo = config.encoder, "", ""
    if config.echo:
        source = " and the text's own pieces (source view)"
        echo = f"- source view: {config.echo_variant} LexEcho head, repeated tokens by {config.source_pool}\n"
    return f"""---
library_name: milco_pyserini
pipeline_tag: feature-extraction
tags: [sparse-retrieval, multilingual, cross-lingual, milco]
---

# MILCO checkpoint

Text in many languages to weighted English word pieces (pivot view){source}, for an inverted index.

- encoder: {encoder.num_hidden_layers} layers of {encoder.hidden_size}, {encoder.vocab_size:,} pieces; English \
vocabulary of {config.english_vocab_size:,} word pieces
- queries up to {config.query_max_length} tokens, passages up to {config.passage_max_length}
{echo}
```python
from milco_pyserini import MilcoEncoder

encoder = MilcoEncoder.from_pretrained("PATH")
encoder.decode(encoder.encode_query("Wer erfand das Telefon?"), top_k=10)
```

With sentence-transformers: `SparseEncoder("PATH", trust_remote_code=True)`, which runs the Python file in this
directory. It only imports milco_pyserini; read it first, as that of any checkpoint.
"""
