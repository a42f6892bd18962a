"""Write the checkpoint directory: quantized weights, configuration, both tokenizers.

Source embeddings take 4 bits per value, other matrices 8, each row with its own scale. The most frequent tokens take 8,
too: a token's rounding error is the same in every text that has it, so it ranks texts in the query's own language
higher. The connector keeps 16 bits: its rows are close to the identity, and rounding them measurably costs ranking
quality.
"""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from milco_pyserini.io.files import atomic_directory, is_json_with
from milco_pyserini.model import MilcoModel

from .network import ECHO_ENLARGED, echo_dimensions

_WORDS = "encoder.embeddings.word_embeddings.weight"
_CLIPS = torch.linspace(0.6, 1.0, 9)
# From -7 to 7: a rounded row has the largest level, so that rounding it again finds the same scale.
_LEVELS = 7
# The tokenizer's order is that of frequency.
FREQUENT = 12_000
# Decimals of the log probabilities of tokens, which no segmentation of a text needs in full.
_DECIMALS = 3
_BLOCK = 8192


def export(model: MilcoModel, source: Tokenizer, english: Tokenizer, card: str, output: Path) -> None:
    """Write a checkpoint directory, replacing an existing one."""
    with atomic_directory(output, True, lambda path: is_json_with(path / "config.json", "model_type")) as directory:
        save_file(quantize(model), str(directory / "model.safetensors"), metadata={"format": "pt"})
        model.config.architectures = ["MilcoModel"]
        config = model.config.to_diff_dict() | {"encoder": model.config.encoder.to_diff_dict()}
        (directory / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        # safetensors writes files that only the owner can read.
        shutil.copymode(directory / "config.json", directory / "model.safetensors")
        (directory / "README.md").write_text(card, encoding="utf-8")
        _write_tokenizer(source, directory, {"tokenizer_class": "XLMRobertaTokenizerFast", **_SOURCE_SPECIALS})
        _write_tokenizer(english, directory / "english", {"tokenizer_class": "BertTokenizerFast", **_ENGLISH_SPECIALS})


_SOURCE_SPECIALS = {
    "bos_token": "<s>",
    "cls_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
    "model_max_length": 512,
}
_ENGLISH_SPECIALS = {
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "mask_token": "[MASK]",
    "do_lower_case": True,
    "strip_accents": True,
}


def _write_tokenizer(tokenizer: Tokenizer, directory: Path, config: dict) -> None:
    directory.mkdir(exist_ok=True)
    content = json.loads(tokenizer.to_str())
    if content["model"]["type"] == "Unigram":
        content["model"]["vocab"] = [(token, round(score, _DECIMALS)) for token, score in content["model"]["vocab"]]
    compact = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    (directory / "tokenizer.json").write_text(compact, encoding="utf-8")
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def quantize(model: MilcoModel) -> dict[str, Tensor]:
    """Return the stored tensors: float16, or int8 with NAME_scale.

    Rows of rare tokens are NAME_rest with NAME_rest_scale, uint8 (two 4-bit values per byte).
    """
    stored: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        tensor = tensor.detach().float()
        if name == _WORDS:
            stored[name], stored[name + "_scale"] = quantize_rows(tensor[:FREQUENT])
            if len(tensor) > FREQUENT:
                stored[name + "_rest"], stored[name + "_rest_scale"] = quantize_words(tensor[FREQUENT:])
        elif tensor.dim() == 2 and not name.startswith(("connector.", "echo.")):
            stored[name], stored[name + "_scale"] = quantize_rows(tensor)
        else:
            stored[name] = tensor.half()
    return {name: tensor.contiguous() for name, tensor in stored.items()}


def quantize_rows(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 [R, C] and float32 scales [R]."""
    scale = (matrix.abs().amax(dim=1) / 127).clamp_(min=1e-8)
    return (matrix / scale.unsqueeze(1)).round().to(torch.int8), scale


def quantize_words(words: Tensor) -> tuple[Tensor, Tensor]:
    """Return uint8 [V, d / 2] and float16 scales [V], at the clipping point with the least squared error."""
    found = [_words_levels(block) for block in words.split(_BLOCK)]
    levels, scales = (torch.cat(parts) for parts in zip(*found, strict=True))
    nibbles = (levels + 8).to(torch.uint8)
    return nibbles[:, ::2] | nibbles[:, 1::2] << 4, scales.half()


def rounded_words(words: Tensor) -> Tensor:
    """Return what a checkpoint has of some rows of embeddings of 4 bits, float32 [R, d]."""
    levels, scales = _words_levels(words)
    return levels * scales.unsqueeze(1)


def _words_levels(words: Tensor) -> tuple[Tensor, Tensor]:
    """Return integers from -7 to 7, float32 [R, d], and scales [R] that float16 has exactly."""
    first = echo_dimensions(words.shape[1]).start
    # An earlier rounding may have put a part of the LexEcho weight into the second dimension.
    words = words.clone()
    words[:, first] += words[:, first + 1] / ECHO_ENLARGED
    words[:, first + 1] = 0
    peak = words.abs().amax(dim=1, keepdim=True).clamp(min=1e-4)
    tries = (peak * _CLIPS / _LEVELS).half().float()
    rounded = [(words / scale.unsqueeze(1)).round().clamp(-_LEVELS, _LEVELS) for scale in tries.T]
    errors = torch.stack([(r * s.unsqueeze(1) - words).square().sum(1) for r, s in zip(rounded, tries.T, strict=True)])
    scale = tries.gather(1, errors.argmin(dim=0).unsqueeze(1))
    levels = (words / scale).round().clamp(-_LEVELS, _LEVELS)
    lost = words[:, first] - levels[:, first] * scale[:, 0]
    levels[:, first + 1] = (ECHO_ENLARGED * lost / scale[:, 0]).round().clamp(-_LEVELS, _LEVELS)
    return levels, scale[:, 0]
