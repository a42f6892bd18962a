"""The stages up to the network that starts as the table: which files each of them leaves in WORK."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import scipy.sparse as sp
from safetensors.torch import load_file, save
from tokenizers import Tokenizer

from milco_pyserini.console import say
from milco_pyserini.io.files import atomic_file
from milco_pyserini.model import MilcoModel

from . import alignment, codes, corpus, echo, english, export, network, pieces, table

if TYPE_CHECKING:
    from .__main__ import Options

CARD = Path(__file__).with_name("card.md")
# Sentences of each language on whose hidden states the echo head is fitted.
_ECHO_TEXTS = 60


def data_of(options: "Options") -> Path:
    """The data folder of options that the command has checked: given, or unpacked."""
    return cast(Path, options.data)


def initialise(options: "Options") -> None:
    """Run the stages whose files are not there."""
    data, work = data_of(options), options.work
    stages: list[tuple[str, Callable[[], None]]] = [
        ("english.json", lambda: pieces.train_english_tokenizer(data, work, options.english_pieces)),
        ("tokenizer.json", lambda: pieces.train_source_tokenizer(data, work, options.source_pieces, options.threads)),
        ("english_weights.npy", lambda: _english_weights(options)),
        *(
            (f"translations.{name}.npz", lambda name=name: _translations(options, name))
            for name in corpus.languages(data)
        ),
        ("table.npz", lambda: _table(options)),
        ("codes.safetensors", lambda: _codes(options)),
        ("echo.npy", lambda: _echo(options)),
        ("initial", lambda: _initial(options)),
    ]
    for name, stage in stages:
        if not (work / name).exists():
            say(f"making {work / name}")
            stage()


def _english_weights(options: "Options") -> None:
    weights = english.measure_weights(data_of(options), options.work / "english.json")
    _save(options.work / "english_weights.npy", weights)


def _translations(options: "Options", language: str) -> None:
    tokenizer = _tokenizer(options)
    units = alignment.word_units
    if language in corpus.UNSPACED:
        units = lambda texts: table.piece_units(tokenizer, texts)  # noqa: E731
    alignment.save(options.work / f"translations.{language}.npz", alignment.align(data_of(options), language, units))


def _table(options: "Options") -> None:
    terms = english.EnglishTerms(options.work / "english.json", np.load(options.work / "english_weights.npy"))
    found = {
        name: alignment.load(options.work / f"translations.{name}.npz") for name in corpus.languages(data_of(options))
    }
    built = table.build_table(data_of(options), _tokenizer(options), terms, found)
    with atomic_file(options.work / "table.npz") as handle:
        sp.save_npz(handle, built)


def _codes(options: "Options") -> None:
    size = network.code_size(options.hidden)
    fitted = codes.fit_codes(sp.load_npz(options.work / "table.npz"), size, options.epochs, options.seed)
    with atomic_file(options.work / "codes.safetensors") as handle:
        handle.write(save(fitted._asdict()))


def _echo(options: "Options") -> None:
    _save(options.work / "echo.npy", echo.measure_echo(data_of(options), _tokenizer(options)))


def _initial(options: "Options") -> None:
    fitted = codes.Codes(**load_file(options.work / "codes.safetensors"))
    weights = np.load(options.work / "echo.npy")
    model = network.initial_model(fitted, weights, options.hidden, options.layers, options.seed)
    texts = [
        pair.text
        for name in corpus.languages(data_of(options))
        for pair in corpus.bitext(data_of(options), name)[:_ECHO_TEXTS]
    ]
    fit = echo.fit_echo(model, _tokenizer(options), texts, weights)
    say(f"echo head: R squared {fit:.4f} against the pieces' weights")
    write_checkpoint(options, model, options.work / "initial")


def write_checkpoint(options: "Options", model: MilcoModel, output: Path) -> None:
    """Export a model with the recipe's tokenizers and card."""
    terms = Tokenizer.from_file(str(options.work / "english.json"))
    export.export(model, _tokenizer(options), terms, CARD.read_text(encoding="utf-8"), output)


def _tokenizer(options: "Options") -> Tokenizer:
    return Tokenizer.from_file(str(options.work / "tokenizer.json"))


def _save(path: Path, array: np.ndarray) -> None:
    with atomic_file(path) as handle:
        np.save(handle, array)
