"""Encode texts into sparse vectors: a model with its tokenizers and its vocabulary."""

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from milco_pyserini.console import Progress, counted, warn
from milco_pyserini.defaults import BATCH_SIZE, DEFAULT_ENCODER, ENCODER_DTYPES
from milco_pyserini.encode.devices import choose_device, choose_dtype
from milco_pyserini.errors import MilcoError, ParameterError, shown
from milco_pyserini.io.files import write_json
from milco_pyserini.model.checkpoint import ENGLISH, Checkpoint
from milco_pyserini.model.tokenization import TextTokenizer, hash_tokenizers, replace_lone_surrogates
from milco_pyserini.sparse import SparseBatch, Vocabulary
from milco_pyserini.sparse.vocabulary import common_vocabulary

if TYPE_CHECKING:
    import torch

    from milco_pyserini.model.modeling import SparseEncoderModel
    from milco_pyserini.model.weights import NetworkWeights

# Embedding matrices may have more rows than the tokenizer has pieces, rounded up to a multiple of 64, 128 or (mDeBERTa)
# 1,000.
PADDING_ROWS = 128
# A narrower network is not faster in 8 bits, and less exact.
_INT8_WIDTH = 768


class EncodeSettings(TypedDict, total=False):
    """Settings of MilcoEncoder.encode()."""

    max_length: int | None
    views: str | Sequence[str] | None
    lowercase: bool
    batch_size: int
    show_progress: bool


class MilcoEncoder:
    """Encode texts in any language into sparse vectors over one vocabulary.

    >>> from milco_pyserini import MilcoEncoder
    >>> encoder = MilcoEncoder.from_pretrained("mini", dtype="float32")
    >>> queries = encoder.encode_query("Wer erfand das Telefon?")
    >>> documents = encoder.encode_document(["Bell patented the telephone in 1876.", "The Nile is a river in Africa."])
    >>> scores = encoder.similarity(queries, documents)
    >>> bool(scores[0, 0] > scores[0, 1])
    True
    >>> encoder
    MilcoEncoder('mini', views=pivot source, dtype=float32, device=cpu, 178,689 terms)

    A vector depends only on its text, not on the other texts of the call (float32: within 1e-5; bfloat16 and int8:
    within 1e-2). On cores that other processes use, too, encoding is several times faster if
    milco_pyserini.threads.apply() was called before torch was imported.

    Args:
        model: the network, or its weights. They are copied when the first text is encoded.
        tokenizer: the multilingual tokenizer, whose pieces name the source columns.
        english_tokenizer: its pieces name the pivot columns. If it is the tokenizer's own, as for a masked language
            model, there are no source columns.
        name: the checkpoint's name or path.
        device: "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1", "mps", "xpu" or a torch.device.
        dtype: "auto", "fast", "float32", "bfloat16", "int8" or a torch.dtype: of the matrix products. The residual
            stream, LayerNorm and pooling are float32. fast is bfloat16 where the device multiplies it natively, else
            float32; auto is what the checkpoint states for the CPU, else fast. int8 (CPU only) covers the products of
            the encoder's layers and of the decoder.
        english_prefix: prefix of pivot terms; `e_` is the authors' spelling.
        query_encoder: separate encoder for queries, if the model has one (default: this encoder).
    """

    def __new__(cls, model: Any = None, *arguments: Any, **options: Any) -> Self:
        """Raise TypeError for the name of a checkpoint, which from_pretrained() loads."""
        if isinstance(model, str | os.PathLike):
            raise TypeError(f"{cls.__name__}({str(model)!r}) expects a network: use {cls.__name__}.from_pretrained()")
        return super().__new__(cls)

    def __init__(
        self,
        model: "SparseEncoderModel | NetworkWeights",
        tokenizer: TextTokenizer,
        english_tokenizer: Tokenizer,
        name: str,
        device: "str | torch.device" = "auto",
        dtype: "str | torch.dtype" = "auto",
        english_prefix: str = "",
        query_encoder: "MilcoEncoder | None" = None,
    ) -> None:
        from milco_pyserini.encode.network import Network

        self.name = name
        self._requested_dtype = dtype
        self._query_encoder = query_encoder
        self.tokenizer = tokenizer
        self.english_tokenizer = english_tokenizer
        _validate_sizes(model, tokenizer, english_tokenizer, name)
        english = TextTokenizer(english_tokenizer, f"the English tokenizer of {name}").pieces
        source = [] if english_tokenizer is tokenizer.tokenizer else tokenizer.pieces
        self.vocabulary = Vocabulary(english, source, english_prefix)
        network = model.eval() if hasattr(model, "eval") else model
        placement = self._choose(device, network.config)
        self.network: Any = Network(network, name, tokenizer, self.vocabulary.english_size, *placement)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | os.PathLike | Checkpoint = DEFAULT_ENCODER,
        device: "str | torch.device" = "auto",
        dtype: "str | torch.dtype" = "auto",
        english_prefix: str = "",
        revision: str | None = None,
        **variants: Any,
    ) -> "MilcoEncoder":
        """Load a MILCO checkpoint: a directory, a hub name, or "mini".

        >>> encoder = MilcoEncoder.from_pretrained("mini", source_pool="max", pivot_top_k=100)

        Args:
            revision: commit, tag or branch of a hub name; "NAME@REVISION" is the same.
            variants: MilcoConfig fields that replace the checkpoint's.
            device, dtype, english_prefix: as for the class.

        Raises:
            MilcoError: the checkpoint cannot be found or is not complete.
        """
        device = choose_device(device)
        return load(Checkpoint.open(name_or_path, revision), device, dtype, english_prefix, **variants)

    def __repr__(self) -> str:
        dtype = str(self.network.dtype).removeprefix("torch.")
        return (
            f"{type(self).__name__}({self.name!r}, views={' '.join(self.views)}, dtype={dtype}, device={self.device}, "
            f"{len(self.vocabulary):,} terms)"
        )

    def to(self, device: "str | torch.device") -> Self:
        """Move to another device with the next text; return self. dtype "auto" is chosen again."""
        self.network = self.network.on(*self._choose(device, self.config))
        if self._query_encoder is not None:
            self._query_encoder.to(device)
        return self

    def _choose(self, device: "str | torch.device", config: Any) -> "tuple[torch.device, torch.dtype]":
        chosen = choose_device(device) if isinstance(device, str) else device
        cpu_dtype = getattr(config, "cpu_dtype", None)
        if self._requested_dtype == "int8" and config.encoder.hidden_size < _INT8_WIDTH:
            warn(f"dtype int8 gains nothing for {self.name}: it is for networks of a width of {_INT8_WIDTH} or more")
        return chosen, choose_dtype(self._requested_dtype, chosen, ENCODER_DTYPES, cpu_dtype)

    @property
    def model(self) -> Any:
        """The network as a module of torch: a MilcoModel for a MILCO checkpoint.

        On the CPU, encoding reads only the weights. They become modules with the first access, which imports
        transformers' modeling code; nothing is copied, and later texts are encoded with the modules' weights.
        """
        return self.network.model

    @property
    def config(self) -> Any:
        """Sizes and variants of the network: the fields of MilcoConfig."""
        return self.network.config

    @property
    def device(self) -> "torch.device | str":
        """The device on which texts are encoded."""
        return self.network.device

    @property
    def query_encoder(self) -> "MilcoEncoder":
        """The encoder of queries: this one, or the checkpoint's own encoder of queries."""
        return self._query_encoder or self

    @property
    def views(self) -> tuple[str, ...]:
        """The views that this checkpoint has."""
        return self.network.views

    @cached_property
    def hashes(self) -> dict[str, str]:
        """The hashes (BLAKE2b) by which manifests identify it.

        weight_hash is over every tensor's name, shape and float32 values, tokenizer_hash over both tokenizers.
        """
        tokenizers = self.tokenizer.tokenizer, self.english_tokenizer
        return {"weight_hash": self.network.weight_hash(), "tokenizer_hash": hash_tokenizers(*tokenizers)}

    def encode_query(
        self, texts: str | Iterable[str], *, alpha: float | None = None, **settings: Unpack[EncodeSettings]
    ) -> SparseBatch:
        """Return the vectors of queries, truncated to the checkpoint's query length by default.

        >>> encoder = MilcoEncoder.from_pretrained("mini")
        >>> encoder.encode_query(["Wer erfand das Telefon?", "who invented the telephone?"], views="pivot").shape[0]
        2

        Args:
            alpha: weight of the pivot view, from 0 to 1, with 1 - alpha for the source view (paper: ablation of the
                views). On the query side only, it interpolates the scores of the views. Default: both as they are.
            texts, settings: as for encode().
        """
        if settings.get("max_length") is None:
            settings["max_length"] = self.config.query_max_length
        encoder = self.query_encoder
        batch = encoder.network.limit_terms(encoder.encode(texts, **settings), is_query=True)
        return batch if alpha is None else batch.weighted(alpha)

    def encode_document(self, texts: str | Iterable[str], **settings: Unpack[EncodeSettings]) -> SparseBatch:
        """Return the vectors of documents, truncated to the checkpoint's passage length by default.

        >>> encoder = MilcoEncoder.from_pretrained("mini")
        >>> documents = encoder.encode_document(["Bell patented the telephone in 1876.", "The Nile is a river."])
        >>> len(documents)
        2

        Arguments as for encode().
        """
        return self.encode(texts, **settings)

    def encode(
        self,
        texts: str | Iterable[str],
        *,
        max_length: int | None = None,
        views: str | Sequence[str] | None = None,
        lowercase: bool = False,
        batch_size: int = BATCH_SIZE,
        show_progress: bool = False,
    ) -> SparseBatch:
        """Return the vectors of texts in their order, whether they are queries or documents.

        Args:
            texts: one text or several; a blank one has an empty vector.
            max_length: in tokens, <s> and </s> included (default: the checkpoint's passage length).
            views: "pivot", "source", or both (default: all that the checkpoint has).
            lowercase: lowercase the texts first, as the authors' evaluation on MIRACL's hard negatives does.
            batch_size: the most texts in one forward pass; the device limits the number of tokens.
            show_progress: show a progress bar on stderr, in a notebook on stdout.

        Raises:
            TypeError: texts is not a str or an iterable of str.
            MilcoError: the checkpoint lacks a view or positions for max_length; batch_size is not an integer above 0.
        """
        texts = as_texts(texts)
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ParameterError("batch_size", batch_size, "must be an integer of at least 1")
        if max_length is None:
            max_length = self.config.passage_max_length
        self.network.validate_length(max_length)
        views = self.network.resolve_views(views)
        tokens = self.tokenizer.tokenize([text.lower() for text in texts] if lowercase else texts, max_length)
        progress = Progress("texts", len(texts), show=True) if show_progress else None
        rows, report = [row.ids for row in tokens], None if progress is None else progress.add
        batch = self.network.encode(rows, views, batch_size, report=report)
        if progress is not None:
            progress.close("Encoded")
        return replace(batch, vocabulary=self.vocabulary)

    def decode(self, vectors: SparseBatch, *, top_k: int | None = None) -> list[list[tuple[str, float]]]:
        """Return the terms and weights of every vector, strongest first, at most top_k of them.

        >>> encoder = MilcoEncoder.from_pretrained("mini")
        >>> decoded = encoder.decode(encoder.encode_query("Wer erfand das Telefon?"), top_k=3)

        Terms are spelled as in an index: source terms have the prefix `m_`, "▁" is the beginning of a word in the
        source view, "##" a piece within a word in the pivot view. To see only English words: vectors.view("pivot").
        """
        return self._own(vectors).ranked(self.vocabulary, top_k)

    def similarity(
        self, queries: SparseBatch | str | Iterable[str], documents: SparseBatch | str | Iterable[str]
    ) -> NDArray[np.float32]:
        """Return the dot product of every query with every document: float32 [Q, D]. Texts are encoded first.

        >>> encoder = MilcoEncoder.from_pretrained("mini")
        >>> encoder.similarity("a river", ["The Nile is a river.", "Bell patented the telephone."]).shape
        (1, 2)
        """
        left = queries if isinstance(queries, SparseBatch) else self.encode_query(queries)
        right = documents if isinstance(documents, SparseBatch) else self.encode_document(documents)
        return left.dot(right)

    def sparsity(self, vectors: SparseBatch) -> dict[str, float]:
        """Return active_dims, the mean number of terms, and sparsity_ratio, the mean share of dimensions without one.

        >>> encoder = MilcoEncoder.from_pretrained("mini")
        >>> encoder.sparsity(encoder.encode_query("Wer erfand das Telefon?"))["sparsity_ratio"] > 0.99
        True
        """
        return self._own(vectors).sparsity()

    def intersection(self, queries: SparseBatch, documents: SparseBatch) -> SparseBatch:
        """Return the terms in common with the products of their weights, vector by vector.

        One query is compared with every document; otherwise there must be as many queries as documents. The products
        of a vector sum to the similarity.

        >>> encoder = MilcoEncoder.from_pretrained("mini")
        >>> query, document = encoder.encode_query("a river"), encoder.encode_document("The Nile is a river.")
        >>> common = encoder.intersection(query, document)
        >>> [term for term, product in encoder.decode(common.view("pivot"), top_k=1)[0]]
        ['river']
        """
        return self._own(queries).intersection(self._own(documents))

    def _own(self, vectors: SparseBatch) -> SparseBatch:
        """Return vectors with this vocabulary. Raises MilcoError if they have another one."""
        if not isinstance(vectors, SparseBatch):
            raise TypeError(
                f"vectors expects a SparseBatch, as encode_document() returns it, got {type(vectors).__name__}"
            )
        common_vocabulary(self.vocabulary, vectors.vocabulary)
        return replace(vectors, vocabulary=self.vocabulary)

    def save_pretrained(self, directory: str | os.PathLike) -> None:
        """Write a complete checkpoint: weights, tokenizers, configuration, model card, sentence-transformers' files.

        An existing model card is kept. Raises MilcoError for a masked language model, whose head MILCO's layout lacks.
        """
        from milco_pyserini.model.layouts import model_card, write_sentence_transformers_files
        from milco_pyserini.model.modeling import MilcoModel

        if not isinstance(self.model, MilcoModel):
            raise MilcoError(
                f"encoder {self.name} cannot be saved as a MILCO checkpoint: it is a masked language "
                "model. Copy its own directory"
            )
        path = Path(directory)
        self.model.save_pretrained(path)
        for weights in path.glob("*.safetensors"):
            # safetensors makes files that only their owner can read.
            shutil.copymode(path / "config.json", weights)
        if not (path / "README.md").exists():
            (path / "README.md").write_text(model_card(self.model.config), encoding="utf-8")
        self._save_tokenizers(path)
        write_sentence_transformers_files(path)

    def _save_tokenizers(self, directory: Path) -> None:
        """Write the tokenizer to a directory, and that of the English terms, if it is another one, to english/."""
        for place, tokenizer, kind in (
            (directory, self.tokenizer.tokenizer, "XLMRobertaTokenizerFast"),
            (directory / ENGLISH, self.english_tokenizer, "BertTokenizerFast"),
        ):
            if place == directory or tokenizer is not self.tokenizer.tokenizer:
                place.mkdir(exist_ok=True)
                tokenizer.save(str(place / "tokenizer.json"))
                write_json(place / "tokenizer_config.json", {"tokenizer_class": kind})

    def push_to_hub(self, repository: str, **options: Any) -> str:
        """Upload what save_pretrained() writes to a model repository of the hub; return its address.

        options: for HfApi.create_repo(), such as private=True.
        """
        import tempfile

        from huggingface_hub import HfApi

        api = HfApi()
        url = api.create_repo(repository, exist_ok=True, **options)
        with tempfile.TemporaryDirectory() as directory:
            self.save_pretrained(directory)
            api.upload_folder(repo_id=repository, folder_path=directory)
        return str(url)


def load(checkpoint: Checkpoint, *options: Any, **variants: Any) -> MilcoEncoder:
    """Load a MILCO checkpoint. options: device, dtype, english_prefix; variants: as for from_pretrained()."""
    from milco_pyserini.model.networks import load_checkpoint

    model = load_checkpoint(checkpoint, variants)
    return MilcoEncoder(model, checkpoint.tokenizer, checkpoint.english_tokenizer, checkpoint.name, *options)


def as_texts(texts: str | Iterable[str]) -> list[str]:
    """Return texts as a list; a str is one text. Raises TypeError, with the position, for other objects."""
    if isinstance(texts, str):
        texts = [texts]
    if isinstance(texts, Mapping):
        raise TypeError(f"texts expects a str or several, got {type(texts).__name__}: pass its .values()")
    if hasattr(texts, "columns") and not isinstance(texts, SparseBatch):
        # A data frame yields the names of its columns.
        raise TypeError(
            f"texts expects a str or several, got {type(texts).__name__}: pass a column, such as df['text']"
        )
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise TypeError(f"texts expects a str or several, got {type(texts).__name__} {shown(str(texts))}")
    listed = list(texts)
    for place, text in enumerate(listed):
        if not isinstance(text, str):
            raise TypeError(f"texts[{place}] expects a str, got {type(text).__name__} {shown(str(text))}")
    if damaged := sum(replace_lone_surrogates(text) != text for text in listed if not text.isascii()):
        warn(f"{counted(damaged, 'text')} with lone surrogates, each encoded as U+FFFD")
    return listed


def _validate_sizes(
    model: "SparseEncoderModel | NetworkWeights", tokenizer: TextTokenizer, english_tokenizer: Tokenizer, name: str
) -> None:
    """Raise MilcoError if a tokenizer is not the one that the network was trained with, as far as sizes show."""
    pieces, rows = len(tokenizer.pieces), model.config.encoder.vocab_size
    if not rows - max(PADDING_ROWS, rows // 100) <= pieces <= rows:
        raise MilcoError(
            f"encoder {name}: its tokenizer has {pieces:,} pieces, its embedding {rows:,} rows: they must be of one "
            "vocabulary. Put the encoder's own tokenizer.json into the checkpoint."
        )
    padding = {tokenizer.tokenizer.token_to_id(piece) for piece in ("<pad>", "[PAD]")} - {None}
    expected = model.config.encoder.pad_token_id
    if expected is not None and padding and expected not in padding:
        raise MilcoError(
            f"encoder {name}: its padding piece has the id {min(padding)} in its tokenizer and {expected} in its "
            "configuration: positions are counted from it. Put the encoder's own tokenizer.json into the checkpoint."
        )
    pieces, rows = english_tokenizer.get_vocab_size(), model.config.english_vocab_size
    if pieces != rows:
        raise MilcoError(f"encoder {name}: its English tokenizer has {pieces:,} pieces, its decoder {rows:,} rows")
