"""Read a dense encoder's checkpoint: network, tokenizer, pooling, prompts.

Reads sentence-transformers' layout, plain Hugging Face encoders, and MILCO checkpoints, of which it takes the
multilingual encoder.
"""

from pathlib import Path
from typing import Any

import orjson

from milco_pyserini.defaults import POOLINGS
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import read_json
from milco_pyserini.model.checkpoint import MODULES, Checkpoint, listed, loading, token_limit
from milco_pyserini.model.tokenization import TextTokenizer

CLS, MEAN, LAST = POOLINGS

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
        raise MilcoError(f"{path} does not state one pooling of {', '.join(POOLINGS)}: choose one as `pooling`")
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
