"""The MILCO encoder of a name or of an index, for Pyserini's searchers."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import read_json
from milco_pyserini.io.hub import fetch_hub_file
from milco_pyserini.io.manifest import MANIFEST
from milco_pyserini.io.records import StoreManifest

if TYPE_CHECKING:
    from milco_pyserini.encode.contract import MilcoQueryEncoder


def is_milco(name: str) -> bool:
    """Return whether a name is a MILCO checkpoint: an embedded one, or a directory or hub name with such a config.json.

    The hub is not asked about names that contain "milco".
    """
    if name == MINI:
        return True
    if Path(name).exists():
        config = Path(name) / "config.json"
        return config.is_file() and read_json(config).get("model_type") == "milco"
    if "milco" in name.lower():
        return True
    from huggingface_hub.errors import HFValidationError

    # If the name is not a model, or the hub is not reachable, Pyserini reports what is wrong with it.
    with contextlib.suppress(MilcoError, HFValidationError, OSError):
        return read_json(fetch_hub_file(name, "config.json")).get("model_type") == "milco"
    return False


def query_encoder_for(name: str, vectors: StoreManifest | None) -> "MilcoQueryEncoder":
    """Return the encoder that fits the vectors of an index, or the checkpoint as it is if they name none."""
    from milco_pyserini.encode.contract import MilcoQueryEncoder, open_query_encoder

    return open_query_encoder(vectors, name) if vectors and vectors.encoder else MilcoQueryEncoder(name)


def vectors_of(index: str) -> StoreManifest | None:
    """Return the manifest of the vectors in an index of this project; None for others and for names of Pyserini."""
    from milco_pyserini.index import open_index
    from milco_pyserini.index.shards import find_shards

    if not (Path(index) / MANIFEST).is_file() and not find_shards(Path(index)):
        return None
    opened = open_index(index)
    if opened.shards:
        raise MilcoError(f"{index} has shards, which only milco searches as one: give Pyserini an index without shards")
    if opened.manifest.engine != "lucene":
        raise MilcoError(
            f"{index} is an index of engine {opened.manifest.engine!r}, which Pyserini cannot read: build one "
            "with milco index --vectors VECTORS --engine lucene"
        )
    return opened.vectors
