"""python -m experiments.judge: a passage is relevant if it contains one of a query's answers, word for word.

As in open-domain question answering since DPR (arXiv:2004.04906): texts are decomposed (NFD), lower-cased and split
into runs of letters, digits and combining characters, and single other characters; the words of an answer must be
adjacent. Typographic dashes, quotes and slashes equal the plain ones, as in BGE M3-Embedding's setup of MKQA.
"""

import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from milco_pyserini.cli import program
from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import counted, log
from milco_pyserini.corpora.catalog import open_answers, open_corpus
from milco_pyserini.corpora.records import Document
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import text_output, validate_output_file
from milco_pyserini.io.qrels import Qrels
from milco_pyserini.io.runs import read_run
from milco_pyserini.options import option

PROG = "python -m experiments.judge"
_WORD = r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]"
_PLAIN = {
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\u207b\uff0d",
    '"': "\u201c\u201d\u201e\u201f",
    "'": "\u2018\u2019\u201a\u201b\u2032\u2035\u055a\ua78b\ua78c\uff07\u0060\u00b4",
    "/": "\u2044\u2215",
    "...": "\u2026",
    "": "\u00ad",
}
_TYPOGRAPHIC = str.maketrans({character: plain for plain, characters in _PLAIN.items() for character in characters})


@dataclass(frozen=True)
class JudgeOptions:
    """Judge runs by answers: a passage is relevant if it contains an answer of the topic (MKQA).

    For topics that are published with answers (mkqa-LANG-test). Success@100 on the qrels is then R@100 of the papers:
    the share of topics with an answer among the first 100 passages.

      python -m experiments.judge --topics mkqa-ar-test --run runs/mkqa-ar.txt --output qrels/mkqa-ar.txt
    """

    topics: str = option(metavar="NAME", help="topics with answers, such as mkqa-ar-test")
    run: tuple[Path, ...] = option(metavar="RUN", help="TREC runs; the passages of all of them are judged")
    output: Path = option(metavar="QRELS", help="TREC qrels to write")
    corpus: str = option("mkqa", metavar="NAME|PATH", help="the passages that were searched")
    depth: int = option(1000, minimum=1, metavar="K", help="passages to judge per topic and run")
    overwrite: bool = option(False, help="replace --output")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 2 for bad input, 130 for Ctrl-C."""
    return run_command(PROG, JudgeOptions, judge_command, argv, "nothing was written")


def judge_command(options: JudgeOptions) -> None:
    """Write qrels by answers."""
    validate_output_file(options.output, options.overwrite)
    qrels = judge_runs(options.topics, options.run, options.corpus, options.depth)
    write_qrels(options.output, qrels)
    judged, answered = sum(map(len, qrels.values())), sum(any(grades.values()) for grades in qrels.values())
    found = f"{answered:,} of {len(qrels):,} topics have one with an answer"
    log(f"Judged {counted(judged, 'passage')} into {options.output}: {found}")


def judge_runs(topics: str, runs: Sequence[Path], corpus: str = "mkqa", depth: int = 1000) -> Qrels:
    """Judge the passages of TREC runs by the answers of the topics.

    Args:
        topics: the name of topics with answers, such as "mkqa-ar-test".
        corpus: the name or path of the passages that were searched.
        depth: the number of passages to judge for each query of a run.

    Returns:
        Query id -> passage id -> 1 or 0, for every query with answers, also for those without results.

    Raises:
        MilcoError: the runs have none of the topics, or passages that the corpus lacks.
    """
    answers = open_answers(topics)
    retrieved: dict[str, set[str]] = {}
    for path in runs:
        for query, scores in read_run(path).items():
            if query in answers:
                best = sorted(scores, key=lambda passage: -scores[passage])[:depth]
                retrieved.setdefault(query, set()).update(best)
    if not retrieved:
        raise MilcoError(f"{runs[0]} has no topic of {topics}")
    qrels = judge(open_corpus(corpus), retrieved, answers)
    judged, total = sum(map(len, qrels.values())), sum(map(len, retrieved.values()))
    if judged < total:
        raise MilcoError(
            f"{corpus} lacks {total - judged:,} of {total:,} retrieved passages", "Pass the corpus that was searched."
        )
    return qrels


def judge(
    corpus: Iterable[Document], retrieved: Mapping[str, Collection[str]], answers: Mapping[str, Collection[str]]
) -> Qrels:
    """Judge retrieved passages in one pass over the corpus.

    Args:
        retrieved: query id -> ids of passages.
        answers: query id -> its answers.

    Returns:
        Query id -> passage id -> 1 or 0, for every query with answers. Passages that the corpus lacks are missing.
    """
    words = word_splitter()
    queries_of: dict[str, list[str]] = {}
    for query, passages in retrieved.items():
        for passage in passages if query in answers else ():
            queries_of.setdefault(passage, []).append(query)
    wanted = {query: [found for text in texts if (found := words(text)).strip()] for query, texts in answers.items()}
    qrels: Qrels = {query: {} for query in answers}
    for document in corpus:
        if queries := queries_of.get(document.id):
            text = words(document.contents)
            for query in queries:
                qrels[query][document.id] = int(any(answer in text for answer in wanted[query]))
    return qrels


def write_qrels(path: Path, qrels: Qrels) -> None:
    """Write TREC qrels. A query without judged passages gets one that is not relevant: it counts as well."""
    with text_output(path) as handle:
        for query, grades in qrels.items():
            lines = grades or {"-": 0}
            handle.writelines(f"{query} 0 {passage} {grade}\n" for passage, grade in lines.items())


def word_splitter() -> Callable[[str], str]:
    """Return a function that normalizes a text to its words, in order, each surrounded by single spaces.

    No word contains a space, so a substring that begins and ends with one matches complete words only.
    """
    import regex

    pattern = regex.compile(_WORD)

    def words(text: str) -> str:
        found = pattern.findall(unicodedata.normalize("NFD", text.translate(_TYPOGRAPHIC)))
        return " ".join(["", *(word.lower() for word in found), ""])

    return words


if __name__ == "__main__":
    raise SystemExit(program.start(main, PROG))
