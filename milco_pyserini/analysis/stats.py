"""milco eval stats vectors/sample: how sparse vectors are, and what is in them."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milco_pyserini.console import say
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import validate_output_file
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.analysis.stats_counts import Counts
    from milco_pyserini.analysis.stats_lengths import Lengths
    from milco_pyserini.sparse import PlainStore, VectorStore


@dataclass(frozen=True)
class StatsOptions:
    """Sparsity at a glance: terms per document and view, posting lists, the most frequent terms, what is never active,
    length against sparsity; per language where the corpus' name or the ids (ar-07) tell it.

      stats vectors/sample --figure sample.png

    Vectors are read once, as they are stored, in memory for one part, 24 bytes a document (44 with its length) and 8
    bytes a column and language.
    """

    vectors: Path = option(help="vector store of documents or topics, as milco encode writes it")
    corpus: str | None = option(
        None, help="where the texts are, for their lengths (default: the vectors' corpus, if a path or the sample)"
    )
    encoder: str | None = option(None, help="where the vectors' encoder is now, whose tokens are counted")
    plain: bool = option(False, help="--vectors is Anserini JSONL that others wrote: a directory or a file")
    scale: float | None = option(
        None, above=0, maximum=2**31 - 1, help="with --plain: impact = round(weight x scale), if weights are not whole"
    )
    format: str = option("text", choices=("text", "json"), help="how the figures on stdout are written")
    figure: Path | None = option(None, help="write a picture to this .png file")
    overwrite: bool = option(False, help="replace the picture if it is there")


def stats_command(options: StatsOptions) -> None:
    """Read the vectors, and the texts if they are at hand, then print. Raises MilcoError for bad input before that."""
    _check(options)
    from milco_pyserini.analysis.stats_counts import count
    from milco_pyserini.analysis.stats_lengths import open_texts, text_lengths
    from milco_pyserini.analysis.stats_report import report
    from milco_pyserini.analysis.stats_text import shown_report
    from milco_pyserini.sparse import open_store

    store = open_store(options.vectors, options.plain, 1.0 if options.scale is None else options.scale)
    # Opened first: a name that is none should not cost a pass over the vectors.
    texts = open_texts(store, options.corpus, options.encoder)
    counts = count(store)
    lengths = None if texts is None else text_lengths(counts, texts)
    value = report(store, counts, lengths)
    if options.figure is not None:
        _draw(options.figure, store, counts, lengths, value)
    if options.format == "json":
        import orjson

        sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        sys.stdout.write(shown_report(value))


def _check(options: StatsOptions) -> None:
    if options.scale is not None and not options.plain:
        raise MilcoError("--scale is for --plain: a vector store states its own")
    if options.figure is None:
        return
    if options.figure.suffix.lower() != ".png":
        raise MilcoError(f"--figure {options.figure}: the picture is PNG, give a name that ends in .png")
    validate_output_file(options.figure, options.overwrite, "--figure")


def _draw(
    path: Path, store: "VectorStore | PlainStore", counts: "Counts", lengths: "Lengths | None", value: dict[str, Any]
) -> None:
    from milco_pyserini.analysis.stats_figure import draw

    draw(path, f"{store.path.name}: {value['documents']:,} {value['unit']}", counts, lengths, value)
    say(f"picture in {path}")
