"""Configuration of a MILCO network: its sizes, and which of the paper's variants it is. It loads no transformers."""

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from milco_pyserini.console import warn
from milco_pyserini.errors import MilcoError, unknown_name

MODEL_TYPE = "milco"
# Fields of the authors' config.json that name the encoder and the English model.
ENCODER_FIELD, ENGLISH_FIELD = "multilingual_encoder_checkpoint", "lsr_encoder_checkpoint"
ECHO_VARIANTS = ("linear", "paper", "token")
SOURCE_POOLS = ("sum", "max")
# Encoders with BERT's names of tensors, which checkpoint.py reads, and that of gte.py.
ENCODERS = ("bert", "camembert", "gte", "roberta", "xlm-roberta", "xlm-roberta-xl")
# Encoders of one architecture: positions count from the padding id + 1, LayerNorm after each sum.
XLM_R_TYPES = ("xlm-roberta", "roberta", "camembert")
# Fields on which the terms and weights of a view depend, that a caller may change.
_VIEWS = ("echo_variant", "source_pool", "source_drop_special", "pivot_top_k", "source_top_k")
VIEW_VARIANTS = (*_VIEWS, "lowercase_capitals")
# The most terms of a query in each view.
QUERY_LIMITS = ("query_pivot_top_k", "query_source_top_k")
# Fields that a caller may change when loading a checkpoint; the others follow from its tensors.
VARIANTS = ("echo", *_VIEWS, *QUERY_LIMITS, "monolingual_alpha", "query_max_length", "passage_max_length")


class Rule(NamedTuple):
    """The valid values of a field: type, range or choices, and whether None is allowed."""

    kind: type
    least: float = -math.inf
    most: float = math.inf
    choices: Sequence[Any] = ()
    optional: bool = False


# The upper limits are far beyond any real network: they keep a mistyped size from exhausting the memory.
_RULES = {
    "english_hidden_size": Rule(int, 1, 2**16),
    "english_vocab_size": Rule(int, 0, 2**24),
    "echo": Rule(bool),
    "echo_variant": Rule(str, choices=ECHO_VARIANTS),
    "source_pool": Rule(str, choices=SOURCE_POOLS),
    "source_drop_special": Rule(bool),
    "lowercase_capitals": Rule(bool),
    "pivot_top_k": Rule(int, 1, optional=True),
    "source_top_k": Rule(int, 1, optional=True),
    **dict.fromkeys(QUERY_LIMITS, Rule(int, 1, optional=True)),
    # <s>, one token of the text, </s>.
    "query_max_length": Rule(int, 3, 2**24),
    "passage_max_length": Rule(int, 3, 2**24),
    "monolingual_alpha": Rule(float, 0, 1, optional=True),
    "cpu_dtype": Rule(str, choices=("float32", "bfloat16"), optional=True),
    "trained_on": Rule(list, optional=True),
}
_ENCODER_RULES = {
    "model_type": Rule(str, choices=ENCODERS),
    "vocab_size": Rule(int, 1, 2**24),
    "hidden_size": Rule(int, 1, 2**16),
    "num_hidden_layers": Rule(int, 1, 2**10),
    "num_attention_heads": Rule(int, 1, 2**10),
    "intermediate_size": Rule(int, 1, 2**18),
    "max_position_embeddings": Rule(int, 1, 2**24),
    "type_vocab_size": Rule(int, 1, 2**10),
    "pad_token_id": Rule(int, 0, 2**24),
    "layer_norm_eps": Rule(float, 1e-20, 0.1),
    "hidden_act": Rule(str),
    "hidden_dropout_prob": Rule(float, 0, 1),
    "attention_probs_dropout_prob": Rule(float, 0, 1),
    "position_embedding_type": Rule(str, choices=("absolute", "relative_key", "relative_key_query"), optional=True),
    # Attention is bidirectional.
    "is_decoder": Rule(bool, choices=(False,)),
    "add_cross_attention": Rule(bool, choices=(False,)),
    "return_dict": Rule(bool, choices=(True,)),
    "chunk_size_feed_forward": Rule(int, 0, 0),
}
# The sizes and constants of an encoder, which a saved configuration has, and XLM-R's padding id, which it may lack.
_SIZES = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("max_position_embeddings", "type_vocab_size", "layer_norm_eps"),
)
_PADDING_ID = 1
# These do not change the vectors: weights are loaded as float32.
_PRECISION = ("dtype", "torch_dtype")
_UNUSED = {
    *_PRECISION,
    *("_name_or_path", "architectures", "model_type", "transformers_version"),
    *("bos_token_id", "eos_token_id", "classifier_dropout", "initializer_range", "output_past", "use_cache"),
    *("tie_word_embeddings", "is_encoder_decoder", "output_attentions", "output_hidden_states"),
    *("id2label", "label2id", "problem_type"),
}


class NetworkConfig:
    """Sizes and variants of a MILCO network. The defaults are the published checkpoint's.

    Without transformers, which takes seconds to import, for the networks that is_plain() describes. MilcoConfig has the
    same fields for any network.

    Args:
        encoder: the configuration of the multilingual encoder.
        english_hidden_size: width of the connector's output.
        english_vocab_size: number of English word pieces.
        echo: whether there is a source view.
        echo_variant: "linear" is relu(Linear(H)) x scale on the encoder's hidden states, as in the authors' code;
            "paper" is LogSat of an extra decoder row on the projected states; "token" is a weight of each of the
            encoder's tokens, such as its idf, in any text: relu(W[token] + bias) x scale.
        source_pool: how the weights of a repeated token are combined, "sum" (authors) or "max".
        source_drop_special: omit <s>, </s> and unknown pieces from the source view.
        lowercase_capitals: lowercase texts that are in capitals.
        pivot_top_k, source_top_k: the most terms in a view, the strongest; None for all.
        query_pivot_top_k, query_source_top_k: the same of a query, if it has fewer; None for those of any text.
        query_max_length, passage_max_length: in tokens, <s> and </s> included.
        monolingual_alpha: weight of a query's pivot view, next to 1 - it of the source view, where all documents are in
            one language; None for both as they are, which suits many languages.
        cpu_dtype: dtype "auto" of the matrix products on the CPU, for a network whose figures are to be those of every
            processor, or which bfloat16 does not make faster; None for bfloat16 where the processor multiplies it.
        trained_on: names of the benchmarks whose queries or documents the checkpoint or its base was trained on.
        others: fields of transformers; none of them matters to a plain network.

    Raises:
        MilcoError: a value, of this network or of its encoder, has the wrong type or is out of range.
    """

    def __init__(
        self,
        encoder: Any = None,
        english_hidden_size: int = 768,
        english_vocab_size: int = 30522,
        echo: bool = True,
        echo_variant: str = "linear",
        source_pool: str = "sum",
        source_drop_special: bool = False,
        lowercase_capitals: bool = False,
        pivot_top_k: int | None = None,
        source_top_k: int | None = None,
        query_pivot_top_k: int | None = None,
        query_source_top_k: int | None = None,
        query_max_length: int = 64,
        passage_max_length: int = 512,
        monolingual_alpha: float | None = None,
        cpu_dtype: str | None = None,
        trained_on: list[str] | None = None,
        **others: Any,
    ) -> None:
        _validate(locals(), _RULES)
        self.encoder = self._encoder_config(encoder)
        self.english_hidden_size = english_hidden_size
        self.english_vocab_size = english_vocab_size
        self.echo = echo
        self.echo_variant = echo_variant
        self.source_pool = source_pool
        self.source_drop_special = source_drop_special
        self.lowercase_capitals = lowercase_capitals
        self.pivot_top_k = pivot_top_k
        self.source_top_k = source_top_k
        self.query_pivot_top_k = query_pivot_top_k
        self.query_source_top_k = query_source_top_k
        self.query_max_length = query_max_length
        self.passage_max_length = passage_max_length
        self.monolingual_alpha = monolingual_alpha
        self.cpu_dtype = cpu_dtype
        self.trained_on = trained_on
        self._set_others(others)

    @property
    def token_limit(self) -> int:
        """The number of tokens, special ones included, that an encoder of XLM-R's architecture has positions for."""
        return self.encoder.max_position_embeddings - self.encoder.pad_token_id - 1

    @property
    def echo_size(self) -> int:
        """The number of weights of the LexEcho head."""
        sizes = {
            "linear": self.encoder.hidden_size,
            "paper": self.english_hidden_size,
            "token": self.encoder.vocab_size,
        }
        return sizes[self.echo_variant]

    def _encoder_config(self, encoder: Any) -> Any:
        config = SimpleNamespace(**{"pad_token_id": _PADDING_ID, **encoder_values(encoder)})
        validate_encoder_sizes(config)
        return config

    def _set_others(self, others: dict[str, Any]) -> None:
        """Take the fields that are not MILCO's."""


def warn_if_trained_on(encoder: Any, topics: str) -> str:
    """Return the benchmark of some topics if the encoder was trained on it, and warn; else "".

    topics: their name, such as mkqa-ar-test or beir/nq/test.
    """
    name = topics.partition("@")[0].replace("/", "-")
    known = getattr(getattr(encoder, "config", None), "trained_on", None) or ()
    benchmark = next((benchmark for benchmark in known if f"{name}-".startswith(f"{benchmark}-")), "")
    if benchmark:
        warn(f"{encoder.name} was trained on data of {benchmark}: figures on {topics} are not those of unseen data")
    return benchmark


def is_milco(values: Mapping[str, Any]) -> bool:
    """Return whether a config.json is a MILCO checkpoint's: by its type, or by the sub-models that it names."""
    return values.get("model_type") == MODEL_TYPE or ENCODER_FIELD in values or ENGLISH_FIELD in values


def is_plain(values: Mapping[str, Any]) -> bool:
    """Return whether NetworkConfig describes the network of a config.json: XLM-R's architecture, every size stated.

    Only transformers knows what other encoders, and fields that are not listed here, mean. Values are not validated.
    """
    encoder = values.get("encoder")
    return (
        isinstance(encoder, Mapping)
        and encoder.get("model_type", XLM_R_TYPES[0]) in XLM_R_TYPES
        and encoder.get("hidden_act", "gelu") == "gelu"
        and encoder.get("position_embedding_type", "absolute") == "absolute"
        and encoder.keys() >= set(_SIZES)
        and encoder.keys() <= _ENCODER_RULES.keys() | _UNUSED
        and values.keys() <= {"encoder"} | _RULES.keys() | _UNUSED
    )


def encoder_values(encoder: Any) -> dict[str, Any]:
    """Return the fields of an encoder's configuration, without those of its precision.

    Raises MilcoError if it is not an object, or a value has the wrong type or is out of range.
    """
    if not isinstance(encoder, Mapping):
        raise MilcoError(f"encoder expects an object with the encoder's configuration, got {encoder!r:.60}")
    values = {"model_type": XLM_R_TYPES[0], **{name: encoder[name] for name in encoder if name not in _PRECISION}}
    _validate(values, _ENCODER_RULES, "encoder.")
    return values


def term_limit(config: Any, view: str, is_query: bool = False) -> int | None:
    """Return how many terms of a view a checkpoint keeps of a text, the strongest; None for all."""
    names = (f"{view}_top_k", f"query_{view}_top_k")[: 1 + is_query]
    return min((limit for name in names if (limit := getattr(config, name, None)) is not None), default=None)


def validate_encoder_sizes(config: Any) -> None:
    """Raise MilcoError if sizes of an encoder's configuration are not possible together."""
    if config.hidden_size % config.num_attention_heads:
        raise MilcoError(
            f"encoder.num_attention_heads {config.num_attention_heads}: must divide encoder.hidden_size "
            f"{config.hidden_size}"
        )
    for field in ("vocab_size", "max_position_embeddings") if config.model_type != "bert" else ("vocab_size",):
        if config.pad_token_id >= getattr(config, field):
            raise MilcoError(
                f"encoder.pad_token_id {config.pad_token_id}: must be below encoder.{field} {getattr(config, field)}"
            )


def _validate(values: Mapping[str, Any], rules: Mapping[str, Rule], prefix: str = "") -> None:
    """Raise MilcoError for the first value that breaks its rule."""
    for name, (kind, least, most, choices, optional) in rules.items():
        if name not in values or (optional and values[name] is None):
            continue
        value, field = values[name], f"{prefix}{name}"
        kinds = (int, float) if kind is float else (kind,)
        if type(value) not in kinds or not least <= (value if kind in (int, float) else least) <= most:
            expected = {int: "an integer", float: "a number", bool: "true or false", str: "a name", list: "a list"}[
                kind
            ]
            limits = f" of at least {least:,}" if math.isfinite(least) else ""
            limits = f" from {least:,} to {most:,}" if math.isfinite(most) else limits
            raise MilcoError(f"{field} expects {expected}{limits}{' or null' * optional}, got {value!r:.60}")
        if choices and value not in choices:
            if kind is str:
                raise unknown_name(field, value, choices)
            raise MilcoError(f"{field} expects {' or '.join(map(str, choices))}, got {value}")
