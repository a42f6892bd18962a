"""Training examples for retrieval (SCT): JSONL files with records in three layouts, and the paper's sets on the hub.

| layout | record |
|---|---|
| ours | {"query", "positives", "negatives"}, optionally "scores" (a teacher's, positives first) and "language" |
| pairs | {"query", "positive", "title"} |
| BGE | {"query", "pos", "neg", "pos_scores", "neg_scores"} |

The paper's sixteen training sets are subsets of one dataset that was made to train bge-multilingual-gemma2
(arXiv:2409.15700), and have the paper's numbers of rows. The hub's own Parquet copy is downloaded, half the size of the
JSONL: CONFIG/train/*.parquet, or CONFIG/LANG_train/*.parquet for several languages. Scores are those of a BGE reranker;
other columns, such as prompt, are not read.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, TypeAlias

import orjson

from milco_pyserini.console import counted, log
from milco_pyserini.corpora.catalog import BENCHMARKS, TOPICS
from milco_pyserini.corpora.data_files import find_data_files, open_parquet, parse_json
from milco_pyserini.corpora.languages import UNDETERMINED
from milco_pyserini.corpora.records import BadLineError
from milco_pyserini.errors import MilcoError, Unreachable, unknown_name, validate_unique
from milco_pyserini.io.hub import DATASET, fetch_snapshot
from milco_pyserini.io.lines import numbered_lines

REPOSITORY = "hanhainebula/bge-multilingual-gemma2-data"
REVISION = "refs/convert/parquet"
# The authors' name for all sixteen (train_datasets in their script).
ALL = "bge"
_MULTILINGUAL = {
    name: tuple(code for code in BENCHMARKS[benchmark].languages if f"{benchmark}-{code}-train" in TOPICS)
    for name, benchmark in (("multilingual_mrtydi", "mrtydi"), ("multilingual_miracl", "miracl"))
}
# Languages by the names of the paper's table, which begin with the name in REPOSITORY: CONFIG or CONFIG-NAME.
COLLECTIONS = {
    name: _MULTILINGUAL.get(name, (name[:2],))
    for name in (
        "en_msmarco en_eli5 zh_mmarco_zh zh_t2ranking en_squad en_hotpotqa zh_dureader en_trivia-triviaqa en_quora "
        "en_nq multilingual_mrtydi multilingual_miracl en_fever-fever en_fiqa en_arguana en_scidocs"
    ).split()
}

_FILE = re.compile(r"\.jsonl(\.gz)?$")
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z0-9]{2,8})*")
_COLUMNS = ("query", "pos", "neg", "pos_scores", "neg_scores")
_ROWS_AT_A_TIME = 256
_HINT = "Run the same command once with a network, or pass local JSONL files."


class RetrievalExample(NamedTuple):
    """A query with its passages. Scores are a teacher's, one for each passage, or None. title: of a pair's passage."""

    language: str
    query: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...]
    positive_scores: tuple[float, ...] | None = None
    negative_scores: tuple[float, ...] | None = None
    title: str = ""


class RetrievalStats(NamedTuple):
    """Number of examples, and the location ("file:line") of the first without negatives and without scores.

    digest: of the examples; "" for a collection on the hub, whose revision is fixed.
    """

    examples: int
    without_negatives: str | None = None
    without_scores: str | None = None
    digest: str = ""


# Examples of one collection: passages of one example are candidates for the queries of the others.
RetrievalSource: TypeAlias = "RetrievalFile | HubRetrieval"


def open_retrieval(names: Sequence[str | Path], languages: Sequence[str] | None = None) -> list[RetrievalSource]:
    """Resolve names to sources: JSONL files, directories of them at any depth, collections on the hub.

    Nothing is read or downloaded yet. Raises MilcoError for an unknown name, and if nothing remains.

    Args:
        names: paths, or names of COLLECTIONS, or "bge" for all of them.
        languages: keep only these.
    """
    sources: list[RetrievalSource] = []
    for name in names:
        path = Path(name)
        if not path.exists():
            if name != ALL and name not in COLLECTIONS:
                hint = "JSONL files and directories of them are accepted too."
                raise unknown_name("retrieval data", str(name), [ALL, *COLLECTIONS], hint)
            sources += [
                HubRetrieval(collection, language)
                for collection in (COLLECTIONS if name == ALL else (str(name),))
                for language in COLLECTIONS[collection]
                if languages is None or language in languages
            ]
            continue
        files = find_data_files(path, _FILE)
        if not files:
            raise MilcoError(f"{path} has no .jsonl or .jsonl.gz files")
        if languages is not None:
            files = [file for file in files if file_language(file) in {*languages, UNDETERMINED}]
        sources += [RetrievalFile(file, languages) for file in files]
    given = (source.path.resolve() if isinstance(source, RetrievalFile) else source.name for source in sources)
    validate_unique("retrieval data", given)
    if not sources:
        wanted = f" in {', '.join(languages)}" if languages is not None else ""
        raise MilcoError(f"no retrieval data{wanted} in {', '.join(map(str, names)) or 'an empty list of names'}")
    return sources


class RetrievalFile:
    """The examples of a JSONL file, plain or gzip.

    The language is the one in the file's name (NAME.LANG.jsonl.gz), or else that of each line, or else "und".

    Args:
        path: the file.
        languages: skip lines in other languages.
    """

    def __init__(self, path: Path, languages: Sequence[str] | None = None) -> None:
        self.path, self.name, self.language = path, str(path), file_language(path)
        self._languages = None if languages is None else frozenset(languages)

    def numbered(self) -> Iterator[tuple[int, RetrievalExample]]:
        """Yield (line number, example). Raises MilcoError with file and line at the first broken line."""
        for number, line in numbered_lines(self.path):
            try:
                example = read_example(parse_json(line), self.language)
            except BadLineError as error:
                raise MilcoError(f"{self.path}:{number}: {error}") from None
            if self._languages is None or example.language in self._languages:
                yield number, example

    def examples(self) -> Iterator[RetrievalExample]:
        """Yield every example from the start."""
        return (example for _, example in self.numbered())

    @cached_property
    def stats(self) -> RetrievalStats:
        """Counts from a full pass, made once, before expensive work."""
        count, without_negatives, without_scores = 0, None, None
        digest = blake2b(digest_size=16)
        for number, example in self.numbered():
            count += 1
            digest.update(dump_example(example))
            if not example.negatives and without_negatives is None:
                without_negatives = f"{self.path}:{number}"
            if example.positive_scores is None and without_scores is None:
                without_scores = f"{self.path}:{number}"
        return RetrievalStats(count, without_negatives, without_scores, digest.hexdigest())


class HubRetrieval:
    """One language of a collection, downloaded to the hub's cache when it is first read."""

    def __init__(self, name: str, language: str) -> None:
        monolingual = len(COLLECTIONS[name]) == 1
        self.name = name if monolingual else f"{name}.{language}"
        self.language = language
        self._pattern = f"{name.partition('-')[0]}/{'train' if monolingual else f'{language}_train'}/*.parquet"

    @cached_property
    def stats(self) -> RetrievalStats:
        """The number of rows from the files' metadata; all rows have negatives and scores."""
        return RetrievalStats(sum(open_parquet(path).metadata.num_rows for path in self._files))

    def examples(self) -> Iterator[RetrievalExample]:
        """Yield every example, file by file. Rows without a query or a passage are skipped and reported."""
        skipped: list[str] = []
        for path in self._files:
            file = open_parquet(path)
            columns = [name for name in _COLUMNS if name in file.schema_arrow.names]
            rows = (row for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=columns) for row in batch.to_pylist())
            for number, row in enumerate(rows, start=1):
                try:
                    yield read_example(row, self.language)
                except BadLineError as error:
                    skipped.append(f"{path.name}, row {number}: {error}")
        if skipped:
            log(f"{self.name}: skipped {counted(len(skipped), 'row')}, the first: {skipped[0]}")

    @cached_property
    def _files(self) -> list[Path]:
        what = f"retrieval data {self.name}"
        root = fetch_snapshot(REPOSITORY, [self._pattern], what=what, revision=REVISION, repo_type=DATASET, hint=_HINT)
        files = sorted(root.glob(self._pattern))
        if not files:
            raise Unreachable(f"{what} is not in the local cache and the hub cannot be reached", _HINT)
        return files


def file_language(path: Path) -> str:
    """Return the language in a file's name: "ja" for jaquad.ja.jsonl.gz, "und" if there is none."""
    name = path.name.removesuffix(".gz").removesuffix(".jsonl")
    stem, _, code = name.rpartition(".")
    return code if stem and _LANGUAGE.fullmatch(code) else UNDETERMINED


def read_example(fields: Mapping[str, object], language: str = UNDETERMINED) -> RetrievalExample:
    """Return the example of a record in any of the three layouts.

    Args:
        fields: the record.
        language: of the example; "und" takes the record's own.

    Raises:
        BadLineError: a field is missing or of another type, the query or a positive is blank, or the scores are not
            one finite number for each passage.
    """
    if fields.get("language") is not None:
        own = _text(fields["language"], "language")
        if language not in (UNDETERMINED, own):
            raise BadLineError(f"language {own!r} in a file of {language!r}: rename the file, as in data.{own}.jsonl")
        language = own
    query = _text(fields.get("query"), "query")
    if "positive" in fields:
        title = "" if fields.get("title") is None else _text(fields["title"], "title", blank=True)
        positive = _text(fields["positive"], "positive")
        return RetrievalExample(language, query, (f"{title} {positive}" if title else positive,), (), title=title)
    if "pos" in fields:
        positives, negatives = _texts(fields["pos"], "pos"), _texts(fields.get("neg"), "neg", blank=True)
        positive_scores = _scores(fields.get("pos_scores"), "pos_scores", len(positives))
        negative_scores = _scores(fields.get("neg_scores"), "neg_scores", len(negatives))
        if positive_scores is None or negative_scores is None:
            positive_scores = negative_scores = None
        return RetrievalExample(language, query, positives, negatives, positive_scores, negative_scores)
    positives = _texts(fields.get("positives"), "positives")
    negatives = _texts(fields.get("negatives"), "negatives", blank=True)
    scores = _scores(fields.get("scores"), "scores", len(positives) + len(negatives))
    if scores is None:
        return RetrievalExample(language, query, positives, negatives)
    return RetrievalExample(language, query, positives, negatives, scores[: len(positives)], scores[len(positives) :])


def dump_example(example: RetrievalExample) -> bytes:
    """Return the example as a JSON line in our layout, without the line end."""
    fields: dict[str, object] = {"query": example.query, "positives": example.positives, "negatives": example.negatives}
    if example.positive_scores is not None and example.negative_scores is not None:
        fields["scores"] = example.positive_scores + example.negative_scores
    if example.language != UNDETERMINED:
        fields["language"] = example.language
    return orjson.dumps(fields)


def distinct_passages(source: RetrievalSource) -> dict[str, int]:
    """Number the distinct passages of a source, positives and negatives, in order of first occurrence."""
    passages: dict[str, int] = {}
    for example in source.examples():
        for passage in (*example.positives, *example.negatives):
            passages.setdefault(passage, len(passages))
    return passages


def _text(value: object, name: str, blank: bool = False) -> str:
    if not isinstance(value, str):
        raise BadLineError(f"{name!r} is {_describe(value)}: expected a string")
    if not blank and not value.strip():
        raise BadLineError(f"{name!r} is empty")
    return value


def _texts(value: object, name: str, blank: bool = False) -> tuple[str, ...]:
    """Return a list of strings. blank: the list, and strings in it, may be empty."""
    if not isinstance(value, list):
        raise BadLineError(f"{name!r} is {_describe(value)}: expected a list of strings")
    if not blank and not value:
        raise BadLineError(f"{name!r} is empty")
    return tuple(_text(item, f"{name}[{place}]", blank) for place, item in enumerate(value))


def _scores(value: object, name: str, count: int) -> tuple[float, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise BadLineError(f"{name!r} is {_describe(value)}: expected a list of numbers")
    if len(value) != count:
        raise BadLineError(f"{name!r} has {len(value)} numbers for {count} passages")
    for place, item in enumerate(value):
        if isinstance(item, bool) or not isinstance(item, int | float) or not math.isfinite(item):
            raise BadLineError(f"'{name}[{place}]' is {_describe(item)}: expected a finite number")
    return tuple(map(float, value))


def _describe(value: object) -> str:
    names = {type(None): "missing or null", bool: "a boolean", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), f"the number {value}")
