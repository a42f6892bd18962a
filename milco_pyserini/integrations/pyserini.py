"""milco pyserini search.lucene ...: Pyserini's own commands, with Java started and MILCO known.

Pyserini has no registry of encoders: each command picks a class by parts of the encoder's name. So it is told
ALIAS, which holds none of those parts, in place of a MILCO checkpoint's name, and ALIAS gives the MILCO encoder.
Everything else is Pyserini's: its modules are run unchanged, with the arguments as they were given.
"""

import argparse
import contextlib
import importlib.util
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from milco_pyserini.cli import program
from milco_pyserini.console import say
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.index import jvm
from milco_pyserini.index.errors import reason_of
from milco_pyserini.io.files import read_json
from milco_pyserini.io.hub import fetch_hub_file

if TYPE_CHECKING:
    from milco_pyserini.encode.contract import MilcoQueryEncoder

PROG = "milco pyserini"
ALIAS = "milco"
# Texts of a thousand words have each two or three times; impacts are up to hundreds.
_REPEATED = 4
COMMANDS = {
    "encode": "documents to vectors (JSONL)",
    "encode.query": "topics to topics of repeated terms",
    "index.lucene": "vectors to a Lucene impact index",
    "search.lucene": "topics to a run",
    "fusion": "runs to one run",
    "eval.trec_eval": "a run to figures",
}
PAGE = f"""usage: python -m {PROG} COMMAND ARGUMENTS

Run Pyserini's own command, python -m pyserini.COMMAND ARGUMENTS, unchanged: with a Java that suits it, and with
--encoder NAME taken for MILCO where NAME is a MILCO checkpoint ({MINI}, a directory, a hub name).

commands:
{{commands}}

Where MILCO encodes and the option is not given:
  search.lucene --impact   --encoder is that of an index made by milco index (with --pretokenized the
                           topics are terms already); --min-idf is -1, because Pyserini's 0 drops every term that
                           is in all documents
  encode, encode.query     --max-length is the checkpoint's
  encode.query             --weight-range 1 --quant-range 100, the scale that documents are encoded with

COMMAND --help is Pyserini's own page.
"""


def is_milco(name: str) -> bool:
    """Whether name is a MILCO checkpoint: an embedded one, a directory or hub name whose config.json says so.

    A hub name with "milco" in it is taken for one without asking the hub.
    """
    if name == MINI:
        return True
    if Path(name).exists():
        config = Path(name) / "config.json"
        return config.is_file() and read_json(config).get("model_type") == "milco"
    return "milco" in name.lower() or _hub_model_type(name) == "milco"


def run(command: str, arguments: Sequence[str]) -> None:
    """Run pyserini.COMMAND in this process as if it were the program. Raises MilcoError for what is asked wrongly."""
    if command not in COMMANDS:
        raise unknown_name("command", command, COMMANDS)
    jvm.start()
    # eval.trec_eval starts a second Java, by name.
    os.environ["PATH"] = f"{jvm.java_home() / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    prepare = _PREPARE.get(command, list)
    sys.argv = [command, *prepare(list(arguments))]
    try:
        runpy.run_module(f"pyserini.{command}", run_name="__main__", alter_sys=True)
    except (MilcoError, BrokenPipeError):
        raise
    except Exception as error:
        # One line for whatever Pyserini, or Java below it, does not catch itself.
        raise MilcoError(f"pyserini.{command}: {type(error).__name__}: {reason_of(error)}") from error


def _prepare_search(arguments: list[str]) -> list[str]:
    options = ("--index", "--encoder", "--onnx-encoder", "--min-idf", "--topics", "--topics-format")
    asked = _read(arguments, options, ("--impact", "--pretokenized"))
    topics = [] if asked.topics is None else _read_topics(asked)
    if not asked.impact:
        return arguments
    vectors = _vectors_of(asked.index or "")
    name = _topics_encoder(asked, vectors)
    terms = asked.encoder or asked.onnx_encoder or asked.pretokenized
    if name is None and not terms and _look_like_texts(topics):
        raise MilcoError(
            f"--topics {asked.topics} are texts, and {asked.index} names no encoder: their words would be taken for "
            "terms. Give --encoder NAME, the checkpoint that encoded the documents, or --pretokenized if they are terms"
        )
    if name is not None:
        _find(name)
        say(f"{PROG}: topics are encoded by {name}")
        _teach_search(lambda: _query_encoder(name, vectors))
        arguments = ["--encoder", ALIAS, *_renamed(arguments)]
    if asked.min_idf is None and (name or vectors):
        say(f"{PROG}: --min-idf -1, so that terms which are in every document count")
        arguments = ["--min-idf", "-1", *arguments]
    return arguments


def _read_topics(asked: argparse.Namespace) -> list[str]:
    """Return the topics as Pyserini reads them. Raises MilcoError if it cannot."""
    from pyserini.query_iterator import TopicsFormat, get_query_iterator

    try:
        topics = get_query_iterator(asked.topics, TopicsFormat(asked.topics_format or "default"))
        return [str(text) for _, text in topics]
    except Exception as error:
        raise MilcoError(
            f"--topics {asked.topics}: Pyserini cannot read them ({reason_of(error)}). Give an existing file (TSV, "
            "JSONL, TREC), or a name that Pyserini knows, such as msmarco-passage-dev-subset"
        ) from error


def _look_like_texts(topics: Sequence[str]) -> bool:
    """Whether topics repeat their words as texts do; encoded ones repeat each term as often as its impact says."""
    words = [topic.split() for topic in topics]
    return sum(map(len, words)) < _REPEATED * sum(len(set(one)) for one in words)


def _topics_encoder(asked: argparse.Namespace, vectors: dict) -> str | None:
    """The MILCO checkpoint that encodes the topics, if one does: the one asked for, else the index's own."""
    if asked.encoder is not None:
        return asked.encoder if is_milco(asked.encoder) else None
    return None if asked.onnx_encoder or asked.pretokenized else vectors.get("encoder")


def _prepare_encode(arguments: list[str]) -> list[str]:
    asked = _read(arguments, ("--encoder", "--encoder-class"), ("--to-faiss",))
    name = asked.encoder
    if name is None or not is_milco(name):
        return arguments
    for option, given in (("--encoder-class", asked.encoder_class), ("--to-faiss", asked.to_faiss)):
        if given:
            raise MilcoError(f"leave out {option}: {name} is a MILCO checkpoint, it makes vectors of terms")
    _find(name)
    _do_without_faiss()
    from pyserini.encode import document_encoder_class_map

    from milco_pyserini.encode import MilcoDocumentEncoder

    document_encoder_class_map[ALIAS] = lambda model_name, device: MilcoDocumentEncoder(name, device)
    defaults = ["--max-length", "0"]
    return [part for one in _renamed(arguments) for part in ([one, *defaults] if one == "encoder" else [one])]


def _prepare_encode_query(arguments: list[str]) -> list[str]:
    name = _read(arguments, ("--encoder",)).encoder
    if name is None or not is_milco(name):
        return arguments
    _find(name)
    import pyserini.encode

    from milco_pyserini.encode import MilcoQueryEncoder
    from milco_pyserini.sparse.quantization import SCALE

    # The class of every name that holds no part it knows.
    pyserini.encode.AutoQueryEncoder = lambda model_name, device, **_: _QueryWeights(MilcoQueryEncoder(name, device))
    defaults = ["--max-length", "0", "--weight-range", "1", "--quant-range", f"{SCALE:.0f}"]
    return [*defaults, *_renamed(arguments)]


_PREPARE: dict[str, Callable[[list[str]], list[str]]] = {
    "search.lucene": _prepare_search,
    "encode": _prepare_encode,
    "encode.query": _prepare_encode_query,
}


class _QueryWeights:
    """A query encoder as encode.query wants it: weights, which it makes whole numbers of itself."""

    def __init__(self, encoder: "MilcoQueryEncoder") -> None:
        self.encoder = encoder

    def encode(self, text: str, max_length: int) -> dict[str, float]:
        """Impact / scale of each term: times scale and rounded, the impact again."""
        impacts = self.encoder.encode(text, max_length)
        return {term: impact / self.encoder.scale for term, impact in impacts.items()}


def _find(name: str) -> None:
    """Raise MilcoError if the checkpoint cannot be had, seconds before Pyserini would be loaded to find out."""
    from milco_pyserini.model import find_checkpoint

    find_checkpoint(name)


def _teach_search(open_encoder: Callable[[], "MilcoQueryEncoder"]) -> None:
    from pyserini.search.lucene import LuceneImpactSearcher

    by_name = LuceneImpactSearcher._init_query_encoder_from_str

    def choose(name: str | None) -> Any:
        return open_encoder() if name == ALIAS else by_name(name)

    LuceneImpactSearcher._init_query_encoder_from_str = staticmethod(choose)


def _query_encoder(name: str, vectors: dict) -> "MilcoQueryEncoder":
    """The encoder as the index's vectors need it; as the checkpoint says where nothing is known of them."""
    from milco_pyserini.encode import MilcoQueryEncoder, open_query_encoder

    return open_query_encoder(vectors, name) if vectors.get("encoder") else MilcoQueryEncoder(name)


def _vectors_of(index: str) -> dict:
    """The manifest of the vectors in an index of ours; nothing for another's, or a prebuilt one's name."""
    from milco_pyserini.index.directory import MANIFEST, open_index

    if not (Path(index) / MANIFEST).is_file():
        return {}
    opened = open_index(Path(index))
    if opened.manifest["engine"] != "lucene":
        raise MilcoError(
            f"{index} is an index of engine {opened.manifest['engine']!r}, which Pyserini cannot read: build one "
            "with milco index --vectors VECTORS --engine lucene"
        )
    return opened.vectors


def _do_without_faiss() -> None:
    """Where faiss is missing, stand in for the one module of it that Pyserini 1.6 imports without need."""
    if importlib.util.find_spec("faiss") is None:
        stand_in = ModuleType("pyserini.encode.optional")
        stand_in.__dict__["FaissRepresentationWriter"] = None
        sys.modules[stand_in.__name__] = stand_in


def _hub_model_type(name: str) -> str | None:
    """Return the model type in a hub model's config.json; None if there is no such model or no way to reach it."""
    from huggingface_hub.errors import HFValidationError

    # If the name is not a model, Pyserini reports what is wrong with it.
    with contextlib.suppress(MilcoError, HFValidationError, OSError):
        return read_json(fetch_hub_file(name, "config.json")).get("model_type")
    return None


def _read(arguments: list[str], options: Sequence[str], flags: Sequence[str] = ()) -> argparse.Namespace:
    """The values of some of a command's options; the others are its own affair."""
    parser = argparse.ArgumentParser(prog=PROG, usage=argparse.SUPPRESS, add_help=False, allow_abbrev=False)
    for option in options:
        parser.add_argument(option)
    for flag in flags:
        parser.add_argument(flag, action="store_true")
    return parser.parse_known_args(arguments)[0]


def _renamed(arguments: list[str]) -> list[str]:
    """The same arguments with ALIAS as the encoder's name."""
    renamed = []
    for before, argument in pairwise(["", *arguments]):
        if before == "--encoder":
            argument = ALIAS
        elif argument.startswith("--encoder="):
            argument = f"--encoder={ALIAS}"
        renamed.append(argument)
    return renamed


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        commands = "\n".join(f"  {name:<15} {purpose}" for name, purpose in COMMANDS.items())
        sys.stdout.write(PAGE.format(commands=commands))
        return 0
    try:
        run(arguments[0], arguments[1:])
    except MilcoError as error:
        return program.fail(PROG, str(error))
    return 0
