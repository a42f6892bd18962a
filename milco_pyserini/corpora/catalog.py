"""Open documents, queries and qrels by name or path.

A name is, in this order: an existing path; a name of a benchmark, such as miracl-ar-dev; an id of ir_datasets
(ir_datasets:ID if a path of that name exists). NAME@PATH reads a benchmark that is not in ir_datasets from a local copy
in its publisher's layout (remote.py); for ir_datasets, IR_DATASETS_HOME selects a copy.
"""

import locale
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from milco_pyserini.corpora.benchmark import Benchmark, BenchmarkCorpus, BenchmarkTopics
from milco_pyserini.corpora.collection import Corpus, Topics, refuse_bad_line
from milco_pyserini.corpora.ir_datasets import (
    DatasetDocuments,
    DatasetQueries,
    dataset_ids,
    dataset_qrels,
    is_dataset,
    is_installed,
)
from milco_pyserini.corpora.iterable import NAME, IterableDocuments
from milco_pyserini.corpora.local_files import local_documents, local_queries
from milco_pyserini.corpora.table import read_benchmarks
from milco_pyserini.errors import Message, MilcoError, nearest, require_package
from milco_pyserini.io.qrels import Qrels, read_qrels

EntryT = TypeVar("EntryT", BenchmarkCorpus, BenchmarkTopics)

BENCHMARKS: dict[str, Benchmark] = {}
CORPORA: dict[str, BenchmarkCorpus] = {}
TOPICS: dict[str, BenchmarkTopics] = {}

_PREFIX = "ir_datasets:"
_MAX_LANGUAGES = 6
_ID_WITH_CODE = re.compile(r"([a-z]{2,3})-")
# No id of ir_datasets ends like this: a missing file is reported without loading ir_datasets, which takes a second.
_FILE = re.compile(r"\.(jsonl?|ndjson|tsv|csv|txt|trec|gz)$", re.IGNORECASE)


def register(benchmark: Benchmark) -> None:
    """Add a benchmark, so that every command knows its names. See docs/extending.md for an example."""
    BENCHMARKS[benchmark.name] = benchmark
    CORPORA.update(benchmark.corpora)
    TOPICS.update(benchmark.topics)


for _benchmark in read_benchmarks():
    register(_benchmark)


def open_corpus(source: str | os.PathLike | Corpus | Iterable[Any], skip_bad_lines: bool = False) -> Corpus:
    """Open the documents of a name, or of a JSONL or TSV file or a directory of such files, plain or gzip.

    Nothing is fetched or read yet: iterating and Corpus.check() do that.

        >>> next(iter(open_corpus("sample-en"))).id
        'en-01'
        >>> [document.id for document in open_corpus(["The Nile is a river.", ("d1", "Bell patented the telephone.")])]
        ['0', 'd1']

    Args:
        source: a name or path; or documents, as IterableDocuments takes them: an iterable of strings, (id, text) pairs,
            dicts or Documents, or a pandas.DataFrame. A corpus is returned as it is.
        skip_bad_lines: skip malformed lines; check() lists them.

    Raises:
        MilcoError: the name or path is unknown.
        TypeError: source is none of these.
    """
    if isinstance(source, Corpus):
        return source
    if not isinstance(source, str | os.PathLike):
        return Corpus(NAME, IterableDocuments(source), skip_bad_lines)
    name = os.fspath(source)
    resolved = _resolve(name, "corpus", CORPORA)
    if isinstance(resolved, Path):
        return Corpus(name, local_documents(resolved), skip_bad_lines)
    if isinstance(resolved, str):
        return Corpus(name, DatasetDocuments(resolved), skip_bad_lines)
    return Corpus(name, resolved.source, skip_bad_lines, resolved.count)


def open_topics(name: str, skip_bad_lines: bool = False) -> Topics:
    """Open the queries of a name, or of a TSV, JSONL or TREC topic file, plain or gzip, as open_corpus() does."""
    resolved = _resolve(name, "topics", TOPICS)
    if isinstance(resolved, Path):
        return Topics(name, local_queries(resolved), skip_bad_lines)
    if isinstance(resolved, str):
        return Topics(name, DatasetQueries(resolved), skip_bad_lines)
    return Topics(name, resolved, skip_bad_lines, resolved.count)


def open_qrels(name: str) -> Qrels:
    """Read query id -> document id -> grade of a name, or of a TREC or BEIR file, plain or gzip.

    Raises:
        MilcoError: the name or path is unknown, a line is malformed, or the topics are judged by answers.
    """
    resolved = _resolve(name, "qrels", TOPICS)
    if isinstance(resolved, Path):
        if resolved.is_dir():
            raise MilcoError(f"{resolved} is a directory: qrels are one file")
        return read_qrels(resolved)
    if isinstance(resolved, str):
        return dataset_qrels(resolved)
    if resolved.qrels is None:
        raise MilcoError(
            f"{name} is judged by the answers in retrieved passages, not by document ids",
            f"Write qrels for a run with 'python -m experiments.judge --topics {name} --run RUN --output QRELS' in the "
            "repository, then measure Success@100.",
        )
    return resolved.qrels()


def open_answers(name: str) -> dict[str, list[str]]:
    """Read query id -> answers of topics that are judged by them.

    Raises:
        MilcoError: the name is unknown, or its topics are judged by document ids.
    """
    resolved = _resolve(name, "topics", TOPICS)
    if not isinstance(resolved, BenchmarkTopics) or resolved.answers is None:
        names = [key for key, topics in TOPICS.items() if topics.answers]
        fix = Message("Pass it as {qrels}. Topics with answers are ") + f"{names[0]} to {names[-1]}."
        raise MilcoError(f"{name} has no answers: its documents are judged by id", fix)
    return dict(record for _, _, record in resolved.answers.read(refuse_bad_line))


def find_benchmark(name: str) -> Benchmark | None:
    """Return the benchmark that a name of a corpus or of topics belongs to; None if it is not such a name."""
    return next(
        (benchmark for benchmark in BENCHMARKS.values() if name in benchmark.corpora or name in benchmark.topics), None
    )


def has_copies(name: str) -> bool:
    """Return True if a benchmark, a corpus or topics of this name can be read from a local copy (NAME@PATH)."""
    entries: list[BenchmarkCorpus | BenchmarkTopics | None] = [CORPORA.get(name), TOPICS.get(name)]
    if name in BENCHMARKS:
        entries = [*BENCHMARKS[name].corpora.values(), *BENCHMARKS[name].topics.values()]
    return any(entry is not None and entry.has_copies for entry in entries)


def corpus_language(name: str) -> str | None:
    """Return the language of a corpus by its name, as Anserini writes it; None if it is a path or multilingual.

    >>> corpus_language("miracl-ar"), corpus_language("neuclir/1/zh"), corpus_language("sample")
    ('ar', 'zh', None)
    """
    if Path(name).exists():
        return None
    named = name.partition("@")[0].removeprefix(_PREFIX)
    for key, corpus in CORPORA.items():
        if key == named or (isinstance(corpus.source, DatasetDocuments) and corpus.source.identity == named):
            return corpus.language
    return None


def languages_of_ids(ids: Iterable[str]) -> list[str | None]:
    """Return the languages that ids begin with; None for an id that does not.

    >>> languages_of_ids(["ar-07", "zh-3-1", "q-1"])
    ['ar', 'zh', None]
    """
    known = frozenset(corpus.language for corpus in CORPORA.values() if corpus.language)
    matches = (_ID_WITH_CODE.match(name) for name in ids)
    return [match[1] if match and match[1] in known else None for match in matches]


def _resolve(name: str, word: str, table: dict[str, EntryT]) -> Path | str | EntryT:
    """Return a path, an id of ir_datasets, or an entry of the table. word: the kind of name, for errors."""
    path = Path(name)
    if name and path.exists() and not name.startswith(_PREFIX):
        return path
    if name.startswith(_PREFIX):
        identity = name.removeprefix(_PREFIX)
        require_package("ir_datasets", "ir-datasets", name)
        if not is_dataset(identity):
            near = nearest(identity, dataset_ids())
            guess = f"did you mean {near!r}? " if near else ""
            raise MilcoError(f"ir_datasets has no {identity!r}: {guess}all are listed at https://ir-datasets.com")
        return identity
    named, at, copy = name.partition("@")
    if named in table:
        return _at(table[named], named, copy) if at else table[named]
    # A benchmark's name may be an id of ir_datasets, too (miracl), which has no documents itself.
    if not at and named not in BENCHMARKS and not _FILE.search(name) and is_dataset(name):
        return name
    raise _unknown(name if "/" in named else named, word, table)


def _at(entry: EntryT, named: str, copy: str) -> EntryT:
    if not copy or not Path(copy).exists():
        raise MilcoError(f"{named}@{copy}: no file or directory {copy!r} with a copy of {named}")
    if not entry.has_copies:
        message = f"{named}@{copy}: {named} is part of this package or of ir_datasets, and not read from a copy"
        fix = f"Set IR_DATASETS_HOME={copy} for a copy of ir_datasets' directory, or pass the path of the files."
        raise MilcoError(message, fix)
    return entry.at(Path(copy))


def _unknown(name: str, word: str, table: Mapping[str, Any]) -> MilcoError:
    path = Path(name)
    if "/" in name or path.suffix:
        neighbors = [str(path.parent / file.name) for file in path.parent.glob("*")]
        near = nearest(name, neighbors) or nearest(name, table)
        if not near and not _FILE.search(name):
            near = nearest(name, dataset_ids())
        guess = f"; did you mean {near!r}?" if near else ""
        return MilcoError(f"{name}: no such file or directory{guess}")
    other = find_benchmark(name)
    head, _, language = name.rpartition("-")
    # "sample-german"
    coded = f"{head}-{locale.normalize(language).partition('_')[0]}"
    near = coded if coded in table else nearest(name, [*table, *BENCHMARKS])
    if other is not None and name not in BENCHMARKS:
        kind, plural = ("topics", "corpora") if word == "corpus" else ("a corpus", "topics")
        guess = f"it names {kind}. 'milco corpora show {other.name}' lists its {plural}"
    elif near is None:
        guess = "pass a path, a name that 'milco corpora list' shows, or an id of https://ir-datasets.com"
    else:
        benchmark = next(
            benchmark
            for benchmark in BENCHMARKS.values()
            if near in (benchmark.name, *benchmark.corpora, *benchmark.topics)
        )
        names = benchmark.corpus_names if word == "corpus" else benchmark.topics_names
        codes = [*benchmark.languages[:_MAX_LANGUAGES], *(["..."] if len(benchmark.languages) > _MAX_LANGUAGES else [])]
        languages = f" ({' '.join(codes)})" if "LANG" in names else ""
        show = f"'milco corpora show {benchmark.name}'"
        if near in table:
            guess = f"did you mean {near!r}? {show} lists {names}{languages}"
        else:
            guess = f"did you mean {names}{languages}? {show} lists its names"
    hint = "" if is_installed() else "For the ids of ir_datasets, run pip install '.[ir-datasets]'."
    return MilcoError(f"unknown {word} {name!r}: {guess}", hint)
