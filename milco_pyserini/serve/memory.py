"""The memory of agents: an index of notes in any languages, which they write while they search it.

A note is one document of an exact index of passages, which has it on disk before remember() returns. Several programs
may share a memory: they write one after the other, and each finds the notes of all in its next search.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import structs

from milco_pyserini.corpora import Document, open_corpus
from milco_pyserini.corpora.languages import FIELD, detect_languages
from milco_pyserini.corpora.readers import ID_NAMES
from milco_pyserini.corpora.records import PASSAGE, PASSAGE_DELIMITER
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError, ParameterError, UnknownDocument, shown
from milco_pyserini.explain.terms import Term
from milco_pyserini.index.directory import Index, open_index
from milco_pyserini.index.exact import Exact
from milco_pyserini.index.update import locked_index
from milco_pyserini.index.vectors import BatchDocuments
from milco_pyserini.index.weights import TermImpacts
from milco_pyserini.io.files import is_taken
from milco_pyserini.io.manifest import MANIFEST, write_checked
from milco_pyserini.request import Balance
from milco_pyserini.serve.service import SearchResponse, SearchService, served_request
from milco_pyserini.sparse import SOURCE, SparseBatch

MAX_NOTE_CHARACTERS = 20_000
# Notes per language, on average, from which their scores are balanced.
MIN_BALANCED = 10
# The careful one: the only note of a language keeps half of its score.
_STRENGTH = 0.5
# Terms of a reason.
_TERMS = 4
_ID_BYTES = 8
_RESERVED = (*ID_NAMES, "title", "text", "contents", "raw", "vector")


def open_memory(path: str | Path, encoder: str | Path | None = None) -> Index:
    """Return the index of a memory; a new one, without notes, if there is none.

    Args:
        encoder: of a new memory: name or directory (default: mini, which needs no download).

    Raises:
        MilcoError: the path holds anything else, or the encoder is not available.
    """
    path = Path(path)
    # Reports a missing detector now, and not with the first note.
    list(detect_languages([]))
    if not is_taken(path):
        from milco_pyserini.encode.opening import open_encoder
        from milco_pyserini.model.checkpoint import Checkpoint

        loaded = open_encoder(Checkpoint.open(encoder or MINI).fetch(), "cpu", "auto")
        nothing = SparseBatch.from_dicts([], loaded.vocabulary)
        with locked_index(path):
            if not is_taken(path):
                Index.build(nothing, path, Exact(), ids=[], encoder=loaded, store_documents=True)
    with locked_index(path):
        index = open_index(path)
        if index.manifest.engine != Exact.name or index.manifest.fields is None or index.shards:
            fix = "Choose another directory, which need not exist."
            raise MilcoError(f"{path} is not a memory, which is an index of engine exact with its documents", fix)
        if not (index.manifest.detects_languages and index.vectors.split_passages):
            with index.searcher() as searcher:
                ambiguous = next(filter(PASSAGE.search, searcher.matching({})), None)
            if ambiguous is not None:
                fix = "Delete it by milco index update, and add it with another id."
                raise MilcoError(
                    f"{path} has a note {shown(ambiguous)}: the ids of passages end in # and a number", fix
                )
            vectors = structs.replace(index.vectors, split_passages=True)
            manifest = structs.replace(index.manifest, detects_languages=True, vectors=vectors)
            write_checked(path / MANIFEST, manifest)
            index = Index(path, manifest)
    return index


def note_id(text: str, fields: Mapping[str, Any]) -> str:
    """Return the id of a note: the same for the same text and fields, so that a repeated call adds no second note."""
    content = json.dumps([text, fields], sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=_ID_BYTES).hexdigest()


class Memory:
    """Remembers, recalls and forgets notes. Its methods are coroutines of the service's event loop.

    service: answers searches of the memory's index.
    """

    def __init__(self, service: SearchService) -> None:
        self._service = service

    @property
    def _path(self) -> Path:
        return self._service.opened.primary.index.path

    async def remember(self, text: str, fields: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Add a note; return its id, its fields and the number of its passages. It is on disk then.

        Raises MilcoError if it cannot be found later.
        """
        note = _note(text, fields or {})
        added, passages = await self._service.run("encode", self._add, note)
        await self._service.refresh()
        return {"id": note.id, "passages": passages, "fields": dict(added.fields)}

    async def recall(self, query: str, k: int = 5, filters: Any = None) -> list[dict[str, Any]]:
        """Return the k best notes, each with a reason, and the text of its best passage.

        Languages are balanced once they have notes enough.
        """
        await self._service.refresh()
        request = served_request(k=k, filters=filters or {}, balance=self._balance(), max_passage=True)
        response = await self._service.search(query, request, is_read=False)
        why = await self.reasons(response)
        notes = []
        for found in response.hits:
            note: dict[str, Any] = {"id": found.hit.docid, **found.hit.to_json(), "why": why[found.hit.docid]}
            del note["docid"], note["title"]
            notes.append(note)
        return notes

    async def forget(self, docid: str | None = None, filters: Any = None) -> list[str]:
        """Remove a note, or all that pass filters; return their ids. Raises MilcoError unless one of both is given."""
        if (docid is None) == (not filters):
            raise MilcoError("forget takes either the id of a note or filters")
        await self._service.refresh()
        searcher = self._service.opened.primary.engine_searcher
        if docid is None:
            passages = searcher.matching(served_request(filters=filters).filters)
            docids = list(dict.fromkeys(PASSAGE.sub("", passage) for passage in passages))
        elif all(searcher.weights(name, ()) is None for name in (docid, f"{docid}{PASSAGE_DELIMITER}0")):
            raise UnknownDocument(f"the memory has no note {shown(docid)}")
        else:
            docids = [docid]
        if docids:
            await self._service.run("encode", open_index(self._path).delete, docids)
            await self._service.refresh()
        return docids

    async def reasons(self, response: SearchResponse) -> dict[str, str]:
        """Return a line for each hit: the terms that it shares with the query, and their shares of its score."""
        opened = self._service.opened
        opened.retain()
        try:
            return await self._service.run("search", _reasons, opened.primary, response)
        finally:
            opened.release()

    def _balance(self) -> Balance | None:
        searcher = self._service.opened.primary.engine_searcher
        if FIELD not in (searcher.fields or {}):
            return None
        balance, counts = Balance(FIELD, _STRENGTH), searcher.values(FIELD) or {}
        try:
            searcher.validate_balance(balance)
        except MilcoError:
            return None
        return balance if sum(counts.values()) >= MIN_BALANCED * len(counts) else None

    def _add(self, note: Document) -> tuple[Document, int]:
        (note,) = detect_languages([note])
        index, encoder = open_index(self._path), self._service.opened.encoder.encoder
        length = index.vectors.max_length or encoder.config.passage_max_length
        (passages,) = encoder.tokenizer.passages([note.text], length)
        vectors = replace(encoder.network.encode(passages, encoder.views), vocabulary=encoder.vocabulary)
        if not vectors.lengths()[0]:
            raise ParameterError("text", shown(note.text), "has no term by which it could be found")
        if all(len(vectors.view(view).columns) for view in encoder.views):
            index.update(BatchDocuments(vectors, [note], encoder, [len(passages)]))
        else:
            # A batch is taken for one of the views in which it has terms.
            index.update([note], encoder=encoder)
        return note, len(passages)


def _note(text: str, fields: Mapping[str, Any]) -> Document:
    if not text.strip():
        raise ParameterError("text", None, "is empty")
    if len(text) > MAX_NOTE_CHARACTERS:
        raise MilcoError(f"the note has {len(text):,} characters: it may have up to {MAX_NOTE_CHARACTERS:,}")
    for name in _RESERVED:
        if name in fields:
            raise ParameterError("fields", name, "is a name that every note has of itself", "Choose another.")
    try:
        (note,) = open_corpus([Document(note_id(text, fields), "", text, fields)])
    except TypeError as error:
        raise MilcoError(str(error)) from None
    return note


def _reasons(primary: Any, response: SearchResponse) -> dict[str, str]:
    impacts = TermImpacts(primary.engine_searcher, primary.index)
    vocabulary, query = primary.query_encoder.encoder.vocabulary, impacts.query(dict(response.terms))
    names = {found.hit.docid: found.hit.passage or found.hit.docid for found in response.hits}
    weights = primary.engine_searcher.term_impacts(list(names.values()), list(query))
    reasons = {}
    for hit in (found.hit for found in response.hits):
        scores = {term: query[term] * weight for term, weight in weights.get(names[hit.docid], {}).items()}
        best = sorted(scores, key=lambda term: -scores[term])[:_TERMS]
        total = sum(scores.values())
        reasons[hit.docid] = ", ".join(f"{_shown_term(vocabulary, term)} {scores[term] / total:.0%}" for term in best)
    return reasons


def _shown_term(vocabulary: Any, term: str) -> str:
    """Return an English term as it is, and one of the note's own words in quotation marks."""
    known = Term.of(term, vocabulary)
    text = known.text.removeprefix("##")
    return f"“{text}”" if known.view == SOURCE else text
