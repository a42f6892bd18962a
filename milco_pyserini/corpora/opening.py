"""From a name or a path to documents, queries and judgements.

What a name can be, in this order: a path that exists; the embedded sample; a name of names.py; an
ir_datasets id (ir_datasets:ID where a path of that name is in the way).
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from milco_pyserini.corpora import ir_datasets_source as datasets
from milco_pyserini.corpora import names, sample
from milco_pyserini.corpora.collection import Corpus, Topics
from milco_pyserini.corpora.qrels import Qrels, read_qrels
from milco_pyserini.corpora.source_files import document_files, query_files
from milco_pyserini.errors import MilcoError

_PREFIX = "ir_datasets:"
# What no id of ir_datasets ends in: for a file that is not there, a second is not spent on loading it.
_FILE = re.compile(r"\.(jsonl?|ndjson|tsv|csv|txt|trec|gz)$", re.IGNORECASE)


@dataclass(frozen=True)
class _Kind:
    word: str
    table: dict[str, str]
    shown: str
    embedded: Callable[[], dict[str, Path]]


_CORPUS = _Kind("corpus", names.CORPORA, names.CORPORA_SHOWN, sample.sample_corpora)
_TOPICS = _Kind("topics", names.TOPICS, names.TOPICS_SHOWN, sample.sample_topics)
_QRELS = _Kind("qrels", names.TOPICS, names.TOPICS_SHOWN, sample.sample_topics)


def open_corpus(name: str, skip_bad_lines: bool = False) -> Corpus:
    """The documents of a name, or of a JSONL or TSV file or a directory of such files, plain or gzip.

    Raises MilcoError if the name or the path is unknown. Nothing is fetched or read through yet:
    Corpus.check() does that. skip_bad_lines leaves broken lines out, and check() lists them.
    """
    found = _find(name, _CORPUS)
    if isinstance(found, Path):
        return Corpus(name, document_files(found), skip_bad_lines)
    return Corpus(name, datasets.DatasetDocuments(found), skip_bad_lines)


def open_topics(name: str, skip_bad_lines: bool = False) -> Topics:
    """The queries of a name, or of a TSV, JSONL or TREC topic file, plain or gzip; as open_corpus."""
    found = _find(name, _TOPICS)
    if isinstance(found, Path):
        return Topics(name, query_files(found), skip_bad_lines)
    return Topics(name, datasets.DatasetQueries(found), skip_bad_lines)


def open_qrels(name: str) -> Qrels:
    """Query id -> document id -> grade, of a name or of a TREC or BEIR file, plain or gzip.

    Raises MilcoError if the name or the path is unknown, or with file and line if the file is broken.
    """
    if name in sample.sample_topics() and not Path(name).exists():
        return sample.sample_qrels(name)
    found = _find(name, _QRELS)
    if isinstance(found, str):
        return datasets.dataset_qrels(found)
    if found.is_dir():
        raise MilcoError(f"{found} is a directory: judgements are one file")
    return read_qrels(found)


def _find(name: str, kind: _Kind) -> Path | str:
    """The path or the ir_datasets id that name stands for."""
    if name.startswith(_PREFIX):
        identity = name.removeprefix(_PREFIX)
        if not datasets.is_dataset(identity):
            near = _near(identity, datasets.dataset_ids())
            raise MilcoError(f"ir_datasets has no {identity!r}: {near}all are listed at https://ir-datasets.com")
        return identity
    path = Path(name)
    if name and path.exists():
        return path
    embedded = kind.embedded()
    if name in embedded:
        return embedded[name]
    if name in kind.table:
        return kind.table[name]
    if not _FILE.search(name) and datasets.is_dataset(name):
        return name
    raise _unknown(name, kind, embedded)


def _unknown(name: str, kind: _Kind, embedded: Iterable[str]) -> MilcoError:
    path = Path(name)
    known = [*embedded, *kind.table]
    if "/" in name or path.suffix:
        beside = [str(path.parent / file.name) for file in path.parent.glob("*")]
        near = _near(name, beside) or _near(name, known)
        if not near and not _FILE.search(name):
            near = _near(name, datasets.dataset_ids())
        return MilcoError(f"{name}: no such file or directory{near and '; ' + near.strip()}")
    # errors.unknown_name would print some hundred names here: the families say as much in one line.
    return MilcoError(
        f"unknown {kind.word} {name!r}: {_near(name, known)}valid are sample, sample-LANG, {kind.shown}, a path, "
        "or an id of https://ir-datasets.com"
    )


def _near(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}? " if near else ""
