"""Pyserini's own commands, with MILCO's encoders.

Pyserini has no registry of encoders: each command chooses a class by substrings of the encoder's name. So a command
gets ALIAS, which has none of those substrings, in place of the name of a MILCO checkpoint, and ALIAS is resolved to the
MILCO encoder. Otherwise Pyserini's modules run unchanged, with the arguments as they were given.
"""

import contextlib
import importlib.util
import os
import re
import runpy
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from milco_pyserini import jvm
from milco_pyserini.console import log
from milco_pyserini.errors import MilcoError, unknown_name
from milco_pyserini.index import open_index
from milco_pyserini.index.errors import reason_of
from milco_pyserini.index.lucene_java import explain_newer_lucene
from milco_pyserini.integrations.pyserini.arguments import PROG, known_options
from milco_pyserini.integrations.pyserini.encoders import is_milco, query_encoder_for, vectors_of
from milco_pyserini.integrations.pyserini.java import start_java
from milco_pyserini.integrations.pyserini.servers import prepare_rest, prepare_server
from milco_pyserini.model.checkpoint import Checkpoint

ALIAS = "milco"
COMMANDS = {
    "encode": "encode documents (JSONL)",
    "encode.query": "encode topics as repeated terms",
    "index.lucene": "build a Lucene impact index of vectors",
    "search.lucene": "search topics, write a run",
    "fusion": "fuse runs",
    "eval.trec_eval": "evaluate a run",
    "server.rest": "serve indexes over HTTP",
    "server.mcp": "serve indexes to agents (MCP)",
}
# The packages of modules that Pyserini imports, and does not require.
_DISTRIBUTIONS = {"faiss": "faiss-cpu"}
# Texts of a thousand words repeat each two or three times; encoded topics repeat each impact times.
_ENCODED_REPETITIONS = 4


def is_command(name: str) -> bool:
    """Return whether Pyserini has a module of that name, without importing it."""
    if not re.fullmatch(r"\w+(\.\w+)*", name):
        return False
    path = jvm.pyserini_directory().joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


def run_pyserini(command: str, arguments: Sequence[str]) -> None:
    """Run the module pyserini.COMMAND in this process as if it were the program. Raises MilcoError if it fails."""
    if not is_command(command):
        hint = "Other modules of Pyserini can be run too, such as 2cr.miracl."
        raise unknown_name("command", command, COMMANDS, hint)
    start_java()
    # eval.trec_eval starts a second Java, by name.
    os.environ["PATH"] = f"{jvm.java_home() / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    prepare = {
        "search.lucene": _prepare_search,
        "encode": _prepare_encode,
        "encode.query": _prepare_encode_query,
        "server.rest": prepare_rest,
        "server.mcp": prepare_server,
    }
    index = known_options(arguments, ("--index",))[0].index
    try:
        sys.argv = [command, *prepare.get(command, list)(list(arguments))]
        with explain_newer_lucene(Path(index)) if index else contextlib.nullcontext():
            runpy.run_module(f"pyserini.{command}", run_name="__main__", alter_sys=True)
    except (MilcoError, BrokenPipeError):
        raise
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        hint = f"Run pip install {_DISTRIBUTIONS.get(package, package)}"
        raise MilcoError(f"pyserini.{command} imports {package}, which is not installed", hint) from error
    except Exception as error:
        # One line for whatever Pyserini, or Java below it, does not handle itself.
        raise MilcoError(f"pyserini.{command}: {type(error).__name__}: {reason_of(error)}") from error


def _prepare_search(arguments: list[str]) -> list[str]:
    """Let search.lucene --impact encode topics with the index's encoder, or with the MILCO checkpoint that is given."""
    names = ("--index", "--encoder", "--onnx-encoder", "--min-idf", "--topics", "--topics-format")
    options, _ = known_options(arguments, names, ("--impact", "--pretokenized", "--rm3", "--rocchio"))
    topics: list[str] = []
    if options.topics is not None:
        from pyserini.query_iterator import TopicsFormat, get_query_iterator

        try:
            form = TopicsFormat(options.topics_format or "default")
            topics = [str(text) for _, text in get_query_iterator(options.topics, form)]
        except Exception as error:
            raise MilcoError(
                f"--topics {options.topics}: Pyserini cannot read them ({reason_of(error)}). Give an existing file "
                "(TSV, JSONL, TREC), or a name that Pyserini knows, such as msmarco-passage-dev-subset"
            ) from error
    if not options.impact:
        return arguments
    vectors = vectors_of(options.index or "")
    if vectors and (options.rm3 or options.rocchio) and not open_index(options.index).manifest.stores_vectors:
        raise MilcoError(
            f"--{'rm3' if options.rm3 else 'rocchio'}: {options.index} stores no vectors, which feedback reads: build "
            "it again with milco index --store --set store_vectors=true"
        )
    encoder: str | None = None
    if options.encoder is not None:
        encoder = options.encoder if is_milco(options.encoder) else None
    elif not (options.onnx_encoder or options.pretokenized):
        encoder = vectors.encoder if vectors else None
        words = [topic.split() for topic in topics]
        is_text = sum(map(len, words)) < _ENCODED_REPETITIONS * sum(len(set(tokens)) for tokens in words)
        if encoder is None and is_text:
            raise MilcoError(
                f"--topics {options.topics} are texts, and {options.index} names no encoder: their words would be "
                "taken for terms. Give --encoder NAME, the checkpoint that encoded the documents, or --pretokenized if "
                "they are terms"
            )
    if encoder is not None:
        Checkpoint.open(encoder).fetch()
        log(f"{PROG}: topics are encoded by {encoder}")
        _register_query_encoder(encoder, vectors)
        arguments = ["--encoder", ALIAS, *_with_alias(arguments)]
    if options.min_idf is None and (encoder or vectors):
        log(f"{PROG}: --min-idf -1, so that terms which are in every document count")
        arguments = ["--min-idf", "-1", *arguments]
    return arguments


def _prepare_encode(arguments: list[str]) -> list[str]:
    """Let encode use MilcoDocumentEncoder for a MILCO checkpoint."""
    options, _ = known_options(arguments, ("--encoder", "--encoder-class"), ("--to-faiss",))
    name = options.encoder
    if name is None or not is_milco(name):
        return arguments
    for option, value in (("--encoder-class", options.encoder_class), ("--to-faiss", options.to_faiss)):
        if value:
            raise MilcoError(f"omit {option}: {name} is a MILCO checkpoint, its vectors are sparse")
    # Before Pyserini is loaded, which takes seconds.
    Checkpoint.open(name).fetch()
    if importlib.util.find_spec("faiss") is None:
        # Pyserini 1.6 imports this module, which imports faiss, without need.
        substitute = ModuleType("pyserini.encode.optional")
        substitute.__dict__["FaissRepresentationWriter"] = None
        sys.modules[substitute.__name__] = substitute
    from pyserini.encode import document_encoder_class_map

    from milco_pyserini.encode.contract import MilcoDocumentEncoder

    document_encoder_class_map[ALIAS] = lambda model_name, device: MilcoDocumentEncoder(name, device)
    defaults = ["--max-length", "0"]
    return [
        part
        for argument in _with_alias(arguments)
        for part in ([argument, *defaults] if argument == "encoder" else [argument])
    ]


def _prepare_encode_query(arguments: list[str]) -> list[str]:
    """Let encode.query use MilcoQueryEncoder for a MILCO checkpoint, at the scale of documents."""
    name = known_options(arguments, ("--encoder",))[0].encoder
    if name is None or not is_milco(name):
        return arguments
    # Before Pyserini is loaded, which takes seconds.
    Checkpoint.open(name).fetch()
    import pyserini.encode

    from milco_pyserini.encode.contract import MilcoQueryEncoder
    from milco_pyserini.sparse.quantization import SCALE

    def open_encoder(model_name: str, device: str, **_: Any) -> SimpleNamespace:
        encoder = MilcoQueryEncoder(name, device)

        def encode(text: str, max_length: int) -> dict[str, float]:
            """Return impact / scale of each term: Pyserini multiplies by the scale and rounds, to the impact again."""
            return {term: impact / encoder.scale for term, impact in encoder.encode(text, max_length).items()}

        return SimpleNamespace(encode=encode)

    # The class that Pyserini uses for all names without a known substring.
    pyserini.encode.AutoQueryEncoder = open_encoder
    defaults = ["--max-length", "0", "--weight-range", "1", "--quant-range", f"{SCALE:.0f}"]
    return [*defaults, *_with_alias(arguments)]


def _register_query_encoder(name: str, vectors: Any) -> None:
    """Make Pyserini resolve ALIAS to the encoder that fits the vectors of an index, or to the checkpoint as it is."""
    from pyserini.search.lucene import LuceneImpactSearcher

    by_name = LuceneImpactSearcher._init_query_encoder_from_str

    def resolve(given: str | None) -> Any:
        return query_encoder_for(name, vectors) if given == ALIAS else by_name(given)

    LuceneImpactSearcher._init_query_encoder_from_str = staticmethod(resolve)


def _with_alias(arguments: list[str]) -> list[str]:
    """Return the arguments with ALIAS as the name of the encoder."""
    renamed = []
    for before, argument in pairwise(["", *arguments]):
        if before == "--encoder":
            argument = ALIAS
        elif argument.startswith("--encoder="):
            argument = f"--encoder={ALIAS}"
        renamed.append(argument)
    return renamed
