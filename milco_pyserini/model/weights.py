"""The weights of a MILCO checkpoint by name, all that PackedForward needs: without transformers' modeling code.

Importing that takes longer than encoding a query.
"""

import contextlib
import hashlib
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from milco_pyserini import __version__
from milco_pyserini.console import log
from milco_pyserini.defaults import data_home
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import atomic_file
from milco_pyserini.model.checkpoint import listed, one_line
from milco_pyserini.model.configuration import NetworkConfig
from milco_pyserini.model.quantized import Weights

Config = TypeVar("Config", bound=NetworkConfig)
FileStates = tuple[tuple[str, int, int, int, int, int], ...]

# Rows that are converted to float32 at a time.
_ROWS = 1024
# Nanoseconds after which a file that is changed again has another time of change, on any file system.
_SETTLED = 3 * 10**9
# The tensors of an encoder's layers.
_LAYERS = "encoder.encoder.layer."


class NetworkWeights:
    """Configuration and weights of a network, as they are stored, on the CPU: in float32, the state_dict() of the
    MilcoModel that MilcoModel.from_weights() builds.

    Args:
        config: sizes and variants.
        tensors: by the names of the network's parameters. Missing ones are named on stderr.
        directory: the checkpoint's, for messages.
        files: file_states() of the files of all tensors, from before they were read.

    Raises:
        MilcoError: a tensor is missing or of another shape; there are more encoder layers than config states.
    """

    training = False
    files: FileStates = ()

    def __init__(self, config: NetworkConfig, tensors: Weights, directory: Path) -> None:
        self.config, self.directory = config, directory
        self._tensors = select_tensors(directory, _shapes(config), tensors)

    def state_dict(self) -> Weights:
        """Return the stored tensors by the names of a MilcoModel's parameters."""
        return self._tensors

    def weight_hash(self) -> str:
        """Return weight_hash() of the tensors. While their files do not change, it is read from the cache directory."""
        facts = repr((__version__, self.files, list(self._tensors)))
        path = data_home() / "hashes" / hashlib.blake2b(facts.encode(), digest_size=16).hexdigest()
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if self.files and re.fullmatch("[0-9a-f]{32}", kept := path.read_text(encoding="ascii")):
                return kept
        value = weight_hash(self._tensors)
        # A file that torch maps may have changed since it was opened.
        if self.files and self.files == file_states(Path(name) for name, *_ in self.files):
            with contextlib.suppress(OSError), atomic_file(path, "w") as handle:
                handle.write(value)
        return value


def file_states(paths: Iterable[Path]) -> FileStates:
    """Return what changes with a file's content: path, size, times of change in ns, device and inode of each.

    Nothing is returned if a file may change without a new time: it has been written within the last seconds.
    """
    found = [(path.resolve(), path.stat()) for path in paths]
    now = time.time_ns()
    if any(now - max(state.st_mtime_ns, state.st_ctime_ns) < _SETTLED for _, state in found):
        return ()
    return tuple(
        (str(path), state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_dev, state.st_ino)
        for path, state in found
    )


def make_config(
    kind: type[Config], directory: Path, values: dict[str, Any], variants: Mapping[str, Any] | None = None
) -> Config:
    """Return the configuration with the values of a checkpoint's config.json, and variants in place of its fields.

    Raises MilcoError for an invalid value, which names the file if it is from there.
    """
    path = directory / "config.json"
    try:
        config = kind(**values)
    except Exception as error:
        # transformers raises many types for values that it does not expect.
        raise MilcoError(f"checkpoint {path}: {one_line(error)}. Correct it, or download it again.") from None
    return kind(**{**values, **variants}) if variants else config


def select_tensors(directory: Path, shapes: Mapping[str, tuple[int, ...]], tensors: Weights) -> Weights:
    """Return the tensors of a network that has these shapes. The others are named on stderr.

    Raises MilcoError if one is missing or of another shape, or if there are more encoder layers.
    """
    missing = [name for name in shapes if name not in tensors]
    if missing:
        raise MilcoError(f"checkpoint {directory} lacks {listed(missing)}")
    wrong = [
        f"{name} {tuple(tensors[name].shape)} instead of {shape}"
        for name, shape in shapes.items()
        if tensors[name].shape != shape
    ]
    if wrong:
        raise MilcoError(f"checkpoint {directory} does not fit its configuration: {listed(wrong)}")
    unused = sorted(tensors.keys() - shapes.keys())
    if any(name.startswith(_LAYERS) for name in unused):
        layers = {name.removeprefix(_LAYERS).split(".")[0] for name in shapes if name.startswith(_LAYERS)}
        raise MilcoError(
            f"checkpoint {directory} has more encoder layers than the {len(layers)} of its configuration: "
            f"{listed(unused)}. Correct num_hidden_layers in config.json."
        )
    if unused:
        log(f"Checkpoint {directory}: ignored {listed(unused)}, which the network lacks")
    return {name: tensors[name] for name in shapes}


def weight_hash(tensors: Weights) -> str:
    """Return BLAKE2b over every tensor's name, shape and float32 values: equal weights, equal hash."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        starts = range(0, len(tensor), _ROWS) if tensor.ndim else ()
        for block in (tensor[start : start + _ROWS] for start in starts) if starts else (tensor,):
            digest.update(block.float().cpu().contiguous().numpy().data)
    return digest.hexdigest()


def _shapes(config: NetworkConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a network's tensors by their names, in the order of its modules."""
    encoder, english = config.encoder, config.english_hidden_size
    width = encoder.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "encoder.embeddings.word_embeddings.weight": (encoder.vocab_size, width),
        "encoder.embeddings.position_embeddings.weight": (encoder.max_position_embeddings, width),
        "encoder.embeddings.token_type_embeddings.weight": (encoder.type_vocab_size, width),
    }
    layers: dict[str, tuple[int, ...]] = {"encoder.embeddings.LayerNorm": (width,)}
    for number in range(encoder.num_hidden_layers):
        layer = f"encoder.encoder.layer.{number}"
        layers |= {f"{layer}.attention.self.{part}": (width, width) for part in ("query", "key", "value")}
        layers[f"{layer}.attention.output.dense"] = (width, width)
        layers[f"{layer}.attention.output.LayerNorm"] = (width,)
        layers[f"{layer}.intermediate.dense"] = (encoder.intermediate_size, width)
        layers[f"{layer}.output.dense"] = (width, encoder.intermediate_size)
        layers[f"{layer}.output.LayerNorm"] = (width,)
    layers["connector.projector"] = (english, width)
    layers["connector.dense"] = (english, english)
    layers["connector.layer_norm"] = (english,)
    layers["decoder"] = (config.english_vocab_size, english)
    for name, shape in layers.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    if config.echo:
        shapes |= {"echo.weight": (1, config.echo_size), "echo.bias": (1,), "echo.scale": (1,)}
    return shapes
