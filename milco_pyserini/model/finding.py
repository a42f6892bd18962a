"""Find a checkpoint: embedded, in a directory, or on the hub. It loads no torch: a wrong name is reported at once."""

from contextlib import suppress
from pathlib import Path

from milco_pyserini.defaults import DEFAULT_ENCODER, MINI, ST, check_local_name, split_revision
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import is_json_with, read_json
from milco_pyserini.io.hub import cached_snapshot, fetch_snapshot

# sentence-transformers' list of a model's modules, each with its directory.
MODULES = "modules.json"
# A directory with any of these has a tokenizer: of the tokenizers library, SentencePiece, WordPiece.
TOKENIZER_FILES = ("tokenizer.json", "sentencepiece.bpe.model", "vocab.txt")

_WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
# At any depth: a checkpoint may contain the sub-models that its config.json names.
_SMALL_FILES = ["*.json", "*.txt", "*.model"]
# The first that gives a checkpoint its weights is enough: many repositories have the same weights in both forms.
_WEIGHT_PATTERNS = ["*.safetensors"], ["*pytorch_model*.bin"]
_EMBEDDED = {MINI: Path(__file__).parent.parent / "resources" / "milco-mini"}


def find_checkpoint(name: str, weights: bool = True) -> Path:
    """Return the directory of a checkpoint: "mini", a local path, or a snapshot from the hub (NAME or NAME@REVISION).

    weights: as for find_model(). Raises MilcoError, with the fix, if it is none of these.
    """
    if name in _EMBEDDED:
        return _EMBEDDED[name]
    directory = find_model(name.removeprefix(ST), "encoder", DEFAULT_ENCODER, MINI, weights)
    if name.startswith(ST) or (directory / "config.json").exists():
        return directory
    # A SparseEncoder with its only module in a directory of its own.
    nested = [path.parent for path in directory.glob("*/config.json") if is_json_with(path, "model_type")]
    return nested[0] if (directory / MODULES).is_file() and len(nested) == 1 else directory


def find_model(name: str, kind: str, example: str, embedded: str | None, weights: bool = True) -> Path:
    """Return the directory of a checkpoint: a local path, or a hub name's snapshot, from the cache if it is there.

    Args:
        name: a directory, or OWNER/NAME on the hub, with or without @REVISION.
        kind: the noun for messages, such as "encoder".
        example, embedded: for messages: another name on the hub, and one that needs no hub; None without one.
        weights: whether the weights are needed; if not, only tokenizer and configuration are downloaded.

    Raises:
        MilcoError: there is no such directory, or the hub does not provide it.
    """
    check_local_name(name, kind, example, embedded)
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub.errors import HFValidationError

    repository, revision = split_revision(name)
    # A cached snapshot is used without a network. If it lacks the weights, a download was interrupted or fetched only
    # the tokenizer, and continues when the weights are needed.
    try:
        cached = cached_snapshot(repository, revision=revision)
    except HFValidationError:
        raise MilcoError(f"{name!r} is not a hub name: expected owner/name, such as {example}") from None
    if cached is not None:
        is_enough = not weights and any((cached / file).is_file() for file in TOKENIZER_FILES)
        if is_enough or _has_weights(cached):
            return cached
    other = "" if embedded is None else f", or {embedded!r}, which needs no download"
    hint = f"Pass the path of a downloaded checkpoint{other}."
    for of_weights in _WEIGHT_PATTERNS if weights else ([],):
        patterns = [*_SMALL_FILES, *of_weights]
        snapshot = fetch_snapshot(repository, patterns, what=f"{kind} {name!r}", revision=revision, hint=hint)
        if _has_weights(snapshot):
            break
    return snapshot


def _has_weights(snapshot: Path) -> bool:
    """Return whether a snapshot, or a module of a SparseEncoder in a directory of its own, has all of its weights."""
    for place in (snapshot, *(snapshot.iterdir() if (snapshot / MODULES).is_file() else ())):
        with suppress(MilcoError):
            weight_files(place)
            return True
    return False


def find_commit(name: str) -> str | None:
    """Return the commit of a hub name's snapshot in the cache; None for "mini" and a directory. Errors as above."""
    directory = find_checkpoint(name, weights=False)
    places = (place for place in (directory, directory.parent) if place.parent.name == "snapshots")
    return next((place.name for place in places), None)


def weight_files(directory: Path) -> list[Path]:
    """Return the files with a checkpoint's tensors, one or several shards. Raises MilcoError if one is missing."""
    for name in _WEIGHT_FILES:
        if (directory / name).is_file():
            return [directory / name]
        index = directory / f"{name}.index.json"
        if index.is_file():
            weight_map = read_json(index).get("weight_map")
            names = list(weight_map.values()) if isinstance(weight_map, dict) else []
            if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
                raise MilcoError(
                    f"checkpoint {index}: weight_map expects the file of each tensor, in the same directory. Download "
                    "the checkpoint again."
                )
            shards = sorted(set(names))
            missing = [shard for shard in shards if not (directory / shard).is_file()]
            if missing:
                raise MilcoError(f"checkpoint {directory} lacks the shards {listed(missing)}")
            return [directory / shard for shard in shards]
    raise MilcoError(f"checkpoint {directory} has no weights: expected {' or '.join(_WEIGHT_FILES)}, or its shards")


def listed(names: list[str]) -> str:
    """Return names with commas, at most eight of them."""
    return f"{', '.join(names[:8])} and {len(names) - 8} more" if len(names) > 8 else ", ".join(names)
