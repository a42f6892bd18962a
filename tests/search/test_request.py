"""Requests: one definition of the options of searches and builds for Python, command line, REST and MCP."""

from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from milco_pyserini.cli.explain import ExplainOptions
from milco_pyserini.cli.index import IndexOptions, UpdateOptions
from milco_pyserini.cli.search import SearchOptions
from milco_pyserini.errors import MilcoError
from milco_pyserini.options import option_fields
from milco_pyserini.request import (
    SCORING,
    Balance,
    BuildKeywords,
    BuildRequest,
    IndexKeywords,
    IndexRequest,
    SearchKeywords,
    SearchRequest,
)
from milco_pyserini.serve.schema import NOT_SERVED, ExplainParameters, SearchBody, SearchParameters

NAMES = {field.name for field in fields(SearchRequest)}


def test_keywords_are_the_fields_in_the_forms_in_which_they_are_given() -> None:
    """Searcher.search() names k itself, with another default than search_batch()."""
    assert set(SearchKeywords.__annotations__) == NAMES - {"k"}
    hints = get_type_hints(SearchRequest)
    for name, hint in get_type_hints(SearchKeywords).items():
        assert {int, float, bool} & {hint, *getattr(hint, "__args__", ())} <= {
            hints[name],
            *getattr(hints[name], "__args__", ()),
        }


def test_every_door_has_the_options_of_a_search() -> None:
    """A new one is there by itself: only options that a door does not have are listed."""
    served = NAMES - set(NOT_SERVED)
    assert served <= set(SearchParameters.model_fields) and served <= set(SearchBody.model_fields)
    assert set(SCORING) <= set(ExplainParameters.model_fields)
    assert {"filters", "balance", "threads", "min_share", "alpha", "fuse", "weights"} <= set(
        option_fields(SearchOptions)
    )
    assert {"alpha", "balance"} <= set(option_fields(ExplainOptions))


def test_values_are_parsed_once() -> None:
    """Texts of filters and of a balance; what was parsed stays as it is."""
    request = SearchRequest.of(5, {"filters": "lang=de", "balance": "lang=0.5", "views": ["pivot"], "weights": [2, 1]})
    assert (request.filters, request.balance) == ({"lang": ["de"]}, Balance("lang", 0.5))
    assert (request.views, request.weights) == (("pivot",), (2, 1))
    assert SearchRequest(5, filters=request.filters, balance=request.balance).filters is request.filters


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"k": 0}, MilcoError, "k=0: must be at least 1"),
        ({"offset": -1}, MilcoError, "offset=-1"),
        ({"threads": "2"}, TypeError, "threads is '2', expected an integer"),
        ({"alpha": 1.5}, MilcoError, "alpha=1.5: must be from 0 to 1"),
        ({"views": ["pivto"]}, MilcoError, "Did you mean pivot"),
        ({"filters": "lang"}, MilcoError, "expected FIELD=VALUE"),
        ({"filters": "lang==de"}, MilcoError, "two equals signs. Write lang=de, or, for a value that begins with ="),
        ({"views": "both"}, MilcoError, r"views='both': must be a list of pivot, source. Write \['pivot'\]."),
        ({"balance": True}, TypeError, "balance is True, expected a field, such as 'lang'"),
        *(({"balance": text}, MilcoError, "balance") for text in ("", "=1", "lang=", "lang=x", "lang=-1", "lang=nan")),
        ({"balance": "lang=1e308"}, MilcoError, r"strength of balance 1e\+308: must be from 0 to 1,000"),
        ({"fuse": "rrf", "alpha": 0.5}, MilcoError, "alpha applies to a single ranking"),
        ({"max_passage": ""}, MilcoError, "max_passage is empty"),
    ],
)
def test_an_impossible_request_is_not_made(options: dict[str, Any], error: type, message: str) -> None:
    """Whatever is searched for, in whichever index."""
    with pytest.raises(error, match=message):
        SearchRequest(**options)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("top_k", "k"), ("limit", "k"), ("filter", "filters"), ("where", "filters"), ("ofset", "offset")],
)
def test_a_keyword_of_another_library_is_answered_with_ours(name: str, meant: str) -> None:
    """As any door does: an error with the name that this project has."""
    with pytest.raises(TypeError, match=f"unknown keyword '{name}': did you mean '{meant}'"):
        SearchRequest.of(3, {name: 3})  # type: ignore[misc]


def test_builds_and_updates_have_the_options_of_their_requests() -> None:
    """In Python and on the command line."""
    for request, keywords, command in (
        (BuildRequest, BuildKeywords, IndexOptions),
        (IndexRequest, IndexKeywords, UpdateOptions),
    ):
        names = {field.name for field in fields(request)}
        assert set(keywords.__annotations__) == names <= set(option_fields(command))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 0}, "threads=0: must be from 1"),
        ({"prune": "top-k:5"}, "prune='top-k:5': must be a list"),
        ({"views": ["pivto"]}, "Did you mean pivot"),
        ({"scale": 10.0}, "scale requires plain"),
        ({"shard_id": 2, "shard_num": 2}, "shard_id=2: must be from 0 to 1"),
        ({"shard_num": 2, "plain": True}, "shard_num and plain exclude each other"),
    ],
)
def test_an_impossible_build_is_not_requested(options: dict[str, Any], message: str) -> None:
    """Whatever is indexed, by whichever engine."""
    with pytest.raises(MilcoError, match=message):
        BuildRequest(**options)
