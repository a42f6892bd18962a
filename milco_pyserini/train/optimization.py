"""Optimizer and learning rates of a run: AdamW, rates by part of the model, frozen parts, warm-up and schedule."""

import math

from torch import nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler
from transformers import get_scheduler

from milco_pyserini.errors import ParameterError
from milco_pyserini.train.config import OptimizerOptions


def make_optimizer(model: nn.Module, options: OptimizerOptions) -> Optimizer:
    """Return AdamW with a learning rate for each part and weight decay on matrices only."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            rate = part_rate(options.rates, name, options.learning_rate)
            decay = options.weight_decay if parameter.dim() > 1 else 0.0
            groups.setdefault((rate, decay), []).append(parameter)
    return AdamW(
        [{"params": parameters, "lr": rate, "weight_decay": decay} for (rate, decay), parameters in groups.items()],
        fused=True,
    )


def make_schedule(optimizer: Optimizer, options: OptimizerOptions, steps: int) -> LRScheduler:
    """Return the schedule of the learning rates over all steps of a run: linear warm-up, then options.schedule."""
    # The library's "constant" has no warm-up.
    name = "constant_with_warmup" if options.schedule == "constant" else options.schedule
    return get_scheduler(name, optimizer, warmup_steps(options, steps), steps)


def warmup_steps(options: OptimizerOptions, steps: int) -> int:
    """Return the number of warm-up steps of a run."""
    return math.ceil(options.warmup * steps) if options.warmup < 1 else int(options.warmup)


def freeze_parts(model: nn.Module, options: OptimizerOptions) -> None:
    """Freeze the parts with learning rate 0; frozen parameters stay frozen.

    Raises MilcoError if no parameter is in a part, or none is left to train.
    """
    names = [name for name, _ in model.named_parameters()]
    for part in options.rates:
        if not any(_is_in(name, part) for name in names):
            modules = ", ".join(sorted({name.split(".")[0] for name in names}))
            raise ParameterError("part_rates", part, f"the model has no such module. Its modules are {modules}.")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and part_rate(options.rates, name, math.inf) > 0)
    validate_trainable(model, options)


def validate_trainable(model: nn.Module, options: OptimizerOptions) -> None:
    """Raise MilcoError if no parameter is left to train."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ParameterError("part_rates", options.part_rates, "no parameter is left to train")


def part_rate(rates: dict[str, float], name: str, default: float) -> float:
    """Return the learning rate of a parameter: that of the smallest module that contains it."""
    parts = [part for part in rates if _is_in(name, part)]
    return rates[max(parts, key=len)] if parts else default


def _is_in(name: str, part: str) -> bool:
    return f"{name}.".startswith(f"{part}.")
