"""Write the checkpoint directory: quantized weights, configuration, both tokenizers, model card.

The base has matrices in blocks of 32 values of 4 bits, each with a float16 scale. The same blocks are written, so what
is not trained is stored as it was given. Layers that are trained have 8 bits a value: rounded to 4, they cost .025 on
the sample, where the decoder costs nothing. The connector and vectors keep 16 bits.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.io.files import atomic_directory, is_json_with

from .base import BLOCK, write_tokenizer

_WEIGHTS = "model.safetensors"
# Benchmarks whose texts are trained on (afriqa and mkqa: queries; tatoeba: English sides), and
# those whose training sets are in the base's report (arXiv:2402.05672).
_TRAINED_ON = [
    *("afriqa", "beir-fever", "beir-hotpotqa", "beir-msmarco", "beir-nq", "beir-quora", "miracl", "mkqa", "mrtydi"),
    "tatoeba",
]
_SOURCE_TOKENIZER = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<s>",
    "cls_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "model_max_length": 512,
}
_ENGLISH_TOKENIZER = {
    "tokenizer_class": "BertTokenizerFast",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "mask_token": "[MASK]",
    "do_lower_case": True,
}
# Shares of a block's largest value at which the values are clipped, of which the best is taken.
_CLIPS = (0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
_ROWS = 4096


def export(encoder: MilcoEncoder, card: str, output: Path) -> None:
    """Write a checkpoint directory, replacing an existing one."""
    model = encoder.model
    with atomic_directory(output, True, lambda path: is_json_with(path / "config.json", "model_type")) as directory:
        save_file(quantize(model.state_dict()), str(directory / _WEIGHTS), metadata={"format": "pt"})
        model.config.architectures = ["MilcoModel"]
        model.config.trained_on = _TRAINED_ON
        config = model.config.to_diff_dict() | {"encoder": model.config.encoder.to_diff_dict()}
        (directory / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        # safetensors writes files that only the owner can read.
        shutil.copymode(directory / "config.json", directory / _WEIGHTS)
        (directory / "README.md").write_text(card, encoding="utf-8")
        write_tokenizer(encoder.tokenizer.tokenizer, directory, _SOURCE_TOKENIZER)
        write_tokenizer(encoder.english_tokenizer, directory / "english", _ENGLISH_TOKENIZER)


def quantize(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the stored tensors: float16, or uint8 or int8 with NAME_scale, as model.quantized reads them."""
    stored: dict[str, Tensor] = {}
    for name, tensor in state.items():
        tensor = tensor.detach().float()
        if name == "echo.weight":
            stored[name], stored[f"{name}_scale"] = quantize_rows(tensor)
            continue
        if tensor.dim() != 2 or name.startswith("connector.") or "position" in name:
            stored[name] = tensor.half()
            continue
        stored[name], stored[f"{name}_scale"], error = quantize_blocks(tensor)
        if error and ".layer." in name:
            stored[name], stored[f"{name}_scale"] = quantize_rows(tensor)
    return {name: tensor.contiguous() for name, tensor in stored.items()}


def quantize_rows(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 [R, C], and float32 scales [R]."""
    scales = matrix.abs().amax(dim=1).clamp(min=1e-12) / 127
    return (matrix / scales.unsqueeze(1)).round().to(torch.int8), scales


def quantize_blocks(matrix: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return uint8 [R, C / 2], two values a byte, float16 scales [R, C / 32], and the sum of the squared errors.

    Each block has the scale with the least error. A matrix that has been quantized stays as it is.
    """
    found = [_levels(rows.unflatten(1, (-1, BLOCK))) for rows in matrix.split(_ROWS)]
    levels, scales, errors = (torch.cat(parts) for parts in zip(*found, strict=True))
    nibbles = (levels + 8).to(torch.uint8).flatten(1)
    return nibbles[:, ::2] | nibbles[:, 1::2] << 4, scales.squeeze(-1).half(), errors.sum().item()


def _levels(blocks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return integers from -8 to 7, float32 [R, G, 32], scales [R, G, 1] that float16 has exactly, and their errors."""
    peak = blocks.gather(-1, blocks.abs().argmax(dim=-1, keepdim=True))
    best = torch.full_like(peak, torch.inf)
    scale, levels = torch.ones_like(peak), torch.zeros_like(blocks)
    for share in (*(-clip / 8 for clip in _CLIPS), *(clip / 7 for clip in _CLIPS)):
        tried = (peak * share).half().float()
        tried = torch.where(tried == 0, 1.0, tried)
        rounded = (blocks / tried).round().clamp(-8, 7)
        error = (rounded * tried - blocks).square().sum(dim=-1, keepdim=True)
        better = error < best
        best, scale = torch.where(better, error, best), torch.where(better, tried, scale)
        levels = torch.where(better, rounded, levels)
    return levels, scale, best
