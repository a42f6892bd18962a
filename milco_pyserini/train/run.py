"""Run or resume a training stage in a directory that documents itself."""

import contextlib
import math
import shlex
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import set_seed

from milco_pyserini import __version__
from milco_pyserini.console import counted, log, warn
from milco_pyserini.errors import Message, MilcoError, ParameterError, parameter
from milco_pyserini.io.artifact import Action, Artifact
from milco_pyserini.io.files import atomic_directory, is_json_with, read_json, remove_directory, write_json
from milco_pyserini.io.locks import locked_file
from milco_pyserini.options import validate
from milco_pyserini.train.checkpoints import find_damage, newest_checkpoint, reporting_write_errors, set_aside_damaged
from milco_pyserini.train.config import SapConfig, SctConfig, TrainingConfig, config_values
from milco_pyserini.train.optimization import validate_trainable, warmup_steps
from milco_pyserini.train.stages import prepare_sap, prepare_sct
from milco_pyserini.train.trainer import Trainer, TrainingTask, is_first_process

__all__ = ["run_stage"]

CONFIG = "config.json"
# The configuration of a run of release 0.3.
_EARLIER_CONFIG = "config.yaml"
MANIFEST = "manifest.json"
MODEL = "model"
_LOCK = ".lock"
# Seconds to wait for a process that trains in the same directory: one that was killed is gone by then.
_LOCK_LIMIT = 30.0

# Options that a resumed run may change: they do not change what it learns.
_FREE = ("workers", "gradient_checkpointing", "keep")


def run_stage(config: SapConfig | SctConfig, prepare: Callable[[Any], TrainingTask] | None = None) -> None:
    """Train to the last step, from the newest checkpoint if there is one, and write the model to RUN/model.

    `milco train sap` and `milco train sct` call it.

    Args:
        prepare: returns the task of the configuration, by default that of its stage.

    Raises:
        MilcoError: before anything is written, if an option, the data or the run directory is invalid.
    """
    validate(config)
    loop = config.loop
    if is_finished(config):
        return
    if prepare is not None:
        task = prepare(config)
    else:
        task = prepare_sap(config) if isinstance(config, SapConfig) else prepare_sct(config)
    # The objective has frozen what its loss does not reach.
    validate_trainable(task.encoder.model, config.optimizer)
    set_seed(loop.seed)
    processes, run = PartialState(), config.run
    batch = loop.batch_size * loop.accumulation
    passes = loop.epochs * task.data["examples"]
    steps = loop.steps or max(1, math.ceil(passes / (batch * processes.num_processes)))
    if loop.gradient_checkpointing:
        task.encoder.model.encoder.gradient_checkpointing_enable({"use_reentrant": False})
    with contextlib.ExitStack() as lock:
        try:
            if processes.is_main_process:
                with reporting_write_errors(str(run), run):
                    lock.enter_context(prepared_directory(config, {"devices": processes.num_processes, **task.data}))
            # With --overwrite, other processes would still see the old checkpoints.
            processes.wait_for_everyone()
            trainer = Trainer(task, run, loop, config.optimizer, steps)
            if processes.is_main_process:
                several = processes.num_processes > 1
                devices = f"each of {processes.num_processes} devices" if several else "1 device"
                newest = newest_checkpoint(run)
                resuming = f", resuming from {newest.name}" if newest else ""
                if warmup_steps(config.optimizer, steps) >= steps:
                    warmup = parameter("warmup", config.optimizer.warmup)
                    warn(warmup + " is all of the run: its learning rate never reaches the peak")
                log(f"Training {counted(steps, 'step')} of {batch} examples on {devices}{resuming}")
            trainer.train()
            if processes.is_main_process:
                model = run / MODEL
                with (
                    reporting_write_errors(str(model), run),
                    atomic_directory(model, overwrite=False, is_owned=lambda _: False) as directory,
                ):
                    task.encoder.model.eval()
                    task.encoder.save_pretrained(directory)
                log(f"Wrote {model}. Next: milco encode --encoder {model} --corpus NAME")
        except RuntimeError as error:
            # On GPUs a process waits until torchrun ends it; on CPUs gloo ends the wait with a bare RuntimeError.
            if "gloo/transport" not in str(error):
                raise
            raise MilcoError("another process of this run has ended: see its own error line, or torchrun's") from error


def is_finished(config: TrainingConfig) -> bool:
    """Return whether the run has its final model, and report it.

    Raises MilcoError if the run directory contains something else, or a run with other options.
    """
    run = config.run
    saved, model = run / CONFIG, run / MODEL
    newest = newest_checkpoint(run) or (model if model.exists() else None)
    recorded: Any = {}
    if config.overwrite and _is_run(run):
        for path in map(Path, config.sources()):
            if path.exists() and path.resolve().is_relative_to(run.resolve()):
                rule = f"would remove {path}, from which this run reads"
                raise ParameterError("overwrite", None, rule, Message("Choose another {output}."))
    elif newest and _is_run(run):
        if not saved.is_file() and (run / _EARLIER_CONFIG).is_file():
            raise MilcoError(
                f"{run} is a run of release 0.3, which finishes it",
                Message(
                    "Choose another {output} with {model}, or start over with {overwrite}.",
                    model=newest,
                    overwrite=True,
                ),
            )
        recorded = read_json(saved)
    is_complete = _is_run(run) and model.exists() and not find_damage(model)
    found = Artifact(run, _is_run, recorded, is_complete, _FREE, in_place=True)
    # Options may change as long as there is no checkpoint.
    if found.action(config_values(config) if recorded else {}, config.overwrite) is not Action.KEEP:
        return False
    if is_first_process():
        found.keep()
    return True


def _is_run(path: Path) -> bool:
    """Return whether a directory holds a run, or only the lock and files that another process of it is writing."""
    return is_json_with(path / MANIFEST, "stage", "command") or not any(path.glob("[!.]*"))


@contextlib.contextmanager
def prepared_directory(config: TrainingConfig, plan: dict[str, Any]) -> Iterator[None]:
    """Create the run directory, or empty it with --overwrite, write its configuration and manifest, and keep it locked.

    Args:
        plan: number of devices and the data: in another run, examples would come in another order.

    Raises:
        MilcoError: another process trains in it, or it has a checkpoint of a run with another plan.
    """
    run = config.run
    if config.overwrite and (run / MANIFEST).is_file():
        with locked_file(run / _LOCK, _LOCK_LIMIT):
            remove_directory(run)
    run.mkdir(parents=True, exist_ok=True)
    with locked_file(run / _LOCK, _LOCK_LIMIT):
        set_aside_damaged(run, run / MODEL)
        if newest_checkpoint(run):
            Artifact(run, _is_run, read_json(run / MANIFEST), in_place=True).action(plan)
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
                "preset": config.preset,
                **plan,
                "command": shlex.join([*program, "train", stage, "--preset", str(run / CONFIG), "--output", str(run)]),
                "versions": {"milco_pyserini": __version__, **{name: version(name) for name in packages}},
            },
        )
        write_json(run / CONFIG, config_values(config))
        yield
