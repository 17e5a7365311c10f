"""Integers that the host knows as well as the device, so that nobody waits for the device to read them back.

A step on a GPU is a queue of work that the host fills. Whenever the host reads a value from the device, or uploads one
from ordinary memory, it waits until the queue is empty, and then the device waits for the host. What the shape of the
work depends on, the lengths of captions above all, is therefore made on the host, uploaded without waiting, and
remembered beside the tensor on the device.
"""

from collections.abc import MutableMapping

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

_KNOWN: MutableMapping[Tensor, Tensor] = WeakTensorKeyDictionary()


def uploaded(values: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a device, without waiting; :func:`on_host` knows what it holds.

    Args:
        values: on the host; on a CPU it is returned as it is.
        device: where it goes.
    """
    moved = sent(values, device)
    remember(moved, values)
    return moved


def sent(values: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device, without waiting where it comes from the host."""
    if device.type == "cpu" or values.device.type != "cpu":
        return values.to(device)
    return (values.pin_memory() if device.type == "cuda" else values).to(device, non_blocking=True)


def remember(values: Tensor, known: Tensor) -> None:
    """Keep what a tensor holds, so that :func:`on_host` need not fetch it.

    Args:
        values: on a device; of the host's own tensors nothing is kept.
        known: equal values on the host, which must not be written to afterwards.
    """
    if values.device.type != "cpu" and known.device.type == "cpu":
        _KNOWN[values] = known


def on_host(values: Tensor) -> Tensor:
    """What a tensor holds, on the host; fetched once, which waits for the device, where it is not known there.

    Args:
        values: anywhere; it must not be written to afterwards.
    """
    if values.device.type == "cpu":
        return values
    if values not in _KNOWN:
        _KNOWN[values] = values.cpu()
    return _KNOWN[values]


def rows_of(values: Tensor, rows: slice) -> Tensor:
    """``values[rows]``, known on the host where ``values`` is."""
    chosen = values[rows]
    if values in _KNOWN:
        _KNOWN[chosen] = _KNOWN[values][rows]
    return chosen
