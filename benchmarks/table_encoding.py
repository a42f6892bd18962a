"""Compare encoding with its peers: the packed pass, padded batches, Pyserini's SPLADE encoder, sentence-transformers.

All of them encode texts to vectors with networks of the published size and random weights. Each word of a text is one
token, and the decoder's bias is chosen so that a text has about TERMS terms, as with a trained model. Without it, a
random network would activate half of the vocabulary, and systems that return dictionaries would measure only these.

Pyserini's encoder runs a BERT of the same depth and width, in float32 as it is loaded, without gradients, which it
would otherwise keep for every batch. sentence-transformers' SparseEncoder with SpladePooling runs this project's
network.
"""

import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import encoding
import numpy as np
from table_rows import Row, compared, interleaved

from milco_pyserini.sparse import VIEWS

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

    from milco_pyserini.model.modeling import MilcoModel

TERMS = 300
BATCH = encoding.PADDED_BATCH
MILCO = "milco_pyserini"
PADDED = f"padded batches of {BATCH}"
PYSERINI = "Pyserini SpladeDocumentEncoder, float32"
SENTENCE_TRANSFORMERS = "sentence-transformers SparseEncoder"
_LIMIT = "limit"
_QUERY_TOKENS = 16
# <s>, <pad>, </s>, <unk>; BERT's vocabulary has one more.
_SPECIAL = 5
_BERT_PIECES = 30522
_ENGLISH = 1024

Texts = Sequence[str]
Encode = Callable[[Texts], object]


@dataclass(frozen=True)
class EncodingSizes:
    """Sizes of the measurement; threads: of torch, None for its choice."""

    layers: int
    texts: int
    rounds: int
    threads: int | None
    dtype: str


def encoding_rows(sizes: EncodingSizes) -> list[Row]:
    """Return the rows of many texts and of one query. Runs in its own process, because the networks stay in memory."""
    import torch

    from milco_pyserini.encode.devices import choose_dtype

    if sizes.threads:
        torch.set_num_threads(sizes.threads)
    dtype = choose_dtype(sizes.dtype, torch.device("cpu"))
    lengths = encoding.random_lengths(sizes.texts, 110, 256)
    texts, query = random_texts(lengths), random_texts([_QUERY_TOKENS])
    with tempfile.TemporaryDirectory() as directory:
        systems = open_systems(sizes.layers, dtype, Path(directory))
        peaks = {name: _peak(encode, texts) for name, encode in systems.items()}
        actions: dict[str, Callable[[], object]] = {name: partial(encode, texts) for name, encode in systems.items()}
        seconds = interleaved(actions | {_LIMIT: encoding.matrix_product(dtype)}, sizes.rounds)
        limits = seconds.pop(_LIMIT)
        asked = interleaved({name: partial(encode, query) for name, encode in systems.items()}, 3 * sizes.rounds + 1)
    work = encoding.flop(lengths, sizes.layers)
    paddings = {name: padding(name, lengths) for name in systems}

    def figures(name: str, taken: float) -> dict:
        rates = np.array([work / one for one in seconds[name]])
        return {
            "documents/s": len(lengths) / taken,
            "tokens/s": sum(lengths) / taken,
            "padding %": 100 * paddings[name],
            "limit %": 100 * float(np.median(rates * np.array(limits) / encoding.PRODUCTS_FLOP)),
            "s": taken,
            "MB": peaks[name],
        }

    rows = compared("encode", seconds, figures)
    rows += compared(
        "encode a query", {name: taken[1:] for name, taken in asked.items()}, lambda _, taken: {"ms": 1e3 * taken}
    )
    return rows + [Row(step, f"{name} (not installed)") for step in ("encode", "encode a query") for name in missing()]


def open_systems(layers: int, dtype: "torch.dtype", directory: Path) -> dict[str, Encode]:
    """Return the encode function of each system; the BERT that Pyserini loads is saved in directory."""
    model: Any = encoding.random_network(layers)
    tokenizer = word_tokenizer()
    _shift_bias(model.decoder.bias, _max_logits(lambda ids, mask: model(ids, mask).logits, tokenizer))
    systems: dict[str, Encode] = {
        MILCO: packed(model, tokenizer, dtype),
        PADDED: lambda texts: encoding.padded_pass(model, token_ids(tokenizer, texts), dtype),
        PYSERINI: pyserini_splade(layers, directory),
    }
    if SENTENCE_TRANSFORMERS not in missing():
        systems[SENTENCE_TRANSFORMERS] = sentence_transformer(model, tokenizer, dtype)
    return systems


def missing() -> list[str]:
    """Return the peers that are not installed."""
    return [] if importlib.util.find_spec("sentence_transformers") else [SENTENCE_TRANSFORMERS]


def padding(name: str, lengths: Sequence[int]) -> float:
    """Return the share of padding in the tokens that a system computes."""
    if name == MILCO:
        return 0.0
    multiple = encoding.PADDED_MULTIPLE if name == PADDED else 1
    # sentence-transformers sorts texts by their length, the longest first.
    order = sorted(lengths, reverse=True) if name == SENTENCE_TRANSFORMERS else list(lengths)
    batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    return 1 - sum(order) / sum(len(batch) * (-(-max(batch) // multiple) * multiple) for batch in batches)


def packed(model: "MilcoModel", tokenizer: "Tokenizer", dtype: "torch.dtype") -> Encode:
    """Return this project's encoder: packed tokens, batches by length, sparse batches."""
    import torch

    from milco_pyserini.defaults import BATCH_SIZE
    from milco_pyserini.encode.batches import BatchRunner
    from milco_pyserini.model.packed import PackedForward

    columns = model.config.english_vocab_size, encoding.EMBEDDING_ROWS
    runner = BatchRunner(PackedForward(model, dtype), torch.device("cpu"), *columns, "sum", [])

    def encode(texts: Texts) -> object:
        rows = sorted(token_ids(tokenizer, texts), key=len)
        return list(runner.run(rows, VIEWS, BATCH_SIZE))

    return encode


def pyserini_splade(layers: int, directory: Path) -> Encode:
    """Return Pyserini's encoder, from texts to dictionaries in batches of BATCH."""
    import torch

    from milco_pyserini import jvm

    # Pyserini starts Java when its encoders are imported.
    jvm.start()
    from pyserini.encode import SpladeDocumentEncoder

    save_bert(layers, directory)
    encoder = SpladeDocumentEncoder(str(directory), device="cpu")

    def encode(texts: Texts) -> object:
        batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
        with torch.no_grad():
            return [vector for batch in batches for vector in encoder.encode(batch)]

    return encode


def sentence_transformer(model: "MilcoModel", tokenizer: "Tokenizer", dtype: "torch.dtype") -> Encode:
    """Return sentence-transformers' encoder, from texts to sparse tensors, with this project's network."""
    import torch
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import InputModule
    from sentence_transformers.sparse_encoder.modules import SpladePooling
    from transformers import PreTrainedTokenizerFast

    pieces = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>")

    class Logits(InputModule):
        """Compute the logits of every token."""

        def __init__(self) -> None:
            super().__init__()
            self.tokenizer = pieces
            self.model = model

        def preprocess(self, inputs: list, prompt: str | None = None, **more: Any) -> dict:
            return dict(self.tokenizer(inputs, padding=True, return_tensors="pt", return_token_type_ids=False))

        def forward(self, features: dict, **more: Any) -> dict:
            ids, mask = features["input_ids"], features["attention_mask"]
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
                hidden = self.model.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
                return features | {"token_embeddings": self.model.decoder(self.model.connector(hidden))}

        def save(self, output_path: str, *arguments: Any, **more: Any) -> None:
            raise NotImplementedError

    encoder = SparseEncoder(modules=[Logits(), SpladePooling("max")], device="cpu")
    return lambda texts: encoder.encode(list(texts), batch_size=BATCH, show_progress_bar=False)


def save_bert(layers: int, directory: Path) -> None:
    """Save a BERT of the published width with random weights and its tokenizer in the format of transformers."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    torch.manual_seed(encoding.SEED)
    config = BertConfig(
        hidden_size=_ENGLISH, num_hidden_layers=layers, num_attention_heads=16, intermediate_size=4 * _ENGLISH
    )
    model = BertForMaskedLM(config).eval()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(_SPECIAL, _BERT_PIECES))]
    (directory / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    tokenizer = BertTokenizerFast(str(directory / "vocab.txt"))
    highest = _max_logits(lambda ids, mask: model(ids, mask).logits.amax(1), tokenizer.backend_tokenizer)
    _shift_bias(model.cls.predictions.bias, highest)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def word_tokenizer() -> "Tokenizer":
    """Return a tokenizer with one token per word of random_texts() and XLM-R's special tokens."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["<s>", "<pad>", "</s>", "<unk>", *(f"w{number}" for number in range(4, encoding.EMBEDDING_ROWS))]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


def random_texts(lengths: Sequence[int]) -> list[str]:
    """Return texts of these lengths in tokens, the two special tokens included."""
    draw = np.random.default_rng(encoding.SEED)
    return [
        " ".join(f"w{number}" for number in draw.integers(_SPECIAL, encoding.EMBEDDING_ROWS, length - 2))
        for length in lengths
    ]


def token_ids(tokenizer: "Tokenizer", texts: Texts) -> list[list[int]]:
    """Return the token ids of each text."""
    return [one.ids for one in tokenizer.encode_batch(list(texts))]


def _max_logits(logits: Callable[..., "torch.Tensor"], tokenizer: "Tokenizer") -> "torch.Tensor":
    """Return the highest logit of each piece, [2, V_e], for two texts of about the median length."""
    import torch

    ids = torch.tensor(token_ids(tokenizer, random_texts([110, 110])))
    with torch.inference_mode():
        return logits(ids, torch.ones_like(ids))


def _shift_bias(bias: "torch.Tensor", highest: "torch.Tensor") -> None:
    """Lower a decoder's bias so that a text has about TERMS terms."""
    import torch

    with torch.no_grad():
        bias -= highest.quantile(1 - TERMS / highest.shape[1]).item()


def _peak(encode: Encode, texts: Texts) -> float:
    """Return the extra memory of encoding texts, after a short text has allocated what every pass needs."""
    encode(texts[:1])
    return encoding.peak_of(partial(encode, texts))
