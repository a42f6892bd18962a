"""Read the files of an export back, as the engine that they are for would."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

Weights = dict[str, float]


def lines_of(directory: Path, pattern: str) -> list[Any]:
    """Return the JSON of every line of the files that match a pattern, in order."""
    paths = sorted(directory.glob(pattern))
    return [json.loads(line) for path in paths for line in content_of(path).decode().split("\n") if line]


def content_of(path: Path) -> bytes:
    """Return the content of a file, unpacked if its name ends in .gz."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def terms_of(directory: Path) -> list[str]:
    """Return the terms of vocabulary.json."""
    from milco_pyserini.sparse import Vocabulary

    return Vocabulary(**json.loads((directory / "vocabulary.json").read_text("utf-8"))).terms.tolist()


def elasticsearch(directory: Path) -> tuple[dict[str, Weights], set[str]]:
    """Return the documents that bulk requests index, and the docids that they delete."""
    documents, deleted, lines = {}, set(), iter(lines_of(directory, "documents-*.ndjson.gz"))
    for action in lines:
        if "index" in action:
            documents[action["index"]["_id"]] = next(lines)["vector"]
        else:
            deleted.add(action["delete"]["_id"])
    return documents, deleted


def qdrant(directory: Path) -> tuple[dict[str, Weights], set[str]]:
    """Return the documents of the points, and the ids of points to delete."""
    terms = terms_of(directory)
    bodies = {
        kind: [one for path in sorted(directory.glob(f"{kind}-*")) for one in json.loads(content_of(path))["points"]]
        for kind in ("documents", "deleted")
    }
    documents = {
        point["payload"]["docid"]: dict(zip(map(terms.__getitem__, vector["indices"]), vector["values"], strict=True))
        for point in bodies["documents"]
        for vector in point["vector"].values()
    }
    return documents, set(bodies["deleted"])


def parquet(directory: Path) -> tuple[dict[str, Weights], set[str]]:
    """Return the documents of the rows, and deleted docids."""
    from pyarrow.parquet import read_table

    documents: dict[str, Weights] = {}
    for row in read_table(directory / "documents.parquet").to_pylist():
        documents.setdefault(row["id"], {})[row["term"]] = row["impact"]
    deleted = directory / "deleted.parquet"
    return documents, set(read_table(deleted)["id"].to_pylist()) if deleted.exists() else set()


def milvus(directory: Path) -> tuple[dict[str, Weights], set[str]]:
    """Return the rows to insert, and the docids in the filter of those to delete."""
    terms = terms_of(directory)
    documents, deleted = {}, set()
    for path in sorted(directory.glob("documents-*")):
        for row in json.loads(content_of(path))["data"]:
            documents[row["docid"]] = {terms[int(column)]: weight for column, weight in row["vector"].items()}
            assert all(isinstance(weight, float) for weight in row["vector"].values())
    for path in directory.glob("deleted-*"):
        deleted |= set(json.loads(json.loads(content_of(path))["filter"].removeprefix("docid in ")))
    return documents, deleted


def pgvector(directory: Path) -> tuple[dict[str, Weights], set[str]]:
    """Return the rows of documents.copy and deleted.copy."""
    terms, documents = terms_of(directory), {}
    for line in (directory / "documents.copy").read_text("utf-8").split("\n")[:-1]:
        docid, vector = line.split("\t")
        pairs, dimensions = vector[1:].split("}/")
        assert int(dimensions) == len(terms)
        entries = (pair.split(":") for pair in pairs.split(","))
        documents[_unquoted(docid)] = {terms[int(column) - 1]: int(impact) for column, impact in entries}
    return documents, set(map(_unquoted, (directory / "deleted.copy").read_text("utf-8").split("\n")[:-1]))


def _unquoted(field: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"t": "\t", "n": "\n", "r": "\r"}.get(found[1], found[1]), field)


_CIFF = """
name: "ciff.proto" syntax: "proto3"
message_type { name: "Posting" field { name: "docid" number: 1 type: TYPE_INT32 }
  field { name: "tf" number: 2 type: TYPE_INT32 } }
message_type { name: "PostingsList" field { name: "term" number: 1 type: TYPE_STRING }
  field { name: "df" number: 2 type: TYPE_INT64 } field { name: "cf" number: 3 type: TYPE_INT64 }
  field { name: "postings" number: 4 type: TYPE_MESSAGE type_name: "Posting" label: LABEL_REPEATED } }
message_type { name: "DocRecord" field { name: "docid" number: 1 type: TYPE_INT32 }
  field { name: "collection_docid" number: 2 type: TYPE_STRING }
  field { name: "doclength" number: 3 type: TYPE_INT32 } }
message_type { name: "Header" field { name: "version" number: 1 type: TYPE_INT32 }
  field { name: "num_postings_lists" number: 2 type: TYPE_INT32 } field { name: "num_docs" number: 3 type: TYPE_INT32 }
  field { name: "total_postings_lists" number: 4 type: TYPE_INT32 }
  field { name: "total_docs" number: 5 type: TYPE_INT32 }
  field { name: "total_terms_in_collection" number: 6 type: TYPE_INT64 }
  field { name: "average_doclength" number: 7 type: TYPE_DOUBLE }
  field { name: "description" number: 8 type: TYPE_STRING } }
"""


def messages_of(path: Path) -> tuple[dict, list[dict]]:
    """Return the header of a CIFF file, and its posting lists with the records of documents after them."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_CIFF, descriptor_pb2.FileDescriptorProto()))
    kinds = {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        for name in ("Header", "PostingsList", "DocRecord")
    }
    content, place, found = path.read_bytes(), 0, []
    while place < len(content):
        size, shift = 0, 0
        while True:
            byte, place = content[place], place + 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        lists = found[0].num_postings_lists if found else 0
        kind = "Header" if not found else "PostingsList" if len(found) <= lists else "DocRecord"
        found.append(kinds[kind].FromString(content[place : place + size]))
        place += size
    header, *messages = found
    return plain(header), [plain(message) for message in messages]


def plain(message: Any) -> dict:
    """Return the fields of a message that are set."""
    return {
        field.name: [plain(one) for one in value] if field.name == "postings" else value
        for field, value in message.ListFields()
    }


def ciff(directory: Path) -> tuple[dict[str, Weights], set[str]]:
    """Return the documents of posting lists, read with Google's protocol buffers."""
    header, messages = messages_of(directory / "index.ciff")
    lists, records = messages[: header["num_postings_lists"]], messages[header["num_postings_lists"] :]
    assert len(records) == header["num_docs"]
    documents: dict[str, Weights] = {record["collection_docid"]: {} for record in records}
    names = list(documents)
    for postings in lists:
        docid = 0
        for posting in postings["postings"]:
            docid += posting.get("docid", 0)
            documents[names[docid]][postings["term"]] = posting["tf"]
    return documents, set()


READERS: dict[str, Callable[[Path], tuple[dict[str, Weights], set[str]]]] = {
    "elasticsearch": elasticsearch,
    "opensearch": elasticsearch,
    "qdrant": qdrant,
    "parquet": parquet,
    "milvus": milvus,
    "pgvector": pgvector,
    "ciff": ciff,
}
