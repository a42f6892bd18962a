"""Write a static search page: files that any web server serves, of an index and a query network.

The page adds up the integers that lucene adds up, so hits and scores are those of milco search with the network. Its
data are the network, and sorted maps in compressed chunks: embeddings by token, postings by term, documents by row. A
query reads only chunks with something of it.
"""

import gzip
import shutil
import sys
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from safetensors.numpy import save

from milco_pyserini import __version__
from milco_pyserini.console import Progress, counted, log
from milco_pyserini.encode.contract import MilcoQueryEncoder
from milco_pyserini.encode.query_network import QueryNetwork
from milco_pyserini.errors import MilcoError, ParameterError
from milco_pyserini.explain import render
from milco_pyserini.export.ciff import message, varint
from milco_pyserini.export.directory import FORMAT_VERSION, finished_export, is_export, write_manifest
from milco_pyserini.index.directory import Index
from milco_pyserini.index.documents import field_type, filter_text
from milco_pyserini.index.protocol import EngineSearcher, QueryOptions
from milco_pyserini.index.vectors import index_query_encoder
from milco_pyserini.io.files import atomic_directory, checksum_bytes, size_on_disk
from milco_pyserini.io.records import FilesRecord
from milco_pyserini.model.configuration import term_limit
from milco_pyserini.model.query_forward import EMBEDDINGS, WORDS, QueryForward
from milco_pyserini.request import SearchRequest
from milco_pyserini.sparse import VIEWS

SITE = Path(__file__).with_name("site")
TEMPLATES = Path(render.__file__).with_name("templates")
# A query would have to load too many bytes of more documents.
MAX_DOCUMENTS = 200_000
# Values of a field that filters: a byte is their number.
MAX_VALUES = 255
EXAMPLES = 12
# Bytes of a chunk before it is compressed, of embeddings, of postings, and of documents.
_WORDS, _POSTINGS, _TEXTS = 2**15, 2**17, 2**16
# The most terms or documents, and hits, that are read at a time.
_READ, _HITS = 1024, 10**6
# Version of the format of site.json, interface.json and the data, which page.js compares with its own.
_FORMAT = 3


class WebManifest(FilesRecord, frozen=True, kw_only=True):
    """A search page: the index and the network that it was made of, and its files. field: that filters."""

    format_version: int
    target: str
    index: str
    generation: str
    encoder: str
    network: str
    field: str | None
    title: str
    examples: list[str]
    milco_pyserini: str


def export_page(
    index: Index,
    encoder: QueryNetwork,
    output: Path,
    field: str | None = None,
    examples: Sequence[str] = (),
    overwrite: bool = False,
    title: str = "",
) -> WebManifest:
    """Write the page to the directory output, which exists only when it is complete.

    Args:
        index: of engine lucene, with stored documents that were encoded by the model of the network.
        encoder: of queries.
        field: stored field to filter by, with one value per document.
        examples: queries that the page offers.
        overwrite: replace an export at output.
        title: title of the page; "" for the name of the index.

    Raises:
        MilcoError: output exists, the index is too large, or the page cannot have such an index, encoder or field.
    """
    validate_index(index, field)
    queries = index_query_encoder(index.vectors, QueryOptions(encoder))
    tokenizer = _tokenizer(encoder)
    determining: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "target": "web",
        "index": index_name(index),
        "generation": index.generation,
        "encoder": encoder.documents.name,
        "network": encoder.config.query_network,
        "field": field,
        "title": title or index_name(index),
        "examples": list(examples),
        "milco_pyserini": __version__,
    }
    if (finished := finished_export(output, WebManifest, determining, overwrite)) is not None:
        return finished
    with index.searcher() as searcher:
        values = _values(searcher, field)
        with atomic_directory(output, overwrite, is_export) as directory:
            for file in SITE.iterdir():
                shutil.copyfile(file, directory / file.name)
            # The look of the page of milco serve.
            styles = [TEMPLATES / "page.css", TEMPLATES / "search.css", SITE / "page.css"]
            (directory / "page.css").write_bytes(b"".join(style.read_bytes() for style in styles))
            _write_json(directory / "interface.json", render.interfaces())
            data = directory / "data"
            data.mkdir()
            # Each file of data begins with its name, this version and a checksum: the page refuses those of others.
            # Addresses have it, too, so that a browser that keeps files never mixes those of two exports.
            version = checksum_bytes(orjson.dumps(determining))[:16]
            write = partial(_write, data, version)
            write("tokenizer", orjson.dumps(tokenizer))
            write("network", _network(encoder, queries.max_length))
            starts = {"words": _write_chunks(write, "words", _WORDS, _words(encoder.network.forward))}
            ids, starts["postings"] = _write_postings(write, searcher, encoder, queries)
            # 1 + the place of a document's value, 0 without one.
            numbers = np.zeros(len(ids), np.uint8)
            texts = _texts(searcher, ids, field, values, numbers)
            starts["texts"] = _write_chunks(write, "texts", _TEXTS, texts)
            write("values", numbers.tobytes())
            site = _query_options(queries) | {"version": version, "starts": starts}
            site |= {"name": determining["title"], "documents": len(ids), "bytes": size_on_disk(data)}
            site |= {"field": field, "values": values, "examples": list(examples)}
            site["counts"] = np.bincount(numbers, minlength=len(values) + 1)[1:].tolist()
            _write_json(directory / "site.json", site)
            manifest = write_manifest(directory, WebManifest, **determining)
    size = sum(file.bytes for file in manifest.files) / 1e6
    log(f"Exported {counted(len(ids), 'document')} as a search page into {output}: {size:,.1f} MB")
    return manifest


def index_name(index: Index) -> str:
    """Return the name of the directory of an index without that of its engine."""
    return index.path.resolve().name.removesuffix(f".{index.manifest.engine}")


def validate_index(index: Index, field: str | None = None) -> None:
    """Raise MilcoError unless a page can have an index, and it stores the field that filters."""
    engine, documents = index.manifest.engine, index.manifest.documents
    if engine != "lucene":
        fix = "Build it with milco index --engine lucene --store."
        raise ParameterError(
            "index", index.path, f"has the engine {engine}: a page adds up the integers of lucene", fix
        )
    if documents > MAX_DOCUMENTS:
        rule = f"has {documents:,} documents, a page at most {MAX_DOCUMENTS:,}"
        raise ParameterError("index", index.path, rule, "Serve it with milco serve.")
    if index.manifest.fields is None:
        raise ParameterError("index", index.path, "stores no texts", "Build it again with milco index --store.")
    if index.vectors.split_passages:
        raise ParameterError("index", index.path, "holds passages: a page shows documents of one vector")
    if field is not None:
        field_type(field, index.manifest.fields, index.path)


def _tokenizer(encoder: QueryNetwork) -> dict[str, Any]:
    """Return what the page tokenizes with. Raises MilcoError for a tokenizer of another kind."""
    given = orjson.loads(encoder.tokenizer.tokenizer.to_str())
    model, before = given["model"], given["pre_tokenizer"] or {}
    normalizers = list(map(_normalizer, (given["normalizer"] or {}).get("normalizers", [given["normalizer"]])))
    known = {
        "model": (model, model["type"] == "Unigram" and not model.get("byte_fallback")),
        "pre-tokenizer": (before, before.get("type") == "Metaspace" and before["split"]),
        "normalizer": (given["normalizer"] or {}, None not in normalizers),
    }
    for part, (about, is_known) in known.items():
        if not is_known:
            kind = about.get("type")
            raise MilcoError(f"the tokenizer of {encoder.name} has the {part} {kind}, which the page does not have")
    ids = encoder.tokenizer.tokenizer.encode("a").ids
    left, right = encoder.tokenizer.num_special_tokens
    return {
        "normalizers": normalizers,
        "unchanged": _unchanged(encoder.tokenizer.tokenizer.normalizer),
        # Faster to read than lists. No text has a line feed, which the normalizer replaces.
        "pieces": "\n".join(piece.replace("\n", " ") for piece, _ in model["vocab"]),
        "scores": "\n".join(str(score) for _, score in model["vocab"]),
        "unknown": model["unk_id"],
        "prepend": before["prepend_scheme"],
        "added": [[one["content"], one["id"], one["lstrip"], one["rstrip"]] for one in given["added_tokens"]],
        "before": ids[:left],
        "after": ids[len(ids) - right :],
    }


def _normalizer(given: dict[str, Any]) -> list[Any] | None:
    """Return the kind of a normalizer and its argument, as the page has it; None if it has none of the kind."""
    kind = given["type"]
    if kind in ("Nmt", "NFKC"):
        return [kind, None]
    if kind == "Precompiled":
        return [kind, given["precompiled_charsmap"]]
    if kind == "Strip" and given["strip_right"] and not given["strip_left"]:
        return [kind, None]
    return [kind, given["content"]] if kind == "Replace" and given["pattern"] == {"Regex": " {2,}"} else None


def _unchanged(normalizer: Any) -> str:
    """Return ranges of characters of newer versions of Unicode, which browsers would normalize: FROM TO FROM TO ..."""
    ranges: list[str] = []
    last = ""
    for char in map(chr, range(sys.maxunicode + 1)):
        is_newer = unicodedata.category(char) == "Cn"
        is_newer |= unicodedata.normalize("NFKC", char) != char and normalizer.normalize_str(char) == char
        # Marks are sorted by their classes.
        is_newer |= unicodedata.combining(char) > 1 and normalizer.normalize_str(f"{char}\u0334").startswith(char)
        if not is_newer:
            continue
        if last and ord(char) == ord(last) + 1:
            ranges[-1] = char
        else:
            ranges += [char, char]
        last = char
    return "".join(ranges)


def _query_options(queries: MilcoQueryEncoder) -> dict[str, Any]:
    """Return lengths and limits of queries, and sizes of the network."""
    config, forward = queries.encoder.config, queries.encoder.network.forward
    words, scale = forward.documents[WORDS], forward.documents.get(f"{WORDS}_scale")
    return {
        "length": queries.max_length,
        "lowercase": queries.lowercase,
        "capitals": bool(getattr(config, "lowercase_capitals", False)),
        "scale": queries.scale,
        "english": queries.encoder.vocabulary.english_size,
        "limits": [term_limit(config, view, is_query=True) if view in queries.views else 0 for view in VIEWS],
        "pool": config.source_pool,
        "network": {name: getattr(forward, name) for name in ("heads", "eps", "padding", "layers")},
        # Bytes of the values of an embedding and of its scales, and their types.
        "words": [[a.nbytes // len(a), a.dtype.str[1:]] for a in (words, scale) if a is not None],
        "encoder": config.checkpoint,
    }


def _network(encoder: QueryNetwork, length: int) -> bytes:
    """Return what the page computes with but embeddings, as a safetensors file, with the decoder's possible terms."""
    forward = encoder.network.forward
    tensors = {name: tensor for name, tensor in forward.documents.items() if name.startswith(EMBEDDINGS)}
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(WORDS)}
    positions = f"{EMBEDDINGS}position_embeddings.weight"
    tensors[positions] = tensors[positions][: length + forward.padding + 1]
    own = {name: tensor for name, tensor in forward.documents.items() if name.startswith("decoder.")}
    tensors |= {name: tensor[forward.columns] for name, tensor in own.items()} | dict(forward.own)
    tensors |= {"columns": forward.columns, "echo": encoder.network.echo}
    return save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()})


def _words(forward: QueryForward) -> Iterator[tuple[int, bytes]]:
    """Yield token and embedding as it is stored: the bytes of its values, then of its scales."""
    stored = [forward.documents[name] for name in (WORDS, f"{WORDS}_scale") if name in forward.documents]
    for token, parts in enumerate(zip(*stored, strict=True)):
        yield token, b"".join(part.tobytes() for part in parts)


def _write_postings(
    write: Callable[[str, bytes], None], searcher: EngineSearcher, encoder: QueryNetwork, queries: MilcoQueryEncoder
) -> tuple[list[str], list[int]]:
    """Write the postings of all terms that queries may have; return the docids in their order, and the chunks."""
    vocabulary = encoder.vocabulary
    source = vocabulary.english_size + np.flatnonzero(encoder.network.echo > 0)
    columns = np.concatenate(
        [
            own
            for view, own in zip(VIEWS, (encoder.network.forward.columns, source), strict=True)
            if view in queries.views
        ]
    )
    numbers: dict[str, int] = {}
    found: list[tuple[int, NDArray[np.int32], NDArray[np.int32]]] = []
    progress, size = Progress("terms", len(columns)), max(1, min(_READ, _HITS // searcher.num_documents))
    for start in range(0, len(columns), size):
        some = columns[start : start + size].tolist()
        # The score of a document for one term with impact 1 is the term's impact.
        terms = [{vocabulary.terms[column]: 1 / queries.scale} for column in some]
        rankings = searcher.rank(terms, SearchRequest(searcher.num_documents))
        for column, hits in zip(some, rankings, strict=True):
            own = [numbers.setdefault(docid, len(numbers)) for docid in hits.docids]
            found += [(column, np.asarray(own, np.int32), hits.scores.astype(np.int32))] if own else []
        progress.add(len(some))
    progress.close("Read postings")
    ids = sorted(numbers)
    rows = np.argsort([numbers[docid] for docid in ids])

    def postings() -> Iterator[tuple[int, bytes]]:
        for column, own, impacts in found:
            order = np.argsort(rows[own])
            gaps = np.diff(rows[own][order], prepend=0)
            name = vocabulary.text(vocabulary.terms[column]).encode()
            pairs = np.stack([gaps, impacts[order]], axis=1).ravel().tolist()
            yield column, message(name) + b"".join(map(varint, pairs))

    return ids, _write_chunks(write, "postings", _POSTINGS, postings())


def _texts(
    searcher: EngineSearcher, ids: Sequence[str], field: str | None, values: Sequence[str], numbers: NDArray[np.uint8]
) -> Iterator[tuple[int, bytes]]:
    """Yield row and text of each document; note the number of its value."""
    for start in range(0, len(ids), _READ):
        found = searcher.documents(ids[start : start + _READ])
        for row, docid in enumerate(ids[start : start + _READ], start):
            document = found[docid]
            value = filter_text(document.fields[field]) if field is not None and field in document.fields else ""
            numbers[row] = 1 + values.index(value) if value in values else 0
            shown = {"id": docid, "title": document.title, "text": document.text, "value": value}
            yield row, orjson.dumps(shown)


def _values(searcher: EngineSearcher, field: str | None) -> list[str]:
    """Return the values of the field that filters, except an empty one. Raises MilcoError unless they are few."""
    if field is None:
        return []
    counts, kind = searcher.values(field), (searcher.fields or {})[field]
    listed = None if counts is None or len(counts) > MAX_VALUES else sorted(filter(None, counts))
    if listed is None or kind not in ("string", "boolean", "number", "date"):
        many = f"over {MAX_VALUES}" if listed is None else len(listed)
        rule = f"has {many} different values of type {kind}: a page filters by one of up to {MAX_VALUES} values"
        raise ParameterError("field", field, rule)
    return listed


def _write_chunks(
    write: Callable[[str, bytes], None], name: str, size: int, records: Iterable[tuple[int, bytes]]
) -> list[int]:
    """Write a sorted map of keys to bytes in files NAME-0, NAME-1, ... of about size bytes; return their first keys.

    A record is the gap to the key before, the number of its bytes, and these.
    """
    starts: list[int] = []
    chunk, last = bytearray(), 0
    for key, content in records:
        if chunk and len(chunk) + len(content) > size:
            write(f"{name}-{len(starts) - 1}", bytes(chunk))
            chunk.clear()
        if not chunk:
            starts.append(key)
            last = key
        chunk += varint(key - last) + message(content)
        last = key
    if chunk:
        write(f"{name}-{len(starts) - 1}", bytes(chunk))
    return starts


def _write(data: Path, version: str, name: str, content: bytes) -> None:
    # No ending: a server would state that .gz is an encoding, and browsers would unpack it.
    head = f"{name} {version} {zlib.crc32(content):08x}\n"
    (data / name).write_bytes(gzip.compress(head.encode() + content, mtime=0))


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object that begins with the checksum of its file's name, the format and the rest."""
    rest = orjson.dumps(content)[1:]
    checksum = zlib.crc32(f"{path.name} {_FORMAT} ".encode() + rest)
    path.write_bytes(f'{{"checksum":{checksum},"format":{_FORMAT},'.encode() + rest)
