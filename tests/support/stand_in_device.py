"""A device that is not there: it computes on the CPU, is as strict as a GPU, and counts when the host waits for it.

Tensors on it say that they are on ``meta`` and hold one of the CPU. Every operation of theirs passes by here, those of
the backward pass too. As with a GPU, tensors of the device and of the host do not meet in one operation, and the host
waits where it reads a value, where the shape of a result depends on values, and where it uploads from ordinary memory
without saying that it need not wait.
"""

from collections import Counter
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

DEVICE = torch.device("meta")
aten = torch.ops.aten

SHAPED_BY_VALUES = {"nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "bincount"}
READ = {"_local_scalar_dense", "equal"}
OF_BOTH = {"_pack_padded_sequence", "_pack_padded_sequence_backward"}
"""Operations that want some of their tensors on the host."""


class OnDevice(Tensor):
    """A tensor that says it is on the device."""

    held: Tensor

    @staticmethod
    def __new__(cls, held):
        found = Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )
        found.held = held
        return found

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} outside of `StandIn`")

    def tolist(self):
        """By way of the host."""
        return self.cpu().tolist()


class StandIn(TorchDispatchMode):
    """While it is entered, the device is there.

    Attributes:
        waits: how often the host has waited, by cause.
    """

    def __init__(self):
        super().__init__()
        self.waits = Counter()

    def __enter__(self):
        self._functions = _FromHost(self)
        self._functions.__enter__()
        super().__enter__()
        return self

    def __exit__(self, kind, error, trace):
        super().__exit__(kind, error, trace)
        self._functions.__exit__(kind, error, trace)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = func.overloadpacket.__name__
        flat = list(tensors((args, kwargs)))
        here = any(isinstance(x, OnDevice) for x in flat)
        target = kwargs.get("device")
        if target is not None:
            kwargs["device"] = torch.device("cpu")
        to_device = here if target is None else torch.device(target) == DEVICE
        if not (here or to_device):
            return func(*args, **kwargs)
        self._count(name, flat, args, kwargs, here, to_device)
        held_args, held_kwargs = with_tensors(
            (args, kwargs), lambda x: x.held if isinstance(x, OnDevice) else x
        )
        out = func(*held_args, **held_kwargs)
        if not to_device or name in READ:
            return out
        if name == "_pack_padded_sequence":  # batch sizes stay on the host
            return OnDevice(out[0]), out[1]
        wrapped = with_tensors(out, OnDevice)
        return return_and_correct_aliasing(func, args, kwargs, wrapped) if here and aliases(func) else wrapped

    def _count(self, name, flat, args, kwargs, here, to_device):
        if name == "_to_copy":
            if here and not to_device:
                self.waits["download"] += 1
            elif to_device and not here and not kwargs.get("non_blocking"):
                self.waits["upload"] += 1
            return
        if name in READ or name in SHAPED_BY_VALUES:
            self.waits[name] += 1
        if name == "repeat_interleave" and "output_size" not in kwargs:
            self.waits[name] += 1
        if name in ("index", "index_put", "index_put_"):
            masks = [x for x in args[1] if x is not None and x.dtype == torch.bool]
            if masks and not (name != "index" and args[2].dim() == 0):
                self.waits["mask as index"] += 1
            if any(x is not None and not isinstance(x, OnDevice) for x in args[1]):
                self.waits["upload of an index"] += 1
            return
        if name == "copy_":
            if not all(isinstance(x, OnDevice) for x in flat) and flat[-1].dim() > 0:
                self.waits["copy between host and device"] += 1
            return
        if name not in OF_BOTH and any(not isinstance(x, OnDevice) and x.dim() > 0 for x in flat):
            raise RuntimeError(f"{name} mixes tensors of the device and of the host")


def tensors(nested):
    """All tensors in nested containers."""
    if isinstance(nested, Tensor):
        yield nested
    elif isinstance(nested, tuple | list | dict):
        for child in nested.values() if isinstance(nested, dict) else nested:
            yield from tensors(child)


def with_tensors(nested, change):
    """Nested containers with every tensor changed."""
    if isinstance(nested, Tensor):
        return change(nested)
    if isinstance(nested, dict):
        return {key: with_tensors(child, change) for key, child in nested.items()}
    if isinstance(nested, tuple | list):
        return type(nested)([with_tensors(child, change) for child in nested])
    return nested


@cache
def aliases(func):
    """Whether an operation returns its argument, or a view of it."""
    return any(found.alias_info is not None for found in func._schema.returns)


class _FromHost(TorchFunctionMode):
    """Tensors made on the device from values of the host: the one thing that no operation shows."""

    def __init__(self, stand_in):
        super().__init__()
        self._stand_in = stand_in

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        target = kwargs.get("device")
        if func not in (torch.tensor, torch.as_tensor) or target is None or torch.device(target) != DEVICE:
            return func(*args, **kwargs)
        self._stand_in.waits["upload of values"] += 1
        return OnDevice(func(*args, **{**kwargs, "device": None}))


@contextmanager
def stand_in(monkeypatch):
    """The device, and no autocast on it, which torch has for devices that are there alone."""
    autocast = torch.autocast
    monkeypatch.setattr(torch, "autocast", lambda kind, *rest, **named: autocast("cpu", enabled=False))
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda kind: torch.bfloat16)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: False)
    with StandIn() as found:
        yield found
