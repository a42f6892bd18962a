"""Measure whether snippets and contexts hold the answers of questions, also of questions in another language.

python benchmarks/evidence.py --passages xquad.en.json --questions xquad.en.json xquad.zh.json --count 20

Files are in the format of SQuAD, such as XQuAD's and CMRC 2018's. Files of one set in several languages have the same
ids, so that questions of one language are answered by passages of another. Snippets are those of the passage with the
answer, and those found by the query's words only. A context has the best sentences of the five best passages of the
file, within a share of their tokens. "read" is the share of the hits that the network reads.
"""

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from same_language import FORMATS

from milco_pyserini import Index, MilcoEncoder, Searcher
from milco_pyserini.cli.parser import run_command
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval import ReportTable, render
from milco_pyserini.options import option
from milco_pyserini.request import SearchRequest

COLUMNS = ("snippet", "by words", "characters", "ms a hit", "read", "kept in context")
DEPTH = 5


@dataclass(frozen=True)
class EvidenceOptions:
    """Measure the share of snippets and contexts that hold the answer."""

    passages: Path = option(metavar="FILE", help="JSON in SQuAD's format: passages and answers")
    questions: tuple[str, ...] = option(metavar="FILE", help="JSON in SQuAD's format: questions of the same ids")
    encoder: str = option(MINI, help="checkpoint: name on the Hub, directory, or mini (embedded)")
    count: int = option(20, minimum=1, metavar="N", help="questions of each file")
    share: float = option(
        0.4, above=0, maximum=1, metavar="SHARE", help="tokens of a context, as a share of those of the passages"
    )
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    format: str = option("text", choices=FORMATS, help="format of the table")


@dataclass(frozen=True)
class Asked:
    """A question, the passage that answers it, and the possible answers in it."""

    question: str
    passage: str
    answers: tuple[str, ...]


def command(options: EvidenceOptions) -> None:
    """Print a row per file of questions. Raises MilcoError if a file or the encoder cannot be read."""
    known = read_squad(options.passages)
    texts = list(dict.fromkeys(asked.passage for asked in known.values()))
    encoder = MilcoEncoder.from_pretrained(options.encoder, options.device)
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        index = Index.build(texts, Path(directory) / "passages", "exact", encoder=encoder)
        with Searcher.open(index.path, encoder) as searcher:
            for path in map(Path, options.questions):
                questions = {number: asked.question for number, asked in read_squad(path).items() if number in known}
                if not questions:
                    raise MilcoError(f"{path}: no question has an id of {options.passages}")
                step = max(1, len(questions) // options.count)
                chosen = list(questions.items())[::step][: options.count]
                asked = [Asked(text, known[number].passage, known[number].answers) for number, text in chosen]
                rows.append([path.stem, *measure(searcher, encoder, asked, options.share)])
    note = f"{options.count} questions a file, passages {options.passages.stem}, encoder {options.encoder}"
    table = ReportTable(["questions"], COLUMNS, rows, (3, 3, 0, 1, 2, 3), (note,))
    sys.stdout.write(render(table, options.format))


def read_squad(path: Path) -> dict[str, Asked]:
    """Return the questions of a file by id."""
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    return {
        item["id"]: Asked(item["question"], paragraph["context"], tuple(answer["text"] for answer in item["answers"]))
        for article in articles
        for paragraph in article["paragraphs"]
        for item in paragraph["qas"]
    }


def measure(searcher: Searcher, encoder: MilcoEncoder, asked: Sequence[Asked], share: float) -> list[float]:
    """Return the figures of a row: those of COLUMNS."""
    found, by_words, lengths, spent, read, kept = [], [], [], [], [], []
    for item in asked:
        hits = searcher.search(item.question, k=DEPTH)
        texts = [hit.document.text for hit in hits if hit.document]
        start = time.perf_counter()
        snippets = searcher.snippets(item.question, hits)
        spent.append((time.perf_counter() - start) * 1000 / max(1, len(texts)))
        if item.passage not in texts:
            continue
        place = texts.index(item.passage)
        snippet = snippets[place] or ""
        (query,) = searcher.encode([item.question], SearchRequest())
        evidence = searcher.evidence(query, texts)
        found.append(holds(snippet, item))
        by_words.append(holds(evidence.snippet(place).text, item))
        lengths.append(len(snippet))
        read.append(len(evidence.unclear()) / len(texts))
        size = sum(len(ids) for ids in encoder.tokenizer.ids(texts))
        context = searcher.context(item.question, max(1, int(share * size)), k=DEPTH)
        kept.append(any(holds(text, item) for text in context.values()))
    averages = [fmean(values) if values else 0.0 for values in (found, by_words, lengths, read, kept)]
    return [*averages[:3], fmean(spent), *averages[3:]]


def holds(text: str, asked: Asked) -> bool:
    """Return whether a text has one of the answers."""
    return any(" ".join(answer.split()) in " ".join(text.split()) for answer in asked.answers)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/evidence.py", EvidenceOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
