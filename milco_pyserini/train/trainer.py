"""The Hugging Face Trainer with atomic checkpoints in our layout, exact resumption, logs and alarms."""

import math
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import torch
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.utils.data import IterableDataset
from torch.utils.tensorboard import SummaryWriter
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.integrations import TensorBoardCallback

from milco_pyserini.console import Progress, log
from milco_pyserini.encode import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import atomic_file
from milco_pyserini.model.checkpoint import read_tensors, rename_tensors
from milco_pyserini.model.loading import loading
from milco_pyserini.train.batches import ExampleStream
from milco_pyserini.train.checkpoints import (
    ALARMS,
    checkpoint_step,
    list_checkpoints,
    newest_checkpoint,
    publish_checkpoint,
    reporting_write_errors,
)
from milco_pyserini.train.config import TrainingConfig, parse_part_rates
from milco_pyserini.train.monitor import CollapseMonitor, GroundingProbe

LOG = "log.jsonl"

_TENSORBOARD = "tensorboard"
# The stream has no end, so "epoch" means nothing, and after a resumption "train_loss" is that of the rest of the run.
_NOT_LOGGED = ("total_flos", "epoch", "train_loss")
_PARTIAL = ".saving"
_FIX = "Remove the checkpoint to resume from the one before it"


@dataclass(frozen=True)
class TrainingTask:
    """Model, loss and data of a run.

    encoder: the model and its tokenizers. objective: computes the loss of a batch (objectives.py). stream: endless and
    reproducible examples. data: number of examples and digests, for the manifest. collate: examples to a batch. probe:
    held-out pairs for the alarms. length: of an example, to batch examples of similar length; None keeps the stream's
    order.
    """

    encoder: MilcoEncoder
    objective: nn.Module
    stream: IterableDataset
    data: dict[str, Any]
    collate: Callable[[list], dict]
    probe: GroundingProbe
    length: Callable[[Any], int] | None = None


class _OneDevice(TrainingArguments):
    """Trainer arguments for processes with one device each."""

    @property
    def device(self) -> torch.device:
        """Device of this process."""
        # Under torchrun, accelerate numbers the CPU too, and torch.load does not know "cpu:0".
        return torch.device("cpu") if super().device.type == "cpu" else super().device

    @property
    def n_gpu(self) -> int:
        """1, or 0 on the CPU."""
        # Without torchrun the Trainer would use all GPUs in one process, with larger batches than the stream's.
        return min(super().n_gpu, 1)


def training_arguments(config: TrainingConfig, run: Path, steps: int) -> TrainingArguments:
    """Return the Trainer's arguments. Precision (objectives.py), logs and checkpoint rotation are not the Trainer's."""
    return _OneDevice(
        output_dir=str(run),
        max_steps=steps,
        per_device_train_batch_size=config.batch_size,
        gradient_accumulation_steps=config.accumulation,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        # The library's "constant" has no warm-up.
        lr_scheduler_type="constant_with_warmup" if config.schedule == "constant" else config.schedule,
        warmup_steps=math.ceil(config.warmup * steps) if config.warmup < 1 else int(config.warmup),
        logging_steps=config.log_steps,
        save_steps=config.save_steps,
        dataloader_num_workers=config.workers,
        dataloader_pin_memory=torch.cuda.is_available(),
        # A batch of nested tensors and language names cannot be split and sent: every process reads the full stream.
        accelerator_config={"dispatch_batches": False},
        # The stream itself starts after the examples that were seen: none is tokenized to be skipped.
        ignore_data_skip=True,
        remove_unused_columns=False,
        use_cpu=config.device == "cpu",
        seed=config.seed,
        data_seed=config.seed,
        report_to="none",
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
    )


class ObjectiveTrainer(Trainer):
    """Trains the model inside an objective. Checkpoints contain the model only."""

    def __init__(
        self, task: TrainingTask, config: TrainingConfig, arguments: TrainingArguments, monitor: CollapseMonitor
    ) -> None:
        self._task = task
        self._model = task.encoder.model
        self._config = config
        self._monitor = monitor
        self._run = Path(str(arguments.output_dir))
        self._saving_to: Path | None = None
        # Since the last log entry: the sum of each part of the loss, and the number of batches that have it.
        self._sums: dict[str, tuple[Tensor, int]] = {}
        self._resumed = newest_checkpoint(self._run)
        step = checkpoint_step(self._resumed)
        validate_same_step(self._run, step)
        batch = arguments.per_device_train_batch_size * arguments.world_size
        first = step * batch * arguments.gradient_accumulation_steps
        examples = ExampleStream(task.stream, first, batch, task.length, config.seed)
        super().__init__(model=task.objective, args=arguments, data_collator=task.collate, train_dataset=examples)
        self.remove_callback(PrinterCallback)
        self.remove_callback(ProgressCallback)
        self.add_callback(_LogCallback(self._run, batch * arguments.gradient_accumulation_steps, monitor))
        if self.is_world_process_zero():
            _silence_tensorboard_thread()
            with reporting_write_errors(str(self._run / _TENSORBOARD), self._run):
                # What was logged after the checkpoint is logged again.
                writer = SummaryWriter(str(self._run / _TENSORBOARD), purge_step=step + 1 if step else None)
                self.add_callback(TensorBoardCallback(writer))

    def train_to_end(self) -> None:
        """Train from the newest checkpoint, if there is one. Raises MilcoError if loss or weights are not finite."""
        if checkpoint_step(self._resumed) >= self.args.max_steps:
            # Only the final model is missing, and the Trainer would make one more step.
            self._load_from_checkpoint(str(self._resumed))
        else:
            if self._resumed:
                with loading(self._resumed / ALARMS, "the state of this run's alarms", _FIX):
                    state = torch.load(self._resumed / ALARMS, map_location=self.args.device, weights_only=True)
                    self._monitor.load_state(state)
            self.train(resume_from_checkpoint=str(self._resumed) if self._resumed else None)
        self._validate_weights()

    def create_optimizer(self, *arguments: Any) -> torch.optim.Optimizer:
        """Return AdamW with a learning rate for each part and weight decay on matrices only."""
        if self.optimizer is None:
            rates = parse_part_rates(self._config.part_rates)
            groups: dict[tuple[float, float], list[nn.Parameter]] = {}
            for name, parameter in self._model.named_parameters():
                if parameter.requires_grad:
                    rate = part_rate(rates, name, self.args.learning_rate)
                    decay = self.args.weight_decay if parameter.dim() > 1 else 0.0
                    groups.setdefault((rate, decay), []).append(parameter)
            self.optimizer = torch.optim.AdamW(
                [{"params": found, "lr": rate, "weight_decay": decay} for (rate, decay), found in groups.items()],
                fused=True,
            )
        return self.optimizer

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *_: Any, **__: Any) -> Tensor:
        """Return the objective's loss; its parts go to the log, its views to the alarms."""
        if self._resumed:
            # The Trainer restores random states before the data loader draws its seed, which an uninterrupted run
            # drew at its start.
            self._load_rng_state(str(self._resumed))
            self._resumed = None
        languages = inputs.pop("languages")
        outputs = model(**inputs)
        if not bool(torch.isfinite(outputs["loss"])):
            parts = ", ".join(f"{name} {value.item():g}" for name, value in outputs["parts"].items())
            batch = ", ".join(sorted({language for side in languages.values() for language in side}))
            what = f"the loss of a batch in {batch} is {outputs['loss'].item()} ({parts})"
            raise self._failure(self.state.global_step + 1, what)
        for name, value in {"loss": outputs["loss"], **outputs["parts"]}.items():
            total, batches = self._sums.get(name, (0, 0))
            self._sums[name] = total + value.detach(), batches + 1
        for kind, (pivot, source) in outputs["sides"].items():
            self._monitor.update(kind, languages[kind], pivot, outputs["grounded"], source)
        if "nearest" in outputs:
            self._monitor.update_nearest(languages["text"], *outputs["nearest"])
        return outputs["loss"]

    def log(self, logs: dict[str, float], *arguments: Any, **more: Any) -> None:
        """Add the parts of the loss, averaged over all processes since the last entry, and the alarms' figures."""
        if self._sums:
            # The batches of another process may have other parts.
            found = gather_object([{name: (float(total), batches) for name, (total, batches) in self._sums.items()}])
            parts = {}
            for name in dict.fromkeys(name for sums in found for name in sums):
                totals, batches = zip(*(sums[name] for sums in found if name in sums), strict=True)
                parts[name] = sum(totals) / sum(batches)
            self._task.probe.update(self._model, self._monitor)
            logs = {**logs, **parts, **self._monitor.figures()}
            self._sums = {}
        with reporting_write_errors(f"{self._run / LOG} or {_TENSORBOARD}/", self._run):
            super().log(logs, *arguments, **more)

    def _validate_weights(self) -> None:
        broken = [name for name, tensor in self._model.named_parameters() if not bool(tensor.isfinite().all())]
        if broken:
            what = f"weights are no longer finite ({broken[0]}, {len(broken)} in all)"
            raise self._failure(self.state.global_step, what)

    def _failure(self, step: int, what: str) -> MilcoError:
        newest = newest_checkpoint(self._run)
        since, model = (newest.name, f" --model {newest}") if newest else ("the start", "")
        return MilcoError(
            f"step {step}: {what}; nothing was saved since {since}: check the data of that step, or start a new run "
            f"with --output OTHER{model} --learning-rate LOWER"
        )

    # The Trainer calls the following methods.

    def _get_output_dir(self, trial: Any) -> str:
        return str(self._saving_to or self._run)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Write a checkpoint to a temporary directory; move it into the run when every process has written its part."""
        self._validate_weights()
        step = self.state.global_step
        partial = self._run / _PARTIAL
        if self.is_world_process_zero():
            shutil.rmtree(partial, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        self._saving_to = partial
        try:
            with reporting_write_errors(f"the checkpoint of step {step}", self._run):
                super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.is_world_process_zero():
                with reporting_write_errors(f"the checkpoint of step {step}", self._run):
                    torch.save(self._monitor.state(), partial / f"checkpoint-{step}" / ALARMS)
                    publish_checkpoint(partial / f"checkpoint-{step}", self._run)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        finally:
            self._saving_to = None
        if self.is_world_process_zero():
            partial.rmdir()
            for old in list_checkpoints(self._run)[: -self._config.keep]:
                shutil.rmtree(old)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with loading(Path(checkpoint or self._run), "the state of this run's optimizer and schedule", _FIX):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with loading(Path(checkpoint or self._run), "the state of this run's random numbers", _FIX):
            super()._load_rng_state(checkpoint)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        self._task.encoder.save_pretrained(output_dir or self._run)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        self._model.load_state_dict(rename_tensors(read_tensors(Path(resume_from_checkpoint))))


def freeze_parts(model: nn.Module, config: TrainingConfig) -> None:
    """Freeze the parts with learning rate 0; frozen parameters stay frozen.

    Raises MilcoError if no parameter is in a part, or none is left to train.
    """
    names = [name for name, _ in model.named_parameters()]
    rates = parse_part_rates(config.part_rates)
    for part in rates:
        if not any(_is_in(name, part) for name in names):
            modules = ", ".join(sorted({name.split(".")[0] for name in names}))
            raise MilcoError(f"--part-rates {part}: the model has no such module. Its modules are {modules}.")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and part_rate(rates, name, math.inf) > 0)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise MilcoError(f"--part-rates {' '.join(config.part_rates)}: no parameter is left to train")


def part_rate(rates: dict[str, float], name: str, default: float) -> float:
    """Return the learning rate of a parameter: that of the smallest module that contains it."""
    parts = [part for part in rates if _is_in(name, part)]
    return rates[max(parts, key=len)] if parts else default


def _is_in(name: str, part: str) -> bool:
    return f"{name}.".startswith(f"{part}.")


def validate_same_step(run: Path, step: int) -> None:
    """Raise MilcoError if the processes of a run are about to resume from different steps."""
    steps = sorted(set(gather_object([step])))
    if len(steps) > 1:
        raise MilcoError(
            f"{run}: one machine sees the checkpoint of step {steps[-1]}, another that of step {steps[0]} (0: none): "
            "--output must be a directory that all machines share"
        )


def _silence_tensorboard_thread() -> None:
    """Print no traceback if TensorBoard's thread dies of an error that it also raises in the main thread."""
    before = threading.excepthook

    def hook(died: threading.ExceptHookArgs) -> None:
        if not (isinstance(died.exc_value, OSError) and "tensorboard" in type(died.thread).__module__):
            before(died)

    threading.excepthook = hook


def _logged_step(line: bytes) -> float:
    """Return the step of a line of the log; infinity for one that a power failure has damaged."""
    try:
        return orjson.loads(line)["step"]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return math.inf


class _LogCallback(TrainerCallback):
    """Progress, log.jsonl and warnings of the first process."""

    def __init__(self, run: Path, batch: int, monitor: CollapseMonitor) -> None:
        self._path = run / LOG
        self._batch = batch
        self._monitor = monitor
        self._progress: Progress | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not state.is_world_process_zero:
            return
        self._progress = Progress("examples", state.max_steps * self._batch, state.global_step * self._batch)
        # Entries after the checkpoint will be written again; a killed run may have written half of the last line.
        lines = self._path.read_bytes().splitlines(keepends=True) if self._path.exists() else []
        complete = [line for line in lines if line.endswith(b"\n")]
        with reporting_write_errors(str(self._path), self._path.parent), atomic_file(self._path) as handle:
            handle.writelines(line for line in complete if _logged_step(line) <= state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._progress:
            self._progress.add(self._batch)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict | None = None, **_: Any) -> None:
        if not self._progress or not logs:
            return
        entry = {"step": state.global_step, **{name: value for name, value in logs.items() if name not in _NOT_LOGGED}}
        with self._path.open("ab") as handle:
            handle.write(orjson.dumps(entry, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")
        if "loss" in logs:
            log(f"Step {state.global_step:,} of {state.max_steps:,}: loss {logs['loss']:.4f}")
        for warning in self._monitor.warnings():
            log(f"warning: {warning}")

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._progress:
            self._progress.close()
