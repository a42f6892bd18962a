"""Dense vectors of a collection, for the yardstick of a latency table: encoded here, or brought as NumPy files.

A directory of them holds documents.npy and queries.npy, float [N, d], and documents.txt and queries.txt, the id of each
row on a line of its own. Every vector is brought to length 1, so that inner products are cosines.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.console import Progress
from milco_pyserini.errors import MilcoError
from milco_pyserini.files import read_json, whole_file, write_json

if TYPE_CHECKING:
    import torch

DOCUMENTS = "documents"
QUERIES = "queries"
POOLINGS = ("cls", "mean", "last")
_MAX_LENGTH = 512
_BATCH = 32
# Texts that are sorted by length together.
_WINDOW = 1024
# Where sentence-transformers keep how they pool, and what they put before a text.
_POOLING = Path("1_Pooling", "config.json")
_PROMPTS = "config_sentence_transformers.json"
_POOLING_FIELDS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}


@dataclass(frozen=True)
class DenseVectors:
    """ids: N strings. matrix: float32 [N, d], rows of length 1."""

    ids: list[str]
    matrix: NDArray[np.float32]


class DenseEncoder:
    """A Hugging Face encoder as an encoder of whole texts: one state, or the mean of all, brought to length 1.

    Of a MILCO checkpoint, "mini" among them, it is the multilingual encoder alone. pooling: "cls", "mean", "last"; None
    is what the checkpoint's sentence-transformers files say, else "mean". What these files put before queries and
    documents is put there. Raises MilcoError if the checkpoint cannot be had.
    """

    def __init__(self, name: str, pooling: str | None = None, device: str = "auto") -> None:
        from milco_pyserini.encode.devices import choose_device, choose_dtype
        from milco_pyserini.model.checkpoint import find_checkpoint

        self.device = choose_device(device)
        self.dtype = choose_dtype("auto", self.device)
        directory = find_checkpoint(name)
        milco = read_json(directory / "config.json").get("model_type") == "milco"
        model, self._tokenizer = (_load_milco if milco else _load)(directory)
        self._model = model.eval().to(self.device)
        self.pooling = pooling or _pooling(directory)
        self._prompts = _prompts(directory)

    def encode(self, texts: Sequence[str], kind: str) -> NDArray[np.float32]:
        """Float32 [B, d] of B texts in their order, cut at 512 tokens. kind: DOCUMENTS or QUERIES."""
        texts = [self._prompts.get(kind, "") + text for text in texts]
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        parts = [
            self._encode([texts[number] for number in order[start : start + _BATCH]])
            for start in range(0, len(order), _BATCH)
        ]
        return np.concatenate(parts)[np.argsort(order)]

    def _encode(self, texts: list[str]) -> NDArray[np.float32]:
        import torch
        from torch.nn import functional

        ids, mask = (tensor.to(self.device) for tensor in _padded(self._tokenizer, texts))
        with (
            torch.inference_mode(),
            torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16),
        ):
            states = self._model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        return functional.normalize(pool(states, mask, self.pooling), dim=-1).cpu().numpy()


def pool(states: "torch.Tensor", mask: "torch.Tensor", pooling: str) -> "torch.Tensor":
    """One state of each text: the first, the last unmasked, or the mean of all unmasked.

    states: float [B, S, d]. mask: [B, S], 1 for tokens, then 0 for padding. Returns float [B, d].
    """
    if pooling == "cls":
        return states[:, 0]
    if pooling == "last":
        return states[range(len(states)), mask.sum(dim=1) - 1]
    weights = mask.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)


def encode_all(encoder: DenseEncoder, records: Iterable[tuple[str, str]], kind: str, total: int) -> DenseVectors:
    """Vectors of (id, text) records, in their order. Raises MilcoError if they are not total."""
    progress = Progress(kind, total)
    ids: list[str] = []
    parts = []
    for window in _windows(records):
        ids += [name for name, _ in window]
        parts.append(encoder.encode([text for _, text in window], kind))
        progress.add(len(window))
    progress.close("dense vectors")
    if len(ids) != total:
        raise MilcoError(
            f"{len(ids):,} {kind} were read, the sparse vectors are of {total:,}: they do not belong together"
        )
    return DenseVectors(ids, np.concatenate(parts))


def save(directory: Path, kind: str, vectors: DenseVectors, about: dict) -> None:
    """Write vectors of a kind, and what they are of."""
    with whole_file(directory / f"{kind}.npy") as file:
        np.save(file, vectors.matrix)
    with whole_file(directory / f"{kind}.txt", "w") as lines:
        lines.writelines(f"{name}\n" for name in vectors.ids)
    write_json(directory / f"{kind}.json", about)


def load(directory: Path, kind: str) -> DenseVectors:
    """Vectors of a kind. Raises MilcoError for files that are not there or do not fit together."""
    path, names = directory / f"{kind}.npy", directory / f"{kind}.txt"
    try:
        matrix = np.load(path).astype(np.float32, copy=False)
        # Not splitlines(), which would also split at what an id may hold.
        ids = names.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, ValueError) as error:
        raise MilcoError(f"dense vectors in {directory}: {error}") from None
    if matrix.ndim != 2 or len(ids) != len(matrix):
        raise MilcoError(f"{path} is of shape {matrix.shape}, {names} has {len(ids):,} ids: one for each row is needed")
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return DenseVectors(ids, matrix / np.maximum(lengths, np.float32(1e-12)))


def _windows(records: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    left = iter(records)
    while window := list(islice(left, _WINDOW)):
        yield window


def _padded(tokenizer: Any, texts: list[str]) -> "tuple[torch.Tensor, torch.Tensor]":
    found = tokenizer(texts, padding=True, truncation=True, max_length=_MAX_LENGTH, return_tensors="pt")
    return found["input_ids"], found["attention_mask"]


def _load(directory: Path) -> tuple[Any, Any]:
    from transformers import AutoModel, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, padding_side="right")
        return AutoModel.from_pretrained(directory), tokenizer
    except (OSError, ValueError) as error:
        raise MilcoError(f"--dense {directory} is no encoder that transformers can load: {error}") from None


def _load_milco(directory: Path) -> tuple[Any, Any]:
    from transformers import PreTrainedTokenizerFast

    from milco_pyserini.encode.tokenization import load_tokenizer
    from milco_pyserini.model import MilcoModel

    model = MilcoModel.from_pretrained(directory)
    tokenizer = load_tokenizer(directory).tokenizer
    pad = tokenizer.id_to_token(model.config.encoder.pad_token_id)
    return model.encoder, PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=pad, padding_side="right")


def _pooling(directory: Path) -> str:
    if (directory / _POOLING).is_file():
        said = read_json(directory / _POOLING)
        for field, pooling in _POOLING_FIELDS.items():
            if said.get(field):
                return pooling
    return "mean"


def _prompts(directory: Path) -> dict[str, str]:
    if not (directory / _PROMPTS).is_file():
        return {}
    said = read_json(directory / _PROMPTS).get("prompts") or {}
    return {QUERIES: said.get("query", ""), DOCUMENTS: said.get("document", said.get("passage", ""))}
