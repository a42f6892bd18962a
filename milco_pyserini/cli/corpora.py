"""milco corpora: list the benchmarks, show one, detect the languages of documents."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.cli.parser import Subcommand, dispatch
from milco_pyserini.console import Progress, counted
from milco_pyserini.errors import MilcoError, nearest, unknown_name
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.corpora.benchmark import Benchmark

PROG = "milco corpora"


@dataclass(frozen=True)
class ListOptions:
    """List the benchmarks: languages, sizes, licenses, sources.

    Works without a network. Sizes are the published ones.

      milco corpora list miracl limit
    """

    benchmarks: tuple[str, ...] = option((), positional=True, metavar="BENCHMARK", help="only these benchmarks")
    names: bool = option(False, help="every name of a corpus and of topics, with its size")


@dataclass(frozen=True)
class ShowOptions:
    """Show a benchmark and all its names, or one corpus or topics.

    Works without a network.

      milco corpora show miracl miracl-ar-dev
    """

    names: tuple[str, ...] = option(
        positional=True, metavar="NAME", help="a benchmark or one of its names, such as miracl or miracl-ar-dev"
    )


@dataclass(frozen=True)
class DetectOptions:
    """Add the field lang to documents: the language of their text, for --filter and --balance.

    Documents that have the field keep theirs, and uncertain texts get none. Ids and texts do not change: a new store
    reuses the vectors of the old one.

      milco corpora detect --corpus docs.jsonl --output docs.lang.jsonl
      milco encode --corpus docs.lang.jsonl --reuse vectors/docs --output vectors/docs.lang
    """

    corpus: str = option(metavar="NAME|PATH", help="corpus: a name, or JSONL or TSV")
    output: Path = option(metavar="FILE", help="JSONL file to write; compressed if its name ends in .gz")
    languages: tuple[str, ...] = option(
        (), metavar="CODE", help="languages that the documents are in: de zh yue (default: any of 139)"
    )
    overwrite: bool = option(False, help="replace the file at --output")


def list_benchmarks(options: ListOptions) -> None:
    """Print the benchmarks, or all of their names."""
    from milco_pyserini.corpora.catalog import BENCHMARKS

    for name in options.benchmarks:
        if name not in BENCHMARKS:
            raise unknown_name("benchmark", name, BENCHMARKS)
    names = options.benchmarks or tuple(BENCHMARKS)
    benchmarks = [benchmark for name, benchmark in BENCHMARKS.items() if name in names]
    sys.stdout.write(_name_table(benchmarks) if options.names else "\n".join(map(_summary, benchmarks)))


def show_names(options: ShowOptions) -> None:
    """Print a benchmark with its names, or the facts about one name."""
    from milco_pyserini.corpora.catalog import BENCHMARKS, CORPORA, TOPICS, find_benchmark

    pages = []
    for name in options.names:
        # sample is a benchmark and one of its names: the benchmark shows both.
        if name in BENCHMARKS:
            pages.append(f"{_summary(BENCHMARKS[name])}\n{_name_table([BENCHMARKS[name]])}")
            continue
        benchmark = find_benchmark(name)
        if benchmark is None:
            near = nearest(name, [*BENCHMARKS, *CORPORA, *TOPICS])
            guess = f"did you mean {near!r}? " if near else ""
            raise MilcoError(f"unknown name {name!r}: {guess}'{PROG} list' shows the benchmarks")
        facts = {"benchmark": f"{benchmark.name} ({benchmark.title})"}
        uses = []
        if name in benchmark.corpora:
            facts |= {
                "documents": _size(benchmark.corpora[name].size),
                "language": benchmark.corpora[name].language or "",
            }
            uses.append(f"--corpus {name}")
        if name in benchmark.topics:
            facts["topics"] = _size(benchmark.topics[name].size)
            has_qrels = benchmark.topics[name].qrels is not None
            uses.append(f"--topics {name}{f', --qrels {name}' if has_qrels else ''}")
        pages.append(_facts(name, facts | {"use": " or ".join(uses)} | _provenance(benchmark)))
    sys.stdout.write("\n".join(pages))


def detect(options: DetectOptions) -> None:
    """Write the corpus with the languages of its documents."""
    from milco_pyserini.corpora import open_corpus
    from milco_pyserini.corpora.languages import FIELD, detect_languages
    from milco_pyserini.corpora.records import document_line
    from milco_pyserini.io.files import text_output, validate_output_file

    validate_output_file(options.output, overwrite=True)
    is_new = options.overwrite or not options.output.exists()
    progress, with_language = Progress("documents"), 0
    with text_output(options.output, options.overwrite) as file:
        for document in detect_languages(open_corpus(options.corpus), options.languages):
            file.write(f"{document_line(document)}\n")
            with_language += FIELD in document.fields
            progress.add(1)
    progress.close(f"Wrote {options.output}, {with_language:,} with a {FIELD}" if is_new else None)


SUBCOMMANDS: Mapping[str, Subcommand] = {
    "list": Subcommand(ListOptions, list_benchmarks),
    "show": Subcommand(ShowOptions, show_names),
    "detect": Subcommand(DetectOptions, detect, "no file was written"),
}
main = partial(dispatch, PROG, SUBCOMMANDS, "List benchmarks and their names; detect the languages of documents.")


def _summary(benchmark: "Benchmark") -> str:
    languages = " ".join(benchmark.languages)
    corpora, topics = _names(benchmark).values()
    facts = {
        "languages": languages if len(languages) < 90 else f"{len(benchmark.languages)}: {languages[:70]} ...",
        "corpus": f"{benchmark.corpus_names} ({_size_range(corpora, 'document')})",
        "topics": f"{benchmark.topics_names} ({_size_range(topics, 'topic')})",
    }
    return _facts(f"{benchmark.name}: {benchmark.title}", facts | _provenance(benchmark))


def _provenance(benchmark: "Benchmark") -> dict[str, str]:
    return {
        "license": benchmark.license,
        "citation": benchmark.citation,
        "source": benchmark.source,
        "text": benchmark.field_rule,
        "note": benchmark.note,
        "unconfirmed": benchmark.unconfirmed,
    }


def _names(benchmark: "Benchmark") -> dict[str, dict[str, int | None]]:
    """Return the published size of every name."""
    return {
        "corpora": {name: corpus.size for name, corpus in benchmark.corpora.items()},
        "topics": {name: topics.size for name, topics in benchmark.topics.items()},
    }


def _name_table(benchmarks: Sequence["Benchmark"]) -> str:
    from tabulate import tabulate

    rows = [
        (name, kind, _size(size))
        for benchmark in benchmarks
        for kind, sizes in zip(("corpus", "topics"), _names(benchmark).values(), strict=True)
        for name, size in sizes.items()
    ]
    return tabulate(rows, ("name", "kind", "size"), tablefmt="plain", disable_numparse=True) + "\n"


def _facts(title: str, facts: Mapping[str, str]) -> str:
    return f"{title}\n" + "".join(f"  {name:<12}{value}\n" for name, value in facts.items() if value)


def _size(size: int | None) -> str:
    return "unknown" if size is None else f"{size:,}"


def _size_range(sizes: Mapping[str, int | None], unit: str) -> str:
    published = [size for size in sizes.values() if size is not None]
    names = counted(len(sizes), "name")
    if not published:
        return f"{names}, sizes unknown"
    low, high = min(published), max(published)
    text = f"{names}, {counted(low, unit) if low == high else f'{low:,} to {high:,} {unit}s'}"
    text += " each" if len(sizes) > 1 else ""
    return text if len(published) == len(sizes) else f"{text} for {len(published)} of them, others unknown"
