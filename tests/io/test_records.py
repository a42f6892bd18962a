"""Records of manifests: every setting is compared, options exist, damage is one sentence, and one lifecycle."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from milco_pyserini.cli.encode import EncodeOptions
from milco_pyserini.cli.index import IndexOptions
from milco_pyserini.cli.parser import flags_of
from milco_pyserini.cli.program import with_flags
from milco_pyserini.encode.plan import EncodePlan
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.artifact import Action, Artifact
from milco_pyserini.io.manifest import DamagedError, read_record
from milco_pyserini.io.records import (
    CONFIG,
    RESUME,
    SEARCH,
    Compatibility,
    IndexManifest,
    StoreManifest,
    described,
    differences,
    fields_to_match,
    may_differ,
    option_of,
)
from milco_pyserini.request import BuildRequest

STORE = {
    "format_version": 1,
    "scale": 100.0,
    "documents": 1,
    "parts": [{"file": "parts/a", "bytes": 1, "checksum": "0", "documents": 1}],
}


def test_every_setting_that_a_store_records_is_compared() -> None:
    """Otherwise it would determine vectors, and no comparison would know of it."""
    plan = EncodePlan(max_length=9, dtype="float32", views=("pivot",), prune=("top-k:3",))
    assert plan.manifest_fields().keys() <= set(fields_to_match(RESUME))


def test_the_options_of_the_fields_exist() -> None:
    """An error that names the option of a field names one of milco encode or milco index."""
    options = {field.name for kind in (EncodeOptions, IndexOptions, BuildRequest) for field in dataclasses.fields(kind)}
    names = {name for between in Compatibility for name in fields_to_match(between)}
    assert {option_of(name) for name in names} <= options | {CONFIG, ""}
    assert fields_to_match(SEARCH)[:2] == ("weight_hash", "tokenizer_hash")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"scale": "x"}, "scale: expected number, got string"),
        ({"scale": 0}, "scale: expected number > 0.0"),
        ({"documents": -1}, "documents: expected integer >= 0"),
        ({"parts": [{"file": "../a", "bytes": 1, "documents": 1}]}, r"parts[0].file: expected the relative path of a"),
        ({"parts": [{"file": "a"}]}, "parts[0]: object missing required field bytes"),
        ({"views": [3]}, "views[0]: expected string, got integer"),
    ],
)
def test_a_wrong_field_is_one_sentence(change: dict, sentence: str) -> None:
    """It names the field and what is expected."""
    with pytest.raises(DamagedError) as error:
        read_record(STORE | change, StoreManifest, Path("store"))
    assert error.value.reason.startswith(sentence) and "`" not in error.value.reason


def test_unknown_fields_are_ignored_and_null_is_not_missing() -> None:
    """A manifest of another version opens. A variant that an older one did not record may differ, null may not."""
    old, new = (
        read_record(STORE | change, StoreManifest, Path("store")) for change in ({"later": 1}, {"pivot_top_k": None})
    )
    wanted = StoreManifest(scale=100.0, pivot_top_k=2)
    assert not list(differences(old, wanted, may_differ(RESUME, old)))
    assert list(differences(new, wanted, may_differ(RESUME, new))) == [("pivot_top_k", None, 2)]
    assert read_record(new.to_json(), StoreManifest, Path("store")) == new and new.to_json()["pivot_top_k"] is None


def test_nested_differences_are_named() -> None:
    """The parameter is a field of the vectors of an index."""
    vectors = StoreManifest(scale=100.0, pruning=None)
    about = {"format_version": 1, "engine": "exact", "exactness": "", "documents": 1, "empty_documents": 0}
    index = IndexManifest(**about, id_with_space=None, postings=1, query_scale=1.0, vectors=vectors)
    wanted = {"engine": "exact", "vectors": StoreManifest(scale=100.0, pruning="top-k:3")}
    assert list(differences(index, wanted)) == [("vectors.pruning", None, "top-k:3")]


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (("seed", 0, 5), "with seed 0, not 5"),
        (("max_length", 512, 9), "with --max-length 512, not 9"),
        (("vectors.pruning", None, "top-k:3"), "without --prune, not with --prune top-k:3"),
        (("pruning", "top-k:3 mass:0.9", None), "with --prune top-k:3 mass:0.9, not without"),
        (("lowercase", None, True), "without --lowercase, not with --lowercase"),
        (("vectors.views", ["pivot", "source"], ["pivot"]), "with --views pivot source, not pivot"),
        (("corpus", "a.tsv", "b.tsv"), "with corpus a.tsv, not b.tsv"),
        (("weight_hash", "a", "b"), "with weight_hash a, not b"),
    ],
)
def test_a_difference_is_described_by_its_option(difference: tuple[str, Any, Any], words: str) -> None:
    """A value that the option does not take has the name of its field."""
    assert with_flags(described(*difference), flags_of(EncodeOptions)) == words
    ((_, recorded, wanted),) = differences(*({"name": value} for value in difference[1:]))
    assert (recorded, wanted) == difference[1:]


def test_one_lifecycle(tmp_path: Path) -> None:
    """Absent, partial and complete, of the same and of other parameters."""
    path = tmp_path / "output"

    def action(overwrite: bool = False, seed: int = 1, complete: bool = True, known: bool = True) -> Action:
        return Artifact(path, Path.is_dir, {"seed": 1} if known else None, complete).action({"seed": seed}, overwrite)

    assert action() is Action.CREATE
    path.mkdir()
    assert action() is Action.CREATE
    (path / "file").touch()
    assert action() is Action.KEEP
    assert action(complete=False) is action(complete=False, overwrite=True) is Action.RESUME
    assert action(overwrite=True) is action(seed=2, overwrite=True) is action(known=False, overwrite=True)
    assert action(overwrite=True) is Action.REPLACE
    with pytest.raises(MilcoError, match=r"output was begun with seed 1, not 2. Choose another output, or start over "):
        action(seed=2)
    with pytest.raises(MilcoError, match="output has no manifest of what it was made from"):
        action(known=False)
    with pytest.raises(MilcoError, match="not written by this command"):
        Artifact(path, lambda _: False, {}).action({}, overwrite=True)
