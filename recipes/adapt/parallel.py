"""Find parallel texts: translations of each other, which are held out together and are relevant together."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from milco_pyserini.corpora import Document
from milco_pyserini.eval.known_items import language_of
from milco_pyserini.sparse import PIVOT, SparseBatch

# Cosine of the pivot views of two translations, at least. 40 pages of LibreOffice's help in English, Spanish, Japanese
# and Russian with milco-mini: 219 pairs of the possible 240 are each other's nearest above .4, 218 of them
# translations, and 192 above .5, 191 of them translations; between two halves without translations, 16 and 1.
LEAST_COSINE = 0.45
_ROWS = 1000


def find_parallel(documents: Sequence[Document], vectors: SparseBatch) -> dict[str, str]:
    """Return docid -> id of the first document of its group, for documents that have translations in the collection.

    Two documents in different languages are translations if each is the other's nearest in its language. The pairs are
    joined from the most similar on; a group has at most one document of a language.

    Args:
        vectors: of the documents, in their order.
    """
    matrix = vectors.view(PIVOT).to_scipy()
    norms = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    matrix.data /= np.repeat(np.maximum(norms, 1e-9), np.diff(matrix.indptr))
    places: dict[str, list[int]] = {}
    for place, document in enumerate(documents):
        places.setdefault(language_of(document), []).append(place)
    pairs = []
    for first, second in combinations(places.values(), 2):
        others = matrix[second].T
        best = np.zeros(len(first), int)
        back, highest = np.zeros(len(second), int), np.zeros(len(second))
        scores = np.zeros(len(first))
        for start in range(0, len(first), _ROWS):
            block = (matrix[first[start : start + _ROWS]] @ others).toarray()
            best[start : start + len(block)], scores[start : start + len(block)] = block.argmax(1), block.max(1)
            is_better = block.max(0) > highest
            back[is_better] = start + block.argmax(0)[is_better]
            highest = np.maximum(highest, block.max(0))
        pairs += [
            (-float(scores[row]), first[row], second[column])
            for row, column in enumerate(best)
            if back[column] == row and scores[row] >= LEAST_COSINE
        ]
    groups = {place: {place} for pair in pairs for place in pair[1:]}
    for _, first_place, second_place in sorted(pairs):
        one, other = groups[first_place], groups[second_place]
        joined = one | other
        if one is not other and len({language_of(documents[place]) for place in joined}) == len(joined):
            groups |= dict.fromkeys(joined, joined)
    return {documents[place].id: documents[min(group)].id for place, group in groups.items() if len(group) > 1}
