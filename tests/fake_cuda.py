"""A CUDA device without a GPU: torch's FakeTensorMode gives every operation's device, dtype and shape, but no values.

Replace the parts that only a CUDA runtime has (streams, events, pinned memory, queries of the card), and nothing that
computes. A tensor that comes back to the CPU contains zeros, and a size that depends on values is 0.
"""

import ctypes
import functools
import sys
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
# Operations whose result's size depends on values, and what they return for zeros.
_SIZED_BY_VALUES = {
    aten.nonzero: lambda tensor: tensor.new_empty((0, tensor.dim()), dtype=torch.int64),
    aten.masked_select: lambda tensor, mask: tensor.new_empty(0),
    aten.bincount: lambda tensor, weights, size: tensor.new_empty(size, dtype=torch.int64),
    aten._unique2: lambda tensor, *_: (tensor.new_empty(1), torch.empty_like(tensor), tensor.new_empty(1)),
}
# Numbers of torch's.
_DEVICE_TYPES = {"cuda": 1, "xpu": 12, "mps": 13}
_REGISTER_GUARD = "_ZN3c104impl19registerDeviceGuardENS_10DeviceTypeEPKNS0_24DeviceGuardImplInterfaceE"


class FakeStream:
    """A stream, and its own context. reached: the number of the main stream's operation that it has waited for."""

    def __init__(self, card: "FakeCard") -> None:
        self.card = card
        self.reached = 0

    def record_event(self) -> int:
        return self.card.time

    def wait_event(self, event: int) -> None:
        self.reached = max(self.reached, event)

    def synchronize(self) -> None:
        self.card.copying.clear()

    def __enter__(self) -> None:
        self.card.stream = self

    def __exit__(self, *_: object) -> None:
        self.card.stream = self.card.main


class FakeCard(TorchDispatchMode):
    """Records what is read too early, or from memory that may be reused.

    Attributes:
        hazards: operations of another stream than the main one that read what it has not waited for, or memory that
            the allocator does not know it reads; copies that the CPU reads while they are under way.
        allocated, peak: bytes of the tensors on the card, now and at most.
        free: bytes that the card reports as free.
    """

    def __init__(self, reads: Mapping[str, object]) -> None:
        super().__init__()
        self.hazards: list[str] = []
        self.allocated = self.peak = self.time = 0
        self.free = 80 << 30
        self.main = self.stream = FakeStream(self)
        # Memory, by address: with the time at which the main stream wrote it; that the allocator knows another stream
        # reads; that a copy is written to; that is allocated.
        self.written: dict[int, int] = {}
        self.recorded: set[int] = set()
        self.copying: set[int] = set()
        self._known: set[int] = set()
        self._reads = reads

    def __torch_dispatch__(self, function: Any, types: Any, inputs: Any = (), options: Any = None) -> Any:
        options = options or {}
        packet, read = function.overloadpacket, tensors_of((inputs, options))
        # In inference mode, an operation that consists of others arrives as it is. Attention is one kernel of a GPU.
        if packet is aten.scaled_dot_product_attention:
            return torch.empty_like(inputs[0])
        if function is not torch.ops.prim.device.default:
            with self:
                result = function.decompose(*inputs, **options)
            if result is not NotImplemented:
                return result
        if any(map(is_on_card, read)):
            if packet is aten._local_scalar_dense:
                return self.value()
            if packet in _SIZED_BY_VALUES:
                return _SIZED_BY_VALUES[packet](*inputs)
            if packet is aten.index:
                # A mask of zeros selects nothing.
                inputs = (
                    inputs[0],
                    [
                        place.new_empty(0, dtype=torch.int64)
                        if place is not None and place.dtype == torch.bool
                        else place
                        for place in inputs[1]
                    ],
                )
        result = function(*inputs, **options)
        made = tensors_of(result)
        if packet is aten.copy_ and inputs[2:] == (True,) and is_on_card(read[-1]) and not is_on_card(made[0]):
            self.copying.add(address(made[0]))
        self._follow(function, read, made)
        return result

    def _follow(self, function: Any, read: list[Tensor], made: list[Tensor]) -> None:
        """Record what an operation reads, writes and allocates on the card."""
        self.time += self.stream is self.main
        before = set(map(address, read))
        for place in {address(tensor) for tensor in read if is_on_card(tensor)} & self.written.keys():
            if self.stream is not self.main and self.written[place] > self.stream.reached:
                self.hazards.append(f"{function} reads too early")
            if self.stream is not self.main and place not in self.recorded:
                self.hazards.append(f"{function} reads memory that may be reused")
        for tensor in filter(is_on_card, made):
            place = address(tensor)
            if self.stream is self.main and (place not in before or function._schema.is_mutable):
                self.written[place] = self.time
            if place not in self._known:
                self._known.add(place)
                storage = tensor.untyped_storage()
                self.allocated += storage.nbytes()
                self.peak = max(self.peak, self.allocated)
                weakref.finalize(storage, self._free, place, storage.nbytes())

    def _free(self, place: int, size: int) -> None:
        self.allocated -= size
        self._known.discard(place)
        self.written.pop(place, None)
        self.recorded.discard(place)

    def value(self) -> Any:
        """Return the value that the function outside torch that reads one gets."""
        frame: Any = sys._getframe(1)
        while frame.f_code.co_filename == __file__ or "/torch/" in frame.f_code.co_filename:
            frame = frame.f_back
        return self._reads["transformers" if "/transformers/" in frame.f_code.co_filename else frame.f_code.co_qualname]

    def to_numpy(self, tensor: Tensor) -> np.ndarray:
        """Return zeros of the tensor's shape and dtype."""
        if address(tensor) in self.copying:
            self.hazards.append("a copy is read while it is under way")
        return np.zeros(tensor.shape, str(tensor.dtype).removeprefix("torch."))


@contextmanager
def fake_cuda(reads: Mapping[str, object]) -> Iterator[FakeCard]:
    """Run the block on a machine whose first GPU computes no values.

    reads: what a function gets when it reads a value from the device, by name; no other function may read one.
    """
    if torch.cuda.is_available():
        pytest.skip("has a GPU: tests/test_gpu.py uses it")
    _accept_fake_devices()
    card = FakeCard(reads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "device_count", lambda: 1)
        patch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
        patch.setattr(torch.cuda, "mem_get_info", lambda device: (card.free, 80 << 30))
        patch.setattr("torch.cuda.amp.common.amp_definitely_not_available", lambda: False)
        patch.setattr(torch.cuda, "Stream", lambda device: FakeStream(card))
        patch.setattr(torch.cuda, "current_stream", lambda device: card.main)
        patch.setattr(torch.cuda, "stream", lambda stream: stream)
        patch.setattr(Tensor, "record_stream", lambda tensor, stream: card.recorded.add(address(tensor)))
        patch.setattr(Tensor, "pin_memory", Tensor.clone)
        patch.setattr(FakeTensor, "tolist", lambda tensor: [card.value()] * len(tensor), raising=False)
        patch.setattr(FakeTensor, "numpy", lambda tensor: card.to_numpy(tensor), raising=False)
        with FakeTensorMode(allow_non_fake_inputs=True), card:
            yield card


@functools.cache
def _accept_fake_devices() -> Any:
    """Let torch for the CPU put fake tensors on other devices, as torch with CUDA does on a machine without a GPU."""
    ensure = getattr(torch._C, "_ensureCUDADeviceGuardSet", None)
    libraries = [*(Path(torch.__file__).parent / "lib").glob("libc10.*")]
    if ensure is None or not libraries:
        pytest.skip("this torch has no fake devices")
    # Guards of devices, every method of which returns 0. CUDA's guard counts no devices, so torch replaces it with its
    # own for fake tensors.
    zero = ctypes.CFUNCTYPE(ctypes.c_int)(int)
    methods = (ctypes.c_void_p * 64)(*[ctypes.cast(zero, ctypes.c_void_p).value] * 64)
    guard = (ctypes.c_void_p * 1)(ctypes.addressof(methods))
    register = ctypes.CDLL(str(libraries[0]))[_REGISTER_GUARD]
    real = {"cuda": torch.version.cuda, "xpu": torch.version.xpu, "mps": torch.backends.mps.is_built()}
    for name, number in _DEVICE_TYPES.items():
        if not real[name]:
            register(ctypes.c_byte(number), guard)
    ensure()
    # The caller keeps what the registry points to.
    return zero, methods, guard


def is_on_card(tensor: Tensor) -> bool:
    return tensor.device.type in _DEVICE_TYPES


def address(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def tensors_of(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
