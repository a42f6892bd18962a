"""Vector stores: a directory of parts with a manifest that describes them.

Parts, in parts/, are JSONL as Anserini's JsonVectorCollection reads it, or Parquet with float weights; manifest.json is
written last, so a store without it is not finished. PlainStore reads external vectors.
"""

import io
import itertools
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import orjson

from milco_pyserini.console import counted
from milco_pyserini.errors import Message, MilcoError, ParameterError, require_package, shown
from milco_pyserini.io.files import checksum_bytes, is_json_with, read_json, visible_files
from milco_pyserini.io.lines import lines_of, numbered_lines
from milco_pyserini.io.manifest import (
    MANIFEST,
    OTHER_CONTENT,
    DamagedError,
    read_checked,
    read_record,
    validate_documents,
    validate_files,
    validate_size,
)
from milco_pyserini.io.records import FileRecord, StoreManifest, VocabularyRecord
from milco_pyserini.options import validate_number
from milco_pyserini.sparse.batch import SparseBatch, row_pointers, validate_finite
from milco_pyserini.sparse.json_vectors import json_vectors
from milco_pyserini.sparse.quantization import MAX_IMPACT, quantize, quantize_vector, quantized_vectors, validate_scale
from milco_pyserini.sparse.terms import lucene_term
from milco_pyserini.sparse.vocabulary import Vocabulary

FORMAT_VERSION = 1
VOCABULARY = "vocabulary.json"
# Parts have their own directory, so that Anserini can read it without meeting other files.
PARTS = "parts"
# The digests of the texts of each part, by which another store reuses their vectors.
DIGESTS = "digests"
PART_FORMATS = ("jsonl", "parquet")
_FIX = "Run the same encode command again: it replaces damaged parts"
_PLAIN_BATCH = 1024
# External vectors have no known source terms.
_ONE_VIEW = 2**31 - 1
# The beginning of the last field of a JSONL part's lines.
_VECTOR = b',"vector":'


@dataclass(frozen=True, repr=False)
class VectorStore:
    """A finished vector store: documents as {term: impact}, or as batches of float weights.

    >>> from milco_pyserini import VectorStore
    >>> store = VectorStore.open("vectors/sample")  # doctest: +SKIP
    >>> ids, vectors = store.load()  # doctest: +SKIP

    shard: (number, number of shards): only the parts of this shard are read; by default all.
    """

    path: Path
    manifest: StoreManifest
    shard: tuple[int, int] = (0, 1)

    def __len__(self) -> int:
        return self.manifest.documents

    def take_shard(self, shard_id: int, shard_num: int) -> Self:
        """Return the store with only the vectors of one of shard_num shards, its manifest unchanged.

        Raises MilcoError if it has fewer parts.
        """
        if (count := len(self.manifest.parts)) < shard_num:
            rule = f"{self.path} has {counted(count, 'part')}, and each shard needs one"
            fix = "Use fewer shards, or smaller parts (milco encode --part-size)."
            raise ParameterError("shard_num", shard_num, rule, fix)
        return replace(self, shard=(shard_id, shard_num))

    def read_parts(self) -> Iterator[tuple[Path, bytes]]:
        """Yield file and content of each part, in order.

        Raises DamagedError if a part is missing or has another size, before the first is read, or has another checksum
        than the manifest states.
        """
        parts = self.manifest.parts[shard_span(len(self.manifest.parts), *self.shard)]
        for part in parts:
            validate_size(self.path, part)
        for part in parts:
            yield self.path / part.file, read_part(self.path, part)

    @classmethod
    def open(cls, path: str | os.PathLike) -> "VectorStore":
        """Open the vectors that milco encode wrote to path. Raises MilcoError as open_manifest() does."""
        return cls(Path(path), open_manifest(path))

    def __repr__(self) -> str:
        documents = counted(len(self), "document")
        return f"VectorStore({str(self.path)!r}, {documents}, encoder={self.manifest.encoder or None!r})"

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The terms of the columns. Raises DamagedError if the file is not what was written."""
        return read_vocabulary(self.path, self.manifest.files)

    @property
    def terms(self) -> list[str]:
        """Term of each column."""
        return self.vocabulary.terms.tolist()

    def get(self, docid: str) -> SparseBatch | None:
        """Return a document's float weights as a batch of one vector; None if the store lacks the document.

        Cost: up to one pass over the store, at the speed of the disk for JSONL, whose other lines are not parsed.
        """
        prefix = b'{"id":' + orjson.dumps(docid) + b","
        for part in self.manifest.parts:
            path = self.path / part.file
            if path.suffix == ".parquet":
                rows = _parquet(path).read_table(path, filters=[("id", "=", docid)])
                if len(rows):
                    columns, weights = (
                        rows.column(name).combine_chunks().flatten().to_numpy() for name in ("columns", "weights")
                    )
                    indptr = np.array([0, len(columns)], np.int64)
                    return SparseBatch(indptr, columns, weights, self.vocabulary.english_size, self.vocabulary)
                continue
            with path.open("rb") as lines:
                line = next((line for line in enumerate(lines, 1) if line[1].startswith(prefix)), None)
            if line is not None:
                return self._batch(path, self._vectors(path, [line]))[1]
        return None

    def vectors(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield every document's id and {term: impact}; impacts are >= 1."""
        for path, content in self.read_parts():
            if path.suffix == ".parquet":
                for ids, batch in read_parquet(path, content, self.vocabulary):
                    vectors = quantized_vectors(batch, self.manifest.scale, self.vocabulary.terms)
                    yield from zip(ids, vectors, strict=True)
            else:
                yield from self._vectors(path, lines_of(io.BytesIO(content), str(path)))

    def batches(self) -> Iterator[tuple[list[str], SparseBatch]]:
        """Yield document ids and float weights, part by part; from JSONL, weight = impact / scale."""
        for path, content in self.read_parts():
            if path.suffix == ".parquet":
                yield from read_parquet(path, content, self.vocabulary)
            else:
                yield self._batch(path, self._vectors(path, lines_of(io.BytesIO(content), str(path))))

    def _vectors(self, path: Path, lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield id and {term: impact} of lines of a JSONL part. Raises MilcoError for one that cannot be in a part."""
        for where, record in read_jsonl(path, lines):
            docid, vector = record["id"], record["vector"]
            impacts = vector.values()
            try:
                # The sum is an int only if all impacts are, and takes less time than a test of each.
                is_valid = isinstance(docid, str) and type(sum(impacts)) is int and min(impacts, default=1) >= 1
            except TypeError:
                is_valid = False
            if not is_valid:
                raise MilcoError(f"{where}: expected an id that is a string, and integers of at least 1. {_FIX}")
            yield docid, vector

    def _batch(self, path: Path, vectors: Iterable[tuple[str, dict[str, Any]]]) -> tuple[list[str], SparseBatch]:
        """Return ids and float weights of vectors of a JSONL part."""
        parsed = list(vectors)
        try:
            batch = SparseBatch.from_dicts([vector for _, vector in parsed], self.vocabulary)
        except KeyError as error:
            raise MilcoError(f"{path}: term {error} is not in {VOCABULARY}. {_FIX}") from None
        return [docid for docid, _ in parsed], replace(batch, weights=batch.weights / np.float32(self.manifest.scale))

    def documents(self) -> Iterator[bytes]:
        """Yield the JSON object next to every vector, in their order: id, title, contents and fields of a document.

        A further passage of a document has the id of the first, as passage. A store without documents has only ids, or
        nothing (Parquet).
        """
        for path, content in self.read_parts():
            if path.suffix == ".parquet":
                yield from read_parquet_documents(path, content)
            else:
                for line in content.splitlines():
                    # No string in JSON contains an unescaped quote, so the first place is that of the field.
                    head, vector, _ = line.partition(_VECTOR)
                    if not vector:
                        raise MilcoError(f"{path}: a line has no vector. {_FIX}")
                    yield head + b"}"

    def load(self) -> tuple[list[str], SparseBatch]:
        """Return all document ids and their vectors, float weights, in memory."""
        batches = list(self.batches())
        vectors = SparseBatch.concatenate((batch for _, batch in batches), self.vocabulary.english_size)
        return [name for ids, _ in batches for name in ids], replace(vectors, vocabulary=self.vocabulary)


class PlainStore:
    """External vectors in Anserini's JSONL: {"id", "contents", "vector": {term: weight}} on each line.

    Raises MilcoError, with file and line, for weights that are not integers with scale 1, or do not fit an impact.

    Args:
        path: a file, or a directory that is searched for JSONL files.
        scale: impact = round(weight x scale).
    """

    def __init__(self, path: Path, scale: float = 1.0) -> None:
        validate_scale(scale)
        self.path = path
        self.scale = scale
        # The scale is the only field that external vectors have.
        self.manifest = StoreManifest(format_version=FORMAT_VERSION, plain=True, encoder=None, scale=scale)
        self._columns: dict[str, int] = {}
        # Term in the file of each term that was escaped.
        self._spellings: dict[str, str] = {}

    @cached_property
    def files(self) -> list[Path]:
        """The JSONL files, in sorted order. Raises MilcoError if there is none."""
        endings = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
        everything = visible_files(self.path) if self.path.is_dir() else [self.path]
        files = [path for path in everything if path.is_file() and path.name.endswith(endings)]
        if not files:
            raise MilcoError(f"{self.path} holds no vectors: expected files ending in {', '.join(endings)}")
        return files

    def get(self, docid: str) -> dict[str, int] | None:
        """Return a document's {term: impact}; None if there is no such document. Cost: up to one pass."""
        return next((vector for name, vector in self.vectors() if name == docid), None)

    def vectors(self) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield every document's id and {term: impact}, without impacts of 0, as in Anserini.

        A term that Lucene would split or truncate is escaped.
        """
        for path in self.files:
            for where, record in read_jsonl(path, numbered_lines(path)):
                yield _docid(record["id"], where), self._impacts(record["vector"], where)

    def documents(self) -> Iterator[bytes]:
        """Yield the JSON object of every document without its vector, in their order."""
        for path in self.files:
            for where, record in read_jsonl(path, numbered_lines(path)):
                del record["vector"]
                yield orjson.dumps(record | {"id": _docid(record["id"], where)})

    def batches(self) -> Iterator[tuple[list[str], SparseBatch]]:
        """Yield document ids and weights (impact / scale), as one view over the terms so far, see terms."""
        columns = self._columns
        documents = self.vectors()
        while group := list(itertools.islice(documents, _PLAIN_BATCH)):
            names, vectors = zip(*group, strict=True)
            for vector in vectors:
                for term in vector:
                    columns.setdefault(term, len(columns))
            batch = SparseBatch.from_columns(vectors, columns, _ONE_VIEW)
            yield list(names), replace(batch, weights=batch.weights / np.float32(self.scale))

    @property
    def terms(self) -> list[str]:
        """Term of each column that batches() has yielded so far."""
        return list(self._columns)

    def _impacts(self, vector: dict, where: str) -> dict[str, int]:
        for term, weight in vector.items():
            why = self._refusal(weight)
            if why:
                raise MilcoError(f"{where}: weight {_shown(weight)} of term {shown(term)} " + why)
        # Integers may have more digits than float32 keeps.
        rounded = quantize_vector(vector, self.scale) if self.scale != 1 else {t: round(w) for t, w in vector.items()}
        return {lucene_term(term, self._spellings, where): impact for term, impact in rounded.items() if impact > 0}

    def _refusal(self, weight: Any) -> str:
        """Return the reason why a weight cannot be in an impact index; "" if it can."""
        if not isinstance(weight, int | float) or isinstance(weight, bool) or not math.isfinite(weight):
            return "is not a number"
        if weight < 0:
            return "is below 0, which an impact index cannot hold: omit such terms"
        if weight > MAX_IMPACT / self.scale:
            return f"x scale {self.scale:g} is above {MAX_IMPACT:,}, the maximum impact"
        if self.scale == 1 and weight != int(weight):
            return Message("is not an integer, which an impact index needs: give a scale, such as {scale}", scale=100)
        return ""


def open_store(path: str | os.PathLike, plain: bool = False, scale: float = 1.0) -> VectorStore | PlainStore:
    """Open the sparse vectors at path, as VectorStore.open() does. plain: they are external, with weights x scale."""
    path = Path(path)
    if plain and path.exists():
        if is_json_with(path / MANIFEST, "format_version", "parts"):
            rule = f"is for external vectors, and {path} is a vector store of milco encode"
            raise ParameterError("plain", None, rule, "Omit it.")
        return PlainStore(path, scale)
    return VectorStore.open(path)


def open_manifest(path: str | os.PathLike) -> StoreManifest:
    """Return the manifest of the vector store at path.

    Raises MilcoError if it does not exist, is not finished, has another format version, or holds dense vectors.
    """
    path = Path(path)
    if not path.exists():
        raise MilcoError(
            f"no vectors at {path}: make them with milco encode --corpus CORPUS (or --topics TOPICS) --output {path}"
        )
    if path.is_file():
        raise MilcoError(
            f"{path} is a file, not a directory of vectors: make them of texts with milco encode --corpus {path} (or "
            "--topics), or index external vectors as they are (milco index --plain)"
        )
    manifest_path = path / MANIFEST
    if not manifest_path.is_file():
        raise MilcoError(
            f"{path} has no {MANIFEST}: it is not finished (run the same encode command again, it resumes), "
            "or holds external vectors (milco index --plain)"
        )
    content = read_checked(manifest_path)
    version = content.get("format_version")
    if version != FORMAT_VERSION:
        raise MilcoError(f"{path} has format version {version}, not {FORMAT_VERSION}: encode it again")
    if "parts" not in content:
        raise MilcoError(f"{path} is not a vector store (its {MANIFEST} names no parts): give what milco encode wrote")
    if "dense" in content:
        raise MilcoError(f"{path} holds dense vectors, which only version 0.3 reads: encode sparse ones")
    manifest = read_record(content, StoreManifest, path)
    validate_documents(path, manifest)
    return manifest


def validate_shard_id(shard_id: int, shard_num: int) -> None:
    """Raise MilcoError unless shard_id is from 0 to shard_num - 1."""
    validate_number("shard_id", shard_id, 0, shard_num - 1)


def shard_span(parts: int, shard_id: int, shard_num: int) -> slice:
    """Return which of the parts of a store are those of a shard: a run of about as many as in any other."""
    return slice(parts * shard_id // shard_num, parts * (shard_id + 1) // shard_num)


def read_vocabulary(directory: Path, files: Iterable[FileRecord]) -> Vocabulary:
    """Read the terms of the columns. Raises DamagedError if a listed file of the directory is not what was written."""
    validate_files(directory, files, content=sys.maxsize)
    value = read_json(directory / VOCABULARY)
    return Vocabulary(**read_record(value, VocabularyRecord, directory, VOCABULARY).to_json())


def read_part(path: Path, part: FileRecord) -> bytes:
    """Return the content of a part, or of its digests, of the store at path.

    part: its path, size and checksum in the manifest. Raises DamagedError if the file is not what the manifest states.
    """
    validate_size(path, part)
    content = (path / part.file).read_bytes()
    if checksum_bytes(content) != part.checksum:
        raise DamagedError(path, part.file, OTHER_CONTENT)
    return content


def write_jsonl(
    handle: IO[bytes],
    ids: Sequence[str],
    batch: SparseBatch,
    vocabulary: Vocabulary,
    scale: float,
    records: Sequence[bytes] | None = None,
) -> SparseBatch:
    """Write one part as JSONL, quantized; return the vectors without the entries that round to 0.

    records: the JSON object to store next to each vector, with its id (default: without contents).
    """
    kept, impacts = quantize(batch, scale)
    vectors = json_vectors(kept.indptr, kept.columns, impacts, vocabulary.terms, vocabulary.json_keys)
    write_vectors(handle, ids, (b"%b%b}\n" % (_VECTOR, vector) for vector in vectors), records)
    return kept


def split_jsonl(content: bytes) -> list[bytes]:
    """Return the lines of a JSONL part from the vector on, for write_vectors()."""
    return [line[line.index(_VECTOR) :] for line in content.splitlines(keepends=True)]


def write_vectors(
    handle: IO[bytes], ids: Sequence[str], vectors: Iterable[bytes], records: Sequence[bytes] | None = None
) -> None:
    """Write vectors, such as split_jsonl() returned with other ids and records, as write_jsonl() does."""
    if records is None:
        records = [orjson.dumps({"id": docid, "contents": ""}) for docid in ids]
    for record, vector in zip(records, vectors, strict=True):
        handle.write(record[:-1] + vector)


def write_parquet(
    handle: IO[bytes], ids: Sequence[str], batch: SparseBatch, records: Sequence[bytes] | None = None
) -> None:
    """Write one part as Parquet: id string, columns list<int32>, weights list<float32>.

    records: the JSON object to store next to each vector: document string.
    """
    import pyarrow as pa
    from pyarrow import parquet

    offsets = pa.array(batch.indptr, pa.int64())
    table = pa.table(
        {
            "id": pa.array(ids, pa.string()),
            "columns": pa.LargeListArray.from_arrays(offsets, pa.array(batch.columns)),
            "weights": pa.LargeListArray.from_arrays(offsets, pa.array(batch.weights)),
            **({} if records is None else {"document": pa.array(records, pa.binary()).cast(pa.string())}),
        }
    )
    parquet.write_table(table, handle, compression="zstd", write_page_checksum=True)


def read_parquet(path: Path, content: bytes, vocabulary: Vocabulary) -> Iterator[tuple[list[str], SparseBatch]]:
    """Yield ids and vectors of a Parquet part in groups of rows. Raises MilcoError if they cannot be read."""
    parquet = _parquet(path)
    from pyarrow import ArrowException, BufferReader

    try:
        file = parquet.ParquetFile(BufferReader(content), page_checksum_verification=True)
        for group in file.iter_batches(columns=["id", "columns", "weights"]):
            ids, columns = group.column("id").to_pylist(), group.column("columns")
            indptr = row_pointers(columns.value_lengths().to_numpy())
            numbers, values = columns.flatten().to_numpy(), group.column("weights").flatten().to_numpy()
            if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(vocabulary):
                raise MilcoError(f"{path} has columns beyond the {len(vocabulary):,} terms of {VOCABULARY}. {_FIX}")
            validate_finite(values, indptr, f"the encoder of {path}", ids.__getitem__)
            yield ids, SparseBatch(indptr, numbers, values, vocabulary.english_size, vocabulary)
    except (ArrowException, OSError) as error:
        raise MilcoError(f"{path} cannot be read: {error}") from error


def read_parquet_documents(path: Path, content: bytes) -> Iterator[bytes]:
    """Yield the documents of a Parquet part; none of one that version 0.4 wrote."""
    parquet = _parquet(path)
    from pyarrow import BufferReader

    for group in parquet.ParquetFile(BufferReader(content)).iter_batches(columns=["document"]):
        for document in group.column("document") if group.num_columns else ():
            yield document.as_py().encode()


def _parquet(path: Path) -> Any:
    """Return pyarrow.parquet. Raises MilcoError, which names the file to read, if it is not installed."""
    require_package("pyarrow", "parquet", str(path))
    from pyarrow import parquet

    return parquet


def read_jsonl(path: Path, lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (file:line, object with id and vector) for every line of a file."""
    for number, line in lines:
        where = f"{path}:{number}"
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise MilcoError(f"{where}: not JSON: {error}") from None
        if not isinstance(record, dict) or "id" not in record or not isinstance(record.get("vector"), dict):
            raise MilcoError(f'{where}: expected {{"id": ..., "vector": {{term: weight}}}}')
        yield where, record


def _shown(value: object) -> str:
    return shown(value) if isinstance(value, str) else f"{value!s:.60}"


def _docid(value: object, where: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        raise MilcoError(f"{where}: the id is {_shown(value)}, where a string or an integer is needed")
    return value
