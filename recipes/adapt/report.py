"""Compare two models on held-out documents and on what they knew before: the report of the recipe."""

import html
import random
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from milco_pyserini.corpora import Document, Query, open_corpus, open_qrels, open_topics
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.eval.evaluation import DEFAULT_MEASURES, Evaluation, Run, evaluate
from milco_pyserini.eval.known_items import KnownItems
from milco_pyserini.eval.report import ALPHA, ReportTable, render
from milco_pyserini.eval.significance import RunComparison, compare_evaluations
from milco_pyserini.index import Index
from milco_pyserini.io.files import scratch_directory
from milco_pyserini.io.qrels import Qrels
from milco_pyserini.train.mining import encode_passages

BEFORE, AFTER = "before", "after"
HELD_OUT, SAMPLE, MISSPELLED = "held out", "sample", " misspelled"
_DEPTH, _CHANGED, _SHOWN = 100, 10, 60
_MEASURE = DEFAULT_MEASURES[0]
_WORD = re.compile(r"[^\W\d_]{5,}")


@dataclass(frozen=True)
class JudgedCollection:
    """Documents with topics by the name of a set, and qrels."""

    documents: Sequence[Document]
    topics: Mapping[str, Sequence[Query]]
    qrels: Qrels


def collections_of(made: KnownItems) -> list[JudgedCollection]:
    """Return what both models search: the held-out topics, and the embedded sample, as written and misspelled."""
    written = [
        (HELD_OUT, made.documents, made.topics, made.qrels),
        (SAMPLE, list(open_corpus(SAMPLE)), list(open_topics(SAMPLE)), open_qrels(SAMPLE)),
    ]
    return [
        JudgedCollection(documents, {name: topics, name + MISSPELLED: list(misspelled(topics))}, qrels)
        for name, documents, topics, qrels in written
    ]


def misspelled(topics: Iterable[Query]) -> Iterator[Query]:
    """Yield the topics that have a long word of an alphabet, without marks, and with two of its letters exchanged."""
    for topic in topics:
        words = [match for match in _WORD.finditer(topic.text) if match[0].lower() != match[0].upper()]
        if words:
            draw = random.Random(topic.id)
            word = draw.choice(words)
            at = draw.randrange(word.start() + 1, word.end() - 2)
            text = topic.text[:at] + topic.text[at + 1] + topic.text[at] + topic.text[at + 2 :]
            plain = (sign for sign in unicodedata.normalize("NFD", text) if unicodedata.category(sign) != "Mn")
            # In other scripts, marks are vowels.
            is_alphabet = all(sign.lower() != sign.upper() or not sign.isalpha() for sign in text)
            yield Query(topic.id, "".join(plain) if is_alphabet else text)


def search_all(
    encoder: MilcoEncoder, collections: Iterable[JudgedCollection], parts: Path, batch_size: int
) -> dict[str, dict[str, dict[str, float]]]:
    """Return set -> topic -> docid -> score. parts: keeps vectors of an interrupted run."""
    runs = {}
    for collection in collections:
        kept = parts / next(iter(collection.topics)).replace(" ", "-")
        vectors = encode_passages([one.contents for one in collection.documents], encoder, kept, batch_size)
        ids = [document.id for document in collection.documents]
        with scratch_directory(kept / "index") as scratch:
            index = Index.build(vectors, scratch, "exact", ids=ids, encoder=encoder)
            with index.searcher() as searcher:
                for name, topics in collection.topics.items():
                    queries = encoder.encode_query([topic.text for topic in topics], batch_size=batch_size)
                    rankings = searcher.search(queries.to_dicts(encoder.vocabulary), _DEPTH)
                    runs[name] = {
                        topic.id: {hit.docid: hit.score for hit in ranking}
                        for topic, ranking in zip(topics, rankings, strict=True)
                    }
    return runs


@dataclass(frozen=True)
class Measured:
    """Runs of both models, and their evaluations.

    runs: "before" and "after" -> set -> run.
    """

    made: KnownItems
    collections: Sequence[JudgedCollection]
    runs: Mapping[str, Mapping[str, Run]]

    def compare(self, sets: Sequence[str], part: int | None = None) -> RunComparison:
        """Compare both models on sets of topics.

        Args:
            part: split a set by this part of its topics' ids: 0 is the language, 1 the kind.
        """
        results: dict[str, dict[str, Evaluation]] = {system: {} for system in self.runs}
        for collection in self.collections:
            for name in filter(collection.topics.__contains__, sets):
                parts: dict[str, Qrels] = {}
                for topic in collection.topics[name]:
                    key = name if part is None else topic.id.rsplit("-", 2)[part]
                    parts.setdefault(key, {})[topic.id] = collection.qrels[topic.id]
                for key, qrels in sorted(parts.items()):
                    for system, runs in self.runs.items():
                        results[system][key] = evaluate(runs[name], qrels, DEFAULT_MEASURES)
        return compare_evaluations(results, BEFORE)

    @cached_property
    def overall(self) -> RunComparison:
        """The comparison on all held-out topics, which decides."""
        return self.compare([HELD_OUT])

    def has_gained(self) -> bool:
        """Return whether nDCG@10 of the held-out topics has risen, significantly."""
        difference = self.overall.differences[AFTER, HELD_OUT, _MEASURE]
        return difference.mean > 0 and difference.corrected < ALPHA

    def verdict(self) -> str:
        """Return the result in one sentence."""
        before, after = (self.overall.results[system][HELD_OUT].mean[_MEASURE] for system in (BEFORE, AFTER))
        p = self.overall.differences[AFTER, HELD_OUT, _MEASURE].p
        result = "Gain" if self.has_gained() else "No gain, no model"
        topics = f"{len(self.made.topics):,} held-out topics"
        return f"{result}: {_MEASURE} on {topics} {before:.3f} before, {after:.3f} after (p = {p:.2g})"

    def blocks(self) -> Iterator[str | ReportTable]:
        """Yield headings (which begin with #), paragraphs and tables."""
        yield self.verdict() + "."
        yield "# Held-out documents"
        yield from (f"{line}." for line in self.made.describe())
        yield self.overall.to_table()
        yield "# Languages"
        yield self.compare([HELD_OUT], 0).to_table()
        yield "# Titles and sentences"
        yield self.compare([HELD_OUT], 1).to_table()
        yield "# What was forgotten"
        yield (
            "The sample of the package, 650 passages in 13 languages, is general text. A misspelled topic has two "
            "letters exchanged, and no marks."
        )
        yield self.compare([HELD_OUT + MISSPELLED, SAMPLE, SAMPLE + MISSPELLED]).to_table()
        yield "# Queries whose answers changed most"
        yield self.changed()

    def changed(self) -> ReportTable:
        """Tabulate the queries with the largest differences of nDCG@10, gains and losses in turn."""
        before, after = (self.overall.results[system][HELD_OUT].per_query[_MEASURE] for system in (BEFORE, AFTER))
        order = sorted(before, key=lambda topic: (before[topic] - after[topic], topic))
        turns = (topic for pair in zip(order, reversed(order), strict=True) for topic in pair)
        chosen = [topic for topic in dict.fromkeys(turns) if before[topic] != after[topic]][:_CHANGED]
        queries = {topic.id: topic.text for topic in self.made.topics}
        texts = {document.id: document.contents[:_SHOWN] for document in self.made.documents}
        rows = []
        for topic in chosen:
            firsts = [next(iter(self.runs[system][HELD_OUT][topic]), None) for system in (BEFORE, AFTER)]
            shown = ["none" if docid is None else f"{docid}: {texts[docid]}" for docid in firsts]
            rows.append([queries[topic], *shown, before[topic], after[topic]])
        heads = [f"{_MEASURE} {system}" for system in (BEFORE, AFTER)]
        return ReportTable(["query", "first hit before", "first hit after"], heads, rows, (3, 3))

    def write(self, directory: Path, title: str) -> None:
        """Write report.md and report.html."""
        markdown, page = [f"# {title}\n"], [_HEAD.format(title=html.escape(title))]
        for block in self.blocks():
            if isinstance(block, ReportTable):
                markdown.append(render(block, "markdown"))
                page.append(render(block, "html"))
            else:
                heading = block.removeprefix("# ")
                tag = "p" if heading == block else "h2"
                markdown.append(f"{block}\n" if heading == block else f"#{block}\n")
                page.append(f"<{tag}>{html.escape(heading)}</{tag}>\n")
        (directory / "report.md").write_text("\n".join(markdown), encoding="utf-8")
        (directory / "report.html").write_text("\n".join(page), encoding="utf-8")


_HEAD = """<!doctype html>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em }}
th, td {{ padding: .2em .8em; border-bottom: 1px solid #ccc }}
</style>
<h1>{title}</h1>
"""
