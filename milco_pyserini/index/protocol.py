"""The engine protocol: build an index of documents, open it, search it.

Documents and queries are weighted terms. An engine has build() and open(), and update() if it can; it owns its
settings: they are its fields.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from milco_pyserini.encode.devices import require_devices
from milco_pyserini.errors import MilcoError, ParameterError, unknown_name
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
from milco_pyserini.index.hits import BalanceTerm, Groups, Hits, merge_hits
from milco_pyserini.io.manifest import intact
from milco_pyserini.io.records import IndexManifest
from milco_pyserini.model.checkpoint import Checkpoint
from milco_pyserini.options import validate_number
from milco_pyserini.registry import Registry
from milco_pyserini.request import Balance, GivenFilters, SearchRequest

if TYPE_CHECKING:
    from milco_pyserini.corpora import Document
    from milco_pyserini.encode.encoder import MilcoEncoder

_LARGEST_SCORE = float(np.finfo(np.float32).max)
EXACT_INTEGER, EXACT_FLOAT, APPROXIMATE = "exact integer", "exact float", "approximate"
# When a setting applies. Settings of builds and searches are numbers, in the manifest by name. Settings of the content
# are other fields of the manifest.
BUILD, SEARCH, CONTENT = "build", "search", "content"
# A field with more values than there are languages, most of them in one document each, is not one to balance.
_MOST_LANGUAGES = 500
# A closed index still states these about itself.
_KEPT = {"engine", "path", "num_documents", "fields", "is_closed"}


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
            request: of its options, an engine uses k, threads, filters, balance and approximate.

        Raises:
            MilcoError: the index is closed or stores no such field, a range is not possible, a score is beyond the
                range of float32, the engine cannot balance or only searches exactly, or its library fails.
        """
        self.require_open()
        if request.balance is not None:
            self.validate_balance(request.balance)
        if request.approximate:
            # Steps need more hits than a user may ask for.
            self.validate_approximate(1)
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
            self._wanted(request.filters)
        if request.balance is not None:
            self.validate_balance(request.balance)
        if request.approximate:
            self.validate_approximate(request.k)

    def validate_approximate(self, k: int) -> None:
        """Raise MilcoError if the index has exact searches only, or if an approximate one returns fewer than k hits."""
        self.require(Capability.APPROXIMATE, "approximate", True)

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
        wanted = self._resolve(filters)
        with engine_errors(self.engine, "search", self.path):
            return self.find_matching(wanted)

    def find_matching(self, filters: Filters) -> list[str]:
        """Implement matching(): filters by values only."""
        raise NotImplementedError

    def _resolve(self, filters: Mapping[str, Any]) -> dict[str, Any]:
        """Return filters by values only: for a range that the engine does not take, those in it."""
        return {
            name: values_in_range(name, given, (self.fields or {})[name], self.values(name))
            if isinstance(given, dict) and (self.fields or {})[name] not in self.ranged
            else given
            for name, given in self._wanted(filters).items()
        }

    def _wanted(self, filters: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return filters in the types of the fields. Raises MilcoError if the index stores no such field."""
        if filters:
            self.require(Capability.STORE, "filters", list(filters))
        return validate_filters(filters, self.fields, self.path)

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

    def require(self) -> None:
        """Raise MilcoError for a device or an encoder that this machine lacks. Call it before an index is opened."""
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
    BUILD there is build(), which with STORE stores documents.corpus; with UPDATE there is update(). tuned: of two
    settings of approximate searches, the values that milco index tune tries, each from fast to thorough. changes_files:
    update() changes files, and does not only add and remove them. replaces_passages: update() finds all passages of a
    document, so that texts that are split can be added.
    scanned: pattern (fnmatch) of the files that the engine's library finds by their names, whether a manifest lists
    them or not; "" for none. may_be_empty: an index may hold no document.
    """

    name: ClassVar[str]
    exactness: ClassVar[str]
    record: ClassVar[type[IndexManifest]] = IndexManifest
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.BUILD})
    tuned: ClassVar[Mapping[str, tuple[float, ...]]] = MappingProxyType({})
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
