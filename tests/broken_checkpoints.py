"""Invalid checkpoints: each must be rejected in one line that names it, before it encodes.

A tiny checkpoint of random weights is written, changed in one place, loaded, and encodes a text.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Before torch: it sets how torch's threads wait.
import milco_pyserini  # noqa: F401

# isort: split
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from torch import Tensor

from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.model.modeling import MilcoConfig, MilcoModel
from milco_pyserini.model.tokenization import TextTokenizer

ROWS, PIECES = 400, 60
ENCODER = {
    "model_type": "xlm-roberta",
    "vocab_size": ROWS,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
    "type_vocab_size": 1,
    "pad_token_id": 1,
}
WEIGHTS = "model.safetensors"
WORDS = "encoder.embeddings.word_embeddings.weight"
NORM = "encoder.encoder.layer.1.output.LayerNorm.weight"
Change = Callable[[Path], None]


class _Code:
    """An object whose unpickling runs code."""

    def __reduce__(self) -> tuple:
        return (exec, ("raise SystemError('the code has run')",))


def write_checkpoint(directory: Path) -> None:
    """Write a checkpoint of random weights with both tokenizers."""
    torch.manual_seed(1)
    config = MilcoConfig(
        encoder=dict(ENCODER),
        english_hidden_size=16,
        english_vocab_size=PIECES,
        query_max_length=8,
        passage_max_length=16,
    )
    tokenizers = (_tokenizer(ROWS, ("<s>", "<pad>", "</s>", "<unk>")), _tokenizer(PIECES, ("[PAD]", "[UNK]")))
    encoder = MilcoEncoder(MilcoModel(config), TextTokenizer(tokenizers[0]), tokenizers[1], "tiny", "cpu", "float32")
    encoder.save_pretrained(directory)


def _tokenizer(size: int, special: Sequence[str]) -> Tokenizer:
    pieces = [*special, *(f"w{number}" for number in range(size - len(special)))]
    unknown = special[-1]
    tokenizer = Tokenizer(WordLevel({piece: number for number, piece in enumerate(pieces)}, unk_token=unknown))
    tokenizer.add_special_tokens(list(special))
    tokenizer.pre_tokenizer = Whitespace()
    if "<s>" in special:
        tokenizer.post_processor = TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", pieces.index("<s>")), ("</s>", pieces.index("</s>"))]
        )
    return tokenizer


def load_checkpoint(directory: Path) -> tuple[str, str]:
    """Load a checkpoint, encode, and return the outcome ("rejected", "traceback" or "accepted") and its message."""
    try:
        encoder = MilcoEncoder.from_pretrained(directory, device="cpu", dtype="float32")
        encoder.encode_query("w1 w2")
        encoder.encode_document("w1 w2")
    except MilcoError as error:
        return ("traceback" if "\n" in str(error) else "rejected"), str(error)
    except OSError as error:
        # Commands print these in one line too.
        return "rejected", f"{error.filename}: {error.strerror}"
    except Exception as error:
        return "traceback", f"{type(error).__name__}: {error}"
    return "accepted", ""


def _config(**changes: Any) -> Change:
    """Change values of config.json; encoder__NAME is a field of the encoder, ... removes a field."""

    def change(directory: Path) -> None:
        path = directory / "config.json"
        values = json.loads(path.read_text())
        for name, value in changes.items():
            section, field = (values["encoder"], name[9:]) if name.startswith("encoder__") else (values, name)
            section.pop(field, None)
            if value is not ...:
                section[field] = value
        path.write_text(json.dumps(values))

    return change


def _tensors(change: Callable[[dict[str, Tensor]], dict[str, Any]], name: str = WEIGHTS) -> Change:
    """Change the tensors; a pytorch_model.bin may hold any objects."""

    def write(directory: Path) -> None:
        values = change(load_file(directory / WEIGHTS))
        (directory / WEIGHTS).unlink()
        if name == WEIGHTS:
            save_file(values, directory / name)
        else:
            torch.save(values, directory / name)

    return write


def _with(name: str, change: Callable[[Tensor], Tensor], suffix: str = "") -> Change:
    """Change a tensor, or add the changed one as name + suffix."""
    return _tensors(lambda values: values | {name + suffix: change(values[name]).contiguous()})


def _one(value: float) -> Callable[[Tensor], Tensor]:
    def change(tensor: Tensor) -> Tensor:
        tensor = tensor.clone()
        tensor.view(-1)[3 % tensor.numel()] = value
        return tensor

    return change


def _quantized(scale: Callable[[Tensor], Tensor] | None, dtype: torch.dtype = torch.int8) -> Change:
    """Quantize the decoder to integers, with a scale."""

    def change(values: dict[str, Tensor]) -> dict[str, Tensor]:
        matrix = (values["decoder.weight"] * 1000).to(dtype)
        scales = {} if scale is None else {"decoder.weight_scale": scale(torch.full((PIECES,), 0.001))}
        return values | {"decoder.weight": matrix} | scales

    return _tensors(change)


def _without(*names: str) -> Change:
    return _tensors(lambda values: {name: values[name] for name in values if name not in names})


def _file(name: str, content: bytes | str | None) -> Change:
    """Replace a file, or remove it if content is None."""

    def write(directory: Path) -> None:
        path = directory / name
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    return write


def _sharded(index: str) -> Change:
    def write(directory: Path) -> None:
        (directory / WEIGHTS).unlink()
        (directory / f"{WEIGHTS}.index.json").write_text(index)

    return write


def _copied(source: str, target: str) -> Change:
    return lambda directory: _file(target, (directory / source).read_bytes())(directory)


def _directory(name: str) -> Change:
    def write(directory: Path) -> None:
        (directory / name).unlink()
        (directory / name).mkdir()

    return write


def _truncated(name: str, size: int) -> Change:
    return lambda directory: _file(name, (directory / name).read_bytes()[:size])(directory)


def _authors(fields: dict[str, Any], encoder: dict[str, Any] | None = None) -> Change:
    """Write config.json in the authors' format, with fields of its own and of the encoder that it names."""

    def write(directory: Path) -> None:
        (directory / "config.json").write_text(json.dumps({"model_type": "milco", **fields}))
        if encoder is not None:
            (directory / "m").mkdir()
            (directory / "m" / "config.json").write_text(json.dumps(ENCODER | encoder))

    return write


def _gaps(directory: Path) -> None:
    """Write an English tokenizer of the right size with a gap in its token ids."""
    path = directory / "english" / "tokenizer.json"
    values = json.loads(path.read_text())
    values["model"]["vocab"]["w3"] = 1000
    path.write_text(json.dumps(values))


_VALUES: dict[str, tuple[Any, ...]] = {
    "echo": ("yes", 1, None),
    "echo_variant": ("papers", 5),
    "source_pool": ("mean", None),
    "source_drop_special": ("no",),
    "pivot_top_k": (1.5, 0, -1, "x", True, [3]),
    "source_top_k": ("300", 2.0),
    "query_max_length": ("abc", None, 0, 2.5),
    "passage_max_length": (None, "512", 10**30, [512]),
    "english_hidden_size": (0, -1, "16", 17, 10**9),
    "english_vocab_size": (-1, 5, "60", 10**9),
    "model_type": ("bert", 5, None, ...),
    "num_labels": ("x",),
    "encoder": ("xlm", [1], 7, None, {}),
    "encoder__model_type": ("gpt2", "nonsense", 5, "t5"),
    "encoder__hidden_size": (-5, 0, 17, 10**9, "16", 16.0, True),
    "encoder__num_hidden_layers": (0, -1, 1, 3, "2", 1.5, 10**9),
    "encoder__num_attention_heads": (0, 3, -1, "2", None),
    "encoder__intermediate_size": (0, -1, 31, "x"),
    "encoder__max_position_embeddings": (0, -1, 17, "x", 10**12),
    "encoder__type_vocab_size": (0, 2, "x"),
    "encoder__vocab_size": (0, -1, ROWS - 1, 10**10, None),
    "encoder__layer_norm_eps": ("x", -1, 0, 5, None),
    "encoder__hidden_act": ("nonsense", None, 5, ["gelu"]),
    "encoder__pad_token_id": (-1, "x", ROWS, 10**9, 1.5, 5),
    "encoder__hidden_dropout_prob": (7, "x"),
    "encoder__attention_probs_dropout_prob": (-1,),
    "encoder__is_decoder": (True,),
    "encoder__return_dict": (False,),
    "encoder__position_embedding_type": ("rotary",),
    "encoder__num_labels": ("x",),
}
_CHANGES: dict[str, Change] = {
    "NaN in the decoder's bias": _with("decoder.bias", _one(torch.nan)),
    "NaN in a LayerNorm": _with(NORM, _one(torch.nan)),
    "NaN in echo.bias": _with("echo.bias", _one(torch.nan)),
    "infinity in the embeddings": _with(WORDS, _one(torch.inf)),
    "-infinity in the decoder's bias": _with("decoder.bias", _one(-torch.inf)),
    "1e38 in one weight": _with("connector.dense.weight", _one(1e38)),
    "1e38 in all weights": _tensors(lambda values: {name: torch.full_like(values[name], 1e38) for name in values}),
    "1e300 in float64": _with("decoder.weight", lambda tensor: tensor.double() * 1e300),
    "int8 without a scale": _quantized(None),
    "uint8 without a scale": _quantized(None, torch.uint8),
    "int64 weights": _with("decoder.weight", lambda tensor: tensor.long()),
    "bool weights": _with("decoder.weight", lambda tensor: tensor > 0),
    "complex weights": _with("decoder.weight", lambda tensor: tensor.to(torch.complex64)),
    "a scale of another shape": _quantized(lambda scale: scale[:-1]),
    "a scale of one value": _quantized(lambda scale: scale[0]),
    "scales of blocks that do not divide a row": _quantized(lambda scale: scale[:, None].repeat(1, 1000)),
    "NaN in a scale": _quantized(_one(torch.nan)),
    "a scale without its matrix": _tensors(
        lambda values: (
            {name: values[name] for name in values if name != "decoder.weight"}
            | {"decoder.weight_scale": torch.ones(PIECES)}
        )
    ),
    "a scale of a vector": _with("decoder.bias", torch.clone, "_scale"),
    "no decoder": _without("decoder.weight"),
    "no echo.scale": _without("echo.scale"),
    "no query bias in a layer": _without("encoder.encoder.layer.0.attention.self.query.bias"),
    "a transposed matrix": _with("decoder.weight", lambda tensor: tensor.T.clone()),
    "a short bias": _with("decoder.bias", lambda tensor: tensor[:-1].clone()),
    "embeddings of one dimension": _with(WORDS, lambda tensor: tensor[0].clone()),
    "an empty tensor": _with("connector.dense.weight", lambda tensor: tensor[:0].clone()),
    "a number for a matrix": _with("echo.weight", lambda tensor: tensor[0, 0].clone()),
    "an echo of two rows": _with("echo.weight", lambda tensor: torch.cat([tensor, tensor])),
    "no tensors": _tensors(lambda values: {}),
    "no config.json": _file("config.json", None),
    **{f"config.json: {text or 'empty'}": _file("config.json", text) for text in ("", "[]", "null", "{", "\xff")},
    "config.json is a directory": _directory("config.json"),
    "no weights": _file(WEIGHTS, None),
    "empty weights": _file(WEIGHTS, ""),
    "truncated weights": _truncated(WEIGHTS, 5000),
    "weights of text": _file(WEIGHTS, "not weights"),
    "weights with an endless header": _file(WEIGHTS, b"\xff" * 100),
    "weights are a directory": _directory(WEIGHTS),
    "empty pytorch_model.bin": _tensors(lambda values: {}, "pytorch_model.bin"),
    "pytorch_model.bin: a list": _tensors(lambda values: list(values.values()), "pytorch_model.bin"),  # type: ignore
    "pytorch_model.bin: a text": _tensors(lambda values: "weights", "pytorch_model.bin"),  # type: ignore
    "pytorch_model.bin: a nested state_dict": _tensors(lambda values: {"state_dict": values}, "pytorch_model.bin"),
    "pytorch_model.bin: numbers": _tensors(lambda values: dict.fromkeys(values, 5), "pytorch_model.bin"),
    "pytorch_model.bin: code": _tensors(lambda values: values | {"x": _Code()}, "pytorch_model.bin"),
    **{
        f"index.json: {text}": _sharded(text)
        for text in (
            "{}",
            '{"weight_map": []}',
            '{"weight_map": {}}',
            '{"weight_map": {"a": 5}}',
            '{"weight_map": {"a": "absent.safetensors"}}',
            '{"weight_map": {"a": "../../secret"}}',
            '{"weight_map": 7}',
            "[]",
        )
    },
    **{
        f"{name}: {text[:9] if text else 'absent' if text is None else 'empty'}": _file(name, text)
        for name in ("tokenizer.json", "english/tokenizer.json")
        for text in (None, "", "{}", "not a tokenizer", '{"model": 5}')
    },
    "the English tokenizer for the other": _copied("english/tokenizer.json", "tokenizer.json"),
    "the other tokenizer for the English": _copied("tokenizer.json", "english/tokenizer.json"),
    "an English tokenizer with a gap": _gaps,
    "sub-model 5": _authors({"multilingual_encoder_checkpoint": 5}),
    "sub-model in a list": _authors({"multilingual_encoder_checkpoint": ["m"]}),
    **{
        f"sub-model's {name} {value!r}": _authors({"multilingual_encoder_checkpoint": "m"}, {name: value})
        for name, value in (
            ("num_attention_heads", 3),
            ("hidden_act", "x"),
            ("layer_norm_eps", "x"),
            ("pad_token_id", -1),
        )
    },
}
# The change that makes each checkpoint invalid, by name.
CHECKPOINTS: dict[str, Change] = {
    f"{field.replace('__', '.')} {'absent' if value is ... else json.dumps(value)}": _config(**{field: value})
    for field, values in _VALUES.items()
    for value in values
} | _CHANGES
