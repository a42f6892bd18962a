"""Documents, queries and judgements through ir_datasets, which fetches them once and keeps them.

It is imported only when one of its names is opened. It logs to stderr.
"""

import logging
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

from milco_pyserini.corpora import names
from milco_pyserini.corpora.collection import OnBad
from milco_pyserini.corpora.records import BadLineError, Document, Query, record_id
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.qrels import Qrels

# What ir_datasets lets through when a file cannot be fetched (requests raises OSErrors), is not what its
# checksum says (OSError), is cut off, or does not hold what it should.
_FAILURES = (OSError, EOFError, RuntimeError, ValueError, KeyError, zlib.error)

# What it logs that our own error says better, or that nobody needs. Licences and what is finished stay.
_NOISE = ("download error", "Download failed", "Opening ", "If you have a local copy", "[starting]", "[error]")
# Its bars stand for work of hours or of nothing: before an error that comes at once there shall be none.
_SECONDS_WITHOUT_BAR = 3
# Ids that an error lists.
_SHOWN = 8


def dataset_ids() -> list[str]:
    """Every id that ir_datasets lists. Some families (clirmatrix) have more, known by pattern only."""
    import ir_datasets

    return list(ir_datasets.registry)


def is_dataset(identity: str) -> bool:
    """Whether ir_datasets knows this id."""
    import ir_datasets

    try:
        return bool(ir_datasets.load(identity))
    except KeyError:
        return False
    except OSError as error:  # the list of a family's members may have to be fetched
        raise _unreadable(identity, error) from error


def published(identity: str, entity: str) -> int | None:
    """How many docs, queries or qrels (entity) an id has, as ir_datasets has noted; None where it has not."""
    import ir_datasets

    return (ir_datasets.load(identity).metadata().get(entity) or {}).get("count")


class DatasetDocuments:
    """The documents of an ir_datasets id.

    Where title and text are what the data set itself takes for a document's text, they are kept apart;
    elsewhere the text is its default_text(), whatever the fields are called.
    """

    def __init__(self, identity: str) -> None:
        self._identity = identity
        self._dataset = _load(identity, "docs", "documents")
        fields = self._dataset.docs_cls()
        if not hasattr(fields, "default_text"):
            raise MilcoError(f"{identity} is no text collection: its documents are {fields.__name__}")
        self._titled = {"title", "text"} <= set(fields._fields) and (
            fields(*fields._fields).default_text() == "title text"
        )
        self.field_rule = "title + ' ' + text" if self._titled else "default_text of ir_datasets"

    def read(self, bad: OnBad) -> Iterator[tuple[str, int, Document]]:
        """Yield (ir_datasets id, position from 1, document)."""
        for position, fields in enumerate(_read(self._identity, self._dataset.docs_iter), start=1):
            try:
                identity = record_id(fields.doc_id)
            except BadLineError as error:
                bad(self._identity, position, str(error))
                continue
            if self._titled:
                document = Document(identity, fields.title or "", fields.text or "")
            else:
                document = Document(identity, "", fields.default_text())
            yield self._identity, position, document


class DatasetQueries:
    """The queries of an ir_datasets id; the text is their default_text(), a TREC topic's title."""

    field_rule = "default_text of ir_datasets"

    def __init__(self, identity: str) -> None:
        self._identity = identity
        self._dataset = _load(identity, "queries", "topics")

    def read(self, bad: OnBad) -> Iterator[tuple[str, int, Query]]:
        """Yield (ir_datasets id, position from 1, query)."""
        for position, fields in enumerate(_read(self._identity, self._dataset.queries_iter), start=1):
            try:
                identity = record_id(fields.query_id)
            except BadLineError as error:
                bad(self._identity, position, str(error))
                continue
            yield self._identity, position, Query(identity, fields.default_text())


def dataset_qrels(identity: str) -> Qrels:
    """The judgements of an ir_datasets id. Where a pair is judged twice the last counts, as in ir_measures."""
    qrels: Qrels = {}
    for judgement in _read(identity, _load(identity, "qrels", "judgements").qrels_iter):
        qrels.setdefault(judgement.query_id, {})[judgement.doc_id] = judgement.relevance
    return qrels


def _load(identity: str, entity: str, word: str) -> Any:
    import ir_datasets

    _keep_quiet()
    dataset = ir_datasets.load(identity)
    if not dataset.has(entity):
        below = [name for name in dataset_ids() if name.startswith(f"{identity}/")]
        have = [name for name in below if ir_datasets.load(name).has(entity)]
        more = f" and {len(have) - _SHOWN} more" if len(have) > _SHOWN else ""
        hint = f"; these have: {', '.join(have[:_SHOWN])}{more}" if have else ""
        raise MilcoError(f"{identity} of ir_datasets has no {word}{hint}")
    return dataset


def _read(identity: str, start: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    try:
        yield from start()
    except _FAILURES as error:
        raise _unreadable(identity, error) from error


@cache
def _keep_quiet() -> None:
    import ir_datasets
    import tqdm

    class LateBar(tqdm.tqdm):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, delay=_SECONDS_WITHOUT_BAR, **named)

    ir_datasets.lazy_libs.tqdm = lambda: SimpleNamespace(tqdm=LateBar)
    logging.getLogger("ir_datasets").addFilter(_not_noise)


def _not_noise(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_NOISE)


def _unreadable(identity: str, error: BaseException) -> MilcoError:
    from ir_datasets.util import home_path

    if isinstance(error, RuntimeError) and len(error.args) == 2:  # every mirror failed: tell of the last
        error = error.args[1][-1][1]
    home, family = home_path(), identity.split("/")[0]
    other = f"set IR_DATASETS_HOME to use another folder than {home}"
    request = getattr(error, "request", None)
    if request is not None:
        answer = getattr(error, "response", None)
        why = "could not be reached" if answer is None else f"answers {answer.status_code} {answer.reason}"
        named = identity in {*names.CORPORA.values(), *names.TOPICS.values()}
        files = "give a copy of the publisher's files as NAME@PATH, or " if named else ""
        return MilcoError(
            f"{identity} cannot be fetched: {request.url} {why}. With a network the same command fetches it; "
            f"without, {files}copy {home / family} from a machine that has it ({other})"
        )
    if isinstance(error, FileNotFoundError):
        return MilcoError(
            f"{identity} is not free to fetch: {error.filename or error} has to be put there by hand, as "
            f"https://ir-datasets.com/{family}.html#DataAccess explains ({other})"
        )
    if isinstance(error, OSError) and error.errno:
        return MilcoError(f"{identity} cannot be kept in {home}: {error.strerror} ({other})")
    return MilcoError(
        f"{identity} cannot be read: {error or type(error).__name__}. Remove the damaged file in "
        f"{home / family}, and the same command fetches it again"
    )
