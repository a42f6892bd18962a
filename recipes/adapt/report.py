"""Compare two models on held-out documents and on what they knew before: the report of the recipe."""

import html
import random
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import bootstrap

from milco_pyserini.console import counted
from milco_pyserini.corpora import Document, Query, open_corpus, open_qrels, open_topics
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval.evaluation import DEFAULT_MEASURES, Evaluation, Run, evaluate
from milco_pyserini.eval.known_items import MIN_TOPICS, TITLE, KnownItems, language_of
from milco_pyserini.eval.report import ReportTable, render
from milco_pyserini.eval.significance import RunComparison, compare_evaluations
from milco_pyserini.index import Index
from milco_pyserini.io.files import scratch_directory
from milco_pyserini.io.qrels import Qrels
from milco_pyserini.train.mining import encode_passages

from .queries import has_titles

BEFORE, AFTER = "before", "after"
OWN, ALL, OTHER, SAMPLE = "own language", "all languages at once", "another language", "sample"
LEGS = (OWN, ALL, OTHER, SAMPLE)
MISSPELLED = " misspelled"
_DEPTH, _CHANGED, _SHOWN = 100, 10, 60
_MEASURE = DEFAULT_MEASURES[0]
_SEARCHED_AT_A_TIME, _RESAMPLES = 64, 10_000
_WORD = re.compile(r"[^\W\d_]{5,}")


@dataclass(frozen=True)
class TopicSet:
    """Topics with the documents that are relevant to them.

    among: OWN or OTHER to search only documents in the topic's language, or only documents in other languages.
    """

    topics: Sequence[Query]
    qrels: Qrels
    among: str = ALL


@dataclass(frozen=True)
class JudgedCollection:
    """Documents with sets of topics by name."""

    documents: Sequence[Document]
    sets: Mapping[str, TopicSet]


def collections_of(made: KnownItems) -> list[JudgedCollection]:
    """Return what both models search: the held-out topics, and the embedded sample, as written and misspelled."""
    sample = TopicSet(list(open_topics(SAMPLE)), open_qrels(SAMPLE))
    return [
        JudgedCollection(made.documents, leg_sets(made)),
        JudgedCollection(
            list(open_corpus(SAMPLE)),
            {SAMPLE: sample, SAMPLE + MISSPELLED: TopicSet(list(misspelled(sample.topics)), sample.qrels)},
        ),
    ]


def leg_sets(made: KnownItems) -> dict[str, TopicSet]:
    """Return the sets of the held-out topics: translations of a document are relevant where they are searched."""
    topics = [topic for topic in made.topics if not has_titles(made) or f"-{TITLE}-" in topic.id]
    languages = {document.id: language_of(document) for document in made.documents}
    qrels: dict[str, Qrels] = {OWN: {}, ALL: {}, OTHER: {}}
    for topic in topics:
        for docid in made.qrels[topic.id]:
            leg = OWN if languages[docid] == topic_language(topic.id) else OTHER
            for name in (ALL, leg):
                qrels[name].setdefault(topic.id, {})[docid] = 1
    sets = {
        name: TopicSet([topic for topic in topics if topic.id in judged], judged, name)
        for name, judged in qrels.items()
    }
    return {**sets, ALL + MISSPELLED: TopicSet(list(misspelled(topics)), qrels[ALL])}


def validate_legs(made: KnownItems, name: str) -> None:
    """Raise MilcoError if a leg has too few topics: a model that cannot be judged is not trained."""
    legs = {leg: one for leg, one in leg_sets(made).items() if leg in LEGS}
    counts = {leg: len(one.topics) for leg, one in legs.items()}
    # paired_interval() resamples them.
    groups = {leg: len({frozenset(made.qrels[topic.id]) for topic in one.topics}) for leg, one in legs.items()}
    if one_group := [leg for leg, count in groups.items() if counts[leg] >= MIN_TOPICS and count < 2]:
        raise MilcoError(
            f"{name}: a gain cannot be judged: all topics held out for {', '.join(one_group)} are of one document and "
            "its translations",
            "The old model stays. Give more documents.",
        )
    if too_few := [f"{leg}: {counted(count, 'topic')}" for leg, count in counts.items() if count < MIN_TOPICS]:
        languages = len({language_of(document) for document in made.documents})
        why = "its documents are in one language" if languages == 1 else "too few documents have translations in it"
        raise MilcoError(
            f"{name}: a gain cannot be judged ({', '.join(too_few)}; at least {MIN_TOPICS} are needed): {why}",
            "The old model stays. Give a collection that has its documents in several languages.",
        )


def topic_language(name: str) -> str:
    """Return the language of a topic's id, LANG-KIND-NUMBER."""
    return name.rsplit("-", 2)[0]


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
    runs: dict[str, dict[str, dict[str, float]]] = {}
    for collection in collections:
        kept = parts / next(iter(collection.sets)).replace(" ", "-")
        vectors = encode_passages([one.contents for one in collection.documents], encoder, kept, batch_size)
        ids = [document.id for document in collection.documents]
        languages = {document.id: language_of(document) for document in collection.documents}
        with scratch_directory(kept / "index") as scratch:
            index = Index.build(vectors, scratch, "exact", ids=ids, encoder=encoder)
            with index.searcher() as searcher:
                for name, judged in collection.sets.items():
                    depth, found = _DEPTH if judged.among == ALL else len(ids), runs.setdefault(name, {})
                    for start in range(0, len(judged.topics), _SEARCHED_AT_A_TIME):
                        topics = judged.topics[start : start + _SEARCHED_AT_A_TIME]
                        queries = encoder.encode_query([topic.text for topic in topics], batch_size=batch_size)
                        rankings = searcher.search(queries.to_dicts(encoder.vocabulary), depth)
                        for topic, ranking in zip(topics, rankings, strict=True):
                            hits = (
                                hit
                                for hit in ranking
                                if judged.among == ALL
                                or (languages[hit.docid] == topic_language(topic.id)) == (judged.among == OWN)
                            )
                            found[topic.id] = {hit.docid: hit.score for hit in islice(hits, _DEPTH)}
    return runs


@dataclass(frozen=True)
class LegResult:
    """Means of a measure before and after, and the 95 % interval of their difference, by paired_interval()."""

    topics: int
    before: float
    after: float
    low: float
    high: float

    @property
    def word(self) -> str:
        """gain, loss, or no difference."""
        return "gain" if self.low > 0 else "loss" if self.high < 0 else "no difference"


@dataclass(frozen=True)
class Measured:
    """Runs of both models, and their evaluations.

    runs: "before" and "after" -> set -> run.
    """

    made: KnownItems
    collections: Sequence[JudgedCollection]
    runs: Mapping[str, Mapping[str, Run]]

    @cached_property
    def sets(self) -> dict[str, TopicSet]:
        """The sets of all collections, without topics for which neither model finds anything: these show nothing."""
        sets = {}
        for name, judged in (pair for collection in self.collections for pair in collection.sets.items()):
            kept = [
                topic
                for topic in judged.topics
                if any(judged.qrels[topic.id].keys() & runs[name].get(topic.id, {}) for runs in self.runs.values())
            ]
            sets[name] = replace(judged, topics=kept)
        return sets

    def evaluate(self, name: str, part: int | None = None) -> dict[str, dict[str, Evaluation]]:
        """Return system -> set or part -> evaluation.

        Args:
            part: split the set by this part of its topics' ids: 0 is the language, 1 the kind.
        """
        results: dict[str, dict[str, Evaluation]] = {system: {} for system in self.runs}
        parts: dict[str, Qrels] = {}
        for topic in self.sets[name].topics:
            key = name if part is None else topic.id.rsplit("-", 2)[part]
            parts.setdefault(key, {})[topic.id] = self.sets[name].qrels[topic.id]
        for key, qrels in sorted(parts.items()):
            for system, runs in self.runs.items():
                results[system][key] = evaluate(runs[name], qrels, DEFAULT_MEASURES)
        return results

    def compare(self, names: Sequence[str], part: int | None = None) -> RunComparison:
        """Compare both models on sets of topics by a paired t-test."""
        results: dict[str, dict[str, Evaluation]] = {system: {} for system in self.runs}
        for name in names:
            for system, found in self.evaluate(name, part).items():
                results[system] |= found
        return compare_evaluations(results, BEFORE)

    @cached_property
    def legs(self) -> dict[tuple[str, str], LegResult]:
        """(leg, measure) -> result; without legs of fewer than MIN_TOPICS topics, which cannot be judged."""
        found = {}
        for leg in LEGS:
            if leg in self.sets and len(self.sets[leg].topics) >= MIN_TOPICS:
                systems = {system: results[leg] for system, results in self.evaluate(leg).items()}
                for measure in DEFAULT_MEASURES:
                    before, after = (systems[system].per_query[measure] for system in (BEFORE, AFTER))
                    groups: dict[frozenset[str], list[float]] = {}
                    for name, value in before.items():
                        relevant = frozenset(self.made.qrels.get(name) or self.sets[leg].qrels[name])
                        groups.setdefault(relevant, []).append(after[name] - value)
                    low, high = paired_interval(list(groups.values()))
                    first, second = (systems[system].mean[measure] for system in (BEFORE, AFTER))
                    found[leg, measure] = LegResult(len(before), first, second, low, high)
        return found

    def has_gained(self) -> bool:
        """Return whether the model is better: have_gained()."""
        return have_gained(self.legs)

    def verdict(self) -> str:
        """Return the result in one sentence, with each leg."""
        result = "Gain" if self.has_gained() else "No model"
        parts = []
        for leg in LEGS:
            if found := self.legs.get((leg, _MEASURE)):
                change = f"{found.after - found.before:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
                parts.append(f"{leg} {found.before:.3f} before, {found.after:.3f} after, {change}")
            else:
                parts.append(f"{leg} cannot be judged ({counted(len(self.sets[leg].topics), 'topic')})")
        losses = [f"{leg} loses {measure}" for (leg, measure), found in self.legs.items() if found.word == "loss"]
        return f"{result}: {_MEASURE} {'; '.join(parts)}" + (f" ({', '.join(losses)})" if losses else "")

    def records(self) -> list[dict[str, Any]]:
        """Return the legs, which decide, for JSON."""
        return [
            {"leg": leg, "measure": measure, "result": found.word, **asdict(found)}
            for (leg, measure), found in self.legs.items()
        ]

    def legs_table(self) -> ReportTable:
        """Tabulate the legs."""
        columns = ["topics", "before", "after", "difference from", "to"]
        rows = [list(record.values()) for record in self.records()]
        return ReportTable(["leg", "measure", "result"], columns, rows, (0, 3, 3, 3, 3))

    def blocks(self) -> Iterator[str | ReportTable]:
        """Yield headings (which begin with #), paragraphs and tables."""
        yield self.verdict() + "."
        yield (
            "A model is kept if no leg loses and at least one of the first three gains: the interval of the "
            "difference, by the paired bootstrap over groups of translations, does not contain 0. A loss smaller than "
            "half of the interval is not noticed."
        )
        yield self.legs_table()
        if not self.sets[ALL].topics:
            return
        yield "# Held-out documents"
        yield from (f"{line}." for line in self.made.describe())
        yield "# Languages"
        yield self.compare([ALL], 0).to_table()
        yield "# What was forgotten"
        yield (
            "The sample of the package, 650 passages in 13 languages, is general text. A misspelled topic has two "
            "letters exchanged, and no marks."
        )
        yield self.compare([ALL + MISSPELLED, SAMPLE, SAMPLE + MISSPELLED]).to_table()
        yield "# Queries whose answers changed most"
        yield self.changed()

    def changed(self) -> ReportTable:
        """Tabulate the queries with the largest differences of nDCG@10, gains and losses in turn."""
        results = self.evaluate(ALL)
        before, after = (results[system][ALL].per_query[_MEASURE] for system in (BEFORE, AFTER))
        order = sorted(before, key=lambda topic: (before[topic] - after[topic], topic))
        turns = (topic for pair in zip(order, reversed(order), strict=True) for topic in pair)
        chosen = [topic for topic in dict.fromkeys(turns) if before[topic] != after[topic]][:_CHANGED]
        queries = {topic.id: topic.text for topic in self.made.topics}
        texts = {document.id: document.contents[:_SHOWN] for document in self.made.documents}
        rows = []
        for topic in chosen:
            firsts = [next(iter(self.runs[system][ALL][topic]), None) for system in (BEFORE, AFTER)]
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


def have_gained(legs: Mapping[tuple[str, str], LegResult]) -> bool:
    """Return whether every leg is judged, none has lost in any measure, and one of the documents' has gained."""
    is_judged = all((leg, _MEASURE) in legs for leg in LEGS)
    gains = [leg for leg in (OWN, ALL, OTHER) if is_judged and legs[leg, _MEASURE].word == "gain"]
    return bool(gains) and all(result.word != "loss" for result in legs.values())


def paired_interval(groups: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the 95 % interval of the mean difference, by the bootstrap over groups of topics from a fixed seed.

    Args:
        groups: differences of topics with the same relevant documents. Translations of a topic rise and fall together:
            as many topics that do not depend on each other would have a narrower interval.
    """
    sums, counts = np.array([(sum(group), len(group)) for group in groups], float).T
    if not any(map(any, groups)):
        return 0.0, 0.0
    found = bootstrap(
        (sums, counts),
        lambda sums, counts, axis: sums.sum(axis) / counts.sum(axis),
        paired=True,
        n_resamples=_RESAMPLES,
        batch=500,
        method="percentile",
        rng=0,
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


_HEAD = """<!doctype html>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em }}
th, td {{ padding: .2em .8em; border-bottom: 1px solid #ccc }}
</style>
<h1>{title}</h1>
"""
