"""Launchers, devices and precisions: names that are validated without torch, then resolved."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from milco_pyserini.defaults import DTYPES
from milco_pyserini.errors import Message, MilcoError, ParameterError, unknown_name

if TYPE_CHECKING:
    import torch
LOCAL = "local"
RAY = "ray"
LAUNCHERS = (LOCAL, RAY)


def validate_devices(names: str) -> None:
    """Raise MilcoError if a list such as "cuda:0,cuda:2" has a name that is not a device on any machine."""
    for name in names.split(","):
        if not re.fullmatch(r"auto|cpu|(cuda|mps|xpu)(:\d+)?", name):
            raise ParameterError("device", name, "must be auto, cpu, cuda, mps or xpu, or a numbered one, as in cuda:1")


def require_devices(names: str) -> None:
    """Raise MilcoError as validate_devices(), and if this machine lacks a named GPU: only then torch is imported."""
    validate_devices(names)
    for name in set(names.split(",")) - {"auto", "cpu"}:
        choose_device(name)


def choose_device(name: "str | torch.device") -> "torch.device":
    """Return the device of a name; "auto" is the first CUDA GPU if there is one, else the CPU.

    Raises MilcoError if this machine does not have the device.
    """
    import torch

    name = str(name)
    if "," in name:
        raise ParameterError(
            "device", name, "this takes one device. Only encode_corpus() and milco encode take several"
        )
    validate_devices(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = name.partition(":")
    if kind != "cpu":
        available = getattr(torch, kind).device_count()
        if int(number or 0) >= available:
            rule = f"torch finds {available} of this type"
            raise ParameterError("device", name, rule, Message("Use {device}.", device="cpu"))
    return torch.device(name)


def choose_devices(names: str) -> list[str]:
    """Return one device per process from a list of names; "auto" and "cuda" are all GPUs of this machine.

    Raises MilcoError if a device is not available, or if they are of different types, which round differently.
    """
    import torch

    devices: list[str] = []
    for device in map(choose_device, names.split(",")):
        if device.type == "cuda" and device.index is None:
            devices.extend(f"cuda:{number}" for number in range(torch.cuda.device_count()))
        else:
            devices.append(str(device))
    if len({torch.device(device).type for device in devices}) > 1:
        raise ParameterError("device", names, "the devices that fill one store must be of one type. Omit the CPU")
    return devices


def choose_dtype(
    name: "str | torch.dtype", device: "torch.device", names: Sequence[str] = DTYPES, cpu_dtype: str | None = None
) -> "torch.dtype":
    """Return the dtype of matrix products; "fast" is bfloat16 where the device multiplies it natively, else float32.

    "auto" is the same, but on the CPU cpu_dtype if the checkpoint states it. Raises MilcoError for a name that is not
    among names, and for int8 where its products are not exact.
    """
    import torch

    from milco_pyserini.model.packed import int8_is_exact, native_dtype

    name = str(name).removeprefix("torch.")
    if name not in names:
        raise unknown_name("dtype", name, names)
    if name == "int8" and device.type != "cpu":
        raise MilcoError(f"dtype int8 is for the CPU, not for {device}: use bfloat16")
    if name == "int8" and not int8_is_exact():
        raise MilcoError(
            "dtype int8: this processor does not multiply 8-bit integers exactly (it lacks VNNI or AMX), or this torch "
            "does not use it: use auto"
        )
    if name == "auto" and device.type == "cpu" and cpu_dtype:
        name = cpu_dtype
    if name not in ("auto", "fast"):
        return getattr(torch, name)
    if device.type == "cpu":
        return native_dtype()
    native = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if native else torch.float32
