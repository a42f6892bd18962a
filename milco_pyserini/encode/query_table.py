"""Queries without a network: every token has a vector of its own, and a query has the largest weights of its tokens."""

import os
import shutil
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from milco_pyserini.console import Progress, Report
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.network import BATCH_SIZE, Network
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.artifact import Action, Artifact
from milco_pyserini.io.files import atomic_directory, is_json_with, read_json, remove_directory, write_json
from milco_pyserini.model.checkpoint import QUERY_TABLE, Checkpoint, loading
from milco_pyserini.model.configuration import QUERY_LIMITS
from milco_pyserini.model.tokenization import TextTokenizer, hash_tokenizers
from milco_pyserini.sparse import PIVOT, SparseBatch
from milco_pyserini.sparse.pruning import PruningRule

TOP_K = 10
# Tokens that an interrupted run loses at most.
_PART = 8192
_CONFIG, _WEIGHTS, _PLAN = "config.json", "model.safetensors", "plan.json"
# Fields of a checkpoint's configuration that queries need.
_FIELDS = (
    "english_vocab_size",
    "echo",
    "lowercase_capitals",
    "pivot_top_k",
    "source_top_k",
    *QUERY_LIMITS,
    "query_max_length",
    "passage_max_length",
)


class QueryTable(MilcoEncoder):
    """Encode queries without a network: each term has its largest weight in the vectors of the query's tokens.

    A token's vector is what an encoder gives to the token alone, and the maximum is how MILCO pools tokens. A table
    takes the place of its encoder for queries to documents that were encoded by it: milco encode --topics, milco search
    and milco serve take its directory as --encoder. It has no context: a word of several tokens is known by its parts.

    >>> from milco_pyserini import MilcoEncoder
    >>> from milco_pyserini.encode.query_table import QueryTable
    >>> table = QueryTable.build(MilcoEncoder.from_pretrained("mini"), "tables/mini")  # doctest: +SKIP
    >>> table = load_encoder("tables/mini")  # doctest: +SKIP
    >>> table.encode_query("Wer erfand das Telefon?")  # doctest: +SKIP
    SparseBatch(1 vector, 51 terms, 51.0 per vector)

    Args:
        vectors: of each token of the tokenizer, in the order of their ids.
        config: checkpoint (its name), weight_hash, token_limit, vocab_size, pad_token_id, and the fields of MilcoConfig
            that queries need.
        tokenizer, english_tokenizer, name, english_prefix: as for MilcoEncoder.
    """

    def __init__(
        self,
        vectors: SparseBatch,
        config: SimpleNamespace,
        tokenizer: TextTokenizer,
        english_tokenizer: Any,
        name: str,
        english_prefix: str = "",
    ) -> None:
        sizes: Any = SimpleNamespace(config=config)
        super().__init__(sizes, tokenizer, english_tokenizer, name, "cpu", "float32", english_prefix)
        self.network = _TokenVectors(config, vectors, name, tokenizer)
        self.vectors = vectors

    @classmethod
    def build(
        cls, encoder: MilcoEncoder, output: str | os.PathLike, top_k: int = TOP_K, overwrite: bool = False
    ) -> "QueryTable":
        """Encode every token of an encoder's tokenizer alone, write the table to a directory, and return it.

        An interrupted run is resumed by the same call; a table that it has written already is returned.

        Args:
            encoder: of any kind, with one network for queries and documents.
            output: directory of the table.
            top_k: the most pivot terms of a token, the strongest.
            overwrite: replace a table at output.

        Raises:
            MilcoError: output holds something else, the encoder has an encoder of queries of its own, or is a table.
        """
        # "." has no name.
        path = Path(output) if Path(output).name else Path(output).resolve()
        if isinstance(encoder, QueryTable):
            raise MilcoError(f"{encoder.name} is a query table already: pass the encoder {encoder.config.checkpoint}")
        if encoder.query_encoder is not encoder or not encoder.network.encodes_documents:
            raise MilcoError(
                f"encoder {encoder.name} has an encoder of queries of its own: a table would not replace it"
            )
        tokenizer = encoder.tokenizer
        before, after = tokenizer.num_special_tokens
        ids = tokenizer.tokenizer.encode("a").ids
        left, right = ids[:before], ids[len(ids) - after :]
        rows: list[list[int]] = [[*left, number, *right] for number in range(len(tokenizer.pieces))]
        for number in tokenizer.special_ids:
            rows[number] = []
        config = SimpleNamespace(
            checkpoint=encoder.name,
            weight_hash=encoder.hashes["weight_hash"],
            top_k=top_k,
            token_limit=encoder.network.token_limit,
            encoder=SimpleNamespace(vocab_size=len(rows), pad_token_id=encoder.config.encoder.pad_token_id),
            dtype=str(encoder.network.dtype).removeprefix("torch."),
            **{name: getattr(encoder.config, name, None) for name in _FIELDS},
            trained_on=getattr(encoder.config, "trained_on", None),
        )
        parts, plan = path.with_name(f"{path.name}.parts"), _values(config)
        begun = (parts / _PLAN).exists()
        finished = Artifact(path, _is_table, read_json(path / _CONFIG) if _is_table(path) else None)
        if finished.action(plan, overwrite) is Action.KEEP:
            if begun:
                remove_directory(parts)
            finished.keep()
            return load(Checkpoint.open(path), encoder.vocabulary.english_prefix)
        recorded = read_json(parts / _PLAN) if begun else None
        partial = Artifact(parts, lambda _: True, recorded, is_complete=False, in_place=True)
        if partial.action(plan, overwrite) is Action.REPLACE:
            remove_directory(parts)
        vectors = _encode_in_parts(encoder, rows, top_k, parts, plan)
        table = cls(vectors, config, tokenizer, encoder.english_tokenizer, str(path), encoder.vocabulary.english_prefix)
        with atomic_directory(path, overwrite, _is_table) as directory:
            table.save_pretrained(directory)
        remove_directory(parts)
        return table

    @cached_property
    def hashes(self) -> dict[str, str]:
        """The hashes of its encoder."""
        tokenizer_hash = hash_tokenizers(self.tokenizer.tokenizer, self.english_tokenizer)
        return {"weight_hash": self.config.weight_hash, "tokenizer_hash": tokenizer_hash}

    @property
    def model(self) -> NoReturn:
        """Raise MilcoError: there is none."""
        raise MilcoError(f"{self.name} is a query table, without a model: pass the encoder {self.config.checkpoint}")

    def encode_document(self, *_: Any, **__: Any) -> NoReturn:
        """Raise MilcoError: a sum of tokens without their context does not represent a document."""
        raise MilcoError(
            f"{self.name} is a query table, which encodes queries only: encode documents with {self.config.checkpoint}"
        )

    def save_pretrained(self, directory: str | os.PathLike) -> None:
        """Write the table: vectors, tokenizers, configuration, and a card unless there is one."""
        path = Path(directory)
        self._save_tokenizers(path)
        arrays: dict[str, NDArray[Any]] = {
            "indptr": self.vectors.indptr,
            "columns": self.vectors.columns,
            "weights": self.vectors.weights,
        }
        save_file(arrays, path / _WEIGHTS)
        # safetensors makes files that only their owner can read.
        shutil.copymode(path / "tokenizer.json", path / _WEIGHTS)
        if not (path / "README.md").exists():
            (path / "README.md").write_text(_card(self.config), encoding="utf-8")
        write_json(path / _CONFIG, _values(self.config))


def load(checkpoint: Checkpoint, *options: Any) -> QueryTable:
    """Load a table. options: english_prefix, the last; a maximum needs neither device nor dtype.

    Raises MilcoError if it is damaged.
    """
    directory, values = checkpoint.directory, checkpoint.config
    tokenizers = checkpoint.tokenizer, checkpoint.english_tokenizer
    with loading(directory, "a query table", "Make it again with milco encode query-table"):
        config = SimpleNamespace(**values | {"encoder": SimpleNamespace(**values["encoder"])})
        arrays = load_file(directory / _WEIGHTS)
        vectors = SparseBatch(arrays["indptr"], arrays["columns"], arrays["weights"], config.english_vocab_size)
        table = QueryTable(vectors, config, *tokenizers, checkpoint.name, options[-1])
        _validate(table, directory)
    return table


class _TokenVectors(Network):
    """The vectors of single tokens, in place of a network."""

    encodes_documents = has_token_states = False

    def __init__(self, config: SimpleNamespace, vectors: SparseBatch, name: str, tokenizer: TextTokenizer) -> None:
        source = SimpleNamespace(config=config)
        super().__init__(source, name, tokenizer, vectors.english_size, torch.device("cpu"), torch.float32)
        self._vectors = vectors

    def on(self, device: torch.device, dtype: torch.dtype) -> Network:
        """Return self: a maximum needs no other device or dtype."""
        return self

    def encode(
        self,
        rows: Sequence[Sequence[int]],
        views: Sequence[str],
        batch_size: int = BATCH_SIZE,
        names: Sequence[str] = (),
        report: Report | None = None,
    ) -> SparseBatch:
        """Return the maxima of the vectors of each row's tokens. Arguments as for Network.encode()."""
        tokens = self._vectors.take(np.fromiter(chain.from_iterable(rows), np.int64))
        row_of_token = np.repeat(np.arange(len(rows)), list(map(len, rows)))
        row_of_entry = np.repeat(row_of_token, tokens.lengths())
        vectors = SparseBatch.from_maxima(row_of_entry, tokens.columns, tokens.weights, len(rows), self.english_size)
        if tuple(views) != self.views:
            vectors = vectors.view(*views)
        if report:
            report(len(rows), sum(map(len, rows)))
        return self.limit_terms(vectors)


def _values(config: SimpleNamespace) -> dict[str, Any]:
    return {**vars(config), "model_type": QUERY_TABLE, "encoder": vars(config.encoder)}


def _is_table(path: Path) -> bool:
    return is_json_with(path / _CONFIG, "model_type") and read_json(path / _CONFIG)["model_type"] == QUERY_TABLE


def _encode_in_parts(
    encoder: MilcoEncoder, rows: list[list[int]], top_k: int, parts: Path, plan: dict[str, Any]
) -> SparseBatch:
    """Return the vectors of all tokens, with at most top_k pivot terms each. Complete parts are kept in a directory."""
    if not (parts / _PLAN).exists():
        write_json(parts / _PLAN, plan)
    vectors = []
    progress = Progress("tokens", len(rows))
    for start in range(0, len(rows), _PART):
        file, part = parts / f"{start // _PART:05}.npz", rows[start : start + _PART]
        if not file.exists():
            PruningRule("top-k", top_k, PIVOT)(encoder.network.encode(part, encoder.views)).save(file)
        vectors.append(SparseBatch.load(file))
        progress.add(len(part))
    progress.close("Encoded")
    return SparseBatch.concatenate(vectors, encoder.vocabulary.english_size)


def _validate(table: QueryTable, directory: Path) -> None:
    """Raise MilcoError unless the arrays of a table are vectors of its tokens."""
    indptr, columns, weights = table.vectors.indptr, table.vectors.columns, table.vectors.weights
    tokens, terms = len(table.tokenizer.pieces), len(table.vocabulary)
    is_valid = (
        len(indptr) == tokens + 1
        and indptr[0] == 0
        and indptr[-1] == len(columns) == len(weights)
        and bool((np.diff(indptr) >= 0).all())
        and _within(columns, 0, terms - 1)
        and bool(np.isfinite(weights).all())
        and _within(weights, 0, np.inf)
    )
    if not is_valid:
        raise MilcoError(
            f"{directory / _WEIGHTS} does not hold the vectors of {tokens:,} tokens over {terms:,} terms: make it "
            "again with milco encode query-table"
        )


def _within(values: NDArray[Any], lowest: float, highest: float) -> bool:
    return not len(values) or bool(lowest <= values.min() and values.max() <= highest)


def _card(config: SimpleNamespace) -> str:
    return f"""---
library_name: milco_pyserini
pipeline_tag: feature-extraction
tags: [sparse-retrieval, multilingual, cross-lingual, milco, inference-free]
---

# Query table of {config.checkpoint}

Queries as the largest weights of their tokens' vectors, without a network, for documents encoded by
{config.checkpoint}. Each of {config.encoder.vocab_size:,} tokens has the vector that the encoder gives it alone, with
at most {config.top_k} pivot terms.

```
milco search --index indexes/NAME.lucene --encoder PATH --query "Wer erfand das Telefon?"
```
"""
