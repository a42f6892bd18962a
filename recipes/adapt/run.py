"""Run the recipe: hold out, make queries, mine, train with SCT, measure, and keep the model if it has gained."""

import random
import shutil
from collections.abc import Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logsumexp

from milco_pyserini import __version__
from milco_pyserini.console import counted, log
from milco_pyserini.corpora import Corpus, open_corpus
from milco_pyserini.corpora.bitext import open_bitext
from milco_pyserini.corpora.languages import detect_languages
from milco_pyserini.corpora.records import PASSAGE_DELIMITER
from milco_pyserini.encode.bm25 import BM25Encoder
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.eval.known_items import KnownItems, known_item_files, language_of, make_known_items
from milco_pyserini.eval.parallel import LEAST_COSINE, find_parallel
from milco_pyserini.io.artifact import Action, Artifact
from milco_pyserini.io.files import atomic_directory, is_json_with, read_json, write_json
from milco_pyserini.io.locks import locked_file
from milco_pyserini.model.checkpoint import Checkpoint, Kind
from milco_pyserini.model.layouts import model_card
from milco_pyserini.options import replace_options, validate
from milco_pyserini.sparse import SparseBatch
from milco_pyserini.train.config import LEXICAL, SctConfig
from milco_pyserini.train.data.parallel import least_sentences
from milco_pyserini.train.data.retrieval import RetrievalFile, distinct_passages, dump_example, open_retrieval
from milco_pyserini.train.mining import mine_training_set
from milco_pyserini.train.rewriting import MineOptions, ScoreOptions
from milco_pyserini.train.run import MODEL, run_stage
from milco_pyserini.train.scoring import score_training_set

from ..dense.teacher import taught_by
from . import AdaptOptions
from .preset import ADAPT
from .queries import training_examples, write_examples, write_pairs
from .report import AFTER, BEFORE, Measured, collections_of, search_all, validate_legs

MANIFEST, WORK, REJECTED, HELD_OUT = "adapt.json", "work", "rejected", "held-out"
_LOCK, _LOCK_LIMIT = ".lock", 30.0
# Negatives of a query from each of BM25 and the model; a hit above this share of the positive's score may be relevant.
_NEGATIVES, _DEPTH, _MAX_SCORE = 4, 50, 0.95
# Queries whose scores give the temperature, and how many are tried.
_SCALED, _TEMPERATURES = 128, 16
# Passages of a query whose scores a teacher gives; share of the batches that are translations.
_SCORED_GROUP, _PARALLEL_SHARE = 4, 0.3
# Texts without an analyzer of Lucene are split at white space, as those of this language.
_OTHER_LANGUAGE = "yo"


def adapt(options: AdaptOptions) -> None:
    """Adapt a model to documents, as the command does. An interrupted run resumes, a finished one is kept.

    Raises:
        MilcoError: before anything is written, if an option, the documents or the model cannot be used, or the output
            directory holds something else.
    """
    validate(options)
    output, work = options.output, options.output / WORK
    corpus = open_corpus(options.documents)
    digest = corpus.check().digest
    encoder = MilcoEncoder.from_pretrained(options.encoder, device=options.device, dtype=options.dtype)
    dense = options.teacher if options.teacher is not None and _is_dense(options.teacher) else None
    plan = {
        "encoder": options.encoder,
        "corpus_hash": digest,
        "least_cosine": LEAST_COSINE,
        **encoder.hashes,
        **{
            name: getattr(options, name)
            for name in ("held_out", "steps", "batch_size", "seed", "teacher", "keep_rejected")
        },
        **{f"digest of {source.name}": source.index.digest for source in open_bitext(options.parallel)},
    }
    recorded = read_json(output / MANIFEST) if _is_owned(output) else {}
    found = Artifact(output, _is_owned, recorded.get("plan"), "gain" in recorded)
    action = found.action(plan, options.overwrite)
    if action is Action.KEEP:
        found.keep()
        log(recorded["result"])
        return
    if action is Action.RESUME:
        made = make_known_items(corpus, options.held_out, recorded["parallel"])
    else:
        parallel, made, vectors = _hold_out(options, corpus, encoder)
    for line in made.describe():
        log(line)
    if action is not Action.RESUME:
        with atomic_directory(output, options.overwrite, _is_owned) as directory:
            kinds = _write_texts(options, made, encoder, vectors, directory / WORK)
            recorded = {
                "command": "adapt",
                "plan": plan,
                "version": __version__,
                "queries": kinds,
                "parallel": parallel,
            }
            write_json(directory / MANIFEST, recorded)
    with locked_file(output / _LOCK, _LOCK_LIMIT):
        queries = ", ".join(f"{count:,} {kind}" for kind, count in recorded["queries"].items())
        log(f"Queries to train on: {queries}")
        _mine(options, work)
        if options.teacher is not None and dense is None:
            _score(options, options.teacher, work)
        model, collections = work / "training" / MODEL, collections_of(made)
        log("Searching the held-out topics")
        runs = {BEFORE: search_all(encoder, collections, work / BEFORE, options.batch_size)}
        config = _training_config(options, encoder, work, is_scored=options.teacher is not None and dense is None)
        run_stage(config, None if dense is None else taught_by(dense))
        adapted = MilcoEncoder.from_pretrained(model, device=options.device, dtype=options.dtype)
        runs[AFTER] = search_all(adapted, collections, work / AFTER, options.batch_size)
        measured = Measured(made, collections, runs)
        gain, result = measured.has_gained(), measured.verdict()
        with atomic_directory(output, overwrite=True, is_owned=_is_owned) as directory:
            if gain or options.keep_rejected:
                kept = directory if gain else directory / REJECTED
                shutil.copytree(model, kept, dirs_exist_ok=True)
                (kept / "README.md").write_text(_card(options, made, queries, result, encoder), encoding="utf-8")
            measured.write(directory, f"{options.encoder}, adapted to {Path(options.documents).name}")
            (directory / HELD_OUT).mkdir()
            for name, content in known_item_files(made).items():
                (directory / HELD_OUT / name).write_bytes(content)
            write_json(directory / MANIFEST, recorded | {"gain": gain, "result": result, "legs": measured.records()})
    log(f"{result}. See {output / 'report.md'}")
    if gain:
        log(f"Wrote {output}. Next: milco encode --encoder {output} --corpus {options.documents}")
    else:
        log(f"{options.encoder} stays the model for {options.documents}")


def _hold_out(
    options: AdaptOptions, corpus: Corpus, encoder: MilcoEncoder
) -> tuple[dict[str, str], KnownItems, SparseBatch]:
    """Return the groups of translations, the held-out collection, and the vectors of its documents.

    Raises MilcoError if a gain on it could not be judged.
    """
    # Too few documents are an error before any is encoded.
    made = make_known_items(corpus, options.held_out)
    ids = {document.id for document in made.documents}
    if passages := sorted(docid for docid in ids if PASSAGE_DELIMITER in docid):
        raise MilcoError(f"{options.documents}: {passages[0]} is a passage: give documents that are not split")
    if len({language_of(document) for document in made.documents}) == 1:
        validate_legs(made, options.documents)
    documents = [document for document in detect_languages(corpus) if document.id in ids]
    log("Encoding the documents to find parallel texts")
    texts = [document.contents for document in documents]
    vectors = encoder.encode_document(texts, batch_size=options.batch_size)
    parallel = find_parallel(documents, vectors)
    made = make_known_items(corpus, options.held_out, parallel)
    validate_legs(made, options.documents)
    return parallel, made, vectors


def _is_owned(path: Path) -> bool:
    return is_json_with(path / MANIFEST, "command", "plan")


def _write_texts(
    options: AdaptOptions, made: KnownItems, encoder: MilcoEncoder, vectors: SparseBatch, work: Path
) -> dict[str, int]:
    """Write queries with their passages, and translations; return the number of queries of each kind.

    Raises MilcoError if there are too few for the batches.
    """
    if options.parallel:
        least = least_sentences(options.batch_size, ADAPT.training_data.concatenate)
        pairs = write_pairs(options.parallel, made, work / "parallel", least)
        log(f"Translations: {counted(pairs, 'sentence pair')}")
    examples, kinds = training_examples(made, encoder, vectors, options.steps * options.batch_size, options.seed)
    if len(examples) < 2 * options.batch_size:
        rule = f"{counted(len(examples), 'query', 'queries')} can be made of them"
        raise MilcoError(f"{options.documents} has too few titles, sentences and terms to train on: {rule}")
    write_examples(examples, work / "queries")
    return kinds


def _mine(options: AdaptOptions, work: Path) -> None:
    """Write the training sets with hard negatives of the model and of BM25."""
    if (work / "data").exists():
        return
    given: dict[str, Any] = {"negatives": _NEGATIVES, "depth": _DEPTH, "max_score": _MAX_SCORE}
    given |= {"batch_size": options.batch_size, "device": options.device}
    queries, mined = work / "queries", [work / "mined"]
    mine_training_set(
        MineOptions(data=(str(queries),), output=mined[0], encoder=options.encoder, dtype=options.dtype, **given)
    )
    for path in sorted(queries.iterdir()):
        words = work / "bm25" / path.stem
        _fit_bm25(RetrievalFile(path)).save_pretrained(words)
        mined.append(words / "mined")
        mine_training_set(MineOptions(data=(str(path),), output=mined[-1], encoder=str(words), **given))
    _write_mined(queries, mined, work / "data", options.seed)


def _score(options: AdaptOptions, teacher: str, work: Path) -> None:
    """Write the training sets with the scores of a cross-encoder or of a sparse encoder."""
    scorer: dict[str, Any] = {"teacher": teacher}
    if Checkpoint.open(teacher).kind is not Kind.OTHER:
        scorer = {"teacher": LEXICAL, "encoder": teacher, "bm25_weight": 0.0}
    score_training_set(
        ScoreOptions(data=(str(work / "data"),), output=work / "scored", device=options.device, **scorer)
    )


def _is_dense(teacher: str) -> bool:
    """Return whether a teacher is a dense encoder: neither a sparse one nor a cross-encoder."""
    checkpoint = Checkpoint.open(teacher).fetch()
    names = checkpoint.config.get("architectures") or ()
    return checkpoint.kind is Kind.OTHER and not any(name.endswith("ForSequenceClassification") for name in names)


def _fit_bm25(source: RetrievalFile) -> BM25Encoder:
    texts = list(distinct_passages(source))
    try:
        return BM25Encoder.fit(texts, source.language)
    except MilcoError:
        return BM25Encoder.fit(texts, _OTHER_LANGUAGE)


def _write_mined(queries: Path, mined: Sequence[Path], data: Path, seed: int) -> None:
    """Write the training sets with negatives of all kinds in turn; a query without any gets another passage."""
    negatives: dict[tuple[str, tuple[str, ...]], list[tuple[str, ...]]] = {}
    for source in open_retrieval(mined):
        for example in source.examples():
            negatives.setdefault((example.query, example.positives), []).append(example.negatives)
    with atomic_directory(data, overwrite=False, is_owned=lambda _: False) as partial:
        for path in sorted(queries.iterdir()):
            source, draw = RetrievalFile(path), random.Random(f"{seed} {path.name}")
            passages = list(distinct_passages(source))
            lines = []
            for example in source.examples():
                rows = zip_longest(*negatives.get((example.query, example.positives), []))
                found = tuple(dict.fromkeys(text for row in rows for text in row if text is not None))
                if not found:
                    others = [text for text in passages if text not in example.positives]
                    found = tuple(draw.sample(others, min(1, len(others))))
                if found:
                    lines.append(dump_example(example._replace(negatives=found)) + b"\n")
            if lines:
                (partial / path.name).write_bytes(b"".join(lines))


def _training_config(options: AdaptOptions, encoder: MilcoEncoder, work: Path, is_scored: bool) -> SctConfig:
    names = [name for name, _ in encoder.model.named_parameters()]
    rates = (
        rate
        for rate in ADAPT.optimizer.part_rates
        if any(name.startswith(f"{rate.partition('=')[0]}.") for name in names)
    )
    values: dict[str, Any] = {
        "model": options.encoder,
        "output": work / "training",
        "data": (str(work / "data"),),
        "parallel": (f"{work / 'parallel'}={_PARALLEL_SHARE}",) if options.parallel else (),
        "part_rates": tuple(rates),
        "device": "cpu" if options.device == "cpu" else "auto",
        "query_max_length": min(ADAPT.training_data.query_max_length, encoder.config.query_max_length),
        "passage_max_length": min(ADAPT.training_data.passage_max_length, encoder.config.passage_max_length),
        "score_temperature": _temperature(encoder, work / "data", options.batch_size),
        **{name: getattr(options, name) for name in ("steps", "batch_size", "seed")},
    }
    if is_scored:
        values |= {"data": (str(work / "scored"),), "loss": "kd", "group_size": _SCORED_GROUP}
    return replace_options(ADAPT, **values)


def _temperature(encoder: MilcoEncoder, data: Path, size: int) -> float:
    """Return the divisor of scores at which contrast in batches of this size has the least loss before training.

    Checkpoints differ in the scale of their scores. With a smaller divisor, training would first shrink all weights.
    """
    examples = [one for source in open_retrieval([data]) for one in islice(source.examples(), _SCALED)][:_SCALED]
    passages = [text for one in examples for text in (one.positives[0], one.negatives[0])]
    scores = encoder.similarity([one.query for one in examples], passages).astype(float)
    blocks = [scores[n : n + size, 2 * n : 2 * (n + size)] for n in range(0, len(scores), size)]

    def loss(temperature: float) -> float:
        rows = ((block / temperature, range(len(block))) for block in blocks)
        return float(np.concatenate([logsumexp(row, 1) - row[list(n), [2 * m for m in n]] for row, n in rows]).mean())

    # Two digits, and steps of a factor, do not depend on the processor.
    candidates = [float(f"{max(scores.max(), 1e-3) * 2 ** (-n / 2):.2g}") for n in range(_TEMPERATURES)]
    return min(candidates, key=loss)


def _card(options: AdaptOptions, made: KnownItems, queries: str, result: str, encoder: MilcoEncoder) -> str:
    """Return the card of the adapted model: the one of any checkpoint, and what it was adapted from and to."""
    described = "\n".join(f"- {line}" for line in made.describe())
    parallel = (
        f"- translations: {', '.join(Path(name).name for name in options.parallel)}\n" if options.parallel else ""
    )
    return f"""{model_card(encoder.config)}
## Adapted

- base: {options.encoder} (weights {encoder.hashes["weight_hash"]})
- documents: {Path(options.documents).name}
{described}
- queries to train on: {queries}
{parallel}- how: recipes.adapt of milco_pyserini {__version__}, {options.steps:,} steps of {options.batch_size} \
queries, contrast with BM25's and the model's hard negatives, terms kept by the base's own, teacher \
{options.teacher or "the base"}, seed {options.seed}
- {result} (report.md)
"""
