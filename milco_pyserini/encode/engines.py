"""Where the parts of a store are encoded: in this process, in one for each device, or over Ray."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from milco_pyserini.console import counted, say

if TYPE_CHECKING:
    from milco_pyserini.encode.parts import Engine, Work

LOCAL = "local"
RAY = "ray"
ENGINES = (LOCAL, RAY)


def check_engine(name: str) -> None:
    """Raise MilcoError if what the engine needs is not installed."""
    if name == RAY:
        from milco_pyserini.encode.ray_engine import check_ray

        check_ray()


def engine_devices(name: str, devices: str) -> list[str]:
    """The device of every process that is to encode, all of one kind. devices: what --device says."""
    if name == RAY:
        from milco_pyserini.encode.ray_engine import cluster_devices

        return cluster_devices(devices)
    from milco_pyserini.encode.devices import choose_devices

    return choose_devices(devices)


def open_engine(name: str, work: "Work", devices: Sequence[str]) -> "Engine | None":
    """What encodes parts on these devices; None where this process does it, with the Work's own encoder."""
    if name == LOCAL and len(devices) == 1:
        return None
    from milco_pyserini.encode.workers import Recipe, encode_in_processes

    recipe = Recipe.of(work)
    say(f"encoding with {counted(len(devices), 'process', 'processes')}: {', '.join(devices)}")
    if name == LOCAL:
        return functools.partial(encode_in_processes, recipe=recipe, devices=devices)
    from milco_pyserini.encode.ray_engine import encode_with_ray

    weight_hash = work.encoder.weight_hash
    return functools.partial(encode_with_ray, recipe=recipe, devices=devices, weight_hash=weight_hash)
