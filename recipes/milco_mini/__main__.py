"""python -m recipes.milco_mini --data DATA --work WORK --output DIRECTORY: milco-mini from open data, on the CPU.

Each stage leaves files in WORK and is passed over where they stand: an interrupted run goes on. Training can go on
elsewhere, on a GPU say: --pack FILE writes what it needs as one file, and there --packed FILE stands for --data.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import scipy.sparse as sp
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from milco_pyserini.console import say
from milco_pyserini.errors import MilcoError
from milco_pyserini.files import refuse_output, whole_file
from milco_pyserini.model import MilcoModel
from milco_pyserini.options import option, run_command

from . import alignment, codes, corpus, echo, english, export, network, packed, pieces, table, training

CARD = Path(__file__).with_name("card.md")
# Sentences of each language on whose hidden states the echo head is fitted.
_ECHO_TEXTS = 60


@dataclass(frozen=True)
class Options:
    """Make milco-mini: tokenizers, word alignment, piece table, codes, network, checkpoint."""

    work: Path = option(help="directory for what the stages leave")
    data: Path | None = option(None, help="directory with bitext/, lexicon/ and retrieval/")
    packed: Path | None = option(None, help="instead of --data: a file that --pack wrote; it is unpacked into --work")
    output: Path | None = option(None, help="directory of the checkpoint; replaced")
    pack: Path | None = option(None, help="instead of training: write the file that --packed reads")
    megabytes: float = option(60.0, help="with --pack: its size at most, in 1e6 bytes; what is too much is sampled")
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
    """Run every stage that has not left its files yet, then write the checkpoint or the packed file."""
    _check(options)
    torch.set_num_threads(options.threads)
    data, work = options.data, options.work
    if options.packed is not None:
        data, work = packed.unpack(options.packed, work)
        options = replace(options, data=data, work=work)
    else:
        work.mkdir(parents=True, exist_ok=True)
        _initialise(options)
    if options.pack is not None:
        packed.pack(_data(options), work, options.pack, options.megabytes)
    if options.output is not None:
        averaged = training.align(_data(options), work, work / "initial", options.sap_steps)
        trained = training.contrast(_data(options), work, averaged, options.sct_steps)
        _export(options, trained, options.output)
        size = sum(file.stat().st_size for file in options.output.rglob("*")) / 1e6
        say(f"wrote {options.output}: {size:.1f} MB")


def _check(options: Options) -> None:
    if (options.data is None) == (options.packed is None):
        raise MilcoError("give --data DIRECTORY or --packed FILE")
    if options.output is None and options.pack is None:
        raise MilcoError("give --output DIRECTORY to train, or --pack FILE to train elsewhere")
    if options.data is not None and not (options.data / "bitext").is_dir():
        raise MilcoError(f"--data {options.data}: there is no bitext/ in it")
    if options.pack is not None:
        refuse_output(options.pack, overwrite=False)


def _data(options: Options) -> Path:
    # _check() has seen to it.
    return cast(Path, options.data)


def _initialise(options: Options) -> None:
    """The stages up to the network that starts as the table."""
    data, work = _data(options), options.work
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


def _english_weights(options: Options) -> None:
    weights = english.measure_weights(_data(options), options.work / "english.json")
    _save(options.work / "english_weights.npy", weights)


def _translations(options: Options, language: str) -> None:
    tokenizer = _tokenizer(options)
    units = alignment.word_units
    if language in corpus.UNSPACED:
        units = lambda texts: table.piece_units(tokenizer, texts)  # noqa: E731
    alignment.save(options.work / f"translations.{language}.npz", alignment.align(_data(options), language, units))


def _table(options: Options) -> None:
    terms = english.EnglishTerms(options.work / "english.json", np.load(options.work / "english_weights.npy"))
    found = {
        name: alignment.load(options.work / f"translations.{name}.npz") for name in corpus.languages(_data(options))
    }
    built = table.build_table(_data(options), _tokenizer(options), terms, found)
    with whole_file(options.work / "table.npz") as handle:
        sp.save_npz(handle, built)


def _codes(options: Options) -> None:
    size = network.code_size(options.hidden)
    fitted = codes.fit_codes(sp.load_npz(options.work / "table.npz"), size, options.epochs, options.seed)
    partial = options.work / "codes.partial"
    save_file(fitted._asdict(), str(partial))
    partial.replace(options.work / "codes.safetensors")


def _echo(options: Options) -> None:
    _save(options.work / "echo.npy", echo.measure_echo(_data(options), _tokenizer(options)))


def _initial(options: Options) -> None:
    fitted = codes.Codes(**load_file(options.work / "codes.safetensors"))
    weights = np.load(options.work / "echo.npy")
    model = network.initial_model(fitted, weights, options.hidden, options.layers, options.seed)
    texts = [
        pair.text
        for name in corpus.languages(_data(options))
        for pair in corpus.bitext(_data(options), name)[:_ECHO_TEXTS]
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
