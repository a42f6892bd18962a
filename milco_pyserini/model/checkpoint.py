"""A checkpoint, opened once and passed on: embedded, in a directory, or on the hub.

It loads no torch: a wrong name is reported at once.
"""

import os
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum, auto
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from milco_pyserini.defaults import DEFAULT_ENCODER, MINI, MINI_QUERY
from milco_pyserini.errors import MilcoError, ParameterError, require_package
from milco_pyserini.io.files import is_json_with, read_json
from milco_pyserini.io.hub import cached_snapshot, fetch_hub_file, fetch_snapshot
from milco_pyserini.model.configuration import ENCODER_FIELD, ENGLISH_FIELD, is_milco
from milco_pyserini.model.tokenization import TextTokenizer

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

# Before the name of an encoder that sentence-transformers loads.
ST = "st:"
# An encoder without a model, alone or before its languages, as in bm25:ar; and its file of statistics.
BM25, BM25_FILE = "bm25", "bm25.npz"
# model_type in the config.json of a query network.
QUERY_NETWORK = "milco_query_network"
# BGE-M3's linear layer, and the directory of the English tokenizer in our layout.
HEAD, ENGLISH = "sparse_linear.pt", "english"
# sentence-transformers' files: a model's modules, each with its directory, and the model's class and prompts.
MODULES, MODEL_CLASS = "modules.json", "config_sentence_transformers.json"

_RESOURCES = Path(__file__).parent.parent / "resources"
_EMBEDDED = {MINI: _RESOURCES / "milco-mini", MINI_QUERY: _RESOURCES / "milco-mini-query"}
# Any of these is a tokenizer: of the tokenizers library, SentencePiece, WordPiece.
_TOKENIZER_FILES = _FILE, _SENTENCEPIECE, _WORD_PIECES = ("tokenizer.json", "sentencepiece.bpe.model", "vocab.txt")
_WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
# At any depth: a checkpoint may contain the sub-models that its config.json names.
_SMALL_FILES = ["*.json", "*.txt", "*.model"]
# The first that gives a checkpoint its weights is enough: many repositories have the same weights in both forms.
_WEIGHT_PATTERNS = ["*.safetensors"], ["*pytorch_model*.bin"]
# The published checkpoints name a gated repository for the English side; its vocabulary is bert-base-uncased's.
_GATED = {"naver/splade-v3": "bert-base-uncased"}
# The encoder of milco-650m is XLM-R large: the default checkpoint needs no second download.
_KNOWN_ENCODERS = {
    "BAAI/bge-m3-unsupervised": {"model_type": "xlm-roberta", "num_attention_heads": 16, "layer_norm_eps": 1e-5}
}
# The usual length for training and evaluating sparse encoders.
_DEFAULT_LENGTH = 512
# The largest float16. Trained weights are far below it (checkpoints are published in float16), and sums of products
# with larger ones overflow float32.
_LARGEST_WEIGHT = 65504.0


class Kind(Enum):
    """The kinds of sparse encoders, and OTHER."""

    MILCO = auto()
    MASKED_LANGUAGE_MODEL = auto()
    M3 = auto()
    QUERY_NETWORK = auto()
    SENTENCE_TRANSFORMERS = auto()
    BM25 = auto()
    OTHER = auto()


class Checkpoint:
    """A checkpoint of any kind: where its files are, what they state, and its tokenizers.

        checkpoint = Checkpoint.open("someone/encoder", revision="v1")
        checkpoint.kind, checkpoint.config["hidden_size"], len(checkpoint.tokenizer.pieces)

    Opening validates the name. The files are found, in the hub's cache or on the hub, when one is asked for; fetch()
    finds the weights, too, which configuration and tokenizers do not need.

    Args:
        name: "mini", a directory, or OWNER/NAME on the hub, with or without @REVISION; with st: before it, a
            SparseEncoder of sentence-transformers; bm25, or bm25:LANGUAGES.
        noun: of such a checkpoint, for messages.
        example, embedded: for messages: another name on the hub, and one that needs no hub; None without one.

    Raises:
        MilcoError: it is neither a directory nor a possible hub name.
    """

    def __init__(
        self, name: str, noun: str = "encoder", example: str = DEFAULT_ENCODER, embedded: str | None = MINI
    ) -> None:
        self.name = name
        self.noun, self._example, self._embedded = noun, example, embedded
        self._path = path = name.removeprefix(ST)
        # An empty path would be the working directory.
        place = _EMBEDDED.get(name, Path(path)) if embedded == MINI else Path(path)
        local = place if path and place.is_dir() else None
        is_name = embedded == MINI and name.partition(":")[0] == BM25
        # It has no files.
        self._local = local = Path(os.devnull) if is_name else local
        # Whether the encoder is fitted to a corpus before it encodes this corpus: only BM25 is.
        self.requires_fit = is_name or (local is not None and (local / BM25_FILE).is_file())
        # "" and None of what is not on the hub.
        self.repository, _, revision = ("", "", "") if local else path.partition("@")
        self.revision: str | None = revision or None
        self._is_fetched = False
        if local is None and (self.repository.startswith((".", "/", "~")) or self.repository.count("/") != 1):
            other = "" if embedded is None else f", or {embedded!r}"
            other += f" ({MINI_QUERY!r} for queries)" if embedded == MINI else ""
            raise MilcoError(f"no {noun} at {path!r}: give a checkpoint directory, a hub name such as {example}{other}")

    @classmethod
    def open(cls, name: "str | os.PathLike | Checkpoint", revision: str | None = None, **messages: Any) -> "Checkpoint":
        """Return the checkpoint of a name, or one that is open already.

        Args:
            revision: commit, tag or branch of a hub name; "NAME@REVISION" is the same.
            messages: noun, example, embedded, as for the class.

        Raises:
            MilcoError: as for the class; or a revision is given for what is not on the hub, or has another one.
        """
        checkpoint = name if isinstance(name, Checkpoint) else cls(os.fspath(name), **messages)
        if revision is None:
            return checkpoint
        if checkpoint.revision or not checkpoint.repository:
            reason = "names one itself" if checkpoint.revision else "is not on the hub"
            raise MilcoError(f"revision {revision!r}: encoder {checkpoint.name!r} {reason}. Omit the revision.")
        return cls(f"{checkpoint.name}@{revision}", **messages)

    @property
    def address(self) -> str:
        """The name by which a process in another working directory opens it."""
        is_path = self._local not in (None, *_EMBEDDED.values(), Path(os.devnull))
        return self.name.removesuffix(self._path) + str(Path(self._path).resolve()) if is_path else self.name

    @cached_property
    def directory(self) -> Path:
        """The directory of its files; without fetch(), the weights may be missing.

        Raises MilcoError, with the fix, if the hub does not provide it.
        """
        return self._find(weights=False)

    def fetch(self) -> Self:
        """Find the weights, too; return self. Raises MilcoError as `directory` does."""
        if not self._is_fetched:
            if "directory" in vars(self):
                # The weights of the commit whose configuration has been read.
                self.revision = self.revision or self.commit
            self.directory, self._is_fetched = self._find(weights=True), True
        return self

    @property
    def weight_files(self) -> list[Path]:
        """The files with its tensors, one or several shards. Raises MilcoError if one is missing."""
        return weight_files(self.fetch().directory)

    def _find(self, weights: bool) -> Path:
        directory = self._local or self._snapshot(self.repository, weights)
        if self.requires_fit or self.name.startswith(ST) or (directory / "config.json").exists():
            return directory
        # A SparseEncoder with its only module in a directory of its own.
        nested = [path.parent for path in directory.glob("*/config.json") if is_json_with(path, "model_type")]
        return nested[0] if (directory / MODULES).is_file() and len(nested) == 1 else directory

    def _snapshot(self, repository: str, weights: bool) -> Path:
        from huggingface_hub.errors import HFValidationError

        # A cached snapshot is used without a network. If it lacks the weights, a download was interrupted or fetched
        # only the tokenizer, and continues when the weights are needed.
        try:
            cached = cached_snapshot(repository, revision=self.revision)
        except HFValidationError:
            raise MilcoError(
                f"{self._path!r} is not a hub name: expected owner/name, such as {self._example}"
            ) from None
        if cached is not None:
            is_enough = not weights and any((cached / file).is_file() for file in _TOKENIZER_FILES)
            if is_enough or _has_weights(cached):
                return cached
        other = "" if self._embedded is None else f", or {self._embedded!r}, which needs no download"
        hint, what = f"Pass the path of a downloaded checkpoint{other}.", f"{self.noun} {self._path!r}"
        for of_weights in _WEIGHT_PATTERNS if weights else ([],):
            patterns = [*_SMALL_FILES, *of_weights]
            snapshot = fetch_snapshot(repository, patterns, what=what, revision=self.revision, hint=hint)
            if _has_weights(snapshot):
                break
        return snapshot

    @cached_property
    def commit(self) -> str | None:
        """The commit of a snapshot of the hub's cache; None for "mini" and a directory of another place."""
        places = (self.directory, self.directory.parent)
        return next((place.name for place in places if place.parent.name == "snapshots"), None)

    @cached_property
    def config(self) -> dict[str, Any]:
        """Its config.json. Raises MilcoError if it is missing or damaged."""
        return read_json(self.directory / "config.json")

    def read(self, file: str) -> dict[str, Any]:
        """Return the JSON object of one of its files, {} if there is none. Raises MilcoError if it is damaged."""
        path = self.directory / file
        return read_json(path) if path.is_file() else {}

    @cached_property
    def kind(self) -> Kind:
        """The kind of encoder, by its files."""
        if self.name.startswith(ST):
            return Kind.SENTENCE_TRANSFORMERS
        if self.requires_fit:
            return Kind.BM25
        if self.config.get("model_type") == QUERY_NETWORK:
            return Kind.QUERY_NETWORK
        if is_milco(self.config):
            return Kind.MILCO
        is_masked = any(str(name).endswith("ForMaskedLM") for name in self.config.get("architectures") or ())
        if is_masked and not (self.directory / HEAD).is_file():
            return Kind.MASKED_LANGUAGE_MODEL
        return Kind.OTHER if self.head is None else Kind.M3

    @cached_property
    def head(self) -> Path | None:
        """The file of BGE-M3's linear layer, None if there is none.

        A snapshot that was downloaded for something else may lack it, so the hub is asked for this file.
        """
        if (self.directory / HEAD).is_file():
            return self.directory / HEAD
        # A snapshot's directory is named after its revision. If the hub has no such file or cannot be reached: None.
        with suppress(MilcoError):
            return fetch_hub_file(self.repository, HEAD, revision=self.directory.name) if self.repository else None
        return None

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        """The multilingual tokenizer, in our layout or the authors'.

        Raises MilcoError if neither the checkpoint nor the sub-model that it names has one.
        """
        tokenizer = self._read_tokenizer(ENCODER_FIELD, self.directory)
        lowercase_capitals = self.read("config.json").get("lowercase_capitals") is True
        return TextTokenizer(tokenizer, f"the tokenizer of {self.directory}", lowercase_capitals)

    @cached_property
    def english_tokenizer(self) -> Tokenizer:
        """The tokenizer whose pieces name the pivot columns; BGE-M3 has none. Raises as `tokenizer` does."""
        place = self.directory / ENGLISH
        if self.kind is Kind.MILCO:
            return self._read_tokenizer(ENGLISH_FIELD, place)
        return Tokenizer(WordLevel({}, unk_token="")) if self.kind is Kind.M3 else self.tokenizer.tokenizer

    def _read_tokenizer(self, field: str, place: Path) -> Tokenizer:
        """Load the tokenizer of the first place that has one, else of the hub's checkpoint that config.json names."""
        places = [place, *self.sub_models(field)]
        for place in places:
            with loading(place, "a tokenizer"):
                if (place / _FILE).is_file():
                    return Tokenizer.from_file(str(place / _FILE))
                if (place / _SENTENCEPIECE).is_file():
                    require_package("sentencepiece", "sentencepiece", f"{_SENTENCEPIECE} without {_FILE}")
                    from transformers import XLMRobertaTokenizerFast

                    return XLMRobertaTokenizerFast.from_pretrained(place).backend_tokenizer
                if (place / _WORD_PIECES).is_file():
                    from transformers import BertTokenizerFast

                    return BertTokenizerFast.from_pretrained(place).backend_tokenizer
        name = self.config.get(field)
        if not name or "/" not in name or name.startswith((".", "/")):
            raise MilcoError(
                f"checkpoint {self.directory} has no tokenizer: expected {_FILE} in {' or '.join(map(str, places))}"
            )
        name = _GATED.get(name, name)
        try:
            return Tokenizer.from_pretrained(name)
        except Exception as error:
            # The library raises a plain Exception whenever a download fails.
            raise MilcoError(
                f"checkpoint {self.directory} names the tokenizer of {name!r}, which is neither in the cache nor "
                f"reachable: download it once, or put its {_FILE} into the checkpoint directory"
            ) from error

    def sub_models(self, field: str) -> list[Path]:
        """Return the existing directories of a sub-model that the authors' config.json names, nearest first."""
        name = self.config.get(field)
        if not name:
            return []
        if not isinstance(name, str):
            path = self.directory / "config.json"
            raise MilcoError(f"checkpoint {path}: {field} expects the name of a checkpoint, got {name!r}. Correct it.")
        places = [self.directory / name, self.directory.parent / name, Path(name)]
        return [place for place in places if place.is_dir()]

    @cached_property
    def encoder_config(self) -> dict[str, Any]:
        """The config.json of the encoder that the authors' config.json names: next to it, or from the hub.

        Raises MilcoError if it is in neither place, or does not state the number of attention heads.
        """
        name, directory = self.config.get(ENCODER_FIELD), self.directory
        places = [place / "config.json" for place in self.sub_models(ENCODER_FIELD)]
        local = next((place for place in places if place.is_file()), None)
        if local is None and name in _KNOWN_ENCODERS:
            return _KNOWN_ENCODERS[name]
        fix = f"Put the config.json of its encoder into {directory / (name or 'encoder')}"
        if local is None:
            if not name or name.count("/") != 1 or name.startswith((".", "/")):
                what = f"{name!r}, which has no config.json" if name else "no encoder"
                raise MilcoError(
                    f"checkpoint {directory}: {ENCODER_FIELD} names {what}: the number of attention heads is not in "
                    f"the tensors. {fix}{'' if name else f' and name it in {ENCODER_FIELD}'}."
                )
            local = fetch_hub_file(name, "config.json", hint=f"{fix}: the tensors do not state its attention heads.")
        known = read_json(local)
        if "num_attention_heads" not in known:
            raise MilcoError(f"{local} states no num_attention_heads: the tensors do not, either. {fix}.")
        return known

    @cached_property
    def prompts(self) -> tuple[str, str]:
        """The prefixes of queries and of documents that sentence-transformers' file states, "" without any."""
        config = self.read(MODEL_CLASS)
        prompts = config.get("prompts") or {}
        default = prompts.get(config.get("default_prompt_name"), "")
        document = next((prompts[name] for name in ("document", "passage", "corpus") if name in prompts), default)
        return prompts.get("query", default) or "", document or ""

    def load_model(self, loader: Any, what: str, example: str = "", **options: Any) -> tuple[Any, list[str]]:
        """Return a network of transformers, in eval mode, and the names of its weights that the files lack.

        Args:
            loader: an Auto class of transformers.
            what, example: for messages, see loading().
            options: of loader.from_pretrained().

        Raises:
            MilcoError: it cannot be read, needs code of its own, or has weights that are not finite.
        """
        from transformers.utils import logging

        directory, before = self.fetch().directory, logging.get_verbosity()
        # Advice on missing and unused weights.
        logging.set_verbosity_error()
        try:
            with loading(directory, what, example=example):
                model, report = loader.from_pretrained(
                    directory, trust_remote_code=False, output_loading_info=True, **options
                )
        finally:
            logging.set_verbosity(before)
        validate_weights(directory, dict(model.named_parameters()))
        return model.eval(), sorted(report["missing_keys"])

    def text_length(self, limit: int) -> int:
        """Return the default maximum length in tokens: 512, or less if limit or sentence-transformers' file is less."""
        path, field = self.directory / "sentence_bert_config.json", "max_seq_length"
        stated = read_json(path)[field] if is_json_with(path, field) else None
        if stated is not None and (type(stated) is not int or stated < 1):
            raise MilcoError(f"{path}: {field} {stated!r} is not a number of tokens. Correct it, or download it again.")
        return min(_DEFAULT_LENGTH, limit, stated or _DEFAULT_LENGTH)

    def validate_length(self, max_length: int | None) -> None:
        """Raise MilcoError for a `max_length` beyond the positions that its config.json states."""
        if max_length is None:
            return
        config = self.read("config.json")
        encoder = config["encoder"] if isinstance(config.get("encoder"), dict) else config
        limit = encoder.get("max_position_embeddings")
        if isinstance(limit, int) and max_length > limit:
            raise ParameterError("max_length", max_length, f"encoder {self.name} has positions for {limit} tokens")


def _has_weights(snapshot: Path) -> bool:
    """Return whether a snapshot, or a module of a SparseEncoder in a directory of its own, has all of its weights."""
    for place in (snapshot, *(snapshot.iterdir() if (snapshot / MODULES).is_file() else ())):
        with suppress(MilcoError):
            weight_files(place)
            return True
    return False


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


def token_limit(network: "Module", config: Any) -> int:
    """Return the number of tokens, special ones included, that a network has positions for."""
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            # RoBERTa and its relatives count positions from the padding id + 1.
            return config.max_position_embeddings - module.padding_idx - 1
    return config.max_position_embeddings


def validate_weights(directory: Path, tensors: "Mapping[str, Tensor]") -> None:
    """Raise MilcoError for a floating-point tensor with a value that is not finite, or too large to compute with."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.numel():
            # One pass without a copy; NaN makes both bounds NaN.
            lowest, highest = (float(bound) for bound in tensor.detach().aminmax())
            if not max(-lowest, highest) <= _LARGEST_WEIGHT:
                raise MilcoError(
                    f"checkpoint {directory}: {name} has values from {lowest:g} to {highest:g}: weights must be finite "
                    f"and at most {_LARGEST_WEIGHT:,.0f}, as in float16. Download the checkpoint again, or train from "
                    "an earlier one."
                )


@contextmanager
def loading(
    path: Path, kind: str = "", fix: str = "Download it again, or give another", example: str = ""
) -> Iterator[None]:
    """Turn every exception of the block into a MilcoError: "PATH cannot be read as KIND: REASON. FIX.".

    transformers, tokenizers, safetensors and torch raise many types, plain Exception among them, with texts of many
    lines and advice (to run a checkpoint's code, to unpickle objects) that must not be passed on.

    Args:
        path: the file or directory that is read.
        kind: what it is read as, with its article.
        fix: the fix, without its period.
        example: an alternative to name if the checkpoint needs its own code.
    """
    try:
        yield
    except (MilcoError, SystemError):
        # A SystemError is Python's own, of an intact file.
        raise
    except Exception as error:
        if "trust_remote_code" in str(error) or "custom code" in str(error):
            reason = "it needs code from its own repository, which is never run"
            fix = f"Give a checkpoint that transformers knows{example and ', such as '}{example}"
        elif isinstance(error, pickle.UnpicklingError):
            reason = "it is damaged or contains objects other than tensors, which are never unpickled"
        elif isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        else:
            reason = one_line(error)
        raise MilcoError(f"{path} cannot be read{kind and ' as '}{kind}: {reason}. {fix}.") from error


def one_line(error: Exception) -> str:
    """Return the first line of an error's text, truncated, without its period; its type if it has no text."""
    return (str(error).strip() or type(error).__name__).split("\n")[0][:200].rstrip(". ")


def listed(names: list[str]) -> str:
    """Return names with commas, at most eight of them."""
    return f"{', '.join(names[:8])} and {len(names) - 8} more" if len(names) > 8 else ", ".join(names)
