"""Measure whether a memory finds notes in 22 languages, next to SQLite's full-text search and dense vectors.

python benchmarks/memory.py --data flores

--data is a directory of LANG-en.tsv files, as for crosslingual.py. Each sentence is a note in one of the languages,
which take turns. It is asked for twice: by its translation into another language, and by its own second half. A note
counts if it is among the best five (recall@5). MILCO is the memory of milco serve: notes are remembered one at a time,
and recalled with balanced languages. FTS5 (tokenizers unicode61 and trigram) searches for any word, or any three
letters, of the question, ranked by BM25. With English keywords, a note is stored with 20 of them in a second column,
and 20 of the question are searched for (milco_pyserini.keywords). Dense vectors are compared by cosines.
"""

import asyncio
import contextlib
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import repository  # noqa: F401
from crosslingual import FORMATS, find_files, read_pairs

from milco_pyserini.cli.parser import run_command
from milco_pyserini.defaults import MINI
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.eval.report import ReportTable, render
from milco_pyserini.io.files import size_on_disk
from milco_pyserini.keywords import keywords, write_query
from milco_pyserini.options import option
from milco_pyserini.serve.memory import Memory, open_memory
from milco_pyserini.serve.opened import IndexSnapshot
from milco_pyserini.serve.service import SearchService

DEPTH = 5
# For a note, and for a question.
KEYWORDS = 20
COLUMNS = ("other language", "own language", "ms to remember", "ms to recall", "bytes a note")
_WORD = re.compile(r"\w+")

Keywords = Callable[[str], list[tuple[str, float]]]


@dataclass(frozen=True)
class MemoryOptions:
    """Measure recall@5 of notes in many languages, milliseconds, and bytes a note."""

    data: Path = option(metavar="DIR", help="directory of LANG-en.tsv files: id, sentence, English translation")
    encoder: str = option(MINI, help="checkpoint: name on the Hub, directory, or mini (embedded)")
    dense: str | None = option(None, metavar="NAME|DIR", help="dense encoder, such as intfloat/multilingual-e5-small")
    notes: int = option(20, minimum=1, metavar="N", help="notes in each language")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    format: str = option("text", choices=FORMATS[:-1], help="format of the table")


@dataclass(frozen=True)
class Notes:
    """Texts of notes, and the two questions for each."""

    texts: list[str]
    translated: list[str]
    halves: list[str]


def command(options: MemoryOptions) -> None:
    """Print a row per memory. Raises MilcoError if the data or an encoder cannot be read."""
    notes = read_notes(options.data, options.notes)
    rows = {"MILCO": asyncio.run(milco(notes, options.encoder, options.device))}
    rows |= {f"FTS5 {tokenizer}": fts5(notes, tokenizer) for tokenizer in ("unicode61", "trigram")}
    rows["FTS5 with English keywords"] = fts5(notes, "porter unicode61", open_keywords(options.encoder, options.device))
    if options.dense is not None:
        rows[options.dense] = dense(notes, options.dense)
    note = f"{len(notes.texts):,} notes, encoder {options.encoder}"
    table = ReportTable(["memory"], COLUMNS, [[name, *row] for name, row in rows.items()], (3, 3, 1, 1, 0), (note,))
    sys.stdout.write(render(table, options.format))


def read_notes(directory: Path, count: int) -> Notes:
    """Return notes, count in each language. Raises MilcoError if a file cannot be read."""
    translations: dict[str, dict[str, str]] = {"en": {}}
    for language, path in find_files(directory).items():
        pairs = read_pairs(path)
        translations[language] = dict(zip(pairs.ids, pairs.sentences, strict=True))
        translations["en"] |= {
            docid: pairs.english[target] for docid, target in zip(pairs.ids, pairs.targets.tolist(), strict=True)
        }
    languages = sorted(translations)
    ids = [docid for docid in translations["en"] if all(docid in known for known in translations.values())]
    notes = Notes([], [], [])
    for place, docid in enumerate(ids[: count * len(languages)]):
        own, other = (languages[(place + step) % len(languages)] for step in (0, 1 + place // len(languages)))
        text = translations[own][docid]
        middle = len(text) // 2
        # Languages without spaces are cut between two letters.
        notes.texts.append(text)
        notes.translated.append(translations[languages[0] if other == own else other][docid])
        notes.halves.append(text[text.find(" ", middle) + 1 or middle :])
    return notes


async def milco(notes: Notes, encoder: str, device: str) -> list[float]:
    """Return the figures of milco serve --memory."""
    with tempfile.TemporaryDirectory() as directory:
        path = open_memory(Path(directory) / "notes", encoder).path
        with contextlib.closing(SearchService(IndexSnapshot.open(path, device=device))) as service:
            memory = Memory(service)
            started = time.perf_counter()
            ids = [(await memory.remember(text))["id"] for text in notes.texts]
            remembered = time.perf_counter() - started
            found, started = [], time.perf_counter()
            for questions in (notes.translated, notes.halves):
                hits = [[note["id"] for note in await memory.recall(question, DEPTH)] for question in questions]
                found.append(recall(ids, hits))
            recalled = time.perf_counter() - started
        return figures(found, remembered, recalled, size_on_disk(path), len(ids))


def open_keywords(encoder: str, device: str) -> Keywords:
    """Return a function that finds English keywords of one text."""
    opened = MilcoEncoder.from_pretrained(encoder, device)
    return lambda text: keywords(opened, text, KEYWORDS, documents=True)[0]


def fts5(notes: Notes, tokenizer: str, find_keywords: Keywords | None = None) -> list[float]:
    """Return the figures of a table of SQLite's FTS5 that is committed after each note."""

    def question(text: str) -> str:
        if find_keywords is not None:
            return write_query(find_keywords(text), "fts5")
        words = _WORD.findall(text)
        if tokenizer == "trigram":
            words = [text[start : start + 3].replace('"', "") for start in range(len(text) - 2)]
        return " OR ".join(f'"{word}"' for word in words)

    with tempfile.TemporaryDirectory() as directory:
        database = sqlite3.connect(Path(directory) / "notes.db")
        database.execute("PRAGMA synchronous = FULL")
        database.execute(f"CREATE VIRTUAL TABLE notes USING fts5(text, keywords, tokenize = '{tokenizer}')")
        started = time.perf_counter()
        for text in notes.texts:
            words = "" if find_keywords is None else write_query(find_keywords(text), "words")
            database.execute("INSERT INTO notes VALUES (?, ?)", (text, words))
            database.commit()
        remembered = time.perf_counter() - started
        query = f"SELECT rowid - 1 FROM notes WHERE notes MATCH ? ORDER BY rank LIMIT {DEPTH}"
        find = lambda text: [row for (row,) in database.execute(query, (question(text),))]  # noqa: E731
        found, recalled = ask(notes, find)
        database.close()
        return figures(found, remembered, recalled, size_on_disk(Path(directory)), len(notes.texts))


def dense(notes: Notes, name: str) -> list[float]:
    """Return the figures of float32 vectors of a dense encoder."""
    from recipes.dense.encoder import DenseEncoder

    encoder = DenseEncoder(name)
    started = time.perf_counter()
    vectors = np.concatenate([encoder.encode_document([text]) for text in notes.texts])
    remembered = time.perf_counter() - started
    find = lambda text: np.argsort(-(vectors @ encoder.encode_query([text])[0]))[:DEPTH].tolist()  # noqa: E731
    found, recalled = ask(notes, find)
    size = vectors.nbytes + sum(len(text.encode()) for text in notes.texts)
    return figures(found, remembered, recalled, size, len(notes.texts))


def ask(notes: Notes, find: Callable[[str], list[int]]) -> tuple[list[float], float]:
    """Return recall@5 of both kinds of questions, and the seconds that all took."""
    started, rows = time.perf_counter(), range(len(notes.texts))
    found = [recall(rows, list(map(find, questions))) for questions in (notes.translated, notes.halves)]
    return found, time.perf_counter() - started


def recall(wanted: Iterable, hits: Sequence[Sequence]) -> float:
    """Return the share of questions whose note is among the hits."""
    return float(np.mean([note in found for note, found in zip(wanted, hits, strict=True)]))


def figures(found: Sequence[float], remembered: float, recalled: float, size: int, count: int) -> list[float]:
    """Return a row: recall, milliseconds for a note and for a question, and bytes for a note."""
    return [*found, 1000 * remembered / count, 500 * recalled / count, size / count]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    return run_command("benchmarks/memory.py", MemoryOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
