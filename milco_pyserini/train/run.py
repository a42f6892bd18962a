"""A training run from its options: the two stages, and the directory that explains itself."""

import math
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from accelerate import PartialState
from torch import nn
from torch.utils.data import IterableDataset
from transformers import TrainingArguments, set_seed

from milco_pyserini import __version__
from milco_pyserini.console import say
from milco_pyserini.encode import MilcoEncoder
from milco_pyserini.encode.encoder import choose_dtype
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import atomic_directory, atomic_file, read_json, remove_directory, write_json
from milco_pyserini.sparse import SOURCE
from milco_pyserini.train.alarms import CollapseMonitor
from milco_pyserini.train.batches import Texts, alignment_collator, contrast_collator, pair_length
from milco_pyserini.train.data.bitext_stream import BitextStream, open_bitext
from milco_pyserini.train.data.retrieval_stream import RetrievalStream, open_retrieval
from milco_pyserini.train.objectives import Alignment, Contrast
from milco_pyserini.train.probe import Probe
from milco_pyserini.train.processes import waiting_for_others
from milco_pyserini.train.recipe import SapOptions, SctOptions, TrainingOptions, check, shares, write_recipe
from milco_pyserini.train.start import starting_encoder
from milco_pyserini.train.teachers import Teacher, check_vocabulary, open_teacher
from milco_pyserini.train.trainer import (
    ObjectiveTrainer,
    damage,
    newest_checkpoint,
    set_aside_damaged,
    training_arguments,
    writing,
)

RECIPE = "recipe.yaml"
MANIFEST = "manifest.json"
MODEL = "model"
MODEL_FILES = ("config.json", "tokenizer.json", "english/tokenizer.json")
CHECKPOINTS = Path("checkpoints")


def sap_command(options: SapOptions, teacher: Teacher | None = None) -> None:
    """Run or resume sparse alignment pretraining. teacher: instead of the one that the options name."""
    check(options)
    if not options.bitext:
        raise MilcoError("--bitext is needed: files or directories of sentence pairs, or collections by name")
    run = run_directory(options)
    if _finished(options, run):
        return
    weights = shares(options.bitext)
    sources = open_bitext(list(weights), options.languages or None)
    given = {name: share for name, share in weights.items() if share is not None}
    encoder = starting_encoder(options, echo=False)
    encoder.validate_length(options.max_length)
    texts = Texts(encoder.tokenizer, encoder.model.config.encoder.pad_token_id, options.lowercase)
    probe = _probe(options, encoder, texts)
    stream = BitextStream(
        sources, options.temperature, options.seed, concatenate=options.concatenate, weights=given or None
    )
    teacher = teacher or open_teacher(
        options.teacher,
        encoder.english_tokenizer,
        lambda: (pair.english for source in sources for pair in source.pairs()),
        options.padding,
        options.max_length,
    )
    pieces = encoder.vocabulary.english
    check_vocabulary(teacher.vocabulary, pieces)
    arguments = training_arguments(options, run, _steps(options, sum(stream.sizes)))
    if isinstance(teacher, nn.Module):
        teacher.to(arguments.device)
    objective = Alignment(
        encoder.model,
        teacher,
        choose_dtype(options.dtype, arguments.device),
        options.padding,
        options.english_weight,
        options.margin,
        options.mean,
    )
    collate = alignment_collator(texts, teacher, options.max_length)
    train_objective(options, run, encoder, objective, arguments, stream, collate, pair_length, probe)


def sct_command(options: SctOptions) -> None:
    """Run or resume sparse contrastive training."""
    check(options)
    if not options.data:
        raise MilcoError("--data is needed: files or directories of queries and passages, or collections by name")
    run = run_directory(options)
    if _finished(options, run):
        return
    sources = open_retrieval(options.data, options.languages or None)
    encoder = starting_encoder(options, echo=SOURCE in options.views)
    for length in (options.query_max_length, options.passage_max_length):
        encoder.validate_length(length)
    config = encoder.model.config
    texts = Texts(encoder.tokenizer, config.encoder.pad_token_id, options.lowercase)
    probe = _probe(options, encoder, texts)
    stream = RetrievalStream(
        sources,
        options.group_size,
        options.seed,
        options.temperature,
        block=options.batch_size,
        scored=options.loss == "kd",
    )
    arguments = training_arguments(options, run, _steps(options, sum(stream.sizes)))
    objective = Contrast(
        encoder.model,
        choose_dtype(options.dtype, arguments.device),
        loss=options.loss,
        direction=options.direction,
        views=options.views,
        temperature=options.score_temperature,
        regularizer=options.regularizer,
        query_weight=options.lambda_query,
        passage_weight=options.lambda_passage,
        regularize_source=options.regularize_source,
        dropped_ids=tuple(encoder.tokenizer.special_ids) if config.source_drop_special else (),
    )
    collate = contrast_collator(texts, options.query_max_length, options.passage_max_length)
    # In-batch negatives are to come from one collection: its blocks stay as the stream gives them.
    train_objective(options, run, encoder, objective, arguments, stream, collate, None, probe)


@waiting_for_others()
def train_objective(
    options: TrainingOptions,
    run: Path,
    encoder: MilcoEncoder,
    objective: nn.Module,
    arguments: TrainingArguments,
    stream: IterableDataset,
    collate: Callable[[list], dict],
    length: Callable[[Any], int] | None,
    probe: Probe,
    command: str | None = None,
) -> None:
    """Train to the end what run_directory() found, from its newest checkpoint if it has one, and write its model.

    length: by which examples are gathered into batches; None keeps the stream's order. command: what makes the same
    run again, for its manifest, where that is no verb of ours.
    """
    set_seed(options.seed)
    if options.gradient_checkpointing:
        encoder.model.encoder.gradient_checkpointing_enable({"use_reentrant": False})
    monitor = CollapseMonitor()
    if arguments.process_index == 0:
        with writing(str(run), run):
            _write_run(options, run, command, arguments.world_size)
    # With --overwrite another process would still see the old checkpoints.
    PartialState().wait_for_everyone()
    trainer = ObjectiveTrainer(objective, encoder, options, arguments, stream, collate, length, monitor, probe)
    newest = newest_checkpoint(run)
    if trainer.is_world_process_zero():
        goes_on = f", on from {newest.name}" if newest else ""
        batch = options.batch_size * options.accumulation
        devices = f"each of {arguments.world_size} devices" if arguments.world_size > 1 else "1 device"
        say(f"{arguments.max_steps:,} steps of {batch} examples on {devices}{goes_on}")
    trainer.train_on()
    if trainer.is_world_process_zero():
        model = run / MODEL
        with writing(str(model), run), atomic_directory(model, overwrite=False, is_owned=lambda _: False) as directory:
            encoder.model.eval()
            encoder.save_pretrained(directory)
        say(f"wrote {model}: milco encode --encoder {model} --corpus NAME")


def _probe(options: TrainingOptions, encoder: MilcoEncoder, texts: Texts) -> Probe:
    """The sentence pairs of --probe, in the languages that are trained on; without them an SCT says what it lacks."""
    sources = open_bitext(options.probe, ids=True)
    if options.languages:
        sources = [source for source in sources if source.language in options.languages]
    if options.probe and not sources:
        raise MilcoError(f"--probe {' '.join(options.probe)}: no pairs in {', '.join(options.languages)}")
    if not sources and isinstance(options, SctOptions) and int(os.environ.get("RANK", 0)) == 0:
        say("grounding is not watched: give --probe FILE, sentence pairs that are not trained on (de-en.tsv)")
    return Probe(sources, texts, encoder.english_tokenizer, encoder.model.config.query_max_length)


def run_directory(options: TrainingOptions) -> Path:
    """Where the run is or will be. Raises MilcoError if something else stands there."""
    run = options.output or CHECKPOINTS / Path(options.config).stem
    there = run / RECIPE
    goes_on = there.is_file() and (newest_checkpoint(run) or (run / MODEL).exists())
    if goes_on and not options.overwrite:
        before, now = (yaml.safe_load(text) for text in (there.read_text(encoding="utf-8"), write_recipe(options)))
        changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
        if changed:
            raise MilcoError(
                f"{run} holds a run with other options ({', '.join(changed)}): choose another --output, go on with the "
                "same ones, or replace it with --overwrite"
            )
    elif not there.is_file() and run.exists() and any(run.iterdir()):
        raise MilcoError(f"{run} is there and is no training run: choose another --output")
    return run


def _finished(options: TrainingOptions, run: Path) -> bool:
    """Whether there is nothing to do, which is said."""
    if options.overwrite or not (run / MODEL).exists() or damage(run / MODEL, MODEL_FILES):
        return False
    if int(os.environ.get("RANK", 0)) == 0:
        say(f"{run / MODEL} is finished: nothing to do (--overwrite trains anew)")
    return True


def _write_run(options: TrainingOptions, run: Path, command: str | None, devices: int) -> None:
    """Make the directory, or empty it with --overwrite, and say in it what it is.

    Raises MilcoError if it holds a checkpoint of a run on another number of devices, whose examples these are not.
    """
    if options.overwrite and (run / RECIPE).is_file():
        remove_directory(run)
    set_aside_damaged(run, run / MODEL, MODEL_FILES)
    newest = newest_checkpoint(run)
    before = read_json(run / MANIFEST)["devices"] if newest else devices
    if before != devices:
        raise MilcoError(
            f"{run} holds a run on {before} devices, and this is one on {devices}: start as many processes, or begin "
            f"another --output with --model {newest}"
        )
    with atomic_file(run / RECIPE, "w") as handle:
        handle.write(write_recipe(options))
    stage = "sap" if isinstance(options, SapOptions) else "sct"
    packages = ("torch", "transformers", "accelerate")
    write_json(
        run / MANIFEST,
        {
            "stage": stage,
            "config": options.config,
            "devices": devices,
            "command": command or f"milco train {stage} --config {run / RECIPE} --output {run}",
            "versions": {"milco_pyserini": __version__, **{name: version(name) for name in packages}},
        },
    )


def _steps(options: TrainingOptions, examples: int) -> int:
    """Optimiser steps of a run over all devices."""
    if options.steps is not None:
        return options.steps
    batch = options.batch_size * options.accumulation * int(os.environ.get("WORLD_SIZE", 1))
    return max(1, math.ceil(options.epochs * examples / batch))
