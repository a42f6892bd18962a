"""SAP and SCT of milco-mini with the configurations mini-sap, mini-sct and mini-echo-sct.

Specific to a network that starts as a table: the teacher of SAP knows words (words.py), and SAP's result is averaged
with its start (Wortsman et al., Model Soups, 2022), because the start knows rare words that SAP never saw and SAP knows
frequent ones better. SCT is mostly contrast across languages: each sentence has to find its translations among
sentences in all languages, its own included. Its result, too, is averaged with its start. The layers, which so far are
close to the identity, then learn sound terms (sounds.py). A second SCT, on queries with passages, trains the LexEcho
head alone, for the rounded embeddings of the final checkpoint; its weights are then lowered in some scripts (echo.py).
"""

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from milco_pyserini.encode import MilcoEncoder
from milco_pyserini.io.files import atomic_directory, atomic_file
from milco_pyserini.model.modeling import LexEcho
from milco_pyserini.train.config import SapConfig, SctConfig, load_config
from milco_pyserini.train.data.retrieval import RetrievalExample, dump_example, file_language, open_retrieval
from milco_pyserini.train.run import MODEL, train_sap, train_sct

from . import calibration, corpus, echo, network, sounds, stages
from .words import WordTeacher

# Shares of the examples of SAP.
SHARES = {"bitext": 0.85, "lexicon": 0.15}
# Shares of the batches of contrast across languages; the rest are queries with passages.
PARALLEL = {
    "bitext/bible": 0.15,
    "bitext/tico19": 0.13,
    "bitext/mkqa-queries": 0.1,
    "bitext/talpco": 0.02,
    "bitext/tatoeba-anki": 0.14,
    "bitext/wikipedia-indic": 0.04,
    "bitext/python-docs": 0.03,
    "bitext/korean-news": 0.02,
    "lexicon/omw": 0.04,
    "lexicon/wiktionary": 0.04,
    "lexicon/cldr-names": 0.03,
    "lexicon/osm-presets": 0.01,
}
# Per set.
_MAX_QUERIES = 5_000
# Share of passages, by hash, that are never trained on, with their queries.
_HELD_OUT = 0.1
# Shares of the start in the mean with what SAP, and contrast across languages, made of it. Contrast forgets rare terms
# that within a language distinguish passages.
_START_SHARE, _CALIBRATED_SHARE = 0.5, 0.3
# Scale of source weights next to pivot weights: among all languages they find passages in the query's own.
_ECHO_SCALE = 0.33


def align(data: Path, work: Path, start: Path, seed: int, steps: int | None) -> Path:
    """Run SAP from a checkpoint with the word table as teacher; return the directory of the mean of both."""
    config = load_config(
        SapConfig,
        "mini-sap",
        model=str(start),
        teacher="word table",
        bitext=tuple(f"{data / name}={share}" for name, share in SHARES.items()),
        languages=tuple(corpus.languages(data)),
        output=work / "sap",
        seed=seed,
    )
    train_sap(replace(config, steps=config.steps if steps is None else steps), WordTeacher(work))
    averaged = work / "averaged"
    if not averaged.exists():
        _save(average(start, work / "sap" / MODEL, _START_SHARE), averaged)
    return averaged


def average(start: Path, trained: Path, start_share: float) -> MilcoEncoder:
    """Interpolate the weights of two checkpoints: start_share of the first, the rest of the second."""
    encoders = [MilcoEncoder.from_pretrained(path, device="cpu", dtype="float32") for path in (start, trained)]
    before, after = (encoder.model.state_dict() for encoder in encoders)
    mixed = {name: torch.lerp(after[name], tensor, start_share) for name, tensor in before.items()}
    encoders[0].model.load_state_dict(mixed)
    return encoders[0]


def calibrate(data: Path, work: Path, start: str | Path) -> Path:
    """Calibrate a checkpoint (calibration.py); return the directory of the result."""
    calibrated = work / "calibrated"
    if not calibrated.exists():
        encoder = MilcoEncoder.from_pretrained(start, device="cpu", dtype="float32")
        calibration.calibrate(encoder, data)
        _save(encoder, calibrated)
    return calibrated


def contrast(data: Path, work: Path, start: Path, seed: int, steps: int | None) -> MilcoEncoder:
    """Run SCT from a checkpoint, across languages and on queries with passages; return the mean with its start."""
    pairs = training_pairs(data, work)
    config = load_config(
        SctConfig,
        "mini-sct",
        model=str(start),
        parallel=tuple(f"{data / name}={share}" for name, share in PARALLEL.items() if (data / name).is_dir()),
        data=pairs,
        languages=tuple(corpus.languages(data)),
        output=work / "sct",
        seed=seed,
    )
    train_sct(replace(config, steps=config.steps if steps is None else steps))
    return average(start, work / "sct" / MODEL, _CALIBRATED_SHARE)


def teach_sounds(data: Path, work: Path, before: MilcoEncoder, steps: int, seed: int) -> MilcoEncoder:
    """Return an encoder with sound terms (sounds.py), or the given one if it has them."""
    if sounds.has_sound_terms(before.english_tokenizer):
        return before
    taught, restored = work / "taught", work / "sounds"
    if not restored.exists():
        calibration.recalibrate(before, data)
        tokenizer = before.tokenizer.tokenizer
        weights = sounds.measure_weights(data, tokenizer)
        if not taught.exists():
            _save(sounds.teach(before, data, weights, steps, seed), taught)
        encoder = MilcoEncoder.from_pretrained(taught, device="cpu", dtype="float32")
        echo_weights = stages.idf_weights(data, work, tokenizer)
        sounds.restore(before, encoder, data, weights, echo_weights, max(1, steps * 3 // 4), seed)
        _save(encoder, restored)
    return MilcoEncoder.from_pretrained(restored, device="cpu", dtype="float32")


def weigh_source(data: Path, work: Path, encoder: MilcoEncoder, seed: int, steps: int | None) -> MilcoEncoder:
    """Round an encoder's weights as its checkpoint will, and train the LexEcho head; return the final encoder."""
    model, tokenizer = work / "weighted", encoder.tokenizer.tokenizer
    rows, weights = stages.echo_rows(data, tokenizer), stages.idf_weights(data, work, tokenizer)
    if not model.exists():
        _save(_with_head(encoder, weights, rows, [weights[row] for row in rows], work / "rounded"), model)
    if pairs := training_pairs(data, work):
        config = load_config(SctConfig, "mini-echo-sct", model=str(model), data=pairs, output=work / "echo", seed=seed)
        train_sct(replace(config, steps=config.steps if steps is None else steps))
        model = work / "echo" / MODEL
    trained = MilcoEncoder.from_pretrained(model, device="cpu", dtype="float32")
    lowered, goals = echo.scale_scripts(trained.model, tokenizer, rows, weights)
    final = _with_head(trained, lowered, rows, goals, work / "scaled")
    with torch.no_grad():
        cast(LexEcho, final.model.echo).scale.mul_(_ECHO_SCALE)
    return final


def _with_head(
    encoder: MilcoEncoder,
    weights: NDArray[np.float32],
    rows: list[list[int]],
    goals: list[NDArray[np.float32]],
    directory: Path,
) -> MilcoEncoder:
    """Return an encoder, rounded in a directory, with weights of tokens and a LexEcho head fitted to those in texts."""
    network.set_echo(encoder.model, weights)
    stages.write_checkpoint(encoder, directory)
    rounded = MilcoEncoder.from_pretrained(directory, device="cpu", dtype="float32")
    echo.fit_echo(rounded.model, rows, goals)
    return rounded


def _save(encoder: MilcoEncoder, directory: Path) -> None:
    """Write a checkpoint, complete or not at all."""
    with atomic_directory(directory, overwrite=False, is_owned=lambda _: False) as partial:
        encoder.save_pretrained(partial)


def training_pairs(data: Path, work: Path) -> tuple[str, ...]:
    """Return the directory of queries with passages for SCT, or nothing if the data have none."""
    pairs = work / "contrast"
    if not pairs.exists():
        with atomic_directory(pairs, overwrite=False, is_owned=lambda _: False) as directory:
            write_pairs(data, directory)
    return (str(pairs),) if any(pairs.iterdir()) else ()


def write_pairs(data: Path, directory: Path) -> None:
    """Write NAME.LANG.jsonl.gz of every training set of queries."""
    languages = corpus.languages(data)
    for name in (name for names in corpus.PASSAGES.values() for name in names):
        path = data / "retrieval" / f"{name}.jsonl.gz"
        if path.exists() and file_language(path).partition("-")[0] in languages:
            found = (example for source in open_retrieval([path]) for example in source.examples())
            _write(directory / path.name, filter(is_for_training, found))


def is_for_training(example: RetrievalExample) -> bool:
    """Return whether the example's passage is not held out, which is the same for all its queries."""
    digest = hashlib.blake2b(example.positives[0].encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64 >= _HELD_OUT


def _write(path: Path, examples: Iterator[RetrievalExample]) -> None:
    first = list(islice(examples, _MAX_QUERIES))
    if first:
        with atomic_file(path) as handle:
            handle.write(gzip.compress(b"".join(dump_example(example) + b"\n" for example in first), mtime=0))
