"""Shards of an index: a directory with the indexes of consecutive parts of one vector store, searched as one.

A document's score does not depend on the other documents, so the best documents of all shards are those of one index.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import structs

from milco_pyserini.errors import Message, MilcoError
from milco_pyserini.index.documents import Filters
from milco_pyserini.index.hits import GroupHits, Groups, Hits, merge_hits
from milco_pyserini.index.protocol import EngineSearcher
from milco_pyserini.io.manifest import MANIFEST
from milco_pyserini.io.records import IndexManifest
from milco_pyserini.request import SearchRequest

_NAME = re.compile(r"shard-[0-9]{5,}-of-[0-9]{5,}")
# Fields in which the manifests of all shards agree, and what a user calls them.
_SHARED = {
    "engine": Message("{engine}"),
    "build_settings": "settings",
    "vectors": Message("{source}, {prune} or {views}"),
    "fields": Message("{store_documents}"),
    "stores_vectors": "store_vectors",
}
_MOST_NAMED = 10


def shard_name(shard_id: int, shard_num: int) -> str:
    """Return the name of a shard's directory.

    >>> shard_name(3, 8)
    'shard-00003-of-00008'
    """
    return f"shard-{shard_id:05d}-of-{shard_num:05d}"


def find_shards(path: Path) -> list[Path]:
    """Return the finished shards in a directory. Raises MilcoError if it is an index itself, too."""
    named = (shard for shard in path.glob("shard-*-of-*") if _NAME.fullmatch(shard.name))
    shards = sorted(shard for shard in named if (shard / MANIFEST).is_file())
    if shards and (path / MANIFEST).exists():
        raise MilcoError(
            f"{path} holds an index and shards of another one, such as {shards[0].name}: remove all files of one"
        )
    return shards


def shard_number(path: Path) -> tuple[int, int]:
    """Return the number of a finished shard, from 0, and the number of shards."""
    shard_id, shard_num = path.name.removeprefix("shard-").split("-of-")
    return int(shard_id), int(shard_num)


def missing_shards(path: Path) -> str:
    """Return which shards are missing, for messages, or "". Raises MilcoError for shards of two divisions."""
    finished = [shard_number(shard) for shard in find_shards(path)]
    nums = sorted({num for _, num in finished})
    if len(nums) > 1:
        raise MilcoError(
            f"{path} holds shards of {' and of '.join(map(str, nums))}: remove those of the other division"
        )
    missing = sorted(set(range(nums[0])) - {number for number, _ in finished})
    named = ", ".join(map(str, missing[:_MOST_NAMED])) + (", ..." if len(missing) > _MOST_NAMED else "")
    numbers = "number" if len(missing) == 1 else "numbers"
    return f"{len(missing):,} of {nums[0]:,} shards ({numbers} {named})" if missing else ""


def validate_shard_directory(path: Path, shard_num: int) -> None:
    """Raise MilcoError if a directory, where one exists, has anything but shards of this division."""
    if path.exists() and not path.is_dir():
        raise MilcoError(f"{path} is a file", Message("Choose another {path}."))
    for name in sorted(file.name for file in path.iterdir()) if path.is_dir() else ():
        is_shard = _NAME.fullmatch(name) and shard_number(Path(name))[1] == shard_num
        if not is_shard and not name.startswith("."):
            fix = Message("Choose another {path}.")
            raise MilcoError(f"{path} holds {name}, which is not a shard of {shard_num}", fix)


def validate_shard(path: Path, manifest: Mapping[str, Any], other: Path, others: IndexManifest) -> None:
    """Raise MilcoError unless two manifests are of shards of the same vectors, built with the same options."""
    for field, options in _SHARED.items():
        if manifest.get(field) != getattr(others, field):
            raise MilcoError(
                f"{path} and {other} are not shards of one index, their {field} differ: build both with the same "
                f"{options}, or remove {path.parent} to build all shards anew"
            )


def joined_manifest(manifests: Sequence[IndexManifest]) -> IndexManifest:
    """Return the manifest of the index that consists of these shards."""
    totals = {
        name: sum(getattr(manifest, name) for manifest in manifests)
        for name in ("documents", "empty_documents", "postings")
    }
    id_with_space = next(filter(None, (manifest.id_with_space for manifest in manifests)), None)
    return structs.replace(manifests[0], **totals, id_with_space=id_with_space, shard=None, files=None, recall=None)


class ShardedSearcher(EngineSearcher):
    """Open shards, or segments, of an index. Hits are those of one index, approximate ones the best of each shard's."""

    def __init__(self, path: Path, shards: Sequence[EngineSearcher]) -> None:
        super().__init__(shards[0].engine, path, sum(shard.num_documents for shard in shards))
        self.shards = shards
        self.fields = shards[0].fields

    def release(self) -> None:
        """Close every shard."""
        for shard in self.shards:
            shard.close()

    def find(self, queries: Sequence[Any], request: SearchRequest) -> list[Hits]:
        """Return the best of the hits of all shards."""
        rankings = [shard.rank(queries, request) for shard in self.shards]
        return [merge_hits(hits, request.k) for hits in zip(*rankings, strict=True)]

    def find_groups(self, queries: Sequence[Any], request: SearchRequest, field: str) -> list[Groups]:
        """Return the best of the hits of all shards for each value; a group consists of the documents of all shards."""
        found = []
        for shard in self.shards:
            k = max(1, min(request.k, shard.num_documents))
            found.append(shard.find_groups(queries, replace(request, k=k), field))
        return [_joined(shards, request.k) for shards in zip(*found, strict=True)]

    def find_matching(self, filters: Filters) -> list[str]:
        """Return the ids of the documents of all shards that have one of the values in each field."""
        return [docid for shard in self.shards for docid in shard.find_matching(filters)]

    def count_values(self, field: str, limit: int) -> Mapping[str, int] | None:
        """Return the sums of the counts of all shards."""
        counts = [shard.values(field) for shard in self.shards]
        return None if None in counts else sum(map(Counter, filter(None, counts)), Counter())

    def find_values(self, docids: Sequence[str], field: str) -> dict[str, tuple[str, ...]]:
        """Return the values of a field of the documents of all shards."""
        return {docid: texts for shard in self.shards for docid, texts in shard.find_values(docids, field).items()}

    def stored(self, docids: Sequence[str]) -> dict[str, str | bytes]:
        """Return the stored JSON of the documents; missing ones are left out."""
        return {docid: raw for shard in self.shards for docid, raw in shard.stored(docids).items()}

    def weights(self, docid: str, terms: Sequence[str]) -> Mapping[str, float] | None:
        """Return the weights in the shard that has the document."""
        weights = (shard.weights(docid, terms) for shard in self.shards)
        return next((numbers for numbers in weights if numbers is not None), None)


def _joined(shards: Sequence[Groups], k: int) -> Groups:
    joined = {}
    for value in dict.fromkeys(value for groups in shards for value in groups):
        parts = [groups[value] for groups in shards if value in groups]
        hits = merge_hits([part.hits for part in parts], k)
        joined[value] = GroupHits(hits, sum(part.sum for part in parts), sum(part.size for part in parts))
    return joined
