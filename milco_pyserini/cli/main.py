"""The milco command: `milco COMMAND` runs an entry point of milco.commands."""

import sys
from collections.abc import Callable, Sequence

from milco_pyserini import __version__
from milco_pyserini.cli import program
from milco_pyserini.errors import validate_name
from milco_pyserini.registry import Registry

__all__ = ["main"]

# Group -> command -> its purpose, in the order of the help page.
GROUPS = {
    "Pipeline": {
        "corpora": "list named benchmarks; detect the languages of documents",
        "encode": "encode a corpus, topics or a text as sparse vectors",
        "index": "build an index: lucene, exact, qdrant or seismic",
        "search": "search an index and write a TREC run; fuse and rerank runs",
        "export": "write files for other search engines, or fill their servers: OpenSearch, Qdrant ...",
        "keywords": "write English words of any text as a query of another engine; search an English BM25 index",
        "eval": "evaluate runs, with significance tests",
    },
    "Inspection": {
        "explain": "show why documents match a query",
        "serve": "serve a search page, a REST API and tools for agents",
        "analyze": "report sparsity statistics and pruning sweeps",
        "verify": "compare stores and indexes with their checksums",
    },
    "Research": {
        "train": "train a model: SAP on bitext, SCT on retrieval data",
        "upstream": "write the files by which Pyserini and Anserini reproduce a run",
    },
    "Setup": {
        "demo": "run the pipeline on the embedded sample",
        "doctor": "check this machine and the installation",
        "pyserini": "run a Pyserini command with MILCO's encoders",
    },
}
COMMANDS = {command: purpose for group in GROUPS.values() for command, purpose in group.items()}
MAINS: Registry[Callable[[Sequence[str]], int]] = Registry("milco.commands", Callable)


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
    if arguments[0] in ("-v", "-V", "--version", "version"):
        sys.stdout.write(f"milco_pyserini {__version__}\n")
        return 0
    command, rest = arguments[0], arguments[1:]
    validate_name("command", command, MAINS)
    return MAINS[command](rest)


def _page() -> str:
    page = f"milco {__version__}: multilingual learned sparse retrieval\n\nusage: milco COMMAND [options]\n"
    others = {name: f"from the package {declared.owner}" for name, declared in MAINS.others.items()}
    for group, commands in (GROUPS | ({"Other packages": others} if others else {})).items():
        page += f"\n{group}:\n"
        page += "".join(f"  {command:<11}{purpose}\n" for command, purpose in commands.items())
    page += "\nStart with `milco demo`. `milco COMMAND --help` lists the options of a command, and its subcommands.\n"
    return page
