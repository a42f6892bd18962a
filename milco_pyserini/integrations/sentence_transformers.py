"""MILCO in sentence-transformers: a SparseEncoder in one call, and the module that it is made of.

    from milco_pyserini.integrations.sentence_transformers import load

    model = load("mini")
    queries = model.encode_query(["Wer erfand das Telefon?"])
    documents = model.encode_document(["Bell patented the telephone in 1876."])
    scores = model.similarity(queries, documents)

The other direction, a SparseEncoder as an encoder of this package, is `--encoder st:NAME|DIR`.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from milco_pyserini.defaults import DEFAULT_ENCODER
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.opening import load_encoder
from milco_pyserini.encode.sentence_transformers import QUERY, validate_library
from milco_pyserini.errors import MilcoError

__all__ = ["MilcoModule", "load"]

try:
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import InputModule
except ImportError:
    # Creating a module reports the missing package (validate_library()).
    InputModule = torch.nn.Module


def load(
    name_or_path: str | os.PathLike = DEFAULT_ENCODER,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    english_prefix: str = "",
    **options: Any,
) -> "SparseEncoder":
    """Return a checkpoint that load_encoder() accepts as a SparseEncoder of sentence-transformers.

    >>> model = load("mini", alpha=0.8)
    >>> query = model.encode_query("Wer erfand das Telefon?")
    >>> terms = model.decode(query, top_k=5)

    Args:
        name_or_path, device, dtype, english_prefix: as for load_encoder().
        options: alpha, views and lowercase of MilcoModule.

    Raises:
        MilcoError: sentence-transformers is missing or too old, or as load_encoder() does.
    """
    validate_library()
    encoder = load_encoder(name_or_path, device, dtype, english_prefix)
    return SparseEncoder(modules=[MilcoModule(encoder, **options)], device=str(encoder.device))


class MilcoModule(InputModule):
    """A MILCO encoder as the only module of a SparseEncoder, which has the same vectors.

    >>> model = SparseEncoder(modules=[MilcoModule(MilcoEncoder.from_pretrained("mini"))])
    >>> queries = model.encode_query(["Wer erfand das Telefon?"], alpha=0.8)

    encode_query() truncates texts to the checkpoint's query length, encode_document() to its passage length;
    max_seq_length of the model bounds both. Both methods take views, encode_query() also alpha, as those of
    MilcoEncoder do. There are no gradients: milco train trains checkpoints.

    Args:
        encoder: of any kind, see load_encoder().
        alpha: default weight of the pivot view of queries, see MilcoEncoder.encode_query().
        views: default views (default: all that the checkpoint has).
        lowercase: lowercase texts, as the authors' evaluation on MIRACL's hard negatives does.

    Raises:
        MilcoError: sentence-transformers is missing or too old; the checkpoint lacks a view.
    """

    config_file_name = "milco_sentence_transformers.json"
    config_keys = ["alpha", "views", "lowercase", "english_prefix"]  # noqa: RUF012
    forward_kwargs = {"task", "alpha", "views"}  # noqa: RUF012

    def __init__(
        self,
        encoder: MilcoEncoder,
        alpha: float | None = None,
        views: str | Sequence[str] | None = None,
        lowercase: bool = False,
    ) -> None:
        validate_library()
        super().__init__()
        if encoder.query_encoder is not encoder:
            raise MilcoError(f"encoder {encoder.name} is a SparseEncoder: load it with sentence-transformers")
        self.encoder = encoder
        # Registered, so that the SparseEncoder has its parameters and moves them.
        self.model = encoder.model
        self.tokenizer = _Terms(encoder)
        self.max_seq_length = encoder.model.config.passage_max_length
        self.alpha = alpha
        self.views = encoder.network.resolve_views(views)
        self.lowercase = lowercase
        self.english_prefix = encoder.vocabulary.english_prefix

    def get_embedding_dimension(self) -> int:
        """Return the number of terms in the vocabulary."""
        return len(self.encoder.vocabulary)

    def preprocess(
        self, inputs: Sequence[str], prompt: str | None = None, task: str | None = None, **_: Any
    ) -> dict[str, Tensor]:
        """Return padded token ids and their mask: int64 [B, S]."""
        length = self.max_seq_length
        if task == QUERY:
            length = min(length, self.model.config.query_max_length)
        self.encoder.network.validate_length(length)
        # A blank text has an empty vector.
        texts = [(prompt or "") + text if text.strip() else text for text in inputs]
        tokens = self.encoder.tokenizer.tokenize([text.lower() for text in texts] if self.lowercase else texts, length)
        rows = [torch.tensor(row.ids, dtype=torch.long) for row in tokens]
        mask = [torch.ones_like(row) for row in rows]
        return {
            "input_ids": pad_sequence(rows, batch_first=True),
            "attention_mask": pad_sequence(mask, batch_first=True),
        }

    def forward(
        self,
        features: dict[str, Any],
        task: str | None = None,
        alpha: float | None = None,
        views: str | Sequence[str] | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        """Add sentence_embedding, float32 [B, V], to what preprocess() returned."""
        if self.training:
            raise MilcoError("MilcoModule has no gradients", "Train the checkpoint with milco train.")
        if alpha is not None and task != QUERY:
            raise MilcoError("alpha weighs the views of queries: pass it to encode_query()")
        ids, device = features["input_ids"], next(self.model.parameters()).device
        if self.encoder.device != device:
            self.encoder.to(device)
        lengths = features["attention_mask"].sum(dim=1).tolist()
        rows = [row[:length] for row, length in zip(ids.tolist(), lengths, strict=True)]
        network = self.encoder.network
        batch = network.encode(rows, network.resolve_views(views) if views else self.views)
        alpha = self.alpha if alpha is None else alpha
        if task == QUERY:
            batch = network.limit_terms(batch, is_query=True)
            batch = batch if alpha is None else batch.weighted(alpha)
        batch = replace(batch, vocabulary=self.encoder.vocabulary)
        features["sentence_embedding"] = batch.to_torch().to_dense().to(ids.device)
        return features

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the checkpoint and the module's settings."""
        self.encoder.save_pretrained(output_path)
        self.save_config(output_path)

    @classmethod
    def load(
        cls, model_name_or_path: str, subfolder: str = "", model_kwargs: dict[str, Any] | None = None, **options: Any
    ) -> "MilcoModule":
        """Load the module of a checkpoint, as SparseEncoder(PATH, trust_remote_code=True) does.

        Args:
            model_name_or_path: a directory or a hub name.
            subfolder: of the module.
            model_kwargs: "dtype", as for MilcoEncoder.
            options: of the hub: token, cache_folder, revision, local_files_only.
        """
        hub = {name: options.get(name) for name in ("token", "cache_folder", "revision")}
        hub["local_files_only"] = options.get("local_files_only", False)
        directory = cls.load_dir_path(model_name_or_path, subfolder, **hub)
        dtype, settings = (model_kwargs or {}).get("dtype") or "auto", cls.load_config(directory)
        english_prefix = settings.pop("english_prefix", "")
        return cls(MilcoEncoder.from_pretrained(directory, dtype=dtype, english_prefix=english_prefix), **settings)


class _Terms:
    """Names the columns for SparseEncoder.decode()."""

    def __init__(self, encoder: MilcoEncoder) -> None:
        self._terms = encoder.vocabulary.terms

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
        return self._terms[list(ids)].tolist()
