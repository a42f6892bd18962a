"""Where the network runs and in which precision: names that a user gives, checked without torch, and what they mean."""

import re
from typing import TYPE_CHECKING

from milco_pyserini.errors import MilcoError, unknown_name

if TYPE_CHECKING:
    import torch

DTYPES = ("auto", "float32", "bfloat16")


def check_device_name(name: str) -> None:
    """Raise MilcoError for a name that stands for no device on any machine."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise unknown_name("device", name, ("auto", "cpu", "cuda"), "A GPU may be numbered, as in cuda:1.")


def choose_device(name: "str | torch.device") -> "torch.device":
    """The device of that name; "auto" is the GPU where there is one. Raises MilcoError if it is not here."""
    import torch

    name = str(name)
    check_device_name(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = name.partition(":")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise MilcoError(f"device {name} is not here: torch sees {torch.cuda.device_count()} GPUs; use --device cpu")
    return torch.device(name)


def device_names(names: str) -> list[str]:
    """The names in a list with commas, such as "cuda:0,cuda:2"; of one name, itself."""
    return names.split(",")


def choose_devices(names: str) -> list[str]:
    """The devices of these names, one for each process that encodes; "auto" and "cuda" are all the GPUs that are here.

    Raises MilcoError if one is not here, or if they are of two kinds, which do not compute the same bits.
    """
    import torch

    devices: list[str] = []
    for device in map(choose_device, device_names(names)):
        if device.type == "cuda" and device.index is None:
            devices.extend(f"cuda:{number}" for number in range(torch.cuda.device_count()))
        else:
            devices.append(str(device))
    if len({torch.device(device).type for device in devices}) > 1:
        raise MilcoError(f"--device {names}: the devices of one store are of one kind; leave the CPU out")
    return devices


def choose_dtype(name: "str | torch.dtype", device: "torch.device") -> "torch.dtype":
    """The dtype of matrix products; "auto" is bfloat16 where the machine multiplies it natively."""
    import torch

    name = str(name).removeprefix("torch.")
    if name not in DTYPES:
        raise unknown_name("dtype", name, DTYPES)
    if name != "auto":
        return getattr(torch, name)
    native = torch.cuda.is_bf16_supported() if device.type == "cuda" else torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if native else torch.float32
