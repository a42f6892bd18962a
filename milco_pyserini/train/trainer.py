"""The Hugging Face Trainer with checkpoints in our layout that appear whole, exact resumption, logs and alarms."""

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset
from torch.utils.tensorboard import SummaryWriter
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.integrations import TensorBoardCallback

from milco_pyserini.console import Progress, say
from milco_pyserini.encode import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.files import read_json
from milco_pyserini.model.checkpoint import own_layout, read_tensors
from milco_pyserini.train.alarms import CollapseMonitor
from milco_pyserini.train.batches import Examples
from milco_pyserini.train.probe import Probe
from milco_pyserini.train.processes import check_same_step
from milco_pyserini.train.recipe import TrainingOptions, part_rates

LOG = "log.jsonl"
_TENSORBOARD = "tensorboard"
_PARTIAL = ".saving"
_STATE = "trainer_state.json"
_ALARMS = "alarms.pt"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


class _OneDevice(TrainingArguments):
    """The Trainer's arguments for processes with one device each."""

    @property
    def device(self) -> torch.device:
        """The process's own."""
        # Under torchrun, accelerate numbers the processor as well: torch.load knows no "cpu:0".
        return torch.device("cpu") if super().device.type == "cpu" else super().device

    @property
    def n_gpu(self) -> int:
        """1, or 0 on the processor."""
        # The Trainer would spread a process without torchrun over all GPUs, with larger batches than the stream's.
        return min(super().n_gpu, 1)


def training_arguments(options: TrainingOptions, run: Path, steps: int) -> TrainingArguments:
    """The Trainer's arguments. Precision is ours (objectives.py), and so are logs and the rotation of checkpoints."""
    return _OneDevice(
        output_dir=str(run),
        max_steps=steps,
        per_device_train_batch_size=options.batch_size,
        gradient_accumulation_steps=options.accumulation,
        learning_rate=options.learning_rate,
        weight_decay=options.weight_decay,
        max_grad_norm=options.max_grad_norm,
        lr_scheduler_type=options.schedule,
        warmup_steps=warmup_steps(options.warmup, steps),
        logging_steps=options.log_steps,
        save_steps=options.save_steps,
        dataloader_num_workers=options.workers,
        dataloader_pin_memory=torch.cuda.is_available(),
        # A batch of nested tensors and language names cannot be cut and sent: every process reads the whole stream.
        accelerator_config={"dispatch_batches": False},
        # The stream itself begins behind what was seen: nothing is tokenised to be thrown away.
        ignore_data_skip=True,
        remove_unused_columns=False,
        use_cpu=options.device == "cpu",
        seed=options.seed,
        data_seed=options.seed,
        report_to="none",
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
    )


def warmup_steps(warmup: float, steps: int) -> int:
    """Steps of warm-up, given as such or as a share of all steps."""
    return math.ceil(warmup * steps) if warmup < 1 else int(warmup)


class ObjectiveTrainer(Trainer):
    """Trains the model inside an objective (objectives.py), which is what a checkpoint holds."""

    def __init__(
        self,
        objective: nn.Module,
        encoder: MilcoEncoder,
        options: TrainingOptions,
        arguments: TrainingArguments,
        stream: IterableDataset,
        collate: Callable[[list], dict],
        length: Callable[[Any], int] | None,
        monitor: CollapseMonitor,
        probe: Probe,
    ) -> None:
        self._encoder = encoder
        self._options = options
        self._monitor = monitor
        self._probe = probe
        self._run = Path(str(arguments.output_dir))
        self._saving_to: Path | None = None
        self._sums: dict[str, Tensor] = {}
        self._counted = 0
        self._resumed = newest_checkpoint(self._run)
        seen = step_of(self._resumed)
        check_same_step(self._run, seen)
        batch = arguments.per_device_train_batch_size * arguments.world_size
        first = seen * batch * arguments.gradient_accumulation_steps
        examples = Examples(stream, first, batch, length, options.seed)
        super().__init__(model=objective, args=arguments, data_collator=collate, train_dataset=examples)
        self.remove_callback(PrinterCallback)
        self.remove_callback(ProgressCallback)
        self.add_callback(_Log(self._run, batch * arguments.gradient_accumulation_steps, monitor))
        if self.is_world_process_zero():
            self.add_callback(TensorBoardCallback(SummaryWriter(str(self._run / _TENSORBOARD))))

    def train_on(self) -> None:
        """Train to the end, from the newest checkpoint if there is one."""
        # Checkpoints of earlier releases have none.
        if self._resumed and (self._resumed / _ALARMS).is_file():
            state = torch.load(self._resumed / _ALARMS, map_location=self.args.device, weights_only=True)
            self._monitor.load_state(state)
        self.train(resume_from_checkpoint=str(self._resumed) if self._resumed else None)

    def create_optimizer(self, *arguments: Any) -> torch.optim.Optimizer:
        """AdamW with the learning rate of each part; weight decay on matrices alone."""
        if self.optimizer is None:
            rates = part_rates(self._options)
            groups: dict[tuple[float, float], list[nn.Parameter]] = {}
            for name, parameter in self._encoder.model.named_parameters():
                if parameter.requires_grad:
                    rate = _rate(rates, name, self.args.learning_rate)
                    decay = self.args.weight_decay if parameter.dim() > 1 else 0.0
                    groups.setdefault((rate, decay), []).append(parameter)
            self.optimizer = torch.optim.AdamW(
                [{"params": found, "lr": rate, "weight_decay": decay} for (rate, decay), found in groups.items()],
                fused=True,
            )
        return self.optimizer

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | None = None,
    ) -> Any:
        """The objective's loss; what it tells besides goes to the log and to the alarms."""
        if self._resumed:
            # The Trainer restores them before the data loader draws its seed, which an unbroken run drew long ago.
            self._load_rng_state(str(self._resumed))
            self._resumed = None
        languages = inputs.pop("languages")
        outputs = model(**inputs)
        self._check(outputs["loss"])
        self._counted += 1
        for name, value in {"loss_sum": outputs["loss"], **outputs["parts"]}.items():
            self._sums[name] = self._sums.get(name, 0) + value.detach()
        for kind, side in outputs["sides"].items():
            self._monitor.update(
                kind=kind,
                languages=languages[kind],
                pivot=side.pivot,
                grounded=outputs["grounded"],
                source_terms=side.source_terms,
            )
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

    def log(self, logs: dict[str, float], *arguments: Any, **more: Any) -> None:
        """Add the parts of the loss, means over all processes since the last entry, and the alarms' figures."""
        if self._counted:
            sums = self.accelerator.reduce(torch.stack(list(self._sums.values())), "mean")
            parts = dict(zip(self._sums, (sums / self._counted).tolist(), strict=True))
            parts["loss"] = parts.pop("loss_sum")
            self._probe.update(self._encoder.model, self._monitor)
            logs = {**logs, **parts, **self._monitor.figures()}
            self._sums, self._counted = {}, 0
        super().log(logs, *arguments, **more)

    def _check(self, loss: Tensor) -> None:
        if not bool(torch.isfinite(loss)):
            newest = newest_checkpoint(self._run)
            raise MilcoError(
                f"step {self.state.global_step + 1}: the loss is {loss.item()}; nothing was saved since "
                f"{newest.name if newest else 'the start'}: lower --learning-rate, or look at the data of that step"
            )

    # What follows is called by the Trainer.

    def _get_output_dir(self, trial: Any) -> str:
        return str(self._saving_to or self._run)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """A checkpoint is written beside its place and moved there when every process has written its part."""
        step = self.state.global_step
        partial = self._run / _PARTIAL
        if self.is_world_process_zero():
            shutil.rmtree(partial, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        self._saving_to = partial
        try:
            super()._save_checkpoint(model, trial)
            if self.is_world_process_zero():
                torch.save(self._monitor.state(), partial / f"checkpoint-{step}" / _ALARMS)
        except Exception as error:
            # safetensors and torch.save raise RuntimeErrors of their own for a full disk.
            shutil.rmtree(partial, ignore_errors=True)
            newest = newest_checkpoint(self._run)
            kept = f"{newest} is whole" if newest else "there is none yet"
            raise MilcoError(
                f"the checkpoint of step {step} could not be written ({error}); the last one: {kept}"
            ) from error
        finally:
            self._saving_to = None
        self.accelerator.wait_for_everyone()
        if self.is_world_process_zero():
            (partial / f"checkpoint-{step}").replace(self._run / f"checkpoint-{step}")
            partial.rmdir()
            for old in checkpoints(self._run)[: -self._options.keep]:
                shutil.rmtree(old)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        self._encoder.save_pretrained(output_dir or self._run)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        tensors = own_layout(read_tensors(Path(resume_from_checkpoint)))
        self._encoder.model.load_state_dict(tensors)


def freeze_parts(model: nn.Module, options: TrainingOptions) -> None:
    """Freeze the parts with learning rate 0; what is frozen stays so.

    Raises MilcoError if a part that has a rate is not there.
    """
    names = [name for name, _ in model.named_parameters()]
    rates = part_rates(options)
    for part in rates:
        if not any(name.startswith(part) for name in names):
            tops = sorted({name.split(".")[0] for name in names})
            raise MilcoError(f"--part-rates {part}: no parameter begins so; they begin with {', '.join(tops)}")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and _rate(rates, name, math.inf) > 0)


def _rate(rates: dict[str, float], name: str, default: float) -> float:
    """The learning rate of a parameter: that of the first part that its name begins with."""
    return next((rate for part, rate in rates.items() if name.startswith(part)), default)


def checkpoints(run: Path) -> list[Path]:
    """The whole checkpoints of a run, oldest first."""
    found = [path for path in run.glob("checkpoint-*") if _CHECKPOINT.fullmatch(path.name)]
    return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))


def newest_checkpoint(run: Path) -> Path | None:
    """The last whole checkpoint of a run, if there is one."""
    found = checkpoints(run)
    return found[-1] if found else None


def step_of(checkpoint: Path | None) -> int:
    """Optimiser steps that a checkpoint has behind it; 0 without one."""
    return int(read_json(checkpoint / _STATE)["global_step"]) if checkpoint else 0


class _Log(TrainerCallback):
    """The progress line, log.jsonl and the alarms' words."""

    def __init__(self, run: Path, batch: int, monitor: CollapseMonitor) -> None:
        self._path = run / LOG
        self._batch = batch
        self._monitor = monitor
        self._progress: Progress | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not state.is_world_process_zero:
            return
        self._progress = Progress("examples", state.max_steps * self._batch, state.global_step * self._batch)
        # Entries behind the checkpoint that the run goes on from will be written again.
        lines = self._path.read_bytes().splitlines(keepends=True) if self._path.exists() else []
        kept = [line for line in lines if orjson.loads(line)["step"] <= state.global_step]
        self._path.write_bytes(b"".join(kept))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._progress:
            self._progress.add(self._batch)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict | None = None, **_: Any) -> None:
        if not self._progress or not logs:
            return
        entry = {"step": state.global_step, **{name: value for name, value in logs.items() if name != "total_flos"}}
        with self._path.open("ab") as handle:
            handle.write(orjson.dumps(entry, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")
        if "loss" in logs:
            say(f"step {state.global_step:,} of {state.max_steps:,}: loss {logs['loss']:.4f}")
        for warning in self._monitor.warnings():
            say(f"warning: {warning}")

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._progress:
            self._progress.close()
