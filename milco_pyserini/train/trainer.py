"""The training loop: gradients, logs and alarms, and checkpoints from which a run resumes to the same weights."""

import math
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import gather_object, send_to_device
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from milco_pyserini.encode.devices import choose_device
from milco_pyserini.encode.encoder import MilcoEncoder
from milco_pyserini.errors import Message, MilcoError, joined, parameter
from milco_pyserini.model.checkpoint import Checkpoint, loading
from milco_pyserini.model.layouts import read_tensors, rename_tensors
from milco_pyserini.train.batches import GivenExamples, ProcessBatches, read_ahead
from milco_pyserini.train.checkpoints import (
    checkpoint_step,
    list_checkpoints,
    newest_checkpoint,
    publish_checkpoint,
    reporting_write_errors,
)
from milco_pyserini.train.config import LoopOptions, OptimizerOptions
from milco_pyserini.train.data.streams import ExampleStream
from milco_pyserini.train.monitor import CollapseMonitor, GroundingProbe
from milco_pyserini.train.optimization import make_optimizer, make_schedule
from milco_pyserini.train.run_log import RunLog

# Files of a checkpoint, next to those of the model.
_OPTIMIZER, _SCHEDULE, _ALARMS = "optimizer.pt", "scheduler.pt", "alarms.pt"
_PARTIAL = ".saving"
# Batches that are read while the device computes, besides those of the workers.
_AHEAD = 2
# For how long processes wait for each other: the first one may write a checkpoint to a slow disk.
_PATIENCE = timedelta(minutes=30)


@dataclass(frozen=True)
class TrainingTask:
    """Model, loss and data of a run.

    encoder: the model and its tokenizers. objective: computes the loss of a batch (objectives.py). stream: endless and
    reproducible examples. data: number of examples and digests, for the manifest. collate: examples to a batch. probe:
    held-out pairs for the alarms. device: of this process. gathered: as of ProcessBatches.
    """

    encoder: MilcoEncoder
    objective: nn.Module
    stream: ExampleStream
    data: dict[str, Any]
    collate: Callable[[list], dict]
    probe: GroundingProbe
    device: torch.device
    gathered: int = 0


def is_first_process() -> bool:
    """Return whether this is the first process of a run, which reports; before join_processes(), too."""
    return int(os.environ.get("RANK", 0)) == 0


def join_processes(device: str) -> torch.device:
    """Join the other processes of the run, if torchrun started several; return the device of this one."""
    chosen = choose_device(device)
    processes = PartialState(cpu=chosen.type == "cpu", timeout=_PATIENCE)
    # accelerate numbers the CPU, too.
    return chosen if chosen.type == "cpu" or not processes.use_distributed else processes.device


class Trainer:
    """Trains a task's model from the newest checkpoint of its run, if there is one, to the last step.

    Every process has its own share of a batch, and gradients are averaged over all processes. The first process logs
    and writes checkpoints, to which the others add their random states.

    Args:
        task: what is trained.
        run: the run directory.
        config: of the loop.
        optimizer: options of optimizer and schedule.
        steps: optimizer steps of the run.

    Raises:
        MilcoError: processes see different checkpoints.
    """

    def __init__(
        self, task: TrainingTask, run: Path, config: LoopOptions, optimizer: OptimizerOptions, steps: int
    ) -> None:
        self._task = task
        self._config = config
        self._run = run
        self._steps = steps
        self._device = device = task.device
        self._processes = PartialState()
        self._checkpoint = newest_checkpoint(run)
        self._done = checkpoint_step(self._checkpoint)
        validate_same_step(run, self._done)
        self._model = task.encoder.model
        self._objective = task.objective.to(device)
        self._optimizer = make_optimizer(self._model, optimizer)
        self._schedule = make_schedule(self._optimizer, optimizer, steps)
        self._monitor = CollapseMonitor()
        # Only the first process has a log, while it trains.
        self._log: RunLog | None = None
        # Since the last log entry: the sum of each part of the loss, and the number of batches that have it.
        self._sums: dict[str, tuple[float, int]] = {}
        # Steps, languages and parts of the losses that have not been read from the device.
        self._losses: list[tuple[int, set[str], dict[str, Tensor]]] = []

    def train(self) -> None:
        """Train to the last step. Raises MilcoError if a loss or weights are not finite, or a file is not readable."""
        if self._checkpoint:
            self._model.load_state_dict(rename_tensors(read_tensors(Checkpoint.open(self._checkpoint))))
        if self._done >= self._steps:
            # Only the final model is missing.
            return
        config, processes = self._config, self._processes
        model = self._objective.train()
        if processes.use_distributed:
            model = DistributedDataParallel(model)
        batches = self._batches()
        if self._checkpoint:
            # After the data loader, which draws a seed: an uninterrupted run drew it at its start.
            self._load_state(self._checkpoint)
        batch = config.batch_size * processes.num_processes * config.accumulation
        if processes.is_main_process:
            self._log = RunLog(self._run, self._done, self._steps, batch)
        started = time.monotonic()
        for step in range(self._done + 1, self._steps + 1):
            for remaining in reversed(range(config.accumulation)):
                # Gradients are averaged over the processes once per step.
                with model.no_sync() if remaining and isinstance(model, DistributedDataParallel) else nullcontext():
                    (self._loss(model, next(batches), step) / config.accumulation).backward()
            figures: dict[str, Any] = {}
            if config.max_grad_norm:
                figures["grad_norm"] = nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
            figures["learning_rate"] = self._schedule.get_last_lr()[0]
            self._optimizer.step()
            self._schedule.step()
            model.zero_grad()
            if self._log:
                self._log.count_step()
            if step % config.log_steps == 0:
                self._write_log(step, figures)
            if step % config.save_steps == 0 or step == self._steps:
                self._save(step)
        seconds, trained = time.monotonic() - started, self._steps - self._done
        speed = {"train_samples_per_second": trained * batch / seconds, "train_steps_per_second": trained / seconds}
        self._write_log(self._steps, {"train_runtime": seconds, **speed})
        if self._log:
            self._log.close()

    def _batches(self) -> Iterator[dict]:
        """Return the batches of this process that the run has not seen yet."""
        config, processes = self._config, self._processes
        batches = ProcessBatches(
            self._task.stream,
            self._done * config.accumulation,
            config.batch_size,
            processes.process_index,
            processes.num_processes,
            self._task.gathered,
            config.seed,
        )
        return iter(
            DataLoader(
                GivenExamples(),
                batch_sampler=read_ahead(iter(batches), _AHEAD),
                num_workers=config.workers,
                collate_fn=self._task.collate,
                pin_memory=self._device.type == "cuda",
            )
        )

    def _loss(self, model: nn.Module, batch: dict[str, Any], step: int) -> Tensor:
        """Return the objective's loss; its parts go to the log, its views to the alarms."""
        languages = batch.pop("languages")
        outputs = model(**send_to_device(batch, self._device))
        parts = {name: value.detach().float() for name, value in {"loss": outputs["loss"], **outputs["parts"]}.items()}
        self._losses.append((step, {name for side in languages.values() for name in side}, parts))
        if self._device.type == "cpu":
            self._read_losses()
        for kind, (pivot, source) in outputs["sides"].items():
            self._monitor.update(kind, languages[kind], pivot, outputs["grounded"], source)
        return outputs["loss"]

    def _read_losses(self) -> None:
        """Add the losses to their sums; on a GPU, for a log entry or a checkpoint only, as it waits for the device.

        Raises MilcoError if one is not finite.
        """
        losses, self._losses = self._losses, []
        values = [value for _, _, parts in losses for value in parts.values()]
        read = iter(torch.stack(values).tolist() if values else ())
        for step, languages, names in losses:
            parts = dict(zip(names, read, strict=False))
            if not math.isfinite(parts["loss"]):
                loss = parts.pop("loss")
                listed = ", ".join(f"{name} {value:g}" for name, value in parts.items())
                raise self._failure(step, f"the loss of a batch in {', '.join(sorted(languages))} is {loss} ({listed})")
            for name, value in parts.items():
                total, batches = self._sums.get(name, (0.0, 0))
                self._sums[name] = total + value, batches + 1

    def _write_log(self, step: int, figures: dict[str, Any]) -> None:
        """Log figures, the parts of the loss since the last entry, averaged over all processes, and the alarms'."""
        self._read_losses()
        if self._sums:
            # The batches of another process may have other parts.
            gathered = gather_object([self._sums])
            self._sums = {}
            parts = {}
            for name in dict.fromkeys(name for sums in gathered for name in sums):
                totals, counts = zip(*(sums[name] for sums in gathered if name in sums), strict=True)
                parts[name] = sum(totals) / sum(counts)
            if self._log:
                self._task.probe.update(self._model, self._monitor)
                figures = {**parts, **figures, **self._monitor.figures()}
        if self._log:
            self._log.write(step, {name: float(value) for name, value in figures.items()}, self._monitor.warnings())

    def _failure(self, step: int, what: str) -> MilcoError:
        newest = newest_checkpoint(self._run)
        options = {"output": "OTHER", **({"model": newest} if newest else {}), "learning_rate": "LOWER"}
        since = newest.name if newest else "the start"
        advice = joined([parameter(*item) for item in options.items()], " ")
        fix = "Check the data of that step, or start a new run with " + advice
        return MilcoError(f"step {step}: {what}; nothing was saved since {since}", fix)

    def _save(self, step: int) -> None:
        """Write a checkpoint to a temporary directory; move it into the run when every process has written its part."""
        self._read_losses()
        broken = [name for name, tensor in self._model.named_parameters() if not bool(tensor.isfinite().all())]
        if broken:
            raise self._failure(step, f"weights are no longer finite ({broken[0]}, {len(broken)} in all)")
        is_first = self._processes.is_main_process
        what = f"the checkpoint of step {step}"
        partial = self._run / _PARTIAL
        checkpoint = partial / f"checkpoint-{step}"
        if is_first:
            shutil.rmtree(partial, ignore_errors=True)
        self._processes.wait_for_everyone()
        try:
            with reporting_write_errors(what, self._run):
                checkpoint.mkdir(parents=True, exist_ok=True)
                torch.save(self._random_states(), checkpoint / self._random_states_name)
                if is_first:
                    self._task.encoder.save_pretrained(checkpoint)
                    torch.save(self._optimizer.state_dict(), checkpoint / _OPTIMIZER)
                    torch.save(self._schedule.state_dict(), checkpoint / _SCHEDULE)
                    torch.save(self._monitor.state(), checkpoint / _ALARMS)
            self._processes.wait_for_everyone()
            if is_first:
                with reporting_write_errors(what, self._run):
                    publish_checkpoint(checkpoint, self._run)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        if is_first:
            partial.rmdir()
            for old in list_checkpoints(self._run)[: -self._config.keep]:
                shutil.rmtree(old)

    def _load_state(self, checkpoint: Path) -> None:
        """Continue with the state of a checkpoint; its weights are loaded already."""
        kind = "the state of this run's optimizer, schedule, alarms and random numbers"
        with loading(checkpoint, kind, "Remove the checkpoint to resume from the one before it"):
            names = _OPTIMIZER, _SCHEDULE, self._random_states_name
            optimizer, schedule, states = (
                torch.load(checkpoint / name, map_location="cpu", weights_only=True) for name in names
            )
            alarms = torch.load(checkpoint / _ALARMS, map_location=self._device, weights_only=True)
            self._optimizer.load_state_dict(optimizer)
            self._schedule.load_state_dict(schedule)
            self._monitor.load_state(alarms)
            random.setstate(states["python"])
            np.random.set_state(states["numpy"])
            torch.set_rng_state(states["torch"])
            if self._device.type == "cuda":
                torch.cuda.set_rng_state(states["cuda"], self._device)

    def _random_states(self) -> dict[str, Any]:
        numpy_state = np.random.get_state(legacy=False)
        # Arrays are not among the types that torch loads without unpickling objects.
        numpy_state["state"]["key"] = numpy_state["state"]["key"].tolist()
        states: dict[str, Any] = {"python": random.getstate(), "numpy": numpy_state, "torch": torch.get_rng_state()}
        if self._device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self._device)
        return states

    @property
    def _random_states_name(self) -> str:
        number = f"_{self._processes.process_index}" if self._processes.num_processes > 1 else ""
        return f"rng_state{number}.pth"


def validate_same_step(run: Path, step: int) -> None:
    """Raise MilcoError if the processes of a run are about to resume from different steps."""
    steps = sorted(set(gather_object([step])))
    if len(steps) > 1:
        raise MilcoError(
            f"{run}: one machine sees the checkpoint of step {steps[-1]}, another that of step {steps[0]} (0: none)",
            Message("{output} must be a directory that all machines share."),
        )
