"""The Hugging Face Trainer with checkpoints in our layout that appear whole, exact resumption, logs and alarms."""

import math
import re
import shutil
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.utils.data import IterableDataset
from torch.utils.tensorboard import SummaryWriter
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.integrations import TensorBoardCallback

from milco_pyserini.console import Progress, say
from milco_pyserini.encode import MilcoEncoder
from milco_pyserini.errors import MilcoError
from milco_pyserini.io.files import atomic_file, checksum, read_json, sync_directory, sync_tree, write_json
from milco_pyserini.model.checkpoint import read_tensors, rename_tensors
from milco_pyserini.model.loading import loading
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
_CHECKSUMS = "checksums.json"
_FILES = (_STATE, _ALARMS, "optimizer.pt", "scheduler.pt", "config.json")
_DAMAGED = ".damaged"
_FIX = "Remove the checkpoint to resume from the one before it"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
# How the system, safetensors and torch.save say that a disk is full.
_FULL = ("No space left", "quota exceeded", "unexpected pos", "file write failed")


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
            _quiet_writer()
            with writing(str(self._run / _TENSORBOARD), self._run):
                self.add_callback(TensorBoardCallback(SummaryWriter(str(self._run / _TENSORBOARD))))

    def train_on(self) -> None:
        """Train to the end, from the newest checkpoint if there is one. Raises MilcoError for weights not finite."""
        if step_of(self._resumed) >= self.args.max_steps:
            # What is missing is the model alone, and the Trainer would make one more step.
            self._load_from_checkpoint(str(self._resumed))
        else:
            if self._resumed:
                with loading(self._resumed / _ALARMS, "the state of this run's alarms", _FIX):
                    state = torch.load(self._resumed / _ALARMS, map_location=self.args.device, weights_only=True)
                    self._monitor.load_state(state)
            self.train(resume_from_checkpoint=str(self._resumed) if self._resumed else None)
        self._check_weights()

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
        self._check(outputs, languages)
        self._counted += 1
        for name, value in {"loss_sum": outputs["loss"], **outputs["parts"]}.items():
            self._sums[name] = self._sums.get(name, 0) + value.detach()
        for kind, side in outputs["sides"].items():
            self._monitor.update(
                kind=kind,
                languages=languages[kind],
                pivot=side.pivot,
                grounded=outputs["grounded"],
                source=side.source,
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
        with writing(f"{self._run / LOG} or {_TENSORBOARD}/", self._run):
            super().log(logs, *arguments, **more)

    def _check(self, outputs: dict[str, Any], languages: dict[str, list[str]]) -> None:
        if not bool(torch.isfinite(outputs["loss"])):
            parts = ", ".join(f"{name} {value.item():g}" for name, value in outputs["parts"].items())
            spoken = ", ".join(sorted({language for side in languages.values() for language in side}))
            what = f"the loss of a batch in {spoken} is {outputs['loss'].item()} ({parts})"
            raise self._failure(self.state.global_step + 1, what)

    def _check_weights(self) -> None:
        broken = [name for name, tensor in self._encoder.model.named_parameters() if not bool(tensor.isfinite().all())]
        if broken:
            what = f"weights are no longer finite ({broken[0]}, {len(broken)} in all)"
            raise self._failure(self.state.global_step, what)

    def _failure(self, step: int, what: str) -> MilcoError:
        newest = newest_checkpoint(self._run)
        since, model = (newest.name, f" --model {newest}") if newest else ("the start", "")
        return MilcoError(
            f"step {step}: {what}; nothing was saved since {since}: look at the data of that step, or begin "
            f"--output OTHER{model} --learning-rate LOWER"
        )

    # What follows is called by the Trainer.

    def _get_output_dir(self, trial: Any) -> str:
        return str(self._saving_to or self._run)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """A checkpoint is written beside its place and moved there when every process has written its part."""
        self._check_weights()
        step = self.state.global_step
        partial = self._run / _PARTIAL
        if self.is_world_process_zero():
            shutil.rmtree(partial, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        self._saving_to = partial
        try:
            with writing(f"the checkpoint of step {step}", self._run):
                super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.is_world_process_zero():
                with writing(f"the checkpoint of step {step}", self._run):
                    self._complete(partial / f"checkpoint-{step}")
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        finally:
            self._saving_to = None
        if self.is_world_process_zero():
            partial.rmdir()
            for old in checkpoints(self._run)[: -self._options.keep]:
                shutil.rmtree(old)

    def _complete(self, written: Path) -> None:
        """Give a checkpoint its name when it is on disk, so that a power cut leaves it or the one before it."""
        torch.save(self._monitor.state(), written / _ALARMS)
        files = sorted(path for path in written.rglob("*") if path.is_file())
        write_json(written / _CHECKSUMS, {path.relative_to(written).as_posix(): checksum(path) for path in files})
        sync_tree(written)
        written.replace(self._run / written.name)
        sync_directory(self._run)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with loading(Path(checkpoint or self._run), "the state of this run's optimizer and schedule", _FIX):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with loading(Path(checkpoint or self._run), "the state of this run's random numbers", _FIX):
            super()._load_rng_state(checkpoint)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        self._encoder.save_pretrained(output_dir or self._run)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        tensors = rename_tensors(read_tensors(Path(resume_from_checkpoint)))
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


def damage(directory: Path, files: Collection[str] = _FILES) -> str | None:
    """Return which file of a checkpoint is not as it was written, and how; None if all are.

    files: what it contains at least. Without checksums, as in release 0.1, files are only known not to be
    empty.
    """
    try:
        path = directory / _CHECKSUMS
        checksums = read_json(path) if path.exists() else dict.fromkeys(_written(directory))
        for name, expected in {**dict.fromkeys(files), **checksums}.items():
            file = directory / name
            if not file.is_file() or not file.stat().st_size:
                return f"{name} is {'empty' if file.is_file() else 'missing'}"
            if expected and checksum(file) != expected:
                return f"{name} has changed"
    except MilcoError as error:
        return str(error)
    return None if any(directory.glob("*.safetensors")) else "its weights are missing"


def set_aside_damaged(run: Path, model: Path, files: Collection[str]) -> None:
    """Rename a damaged model, and damaged checkpoints from the newest to the first good one; each is reported.

    model: the directory that a finished run ends with. files: what it contains.
    """
    reasons = {}
    for path in [model, *reversed(checkpoints(run))]:
        reason = damage(path, files if path == model else _FILES) if path.exists() else None
        if reason is not None:
            aside = path.with_name(path.name + _DAMAGED)
            shutil.rmtree(aside, ignore_errors=True)
            path.replace(aside)
            reasons[path] = f"{reason}; it is {aside.name} now"
        elif path != model:
            break
    newest = newest_checkpoint(run)
    for path, reason in reasons.items():
        say(f"{path} is damaged: {reason}. Training resumes from {newest.name if newest else 'the start'}.")


def _written(directory: Path) -> list[str]:
    """The files below a checkpoint that a training run writes; others may be anyone's."""
    found = [path for path in directory.rglob("*") if path.suffix in (".json", ".safetensors", ".pt", ".pth")]
    return sorted(path.relative_to(directory).as_posix() for path in found)


def step_of(checkpoint: Path | None) -> int:
    """Optimiser steps that a checkpoint has behind it; 0 without one."""
    return int(read_json(checkpoint / _STATE)["global_step"]) if checkpoint else 0


@contextmanager
def writing(what: str, run: Path) -> Iterator[None]:
    """Around what writes to a run: raises MilcoError, with the reason and what is left, if that cannot be done."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        # safetensors and torch.save raise errors of their own for a full disk.
        full = any(words in str(error) for words in _FULL)
        newest = newest_checkpoint(run)
        kept = f"{newest} is whole, and the same command goes on from it" if newest else "there is no checkpoint yet"
        raise MilcoError(
            f"{what} could not be written: {f'the disk of {run} is full' if full else error}; {kept}"
        ) from error


def _quiet_writer() -> None:
    """Print no traceback when TensorBoard's thread dies, at whatever moment, of an error that it also raises here."""
    before = threading.excepthook

    def hook(died: threading.ExceptHookArgs) -> None:
        if not (isinstance(died.exc_value, OSError) and "tensorboard" in type(died.thread).__module__):
            before(died)

    threading.excepthook = hook


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
        # Of the last one, a run that was killed may have written half.
        whole = [line for line in lines if line.endswith(b"\n")]
        with writing(str(self._path), self._path.parent), atomic_file(self._path) as handle:
            handle.writelines(line for line in whole if orjson.loads(line)["step"] <= state.global_step)

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
