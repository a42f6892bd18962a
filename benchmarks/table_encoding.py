"""Encoding beside its peers: the packed pass, padded batches, Pyserini's SPLADE encoder, sentence-transformers.

All of them go from texts to vectors, by networks of the published size with random weights. A text is words that are
one token each, and the decoder's bias is chosen so that it has about TERMS terms, as with a trained model: without it
a random network has half of the vocabulary, and what makes dictionaries of vectors would make nothing else.

Pyserini's encoder takes a BERT of as many layers as wide, in float32 as it loads it, without the gradients that it
would keep for every batch. sentence-transformers' SparseEncoder and its SpladePooling take this project's network.
"""

import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import encoding
import numpy as np
from table_rows import Row, compared, interleaved

from milco_pyserini.sparse import VIEWS

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

    from milco_pyserini.model import MilcoModel

TERMS = 300
BATCH = encoding.PADDED_BATCH
OURS = "milco_pyserini"
PADDED = f"padded batches of {BATCH}"
PYSERINI = "Pyserini SpladeDocumentEncoder, float32"
SENTENCE_TRANSFORMERS = "sentence-transformers SparseEncoder"
_LIMIT = "limit"
_QUERY_TOKENS = 16
# <s>, <pad>, </s>, <unk>; in BERT's vocabulary there is one more.
_SPECIAL = 5
_BERT_PIECES = 30522
_ENGLISH = 1024

Texts = Sequence[str]
Encode = Callable[[Texts], object]


@dataclass(frozen=True)
class Sizes:
    """layers: of the networks. texts: in a round. threads: of torch, None for what it chooses."""

    layers: int
    texts: int
    rounds: int
    threads: int | None
    dtype: str


def encoding_rows(sizes: Sizes) -> list[Row]:
    """Rows of many texts and of one query. For a process of its own: the networks stay in its memory."""
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
        actions: dict[str, Callable[[], object]] = {name: _given(encode, texts) for name, encode in systems.items()}
        seconds = interleaved(actions | {_LIMIT: encoding.matrix_product(dtype)}, sizes.rounds)
        limits = seconds.pop(_LIMIT)
        asked = interleaved({name: _given(encode, query) for name, encode in systems.items()}, 3 * sizes.rounds + 1)
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
    """Name -> what encodes texts. directory: where the BERT is saved for Pyserini to load."""
    model: Any = encoding.random_network(layers)
    tokenizer = word_tokenizer()
    _shift(model.decoder.bias, _highest(lambda ids, mask: model(ids, mask).logits, tokenizer))
    systems: dict[str, Encode] = {
        OURS: packed(model, tokenizer, dtype),
        PADDED: lambda texts: encoding.padded_pass(model, _rows(tokenizer, texts), dtype),
        PYSERINI: pyserini_splade(layers, directory),
    }
    if SENTENCE_TRANSFORMERS not in missing():
        systems[SENTENCE_TRANSFORMERS] = sentence_transformer(model, tokenizer, dtype)
    return systems


def missing() -> list[str]:
    """Peers that are not installed."""
    return [] if importlib.util.find_spec("sentence_transformers") else [SENTENCE_TRANSFORMERS]


def padding(name: str, lengths: Sequence[int]) -> float:
    """Share of the tokens which a system computes that are no text's."""
    if name == OURS:
        return 0.0
    multiple = encoding.PADDED_MULTIPLE if name == PADDED else 1
    # sentence-transformers sorts texts by their length, the longest first.
    order = sorted(lengths, reverse=True) if name == SENTENCE_TRANSFORMERS else list(lengths)
    batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    return 1 - sum(order) / sum(len(batch) * (-(-max(batch) // multiple) * multiple) for batch in batches)


def packed(model: "MilcoModel", tokenizer: "Tokenizer", dtype: "torch.dtype") -> Encode:
    """This project: tokens laid end to end, batches by length, compressed vectors."""
    import torch

    from milco_pyserini.encode.batches import BatchRunner
    from milco_pyserini.encode.encoder import BATCH_SIZE
    from milco_pyserini.model.packed import PackedForward

    columns = model.config.english_vocab_size, encoding.EMBEDDED
    runner = BatchRunner(PackedForward(model, dtype), torch.device("cpu"), *columns, "sum", [])

    def encode(texts: Texts) -> object:
        rows = sorted(_rows(tokenizer, texts), key=len)
        return runner.run_one(rows, VIEWS) if len(rows) == 1 else list(runner.run(rows, VIEWS, BATCH_SIZE))

    return encode


def pyserini_splade(layers: int, directory: Path) -> Encode:
    """Pyserini's loop from texts to dictionaries, BATCH texts at a time."""
    import torch

    from milco_pyserini.index import jvm

    # Pyserini looks for Java when its encoders are imported.
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
    """sentence-transformers' way from texts to sparse tensors, through this project's encoder and head."""
    import torch
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import InputModule
    from sentence_transformers.sparse_encoder.modules import SpladePooling
    from transformers import PreTrainedTokenizerFast

    pieces = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>")

    class Logits(InputModule):
        """Texts to the logits of every token."""

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
    """A BERT of the published width with random weights, and its word pieces, as the hub has them."""
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
    highest = _highest(lambda ids, mask: model(ids, mask).logits.amax(1), tokenizer.backend_tokenizer)
    _shift(model.cls.predictions.bias, highest)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def word_tokenizer() -> "Tokenizer":
    """A tokenizer of the words of random_texts(), each of them one token, with XLM-R's special ones."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["<s>", "<pad>", "</s>", "<unk>", *(f"w{number}" for number in range(4, encoding.EMBEDDED))]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


def random_texts(lengths: Sequence[int]) -> list[str]:
    """Texts of so many tokens, the two special ones included."""
    draw = np.random.default_rng(encoding.SEED)
    return [
        " ".join(f"w{number}" for number in draw.integers(_SPECIAL, encoding.EMBEDDED, length - 2))
        for length in lengths
    ]


def _rows(tokenizer: "Tokenizer", texts: Texts) -> list[list[int]]:
    return [one.ids for one in tokenizer.encode_batch(list(texts))]


def _highest(logits: Callable[..., "torch.Tensor"], tokenizer: "Tokenizer") -> "torch.Tensor":
    """Highest logit of each piece over a text, [2, V_e], for two texts of about the median length."""
    import torch

    ids = torch.tensor(_rows(tokenizer, random_texts([110, 110])))
    with torch.inference_mode():
        return logits(ids, torch.ones_like(ids))


def _shift(bias: "torch.Tensor", highest: "torch.Tensor") -> None:
    """Lower a decoder's bias until a text has about TERMS terms."""
    import torch

    with torch.no_grad():
        bias -= highest.quantile(1 - TERMS / highest.shape[1]).item()


def _given(encode: Encode, texts: Texts) -> Callable[[], object]:
    return lambda: encode(texts)


def _peak(encode: Encode, texts: Texts) -> float:
    """Extra memory of a pass, after a short one: what any pass needs is not its own."""
    encode(texts[:1])
    return encoding.peak_of(_given(encode, texts))
