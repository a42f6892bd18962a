"""Texts to sparse term vectors: the model, its tokenizer and its vocabulary together."""

import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from milco_pyserini.console import Report
from milco_pyserini.defaults import DEFAULT_ENCODER
from milco_pyserini.encode.batches import BatchRunner, empty_batch
from milco_pyserini.encode.devices import choose_device, choose_dtype
from milco_pyserini.encode.m3 import HEAD, empty_vocabulary, find_head, load_m3
from milco_pyserini.encode.splade import is_masked_language_model, load_splade
from milco_pyserini.errors import MilcoError, shown, unknown_name
from milco_pyserini.io.files import read_json, write_json
from milco_pyserini.model import MilcoConfig, MilcoModel, SparseEncoderModel, find_checkpoint
from milco_pyserini.model.checkpoint import ENGLISH, model_card
from milco_pyserini.model.forward import choose_forward
from milco_pyserini.model.loading import token_limit, weight_hash
from milco_pyserini.model.tokenization import TextTokenizer, load_english_tokenizer, load_tokenizer
from milco_pyserini.sparse import PIVOT, SOURCE, VIEWS, SparseBatch, Vocabulary
from milco_pyserini.sparse.batch import validate_finite
from milco_pyserini.sparse.pruning import PruningRule

BATCH_SIZE = 512

# Embeddings have some more rows than pieces, for the hardware, or in reserve: the next multiple of 64 or 128, or (as
# mDeBERTa's) of 1,000.
_PADDING_ROWS = 128


@dataclass(frozen=True)
class Encoded:
    """The vectors of some texts, in their order, and what is worth counting."""

    batch: SparseBatch
    tokens: int
    truncated: int


class MilcoEncoder:
    """Texts in any language to SparseBatch vectors over one Vocabulary.

    english_tokenizer: its pieces name the pivot columns. Where it is the tokenizer's own, as of a masked language
    model, there are no source columns. open_encoder() makes one of these of any checkpoint that it knows.

    A vector depends on its text alone: not on the other texts of the call, their number or their order (float32:
    within 1e-5; bfloat16: within 1e-2). views: which views a vector holds. The weights are taken as they are when the
    first text is encoded.

        encoder = MilcoEncoder.from_pretrained("mini")
        queries = encoder.encode_query("Wer erfand das Telefon?")
        documents = encoder.encode_document(["Bell patented the telephone in 1876.", "The Nile is a river."])
        encoder.similarity(queries, documents)
        encoder.decode(queries, top_k=5)

    On cores that other work shares, import milco_pyserini before torch: it keeps torch's threads from spinning.
    """

    def __init__(
        self,
        model: SparseEncoderModel,
        tokenizer: TextTokenizer,
        english_tokenizer: Tokenizer,
        name: str,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        english_prefix: str = "",
    ) -> None:
        self.name = name
        self.device = choose_device(device)
        self.dtype = choose_dtype(dtype, self.device)
        self.model: Any = model.eval()
        self.tokenizer = tokenizer
        self.english_tokenizer = english_tokenizer
        _check_sizes(model, tokenizer, english_tokenizer, name)
        english = TextTokenizer(english_tokenizer, f"the English tokenizer of {name}").pieces
        source = [] if english_tokenizer is tokenizer.tokenizer else tokenizer.pieces
        self.vocabulary = Vocabulary(english, source, english_prefix)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | os.PathLike = DEFAULT_ENCODER,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        english_prefix: str = "",
        **variants: Any,
    ) -> "MilcoEncoder":
        """Load a MILCO checkpoint: a directory, a hub name, or "mini". variants: MilcoConfig fields to change.

        device: "auto", "cpu", "cuda", "cuda:1". dtype: of the matrix products; the residual stream, LayerNorm and
        pooling are float32. Raises MilcoError if the checkpoint cannot be had or is not whole.
        """
        name = os.fspath(name_or_path)
        choose_device(device)
        directory = find_checkpoint(name)
        model = MilcoModel.from_pretrained(directory, **variants)
        tokenizers = load_tokenizer(directory), load_english_tokenizer(directory)
        return cls(model, *tokenizers, name=name, device=device, dtype=dtype, english_prefix=english_prefix)

    @property
    def views(self) -> tuple[str, ...]:
        """The views that this checkpoint has."""
        lacking = {PIVOT: not self.model.config.english_vocab_size, SOURCE: self.model.echo is None}
        return tuple(view for view in VIEWS if not lacking[view])

    @cached_property
    def weight_hash(self) -> str:
        """BLAKE2b over every tensor's name, shape and float32 values: equal weights, equal hash."""
        return weight_hash(self.model.state_dict())

    @cached_property
    def tokenizer_hash(self) -> str:
        """BLAKE2b over both tokenizers' definitions."""
        text = self.tokenizer.tokenizer.to_str() + self.english_tokenizer.to_str()
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def encode_query(
        self,
        texts: str | Iterable[str],
        alpha: float | None = None,
        max_length: int | None = None,
        views: str | Sequence[str] | None = None,
        lowercase: bool = False,
        batch_size: int = BATCH_SIZE,
    ) -> SparseBatch:
        """Vectors of queries, truncated to the checkpoint's query length. Arguments as for encode().

        alpha: weight of the pivot view in [0, 1], with 1 - alpha for the source view (paper: ablation of the
        views); on the query side alone it is an interpolation of the two scores.
        """
        length = self.model.config.query_max_length if max_length is None else max_length
        batch = self.encode(texts, length, views, lowercase, batch_size).batch
        return batch if alpha is None else batch.weighted(alpha)

    def encode_document(
        self,
        texts: str | Iterable[str],
        max_length: int | None = None,
        views: str | Sequence[str] | None = None,
        lowercase: bool = False,
        batch_size: int = BATCH_SIZE,
    ) -> SparseBatch:
        """Vectors of documents, truncated to the checkpoint's passage length. Arguments as for encode()."""
        return self.encode(texts, max_length, views, lowercase, batch_size).batch

    def encode(
        self,
        texts: str | Iterable[str],
        max_length: int | None = None,
        views: str | Sequence[str] | None = None,
        lowercase: bool = False,
        batch_size: int = BATCH_SIZE,
    ) -> Encoded:
        """Vectors of texts in their order, and counts.

        Args:
            texts: one text or several; an empty one has an empty vector.
            max_length: in tokens, <s> and </s> included (default: the checkpoint's passage length).
            views: "pivot", "source", or both (default: all that the checkpoint has).
            lowercase: lower-case the texts first, as the paper's evaluation does.
            batch_size: most texts in one forward pass; how many tokens, the device decides.

        Raises:
            TypeError: texts are no str or hold something else.
            MilcoError: the checkpoint lacks a view, has no positions for the length, or batch_size is below 1.
        """
        texts = as_texts(texts)
        if batch_size < 1:
            raise MilcoError(f"batch_size {batch_size}: must be at least 1")
        if max_length is None:
            max_length = self.model.config.passage_max_length
        self.validate_length(max_length)
        views = self.resolve_views(views)
        rows = self.tokenizer.tokenize([text.lower() for text in texts] if lowercase else texts, max_length)
        batch = self.encode_rows([row.ids for row in rows], views, batch_size)
        return Encoded(batch, sum(len(row.ids) for row in rows), sum(row.truncated for row in rows))

    def encode_rows(
        self,
        rows: Sequence[Sequence[int]],
        views: Sequence[str],
        batch_size: int = BATCH_SIZE,
        names: Sequence[str] = (),
        report: Report | None = None,
    ) -> SparseBatch:
        """Vectors of tokenised texts in their order, batched by length. A row without tokens has an empty vector.

        names: the texts' ids, for an error. report: called for each batch. Raises MilcoError for a weight that is not
        finite.
        """
        order = np.argsort([len(row) for row in rows], kind="stable")
        filled = [rows[number] for number in order if rows[number]]
        parts = [empty_batch(len(rows) - len(filled), self.vocabulary.english_size)]
        if report and len(parts[0]):
            report(len(parts[0]), 0)
        done = 0
        for batch in self._runner.run(filled, views, batch_size):
            parts.append(batch)
            if report:
                report(len(batch), sum(map(len, filled[done : done + len(batch)])))
            done += len(batch)
        found = SparseBatch.concatenate(parts, self.vocabulary.english_size).take(np.argsort(order))
        validate_finite(found.weights, found.indptr, f"encoder {self.name}", self.tokenizer.namer(rows, names))
        return self._strongest(found)

    def encode_ids(self, rows: Sequence[Sequence[int]], views: Sequence[str]) -> SparseBatch:
        """Vectors of tokenised texts (<s> and </s> included, none blank) in one forward pass."""
        return self._strongest(self._runner.run_one(rows, views))

    def decode(self, batch: SparseBatch, top_k: int | None = None) -> list[list[tuple[str, float]]]:
        """Terms and weights of every vector, strongest first, top_k of them if given."""
        ranked = []
        for columns, weights in batch.rows():
            order = np.lexsort((columns, -weights))[:top_k]
            ranked.append(
                list(zip(self.vocabulary.terms[columns[order]].tolist(), weights[order].tolist(), strict=True))
            )
        return ranked

    def similarity(self, queries: SparseBatch, documents: SparseBatch) -> NDArray[np.float32]:
        """Dot product of every query with every document: float32 [Q, D]."""
        return queries.dot(documents)

    def save_pretrained(self, directory: str | os.PathLike) -> None:
        """Write a checkpoint with everything inside: weights, both tokenizers, configuration, model card.

        A model card that is there already stays.
        """
        if not isinstance(self.model, MilcoModel):
            raise MilcoError(
                f"encoder {self.name} cannot be saved as a MILCO checkpoint: it is a masked language "
                "model. Copy its own directory"
            )
        path = Path(directory)
        self.model.save_pretrained(path)
        for weights in path.glob("*.safetensors"):
            # safetensors lets nobody else read what it writes.
            shutil.copymode(path / "config.json", weights)
        if not (path / "README.md").exists():
            (path / "README.md").write_text(model_card(self.model.config), encoding="utf-8")
        for place, tokenizer, kind in (
            (path, self.tokenizer.tokenizer, "XLMRobertaTokenizerFast"),
            (path / ENGLISH, self.english_tokenizer, "BertTokenizerFast"),
        ):
            place.mkdir(exist_ok=True)
            tokenizer.save(str(place / "tokenizer.json"))
            write_json(place / "tokenizer_config.json", {"tokenizer_class": kind})

    def push_to_hub(self, repository: str, **options: Any) -> str:
        """Upload what save_pretrained() writes to a model repository of the hub; returns its address."""
        import tempfile

        from huggingface_hub import HfApi

        api = HfApi()
        url = api.create_repo(repository, exist_ok=True, **options)
        with tempfile.TemporaryDirectory() as directory:
            self.save_pretrained(directory)
            api.upload_folder(repo_id=repository, folder_path=directory)
        return str(url)

    def resolve_views(self, views: str | Sequence[str] | None) -> tuple[str, ...]:
        """Return the views to encode, all by default. Raises MilcoError for a view that the checkpoint lacks."""
        views = (views,) if isinstance(views, str) else views
        for view in views or ():
            if view not in VIEWS:
                raise unknown_name("view", view, VIEWS)
            if view not in self.views:
                lacking = "LexEcho head" if view == SOURCE else "English vocabulary"
                other = " ".join(self.views)
                raise MilcoError(f"encoder {self.name} has no {lacking}, so no {view} view: use --views {other}")
        return tuple(views or self.views)

    def validate_length(self, max_length: int) -> None:
        """Raise MilcoError for a maximum length in tokens that the encoder has no positions for."""
        limit = token_limit(self.model.encoder, self.model.config.encoder)
        if not 3 <= max_length <= limit:
            raise MilcoError(f"maximum length {max_length}: encoder {self.name} takes 3 to {limit} tokens")

    def _strongest(self, batch: SparseBatch) -> SparseBatch:
        """The terms that stay where the checkpoint has a limit for a view."""
        config = self.model.config
        for view, limit in ((PIVOT, config.pivot_top_k), (SOURCE, config.source_top_k)):
            if limit is not None:
                batch = PruningRule("top-k", limit, view)(batch)
        return batch

    @cached_property
    def _runner(self) -> BatchRunner:
        # Made when the first text is encoded: an encoder that is only looked at, or saved, stays where it was loaded.
        config = self.model.config
        dropped = self.tokenizer.special_ids if config.source_drop_special else []
        forward = choose_forward(self.model.to(self.device), self.device, self.dtype)
        columns = self.vocabulary.english_size, len(self.tokenizer.pieces)
        return BatchRunner(forward, self.device, *columns, config.source_pool, dropped)


def as_texts(texts: str | Iterable[str]) -> list[str]:
    """Texts as a list; a str is one text. Raises TypeError, with the place, for what is no text."""
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise TypeError(f"texts must be a str or several, got {type(texts).__name__} {shown(str(texts))}")
    listed = list(texts)
    for place, text in enumerate(listed):
        if not isinstance(text, str):
            raise TypeError(f"texts[{place}] must be a str, got {type(text).__name__} {shown(str(text))}")
    return listed


def open_encoder(
    name_or_path: str | os.PathLike = DEFAULT_ENCODER,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    english_prefix: str = "",
) -> MilcoEncoder:
    """The encoder of a checkpoint, whichever gives term vectors: MILCO, a masked language model (SPLADE), or BGE-M3.

    Arguments as for MilcoEncoder.from_pretrained(). Of a masked language model the pivot view is over its tokenizer's
    own pieces; BGE-M3's layout has the source view alone. Raises MilcoError, with what was looked for, if it is none.
    """
    name = os.fspath(name_or_path)
    choose_device(device)
    directory = find_checkpoint(name)
    said = read_json(directory / "config.json")
    if said.get("model_type") == MilcoConfig.model_type:
        return MilcoEncoder.from_pretrained(name, device, dtype, english_prefix)
    model: SparseEncoderModel
    tokenizer = load_tokenizer(directory)
    if is_masked_language_model(said) and not (directory / HEAD).is_file():
        model, english_tokenizer = load_splade(directory, tokenizer), tokenizer.tokenizer
    elif head := find_head(name, directory):
        model, english_tokenizer = load_m3(directory, head), empty_vocabulary()
    else:
        raise MilcoError(
            f"encoder {name} gives no term vectors: its config.json names {_named(said)}, which is neither a MILCO "
            "checkpoint (model_type milco) nor a masked language model such as SPLADE (...ForMaskedLM), and no "
            f"{HEAD} is beside it as in BGE-M3"
        )
    return MilcoEncoder(model, tokenizer, english_tokenizer, name, device, dtype, english_prefix)


def _named(config: dict) -> str:
    return ", ".join(map(str, config.get("architectures") or ())) or f"model_type {config.get('model_type')}"


def _check_sizes(model: SparseEncoderModel, tokenizer: TextTokenizer, english_tokenizer: Tokenizer, name: str) -> None:
    pieces, rows = len(tokenizer.pieces), model.config.encoder.vocab_size
    if not rows - max(_PADDING_ROWS, rows // 100) <= pieces <= rows:
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
