"""Shared by all loaders of Hugging Face checkpoints: explain failures, validate weights."""

import hashlib
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import is_json_with, read_json

# The largest float16. Trained weights are far below it (checkpoints are published in float16), and sums of products
# with larger ones overflow float32.
_LARGEST_WEIGHT = 65504.0
# The usual length for training and evaluating sparse encoders.
_DEFAULT_LENGTH = 512


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


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' advice on missing and unused weights, for loaders that check its loading report."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def one_line(error: Exception) -> str:
    """Return the first line of an error's text, truncated, without its period; its type if it has no text."""
    return (str(error).strip() or type(error).__name__).split("\n")[0][:200].rstrip(". ")


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


def token_limit(network: nn.Module, config: Any) -> int:
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
    if stated is not None and (type(stated) is not int or stated < 1):
        raise MilcoError(f"{path}: {field} {stated!r} is not a number of tokens. Correct it, or download it again.")
    return min(_DEFAULT_LENGTH, limit, stated or _DEFAULT_LENGTH)
