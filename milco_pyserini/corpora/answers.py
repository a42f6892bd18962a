"""Judgements by answers: a passage is relevant to a question if one of the answers stands in it, word for word.

As in open-domain question answering since DPR (arXiv:2004.04906): texts are decomposed (NFD), lower-cased and cut into
runs of letters, digits and marks, and single other characters; an answer's words must follow one another. As BGE
M3-Embedding does for MKQA, typographic dashes, quotes and slashes count as the plain ones.
"""

import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping

from milco_pyserini.corpora.records import Document
from milco_pyserini.io.qrels import Qrels

_WORD = r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]"
# No word holds a space, so that words between spaces match whole words only.
_BETWEEN = " "
_PLAIN = {
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\u207b\uff0d",
    '"': "\u201c\u201d\u201e\u201f",
    "'": "\u2018\u2019\u201a\u201b\u2032\u2035\u055a\ua78b\ua78c\uff07\u0060\u00b4",
    "/": "\u2044\u2215",
    "...": "\u2026",
    "": "\u00ad",
}
_TYPOGRAPHIC = str.maketrans({character: plain for plain, characters in _PLAIN.items() for character in characters})


def word_finder() -> Callable[[str], str]:
    """What makes of a text its words in order, lower-cased, each between spaces."""
    import regex

    pattern = regex.compile(_WORD)

    def words(text: str) -> str:
        found = pattern.findall(unicodedata.normalize("NFD", text.translate(_TYPOGRAPHIC)))
        return _BETWEEN.join(["", *(word.lower() for word in found), ""])

    return words


def judge(
    corpus: Iterable[Document], retrieved: Mapping[str, Collection[str]], answers: Mapping[str, Collection[str]]
) -> Qrels:
    """Grades 1 and 0 of the retrieved passages, in one pass over the corpus.

    retrieved: query id -> ids of passages. answers: query id -> its answers. Query id -> passage id -> grade, for
    every query that has answers; passages that the corpus lacks get no grade.
    """
    words = word_finder()
    asked: dict[str, list[str]] = {}
    for query, passages in retrieved.items():
        for passage in passages if query in answers else ():
            asked.setdefault(passage, []).append(query)
    sought = {query: [found for text in texts if (found := words(text)).strip()] for query, texts in answers.items()}
    qrels: Qrels = {query: {} for query in answers}
    for document in corpus:
        queries = asked.get(document.id)
        if queries:
            text = words(document.contents)
            for query in queries:
                qrels[query][document.id] = int(any(answer in text for answer in sought[query]))
    return qrels
