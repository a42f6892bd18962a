"""What a MILCO network is made of, and which of the paper's variants it is."""

from typing import Any

from transformers import AutoConfig, PretrainedConfig, XLMRobertaConfig

from milco_pyserini.errors import MilcoError, unknown_name

ECHO_VARIANTS = ("linear", "paper")
SOURCE_POOLS = ("sum", "max")
# What a caller may ask of a checkpoint that it does not say itself; the rest follows from its tensors.
VARIANTS = (
    "echo",
    "echo_variant",
    "source_pool",
    "source_drop_special",
    "pivot_top_k",
    "source_top_k",
    "query_max_length",
    "passage_max_length",
)


class MilcoConfig(PretrainedConfig):
    """Sizes and variants of a MilcoModel. The defaults are the published checkpoint's.

    encoder: configuration of the multilingual encoder (an object or a dict; XLM-R large by default).
    english_hidden_size, english_vocab_size: width of the connector's output, number of English word pieces.
    echo: whether there is a source view. echo_variant: "linear" is relu(Linear(H)) x scale on the encoder's
    hidden states, as in the authors' code; "paper" is LogSat of an extra decoder row on the projected states.
    source_pool: how the weights of a repeated token meet, "sum" (authors) or "max". source_drop_special: leave
    <s>, </s> and unknown pieces out of the source view. pivot_top_k, source_top_k: the terms that a view of a text has
    at most, its strongest; None for all. query_max_length, passage_max_length: in tokens, <s> and </s> included.
    Raises MilcoError for an unknown variant or a limit below 1.
    """

    model_type = "milco"
    sub_configs = {"encoder": AutoConfig}  # type: ignore[dict-item]  # noqa: RUF012

    def __init__(
        self,
        encoder: PretrainedConfig | dict | None = None,
        english_hidden_size: int = 768,
        english_vocab_size: int = 30522,
        echo: bool = True,
        echo_variant: str = "linear",
        source_pool: str = "sum",
        source_drop_special: bool = False,
        pivot_top_k: int | None = None,
        source_top_k: int | None = None,
        query_max_length: int = 64,
        passage_max_length: int = 512,
        **kwargs: Any,
    ) -> None:
        if echo_variant not in ECHO_VARIANTS:
            raise unknown_name("echo_variant", echo_variant, ECHO_VARIANTS)
        if source_pool not in SOURCE_POOLS:
            raise unknown_name("source_pool", source_pool, SOURCE_POOLS)
        for name, limit in (("pivot_top_k", pivot_top_k), ("source_top_k", source_top_k)):
            if limit is not None and limit < 1:
                raise MilcoError(f"{name} {limit}: must be at least 1, or None for all terms")
        self.encoder = _encoder_config(encoder)
        self.english_hidden_size = english_hidden_size
        self.english_vocab_size = english_vocab_size
        self.echo = echo
        self.echo_variant = echo_variant
        self.source_pool = source_pool
        self.source_drop_special = source_drop_special
        self.pivot_top_k = pivot_top_k
        self.source_top_k = source_top_k
        self.query_max_length = query_max_length
        self.passage_max_length = passage_max_length
        super().__init__(**kwargs)


def _encoder_config(encoder: PretrainedConfig | dict | None) -> PretrainedConfig:
    if isinstance(encoder, PretrainedConfig):
        return encoder
    if encoder is None:
        return XLMRobertaConfig(
            vocab_size=250002,
            hidden_size=1024,
            num_hidden_layers=24,
            num_attention_heads=16,
            intermediate_size=4096,
            max_position_embeddings=8194,
            type_vocab_size=1,
            layer_norm_eps=1e-5,
        )
    values = dict(encoder)
    return AutoConfig.for_model(values.pop("model_type", "xlm-roberta"), **values)
