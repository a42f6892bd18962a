"""Documents, queries and qrels of ir_datasets, which downloads them once and keeps them (IR_DATASETS_HOME).

The library is imported when one of its datasets is read. It logs to stderr.
"""

import logging
import re
import zlib
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, TypeVar

from milco_pyserini.corpora.collection import OnBad
from milco_pyserini.corpora.records import BadLineError, Document, Query, document_fields, record_id
from milco_pyserini.errors import MilcoError, Unreachable, require_package
from milco_pyserini.io.qrels import Qrels

T = TypeVar("T")

# ir_datasets raises these if a file cannot be downloaded (requests raises OSErrors), has another checksum (OSError), is
# truncated, or does not have the expected contents.
_FAILURES = (OSError, EOFError, RuntimeError, ValueError, KeyError, zlib.error)

# Log messages that our own error replaces, or that nobody needs. Licenses and finished downloads stay.
_NOISE = ("download error", "Download failed", "Opening ", "If you have a local copy", "[starting]", "[error]")
# No progress bar before an error that comes at once.
_SECONDS_WITHOUT_BAR = 3
_MAX_LISTED = 8


def is_installed() -> bool:
    """Return whether ir_datasets is installed, an extra."""
    return find_spec("ir_datasets") is not None


def dataset_ids() -> list[str]:
    """Return every id that ir_datasets lists. Some datasets (clirmatrix) have more, which follow a pattern."""
    if not is_installed():
        return []
    import ir_datasets

    return list(ir_datasets.registry)


def is_dataset(identity: str) -> bool:
    """Return True if ir_datasets is installed and knows this id."""
    if not is_installed():
        return False
    import ir_datasets

    try:
        return bool(ir_datasets.load(identity))
    except KeyError:
        return False
    except OSError as error:  # a list of ids may have to be downloaded
        raise _unreadable(identity, error) from error


class _DatasetPart:
    """One kind of data (docs, queries or qrels) of an ir_datasets id. Nothing is loaded before it is read."""

    entity = word = "qrels"

    def __init__(self, identity: str) -> None:
        self.identity = identity

    def published_size(self) -> int | None:
        """Return the size that ir_datasets has recorded, None if it has none."""
        require_package("ir_datasets", "ir-datasets", f"dataset {self.identity}")
        import ir_datasets

        return (ir_datasets.load(self.identity).metadata().get(self.entity) or {}).get("count")

    @cached_property
    def _dataset(self) -> Any:
        require_package("ir_datasets", "ir-datasets", f"dataset {self.identity}")
        import ir_datasets

        _silence()
        dataset = ir_datasets.load(self.identity)
        if not dataset.has(self.entity):
            below = [name for name in dataset_ids() if name.startswith(f"{self.identity}/")]
            have = [name for name in below if ir_datasets.load(name).has(self.entity)]
            more = f" and {len(have) - _MAX_LISTED} more" if len(have) > _MAX_LISTED else ""
            hint = f"These have: {', '.join(have[:_MAX_LISTED])}{more}." if have else ""
            raise MilcoError(f"{self.identity} of ir_datasets has no {self.word}", hint)
        return dataset

    def _rows(self) -> Iterator[Any]:
        start = getattr(self._dataset, f"{self.entity}_iter")
        try:
            yield from start()
        except _FAILURES as error:
            raise _unreadable(self.identity, error) from error

    def _records(self, make: Callable[[Any], T], bad: OnBad) -> Iterator[tuple[str, int, T]]:
        for position, row in enumerate(self._rows(), start=1):
            try:
                yield self.identity, position, make(row)
            except BadLineError as error:
                bad(self.identity, position, str(error))


class DatasetDocuments(_DatasetPart):
    """The documents of an ir_datasets id, as a RecordSource.

    Title and text stay separate if the dataset's default_text() joins them; otherwise the text is default_text(). All
    other values, such as a URL, are the document's fields.
    """

    entity, word = "docs", "documents"

    @cached_property
    def _text_names(self) -> str:
        """The default_text() of a document that holds the names of its fields; "" if it is not made of texts only."""
        fields = self._dataset.docs_cls()
        if not hasattr(fields, "default_text"):
            raise MilcoError(f"{self.identity} is not a text collection: its documents are {fields.__name__}")
        try:
            return fields(*fields._fields).default_text()
        except (AttributeError, TypeError):
            # Some fields are lists, such as the sections of an article.
            return ""

    @property
    def _titled(self) -> bool:
        return self._text_names == "title text"

    @property
    def field_rule(self) -> str:
        """How the text to encode is made from the dataset's fields."""
        return "title + ' ' + text" if self._titled else "default_text of ir_datasets"

    def read(self, bad: OnBad) -> Iterator[tuple[str, int, Document]]:
        """Yield (ir_datasets id, position from 1, document)."""
        titled, used = self._titled, ("doc_id", *re.findall(r"\w+", self._text_names))

        def document(row: Any) -> Document:
            title, text = (row.title, row.text) if titled else ("", row.default_text())
            return Document(record_id(row.doc_id), title or "", text or "", document_fields(row._asdict(), *used))

        yield from self._records(document, bad)


class DatasetQueries(_DatasetPart):
    """The queries of an ir_datasets id, as a RecordSource.

    The text is default_text(), a TREC topic's title, or the field "text" of queries without it.
    """

    entity, word = "queries", "topics"
    field_rule = "default_text of ir_datasets"

    def read(self, bad: OnBad) -> Iterator[tuple[str, int, Query]]:
        """Yield (ir_datasets id, position from 1, query)."""
        yield from self._records(lambda row: Query(record_id(row.query_id), self._text(row)), bad)

    def _text(self, fields: Any) -> str:
        if hasattr(fields, "default_text"):
            return fields.default_text()
        if hasattr(fields, "text"):
            return fields.text
        raise MilcoError(f"the topics of {self.identity} have no text, only {', '.join(fields._fields)}")


def dataset_qrels(identity: str) -> Qrels:
    """Return the qrels of an ir_datasets id. If a pair is judged twice, the last grade counts, as in ir_measures."""
    qrels: Qrels = {}
    for judgment in _DatasetPart(identity)._rows():
        qrels.setdefault(judgment.query_id, {})[judgment.doc_id] = judgment.relevance
    return qrels


@cache
def _silence() -> None:
    """Keep the library's log to what a user needs, and its progress bars to downloads that take a while."""
    import ir_datasets
    import tqdm

    class LateBar(tqdm.tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, delay=_SECONDS_WITHOUT_BAR, **options)

    ir_datasets.lazy_libs.tqdm = lambda: SimpleNamespace(tqdm=LateBar)
    logging.getLogger("ir_datasets").addFilter(lambda record: not record.getMessage().startswith(_NOISE))


def _unreadable(identity: str, error: BaseException) -> MilcoError:
    from ir_datasets.util import home_path

    if isinstance(error, RuntimeError) and len(error.args) == 2:  # every mirror failed: report the last one
        error = error.args[1][-1][1]
    home, dataset = home_path(), identity.split("/")[0]
    request, response = getattr(error, "request", None), getattr(error, "response", None)
    if request is not None and response is not None:
        return MilcoError(
            f"{identity} cannot be fetched: {request.url} answers {response.status_code} {response.reason}",
            f"Copy {home / dataset} from a machine that has it, or try again later.",
        )
    if request is not None:
        return Unreachable(
            f"{identity} is not in {home} and {request.url} cannot be reached",
            f"With a network the same command fetches it; without one, copy {home / dataset} from a machine that has "
            "it, set IR_DATASETS_HOME to a copy, or pass the path of the files.",
        )
    if isinstance(error, FileNotFoundError):
        return MilcoError(
            f"{identity} cannot be downloaded freely: {error.filename or error} is missing",
            f"Put it there as https://ir-datasets.com/{dataset}.html#DataAccess explains (IR_DATASETS_HOME changes "
            "the directory).",
        )
    if isinstance(error, OSError) and error.errno:
        return MilcoError(
            f"{identity} cannot be stored in {home}: {error.strerror}", "Set IR_DATASETS_HOME to another directory."
        )
    return MilcoError(
        f"{identity} cannot be read: {error or type(error).__name__}",
        f"Remove the damaged file in {home / dataset}; the same command fetches it again.",
    )
