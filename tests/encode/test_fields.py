"""The table of manifest fields: complete, and with options that exist."""

import dataclasses

from milco_pyserini.cli.encode import EncodeOptions
from milco_pyserini.cli.index import IndexOptions
from milco_pyserini.encode.fields import CONFIG, FIELDS
from milco_pyserini.encode.plan import EncodePlan


def test_every_setting_that_a_store_records_is_in_the_table() -> None:
    """Otherwise it would determine vectors, and no comparison would know of it."""
    plan = EncodePlan(max_length=9, dtype="float32", views=("pivot",), prune=("top-k:3",))
    assert plan.manifest_fields().keys() <= FIELDS.keys()


def test_the_options_of_the_table_exist() -> None:
    """An error that names the option of a field names one of milco encode or milco index."""
    options = {field.name for kind in (EncodeOptions, IndexOptions) for field in dataclasses.fields(kind)}
    assert {field.option for field in FIELDS.values()} <= options | {CONFIG, ""}
