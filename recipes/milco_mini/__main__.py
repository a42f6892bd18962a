"""python -m recipes.milco_mini --data DATA --work WORK --output DIRECTORY: train milco-mini from open data on the CPU.

Each stage writes its files to WORK and is skipped if they exist, so an interrupted run resumes. To train on another
machine, for instance on a GPU: --pack FILE writes what training needs, and --packed FILE replaces --data there.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import log
from milco_pyserini.io.files import validate_output_file
from milco_pyserini.model import find_checkpoint

from . import MiniOptions

# Options that do not change the files of stages. The steps of a training are compared by its own directory.
_FREE = ("output", "pack", "packed", "megabytes", "sap_steps", "sct_steps", "sound_steps")


def command(options: MiniOptions) -> None:
    """Run every stage whose files are missing, then write the checkpoint or the packed file."""
    from milco_pyserini.cli.train import validate_installation

    validate_installation("anyascii")
    if options.pack is not None:
        validate_output_file(options.pack, overwrite=False)
    import torch

    from milco_pyserini.encode import MilcoEncoder

    from . import packed, stages, training

    torch.set_num_threads(options.threads)
    if options.data is None:
        data, work = packed.unpack(options.packed or Path(), options.work)
    else:
        data, work = options.data, options.work
        if options.start is not None:
            find_checkpoint(options.start)
        options.begin(_FREE)
        if options.start is None:
            stages.prepare(data, options)
    if options.pack is not None:
        packed.pack(data, work, options.pack, options.megabytes)
    if options.output is not None:
        if options.start is None:
            aligned = training.align(data, work, work / "initial", options.seed, options.sap_steps)
            calibrated = training.calibrate(data, work, aligned)
            trained = training.contrast(data, work, calibrated, options.seed, options.sct_steps)
        else:
            trained = MilcoEncoder.from_pretrained(options.start, device="cpu", dtype="float32")
        taught = training.teach_sounds(data, work, trained, options.sound_steps, options.seed)
        final = training.weigh_source(data, work, taught, options.seed, options.sct_steps)
        stages.write_checkpoint(final, options.output)
        size = sum(file.stat().st_size for file in options.output.rglob("*")) / 1e6
        log(f"Wrote {options.output}: {size:.1f} MB")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    return run_command("recipes.milco_mini", MiniOptions, command, argv, "the same command resumes at the next stage")


if __name__ == "__main__":
    sys.exit(main())
