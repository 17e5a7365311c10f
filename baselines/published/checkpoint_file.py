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
        named = state.items() if isinstance(state, dict) else ()
        self.values = {str(name): x for name, x in named if isinstance(x, str | int | float)}


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
    networks = list(_networks_of(content))
    if not networks:
        keys = ", ".join(map(str, content)) if isinstance(content, Mapping) else type(content).__name__
        raise TrainingError(
            f"{file} holds no network in a known layout (found: {keys[:200]}), expected state dicts of "
            "img_enc, txt_enc and sim_enc"
        )
    entries = content if isinstance(content, Mapping) else {}
    parts = {name.split(".")[0] for network in networks for name in network}
    options = entries.get("opt")
    found = getattr(options, "values", {}) if isinstance(options, _Options) else {}
    return Checkpoint(networks, frozenset(parts | set(map(str, entries))), found)


def _opened(file: Path) -> Any:
    with torch.serialization.safe_globals(_STAND_INS):
        return opened(file)


def try_to_open(file: Path, _: str) -> None:
    """Open a checkpoint and drop what it holds, in a worker."""
    check_sums(file)
    _opened(file)


def _networks_of(content: Any) -> Iterator[dict[str, Tensor]]:
    if not isinstance(content, Mapping) or _state(content) is not None:
        yield from _one_or_several(content)
        return
    for key, value in content.items():
        meta_network = content.get(f"meta_{key}")
        weights = _weights(meta_network) if isinstance(meta_network, Mapping) else {}
        for state in _one_or_several(value):
            yield state | {META_PREFIX + name: x for name, x in weights.items()}


def _one_or_several(value: Any) -> list[dict[str, Tensor]]:
    state = _state(value)
    if state is not None:
        return [state]
    listed = value if isinstance(value, list | tuple) else ()
    return [state for each in listed if (state := _state(each)) is not None]


def _state(value: Any) -> dict[str, Tensor] | None:
    """A network in either form with the same names, or None if the value is not a network."""
    if isinstance(value, Mapping):
        named = _weights(value)
        return named if any(name.startswith(SCORING) for name in named) else None
    if not isinstance(value, list | tuple) or not all(isinstance(part, Mapping | Tensor) for part in value):
        return None
    state = {}
    for k, part in enumerate(value):
        # GSC's labels of the training pairs are tensors
        weights = _weights(part) if isinstance(part, Mapping) else {}
        prefix = next((prefix for prefix, sign in PART_SIGNS.items() if sign in weights), f"part_{k}.")
        state.update({prefix + name: x for name, x in weights.items()})
    return state if any(name.startswith(SCORING) for name in state) else None


def _weights(state: Mapping[Any, Any]) -> dict[str, Tensor]:
    """Plain tensors of a state dict, without the ``module.`` prefix of DataParallel."""
    return {
        ".".join(part for part in str(name).split(".") if part != "module"): x
        for name, x in state.items()
        if isinstance(x, Tensor) and _is_plain(x)
    }


def _is_plain(x: Tensor) -> bool:
    """Whether a tensor is dense and as large as its bytes in the file."""
    dense = x.layout is torch.strided and x.device.type == "cpu" and not x.is_quantized
    return dense and x.numel() * x.element_size() <= x.untyped_storage().nbytes()
