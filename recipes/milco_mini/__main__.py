"""python -m recipes.milco_mini --data DATA --work WORK --output DIRECTORY: milco-mini from open data, on the CPU.

Each stage leaves files in WORK and is passed over where they stand: an interrupted run goes on.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from milco_pyserini.console import say
from milco_pyserini.errors import MilcoError
from milco_pyserini.files import whole_file
from milco_pyserini.model import MilcoModel
from milco_pyserini.options import option, run_command

from . import alignment, codes, corpus, echo, english, export, network, pieces, table, training

CARD = Path(__file__).with_name("card.md")
# Sentences of each language on whose hidden states the echo head is fitted.
_ECHO_TEXTS = 60


@dataclass(frozen=True)
class Options:
    """Make milco-mini: tokenizers, word alignment, piece table, codes, network, checkpoint."""

    data: Path = option(help="directory with bitext/, lexicon/ and retrieval/")
    work: Path = option(help="directory for what the stages leave")
    output: Path = option(help="directory of the checkpoint; replaced")
    source_pieces: int = option(100_000, help="multilingual vocabulary")
    english_pieces: int = option(14_000, help="English vocabulary: the pivot terms")
    hidden: int = option(
        256, help="width of encoder and connector; 64 for each attention head, of which there must be 3 or more"
    )
    layers: int = option(3, help="encoder layers; they pass everything through until they are trained")
    epochs: int = option(12, help="passes over the piece table to fit its codes")
    sap_steps: int | None = option(None, help="steps of SAP, instead of the recipe mini-sap's")
    sct_steps: int | None = option(None, help="steps of SCT, instead of the recipe mini-sct's")
    threads: int = option(2, help="processor threads")
    seed: int = option(1, help="of the random codes and of the layers' inner weights")


def command(options: Options) -> None:
    """Run every stage that has not left its files yet, then write the checkpoint."""
    if not (options.data / "bitext").is_dir():
        raise MilcoError(f"--data {options.data}: there is no bitext/ in it")
    options.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(options.threads)
    work = options.work
    stages: list[tuple[str, Callable[[], None]]] = [
        ("english.json", lambda: pieces.train_english_tokenizer(options.data, work, options.english_pieces)),
        ("tokenizer.json", lambda: _source_tokenizer(options)),
        ("english_weights.npy", lambda: _english_weights(options)),
        *(
            (f"translations.{name}.npz", lambda name=name: _translations(options, name))
            for name in corpus.languages(options.data)
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
    averaged = training.align(options.data, work, work / "initial", options.sap_steps)
    trained = training.contrast(options.data, work, averaged, options.sct_steps)
    _export(options, trained, options.output)
    say(f"wrote {options.output}: {sum(f.stat().st_size for f in options.output.rglob('*')) / 1e6:.1f} MB")


def _source_tokenizer(options: Options) -> None:
    pieces.train_source_tokenizer(options.data, options.work, options.source_pieces, options.threads)


def _english_weights(options: Options) -> None:
    weights = english.measure_weights(options.data, options.work / "english.json")
    _save(options.work / "english_weights.npy", weights)


def _translations(options: Options, language: str) -> None:
    tokenizer = _tokenizer(options)
    units = alignment.word_units
    if language in corpus.UNSPACED:
        units = lambda texts: table.piece_units(tokenizer, texts)  # noqa: E731
    alignment.save(options.work / f"translations.{language}.npz", alignment.align(options.data, language, units))


def _table(options: Options) -> None:
    terms = english.EnglishTerms(options.work / "english.json", np.load(options.work / "english_weights.npy"))
    found = {name: alignment.load(options.work / f"translations.{name}.npz") for name in corpus.languages(options.data)}
    built = table.build_table(options.data, _tokenizer(options), terms, found)
    with whole_file(options.work / "table.npz") as handle:
        sp.save_npz(handle, built)


def _codes(options: Options) -> None:
    size = network.code_size(options.hidden)
    fitted = codes.fit_codes(sp.load_npz(options.work / "table.npz"), size, options.epochs, options.seed)
    partial = options.work / "codes.partial"
    save_file(fitted._asdict(), str(partial))
    partial.replace(options.work / "codes.safetensors")


def _echo(options: Options) -> None:
    _save(options.work / "echo.npy", echo.measure_echo(options.data, _tokenizer(options)))


def _initial(options: Options) -> None:
    fitted = codes.Codes(**load_file(options.work / "codes.safetensors"))
    weights = np.load(options.work / "echo.npy")
    model = network.initial_model(fitted, weights, options.hidden, options.layers, options.seed)
    texts = [
        pair.text for name in corpus.languages(options.data) for pair in corpus.bitext(options.data, name)[:_ECHO_TEXTS]
    ]
    fit = echo.fit_echo(model, _tokenizer(options), texts, weights)
    say(f"echo head: R squared {fit:.4f} against the pieces' weights")
    _export(options, model, options.work / "initial")


def _export(options: Options, model: MilcoModel, output: Path) -> None:
    terms = Tokenizer.from_file(str(options.work / "english.json"))
    export.export(model, _tokenizer(options), terms, CARD.read_text(encoding="utf-8"), output)


def _tokenizer(options: Options) -> Tokenizer:
    return Tokenizer.from_file(str(options.work / "tokenizer.json"))


def _save(path: Path, array: np.ndarray) -> None:
    with whole_file(path) as handle:
        np.save(handle, array)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    return run_command("recipes.milco_mini", Options, command, argv)


if __name__ == "__main__":
    sys.exit(main())
