"""How many tokens of a text a network takes, and how many of them an encoder reads unless it is told."""

from pathlib import Path

from torch import nn
from transformers import PretrainedConfig

from milco_pyserini.io.files import is_json_with, read_json

# What sparse encoders of texts are trained and compared with.
_LENGTH = 512
# Where sentence-transformers keep theirs.
_SAID = "sentence_bert_config.json"
_FIELD = "max_seq_length"


def token_limit(network: nn.Module, config: PretrainedConfig) -> int:
    """Tokens, <s> and </s> included, that a network has positions for. config: the network's own."""
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            # RoBERTa and its kin count from the padding id + 1.
            return config.max_position_embeddings - module.padding_idx - 1
    return config.max_position_embeddings


def text_length(directory: Path, limit: int) -> int:
    """Tokens to read of a text: 512, or less where the checkpoint or its limit says less."""
    path = directory / _SAID
    said = read_json(path)[_FIELD] if is_json_with(path, _FIELD) else None
    return min(_LENGTH, limit, said or _LENGTH)
