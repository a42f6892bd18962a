"""The milco command: `milco COMMAND` runs the module in this table."""

import sys
from collections.abc import Sequence
from importlib import import_module

from milco_pyserini import __version__
from milco_pyserini.cli import program
from milco_pyserini.errors import unknown_name

# Group -> command -> its module and purpose, in the order of the help page.
GROUPS = {
    "Pipeline": {
        "corpora": ("milco_pyserini.cli.corpora", "list named benchmarks; build qrels from answers"),
        "encode": ("milco_pyserini.cli.encode", "encode a corpus, topics or a text as sparse (or dense) vectors"),
        "index": ("milco_pyserini.cli.index", "build an index: lucene, seismic, exact, flat, hnsw or bm25"),
        "search": ("milco_pyserini.cli.search", "search an index and write a TREC run; fuse runs"),
        "export": ("milco_pyserini.cli.export", "export vectors to other search engines: Elasticsearch, Qdrant ..."),
        "eval": ("milco_pyserini.cli.eval", "evaluate runs, with significance tests"),
    },
    "Inspection": {
        "explain": ("milco_pyserini.cli.explain", "show why documents match a query"),
        "serve": ("milco_pyserini.cli.serve", "serve a search page with explanations"),
        "analyze": ("milco_pyserini.cli.analyze", "report sparsity statistics, pruning sweeps and latency"),
        "verify": ("milco_pyserini.cli.verify", "compare stores and indexes with their checksums"),
    },
    "Research": {
        "reproduce": ("milco_pyserini.cli.reproduce", "reproduce the paper's tables, measured next to published"),
        "train": ("milco_pyserini.cli.train", "train a model: SAP on bitext, SCT on retrieval data"),
    },
    "Setup": {
        "demo": ("milco_pyserini.cli.demo", "run the pipeline on the embedded sample"),
        "doctor": ("milco_pyserini.cli.doctor", "check this machine and the installation"),
        "pyserini": ("milco_pyserini.cli.pyserini", "run a Pyserini command with MILCO's encoders"),
    },
}
COMMANDS = {command: entry for group in GROUPS.values() for command, entry in group.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command in this process; return its exit code. argv: the command and its arguments."""
    if argv is None:
        return start()
    return program.run("milco", lambda: _run(list(argv)))


def start(*command: str) -> int:
    """Run the command line of this process. command: prepended words, for modules that are named for a command."""
    return program.start(lambda: _run([*command, *sys.argv[1:]]))


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["help"]:
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
    page = f"milco {__version__}: multilingual learned sparse retrieval\n\nusage: milco COMMAND [options]\n"
    for group, commands in GROUPS.items():
        page += f"\n{group}:\n"
        page += "".join(f"  {command:<11}{purpose}\n" for command, (_, purpose) in commands.items())
    page += "\nStart with `milco demo`. `milco COMMAND --help` lists the options of a command.\n"
    return page
