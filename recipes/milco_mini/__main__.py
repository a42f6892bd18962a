"""python -m recipes.milco_mini --data DATA --work WORK --output DIRECTORY: milco-mini from open data, on the CPU.

Each stage leaves files in WORK and is passed over where they stand: an interrupted run goes on. Training can go on
elsewhere, on a GPU say: --pack FILE writes what it needs as one file, and there --packed FILE stands for --data.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import say
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import validate_output_file
from milco_pyserini.options import option


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
    import torch

    from . import packed, stages, training

    torch.set_num_threads(options.threads)
    if options.packed is not None:
        data, work = packed.unpack(options.packed, options.work)
        options = replace(options, data=data, work=work)
    else:
        options.work.mkdir(parents=True, exist_ok=True)
        stages.initialise(options)
    data, work = stages.data_of(options), options.work
    if options.pack is not None:
        packed.pack(data, work, options.pack, options.megabytes)
    if options.output is not None:
        averaged = training.align(data, work, work / "initial", options.sap_steps)
        trained = training.contrast(data, work, averaged, options.sct_steps)
        stages.write_checkpoint(options, trained, options.output)
        size = sum(file.stat().st_size for file in options.output.rglob("*")) / 1e6
        say(f"wrote {options.output}: {size:.1f} MB")


def _check(options: Options) -> None:
    if (options.data is None) == (options.packed is None):
        raise MilcoError("give --data DIRECTORY or --packed FILE")
    if options.output is None and options.pack is None:
        raise MilcoError("give --output DIRECTORY to train, or --pack FILE to train elsewhere")
    for name in ("epochs", "sap_steps", "sct_steps", "threads"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise MilcoError(f"--{name.replace('_', '-')} {value}: must be at least 1")
    if options.data is not None and not (options.data / "bitext").is_dir():
        raise MilcoError(f"--data {options.data}: there is no bitext/ in it")
    if options.pack is not None:
        validate_output_file(options.pack, overwrite=False)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    return run_command("recipes.milco_mini", Options, command, argv, "the same command goes on where it stopped")


if __name__ == "__main__":
    sys.exit(main())
