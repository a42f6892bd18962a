"""Write weighted words in the query languages of search engines. Words are data: none changes the query around it."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from milco_pyserini.errors import MilcoError, validate_name
from milco_pyserini.options import MAX_INTEGER, validate_number

Words = Sequence[tuple[str, float]]

FIELD = "contents"
# FTS5 has no boosts: a phrase counts as often as the query repeats it.
_REPETITIONS = 3
# Words that Lucene's parser, or Solr's with its options, may read as operators.
_OPERATORS = {"and", "or", "not", "to"}
_BARE = re.compile(r"[a-z0-9]+")


def write_query(words: Iterable[tuple[str, float]], language: str, field: str = FIELD) -> str:
    r"""Return weighted words as a query that matches documents with any of them.

    >>> from milco_pyserini.keywords import write_query
    >>> words = [("telephone", 0.9), ('5" (disk)', 0.3)]
    >>> print(write_query(words, "lucene"))
    telephone^0.9 OR "5\" (disk)"^0.3
    >>> print(write_query(words, "fts5"))
    "telephone" OR "telephone" OR "telephone" OR "5"" (disk)"

    Args:
        words: as keywords() returns them, or any other; weights are above 0. Control characters become spaces.
        language: a name in QUERY_LANGUAGES. lucene is the syntax of Lucene, Solr, OpenSearch and Elasticsearch;
            query_string and bool are JSON of the latter two; tsquery is the argument of PostgreSQL's to_tsquery();
            words are plain ones, strongest first; json and tsv are the words with their weights.
        field: the field that query_string and bool search.

    Raises:
        MilcoError: there are no words, or the language is not known.
    """
    validate_name("query language", language, QUERY_LANGUAGES)
    known = []
    for word, weight in words:
        validate_number("weight", weight, above=0, maximum=MAX_INTEGER)
        if plain := " ".join("".join(sign if sign.isprintable() else " " for sign in word).split()):
            known.append((plain, max(round(weight, 3), 0.001)))
    query = QUERY_LANGUAGES[language](known, field) if known else ""
    if not query:
        raise MilcoError("there are no words to search for: a query needs one")
    return query


def _lucene(words: Words, field: str) -> str:
    return " OR ".join(f"{_lucene_term(word)}^{weight:.10g}" for word, weight in words)


def _lucene_term(word: str) -> str:
    if _BARE.fullmatch(word) and word not in _OPERATORS:
        return word
    # Within quotation marks, only these two have a meaning.
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _bool(words: Words, field: str) -> str:
    # A word with spaces is a phrase, as in the other languages.
    clauses = [{"match_phrase": {field: {"query": word, "boost": weight}}} for word, weight in words]
    return _json({"query": {"bool": {"should": clauses}}})


def _fts5(words: Words, field: str) -> str:
    largest = max(weight for _, weight in words)
    phrases = [('"' + word.replace('"', '""') + '"', round(_REPETITIONS * weight / largest)) for word, weight in words]
    return " OR ".join(phrase for phrase, count in phrases for _ in range(max(1, count)))


def _tsquery(words: Words, field: str) -> str:
    return " | ".join("'" + word.replace("\\", "\\\\").replace("'", "''") + "'" for word, _ in words)


def _plain(words: Words, field: str) -> str:
    text = " ".join(word for word, _ in words).lower()
    return " ".join("".join(sign if sign.isalnum() else " " for sign in text).split())


_json = partial(json.dumps, ensure_ascii=False)

QUERY_LANGUAGES: dict[str, Callable[[Words, str], str]] = {
    "json": lambda words, field: _json(dict(words)),
    "tsv": lambda words, field: "\n".join(f"{word}\t{weight:.10g}" for word, weight in words),
    "words": _plain,
    "lucene": _lucene,
    "query_string": lambda words, field: _json(
        {"query": {"query_string": {"query": _lucene(words, field), "fields": [field]}}}
    ),
    "bool": _bool,
    "fts5": _fts5,
    "tsquery": _tsquery,
}
