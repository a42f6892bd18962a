"""Measure whether sentences find their English translation among all English sentences of their file.

python benchmarks/crosslingual.py --data flores --encoder mini --views pivot source both

--data is a directory of LANG-en.tsv files with id, sentence and English translation. Every sentence is a query, every
distinct English sentence a document; both are encoded as documents, so that none is truncated to the query length. A
rank is 1 + the number of documents with a higher score + half of the ties; a translation without a term in common is
not found. The column terms is the mean number of terms of a sentence's vector.

--pooled searches the sentences of all languages, but not English, at once: nDCG@20 of a sentence's translations, which
have its id in other files, and the share of the ten best in the language of the query.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import Progress
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval import Evaluation, compare_evaluations, render
from milco_pyserini.eval.fairness import OWN_LANGUAGE
from milco_pyserini.io.lines import numbered_lines
from milco_pyserini.options import option
from milco_pyserini.sparse import PIVOT, SOURCE, SparseBatch

if TYPE_CHECKING:
    from milco_pyserini.encode.encoder import MilcoEncoder

ENDING = "-en.tsv"
VIEWS = {"pivot": (PIVOT,), "source": (SOURCE,), "both": (PIVOT, SOURCE)}
DEPTH, HITS = 20, 10
POOLED = f"pooled nDCG@{DEPTH}"
FORMATS = ("text", "markdown", "latex", "csv", "json")


@dataclass(frozen=True)
class CrosslingualOptions:
    """Measure R@1, R@10 and RR of the English translation of each sentence, per language and on average."""

    data: Path = option(metavar="DIR", help="directory of LANG-en.tsv files: id, sentence, English translation")
    encoder: str = option(MINI, help="checkpoint: name on the Hub, directory, or mini (embedded)")
    views: tuple[str, ...] = option((), choices=tuple(VIEWS), help="columns (default: both views)")
    languages: tuple[str, ...] = option((), metavar="LANG", help="languages, such as ar ja (default: every file)")
    pooled: bool = option(False, help="columns for search among the sentences of all languages at once")
    device: str = option("auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:N")
    dtype: str = option("auto", metavar="DTYPE", help="auto, float32, bfloat16 or int8")
    format: str = option("text", choices=FORMATS, help="format of the table")


@dataclass(frozen=True)
class SentencePairs:
    """Sentences, distinct English sentences, and the number of each sentence's translation among these."""

    ids: list[str]
    sentences: list[str]
    english: tuple[str, ...]
    targets: NDArray[np.int64]


def command(options: CrosslingualOptions) -> None:
    """Print a row per language and encoder. Raises MilcoError if the data or the encoder cannot be read."""
    from milco_pyserini.encode.encoder import MilcoEncoder

    files = find_files(options.data, options.languages)
    pairs = {language: read_pairs(path) for language, path in files.items()}
    encoder = MilcoEncoder.from_pretrained(options.encoder, options.device, options.dtype)
    views = options.views or ("both" if SOURCE in encoder.views else "pivot",)
    results = {options.encoder: evaluate_all(encoder, pairs, views, options.pooled)}
    comparison = compare_evaluations(results, test="none")
    if options.format == "json":
        sys.stdout.write(comparison.to_json())
    else:
        note = f"encoder {options.encoder}; {', '.join(views)}; {sum(len(p.ids) for p in pairs.values()):,} sentences"
        sys.stdout.write(render(replace(comparison.to_table(), notes=(note,)), options.format))


def find_files(directory: Path, languages: Sequence[str] = ()) -> dict[str, Path]:
    """Return the file of each language. Raises MilcoError if there is none, or none for a requested language."""
    found = {path.name.removesuffix(ENDING): path for path in sorted(directory.glob(f"*{ENDING}"))}
    if missing := [language for language in languages if language not in found]:
        raise MilcoError(f"{directory} has no {missing[0]}{ENDING}: it has {', '.join(found) or 'no such file'}")
    if not found:
        raise MilcoError(f"{directory} holds no LANG{ENDING} file (id, sentence, English)")
    return {language: found[language] for language in languages or found}


def read_pairs(path: Path) -> SentencePairs:
    """Read a file of sentence pairs. Raises MilcoError with file and line unless it has three columns in UTF-8."""
    rows = []
    for number, line in numbered_lines(path):
        try:
            cells = line.decode("utf-8").split("\t")
        except UnicodeDecodeError:
            raise MilcoError(f"{path}:{number}: not UTF-8") from None
        if len(cells) != 3:
            raise MilcoError(f"{path}:{number}: {len(cells)} columns: id, sentence and English translation are needed")
        rows.append(cells)
    if not rows:
        raise MilcoError(f"{path} holds no pairs")
    ids, sentences, english = map(list, zip(*rows, strict=True))
    distinct = {text: number for number, text in enumerate(dict.fromkeys(english))}
    return SentencePairs(ids, sentences, tuple(distinct), np.asarray([distinct[text] for text in english]))


def evaluate_all(
    encoder: "MilcoEncoder", pairs: dict[str, SentencePairs], views: Sequence[str], with_pooled: bool = False
) -> dict[str, Evaluation]:
    """Return the results by language. English sentences that languages share, as in FLORES, are encoded once."""
    encoder.network.resolve_views([part for view in views for part in VIEWS[view]])
    encoded: dict[tuple[str, ...], SparseBatch] = {}
    progress = Progress("sentences", sum(len(one.ids) for one in pairs.values()))
    sentences, values = {}, {}
    for language, one in pairs.items():
        if one.english not in encoded:
            encoded[one.english] = encoder.encode_document(one.english)
        sentences[language] = encoder.encode_document(one.sentences)
        values[language] = measures(sentences[language], encoded[one.english], one.targets, views)
        progress.add(len(one.ids))
    progress.close("evaluated")
    if with_pooled:
        for language, found in pooled(sentences, pairs, views).items():
            values[language] |= found
    return {language: evaluation(pairs[language], found) for language, found in values.items()}


def pooled(
    vectors: dict[str, SparseBatch], pairs: dict[str, SentencePairs], views: Sequence[str]
) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Return each measure's values by language: every sentence searches those of all languages, without itself."""
    ids = np.concatenate([pairs[language].ids for language in vectors])
    languages = np.repeat(list(vectors), [len(batch) for batch in vectors.values()])
    found: dict[str, dict[str, NDArray[np.float64]]] = {language: {} for language in vectors}
    for view in views:
        everything = SparseBatch.concatenate([batch.view(*VIEWS[view]) for batch in vectors.values()], 0)
        for language, batch in vectors.items():
            scores = batch.view(*VIEWS[view]).dot(everything)
            scores[np.arange(len(batch)), np.flatnonzero(languages == language)] = 0
            scores[scores == 0] = -np.inf
            gain, share = pooled_measures(scores, ids, languages, np.array(pairs[language].ids), language)
            found[language] |= {_named(POOLED, view, views): gain, _named(OWN_LANGUAGE, view, views): share}
    return found


def pooled_measures(
    scores: NDArray, ids: NDArray, languages: NDArray, own: NDArray, language: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return nDCG@20 of translations, and the share of the ten best that are in the queries' language, [Q] each.

    Args:
        scores: float [Q, D], minus infinity for what is not found.
        ids, languages: of all D sentences.
        own, language: ids [Q] and language of the queries.
    """
    discounts = 1 / np.log2(np.arange(min(DEPTH, len(ids))) + 2)
    best = np.argpartition(-scores, len(discounts) - 1, axis=1)[:, : len(discounts)]
    best = np.take_along_axis(best, np.argsort(-np.take_along_axis(scores, best, 1), axis=1), axis=1)
    is_found = np.isfinite(np.take_along_axis(scores, best, axis=1))
    translations = np.minimum((ids == own[:, None]).sum(axis=1) - 1, len(discounts))
    ideal = np.concatenate([[1], np.cumsum(discounts)])[translations]
    first = is_found[:, :HITS]
    in_language = (languages[best[:, :HITS]] == language) & first
    gain = ((ids[best] == own[:, None]) & is_found) @ discounts / ideal
    return gain, in_language.sum(axis=1) / np.maximum(first.sum(axis=1), 1)


def evaluation(pairs: SentencePairs, values: dict[str, NDArray[np.float64]]) -> Evaluation:
    """Return one language's values, one per sentence, with their means."""
    per_query = {name: dict(zip(pairs.ids, each.tolist(), strict=True)) for name, each in values.items()}
    return Evaluation({name: float(each.mean()) for name, each in values.items()}, per_query)


def measures(
    sentences: SparseBatch, english: SparseBatch, targets: NDArray[np.int64], views: Sequence[str]
) -> dict[str, NDArray[np.float64]]:
    """Return each measure's values, one per sentence; the name has the view if there are several."""
    found: dict[str, NDArray[np.float64]] = {}
    for view in views:
        queries = sentences.view(*VIEWS[view])
        scores = queries.dot(english)
        own = scores[np.arange(len(scores)), targets][:, None]
        ranks = 1 + (scores > own).sum(1) + ((scores == own).sum(1) - 1) / 2
        ranks[own[:, 0] == 0] = np.inf
        values = {
            "R@1": (ranks <= 1).astype(float),
            "R@10": (ranks <= 10).astype(float),
            "RR": 1 / ranks,
            "terms": queries.lengths().astype(float),
        }
        found |= {_named(name, view, views): each for name, each in values.items()}
    return found


def _named(measure: str, view: str, views: Sequence[str]) -> str:
    return f"{measure} {view}" if len(views) > 1 else measure


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("benchmarks/crosslingual.py", CrosslingualOptions, command, argv)


if __name__ == "__main__":
    sys.exit(main())
