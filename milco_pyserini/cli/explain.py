"""milco explain: why documents match a query."""

import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import counted, log
from milco_pyserini.defaults import DEFAULT_ENCODER, only_index
from milco_pyserini.errors import ParameterError, shown, validate_unique
from milco_pyserini.io.files import atomic_file, validate_output_file
from milco_pyserini.options import DeviceOptions, option, options_of
from milco_pyserini.request import SCORING, SearchRequest

if TYPE_CHECKING:
    from milco_pyserini.encode.contract import MilcoQueryEncoder
    from milco_pyserini.explain.explainer import Explainer


@dataclass(frozen=True)
class ExplainOptions(DeviceOptions):
    """Explain why documents match a query: the terms they share, what each adds to the score, where in the texts it
    comes from, and what pruning or rounding removed. The contributions sum to the engine's score.

    Explains the best hits of an index, named documents, or texts without an index:
      milco explain --index indexes/sample.lucene --query "..."
      milco explain --index indexes/sample.lucene --query "..." --doc ar-01 en-01 --compare
      milco explain --query "..." --text "..." --encoder mini
    """

    query: str = option(metavar="TEXT", help="query, in any language")
    index: Path | None = option(None, metavar="DIR", help="directory of the index (default: the only one in indexes/)")
    doc: tuple[str, ...] = option((), metavar="ID", help="documents of the index (default: its best hits)")
    text: tuple[str, ...] = option(
        (),
        metavar="TEXT",
        excludes=("index", "doc", "vectors", "balance"),
        help="texts in place of an index's documents",
    )
    k: int = option(
        3, minimum=1, names=("--hits",), excludes=("doc", "text"), help="number of best hits to explain without --doc"
    )
    request: SearchRequest = options_of(SearchRequest, *SCORING, without=("views",))
    compare: bool = option(False, help="compare two documents: those of --doc, or the first two hits")
    top_k: int | None = option(
        None,
        minimum=1,
        metavar="K",
        group="output",
        excludes=("json", "html"),
        help="terms per document (default: those from 5 % of the score)",
    )
    json: bool = option(False, group="output", help="all facts as JSON on stdout")
    html: Path | None = option(None, metavar="FILE", group="output", help="HTML page with highlighted texts")
    overwrite: bool = option(False, group="output", requires="html", help="replace an existing --html file")
    vectors: Path | None = option(
        None, metavar="DIR", group="sources", help="vector store of the index, for documents without a text"
    )
    encoder: str | None = option(
        None,
        metavar="NAME|DIR",
        group="sources",
        help=f"encoder of --text (default: {DEFAULT_ENCODER}), or the current location of the index's encoder",
    )
    lowercase: bool = option(
        False, group="sources", requires="text", help="lowercase --text first; an index has its own setting"
    )


def command(options: ExplainOptions) -> None:
    """Explain, and print or write the result."""
    _validate(options)
    from milco_pyserini.explain.explainer import explain_texts
    from milco_pyserini.explain.explanation import compare

    if options.text:
        from milco_pyserini.encode.opening import load_encoder

        encoder = load_encoder(options.encoder or DEFAULT_ENCODER, options.device, options.dtype)
        explanations = explain_texts(encoder, options.query, options.text, options.lowercase, options.request.alpha)
    else:
        k = max(options.k, 2 if options.compare else 1)
        explanations = _open_explainer(options).explain(options.query, options.doc, replace(options.request, k=k))
    if options.compare and len(explanations) < 2:
        rule = f"needs two documents, but the index has {len(explanations)} for this query"
        raise ParameterError("compare", None, rule)
    comparison = compare(*explanations[:2]) if options.compare else None
    if options.html is not None:
        from milco_pyserini.explain.explanation import report_page

        with atomic_file(options.html, "w") as file:
            file.write(report_page(explanations, comparison, options.query))
        log(f"Wrote {options.html} ({counted(len(explanations), 'document')})")
    if options.json:
        import orjson

        value = {
            "explanations": [explanation.to_json() for explanation in explanations],
            "comparison": comparison and comparison.to_json(),
        }
        sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n")
    elif options.html is None:
        tables = [explanation.to_text(options.top_k) for explanation in explanations]
        tables += [comparison.to_text(options.top_k or 20)] if comparison else []
        sys.stdout.write("\n".join(tables) or "no document has a term of this query\n")


def _open_explainer(options: ExplainOptions) -> "Explainer":
    """Open the index; its documents and vectors are checked before the encoder is loaded."""
    from milco_pyserini.explain.contributions import find_store
    from milco_pyserini.explain.explainer import Explainer, indexed_weights
    from milco_pyserini.index.weights import TermImpacts
    from milco_pyserini.search.searcher import Searcher

    path, device = options.index or only_index(), options.device
    opened = Searcher.open(path, options.encoder, device=device, dtype=options.dtype).one()
    index, searcher = opened.index, opened.engine_searcher
    for docid in options.doc:
        indexed_weights(TermImpacts(searcher, index), index, docid, [])
    store = find_store(index, options.vectors)
    return Explainer(index, cast("MilcoQueryEncoder", opened.query_encoder), opened.lookup, store, searcher)


def _validate(options: ExplainOptions) -> None:
    if not options.query.strip():
        raise ParameterError("query", None, "is empty")
    validate_unique("document", map(shown, options.doc))
    documents = options.text or options.doc
    if options.compare and (len(documents) not in (0, 2) or (options.text and len(documents) != 2)):
        raise ParameterError("compare", None, f"needs two documents, got {len(documents)}")
    if options.html is not None:
        validate_output_file(options.html, options.overwrite, "html")


main = partial(run_command, "milco explain", ExplainOptions, command, interrupted="nothing was written")
