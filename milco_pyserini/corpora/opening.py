"""From a name or a path to documents, queries and judgements.

What a name can be, in this order: a path that exists; a name of families.py, such as sample; an ir_datasets id
(ir_datasets:ID where a path of that name is in the way). NAME@PATH is what a name of families.py stands for, read from
a local copy in its publisher's layout: of a hub repository, or of a server's files; a copy of the directory that
IR_DATASETS_HOME names will do as well, for the names that ir_datasets fetches. Nothing is fetched then, and nothing is
written into the copy.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from milco_pyserini.corpora import families
from milco_pyserini.corpora import ir_datasets_source as datasets
from milco_pyserini.corpora.benchmarks.sample import ALL
from milco_pyserini.corpora.collection import Corpus, Topics
from milco_pyserini.corpora.origin import CorpusOrigin, TopicsOrigin
from milco_pyserini.corpora.source_files import document_files, query_files
from milco_pyserini.errors import MilcoError, nearest
from milco_pyserini.io.qrels import Qrels, read_qrels

_PREFIX = "ir_datasets:"
# Languages that an error shows.
_SHOWN = 6
# What no id of ir_datasets ends in: for a file that is not there, a second is not spent on loading it.
_FILE = re.compile(r"\.(jsonl?|ndjson|tsv|csv|txt|trec|gz)$", re.IGNORECASE)


@dataclass(frozen=True)
class _Kind:
    word: str
    plural: str
    table: Mapping[str, str | CorpusOrigin | TopicsOrigin]
    copied: Mapping[str, CorpusOrigin | TopicsOrigin]


@dataclass(frozen=True)
class _Found:
    """What a name stands for: a path, an ir_datasets id or an origin. copy: where an origin's files lie."""

    place: Path | str | CorpusOrigin | TopicsOrigin
    copy: Path | None = None


_CORPUS = _Kind("corpus", "corpora", families.CORPORA, families.COPIED_CORPORA)
_TOPICS = _Kind("topics", "topics", families.TOPICS, families.COPIED_TOPICS)
_QRELS = replace(_TOPICS, word="qrels")


def open_corpus(name: str, skip_bad_lines: bool = False) -> Corpus:
    """The documents of a name, or of a JSONL or TSV file or a directory of such files, plain or gzip.

    Raises MilcoError if the name or the path is unknown. Nothing is fetched or read through yet:
    Corpus.check() does that. skip_bad_lines leaves broken lines out, and check() lists them.
    """
    found = _find(name, _CORPUS)
    if isinstance(found.place, Path):
        return Corpus(name, document_files(found.place), skip_bad_lines)
    if isinstance(found.place, CorpusOrigin):
        return Corpus(name, found.place.open(found.copy), skip_bad_lines, found.place.count)
    return Corpus(name, datasets.DatasetDocuments(str(found.place)), skip_bad_lines)


def open_topics(name: str, skip_bad_lines: bool = False) -> Topics:
    """The queries of a name, or of a TSV, JSONL or TREC topic file, plain or gzip; as open_corpus."""
    found = _find(name, _TOPICS)
    if isinstance(found.place, Path):
        return Topics(name, query_files(found.place), skip_bad_lines)
    if isinstance(found.place, TopicsOrigin):
        return Topics(name, found.place.open(found.copy), skip_bad_lines, found.place.count)
    return Topics(name, datasets.DatasetQueries(str(found.place)), skip_bad_lines)


def open_qrels(name: str) -> Qrels:
    """Query id -> document id -> grade, of a name or of a TREC or BEIR file, plain or gzip.

    Raises MilcoError if the name or the path is unknown, with file and line if the file is broken, or if the topics
    of that name are judged by answers.
    """
    found = _find(name, _QRELS)
    if isinstance(found.place, TopicsOrigin):
        return found.place.qrels(found.copy)
    if isinstance(found.place, str):
        return datasets.dataset_qrels(found.place)
    path = cast(Path, found.place)
    if path.is_dir():
        raise MilcoError(f"{path} is a directory: judgements are one file")
    return read_qrels(path)


def open_answers(name: str) -> dict[str, list[str]]:
    """Query id -> the answers that a relevant passage holds, of topics that are judged by them.

    Raises MilcoError if the name is unknown, or stands for topics that are judged by document ids.
    """
    found = _find(name, _TOPICS)
    if not isinstance(found.place, TopicsOrigin) or found.place.answers is None:
        with_answers = [
            key for key, place in families.TOPICS.items() if isinstance(place, TopicsOrigin) and place.answers
        ]
        raise MilcoError(
            f"{name} has no answers, its judgements are of document ids: use it as --qrels. Topics with answers are "
            f"{with_answers[0]} to {with_answers[-1]}"
        )
    return found.place.answers(found.copy)


def _find(name: str, kind: _Kind) -> _Found:
    path = Path(name)
    if name and path.exists() and not name.startswith(_PREFIX):
        return _Found(path)
    named, at, where = name.partition("@")
    identity = named.removeprefix(_PREFIX) if named.startswith(_PREFIX) else None
    place = kind.table.get(named) if identity is None else identity
    if at and place is not None:
        return _in_copy(name, place, where, kind)
    if identity is not None:
        return _Found(_dataset_id(identity))
    if place is not None:
        return _Found(place)
    # A benchmark's name may be an id of ir_datasets too (miracl), which has no documents of its own.
    if not at and named not in families.FAMILIES and not _FILE.search(name) and datasets.is_dataset(name):
        return _Found(name)
    raise _unknown(name if "/" in named else named, kind)


def _in_copy(name: str, place: str | CorpusOrigin | TopicsOrigin, where: str, kind: _Kind) -> _Found:
    copy, named = Path(where), name.partition("@")[0]
    if not where or not copy.exists():
        raise MilcoError(f"{name}: {where or 'nothing'} is no file or directory that holds a copy of {named}")
    origin = kind.copied.get(place) if isinstance(place, str) else place
    if origin is None:
        raise MilcoError(
            f"{name}: a copy can be read of what 'milco corpora list' names; for other ids of ir_datasets set "
            f"IR_DATASETS_HOME={where}"
        )
    return _Found(origin, copy)


def _dataset_id(identity: str) -> str:
    if not datasets.is_dataset(identity):
        near = nearest(identity, datasets.dataset_ids())
        guess = f"did you mean {near!r}? " if near else ""
        raise MilcoError(f"ir_datasets has no {identity!r}: {guess}all are listed at https://ir-datasets.com")
    return identity


def _unknown(name: str, kind: _Kind) -> MilcoError:
    path = Path(name)
    if "/" in name or path.suffix:
        neighbors = [str(path.parent / file.name) for file in path.parent.glob("*")]
        near = nearest(name, neighbors) or nearest(name, kind.table)
        if not near and not _FILE.search(name):
            near = nearest(name, datasets.dataset_ids())
        guess = f"; did you mean {near!r}?" if near else ""
        return MilcoError(f"{name}: no such file or directory{guess}")
    near = nearest(name, [*kind.table, *families.FAMILIES])
    other = families.TOPICS if kind is _CORPUS else families.CORPORA
    if name in other and name not in families.FAMILIES:
        family = next(one for one in families.FAMILIES.values() if name in one.corpora or name in one.topics)
        what = "topics" if kind is _CORPUS else "a corpus"
        guess = f"it names {what}. 'milco corpora show {family.name}' shows the names of its {kind.plural}"
    elif near is None:
        guess = "give a path, a name, or an id of https://ir-datasets.com. 'milco corpora list' shows what has a name"
    elif near in kind.table:
        guess = f"did you mean {near!r}? 'milco corpora list' shows what has a name"
    else:
        family = families.FAMILIES[near]
        pattern = family.patterns[0 if kind is _CORPUS else 1]
        codes = [*family.languages[:_SHOWN], *(["..."] if len(family.languages) > _SHOWN else [])]
        languages = f" ({' '.join(codes)})" if "LANG" in pattern else ""
        guess = f"did you mean {pattern}{languages}? 'milco corpora show {near}' shows its names"
    return MilcoError(f"unknown {kind.word} {name!r}: {guess}")


def at_hand(manifest: Mapping[str, Any]) -> str | None:
    """The corpus, or the topics, that a manifest names, if it is surely on this machine: a path, or the sample."""
    name = str(manifest.get("corpus") or "")
    return name if name and (Path(name).exists() or name in families.FAMILIES[ALL].corpora) else None
