"""milco explain --index indexes/sample.lucene --query "..." --doc ID: why a document matched."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import counted, say
from milco_pyserini.defaults import DEFAULT_ENCODER, INDEXES
from milco_pyserini.errors import MilcoError, shown, validate_unique
from milco_pyserini.io.files import atomic_file, validate_output_file
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.explain.parts import Comparison, Explanation

PROG = "milco explain"


@dataclass(frozen=True)
class Options:
    """Why a document matches a query: the terms that both have, what each gives to the score, where in the texts it
    came from, and what pruning or rounding took away. The parts add up to the engine's score.

    The best hits of an index, some of its documents, or two texts:
      --index indexes/sample.lucene --query "..."
      --index indexes/sample.lucene --query "..." --doc ar-01 en-01 --compare
      --query "..." --text "..." --encoder mini

    One more command, with its own --help:
      serve    a page on this machine to type queries into and see results with their explanations
    """

    query: str = option(help="the query's text, in any language")
    index: Path | None = option(None, help="directory of the index (default: the only one in indexes/)")
    doc: tuple[str, ...] = option((), metavar="ID", help="documents of the index (default: its best hits)")
    text: tuple[str, ...] = option((), help="texts in place of an index's documents")
    hits: int = option(3, minimum=1, help="without --doc: how many of the best hits")
    alpha: float | None = option(
        None,
        minimum=0,
        maximum=1,
        help="weigh the query's views as search --alpha does: alpha x pivot + (1 - alpha) x source",
    )
    compare: bool = option(False, help="why one document stands above another: the two of --doc, or the first two hits")
    top_k: int = option(20, minimum=1, help="parts to print of each document")
    json: bool = option(False, help="everything as JSON on stdout")
    html: Path | None = option(None, help="write one page with both texts highlighted to this file")
    corpus: str | None = option(None, help="where the index's documents are now (default: where they were encoded)")
    vectors: Path | None = option(None, help="the vector store of the index, for documents without a text at hand")
    encoder: str | None = option(
        None, help=f"with --text: checkpoint (default: {DEFAULT_ENCODER}); else where the index's encoder is now"
    )
    lowercase: bool = option(False, help="with --text: lower-case the texts first; an index knows")
    device: str = option("auto", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", help="auto, float32 or bfloat16")
    overwrite: bool = option(False, help="replace the file of --html if it is there")


def command(options: Options) -> None:
    """Explain. Raises MilcoError before anything is loaded if the options do not fit each other."""
    _check(options)
    explanations = _of_texts(options) if options.text else _of_index(options)
    comparison = None
    if options.compare:
        from milco_pyserini.explain.parts import compare

        if len(explanations) < 2:
            raise MilcoError(f"--compare needs two documents, the index found {len(explanations)} for this query")
        comparison = compare(*explanations[:2])
    _write(options, explanations, comparison)


def _check(options: Options) -> None:
    if not options.query.strip():
        raise MilcoError("--query is empty")
    if options.text:
        for name in ("index", "doc", "corpus", "vectors"):
            if getattr(options, name):
                raise MilcoError(f"--text explains texts without an index: leave --{name} or --text out")
    elif options.lowercase:
        raise MilcoError("--lowercase is for --text: an index knows how its documents were spelled")
    validate_unique("document", map(shown, options.doc))
    given = options.text or options.doc
    if options.compare and (len(given) not in (0, 2) or (options.text and len(given) != 2)):
        raise MilcoError(f"--compare is of two documents, {len(given)} given")
    if options.html is not None:
        validate_output_file(options.html, options.overwrite, "--html")


def only_index() -> Path:
    """The index in indexes/, where there is but one."""
    found = sorted(path.parent for path in INDEXES.glob("*/manifest.json"))
    if len(found) != 1:
        which = f"there are {', '.join(map(str, found))}" if found else f"there is none in {INDEXES}/"
        raise MilcoError(f"which --index? {which}; or give two texts, --query and --text")
    return found[0]


def _of_index(options: Options) -> "list[Explanation]":
    from milco_pyserini.explain import Explainer

    explainer = Explainer.open(
        options.index or only_index(),
        options.encoder,
        options.corpus,
        options.vectors,
        options.alpha,
        options.device,
        options.dtype,
    )
    return explainer.explain(options.query, options.doc, max(options.hits, 2 if options.compare else 1))


def _of_texts(options: Options) -> "list[Explanation]":
    from milco_pyserini.encode import open_encoder
    from milco_pyserini.explain.explainer import explain_texts

    encoder = open_encoder(options.encoder or DEFAULT_ENCODER, options.device, options.dtype)
    return explain_texts(encoder, options.query, options.text, options.lowercase, options.alpha)


def _write(options: Options, explanations: "Sequence[Explanation]", comparison: "Comparison | None") -> None:
    if options.html is not None:
        from milco_pyserini.explain.page import report_page

        with atomic_file(options.html, "w") as file:
            file.write(report_page(options.query, explanations, comparison))
        say(f"page in {options.html}: {counted(len(explanations), 'document')}")
    if options.json:
        import orjson

        value = {
            "explanations": [one.to_json() for one in explanations],
            "comparison": comparison and comparison.to_json(),
        }
        sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n")
    elif options.html is None:
        from milco_pyserini.explain.terminal import comparison_text, explanation_text

        texts = [explanation_text(one, options.top_k) for one in explanations]
        texts += [comparison_text(comparison, options.top_k)] if comparison else []
        sys.stdout.write("\n".join(texts) or "no document has a term of this query\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments and arguments[0] == "serve":
        from milco_pyserini.serve.app import ServeOptions, serve_command

        return run_command(f"{PROG} serve", ServeOptions, serve_command, arguments[1:], "the page is gone")
    return run_command(PROG, Options, command, argv, interrupted="nothing was written")
