"""Queries without a network: tokens and frequent pairs of tokens have rows, and a query has their largest weights.

It loads no torch.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from milco_pyserini.console import Progress, Report, counted, log
from milco_pyserini.defaults import BATCH_SIZE
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.encode.table_training import TextPair, Units, fit_rows
from milco_pyserini.encode.views import ViewEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.artifact import Action, Artifact
from milco_pyserini.io.files import (
    atomic_directory,
    checksum_bytes,
    is_json_with,
    read_json,
    remove_directory,
    write_json,
)
from milco_pyserini.model.checkpoint import QUERY_TABLE, Checkpoint, loading
from milco_pyserini.model.configuration import QUERY_LIMITS
from milco_pyserini.model.tokenization import TextTokenizer, hash_tokenizers
from milco_pyserini.sparse import PIVOT, SOURCE, SparseBatch, Vocabulary
from milco_pyserini.sparse.pruning import PruningRule

__all__ = ["QueryTable"]

TOP_K = 16
# Pivot terms of a text that rows are trained with.
_TEXT_TOP_K = 20
# Maximum number of tokens or texts that an interrupted run loses.
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
    """Encode queries without a network: each term has its largest weight in the rows of the query's tokens.

    A token's row is what an encoder gives to the token alone, and the maximum is how MILCO pools tokens: it has no
    context. A trained row is the mean of the encoder's vectors of the texts with the token, and frequent pairs of
    tokens have rows, too. A table takes the place of its encoder for queries to documents that were encoded by
    it: milco encode --topics, milco search and milco serve take its directory as --encoder.

    >>> from milco_pyserini import MilcoEncoder, load_encoder
    >>> from milco_pyserini.encode.query_table import QueryTable
    >>> texts = [("Wer erfand das Telefon?", "Who invented the telephone?")]
    >>> table = QueryTable.build(MilcoEncoder.from_pretrained("mini"), "tables/mini", texts)  # doctest: +SKIP
    >>> table = load_encoder("tables/mini")  # doctest: +SKIP
    >>> table.encode_query("Wer erfand das Telefon?")  # doctest: +SKIP
    SparseBatch(1 vector, 25 terms, 25.0 per vector)

    Args:
        vectors: the rows, of each token of the tokenizer in the order of their ids, then of each pair.
        config: checkpoint (its name), weight_hash, token_limit, vocab_size, pad_token_id, and the fields of
            MilcoConfig that queries need.
        tokenizer, english_tokenizer, name, english_prefix: as for MilcoEncoder.
        pairs: pairs of tokens that have rows, as in Units.
    """

    def __init__(
        self,
        vectors: SparseBatch,
        config: SimpleNamespace,
        tokenizer: TextTokenizer,
        english_tokenizer: Any,
        name: str,
        english_prefix: str = "",
        pairs: NDArray[np.int64] | None = None,
    ) -> None:
        self.name, self.tokenizer, self.english_tokenizer = name, tokenizer, english_tokenizer
        self._requested_dtype, self._query_encoder = config.dtype, None
        english = TextTokenizer(english_tokenizer, f"the English tokenizer of {name}").pieces
        source = [] if english_tokenizer is tokenizer.tokenizer else tokenizer.pieces
        self.vocabulary = Vocabulary(english, source, english_prefix)
        self.units = Units(len(tokenizer.pieces), np.empty(0, np.int64) if pairs is None else pairs)
        self.network = _TableRows(config, vectors, self.units, name, tokenizer)
        self.vectors = vectors

    @classmethod
    def build(
        cls,
        encoder: MilcoEncoder,
        output: str | os.PathLike,
        texts: Sequence[TextPair] = (),
        top_k: int = TOP_K,
        overwrite: bool = False,
    ) -> "QueryTable":
        """Encode every token of an encoder's tokenizer alone, train the table, write it to a directory, and return it.

        An interrupted run is resumed by the same call; a table that it has written already is returned.

        Args:
            encoder: of any kind, with one network for queries and documents.
            output: directory of the table.
            texts: texts to train with, each with the text that is encoded for it: its English translation, or itself.
                Without any, tokens keep what they have alone.
            top_k: the most pivot terms of a row, the strongest.
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
        config = SimpleNamespace(
            checkpoint=encoder.name,
            weight_hash=encoder.hashes["weight_hash"],
            top_k=top_k,
            training=checksum_bytes("\n".join(map("\t".join, texts)).encode()) if texts else None,
            token_limit=encoder.network.token_limit,
            encoder=SimpleNamespace(vocab_size=len(tokenizer.pieces), pad_token_id=encoder.config.encoder.pad_token_id),
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
        if not (parts / _PLAN).exists():
            write_json(parts / _PLAN, plan)
        vectors, pairs = _encode_tokens(encoder, top_k, parts), np.empty(0, np.int64)
        if texts:
            vectors, pairs = _train(encoder, vectors, texts, top_k, parts)
        # As they are stored: half a million rows would be twice as many megabytes in float32.
        vectors = replace(vectors, weights=vectors.weights.astype(np.float16).astype(np.float32))
        english = encoder.english_tokenizer, str(path), encoder.vocabulary.english_prefix
        table = cls(vectors, config, tokenizer, *english, pairs)
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
        """Raise MilcoError: rows of tokens do not represent a document."""
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
            "weights": self.vectors.weights.astype(np.float16),
            "pairs": self.units.pairs,
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
        weights = arrays["weights"].astype(np.float32)
        vectors = SparseBatch(arrays["indptr"], arrays["columns"], weights, config.english_vocab_size)
        # Tables of release 0.3 have no pairs.
        table = QueryTable(vectors, config, *tokenizers, checkpoint.name, options[-1], arrays.get("pairs"))
        _validate(table, directory)
    return table


class _TableRows(ViewEncoder):
    """The rows of a table, in place of a network."""

    encodes_documents = False

    def __init__(
        self, config: SimpleNamespace, vectors: SparseBatch, units: Units, name: str, tokenizer: TextTokenizer
    ) -> None:
        super().__init__(SimpleNamespace(config=config), name, tokenizer, vectors.english_size, "cpu", config.dtype)
        self._vectors, self._units = vectors, units

    def encode(
        self,
        rows: Sequence[Sequence[int]],
        views: Sequence[str],
        batch_size: int = BATCH_SIZE,
        names: Sequence[str] = (),
        report: Report | None = None,
    ) -> SparseBatch:
        """Return the pooled rows of each text's tokens and pairs. Arguments as for Network.encode()."""
        vectors = self._units.pool(self._vectors, rows)
        if tuple(views) != self.views:
            vectors = vectors.view(*views)
        if report:
            report(len(rows), sum(map(len, rows)))
        return self.limit_terms(vectors)


def _values(config: SimpleNamespace) -> dict[str, Any]:
    return {**vars(config), "model_type": QUERY_TABLE, "encoder": vars(config.encoder)}


def _is_table(path: Path) -> bool:
    return is_json_with(path / _CONFIG, "model_type") and read_json(path / _CONFIG)["model_type"] == QUERY_TABLE


def _encode_tokens(encoder: MilcoEncoder, top_k: int, parts: Path) -> SparseBatch:
    """Return the vector of every token alone, with its strongest pivot terms; special tokens have empty ones."""
    tokenizer = encoder.tokenizer
    before, after = tokenizer.num_special_tokens
    ids = tokenizer.tokenizer.encode("a").ids
    left, right = ids[:before], ids[len(ids) - after :]
    rows: list[list[int]] = [[*left, number, *right] for number in range(len(tokenizer.pieces))]
    for number in tokenizer.special_ids:
        rows[number] = []
    return _encode_in_parts(encoder, rows, top_k, parts, "tokens")


def _train(
    encoder: MilcoEncoder, alone: SparseBatch, texts: Sequence[TextPair], top_k: int, parts: Path
) -> tuple[SparseBatch, NDArray[np.int64]]:
    """Return trained rows, with the source terms of the tokens alone, and the pairs that have rows."""
    tokenizer, length = encoder.tokenizer, encoder.config.query_max_length
    encoded = {text: number for number, text in enumerate(dict.fromkeys(encoded for _, encoded in texts))}
    rows = [row.ids for row in tokenizer.tokenize(list(encoded), length)]
    vectors = _encode_in_parts(encoder, rows, _TEXT_TOP_K, parts, "texts")
    # A text that is encoded is trained with, too.
    pairs = list(dict.fromkeys([*texts, *((text, text) for text in encoded)]))
    before, after = tokenizer.num_special_tokens
    rows = [row.ids[before : len(row.ids) - after] for row in tokenizer.tokenize([text for text, _ in pairs], length)]
    vector_of = np.fromiter((encoded[text] for _, text in pairs), np.int64)
    units = Units.frequent(len(alone), rows, vector_of)
    log(f"Training with {counted(len(rows), 'text')}: {counted(len(units.pairs), 'pair')} of tokens have rows")
    fitted = fit_rows(units, rows, vectors, vector_of, alone.view(PIVOT), top_k)
    source = alone.view(SOURCE)
    unit_of = np.append(fitted.row_numbers(), source.row_numbers())
    columns, weights = np.append(fitted.columns, source.columns), np.append(fitted.weights, source.weights)
    return SparseBatch.from_maxima(unit_of, columns, weights, len(units), alone.english_size), units.pairs


def _encode_in_parts(encoder: MilcoEncoder, rows: list[list[int]], top_k: int, parts: Path, noun: str) -> SparseBatch:
    """Return the vectors of rows of token ids, with at most top_k pivot terms. Complete parts are kept."""
    vectors = []
    progress = Progress(noun, len(rows))
    for start in range(0, len(rows), _PART):
        file, part = parts / f"{noun}-{start // _PART:05}.npz", rows[start : start + _PART]
        if not file.exists():
            PruningRule("top-k", top_k, PIVOT)(encoder.network.encode(part, encoder.views)).save(file)
        vectors.append(SparseBatch.load(file))
        progress.add(len(part))
    progress.close("Encoded")
    return SparseBatch.concatenate(vectors, encoder.vocabulary.english_size)


def _validate(table: QueryTable, directory: Path) -> None:
    """Raise MilcoError unless the arrays of a table are vectors of its tokens."""
    indptr, columns, weights = table.vectors.indptr, table.vectors.columns, table.vectors.weights
    rows, pairs, terms = len(table.units), table.units.pairs, len(table.vocabulary)
    is_valid = (
        len(indptr) == rows + 1
        and bool((np.diff(pairs) > 0).all())
        and indptr[0] == 0
        and indptr[-1] == len(columns) == len(weights)
        and bool((np.diff(indptr) >= 0).all())
        and _within(columns, 0, terms - 1)
        and bool(np.isfinite(weights).all())
        and _within(weights, 0, np.inf)
    )
    if not is_valid:
        raise MilcoError(
            f"{directory / _WEIGHTS} does not hold {rows:,} rows of {terms:,} terms: make it again "
            "with milco encode query-table"
        )


def _within(values: NDArray[Any], lowest: float, highest: float) -> bool:
    return not len(values) or bool(lowest <= values.min() and values.max() <= highest)


def _card(config: SimpleNamespace) -> str:
    rows = "the vector that the encoder gives it alone"
    if getattr(config, "training", None):
        rows = "the mean of the encoder's vectors of texts with it, as have frequent pairs"
    return f"""---
library_name: milco_pyserini
pipeline_tag: feature-extraction
tags: [sparse-retrieval, multilingual, cross-lingual, milco, inference-free]
---

# Query table of {config.checkpoint}

Queries as the largest weights of their tokens' rows, without a network, for documents encoded by
{config.checkpoint}. Each of {config.encoder.vocab_size:,} tokens has {rows}, with at most {config.top_k} pivot terms.

```
milco search --index indexes/NAME.lucene --encoder PATH --query "Wer erfand das Telefon?"
```
"""
