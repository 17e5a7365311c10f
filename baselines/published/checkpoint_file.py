"""Read a checkpoint of a paper's code without unpickling it, and find its networks by their structure.

The code saves, with ``torch.save``, a dictionary of one or two networks, options and scores:

====================  =======================================================================================
NCR, BiCro, PC2, PCSR, ``model_A`` and ``model_B``
IN2R
CRCL, DECL, RCL, L2RM ``model``
GSC, GSC+             ``model``; its list ends with three label tensors, and GSC+ has two such lists
MSCN                  ``net_A``, ``net_B``, and the last layers in ``meta_net_A``, ``meta_net_B``
====================  =======================================================================================

A network is a list of state dicts, one per encoder, or one state dict whose names carry the encoder.

Only tensors and plain containers are built from a file. Classes that these files mention are replaced by stand-ins that
build nothing; any other class refuses the file.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ncl_bench.errors import TrainingError
from ncl_bench.torch_files import check_sums, load_torch, opened

PART_SIGNS = {
    "txt_enc.": "embed.weight",
    "img_enc.": "fc.weight",
    "sim_enc.": "sim_tranloc_w.weight",
    "img_pro_head.": "output_layer.weight",
    "cost_function.": "weight",
}
"""Encoder to a weight of its state dict that those below it lack, for networks saved as a list.

IN2R's text encoder has an ``fc.weight`` too.
"""
META_PREFIX = "meta_net."
SCORING = ("img_enc.", "txt_enc.", "sim_enc.", "linear_", "gate_", META_PREFIX)


class _StandIn:
    """Replaces a value that the import does not read; drops its arguments and state."""

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, _: object) -> None: ...


class _Options:
    """Replaces ``argparse.Namespace``; keeps only numbers and strings."""

    def __setstate__(self, state: object) -> None:
        named: Any = state
        self.kept = {str(name): x for name, x in named.items() if isinstance(x, str | int | float)}


_STAND_INS: list[Any] = [
    (_Options, "argparse.Namespace"),
    *(
        (_StandIn, name)
        for name in (
            "numpy.dtype",
            "numpy.ndarray",
            *(
                f"numpy.{core}.multiarray.{name}"
                for core in ("core", "_core")
                for name in ("scalar", "_reconstruct")
            ),
            *(f"numpy.dtypes.{kind}DType" for kind in ("Float64", "Float32", "Int64", "Int32", "Bool")),
            *(f"pathlib.{kind}Path" for kind in ("Posix", "Windows", "PurePosix", "PureWindows")),
            *(f"pathlib._local.{kind}Path" for kind in ("Posix", "Windows", "PurePosix", "PureWindows")),
        )
    ),
]


@dataclass(frozen=True)
class Checkpoint:
    """Content of a file.

    Attributes:
        networks: networks in the file's order, each as name to tensor, with the names of the papers' code.
        names: names of other entries beside and inside the networks, such as ``move_gt`` and ``img_pro_head``.
        options: options of the program that wrote the file, such as ``{"noise_ratio": 0.4}``; empty if it has none.
    """

    networks: Sequence[Mapping[str, Tensor]]
    names: frozenset[str]
    options: Mapping[str, str | int | float]


def read_checkpoint(file: Path) -> Checkpoint:
    """Read networks and options of a ``torch.save`` file."""
    fix = "give the file that torch.save wrote, unpacked, with state dicts alone"
    content = load_torch(file, TrainingError, fix, reader=_opened, trial=try_to_open)
    networks, entries = list(_networks_of(content)), _entries(content)
    if not networks:
        keys = ", ".join(map(str, entries)) or type(content).__name__
        raise TrainingError(
            f"{file} holds no network in a known layout (found: {keys[:200]}), expected state dicts of "
            "img_enc, txt_enc and sim_enc"
        )
    parts = {name.split(".")[0] for network in networks for name in network}
    options = getattr(entries.get("opt"), "kept", {})
    return Checkpoint(networks, frozenset(parts | set(map(str, entries))), options)


def _opened(file: Path) -> Any:
    with torch.serialization.safe_globals(_STAND_INS):
        return opened(file)


def try_to_open(file: Path, _: str) -> None:
    """Open a checkpoint and drop what it holds, in a worker."""
    check_sums(file)
    _opened(file)


def _networks_of(content: Any) -> Iterator[dict[str, Tensor]]:
    alone = _one_or_several(content)
    yield from alone
    entries = {} if alone else _entries(content)
    for key, value in entries.items():
        meta_network = _weights(entries.get(f"meta_{key}"))
        for state in _one_or_several(value):
            yield state | {META_PREFIX + name: x for name, x in meta_network.items()}


def _one_or_several(value: Any) -> list[dict[str, Tensor]]:
    state = _state(value)
    return [state] if state else [state for each in _parts(value) if (state := _state(each))]


def _state(value: Any) -> dict[str, Tensor]:
    """A network in either form with the same names; empty if the value is not a network."""
    state = _weights(value)
    for k, part in enumerate(_parts(value)):
        weights = _weights(part)  # none of GSC's labels of the training pairs, which are tensors
        prefix = next((prefix for prefix, sign in PART_SIGNS.items() if sign in weights), f"part_{k}.")
        state |= {prefix + name: x for name, x in weights.items()}
    return state if any(name.startswith(SCORING) for name in state) else {}


def _parts(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _entries(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _weights(state: Any) -> dict[str, Tensor]:
    """Plain tensors of a state dict, without the ``module.`` prefix of DataParallel; none of another value."""
    return {
        ".".join(part for part in str(name).split(".") if part != "module"): x
        for name, x in _entries(state).items()
        if isinstance(x, Tensor) and _is_plain(x)
    }


def _is_plain(x: Tensor) -> bool:
    """Whether a tensor is dense and as large as its bytes in the file."""
    dense = x.layout is torch.strided and x.device.type == "cpu" and not x.is_quantized
    return dense and x.numel() * x.element_size() <= x.untyped_storage().nbytes()
