"""The engine protocol: build an index of documents, open it, search it.

Documents and queries are weighted terms. An engine has build() and open(), and update() if it can; it owns its
settings: they are its fields.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.encode.devices import require_devices
from milco_pyserini.errors import MilcoError, ParameterError, installed_by, unknown_name
from milco_pyserini.index.capabilities import Capability, require
from milco_pyserini.index.documents import (
    MAX_VALUE_BYTES,
    MAX_VALUES,
    CheckedDocuments,
    Filters,
    field_type,
    filter_text,
    parse_document,
    validate_filters,
    values_in_range,
)
from milco_pyserini.index.errors import engine_errors
from milco_pyserini.io.manifest import intact
from milco_pyserini.io.records import IndexManifest
from milco_pyserini.model.checkpoint import Checkpoint
from milco_pyserini.options import validate_number
from milco_pyserini.registry import Registry
from milco_pyserini.request import Balance, GivenFilters, SearchRequest

if TYPE_CHECKING:
    import pandas

    from milco_pyserini.corpora import Document
    from milco_pyserini.encode.encoder import MilcoEncoder

_LARGEST_SCORE = float(np.finfo(np.float32).max)
EXACT_INTEGER, EXACT_FLOAT, APPROXIMATE = "exact integer", "exact float", "approximate"
# When a setting applies. Settings of builds and searches are numbers, in the manifest by name. Settings of the content
# are other fields of the manifest.
BUILD, SEARCH, CONTENT = "build", "search", "content"
# Hits and characters of a text in a notebook's table, whose colors are the notebook's own, light or dark.
_SHOWN = 20
_CHARACTERS = 300
_HTML = """<div style="overflow-x: auto; overflow-wrap: anywhere">
<table>
<tr>{% for name in ("rank", "score", "share", "docid", "text") %}<th>{{ name }}</th>{% endfor %}</tr>
{% for cells, title, text in rows %}
<tr>{% for cell in cells %}<td>{{ cell }}</td>{% endfor %}

<td dir="auto" style="text-align: start">{% if title %}<b>{{ title }}</b> {% endif %}{{ text }}</td></tr>
{% endfor %}
</table>
{% for note in notes %}<p>{{ note }}</p>{% endfor %}
</div>"""
# A field with more values than there are languages, most of them in one document each, is not one to balance.
_MOST_LANGUAGES = 500
# A closed index still states these about itself.
_KEPT = {"engine", "path", "num_documents", "fields", "is_closed"}


DocStore = Callable[[Sequence[str]], "Mapping[str, Document]"]
"""Returns the available documents of docids."""


class IndexHit(NamedTuple):
    """Rank (from 1) and score of a document in one fused index."""

    rank: int
    score: float


@dataclass(frozen=True)
class Hit:
    """One document of a ranking."""

    docid: str
    score: float
    ranking: InitVar["Hits | None"] = None

    def __post_init__(self, ranking: "Hits | None") -> None:
        object.__setattr__(self, "_ranking", ranking)

    @cached_property
    def document(self) -> "Document | None":
        """The document; None if the index does not store it. All documents of the ranking are read at once."""
        ranking: Hits | None = vars(self)["_ranking"]
        return None if ranking is None else ranking.documents.get(self.docid)

    @cached_property
    def share(self) -> float | None:
        """The share of the query's weight that is on terms of the document, in [0, 1].

        A score grows with the query, this does not: a document that has little to do with the query matches little of
        it. None if the index cannot be read (seismic), or if queries are texts. The shares of all
        documents of the ranking are read at once.
        """
        ranking: Hits | None = vars(self)["_ranking"]
        return None if ranking is None else ranking.shares.get(self.docid)

    @cached_property
    def passage(self) -> str | None:
        """The id of the document's best passage, in a ranking of documents by their best passage; otherwise None."""
        ranking: Hits | None = vars(self)["_ranking"]
        return None if ranking is None or ranking.passages is None else ranking.passages[self.docid]

    @cached_property
    def by_index(self) -> Mapping[str, IndexHit]:
        """Rank and score in each index that returned the document, by its path; empty unless rankings were fused."""
        ranking: Hits | None = vars(self)["_ranking"]
        found = {}
        for name, hits in () if ranking is None else ranking.by_index.items():
            if self.docid in hits.docids:
                place = hits.docids.index(self.docid)
                found[name] = IndexHit(place + 1, float(hits.scores[place]))
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: what is known of the document instead of the ranking."""
        known = {"document": self.document, "share": self.share, "passage": self.passage, "by_index": self.by_index}
        return {"docid": self.docid, "score": self.score, **known}

    @property
    def title(self) -> str | None:
        """The title of the document, "" if it has none; None if the index does not store it."""
        return None if self.document is None else self.document.title

    @property
    def text(self) -> str | None:
        """Title and text of the document; None if the index does not store it."""
        return None if self.document is None else self.document.contents

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of the document; none if the index does not store it."""
        return {} if self.document is None else self.document.fields


@dataclass(frozen=True, eq=False)
class Hits(Sequence[Hit]):
    """The ranking of one query: best first, ties in ascending order of docid.

    Iterate or index it for Hit objects: `hits[0].docid`, `hits[0].score`, `hits[0].text`.

    Args:
        docids: k' strings, k' <= k.
        scores: float [k'], never increasing; > 0, unless languages are balanced.
        lookup: where the documents are read when they are first asked for; None without documents.
        total: number of documents that have a term of the query and pass the filters; None if the engine does not count
            them.
        shares_of: returns the shares of docids, read when one is first asked for; None if shares are not known.
        values_of: returns the values of the field of a search with `distinct`; None if the index does not store it.
        passages: docid -> id of the best passage, of documents that are ranked by it.
        by_index: of fused rankings; path of each index -> its ranking.
    """

    docids: list[str]
    scores: NDArray[np.floating]
    lookup: DocStore | None = field(default=None, repr=False, compare=False)
    total: int | None = field(default=None, compare=False)
    shares_of: Callable[[Sequence[str]], Mapping[str, float]] | None = field(default=None, repr=False, compare=False)
    values_of: Callable[[Sequence[str]], Mapping[str, Sequence[str]]] | None = field(
        default=None, repr=False, compare=False
    )
    passages: Mapping[str, str] | None = field(default=None, repr=False, compare=False)
    by_index: "Mapping[str, Hits]" = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.docids)

    @overload
    def __getitem__(self, position: SupportsIndex) -> Hit: ...

    @overload
    def __getitem__(self, position: slice) -> "Hits": ...

    def __getitem__(self, position: Any) -> Any:
        """Return a Hit; for a slice, Hits."""
        if isinstance(position, slice):
            return replace(self, docids=self.docids[position], scores=self.scores[position])
        return Hit(self.docids[position], float(self.scores[position]), self)

    def __iter__(self) -> Iterator[Hit]:
        return (Hit(docid, score, self) for docid, score in zip(self.docids, self.scores.tolist(), strict=True))

    @cached_property
    def documents(self) -> "Mapping[str, Document]":
        """The documents that are available, by docid, read when one is first asked for."""
        return {} if self.lookup is None else self.lookup(self.docids)

    @cached_property
    def shares(self) -> Mapping[str, float]:
        """Hit.share by docid, where it is known; read at the first use."""
        return {} if self.shares_of is None else self.shares_of(self.docids)

    def to_frame(self) -> "pandas.DataFrame":
        """Return a pandas.DataFrame: rank from 1, docid, score, share, title, text and the fields of the documents.

        If documents are ranked by their best passage, the column passage has its id. Raises MilcoError without pandas.
        """
        with installed_by("pandas"):
            import pandas
        columns = ["rank", "docid", "score", "share", *([] if self.passages is None else ["passage"]), "title", "text"]
        rows: list[dict[str, Any]] = []
        for rank, hit in enumerate(self, start=1):
            known = {name: getattr(hit, name) for name in ("docid", "score", "share", "passage", "title")}
            rows.append({**hit.fields, "rank": rank, **known, "text": hit.document and hit.document.text})
        fields = dict.fromkeys(name for row in rows for name in row if name not in ("passage", *columns))
        return pandas.DataFrame(rows, columns=[*columns, *fields])

    def _repr_html_(self) -> str:
        """A table of the first hits, for notebooks: rank, score, share, docid, title and the beginning of the text."""
        from jinja2 import Environment

        first, rows = self[:_SHOWN], []
        notes = [f"and {len(self) - len(first):,} more"] if len(self) > len(first) else []
        closed: MilcoError | None = None
        for rank, hit in enumerate(first, start=1):
            share = document = None
            try:
                if closed is None:
                    share, document = hit.share, hit.document
            except MilcoError as error:
                closed = error
                notes.append(f"no texts: {error}")
            score = f"{hit.score:,.0f}" if hit.score.is_integer() else f"{hit.score:,.4f}"
            text = "" if document is None else document.text
            text = text if len(text) <= _CHARACTERS else text[:_CHARACTERS] + "…"
            cells = (rank, score, "" if share is None else f"{share:.0%}", hit.docid)
            rows.append((cells, document and document.title, text))
        return Environment(autoescape=True).from_string(_HTML).render(rows=rows, notes=notes)


def merge_hits(rankings: Sequence[Hits], k: int) -> Hits:
    """Return the k best of the hits of several rankings, of different documents."""
    docids = [docid for hits in rankings for docid in hits.docids]
    scores = np.concatenate([hits.scores for hits in rankings])
    kept: Sequence[int] = range(len(docids))
    if len(docids) > k:
        # All that tie with the last one: docids decide.
        kept = np.flatnonzero(scores >= np.partition(scores, -k)[-k]).tolist()
    best = sorted(zip((-scores[kept]).tolist(), [docids[place] for place in kept], kept, strict=True))[:k]
    totals = [hits.total for hits in rankings if hits.total is not None]
    total = sum(totals) if len(totals) == len(rankings) else None
    return Hits([docid for _, docid, _ in best], scores[[place for _, _, place in best]], total=total)


class GroupHits(NamedTuple):
    """The ranking of a query among the documents that have one value of a field.

    sum, size: the sum of the scores of all documents of the group, also of those that do not pass the filters, and
    their number.
    """

    hits: Hits
    sum: float
    size: int

    @property
    def mean(self) -> float:
        """The mean score of all documents of the group."""
        return self.sum / self.size if self.size else 0.0

    def balanced(self, strength: float) -> Hits:
        """Return the hits with strength x the mean score subtracted from each score."""
        return replace(self.hits, scores=self.hits.scores.astype(np.float64) - strength * self.mean)


Groups = Mapping[str, GroupHits]
"""Value of a field -> the ranking of its documents; "" for those that have none."""


@dataclass(frozen=True)
class BalanceTerm:
    """The summand of a balanced search: -strength x the mean score of the document's group.

    value: that of the balanced field; "" for documents that have none.
    """

    field: str
    value: str
    strength: float
    mean: float

    @property
    def score(self) -> float:
        """The summand, <= 0."""
        return -self.strength * self.mean

    def __str__(self) -> str:
        documents = f"{self.field}={self.value}" if self.value else f"documents without {self.field}"
        return f"{'' if self.strength == 1 else f'{self.strength:g} x '}the mean score of {documents}"

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {**vars(self), "score": self.score}


@dataclass(frozen=True)
class BuildResult:
    """The number of documents that an index holds, and of those without a term, which it leaves out."""

    documents: int
    empty: int


class EngineSearcher:
    """An open index. Engines implement find(), and stored() and count_values() if they store documents; everyone else
    calls search() or rank(), documents(), values() and weights(), in as many threads as they like, and close() in the
    end.
    """

    fields: Mapping[str, str] | None = None
    """The type of each stored field, by which searches can filter; None if the index stores no documents."""

    ranged: frozenset[str] = frozenset()
    """Types of the fields of which find() takes ranges; it is given the values in the others."""

    is_closed = False

    def __init__(self, engine: str, path: Path, documents: int) -> None:
        self.engine = engine
        self.path = path
        self.num_documents = documents
        self._values: dict[str, Mapping[str, int] | None] = {}

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities of the engine: with BALANCE find_groups() is implemented, with READ weights()."""
        return ENGINES[self.engine].capabilities

    def require(self, capability: Capability, parameter: str, value: Any) -> None:
        """Raise ParameterError unless the engine has a capability. parameter, value: what needs it."""
        require(capability, f"engine {self.engine}", self.capabilities, ENGINES, parameter, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files and free the memory; a second call has no effect. No thread may be searching."""
        if self.is_closed:
            return
        self.is_closed = True
        self.release()
        # Mapped files are closed with the last reference to them.
        for name in vars(self).keys() - _KEPT:
            delattr(self, name)

    def release(self) -> None:
        """Close what does not close itself when it is freed. For engines to implement."""

    def ping(self) -> None:
        """Raise Unreachable unless the engine can answer."""

    def require_open(self) -> None:
        """Raise MilcoError if the index is closed."""
        if self.is_closed:
            raise MilcoError(f"{self.path} is closed: open it again")

    def search(
        self,
        queries: Sequence[Any],
        k: int,
        *,
        threads: int = 1,
        filters: GivenFilters | None = None,
        balance: Balance | str | None = None,
    ) -> list[Hits]:
        """Return the k best documents of each query, as rank() does."""
        return self.rank(queries, SearchRequest.of(k, {"threads": threads, "filters": filters, "balance": balance}))

    def rank(self, queries: Sequence[Any], request: SearchRequest) -> list[Hits]:
        """Return the k best documents of each query, in the order of the queries.

        Queries are {term: weight}. Terms that the index does not have are ignored; a query without terms has no hits.

        Args:
            request: of its options, an engine uses k, threads, filters and balance.

        Raises:
            MilcoError: the index is closed or stores no such field, a range is not possible, a score is beyond the
                range of float32, the engine cannot balance, or its library fails.
        """
        self.require_open()
        self.validate(request)
        if request.filters or request.k > self.num_documents:
            k = max(1, min(request.k, self.num_documents))
            request = replace(request, k=k, filters=self._resolve(request.filters))
        if not all(request.filters.values()):
            # No document has a value in the range.
            return [Hits([], np.empty(0, np.float32), total=0) for _ in range(len(queries))]
        with engine_errors(self.engine, "search", self.path):
            if (balance := request.balance) is not None:
                found = self.find_groups(queries, request, balance.field)
                rankings = [
                    merge_hits([group.balanced(balance.strength) for group in groups.values()], request.k)
                    for groups in found
                ]
            else:
                rankings = self.find(queries, request)
        for hits in rankings:
            # The first score is the largest. Negated, so that NaN is an error, too.
            if len(hits) and not abs(hits.scores[0]) <= _LARGEST_SCORE:
                raise MilcoError(
                    f"{self.path}: a query has the score {hits.scores[0]:g}, beyond the range of 32-bit floats: divide "
                    "the weights of all queries by the same number, which leaves rankings as they are"
                )
        return rankings

    def find(self, queries: Sequence[Any], request: SearchRequest) -> list[Hits]:
        """Implement rank(): the k <= num_documents best, by plain scores, of the documents that pass the filters.

        Filters are {field: values}, or ranges of the types of field in `ranged`.
        """
        raise NotImplementedError

    def validate(self, request: SearchRequest) -> None:
        """Raise MilcoError if the index stores no such field, or cannot balance."""
        if request.filters:
            self.require(Capability.STORE, "filters", list(request.filters))
            validate_filters(request.filters, self.fields, self.path)
        if request.balance is not None:
            self.validate_balance(request.balance)

    def values(self, field: str) -> Mapping[str, int] | None:
        """Return how many documents have each value of a stored field; None if it has too many different values.

        They are counted at the first call. Raises MilcoError if the index is closed or stores no such field.
        """
        self.require_open()
        if field not in self._values:
            field_type(field, self.fields, self.path)
            with engine_errors(self.engine, "search", self.path):
                counts = self.count_values(field, MAX_VALUES + 1)
            self._values[field] = counts if counts is not None and len(counts) <= MAX_VALUES else None
        return self._values[field]

    def count_values(self, field: str, limit: int) -> Mapping[str, int] | None:
        """Implement values(); for more than this number of values, some of them, or None, are enough."""
        raise NotImplementedError

    def matching(self, filters: Mapping[str, Any]) -> list[str]:
        """Return the ids of all documents that pass filters, as validate_filters() returns them (exact)."""
        self.require_open()
        self.require(Capability.STORE, "filters", list(filters))
        wanted = self._resolve(filters)
        with engine_errors(self.engine, "search", self.path):
            return self.find_matching(wanted)

    def find_matching(self, filters: Filters) -> list[str]:
        """Implement matching(): filters by values only."""
        raise NotImplementedError

    def _resolve(self, filters: Mapping[str, Any]) -> dict[str, Any]:
        """Return filters by values only: for a range that the engine does not take, those in it."""
        wanted = validate_filters(filters, self.fields, self.path)
        return {
            name: values_in_range(name, given, (self.fields or {})[name], self.values(name))
            if isinstance(given, dict) and (self.fields or {})[name] not in self.ranged
            else given
            for name, given in wanted.items()
        }

    def bm25(self) -> "EngineSearcher":
        """Return a searcher of the stored texts, whose queries are texts. Raises MilcoError if the engine has none."""
        self.require(Capability.HYBRID, "hybrid", True)
        raise NotImplementedError

    def find_groups(self, queries: Sequence[Any], request: SearchRequest, field: str) -> Sequence[Groups]:
        """Return hits as find() does for each value of a field, for rank() with a balance."""
        raise NotImplementedError

    def validate_balance(self, balance: Balance) -> None:
        """Raise MilcoError if the index cannot be searched with a balance."""
        self.require(Capability.BALANCE, "balance", balance.field)
        error = partial(ParameterError, "balance", balance.field)
        kind = field_type(balance.field, self.fields, self.path, "balance")
        rule = "balance needs a field with one value per document, which many documents share, such as a language"
        if kind not in ("string", "boolean"):
            raise error(f"the type of its values is {kind}: {rule}")
        counts = self.values(balance.field)
        if counts is None:
            raise error(f"it has over {MAX_VALUES:,} different values in {self.num_documents:,} documents: {rule}")
        if len(counts) > _MOST_LANGUAGES and 2 * len(counts) > (total := sum(counts.values())):
            having = f"the {total:,} of {self.num_documents:,} documents that have it"
            raise error(f"it has {len(counts):,} different values in {having}: {rule}")

    def balance_terms(self, query: Any, docids: Sequence[str], balance: Balance) -> dict[str, BalanceTerm]:
        """Return the summand of rank() with a balance for each document; missing documents are left out."""
        self.require_open()
        self.validate_balance(balance)
        with engine_errors(self.engine, "search", self.path):
            (groups,) = self.find_groups([query], SearchRequest(1), balance.field)
        values = {docid: "".join(texts) for docid, texts in self.field_values(docids, balance.field).items()}
        return {
            docid: BalanceTerm(balance.field, value, balance.strength, groups[value].mean)
            for docid, value in values.items()
        }

    def field_values(self, docids: Sequence[str], field: str) -> Mapping[str, tuple[str, ...]]:
        """Return the values of a stored field of each document, as texts by which filters find them, in their order.

        Several of a list, () of a document without the field, or with a value that is too long for filters. Documents
        that the index lacks are left out. Raises MilcoError if the index is closed or stores no such field.
        """
        self.require_open()
        field_type(field, self.fields, self.path, "return values")
        with engine_errors(self.engine, "search", self.path):
            return self.find_values(docids, field)

    def find_values(self, docids: Sequence[str], field: str) -> dict[str, tuple[str, ...]]:
        """Implement field_values(), by default from stored documents."""
        found = {}
        for docid, document in self.documents(docids).items():
            value = document.fields.get(field, [])
            texts = set(map(filter_text, value if isinstance(value, list) else [value]))
            found[docid] = tuple(sorted(text for text in texts if len(text.encode()) <= MAX_VALUE_BYTES))
        return found

    def documents(self, docids: Sequence[str]) -> "Mapping[str, Document]":
        """Return the stored documents by docid; for a passage, its complete document."""
        self.require_open()
        if self.fields is None:
            return {}
        with engine_errors(self.engine, "search", self.path), intact(self.path, "stored documents"):
            parsed = {docid: parse_document(docid, raw) for docid, raw in self.stored(docids).items()}
            holders = {holder for holder in parsed.values() if isinstance(holder, str)}
            raws = self.stored(list(holders)) if holders else {}
            # A passage without text is the docid of the passage that holds it.
            for docid, document in parsed.items():
                if isinstance(document, str) and document in raws:
                    parsed[docid] = parse_document(docid, raws[document])
        return {docid: document for docid, document in parsed.items() if not isinstance(document, str)}

    def stored(self, docids: Sequence[str]) -> Mapping[str, str | bytes]:
        """Return the stored JSON of the documents; missing ones are left out."""
        raise NotImplementedError

    def weights(self, docid: str, terms: Sequence[str]) -> Mapping[str, float] | None:
        """Return what the index holds of a document for those of the terms that it has; None if it lacks the document.

        Impacts >= 1 where scores are sums of integers, otherwise float32 values, in the order in which a score adds up
        their products. For engines whose postings can be read; the others cannot be explained by themselves.
        """
        raise NotImplementedError

    def term_impacts(self, docids: Sequence[str], terms: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        """Return weights() of the documents; missing ones are left out. Servers are asked once."""
        found = ((docid, self.weights(docid, terms)) for docid in docids)
        return {docid: weights for docid, weights in found if weights is not None}


@dataclass(frozen=True)
class QueryOptions:
    """How to encode queries: options of Searcher.open()."""

    encoder: "str | Path | MilcoEncoder | None" = None
    device: str = "auto"
    dtype: str = "auto"
    alpha: float | None = None
    query_encoder: "str | Path | MilcoEncoder | None" = None

    def __post_init__(self) -> None:
        """Raise MilcoError for a device or an encoder that this machine lacks, before an index is opened."""
        require_devices(str(self.device))
        for name in (self.encoder, self.query_encoder):
            if isinstance(name, str | Path):
                Checkpoint.open(name)


DEFAULT_QUERIES = QueryOptions()


@dataclass(frozen=True)
class Engine:
    """One way to index and search, with its settings.

    Settings are the fields of an engine, each declared by option() with its range and what it is; the group is when it
    applies: BUILD, SEARCH (it may differ from search to search) or CONTENT. They have the names of the engine's paper.
    A value out of its range raises MilcoError.

    name: in the registry and in every manifest. exactness: EXACT_INTEGER, EXACT_FLOAT, or APPROXIMATE, whose
    recall is measured when an index is built. record: the type of the manifests of its indexes. capabilities: with
    BUILD there is build(), which with STORE stores documents.corpus; with UPDATE there is update(). changes_files:
    update() changes files, and does not only add and remove them. replaces_passages: update() finds all passages of a
    document, so that texts that are split can be added.
    scanned: pattern (fnmatch) of the files that the engine's library finds by their names, whether a manifest lists
    them or not; "" for none. may_be_empty: an index may hold no document.
    """

    name: ClassVar[str]
    exactness: ClassVar[str]
    record: ClassVar[type[IndexManifest]] = IndexManifest
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.BUILD})
    changes_files: ClassVar = False
    replaces_passages: ClassVar = False
    scanned: ClassVar = ""
    may_be_empty: ClassVar = False

    def __post_init__(self) -> None:
        for setting in dataclasses.fields(self):
            object.__setattr__(self, setting.name, _read_setting(setting, getattr(self, setting.name)))

    def require(self, capability: Capability, parameter: str, value: Any, hint: str = "") -> None:
        """Raise ParameterError unless the engine has a capability. parameter, value: what needs it."""
        require(capability, f"engine {self.name}", self.capabilities, ENGINES, parameter, value, hint)

    def available(self) -> None:
        """Raise MilcoError, with what is missing and how to get it, if the engine cannot work here."""

    def build(self, documents: CheckedDocuments, directory: Path, threads: int) -> BuildResult:
        """Write the index of documents into an empty directory."""
        raise NotImplementedError

    def update(self, documents: CheckedDocuments, directory: Path, threads: int) -> BuildResult:
        """Change the index in a directory. Its files are second names of another's unless the engine changes files.

        Documents replace those of the same id; documents.deleted are further ids to delete, once all have been read.
        Returns the number of documents that the index holds then, and of those among documents that have no term.
        """
        raise NotImplementedError

    def versions(self) -> dict[str, str]:
        """Return versions that a reader of the index may need to know, for its manifest."""
        return {}

    def open(self, directory: Path, manifest: IndexManifest) -> EngineSearcher:
        """Open what build() wrote. Raises MilcoError if files are missing."""
        raise NotImplementedError

    def settings(self, when: str) -> dict[str, Any]:
        """Return the settings of builds (BUILD), of searches (SEARCH) or of the content (CONTENT): {name: value}."""
        fields = dataclasses.fields(self)
        return {field.name: getattr(self, field.name) for field in fields if field.metadata.get("group") == when}

    def with_settings(self, settings: Mapping[str, Any], when: str | None = None) -> Self:
        """Return the engine with these settings, the others unchanged. A value may be its text.

        Args:
            when: the only settings that may change: SEARCH, once an index is built.

        Raises:
            MilcoError: the engine has no such setting, it may not change, or it is out of its range.
        """
        kinds = {field.name: field.metadata.get("group") for field in dataclasses.fields(self)}
        valid = [name for name, kind in kinds.items() if when in (None, kind)]
        for name, value in settings.items():
            if name in kinds and name not in valid:
                raise ParameterError(name, value, "it is fixed when the index is built", "Build it again.")
            if not valid:
                raise ParameterError(name, value, f"{self.name} has no settings{f' of a {when}' if when else ''}")
            if name not in valid:
                raise unknown_name(f"setting of {self.name}", name, valid)
        return dataclasses.replace(self, **settings)


ENGINES: Registry[Engine] = Registry("milco.engines", Engine)


def parse_settings(texts: Iterable[str]) -> dict[str, str]:
    """Return {name: text of the value} of settings NAME=VALUE, such as "n_postings=500", for Engine.with_settings()."""
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise MilcoError(f"{text!r} is not a setting", "Write NAME=VALUE, such as query_cut=10.")
        settings[name.strip().replace("-", "_")] = value.strip()
    return settings


def _read_setting(field: dataclasses.Field, value: Any) -> Any:
    """Return the value of a setting, or of its text, as it is stored. Raises MilcoError if it is out of its range."""
    if isinstance(field.default, bool):
        if str(value).lower() not in ("true", "false"):
            raise ParameterError(field.name, value, "must be true or false")
        return str(value).lower() == "true"
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(field.default, int) and not number.is_integer():
        raise ParameterError(field.name, value, "must be an integer")
    number = int(number) if isinstance(field.default, int) else number
    validate_number(field.name, number, *field.metadata["range"])
    return number
