"""milco corpora list|show|judge."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milco_pyserini.cli import program
from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import counted, say
from milco_pyserini.errors import MilcoError, nearest, unknown_name
from milco_pyserini.options import option

if TYPE_CHECKING:
    from milco_pyserini.corpora.origin import Family

PROG = "milco corpora"
# As ir_datasets calls them.
DOCUMENTS, QUERIES = "docs", "queries"
_NO_PASSAGE = "-"
COMMANDS = {
    "list": "the benchmarks that go by name: languages, sizes, licences, sources",
    "show": "a benchmark and its names, or one corpus or topics by name",
    "judge": "judgements of runs by the answers in their passages (MKQA)",
}


@dataclass(frozen=True)
class ListOptions:
    """The benchmarks that go by name: languages, sizes, licences, sources.

    Without a network nothing is asked: sizes are those that were published.
    """

    only: tuple[str, ...] = option(
        (), positional=True, metavar="BENCHMARK", help="benchmarks to list, such as mldr (default: all)"
    )
    names: bool = option(False, help="every name of a corpus and of topics, with its size")
    json: bool = option(False, help="all of it as JSON")


@dataclass(frozen=True)
class ShowOptions:
    """A benchmark with all its names, or what one name of a corpus or of topics stands for."""

    name: tuple[str, ...] = option(positional=True, metavar="NAME", help="such as miracl, miracl-ar or miracl-ar-dev")


@dataclass(frozen=True)
class JudgeOptions:
    """Judgements of runs by answers: a passage is relevant if one of the topic's answers stands in it.

    For topics that are published with answers (mkqa-LANG-test), where the share of topics with an answer among the
    first 100 passages, R@100 in the papers, is then Success@100.
    """

    topics: str = option(help="topics with answers: a name, such as mkqa-ar-test, or NAME@PATH")
    run: tuple[Path, ...] = option(help="TREC runs; the passages of all of them are judged")
    output: Path = option(help="the TREC file of judgements")
    corpus: str = option("mkqa", help="the passages that were searched: a name, NAME@PATH, or a path")
    depth: int = option(1000, minimum=1, help="judge so many passages of each topic")
    overwrite: bool = option(False, help="replace --output")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(_page())
        return 0
    command, rest = arguments[0], arguments[1:]
    if command == "list":
        return run_command(f"{PROG} list", ListOptions, _list, rest)
    if command == "show":
        return run_command(f"{PROG} show", ShowOptions, _show, rest)
    if command == "judge":
        return run_command(f"{PROG} judge", JudgeOptions, _judge, rest, "nothing was written")
    return program.fail(PROG, str(unknown_name("command", command, COMMANDS)))


def _page() -> str:
    lines = "\n".join(f"  {command:<8}{what}" for command, what in COMMANDS.items())
    return f"usage: {PROG} COMMAND [options]\n\n{lines}\n\n{PROG} COMMAND --help lists the options of a command.\n"


def _list(options: ListOptions) -> None:
    from milco_pyserini.corpora.families import FAMILIES

    for name in options.only:
        if name not in FAMILIES:
            raise unknown_name("benchmark", name, FAMILIES)
    chosen = [family for name, family in FAMILIES.items() if not options.only or name in options.only]
    if options.json:
        records = {family.name: _record(family) for family in chosen}
        sys.stdout.write(json.dumps(records, ensure_ascii=False, indent=2) + "\n")
    elif options.names:
        rows = [row for family in chosen for row in _names(family)]
        sys.stdout.write(_table(("name", "kind", "size"), rows))
    else:
        sys.stdout.write("\n".join(map(_described, chosen)))


def _show(options: ShowOptions) -> None:
    from milco_pyserini.corpora.families import CORPORA, FAMILIES, TOPICS

    for name in options.name:
        # sample is a benchmark and one of its names: the benchmark shows both.
        if name not in FAMILIES and name not in CORPORA and name not in TOPICS:
            near = nearest(name, [*FAMILIES, *CORPORA, *TOPICS])
            guess = f"did you mean {near!r}? " if near else ""
            raise MilcoError(f"unknown name {name!r}: {guess}'{PROG} list' shows the benchmarks")
    sys.stdout.write("\n".join(_shown(name, FAMILIES) for name in options.name))


def _shown(name: str, families: "Mapping[str, Family]") -> str:
    if name in families:
        return f"{_described(families[name])}\n{_table(('name', 'kind', 'size'), _names(families[name]))}"
    family = next(one for one in families.values() if name in one.corpora or name in one.topics)
    kinds = (("documents", family.corpora, DOCUMENTS), ("topics", family.topics, QUERIES))
    facts = {"benchmark": f"{family.name} ({family.title})"}
    for kind, table, entity in kinds:
        if name in table:
            size = _sizes({name: table[name]}, entity)[name]
            facts[kind] = "size unknown" if size is None else f"{size:,}"
    facts["use"] = " or ".join(
        option
        for option, table in ((f"--corpus {name}", family.corpora), (f"--topics {name}, --qrels {name}", family.topics))
        if name in table
    )
    return _facts(name, facts | _provenance(family))


def _described(family: "Family") -> str:
    languages = " ".join(family.languages)
    facts = {
        "languages": languages if len(languages) < 90 else f"{len(family.languages)}: {languages[:70]} ...",
        "corpus": f"{family.patterns[0]} ({_sum(_sizes(family.corpora, DOCUMENTS), 'document')})",
        "topics": f"{family.patterns[1]} ({_sum(_sizes(family.topics, QUERIES), 'topic')})",
    }
    return _facts(f"{family.name}: {family.title}", facts | _provenance(family))


def _provenance(family: "Family") -> dict[str, str]:
    return {
        "licence": family.licence,
        "source": family.source,
        "text": family.field_rule,
        "note": family.note,
        "unconfirmed": family.unconfirmed,
    }


def _facts(title: str, facts: Mapping[str, str]) -> str:
    return f"{title}\n" + "".join(f"  {name:<12}{value}\n" for name, value in facts.items() if value)


def _sum(sizes: Mapping[str, int | None], what: str) -> str:
    numbers = [size for size in sizes.values() if size is not None]
    names = counted(len(sizes), "name")
    if not numbers:
        return f"{names}, sizes unknown"
    size = f"{min(numbers):,}" if len(set(numbers)) == 1 else f"{min(numbers):,} to {max(numbers):,}"
    some = "" if len(numbers) == len(sizes) else f" in {len(numbers)} of them, others unknown"
    one = set(numbers) == {1}
    return f"{names}, {size} {what}{'' if one else 's'}{' each' if len(sizes) > 1 else ''}{some}"


def _names(family: "Family") -> list[tuple[str, str, str]]:
    tables = (("corpus", _sizes(family.corpora, DOCUMENTS)), ("topics", _sizes(family.topics, QUERIES)))
    return [
        (name, kind, "unknown" if size is None else f"{size:,}")
        for kind, sizes in tables
        for name, size in sizes.items()
    ]


def _record(family: "Family") -> dict:
    return {
        "title": family.title,
        "languages": list(family.languages),
        "licence": family.licence,
        "source": family.source,
        "field_rule": family.field_rule,
        "note": family.note,
        "unconfirmed": family.unconfirmed,
        "corpora": _sizes(family.corpora, DOCUMENTS),
        "topics": _sizes(family.topics, QUERIES),
    }


def _sizes(table: Mapping[str, Any], entity: str) -> dict[str, int | None]:
    """The published size of each name."""
    from milco_pyserini.corpora.ir_datasets_source import published

    return {name: published(place, entity) if isinstance(place, str) else place.count for name, place in table.items()}


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _judge(options: JudgeOptions) -> None:
    from milco_pyserini.corpora import open_answers, open_corpus
    from milco_pyserini.corpora.answers import judge
    from milco_pyserini.io.files import atomic_file, validate_output_file

    validate_output_file(options.output, options.overwrite)
    answers = open_answers(options.topics)
    corpus = open_corpus(options.corpus)
    retrieved: dict[str, set[str]] = {}
    for path in options.run:
        for query, passages in _retrieved(path, options.depth).items():
            retrieved.setdefault(query, set()).update(passages)
    if not retrieved.keys() & answers.keys():
        raise MilcoError(f"{options.run[0]} has no topic of {options.topics}")
    qrels = judge(corpus, retrieved, answers)
    graded = sum(map(len, qrels.values()))
    wanted = sum(len(retrieved.get(query, ())) for query in answers)
    if graded < wanted:
        raise MilcoError(
            f"{options.corpus} lacks {wanted - graded:,} of {wanted:,} passages: was another one searched?"
        )
    with atomic_file(options.output, "w") as handle:
        for query, grades in qrels.items():
            # A topic without results counts too: as one whose judgements hold no passage that is relevant.
            lines = grades or {_NO_PASSAGE: 0}
            handle.writelines(f"{query} 0 {passage} {grade}\n" for passage, grade in lines.items())
    good = sum(any(grades.values()) for grades in qrels.values())
    found = f"{good:,} of {len(answers):,} topics have one with an answer"
    say(f"{options.output}: {counted(graded, 'passage')} judged; {found}")


def _retrieved(path: Path, depth: int) -> dict[str, list[str]]:
    """Topic -> the first passages of a TREC run, which stand in the order of their ranks."""
    from milco_pyserini.io.lines import numbered_lines

    found: dict[str, list[str]] = {}
    for number, line in numbered_lines(path):
        cells = line.decode("utf-8", "replace").split()
        if len(cells) != 6:
            raise MilcoError(f"{path}:{number}: {counted(len(cells), 'column')}, where a TREC run has 6")
        passages = found.setdefault(cells[0], [])
        if len(passages) < depth:
            passages.append(cells[2])
    return found
