"""python -m recipes.milco_mini --data DATA --work WORK --output DIRECTORY: train milco-mini from open data on the CPU.

Each stage writes its files to WORK and is skipped if they exist, so an interrupted run resumes. To train on another
machine, for instance on a GPU: --pack FILE writes what training needs, and --packed FILE replaces --data there.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import log
from milco_pyserini.io.files import validate_output_file
from milco_pyserini.options import option


@dataclass(frozen=True)
class MiniOptions:
    """Train milco-mini: tokenizers, word alignment, token table, codes, network, checkpoint."""

    work: Path = option(metavar="DIR", help="directory for the files of the stages")
    data: Path | None = option(None, metavar="DIR", help="directory with bitext/, lexicon/ and retrieval/")
    packed: Path | None = option(
        None, metavar="FILE", help="file written by --pack, in place of --data; unpacked into --work"
    )
    output: Path | None = option(None, metavar="DIR", help="directory of the checkpoint; replaced")
    pack: Path | None = option(None, metavar="FILE", help="file to write for --packed, in place of training")
    megabytes: float = option(60.0, above=0, help="size limit of --pack in 1e6 bytes; pairs beyond it are sampled")
    source_pieces: int = option(100_000, minimum=1, help="size of the multilingual vocabulary")
    english_pieces: int = option(14_000, minimum=1, help="size of the English vocabulary: the pivot terms")
    hidden: int = option(256, minimum=192, help="hidden size of encoder and connector, 64 for each attention head")
    layers: int = option(3, minimum=1, help="encoder layers; identities until they are trained")
    epochs: int = option(12, minimum=1, help="passes over the token table to fit its codes")
    sap_steps: int | None = option(None, minimum=1, help="steps of SAP (default: of configuration mini-sap)")
    sct_steps: int | None = option(None, minimum=1, help="steps of SCT (default: of configuration mini-sct)")
    threads: int = option(2, minimum=1, help="CPU threads")
    seed: int = option(1, minimum=0, help="random seed of codes and inner weights")

    def conflicts(self) -> Iterator[str]:
        """Yield what is wrong with combinations of options."""
        if (self.data is None) == (self.packed is None):
            yield "give --data DIR or --packed FILE"
        if self.output is None and self.pack is None:
            yield "give --output DIR to train, or --pack FILE to train on another machine"
        if self.data is not None and not (self.data / "bitext").is_dir():
            yield f"--data {self.data}: it has no bitext/"


def command(options: MiniOptions) -> None:
    """Run every stage whose files are missing, then write the checkpoint or the packed file."""
    if options.pack is not None:
        validate_output_file(options.pack, overwrite=False)
    import torch

    from . import packed, stages, training

    torch.set_num_threads(options.threads)
    if options.data is None:
        data, work = packed.unpack(options.packed or Path(), options.work)
    else:
        data, work = options.data, options.work
        stages.prepare(
            data,
            work,
            source_pieces=options.source_pieces,
            english_pieces=options.english_pieces,
            hidden=options.hidden,
            layers=options.layers,
            epochs=options.epochs,
            threads=options.threads,
            seed=options.seed,
        )
    if options.pack is not None:
        packed.pack(data, work, options.pack, options.megabytes)
    if options.output is not None:
        averaged = training.align(data, work, work / "initial", options.sap_steps)
        trained = training.contrast(data, work, averaged, options.sct_steps)
        stages.write_checkpoint(work, trained, options.output)
        size = sum(file.stat().st_size for file in options.output.rglob("*")) / 1e6
        log(f"Wrote {options.output}: {size:.1f} MB")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    return run_command("recipes.milco_mini", MiniOptions, command, argv, "the same command resumes at the next stage")


if __name__ == "__main__":
    sys.exit(main())
