"""The stages before training, each of which leaves a file in WORK and is skipped if it exists, and those after it."""

from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from safetensors.torch import load_file, save
from tokenizers import Tokenizer

from milco_pyserini.console import log
from milco_pyserini.encode import MilcoEncoder
from milco_pyserini.io.files import atomic_file

from . import MiniOptions, alignment, codes, corpus, echo, english, export, network, pieces, table

CARD = Path(__file__).with_name("card.md")
# Sentences of each language on whose hidden states the LexEcho head is fitted.
_ECHO_TEXTS = 60


def prepare(data: Path, options: MiniOptions) -> None:
    """Run the stages whose files are missing in the work directory."""
    work = options.work
    work.mkdir(parents=True, exist_ok=True)
    languages = corpus.languages(data)

    def is_missing(name: str) -> bool:
        if (work / name).exists():
            return False
        log(f"Making {work / name}")
        return True

    if is_missing("english.json"):
        pieces.train_english_tokenizer(data, work, options.english_pieces)
    if is_missing("tokenizer.json"):
        pieces.train_source_tokenizer(data, work, options.source_pieces, options.threads)
    tokenizer = Tokenizer.from_file(str(work / "tokenizer.json"))
    if is_missing("english_weights.npy"):
        _save_array(work / "english_weights.npy", english.measure_weights(data, work / "english.json"))
    for language in languages:
        if is_missing(f"translations.{language}.npz"):
            units = alignment.word_units
            if language in corpus.UNSPACED:
                units = lambda texts: table.piece_units(tokenizer, texts)  # noqa: E731
            found = alignment.align(data, language, units)
            alignment.save(work / f"translations.{language}.npz", found)
    if is_missing("table.npz"):
        terms = english.EnglishTerms(work / "english.json", np.load(work / "english_weights.npy"))
        translations = {name: alignment.load(work / f"translations.{name}.npz") for name in languages}
        with atomic_file(work / "table.npz") as handle:
            sp.save_npz(handle, table.build_table(data, tokenizer, terms, translations))
    if is_missing("codes.safetensors"):
        rows = sp.load_npz(work / "table.npz")
        fitted = codes.fit_codes(rows, network.code_size(options.hidden), options.epochs, options.seed)
        with atomic_file(work / "codes.safetensors") as handle:
            handle.write(save(fitted._asdict()))
    if is_missing("initial"):
        weights = idf_weights(data, work, tokenizer)
        fitted = codes.Codes(**load_file(work / "codes.safetensors"))
        model = network.initial_model(fitted, weights, options.hidden, options.layers, options.seed)
        rows = echo_rows(data, tokenizer)
        echo.fit_echo(model, rows, [weights[row] for row in rows])
        terms = Tokenizer.from_file(str(work / "english.json"))
        export.export(model, tokenizer, terms, CARD.read_text(encoding="utf-8"), work / "initial")


def idf_weights(data: Path, work: Path, tokenizer: Tokenizer) -> NDArray[np.float32]:
    """Return source view weights of tokens by document frequency, float32 [V_m]."""
    path = work / "echo.npy"
    if not path.exists():
        log(f"Making {path}")
        _save_array(path, echo.measure_echo(data, tokenizer))
    return np.load(path)


def echo_rows(data: Path, tokenizer: Tokenizer) -> list[list[int]]:
    """Return the tokens of sentences of all languages, on whose hidden states a LexEcho head is fitted."""
    texts = [pair.text for name in corpus.languages(data) for pair in corpus.bitext(data, name)[:_ECHO_TEXTS]]
    return echo.token_rows(tokenizer, texts)


def write_checkpoint(encoder: MilcoEncoder, output: Path) -> None:
    """Export a trained encoder with the model card."""
    card = CARD.read_text(encoding="utf-8")
    export.export(encoder.model, encoder.tokenizer.tokenizer, encoder.english_tokenizer, card, output)


def _save_array(path: Path, array: np.ndarray) -> None:
    with atomic_file(path) as handle:
        np.save(handle, array)
