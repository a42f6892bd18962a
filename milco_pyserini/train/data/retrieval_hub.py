"""The paper's sixteen training sets for contrastive training (SCT), from the Hugging Face hub.

They are subsets of one dataset that was made to train bge-multilingual-gemma2 (arXiv:2409.15700) and have the paper's
numbers of rows. The hub's own Parquet copy is downloaded, half the size of the JSONL: CONFIG/train/*.parquet, or
CONFIG/LANG_train/*.parquet for several languages. Columns: query, pos, neg, pos_scores, neg_scores (teacher: a BGE
reranker); others, such as prompt, are not read.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from milco_pyserini.console import counted, log
from milco_pyserini.corpora.benchmarks.irds import MIRACL_SPLITS, MRTYDI_LANGUAGES
from milco_pyserini.corpora.records import BadLineError
from milco_pyserini.errors import Unreachable, unknown_name
from milco_pyserini.io.hub import DATASET, fetch_snapshot
from milco_pyserini.train.data.retrieval import RetrievalExample, RetrievalSource, RetrievalStats, read_example

REPOSITORY = "hanhainebula/bge-multilingual-gemma2-data"
REVISION = "refs/convert/parquet"
# The authors' name for all sixteen (train_datasets in their script).
ALL = "bge"

_COLUMNS = ("query", "pos", "neg", "pos_scores", "neg_scores")
_ROWS_AT_A_TIME = 256
_HINT = "Run the same command once with a network, or pass local JSONL files."


class RetrievalCollection(NamedTuple):
    """A subset of REPOSITORY. queries: the paper's count."""

    config: str
    languages: tuple[str, ...]
    queries: int


# By the names of the paper's table.
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
    "multilingual_mrtydi": RetrievalCollection("multilingual_mrtydi", tuple(MRTYDI_LANGUAGES), 48_729),
    "multilingual_miracl": RetrievalCollection("multilingual_miracl", tuple(MIRACL_SPLITS["train"]), 40_203),
    "en_fever-fever": RetrievalCollection("en_fever", ("en",), 29_096),
    "en_fiqa": RetrievalCollection("en_fiqa", ("en",), 5_500),
    "en_arguana": RetrievalCollection("en_arguana", ("en",), 4_065),
    "en_scidocs": RetrievalCollection("en_scidocs", ("en",), 884),
}


class HubRetrieval:
    """One language of a collection, downloaded to the hub's cache when it is first read."""

    def __init__(self, name: str, language: str) -> None:
        collection = COLLECTIONS[name]
        monolingual = len(collection.languages) == 1
        self.name = name if monolingual else f"{name}.{language}"
        self.language = language
        self._pattern = f"{collection.config}/{'train' if monolingual else f'{language}_train'}/*.parquet"

    def stats(self) -> RetrievalStats:
        """Return the number of rows from the files' metadata; all rows have negatives and scores."""
        from pyarrow.parquet import ParquetFile

        return RetrievalStats(sum(ParquetFile(path).metadata.num_rows for path in self._files))

    def size(self) -> int:
        """Return the number of rows."""
        return self.stats().examples

    def examples(self) -> Iterator[RetrievalExample]:
        """Yield every example, file by file. Rows without a query or a passage are skipped and reported."""
        from pyarrow.parquet import ParquetFile

        skipped: list[str] = []
        for path in self._files:
            file = ParquetFile(path)
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


def open_collection(name: str, languages: Sequence[str] | None = None) -> list[RetrievalSource]:
    """Return a source for each language of a collection, or of all sixteen ("bge"). Nothing is downloaded yet.

    Raises MilcoError for an unknown name. languages: keep only these.
    """
    if name != ALL and name not in COLLECTIONS:
        hint = "JSONL files and directories of them are accepted too."
        raise unknown_name("retrieval data", name, [ALL, *COLLECTIONS], hint)
    return [
        HubRetrieval(one, language)
        for one in (COLLECTIONS if name == ALL else (name,))
        for language in COLLECTIONS[one].languages
        if languages is None or language in languages
    ]
