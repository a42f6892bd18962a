"""Checkpoints on disk and on the hub: the authors' layout and ours, as one set of tensors and one configuration.

Ours: config.json, model.safetensors, tokenizer.json, english/tokenizer.json. The authors': pytorch_model.bin or
safetensors, whole or sharded, beside or apart from the two sub-models that config.json names.
"""

import contextlib
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from milco_pyserini.console import say
from milco_pyserini.defaults import DEFAULT_ENCODER, MINI, check_local_name
from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.io.files import read_json
from milco_pyserini.io.hub import cached_snapshot, fetch_snapshot
from milco_pyserini.model.configuration import VARIANTS, MilcoConfig
from milco_pyserini.model.loading import loading, one_line
from milco_pyserini.model.modeling import MilcoModel

ENGLISH = "english"
# Any of these is a tokenizer: of the tokenizers library, of SentencePiece, of WordPiece.
TOKENIZERS = ("tokenizer.json", "sentencepiece.bpe.model", "vocab.txt")

_EMBEDDED = {MINI: Path(__file__).parent.parent / "resources" / "milco-mini"}
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
# At any depth: a model may bring the sub-models that its config.json names.
_DESCRIPTION = ["*.json", "*.txt", "*.model"]
_DOWNLOADED = [*_DESCRIPTION, "*.safetensors", "*pytorch_model*.bin"]
_SCALE = "_scale"
_DROPPED = re.compile(r"(^|\.)(en_lsr\.|m_model\.pooler\.|pooler\.)|\.position_ids$")
# The authors' names (model-notes 1.3) and ours. RoBERTa-style heads have no "predictions.transform".
_RENAMED = (
    (re.compile(r"^(module\.|milco\.)+"), ""),
    (re.compile(r"^m_model\."), "encoder."),
    (re.compile(r"^projector\."), "connector.projector."),
    (re.compile(r"^mlm_head\.predictions\.transform\.dense\."), "connector.dense."),
    (re.compile(r"^mlm_head\.predictions\.transform\.LayerNorm\."), "connector.layer_norm."),
    (re.compile(r"^mlm_head\.(dense|layer_norm)\."), r"connector.\1."),
    (re.compile(r"^mlm_head\.(predictions\.)?decoder\."), "decoder."),
    (re.compile(r"^mlm_head\.(predictions\.)?bias$"), "decoder.bias"),
    (re.compile(r"^scale$"), "echo.scale"),
)
_NOT_IN_SHAPES = (
    "model_type",
    "num_hidden_layers",
    "num_attention_heads",
    "layer_norm_eps",
    "hidden_act",
    "pad_token_id",
)
# The tensors whose shapes tell the sizes of a network.
_MEASURED = (
    "encoder.embeddings.word_embeddings.weight",
    "encoder.embeddings.position_embeddings.weight",
    "encoder.embeddings.token_type_embeddings.weight",
    "encoder.encoder.layer.0.intermediate.dense.weight",
    "connector.projector.weight",
    "decoder.weight",
)
_TIED_DECODER = "en_lsr.bert.embeddings.word_embeddings.weight"
_LAYERS = "encoder.encoder.layer."
# The largest float16. Trained weights are far below it (checkpoints are published in float16), and sums of products
# with larger ones overflow float32.
_LARGEST = 65504.0


def find_checkpoint(name: str, weights: bool = True) -> Path:
    """The directory of a checkpoint: an embedded one by name, a local path, or a snapshot from the hub.

    weights: as for find_model(). Raises MilcoError, with what to do instead, if it is none of these.
    """
    return _EMBEDDED[name] if name in _EMBEDDED else find_model(name, "encoder", DEFAULT_ENCODER, MINI, weights)


def find_model(name: str, kind: str, example: str, embedded: str, weights: bool = True) -> Path:
    """The directory of a model of any kind: a local path, or by name the hub's cache or, if it is not there, the hub.

    Errors call it kind, and name another on the hub (example) and one that needs no hub (embedded). weights: whether
    they are needed; if not, tokenizer and configuration alone are fetched. Raises MilcoError if it cannot be had.
    """
    check_local_name(name, kind, example, embedded)
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub.errors import HFValidationError

    # A cached snapshot is used as it is, without a network. If it lacks the weights, a download was interrupted or
    # fetched only the tokenizer, and continues when the weights are needed.
    try:
        cached = cached_snapshot(name)
    except HFValidationError:
        raise MilcoError(f"{name!r} is not a hub name: expected owner/name, such as {example}") from None
    if cached is not None:
        if not weights and any((cached / file).is_file() for file in TOKENIZERS):
            return cached
        with contextlib.suppress(MilcoError):
            _weight_files(cached)
            return cached
    hint = f"Pass the path of a downloaded checkpoint, or {embedded!r}, which needs no download."
    return fetch_snapshot(name, _DOWNLOADED if weights else _DESCRIPTION, what=f"{kind} {name!r}", hint=hint)


def load_model(directory: Path, variants: dict[str, Any] | None = None) -> MilcoModel:
    """Build the model of a checkpoint directory, float32, in eval mode.

    variants: MilcoConfig fields (VARIANTS) that replace the checkpoint's. Raises MilcoError, before the network takes
    memory, for a configuration that no network can have, and for tensors that are missing, of another shape, or not
    finite; tensors that have no place are named on stderr.
    """
    variants = variants or {}
    for name in variants:
        if name not in VARIANTS:
            raise unknown_name("variant", name, VARIANTS)
    tensors = rename_tensors(read_tensors(directory))
    config = MilcoConfig(**{**read_config(directory, tensors).to_dict(), **variants})
    return build_model(directory, config, tensors)


def build_model(
    directory: Path, config: MilcoConfig, tensors: dict[str, Tensor], unused: tuple[str, ...] = ()
) -> MilcoModel:
    """Build a network with these tensors, float32, in eval mode. unused: starts of the names of tensors that are zero.

    Raises MilcoError as load_model() does.
    """
    with loading(directory / "config.json", "a configuration"), torch.device("meta"):
        # Shapes without memory: a wrong size must not take the machine's.
        expected = MilcoModel(config).state_dict()
    tensors = tensors | {name: torch.zeros(each.shape) for name, each in expected.items() if name.startswith(unused)}
    _check_shapes(directory, tensors, expected)
    left_over = sorted(tensors.keys() - expected.keys())
    if any(name.startswith(_LAYERS) for name in left_over):
        raise MilcoError(
            f"checkpoint {directory} has more encoder layers than the {config.encoder.num_hidden_layers} of its "
            f"configuration: {_listed(left_over)}. Correct num_hidden_layers in config.json."
        )
    model = MilcoModel(config)
    model.load_state_dict(tensors, strict=False)
    if left_over:
        say(f"checkpoint {directory}: no place for {_listed(left_over)}")
    return model.eval()


def read_tensors(directory: Path) -> dict[str, Tensor]:
    """Every tensor under the name that the checkpoint gives it, quantised matrices multiplied out to float32.

    Raises MilcoError for a file that cannot be read, for integers without a scale, and for values of tensors in use
    that are not finite.
    """
    raw: dict[str, Tensor] = {}
    for path in _weight_files(directory):
        raw.update(_read_file(path))
    scales = {name: raw.pop(name + _SCALE) for name in list(raw) if name + _SCALE in raw}
    for name, tensor in raw.items():
        if name in scales:
            raw[name] = _dequantize(directory, name, tensor, scales[name])
        elif not (tensor.is_floating_point() or _DROPPED.search(name)):
            raise MilcoError(
                f"checkpoint {directory}: {name} holds {tensor.dtype} values without their {name}{_SCALE}: a quantized "
                "matrix needs the scale of each row. Download the checkpoint again."
            )
    validate_weights(directory, {name: tensor for name, tensor in raw.items() if not _DROPPED.search(name)})
    return raw


def validate_weights(directory: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise MilcoError for a floating-point tensor with a value that is not finite, or too large to compute with."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.numel():
            # One pass without a copy, and what is not a number becomes both.
            lowest, highest = (float(bound) for bound in torch.aminmax(tensor.detach()))
            if not max(-lowest, highest) <= _LARGEST:
                raise MilcoError(
                    f"checkpoint {directory}: {name} has values from {lowest:g} to {highest:g}: weights must be finite "
                    f"and at most {_LARGEST:,.0f}, as in float16. Download the checkpoint again, or train from an "
                    "earlier one."
                )


def rename_tensors(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors under our names, float32; parts that inference has no use for are left out."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if not _DROPPED.search(name):
            for pattern, replacement in _RENAMED:
                name = pattern.sub(replacement, name)
            renamed[name] = tensor.float()
    if "decoder.weight" not in renamed:
        # Saved as tied, the decoder is the English model's embedding matrix.
        tied = [tensor for name, tensor in tensors.items() if name.endswith(_TIED_DECODER)]
        if tied:
            renamed["decoder.weight"] = tied[0].float()
    return renamed


def read_config(directory: Path, tensors: dict[str, Tensor]) -> MilcoConfig:
    """The configuration of a checkpoint; for the authors' layout, sizes come from the tensors (rename_tensors)."""
    path = directory / "config.json"
    values = read_json(path)
    if values.get("model_type") != MilcoConfig.model_type:
        raise MilcoError(f"{directory} holds a {values.get('model_type')!r} model, not a MILCO checkpoint")
    if "encoder" not in values:
        values = _authors_config(directory, values, tensors)
    return make_config(path, values)


def make_config(path: Path, values: dict[str, Any]) -> MilcoConfig:
    """The configuration with these values. Raises MilcoError that names the file at path."""
    try:
        return MilcoConfig(**values)
    except Exception as error:
        # Beside our own errors, transformers raises many types for values that it does not expect.
        raise MilcoError(f"checkpoint {path}: {one_line(error)}. Correct it, or download it again.") from None


def _authors_config(directory: Path, values: dict, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The fields of MilcoConfig that the authors' config.json, its encoder's and the shapes of the tensors give."""
    absent = [name for name in _MEASURED if name not in tensors]
    if absent:
        raise MilcoError(f"checkpoint {directory} lacks {_listed(absent)}")
    flat = [name for name in _MEASURED if tensors[name].ndim != 2]
    if flat:
        raise MilcoError(f"checkpoint {directory}: {flat[0]} has {tensors[flat[0]].ndim} dimensions, not 2")
    return {
        "encoder": _encoder_config(directory, values, tensors),
        "english_hidden_size": tensors["connector.projector.weight"].shape[0],
        "english_vocab_size": tensors["decoder.weight"].shape[0],
        "echo": "echo.weight" in tensors,
    }


def weight_hash(tensors: Mapping[str, Tensor]) -> str:
    """BLAKE2b over every tensor's name, shape and float32 values: equal weights, equal hash."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().float().contiguous().numpy().data)
    return digest.hexdigest()


def sub_model_directories(directory: Path, field: str) -> list[Path]:
    """Where a sub-model that the authors' config.json names may stand locally, nearest first."""
    path = directory / "config.json"
    name = read_json(path).get(field)
    if not name:
        return []
    if not isinstance(name, str):
        raise MilcoError(f"checkpoint {path}: {field} expects the name of a checkpoint, got {name!r}. Correct it.")
    places = [directory / name, directory.parent / name, Path(name)]
    return [place for place in places if place.is_dir()]


def _encoder_config(directory: Path, values: dict, tensors: dict[str, Tensor]) -> dict:
    """Shapes give every size but the heads, which are of 64 dimensions unless the sub-model's config says more."""
    words = tensors["encoder.embeddings.word_embeddings.weight"]
    layers = {name.split(".")[3] for name in tensors if name.startswith("encoder.encoder.layer.")}
    config = {
        "model_type": "xlm-roberta",
        "vocab_size": words.shape[0],
        "hidden_size": words.shape[1],
        "num_hidden_layers": len(layers),
        "num_attention_heads": max(1, words.shape[1] // 64),
        "intermediate_size": tensors["encoder.encoder.layer.0.intermediate.dense.weight"].shape[0],
        "max_position_embeddings": tensors["encoder.embeddings.position_embeddings.weight"].shape[0],
        "type_vocab_size": tensors["encoder.embeddings.token_type_embeddings.weight"].shape[0],
        "layer_norm_eps": 1e-5,
    }
    for place in sub_model_directories(directory, "multilingual_encoder_checkpoint")[:1]:
        if (place / "config.json").is_file():
            known = read_json(place / "config.json")
            config.update({name: known[name] for name in _NOT_IN_SHAPES if name in known})
    return config


def _check_shapes(directory: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    missing = [name for name in expected if name not in tensors]
    if missing:
        raise MilcoError(f"checkpoint {directory} lacks {_listed(missing)}")
    wrong = [
        f"{name} {tuple(tensors[name].shape)} instead of {tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if tensors[name].shape != tensor.shape
    ]
    if wrong:
        raise MilcoError(f"checkpoint {directory} does not fit its configuration: {_listed(wrong)}")


def _weight_files(directory: Path) -> list[Path]:
    for name in _WEIGHTS:
        if (directory / name).is_file():
            return [directory / name]
        index = directory / f"{name}.index.json"
        if index.is_file():
            weight_map = read_json(index).get("weight_map")
            names = list(weight_map.values()) if isinstance(weight_map, dict) else []
            if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
                raise MilcoError(
                    f"checkpoint {index}: weight_map expects the file of each tensor, in the same directory. Download "
                    "the checkpoint again."
                )
            shards = sorted(set(names))
            absent = [shard for shard in shards if not (directory / shard).is_file()]
            if absent:
                raise MilcoError(f"checkpoint {directory} lacks the shards {_listed(absent)}")
            return [directory / shard for shard in shards]
    raise MilcoError(f"checkpoint {directory} holds no weights: expected {' or '.join(_WEIGHTS)}, whole or sharded")


def _read_file(path: Path) -> dict[str, Tensor]:
    with loading(path):
        # safetensors reports a file that may not be read as one that does not exist.
        path.open("rb").close()
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        values = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    if not isinstance(values, dict) or not all(isinstance(value, Tensor) for value in values.values()):
        raise MilcoError(f"{path} holds something other than tensors by name. Save the model's state_dict() in it.")
    return values


def _dequantize(directory: Path, name: str, matrix: Tensor, scale: Tensor) -> Tensor:
    """int8 [R, C]: value x scale[row]. uint8 [R, C / 2]: two 4-bit values a byte, low first, (nibble - 8) x scale."""
    if matrix.ndim != 2 or scale.shape != matrix.shape[:1]:
        raise MilcoError(
            f"checkpoint {directory}: {name} {tuple(matrix.shape)} has a scale {tuple(scale.shape)}: a quantized "
            "matrix needs the scale of each row. Download the checkpoint again."
        )
    if matrix.dtype == torch.uint8:
        matrix = torch.stack([matrix & 15, matrix >> 4], dim=-1).flatten(1).to(torch.int8) - 8
    return matrix.float() * scale.float().unsqueeze(-1)


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    shown = ", ".join(names[:8])
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown
