"""Encoders with rotary positions and gated feed-forward layers: gte-multilingual-base, the encoder of milco-300m.

Alibaba publishes them with code of their own (model_type "new", repository new-impl). transformers 5 has the same
network as "gte": here the names and fused matrices of the one become those of the other, and no code is run.
"""

import re
from collections.abc import Mapping
from typing import Any

from milco_pyserini.errors import MilcoError
from milco_pyserini.model.quantized import Weight, Weights

GTE = "gte"
_ALIBABA = "new"
# The values that "gte" supports. The other fields of Alibaba's configuration concern speed only.
_SUPPORTED = {
    "position_embedding_type": "rope",
    "layer_norm_type": "layer_norm",
    "pack_qkv": True,
    "logn_attention_scale": False,
}
_SAME = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
    *("max_position_embeddings", "type_vocab_size", "layer_norm_eps", "pad_token_id"),
)
_LAYER = re.compile(r"^encoder\.encoder\.layer\.")
_RENAMED = (
    (re.compile(r"\.attention\.o_proj\."), ".self_attn.o_proj."),
    (re.compile(r"\.attn_ln\."), ".post_attention_layernorm."),
    (re.compile(r"\.mlp_ln\."), ".post_mlp_layernorm."),
)
# Matrices whose outputs are several layers' next to each other.
_FUSED = {
    ".attention.qkv_proj.": (".self_attn.q_proj.", ".self_attn.k_proj.", ".self_attn.v_proj."),
    ".mlp.up_gate_proj.": (".mlp.up_proj.", ".mlp.gate_proj."),
}


def is_gte(config: Mapping[str, Any]) -> bool:
    """Return whether the config.json of an encoder is of one of the two layouts."""
    return config.get("model_type") in (GTE, _ALIBABA)


def gte_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of transformers' "gte" for an encoder's config.json.

    Raises MilcoError if it describes another network, or if the installed transformers has no such class.
    """
    import transformers
    from transformers import CONFIG_MAPPING

    if GTE not in CONFIG_MAPPING:
        raise MilcoError(
            f"an encoder of type {GTE} (milco-300m, gte-multilingual-base) needs a transformers that has its class: "
            f"{transformers.__version__} does not, 5.24 does. Run pip install -U 'transformers<6'."
        )
    if config["model_type"] == GTE:
        return dict(config)
    for field, value in _SUPPORTED.items():
        if config.get(field, value) != value:
            raise MilcoError(f"an encoder with {field} {config[field]!r} is not supported, only with {value!r}")
    missing = [field for field in _SAME if field not in config]
    scaling = config.get("rope_scaling") or {"type": "ntk", "factor": 1.0}
    if missing or scaling.keys() != {"type", "factor"} or scaling["type"] != "ntk":
        what = f"lacks {', '.join(missing)}" if missing else f"has rope_scaling {scaling}"
        raise MilcoError(f"the configuration of a {GTE} encoder {what}: expected every size, and ntk scaling or none")
    # NTK scaling: a larger base, and all frequencies divided by the same number, which is "linear" scaling.
    factor, theta = scaling["factor"], config.get("rope_theta", 10000.0)
    divisor = factor ** (2 * config["num_attention_heads"] / config["hidden_size"])
    rope = {"rope_type": "linear", "factor": divisor, "rope_theta": theta * factor}
    return {"model_type": GTE, **{field: config[field] for field in _SAME}, "rope_parameters": rope}


def rename_gte(tensors: Weights) -> Weights:
    """Return a checkpoint's tensors, by our own names, with Alibaba's layers split and named as transformers does."""
    renamed: dict[str, Weight] = {}
    for before, tensor in tensors.items():
        name = _LAYER.sub("encoder.layers.", before)
        for pattern, replacement in _RENAMED:
            name = pattern.sub(replacement, name)
        fused = next((part for part in _FUSED if part in name), None)
        if fused is None:
            renamed[name] = tensor
            continue
        parts = _FUSED[fused]
        for part, values in zip(parts, tensor.float().tensor_split(len(parts)), strict=True):
            renamed[name.replace(fused, part)] = values.clone()
    return renamed
