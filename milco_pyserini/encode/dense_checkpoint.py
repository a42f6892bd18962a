"""Load a dense encoder: network, tokenizer, pooling, prompts.

Reads sentence-transformers' layout, plain Hugging Face encoders, and MILCO checkpoints, of which it takes the
multilingual encoder.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from torch import nn

from milco_pyserini.defaults import POOLINGS
from milco_pyserini.encode.prompts import read_prompts
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import read_json
from milco_pyserini.model.loading import loading, text_length, token_limit, validate_weights
from milco_pyserini.model.tokenization import TextTokenizer, load_tokenizer

CLS, MEAN, LAST = POOLINGS

_MODULES = "modules.json"
_POOLING = Path("1_Pooling", "config.json")
_SUPPORTED_MODULES = ("Transformer", "Pooling", "Normalize")
# One flag per pooling, or since version 5 one field.
_POOLING_FLAGS = {
    "pooling_mode_cls_token": CLS,
    "pooling_mode_mean_tokens": MEAN,
    "pooling_mode_lasttoken": LAST,
}
_POOLING_MODES = {"cls": CLS, "mean": MEAN, "lasttoken": LAST}
# The hidden states do not depend on it, and transformers initializes a missing one at random.
_POOLER = "pooler."


@dataclass(frozen=True)
class DenseCheckpoint:
    """A loaded dense encoder.

    Attributes:
        model: takes input_ids and attention_mask, returns last_hidden_state [B, S, dimensions].
        dimensions: embedding dimension.
        tokenizer: its tokenizer.
        padding_id: token id of padding.
        limit: tokens that it has positions for.
        query_max_length, passage_max_length: default maximum lengths, in tokens.
        pooling: one of POOLINGS.
        prompts: prefixes of QUERIES and of DOCUMENTS.
    """

    model: nn.Module
    dimensions: int
    tokenizer: TextTokenizer
    padding_id: int
    limit: int
    query_max_length: int
    passage_max_length: int
    pooling: str
    prompts: dict[str, str]


def load_checkpoint(directory: Path, pooling: str | None = None) -> DenseCheckpoint:
    """Load a directory. pooling: one of POOLINGS, in place of the checkpoint's own.

    Raises MilcoError if transformers cannot load it, weights are missing, or it has modules that are not supported.
    """
    if read_json(directory / "config.json").get("model_type") == "milco":
        return _load_milco(directory, pooling)
    _check_modules(directory)
    pooling = pooling or _pooling(directory)
    model, fast = _load(directory)
    limit = token_limit(model, model.config)
    # sentence-transformers saves it in its own file or, since version 5, with the tokenizer.
    length = min(text_length(directory, limit), fast.model_max_length)
    padding_id = fast.pad_token_id or 0
    tokenizer = TextTokenizer(fast.backend_tokenizer)
    dimensions = model.config.hidden_size
    return DenseCheckpoint(
        model, dimensions, tokenizer, padding_id, limit, length, length, pooling, read_prompts(directory)
    )


def network_weights(model: nn.Module) -> dict[str, Any]:
    """Return the tensors that the hidden states depend on."""
    return {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(_POOLER)}


def _load_milco(directory: Path, pooling: str | None) -> DenseCheckpoint:
    from milco_pyserini.model import MilcoModel

    milco = MilcoModel.from_pretrained(directory)
    config, model = milco.config, milco.encoder
    return DenseCheckpoint(
        model,
        config.encoder.hidden_size,
        load_tokenizer(directory),
        config.encoder.pad_token_id,
        token_limit(model, config.encoder),
        config.query_max_length,
        config.passage_max_length,
        pooling or MEAN,
        read_prompts(directory),
    )


def _load(directory: Path) -> tuple[Any, Any]:
    from transformers import AutoModel, AutoTokenizer

    with loading(directory, "a dense encoder"):
        tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False, **_without_warning(directory))
        model, info = AutoModel.from_pretrained(directory, trust_remote_code=False, output_loading_info=True)
    validate_weights(directory, dict(model.named_parameters()))
    if not tokenizer.is_fast:
        raise MilcoError(f"{directory} has no tokenizer.json, and no file that one can be made of")
    missing = sorted(name for name in info["missing_keys"] if _POOLER not in name)
    if missing:
        more = f" and {len(missing) - 1:,} more" if missing[1:] else ""
        raise MilcoError(f"checkpoint {directory} lacks the weights of {missing[0]}{more}")
    return model.float(), tokenizer


def _without_warning(directory: Path) -> dict[str, bool]:
    """Silence transformers 4.57.3 to 4.57.6, which warn about every large tokenizer as if it were Mistral's."""
    kind = str(read_json(directory / "config.json").get("model_type"))
    return {} if "stral" in kind else {"fix_mistral_regex": False}


def _check_modules(directory: Path) -> None:
    path = directory / _MODULES
    try:
        kinds = [module["type"].rpartition(".")[2] for module in orjson.loads(path.read_bytes())]
    except FileNotFoundError:
        return
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise MilcoError(f"{path} is not a list of modules as sentence-transformers writes it") from None
    unsupported = [kind for kind in kinds if kind not in _SUPPORTED_MODULES]
    if unsupported:
        raise MilcoError(f"{path} names a module {unsupported[0]}: supported are {', '.join(_SUPPORTED_MODULES)}")


def _pooling(directory: Path) -> str:
    path = directory / _POOLING
    if not path.is_file():
        return MEAN
    config = read_json(path)
    modes = config.get("pooling_mode") or [name for name in config if name.startswith("pooling_mode_") and config[name]]
    known = [(_POOLING_FLAGS | _POOLING_MODES).get(mode) for mode in ([modes] if isinstance(modes, str) else modes)]
    if len(known) != 1 or known[0] is None:
        raise MilcoError(f"{path} does not state one pooling of {', '.join(POOLINGS)}: choose one with --pooling")
    return known[0]
