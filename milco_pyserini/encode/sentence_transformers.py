"""A SparseEncoder of sentence-transformers as an encoder: `--encoder st:NAME|DIR`.

SPLADE-type encoders with any pooling, and inference-free ones, whose query weights come from a table (Geng et al.,
2024, arXiv:2411.04403). The dimensions must be the pieces of the tokenizer.
"""

import importlib.metadata
from collections.abc import Sequence
from typing import Any

import orjson
import torch
from packaging.version import Version
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PretrainedConfig

from milco_pyserini.encode.devices import choose_dtype
from milco_pyserini.encode.encoder import PADDING_ROWS, MilcoEncoder
from milco_pyserini.errors import MilcoError, ParameterError
from milco_pyserini.model.checkpoint import MODEL_CLASS, Checkpoint, loading, token_limit, validate_weights
from milco_pyserini.model.configuration import is_milco
from milco_pyserini.model.modeling import MilcoConfig
from milco_pyserini.model.tokenization import TextTokenizer

# sentence-transformers' names of queries and documents.
QUERY, DOCUMENT = "query", "document"

_OLDEST = "6.2"
_INSTALL = "Run pip install '.[st]' in an environment of its own: it needs transformers 5."
_DEFAULT_LENGTH = 512
# Logits that one forward pass may compute: 1 GiB.
_LOGITS = 1 << 28
_PROBE = "The Nile is a river in Africa, and 1876 a year."
_NEAR = {torch.float32: 1e-4, torch.bfloat16: 0.1}


def validate_library() -> None:
    """Raise MilcoError if sentence-transformers is missing or too old."""
    try:
        version = importlib.metadata.version("sentence-transformers")
    except importlib.metadata.PackageNotFoundError:
        raise MilcoError("sentence-transformers is not installed", _INSTALL) from None
    if Version(version) < Version(_OLDEST):
        raise MilcoError(f"sentence-transformers {version} is too old: {_OLDEST} or later is needed", _INSTALL)


class TaskModel(nn.Module):
    """The network of a SparseEncoder for documents or for queries: a Forward (see model.forward) that returns weights.

    Args:
        model: the SparseEncoder.
        task: DOCUMENT or QUERY.
        dtype: of the matrix products, float32 or bfloat16.
        top_k: the most terms of a vector, the strongest; None for all.
    """

    echo = None
    returns_weights = True

    def __init__(self, model: Any, task: str, dtype: torch.dtype, top_k: int | None) -> None:
        super().__init__()
        self.model = model
        self.encoder = nn.Module()
        self._task, self._padding_id, self._dtype = task, model.tokenizer.pad_token_id or 0, dtype
        network, length = model.transformers_model, model.max_seq_length or _DEFAULT_LENGTH
        limit = length if network is None else token_limit(network, network.config)
        pieces = len(model.tokenizer)
        self.config = MilcoConfig(
            encoder=PretrainedConfig(vocab_size=pieces, max_position_embeddings=limit, pad_token_id=self._padding_id),
            english_vocab_size=pieces,
            echo=False,
            pivot_top_k=top_k,
            query_max_length=min(length, limit),
            passage_max_length=min(length, limit),
        )

    @torch.inference_mode()
    def forward(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, None]:
        """Return the weights of tokenized texts, float32 [B, V]."""
        pieces = self.config.english_vocab_size
        size = max(1, _LOGITS // (max(map(len, rows)) * pieces))
        return torch.cat([self._weights(rows[start : start + size]) for start in range(0, len(rows), size)]), None

    def _weights(self, rows: Sequence[Sequence[int]]) -> Tensor:
        device = self.model.device
        ids = [torch.tensor(row) for row in rows]
        mask = [torch.ones_like(row) for row in ids]
        features = {
            "input_ids": pad_sequence(ids, batch_first=True, padding_value=self._padding_id).to(device),
            "attention_mask": pad_sequence(mask, batch_first=True).to(device),
        }
        with torch.autocast(device.type, torch.bfloat16, enabled=self._dtype == torch.bfloat16):
            weights = self.model(features, task=self._task)["sentence_embedding"]
        return weights.to_dense().float()[:, : self.config.english_vocab_size]


class PromptTokenizer(TextTokenizer):
    """A tokenizer that puts a prompt before each text that is not blank."""

    def __init__(self, tokenizer: Tokenizer, name: str, prompt: str) -> None:
        super().__init__(tokenizer, name)
        self.prompt = prompt

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return all token ids of prompt and text; none for a blank text."""
        return super().ids([self.prompt + text if text.strip() else text for text in texts])

    def passages(self, texts: Sequence[str], max_length: int) -> list[list[list[int]]]:
        """Raise MilcoError if there is a prompt, which only the first passage of a text would have."""
        if self.prompt:
            rule = f"would put the prompt {self.prompt!r} before the first passage only"
            raise ParameterError("split_passages", None, rule)
        return super().passages(texts, max_length)


def load(checkpoint: Checkpoint, device: torch.device, dtype: Any, english_prefix: str) -> MilcoEncoder:
    """Load a directory that sentence-transformers saved. device, dtype, english_prefix: as for MilcoEncoder.

    Raises MilcoError if sentence-transformers is missing or too old, or the checkpoint is no SparseEncoder, needs code
    of its own, has dimensions that are not the pieces of its tokenizer, or prepares texts in a way of its own.
    """
    validate_library()
    directory = checkpoint.directory
    kind = checkpoint.read(MODEL_CLASS).get("model_type")
    if is_milco(checkpoint.read("config.json")):
        raise MilcoError(f"{directory} is a MILCO checkpoint: give its name without st:")
    if kind != "SparseEncoder":
        what = f"names a {kind}" if kind else "does not name one"
        raise MilcoError(
            f"{directory} is not a SparseEncoder of sentence-transformers: its {MODEL_CLASS} {what}. Other masked "
            "language models are read without st:"
        )
    from sentence_transformers import SparseEncoder

    with loading(directory, "a SparseEncoder of sentence-transformers"):
        model = SparseEncoder(str(directory), device="cpu", local_files_only=True).float().eval()
        validate_weights(directory, dict(model.named_parameters()))
        # Its own tokenizer changes with every call.
        definition = orjson.loads(model.tokenizer.backend_tokenizer.to_str())
        definition |= {"truncation": None, "padding": None}
        # Vectors are pruned when they are complete.
        top_k, model.max_active_dims = model.max_active_dims, None
        chosen = choose_dtype(dtype, device)
        encoders: list[MilcoEncoder] = []
        for task, prompt in zip((QUERY, DOCUMENT), checkpoint.prompts, strict=True):
            tokenizer = Tokenizer.from_str(orjson.dumps(definition).decode())
            if tokenizer.encode(_PROBE).ids != model.preprocess([_PROBE], task=task)["input_ids"][0].tolist():
                # Special tokens have no weights in a table.
                tokenizer = Tokenizer.from_str(orjson.dumps(definition | {"post_processor": None}).decode())
            tokens = PromptTokenizer(tokenizer, f"the tokenizer of {directory}", prompt)
            network: Any = TaskModel(model, task, chosen, top_k)
            expected = getattr(model, f"encode_{task}")([_PROBE], convert_to_sparse_tensor=False)
            pieces, columns = len(tokens.pieces), expected.shape[1]
            if not pieces <= columns <= pieces + max(PADDING_ROWS, pieces // 100):
                raise MilcoError(
                    f"{directory} has {columns:,} dimensions, its tokenizer {pieces:,} pieces: only encoders whose "
                    "dimensions are the pieces are supported"
                )
            if not torch.allclose(network(tokens.ids([_PROBE]))[0], expected[:, :pieces], atol=_NEAR[chosen]):
                raise MilcoError(f"{directory} prepares texts in a way of its own, which is not supported")
            options = checkpoint.name, device, dtype, english_prefix, *encoders
            encoders.append(MilcoEncoder(network, tokens, tokens.tokenizer, *options))
    return encoders[1]
