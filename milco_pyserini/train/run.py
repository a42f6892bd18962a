"""Run or resume a training stage in a directory that documents itself."""

import contextlib
import math
import os
import shlex
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
import yaml
from accelerate import PartialState
from accelerate.utils import set_seed
from torch import nn

from milco_pyserini import __version__
from milco_pyserini.console import counted, log, warn
from milco_pyserini.encode.dense import DenseEncoder
from milco_pyserini.encode.encoder import MilcoEncoder, choose_dtype
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import (
    atomic_directory,
    atomic_file,
    is_json_with,
    read_json,
    remove_directory,
    write_json,
)
from milco_pyserini.io.locks import locked_file
from milco_pyserini.io.resume import validate_resume
from milco_pyserini.options import validate
from milco_pyserini.train.batches import AlignmentCollator, ContrastCollator, TextCollator, pair_length
from milco_pyserini.train.checkpoints import find_damage, newest_checkpoint, reporting_write_errors, set_aside_damaged
from milco_pyserini.train.config import SapConfig, SctConfig, TrainingConfig, config_values, parse_shares
from milco_pyserini.train.data import UNDETERMINED
from milco_pyserini.train.data.bitext import BitextSource, open_bitext
from milco_pyserini.train.data.parallel import MixedStream, ParallelCollection, ParallelStream
from milco_pyserini.train.data.retrieval import open_retrieval
from milco_pyserini.train.data.streams import BitextStream, ExampleStream, RetrievalStream
from milco_pyserini.train.dense import DenseAlignment, DenseAlignmentTeacher, DenseContrast
from milco_pyserini.train.dense_teacher import DenseTeacher
from milco_pyserini.train.evaluation import CheckpointEvaluation
from milco_pyserini.train.monitor import GroundingProbe
from milco_pyserini.train.objectives import Alignment, Contrast
from milco_pyserini.train.optimization import validate_trainable, warmup_steps
from milco_pyserini.train.start import load_start
from milco_pyserini.train.teachers import AlignmentTeacher, open_teacher, validate_vocabulary
from milco_pyserini.train.trainer import Trainer, TrainingTask, join_processes, save_model

CONFIG = "config.yaml"
MANIFEST = "manifest.json"
MODEL = "model"
_LOCK = ".lock"
# Seconds to wait for a process that trains in the same directory: one that was killed is gone by then.
_LOCK_LIMIT = 30.0

# Options that a resumed run may change: they do not change what it learns.
_FREE = ("workers", "gradient-checkpointing", "keep", "evaluate")


def train_sap(config: SapConfig) -> None:
    """Run or resume sparse alignment pretraining."""
    validate(config)
    if not config.bitext:
        raise MilcoError("`bitext` is required: files or directories of sentence pairs, or collections by name")
    run = run_directory(config)
    if is_finished(config, run):
        return
    evaluation = open_evaluation(config)
    shares = parse_shares(config.bitext)
    sources = open_bitext(list(shares), config.languages or None)
    encoder, texts, probe = open_start(config, config.max_length)
    stream = BitextStream(
        sources,
        config.temperature,
        config.seed,
        concatenate=config.concatenate,
        weights={name: share for name, share in shares.items() if share is not None},
    )
    teacher: AlignmentTeacher | DenseAlignmentTeacher
    if config.dense:
        teacher = DenseAlignmentTeacher(config.teacher, config.max_length)
    else:
        teacher = open_aligner(config.teacher, encoder, sources, config.padding, config.max_length)
    examples = sum(stream.sizes)
    if (skipped := sum(source.stats().skipped for source in sources)) and _is_first_process():
        log(f"Skipped {counted(skipped, 'row')} of the bitext, in which one side is empty: {examples:,} pairs remain")
    device = join_processes(config.device)
    if isinstance(teacher, nn.Module):
        teacher.to(device)
    dtype = choose_dtype(config.dtype, device)
    objective: nn.Module
    if isinstance(teacher, DenseAlignmentTeacher):
        objective = DenseAlignment(encoder.model, teacher, config, dtype)
    else:
        objective = Alignment(encoder.model, teacher, config, dtype)
    collate = AlignmentCollator(texts, teacher, config.max_length)
    data = {"examples": examples, **{f"digest of {source.name}": source.stats().digest for source in sources}}
    task = TrainingTask(
        encoder, objective, stream, data, collate, probe, evaluation, pair_length, config.group_by_length
    )
    run_training(config, task, run, num_steps(config, examples), device)


def train_sct(config: SctConfig) -> None:
    """Run or resume sparse contrastive training."""
    validate(config)
    if not config.data and not config.parallel:
        raise MilcoError("`data` is required: files or directories of queries and passages, or collections by name")
    run = run_directory(config)
    if is_finished(config, run):
        return
    evaluation = open_evaluation(config)
    sources = open_retrieval(config.data, config.languages or None) if config.data else []
    shares = parse_shares(config.parallel)
    pairs = open_bitext(list(shares), config.languages or None) if shares else []
    known = {source.language for source in sources} | {source.language for source in pairs}
    for language in config.languages:
        if language not in known and UNDETERMINED not in known:
            others = ", ".join(sorted(known))
            raise MilcoError(f"`languages={language}`: the data has no examples in it, only in {others}")
    encoder, texts, probe = open_start(config, config.query_max_length, config.passage_max_length)
    if not config.probe and not config.dense and _is_first_process():
        log("Grounding is not monitored: pass `probe=FILE` with held-out sentence pairs (de-en.tsv)")
    parallel_share = sum(share or 0 for share in shares.values())
    streams: list[tuple[float, ExampleStream]] = []
    examples, digests = 0, dict[str, str]()
    if shares:
        collections = [
            ParallelCollection.join(name, [source for source in pairs if source.collection == name]) for name in shares
        ]
        digests |= {f"digest of {collection.name}": collection.digest for collection in collections}
        parallel = ParallelStream(
            collections,
            shares,
            config.translations,
            config.seed,
            config.temperature,
            config.concatenate,
            config.batch_size,
        )
        streams.append((parallel_share, parallel))
        examples += parallel.size
    if sources:
        passages = RetrievalStream(
            sources,
            config.group_size,
            config.seed,
            config.temperature,
            block=config.batch_size,
            scored=config.loss == "kd",
        )
        streams.append((1 - parallel_share, passages))
        examples += sum(passages.sizes)
        digests |= {f"digest of {source.name}": source.stats().digest for source in sources}
    stream = MixedStream(streams, config.batch_size, config.seed) if len(streams) > 1 else streams[0][1]
    device = join_processes(config.device)
    aligner = None
    if config.alignment_weight and pairs:
        aligner = open_aligner(config.teacher, encoder, pairs, "-inf", config.passage_max_length)
        if isinstance(aligner, nn.Module):
            aligner.to(device)
    dtype = choose_dtype(config.dtype, device)
    objective: Contrast
    if config.dense:
        objective = DenseContrast(encoder.model, config, dtype)
    else:
        dropped_ids = encoder.tokenizer.special_ids if encoder.model.config.source_drop_special else ()
        teacher = None
        if config.dense_teacher is not None:
            dense = DenseEncoder(config.dense_teacher, device=device, dtype=dtype)
            teacher = DenseTeacher(dense, stream, config.teacher_temperature)
        objective = Contrast(encoder.model, config, dtype, dropped_ids, teacher, aligner)
    collate = ContrastCollator(
        texts, config.query_max_length, config.passage_max_length, config.dense_teacher is not None, aligner
    )
    data = {"examples": examples, **digests}
    task = TrainingTask(encoder, objective, stream, data, collate, probe, evaluation)
    run_training(config, task, run, num_steps(config, examples), device)


def open_aligner(
    name: str, encoder: MilcoEncoder, sources: Sequence[BitextSource], padding: str, max_length: int
) -> AlignmentTeacher:
    """Open the teacher of alignment; a lexical one is fitted to the sources.

    Raises MilcoError as open_teacher() does, and if its vocabulary is not the encoder's.
    """
    # The sources in turn, because the teacher reads a limited number of texts.
    rows = zip_longest(*(source.pairs() for source in sources))
    english = (pair.english for row in rows for pair in row if pair)
    teacher = open_teacher(name, encoder.english_tokenizer, english, padding, max_length)
    validate_vocabulary(teacher.vocabulary, encoder.vocabulary.english)
    return teacher


def open_evaluation(config: TrainingConfig) -> CheckpointEvaluation | None:
    """Return what the first process measures at each checkpoint. Raises MilcoError as CheckpointEvaluation does."""
    return CheckpointEvaluation(config.evaluate) if config.evaluate and _is_first_process() else None


def open_start(config: TrainingConfig, *lengths: int) -> tuple[MilcoEncoder, TextCollator, GroundingProbe]:
    """Return the model that a run starts from, validated for texts of these lengths, its collator and its probe."""
    encoder = load_start(config)
    for length in lengths:
        encoder.network.validate_length(length)
    texts = TextCollator(encoder.tokenizer, encoder.model.config.encoder.pad_token_id, config.lowercase)
    sources = open_bitext(config.probe, ids=True)
    if config.languages:
        sources = [source for source in sources if source.language in config.languages]
    if config.probe and not sources:
        raise MilcoError(f"`probe={' '.join(config.probe)}`: no pairs in {', '.join(config.languages)}")
    probe = GroundingProbe(sources, texts, encoder.english_tokenizer, encoder.model.config.query_max_length)
    return encoder, texts, probe


def run_training(config: TrainingConfig, task: TrainingTask, run: Path, steps: int, device: torch.device) -> None:
    """Train to the last step, from the newest checkpoint if there is one, and write the model to RUN/model."""
    # The objective has frozen what its loss does not reach.
    validate_trainable(task.encoder.model, config)
    set_seed(config.seed)
    processes = PartialState()
    encoder = task.encoder
    if config.gradient_checkpointing:
        encoder.model.encoder.gradient_checkpointing_enable({"use_reentrant": False})
    lock = contextlib.ExitStack()
    try:
        if processes.is_main_process:
            with reporting_write_errors(str(run), run):
                lock.enter_context(prepared_directory(config, run, {"devices": processes.num_processes, **task.data}))
        # With --overwrite, other processes would still see the old checkpoints.
        processes.wait_for_everyone()
        trainer = Trainer(task, config, run, steps, device)
        newest = newest_checkpoint(run)
        if processes.is_main_process:
            batch = config.batch_size * config.accumulation
            several = processes.num_processes > 1
            devices = f"each of {processes.num_processes} devices" if several else "1 device"
            resuming = f", resuming from {newest.name}" if newest else ""
            if warmup_steps(config, steps) >= steps:
                warn(f"`warmup={config.warmup:,g}` is all of the run: its learning rate never reaches the peak")
            log(f"Training {counted(steps, 'step')} of {batch} examples on {devices}{resuming}")
        trainer.train()
        if processes.is_main_process:
            model = run / MODEL
            with (
                reporting_write_errors(str(model), run),
                atomic_directory(model, overwrite=False, is_owned=lambda _: False) as directory,
            ):
                encoder.model.eval()
                save_model(encoder, config, directory)
            dense = " --dense" if config.dense else ""
            log(f"Wrote {model}. Next: milco encode --encoder {model}{dense} --corpus NAME")
    except RuntimeError as error:
        # On GPUs a process waits until torchrun ends it; on CPUs gloo ends the wait with a bare RuntimeError.
        if "gloo/transport" not in str(error):
            raise
        raise MilcoError("another process of this run has ended: see its own error line, or torchrun's") from error
    finally:
        lock.close()


def run_directory(config: TrainingConfig) -> Path:
    """Return the directory of a run. Raises MilcoError if it contains something else, or a run with other options."""
    run = config.output or Path("checkpoints") / Path(config.config).stem
    saved = run / CONFIG
    if not is_json_with(run / MANIFEST, "stage", "config"):
        # Hidden are the lock, and files that the first of several processes is writing.
        if run.exists() and any(not path.name.startswith(".") for path in run.iterdir()):
            raise MilcoError(f"{run} exists and is not a training run: choose another `output`")
    elif config.overwrite:
        for path in map(Path, config.sources()):
            if path.exists() and path.resolve().is_relative_to(run.resolve()):
                raise MilcoError(
                    f"`overwrite=True` would remove {path}, from which this run reads: choose another `output`"
                )
    elif saved.is_file() and (newest_checkpoint(run) or (run / MODEL).exists()):
        try:
            recorded = yaml.safe_load(saved.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError):
            recorded = None
        if not isinstance(recorded, dict):
            raise MilcoError(f"{saved} is damaged: choose another `output`, or start over with `overwrite=True`")
        validate_resume(run, recorded, config_values(config), _FREE)
    return run


def is_finished(config: TrainingConfig, run: Path) -> bool:
    """Return whether the run has its final model, and report it."""
    if config.overwrite or not (run / MODEL).exists() or find_damage(run / MODEL):
        return False
    if _is_first_process():
        log(f"{run / MODEL} is complete: nothing to do (`overwrite=True` trains again)")
    return True


def num_steps(config: TrainingConfig, examples: int) -> int:
    """Return the optimizer steps of a run over all processes."""
    if config.steps is not None:
        return config.steps
    batch = config.batch_size * config.accumulation * int(os.environ.get("WORLD_SIZE", 1))
    return max(1, math.ceil(config.epochs * examples / batch))


@contextlib.contextmanager
def prepared_directory(config: TrainingConfig, run: Path, plan: dict[str, Any]) -> Iterator[None]:
    """Create the run directory, or empty it with --overwrite, write its configuration and manifest, and keep it locked.

    Args:
        plan: number of devices and the data: in another run, examples would come in another order.

    Raises:
        MilcoError: another process trains in it, or it has a checkpoint of a run with another plan.
    """
    if config.overwrite and (run / MANIFEST).is_file():
        with locked_file(run / _LOCK, _LOCK_LIMIT):
            remove_directory(run)
    run.mkdir(parents=True, exist_ok=True)
    with locked_file(run / _LOCK, _LOCK_LIMIT):
        set_aside_damaged(run, run / MODEL)
        if newest_checkpoint(run):
            validate_resume(run, read_json(run / MANIFEST), plan)
        stage = "sap" if isinstance(config, SapConfig) else "sct"
        program = ["milco"]
        if plan["devices"] > 1:
            program = ["torchrun", "--nproc-per-node", str(plan["devices"]), "-m", "milco_pyserini"]
        packages = ("torch", "transformers", "accelerate")
        # First, because a directory is known to be a run by it.
        write_json(
            run / MANIFEST,
            {
                "stage": stage,
                "config": config.config,
                **plan,
                "command": shlex.join([*program, "train", stage, "--config", str(run / CONFIG), "--output", str(run)]),
                "versions": {"milco_pyserini": __version__, **{name: version(name) for name in packages}},
            },
        )
        with atomic_file(run / CONFIG, "w") as handle:
            yaml.safe_dump(config_values(config), handle, sort_keys=False, allow_unicode=True)
        yield


def _is_first_process() -> bool:
    return int(os.environ.get("RANK", 0)) == 0
