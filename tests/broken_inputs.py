"""Invalid corpora, topics, qrels and runs: each must be rejected in one line that names it."""

import gzip
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

KINDS = ("corpus", "topics", "qrels", "run")


@dataclass(frozen=True)
class InvalidInput:
    """An input that must be rejected; content: of a file, of the files of a directory, or the target of a link."""

    kind: str
    name: str
    content: bytes | Mapping[str, bytes] | Path

    def write(self, directory: Path) -> Path:
        """Write the input and return its path."""
        path = directory / self.name
        if isinstance(self.content, bytes):
            path.write_bytes(self.content)
        elif isinstance(self.content, Path):
            if self.content.name == "pipe":
                os.mkfifo(path)
            else:
                path.symlink_to(self.content)
        else:
            for name, content in self.content.items():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                (path / name).write_bytes(content)
        return path


_IDS: tuple[bytes, ...] = (
    b"null",
    b"true",
    b"1.5",
    b"[1]",
    b"{}",
    b'""',
    b'" "',
    b'"a b"',
    b'"a\\n"',
    b'"a\\u2003b"',
    b"1e400",
    b"NaN",
    b'"' + b"x" * 40_000 + b'"',
    b'"\\ud800"',
)
_GOOD = {
    "corpus": b'{"id": "good", "text": "a river"}',
    "topics": b'{"id": "good", "text": "a river"}',
    "vectors": b'{"id": "good", "vector": {"the": 3}}',
}
_JSON = {
    "garbage": b"garbage",
    "truncated": b'{"id": "x", "text": ',
    "list": b"[1, 2]",
    "number": b"7",
    "no id": b'{"text": "y"}',
    "no text": b'{"id": "x"}',
    "text null": b'{"id": "x", "text": null}',
    "text number": b'{"id": "x", "text": 3}',
    "text list": b'{"id": "x", "text": ["a"]}',
    "Latin-1": b'{"id": "x", "text": "caf\xe9"}',
    "UTF-16": '{"id": "x", "text": "y"}'.encode("utf-16"),
    "lone surrogate": b'{"id": "x", "text": "\\ud800"}',
    "two objects": b'{"id": "x", "text": "y"} {"id": "z", "text": "y"}',
    "NUL": b"\0\0\0\0",
    "deep": b'{"id": "x", "text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "again": b'{"id": "good", "text": "another"}',
}
_VECTORS = {
    "no vector": b'{"id": "x"}',
    "vector list": b'{"id": "x", "vector": [1]}',
    "weight true": b'{"id": "x", "vector": {"a": true}}',
    "weight text": b'{"id": "x", "vector": {"a": "1"}}',
    "weight null": b'{"id": "x", "vector": {"a": null}}',
    "weight NaN": b'{"id": "x", "vector": {"a": NaN}}',
    "weight 1e400": b'{"id": "x", "vector": {"a": 1e400}}',
    "again": b'{"id": "good", "vector": {"a": 1}}',
}
_TSV = {
    "one column": b"x",
    "four columns": b"x\ty\tz\tw",
    "no id": b"\ty",
    "id with space": b"a b\ty",
    "not UTF-8": b"x\t\xff",
    "CR line ends": b"b\tx\rc\ty\r",
    "again": b"good\tanother",
}
_TREC = {
    "no num": b"<top>\n<title> a\n</top>",
    "no title": b"<top>\n<num> 1\n</top>",
    "num empty": b"<top>\n<num>\n<title> a\n</top>",
    "num with space": b"<top>\n<num> 1 2\n<title> a\n</top>",
    "not closed": b"<top>\n<num> 1\n<title> a\n",
    "CR line ends": b"<top>\r<num> 1\r<title> a\r</top>\r<top>\r<num> 2\r<title> b\r</top>\r",
}
_QRELS = {
    "two columns": b"q0 d1",
    "five columns": b"q0 0 d1 1 x",
    "fraction": b"q0 0 d1 1.0",
    "word": b"q0 0 d1 yes",
    "underscore": b"q0 0 d1 1_0",
    "grade 10^9": b"q0 0 d1 1000000000",
    "grade -10^9": b"q0 0 d1 -1000000000",
    "grade 10^30": b"q0 0 d1 1" + b"0" * 30,
    "5,000 digits": b"q0 0 d1 " + b"9" * 5000,
    "two grades": b"q0 0 d0 0",
    "not UTF-8": b"q0 0 \xff 1",
}
_RUNS = {
    "five columns": b"q0 Q0 d1 2 1",
    "seven columns": b"q0 Q0 d1 2 1 t x",
    "score underscore": b"q0 Q0 d1 2 1_000 t",
    "score word": b"q0 Q0 d1 2 high t",
    "score NaN": b"q0 Q0 d1 2 nan t",
    "score infinite": b"q0 Q0 d1 2 -inf t",
    "score 1e39": b"q0 Q0 d1 2 1e39 t",
    "not UTF-8": b"q0 Q0 \xff 2 1 t",
    "again": b"q0 Q0 d0 2 1 t",
    "CR line ends": b"q0 Q0 d1 2 1 t\rq0 Q0 d2 3 .5 t\r",
}


def invalid_inputs() -> Iterator[InvalidInput]:
    """Yield all invalid inputs in a fixed order."""
    for kind in ("corpus", "topics"):
        good, lines = (
            _GOOD[kind] + b"\n",
            {f"id {value[:20].decode()}": _id_line(value, b"text", b'"y"') for value in _IDS},
        )
        yield from _files(kind, "jsonl", good, _JSON | lines)
        yield from _files(kind, "tsv", b"good\ta river\n", _TSV)
        yield from _packed(kind, "jsonl", good)
        both = {"docs.jsonl": good, "more.tsv": b"x\ty\n", "queries.jsonl": good, "corpus.tsv": b"x\ty\n"}
        yield InvalidInput(kind, f"{kind} of mixed formats", both)
        other = "queries.tsv" if kind == "corpus" else "corpus.tsv"
        yield InvalidInput(kind, f"{kind} by other names", {other: b"x\ty\n"})
        yield InvalidInput(kind, f"{kind} without files", {"README.md": b"nothing"})
    lines = {f"id {value[:20].decode()}": _id_line(value, b"vector", b'{"the": 3}') for value in _IDS}
    yield from _files("topics", "vectors.jsonl", _GOOD["vectors"] + b"\n", _VECTORS | lines)
    yield from _files("topics", "trec", b"<top>\n<num> good\n<title> a\n</top>\n", _TREC)
    yield from _files("qrels", "txt", b"q0 0 d0 1\n", _QRELS)
    yield from _packed("qrels", "txt", b"q0 0 d0 1\n")
    yield from _files("run", "txt", b"q0 Q0 d0 1 2 t\n", _RUNS)
    yield from _packed("run", "txt", b"q0 Q0 d0 1 2 t\n")
    yield InvalidInput("run", "MS MARCO with CR line ends.txt", b"1 7 1\r1 8 2\r")
    for kind in KINDS:
        yield InvalidInput(kind, f"empty {kind}.txt", b"")
        yield InvalidInput(kind, f"blank {kind}.txt", b"\n \n\n")
        yield InvalidInput(kind, f"pipe {kind}.txt", Path("pipe"))
        yield InvalidInput(kind, f"device {kind}.txt", Path("/dev/zero"))
        yield InvalidInput(kind, f"dangling {kind}.txt", Path("nowhere"))
    yield InvalidInput("qrels", "qrels in a directory", {"qrels.txt": b"q0 0 d0 1\n"})
    yield InvalidInput("run", "run in a directory", {"run.txt": b"q0 Q0 d0 1 2 t\n"})


def _id_line(value: bytes, field: bytes, content: bytes) -> bytes:
    return b'{"id": ' + value + b', "' + field + b'": ' + content + b"}"


def _files(kind: str, ending: str, good: bytes, lines: Mapping[str, bytes]) -> Iterator[InvalidInput]:
    """Yield files with one invalid line after valid lines of other ids."""
    for name, line in lines.items():
        yield InvalidInput(kind, f"{name.replace('/', '_')}.{ending}", good + line + b"\n")


def _packed(kind: str, ending: str, good: bytes) -> Iterator[InvalidInput]:
    """Yield damaged gzip files, and one with a line that is too long to be read into memory."""
    packed = gzip.compress(good * 1000, mtime=0)
    yield InvalidInput(kind, f"truncated gzip.{ending}.gz", packed[:-10])
    yield InvalidInput(kind, f"gzip of nothing.{ending}.gz", b"")
    yield InvalidInput(kind, f"gzip by name only.{ending}.gz", good)
    yield InvalidInput(kind, f"gzip with a wrong checksum.{ending}.gz", packed[:-8] + b"\0\0\0\0" + packed[-4:])
    # A gzip file may consist of several compressed members.
    line = gzip.compress(good.rstrip()[:-2], mtime=0) + 100 * gzip.compress(b"x" * (1 << 20), mtime=0)
    yield InvalidInput(kind, f"gzip of a line of 100 MB.{ending}.gz", line)
