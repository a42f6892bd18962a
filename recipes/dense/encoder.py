"""Dense encoders: teachers of training, and the paper's dense baselines. One L2-normalized vector per text.

Reads sentence-transformers' layout, plain Hugging Face encoders, and MILCO checkpoints, of which it takes the
multilingual encoder.
"""

import contextlib
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from milco_pyserini.defaults import BATCH_SIZE
from milco_pyserini.encode.batches import token_budget
from milco_pyserini.encode.devices import choose_device, choose_dtype
from milco_pyserini.encode.encoder import as_texts
from milco_pyserini.errors import Message, MilcoError, unknown_name
from milco_pyserini.io.files import read_json
from milco_pyserini.model.checkpoint import MODULES, Checkpoint, listed, loading, token_limit
from milco_pyserini.model.forward import pad_rows, to_device
from milco_pyserini.model.packed import NotPacked, PackedEncoder
from milco_pyserini.model.tokenization import TextTokenizer
from milco_pyserini.sparse.batch import validate_finite

POOLINGS = CLS, MEAN, LAST = ("cls", "mean", "last")
_SUPPORTED_MODULES = ("Transformer", "Pooling", "Normalize")
# A flag of each pooling is true or, since version 5 of sentence-transformers, one field has its name.
_POOLING_MODES = {
    "pooling_mode_cls_token": CLS,
    "pooling_mode_mean_tokens": MEAN,
    "pooling_mode_lasttoken": LAST,
    "cls": CLS,
    "mean": MEAN,
    "lasttoken": LAST,
}


class DenseEncoder:
    """A Hugging Face encoder whose pooled, L2-normalized hidden states are dense vectors; a blank text's is zero.

    >>> from recipes.dense.encoder import DenseEncoder
    >>> encoder = DenseEncoder("intfloat/multilingual-e5-small")  # doctest: +SKIP
    >>> vectors = encoder.encode_query(["Wer erfand das Telefon?"])  # doctest: +SKIP

    Args:
        name: a directory, a hub name, or "mini"; of a MILCO checkpoint only the multilingual encoder is used.
        pooling: "cls", "mean" or "last" (default: as the checkpoint's sentence-transformers files state, else "mean").
        device, dtype: as for MilcoEncoder.
        query_prompt: prefix of queries (default: as the files state, else none).

    Raises:
        MilcoError: the checkpoint cannot be found, or is not an encoder of this kind.
    """

    def __init__(
        self,
        name: str | os.PathLike | Checkpoint,
        pooling: str | None = None,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        query_prompt: str | None = None,
    ) -> None:
        self.device = choose_device(device)
        self.dtype = choose_dtype(dtype, self.device)
        if pooling not in (None, *POOLINGS):
            raise unknown_name("pooling", str(pooling), POOLINGS)
        checkpoint = Checkpoint.open(name).fetch()
        self.name = checkpoint.name
        self.pooling = pooling or read_pooling(checkpoint)
        query, self.document_prompt = checkpoint.prompts
        self.query_prompt = query if query_prompt is None else query_prompt
        self.model, self.tokenizer, self._padding_id, lengths = load_network(checkpoint)
        self.query_max_length, self.passage_max_length = lengths
        self.dimensions: int = self.model.config.hidden_size
        self._limit = token_limit(self.model, self.model.config)

    def encode_query(
        self, texts: str | Sequence[str], *, max_length: int | None = None, lowercase: bool = False
    ) -> NDArray[np.float32]:
        """Return float32 [B, d] for B queries, or one. max_length: in tokens, default the checkpoint's for queries."""
        return self._encode_texts(texts, self.query_prompt, lowercase, max_length or self.query_max_length)

    def encode_document(
        self, texts: str | Sequence[str], *, max_length: int | None = None, lowercase: bool = False
    ) -> NDArray[np.float32]:
        """Return float32 [B, d] for B documents; arguments as for encode_query()."""
        return self._encode_texts(texts, self.document_prompt, lowercase, max_length or self.passage_max_length)

    def _encode_texts(
        self, texts: str | Sequence[str], prompt: str, lowercase: bool, max_length: int
    ) -> NDArray[np.float32]:
        """Encode texts after the prompt, which is not lowercased, in batches by length; a blank one stays blank."""
        least = sum(self.tokenizer.num_special_tokens) + 1
        if not least <= max_length <= self._limit:
            raise MilcoError(f"maximum length {max_length}: encoder {self.name} takes {least} to {self._limit} tokens")
        inputs = [prompt + (text.lower() if lowercase else text) if text.strip() else text for text in as_texts(texts)]
        rows = [row.ids for row in self.tokenizer.tokenize(inputs, max_length)]
        vectors = np.zeros((len(rows), self.dimensions), np.float32)
        lengths = np.array([len(row) for row in rows], np.int64)
        order = np.argsort(lengths, kind="stable")
        order = order[lengths[order] > 0]
        budget = token_budget(self.device)
        while len(order):
            # As many texts as the token budget holds when padded, or one text.
            padded = lengths[order[:BATCH_SIZE]]
            padded = padded * np.arange(1, len(padded) + 1)
            numbers = order[: max(1, int(np.searchsorted(padded, budget, side="right")))]
            vectors[numbers] = self._encode([rows[number] for number in numbers]).cpu().numpy()
            order = order[len(numbers) :]
        indptr = np.arange(len(rows) + 1) * self.dimensions
        validate_finite(
            vectors.ravel(), indptr, f"encoder {self.name}", lambda row: self.tokenizer.beginning(rows[row])
        )
        return vectors

    @torch.inference_mode()
    def _encode(self, rows: Sequence[Sequence[int]]) -> Tensor:
        if isinstance(self.network, PackedEncoder):
            pooled = pool_packed(self.network(rows), [len(row) for row in rows], self.pooling)
            return functional.normalize(pooled, dim=-1)
        arrays = pad_rows(rows, self._padding_id, self._limit, self.device)
        ids, mask = (to_device(array, self.device) for array in arrays)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            states = self.network(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        return functional.normalize(pool(states, mask, self.pooling), dim=-1)

    @cached_property
    def network(self) -> PackedEncoder | torch.nn.Module:
        """The network that computes the hidden states, created for the first text."""
        if self.device.type == "cpu":
            # Padding gives the same vectors for networks that cannot be packed, only slower.
            with contextlib.suppress(NotPacked):
                return PackedEncoder(self.model.config, self.model.state_dict(), self.dtype)
        return self.model.to(self.device)


def pool(states: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """Return float [B, d], one state per text: the first, the last unmasked, or the mean of all unmasked.

    states: float [B, S, d]. mask: [B, S], 1 for tokens, then 0 for padding.
    """
    if pooling == CLS:
        return states[:, 0]
    if pooling == LAST:
        return states[torch.arange(len(states), device=states.device), mask.sum(dim=1) - 1]
    weights = mask.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)


def pool_packed(states: Tensor, lengths: Sequence[int], pooling: str) -> Tensor:
    """Pool texts without padding, as pool() does. states: float [R, d], R >= T, the sum of lengths. Returns [B, d]."""
    ends = torch.tensor(lengths).cumsum(0)
    if pooling == CLS:
        return states[ends - torch.tensor(lengths)]
    if pooling == LAST:
        return states[ends - 1]
    return torch.stack([text.mean(dim=0) for text in states[: ends[-1]].split(list(lengths))])


def load_network(checkpoint: Checkpoint) -> tuple[Any, TextTokenizer, int, tuple[int, int]]:
    """Load a checkpoint, float32, in eval mode.

    Returns:
        The network, which takes input_ids and attention_mask and returns last_hidden_state [B, S, d]; its tokenizer;
        the id of its padding token; its default maximum lengths of queries and of documents, in tokens.

    Raises:
        MilcoError: transformers cannot load it, weights are missing, or it has modules that are not supported.
    """
    directory, config = checkpoint.directory, checkpoint.config
    if config.get("model_type") == "milco":
        from milco_pyserini.model.modeling import MilcoModel

        milco = MilcoModel.from_pretrained(checkpoint)
        lengths = milco.config.query_max_length, milco.config.passage_max_length
        return milco.encoder, checkpoint.tokenizer, milco.config.encoder.pad_token_id, lengths
    _validate_modules(directory / MODULES)
    from transformers import AutoModel, AutoTokenizer

    # transformers 4.57.3 to 4.57.6 warn about every large tokenizer as if it were Mistral's.
    silent = {} if "stral" in str(config.get("model_type")) else {"fix_mistral_regex": False}
    with loading(directory, "a dense encoder"):
        fast = AutoTokenizer.from_pretrained(directory, trust_remote_code=False, **silent)
    model, missing = checkpoint.load_model(AutoModel, "a dense encoder")
    if not fast.is_fast:
        raise MilcoError(f"{directory} has no tokenizer.json, and no file that one can be made of")
    missing = [name for name in missing if "pooler." not in name]
    if missing:
        raise MilcoError(f"checkpoint {directory} lacks the weights {listed(missing)}")
    # sentence-transformers saves the length in its own file or, since version 5, with the tokenizer.
    length = min(checkpoint.text_length(token_limit(model, model.config)), fast.model_max_length)
    return model.float(), TextTokenizer(fast.backend_tokenizer), fast.pad_token_id or 0, (length, length)


def read_pooling(checkpoint: Checkpoint) -> str:
    """Return the pooling that sentence-transformers' file states, MEAN without one.

    Raises MilcoError if it states several, or one that is not supported.
    """
    path = checkpoint.directory / "1_Pooling" / "config.json"
    if not path.is_file():
        return MEAN
    config = read_json(path)
    modes = config.get("pooling_mode") or [name for name in config if name.startswith("pooling_mode_") and config[name]]
    known = [_POOLING_MODES.get(mode) for mode in ([modes] if isinstance(modes, str) else modes)]
    if len(known) != 1 or known[0] is None:
        fix = Message("Choose one as {pooling}.")
        raise MilcoError(f"{path} does not state one pooling of {', '.join(POOLINGS)}", fix)
    return known[0]


def _validate_modules(path: Path) -> None:
    """Raise MilcoError if sentence-transformers would apply a module that is not supported."""
    if not path.is_file():
        return
    try:
        kinds = [module["type"].rpartition(".")[2] for module in orjson.loads(path.read_bytes())]
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise MilcoError(f"{path} is not a list of modules as sentence-transformers writes it") from None
    unsupported = [kind for kind in kinds if kind not in _SUPPORTED_MODULES]
    if unsupported:
        raise MilcoError(f"{path} names a module {unsupported[0]}: supported are {', '.join(_SUPPORTED_MODULES)}")
