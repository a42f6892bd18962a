"""milco VERB: the same as python -m milco_pyserini.VERB."""

import sys
from collections.abc import Sequence
from importlib import import_module

from milco_pyserini import __version__, program
from milco_pyserini.errors import unknown_name

VERBS = {
    "corpora": ("milco_pyserini.corpora.__main__", "the benchmarks by name; judgements by answers"),
    "encode": ("milco_pyserini.encode.__main__", "a corpus, topics or one text to term vectors, or to dense ones"),
    "index": ("milco_pyserini.index.__main__", "vectors to lucene, seismic, exact, flat or hnsw; texts to bm25"),
    "search": ("milco_pyserini.search.__main__", "topics against an index to a TREC run; several runs to one"),
    "verify": ("milco_pyserini.verify", "stores and indexes against the checksums of their manifests"),
    "explain": ("milco_pyserini.explain.__main__", "why documents match a query, in a terminal or on a page"),
    "eval": (
        "milco_pyserini.eval.__main__",
        "runs and judgements to figures; sweeps, latency, the paper's tables again",
    ),
    "train": ("milco_pyserini.train.__main__", "SAP and SCT: bitext and retrieval data to a checkpoint"),
    "pyserini": ("milco_pyserini.pyserini", "Pyserini's own commands, with MILCO registered"),
    "demo": ("milco_pyserini.demo.__main__", "all of it on the embedded sample, with figures"),
    "doctor": ("milco_pyserini.doctor", "what this machine has, what it lacks, and how to get it"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb with the arguments behind it; returns its exit code."""
    if argv is None:
        return program.start(lambda: _run(sys.argv[1:]))
    return program.run("milco", lambda: _run(list(argv)))


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
    verb, rest = arguments[0], arguments[1:]
    if verb not in VERBS:
        raise unknown_name("verb", verb, VERBS)
    return import_module(VERBS[verb][0]).main(rest)


def _page() -> str:
    lines = [f"  {verb:<10}{what}" for verb, (_, what) in VERBS.items()]
    head = f"milco_pyserini {__version__}: multilingual learned sparse retrieval\n\nusage: milco VERB [options]\n\n"
    return head + "\n".join(lines) + "\n\nmilco VERB --help lists the options of a verb.\n"


if __name__ == "__main__":
    sys.exit(main())
