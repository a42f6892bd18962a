"""The paper's sixteen collections for contrastive training (SCT), by the names of its table.

They are subsets of one data set on the hub, which was made to train bge-multilingual-gemma2 (arXiv:2409.15700): their
numbers of rows are the paper's. What is fetched is the hub's own copy of it in Parquet, half the size of the JSONL:
CONFIG/train/*.parquet, and CONFIG/LANG_train/*.parquet where there are several languages. A row has query, pos, neg,
pos_scores and neg_scores (teacher: a BGE reranker); further columns, such as prompt, are not read.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from milco_pyserini.console import counted, say
from milco_pyserini.corpora.benchmarks import miracl, mrtydi
from milco_pyserini.corpora.records import BadLineError
from milco_pyserini.errors import Unreachable, unknown_name
from milco_pyserini.io.hub import DATASET, fetch_snapshot
from milco_pyserini.train.data.retrieval import RetrievalExample, RetrievalSource, RetrievalStats, read_example

REPOSITORY = "hanhainebula/bge-multilingual-gemma2-data"
REVISION = "refs/convert/parquet"
# The authors' script calls the sixteen together "bge" (train_datasets).
ALL = "bge"

_COLUMNS = ("query", "pos", "neg", "pos_scores", "neg_scores")
_ROWS_AT_A_TIME = 256


class RetrievalCollection(NamedTuple):
    """A subset of REPOSITORY; queries: as the paper counts them."""

    config: str
    languages: tuple[str, ...]
    queries: int


COLLECTIONS = {
    "en_msmarco": RetrievalCollection("en_msmarco", ("en",), 485_823),
    "en_eli5": RetrievalCollection("en_eli5", ("en",), 150_000),
    "zh_mmarco_zh": RetrievalCollection("zh_mmarco_zh", ("zh",), 100_000),
    "zh_t2ranking": RetrievalCollection("zh_t2ranking", ("zh",), 90_467),
    "en_squad": RetrievalCollection("en_squad", ("en",), 87_599),
    "en_hotpotqa": RetrievalCollection("en_hotpotqa", ("en",), 84_516),
    "zh_dureader": RetrievalCollection("zh_dureader", ("zh",), 80_416),
    "en_trivia-triviaqa": RetrievalCollection("en_trivia", ("en",), 60_315),
    "en_quora": RetrievalCollection("en_quora", ("en",), 60_202),
    "en_nq": RetrievalCollection("en_nq", ("en",), 58_568),
    "multilingual_mrtydi": RetrievalCollection("multilingual_mrtydi", tuple(mrtydi.LANGUAGES), 48_729),
    "multilingual_miracl": RetrievalCollection("multilingual_miracl", tuple(miracl.SPLITS["train"]), 40_203),
    "en_fever-fever": RetrievalCollection("en_fever", ("en",), 29_096),
    "en_fiqa": RetrievalCollection("en_fiqa", ("en",), 5_500),
    "en_arguana": RetrievalCollection("en_arguana", ("en",), 4_065),
    "en_scidocs": RetrievalCollection("en_scidocs", ("en",), 884),
}


class HubRetrieval:
    """One language of a collection. It is fetched when it is first read, and kept in the hub's cache."""

    def __init__(self, name: str, language: str) -> None:
        collection = COLLECTIONS[name]
        alone = len(collection.languages) == 1
        self.name = name if alone else f"{name}.{language}"
        self.language = language
        self._directory = f"{collection.config}/{'train' if alone else f'{language}_train'}"

    def stats(self) -> RetrievalStats:
        """The number of rows, from the files' own metadata; all of them have negatives and scores."""
        from pyarrow.parquet import ParquetFile

        return RetrievalStats(sum(ParquetFile(path).metadata.num_rows for path in self._files))

    def size(self) -> int:
        """The number of rows."""
        return self.stats().examples

    def examples(self) -> Iterator[RetrievalExample]:
        """Every example, file after file. Rows without a query or a passage are left out, counted and said."""
        left_out: list[str] = []
        for path in self._files:
            for number, row in enumerate(_rows(path), start=1):
                try:
                    yield read_example(row, self.language)
                except BadLineError as error:
                    left_out.append(f"{path.name}, row {number}: {error}")
        if left_out:
            say(f"{self.name}: left out {counted(len(left_out), 'row')}, the first: {left_out[0]}")

    @cached_property
    def _files(self) -> list[Path]:
        return _fetch(self.name, self._directory)


def open_collection(name: str, languages: Sequence[str] | None = None) -> list[RetrievalSource]:
    """One source for each language of a collection, or of all sixteen ("bge"). Nothing is fetched yet.

    languages: leave the others out. Raises MilcoError, with the nearest match, for an unknown name.
    """
    if name != ALL and name not in COLLECTIONS:
        hint = "A path of JSONL files, or of a directory of them, will do too."
        raise unknown_name("retrieval data", name, [ALL, *COLLECTIONS], hint)
    names = COLLECTIONS if name == ALL else (name,)
    return [
        HubRetrieval(one, language)
        for one in names
        for language in COLLECTIONS[one].languages
        if languages is None or language in languages
    ]


def _rows(path: Path) -> Iterator[dict[str, object]]:
    from pyarrow.parquet import ParquetFile

    file = ParquetFile(path)
    columns = [name for name in _COLUMNS if name in file.schema_arrow.names]
    for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=columns):
        yield from batch.to_pylist()


def _fetch(name: str, directory: str) -> list[Path]:
    wanted = f"{directory}/*.parquet"
    hint = "Run the same command once with a network, or pass local JSONL files."
    what = f"retrieval data {name}"
    root = fetch_snapshot(REPOSITORY, [wanted], what=what, revision=REVISION, repo_type=DATASET, hint=hint)
    files = sorted(root.glob(wanted))
    if not files:
        raise Unreachable(f"{what} is not in the local cache and the hub cannot be reached", hint)
    return files
