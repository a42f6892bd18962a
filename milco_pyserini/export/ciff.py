"""CIFF, the Common Index File Format: one file of posting lists, for PISA, JASS, Terrier and others."""

import struct
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from milco_pyserini.export.protocol import ExportJob, ExportTarget, write_lines


class CiffTarget(ExportTarget):
    """A term frequency is an impact. All postings are held in memory, about 24 bytes each."""

    name = "ciff"
    title = "CIFF"

    def write(self, export: ExportJob, directory: Path) -> None:
        """Write index.ciff, and queries.jsonl: {"id", "vector": {term: impact}} on each line."""
        ids, lengths, totals = [], [], []
        columns, impacts = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
        for vector in self.documents(export):
            ids.append(vector.id)
            lengths.append(len(vector.terms))
            totals.append(sum(vector.impacts))
            columns.append(np.asarray(vector.columns, np.int32))
            impacts.append(np.asarray(vector.impacts, np.int32))
        postings = np.concatenate(columns), np.repeat(np.arange(len(ids)), lengths), np.concatenate(impacts)
        with (directory / "index.ciff").open("wb") as handle:
            lists = _lists(export.documents.terms, *postings)
            handle.write(message(_header(len(np.unique(postings[0])), len(ids), sum(totals))))
            handle.writelines(map(message, lists))
            for number, (docid, total) in enumerate(zip(ids, totals, strict=True)):
                handle.write(message(_number(1, number) + _text(2, docid) + _number(3, total)))
        if export.topics is not None:
            queries = ({"id": topic.id, "vector": topic.weights} for topic in export.topics)
            write_lines(directory / "queries.jsonl", queries)


def _header(terms: int, documents: int, total: int) -> bytes:
    counts = [1, terms, documents, terms, documents, total]
    fields = b"".join(_number(field, count) for field, count in enumerate(counts, 1))
    return fields + varint(7 << 3 | 1) + struct.pack("<d", total / max(documents, 1)) + _text(8, "milco_pyserini")


def _lists(terms: list[str], columns: np.ndarray, rows: np.ndarray, impacts: np.ndarray) -> Iterator[bytes]:
    """Yield a posting list for each term, in the order of the terms' bytes; docids are gaps from the one before."""
    order = np.lexsort((rows, columns))
    columns, rows, impacts = columns[order], rows[order], impacts[order]
    used, starts = np.unique(columns, return_index=True)
    gaps = np.diff(rows, prepend=0)
    gaps[starts] = rows[starts]
    spans = zip(used.tolist(), starts.tolist(), [*starts[1:].tolist(), len(columns)], strict=True)
    for column, start, stop in sorted(spans, key=lambda span: terms[span[0]].encode()):
        weights = impacts[start:stop].tolist()
        head = _text(1, terms[column]) + _number(2, stop - start) + _number(3, sum(weights))
        yield head + b"".join(map(_posting, gaps[start:stop].tolist(), weights))


# Protocol buffers: numbers are variable-length, a field begins with its number and type, zeros are left out.
@lru_cache(2**14)
def varint(value: int) -> bytes:
    """Return an integer in seven bits a byte, the lowest first; the highest bit of a byte is set if more follow."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


@lru_cache(2**17)
def _posting(gap: int, impact: int) -> bytes:
    return b"\x22" + message(_number(1, gap) + _number(2, impact))


def _number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value) if value else b""


def _text(field: int, value: str) -> bytes:
    return varint(field << 3 | 2) + message(value.encode())


def message(content: bytes) -> bytes:
    """Return bytes, with their number before them."""
    return varint(len(content)) + content
