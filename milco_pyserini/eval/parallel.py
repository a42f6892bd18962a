"""Find parallel texts: translations of each other, which are held out together and are relevant together."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.console import counted, log
from milco_pyserini.corpora import Corpus, Document
from milco_pyserini.corpora.languages import detect_languages
from milco_pyserini.corpora.records import PASSAGE_DELIMITER
from milco_pyserini.errors import MilcoError, ParameterError
from milco_pyserini.eval.known_items import language_of
from milco_pyserini.sparse import PIVOT, SparseBatch, VectorStore

# Cosine of two translations, at least: see docs/adapt.md.
LEAST_COSINE = 0.45
_ROWS = 1000


def read_parallel(corpus: Corpus, vectors: Path) -> dict[str, str]:
    """Return the groups of find_parallel() by a vector store. Raises MilcoError if it is not of this corpus, too."""
    store, checked = VectorStore.open(vectors), corpus.check()
    is_of_corpus = (store.manifest.corpus_hash, store.manifest.documents) == (checked.digest, checked.records)
    if not is_of_corpus or not (loaded := store.load())[1].view(PIVOT).columns.size:
        fix = f"Encode {corpus.name} with a MILCO checkpoint, without splitting documents, and pass that store."
        raise ParameterError("vectors", vectors, f"does not have the pivot views of {corpus.name}", fix)
    documents, (ids, batch) = list(detect_languages(corpus)), loaded
    rows = {docid: row for row, docid in enumerate(ids)}
    return find_parallel(documents, batch.take([rows[document.id] for document in documents]))


def find_parallel(documents: Sequence[Document], vectors: SparseBatch) -> dict[str, str]:
    """Return docid -> id of the first document of its group, for documents that have translations in the collection.

    Two documents in different languages are translations if each is the other's nearest in its language by the pivot
    views of their vectors, which are in the same order. The pairs are joined from the most similar on; a group has at
    most one document of a language. Raises MilcoError for passages, which cannot be held out with their translations.
    """
    if passage := next((one.id for one in documents if PASSAGE_DELIMITER in one.id), None):
        raise MilcoError(f"{passage} is a passage: translations are only found of documents that are not split")
    pivot, languages = vectors.view(PIVOT), np.array(list(map(language_of, documents)))
    norms = np.sqrt(np.bincount(pivot.row_numbers(), pivot.weights**2, len(pivot)))
    unit = replace(pivot, weights=(pivot.weights / norms[pivot.row_numbers()]).astype(np.float32))
    pairs: list[tuple[float, int, int]] = []
    for first, second in combinations([np.flatnonzero(languages == language) for language in np.unique(languages)], 2):
        there, scores = _nearest(unit.take(first), unit.take(second))
        back, _ = _nearest(unit.take(second), unit.take(first))
        rows = np.flatnonzero((back[there] == np.arange(len(first))) & (scores >= LEAST_COSINE))
        pairs += zip((-scores[rows]).tolist(), first[rows].tolist(), second[there[rows]].tolist(), strict=True)
    groups: dict[int, set[int]] = {}
    for _, *pair in sorted(pairs):
        joined = set().union(*(groups.get(place, {place}) for place in pair))
        if len(set(languages[list(joined)])) == len(joined):
            groups |= dict.fromkeys(joined, joined)
    found = {documents[place].id: documents[min(group)].id for place, group in groups.items()}
    log(f"Parallel texts: {counted(len(found), 'document')} in {counted(len(set(found.values())), 'group')}")
    return found


def _nearest(rows: SparseBatch, others: SparseBatch) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the place of the most similar of the others for each row, and its similarity."""
    blocks = (rows[start : start + _ROWS].dot(others) for start in range(0, len(rows), _ROWS))
    best, scores = zip(*((block.argmax(1), block.max(1)) for block in blocks), strict=True)
    return np.concatenate(best), np.concatenate(scores)
