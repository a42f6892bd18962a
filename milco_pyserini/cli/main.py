"""The milco command: `milco COMMAND` runs the module of milco_pyserini.cli that has its name."""

import sys
from collections.abc import Sequence
from importlib import import_module

from milco_pyserini import __version__
from milco_pyserini.cli import program
from milco_pyserini.errors import unknown_name

COMMANDS = {
    "corpora": ("milco_pyserini.cli.corpora", "the benchmarks by name; judgements by answers"),
    "encode": ("milco_pyserini.cli.encode", "a corpus, topics or one text to term vectors, or to dense ones"),
    "index": ("milco_pyserini.cli.index", "vectors to lucene, seismic, exact, flat or hnsw; texts to bm25"),
    "search": ("milco_pyserini.cli.search", "topics against an index to a TREC run; several runs to one"),
    "verify": ("milco_pyserini.cli.verify", "stores and indexes against the checksums of their manifests"),
    "explain": ("milco_pyserini.cli.explain", "why documents match a query, in a terminal or on a page"),
    "eval": ("milco_pyserini.cli.eval", "runs and qrels to measures, with tests of significance"),
    "analyze": ("milco_pyserini.cli.analyze", "sparsity statistics, pruning sweeps and latency tables"),
    "train": ("milco_pyserini.cli.train", "SAP and SCT: bitext and retrieval data to a checkpoint"),
    "pyserini": ("milco_pyserini.integrations.pyserini", "Pyserini's own commands, with MILCO registered"),
    "demo": ("milco_pyserini.cli.demo", "all of it on the embedded sample, with figures"),
    "doctor": ("milco_pyserini.cli.doctor", "what this machine has, what it lacks, and how to get it"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command in this process and return its exit code. argv: the command and its arguments."""
    if argv is None:
        return start()
    return program.run("milco", lambda: _run(list(argv)))


def start(*command: str) -> int:
    """Run the command of this process's command line. command: its first words, where the module is named for them."""
    return program.start(lambda: _run([*command, *sys.argv[1:]]))


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["help"]:
        # milco help encode is milco encode --help.
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(_page())
        return 0
    if arguments[0] in ("-V", "--version", "version"):
        sys.stdout.write(f"milco_pyserini {__version__}\n")
        return 0
    command, rest = arguments[0], arguments[1:]
    if command not in COMMANDS:
        raise unknown_name("command", command, COMMANDS)
    return import_module(COMMANDS[command][0]).main(rest)


def _page() -> str:
    lines = [f"  {command:<10}{what}" for command, (_, what) in COMMANDS.items()]
    head = f"milco_pyserini {__version__}: multilingual learned sparse retrieval\n\nusage: milco COMMAND [options]\n\n"
    return head + "\n".join(lines) + "\n\nmilco COMMAND --help lists the options of a command.\n"
