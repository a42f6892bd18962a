"""Shared by all loaders of Hugging Face checkpoints: find the directory, explain failures, validate weights."""

import hashlib
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig

from milco_pyserini.defaults import check_local_name
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import is_json_with, read_json
from milco_pyserini.io.hub import cached_snapshot, fetch_snapshot

# A directory with any of these has a tokenizer: of the tokenizers library, SentencePiece, WordPiece.
TOKENIZER_FILES = ("tokenizer.json", "sentencepiece.bpe.model", "vocab.txt")

_WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
# At any depth: a checkpoint may contain the sub-models that its config.json names.
_SMALL_FILES = ["*.json", "*.txt", "*.model"]
_ALL_FILES = [*_SMALL_FILES, "*.safetensors", "*pytorch_model*.bin"]
# The largest float16. Trained weights are far below it (checkpoints are published in float16), and sums of products
# with larger ones overflow float32.
_LARGEST_WEIGHT = 65504.0
# The usual length for training and evaluating sparse encoders.
_DEFAULT_LENGTH = 512


def find_model(name: str, kind: str, example: str, embedded: str, weights: bool = True) -> Path:
    """Return the directory of a checkpoint: a local path, or a hub name's snapshot, from the cache if it is there.

    Args:
        name: a directory, or OWNER/NAME on the hub.
        kind: the noun for messages, such as "encoder".
        example, embedded: for messages: another name on the hub, and one that needs no hub.
        weights: whether the weights are needed; if not, only tokenizer and configuration are downloaded.

    Raises:
        MilcoError: there is no such directory, or the hub does not provide it.
    """
    check_local_name(name, kind, example, embedded)
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub.errors import HFValidationError

    # A cached snapshot is used without a network. If it lacks the weights, a download was interrupted or fetched only
    # the tokenizer, and continues when the weights are needed.
    try:
        cached = cached_snapshot(name)
    except HFValidationError:
        raise MilcoError(f"{name!r} is not a hub name: expected owner/name, such as {example}") from None
    if cached is not None:
        if not weights and any((cached / file).is_file() for file in TOKENIZER_FILES):
            return cached
        # The modules of a SparseEncoder may have directories of their own.
        for place in (cached, *(cached.iterdir() if (cached / "modules.json").is_file() else ())):
            with suppress(MilcoError):
                weight_files(place)
                return cached
    hint = f"Pass the path of a downloaded checkpoint, or {embedded!r}, which needs no download."
    return fetch_snapshot(name, _ALL_FILES if weights else _SMALL_FILES, what=f"{kind} {name!r}", hint=hint)


def weight_files(directory: Path) -> list[Path]:
    """Return the files with a checkpoint's tensors, one or several shards. Raises MilcoError if one is missing."""
    for name in _WEIGHT_FILES:
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
            missing = [shard for shard in shards if not (directory / shard).is_file()]
            if missing:
                raise MilcoError(f"checkpoint {directory} lacks the shards {listed(missing)}")
            return [directory / shard for shard in shards]
    raise MilcoError(f"checkpoint {directory} has no weights: expected {' or '.join(_WEIGHT_FILES)}, or its shards")


@contextmanager
def loading(
    path: Path, kind: str = "", fix: str = "Download it again, or give another", example: str = ""
) -> Iterator[None]:
    """Turn every exception of the block into a MilcoError: "PATH cannot be read as KIND: REASON. FIX.".

    transformers, tokenizers, safetensors and torch raise many types, plain Exception among them, with texts of many
    lines and advice (to run a checkpoint's code, to unpickle objects) that must not be passed on.

    Args:
        path: the file or directory that is read.
        kind: what it is read as, with its article.
        fix: the fix, without its period.
        example: an alternative to name if the checkpoint needs its own code.
    """
    try:
        yield
    except MilcoError:
        raise
    except Exception as error:
        if "trust_remote_code" in str(error) or "custom code" in str(error):
            reason = "it needs code from its own repository, which is never run"
            fix = f"Give a checkpoint that transformers knows{example and ', such as '}{example}"
        elif isinstance(error, pickle.UnpicklingError):
            reason = "it is damaged or contains objects other than tensors, which are never unpickled"
        elif isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        else:
            reason = one_line(error)
        raise MilcoError(f"{path} cannot be read{kind and ' as '}{kind}: {reason}. {fix}.") from error


def one_line(error: Exception) -> str:
    """Return the first line of an error's text, truncated, without its period; its type if it has no text."""
    return (str(error).strip() or type(error).__name__).split("\n")[0][:200].rstrip(". ")


def listed(names: list[str]) -> str:
    """Return names with commas, at most eight of them."""
    return f"{', '.join(names[:8])} and {len(names) - 8} more" if len(names) > 8 else ", ".join(names)


def validate_weights(directory: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise MilcoError for a floating-point tensor with a value that is not finite, or too large to compute with."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.numel():
            # One pass without a copy; NaN makes both bounds NaN.
            lowest, highest = (float(bound) for bound in torch.aminmax(tensor.detach()))
            if not max(-lowest, highest) <= _LARGEST_WEIGHT:
                raise MilcoError(
                    f"checkpoint {directory}: {name} has values from {lowest:g} to {highest:g}: weights must be finite "
                    f"and at most {_LARGEST_WEIGHT:,.0f}, as in float16. Download the checkpoint again, or train from "
                    "an earlier one."
                )


def weight_hash(tensors: Mapping[str, Tensor]) -> str:
    """Return BLAKE2b over every tensor's name, shape and float32 values: equal weights, equal hash."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().float().contiguous().numpy().data)
    return digest.hexdigest()


def token_limit(network: nn.Module, config: PretrainedConfig) -> int:
    """Return the number of tokens, special ones included, that a network has positions for."""
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            # RoBERTa and its relatives count positions from the padding id + 1.
            return config.max_position_embeddings - module.padding_idx - 1
    return config.max_position_embeddings


def text_length(directory: Path, limit: int) -> int:
    """Return the default maximum length in tokens: 512, or less if limit or sentence-transformers' file states less."""
    path, field = directory / "sentence_bert_config.json", "max_seq_length"
    stated = read_json(path)[field] if is_json_with(path, field) else None
    return min(_DEFAULT_LENGTH, limit, stated or _DEFAULT_LENGTH)
