"""Checkpoints of the papers' code: read without unpickling, and the networks found by their structure.

The code saves, with ``torch.save``, a dictionary that holds one network (``model``) or two (``model_A``,
``model_B``) beside options and scores. A network is a list of state dicts, one per encoder, or one state dict whose
names carry the encoder.

Nothing but tensors and plain containers is built from a file: classes that these files are known to mention
become empty stand-ins, any other one refuses the file.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ncl_bench.errors import TrainingError

PARTS = {
    "img_enc.": "fc.weight",
    "txt_enc.": "embed.weight",
    "sim_enc.": "sim_eval_w.weight",
    "img_pro_head.": "output_layer.weight",
}
"""Encoder to a weight that only its state dict holds, for networks saved as a list."""
SCORING = ("img_enc.", "txt_enc.", "sim_enc.", "linear_", "gate_")


class _StandIn:
    """Takes the place of a value that no import reads."""

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, _: object) -> None: ...


_STAND_INS: list[Any] = [
    (_StandIn, name)
    for name in (
        "argparse.Namespace",
        "numpy.dtype",
        "numpy.core.multiarray.scalar",
        "numpy._core.multiarray.scalar",
        *(f"numpy.dtypes.{kind}DType" for kind in ("Float64", "Float32", "Int64", "Int32", "Bool")),
    )
]


def read_checkpoint(file: Path) -> Any:
    """Content of a ``torch.save`` file: tensors and plain containers.

    Raises:
        TrainingError: it cannot be read, is damaged, or mentions a class or function that is not allowed.
    """
    if not file.is_file():
        raise TrainingError(f"{file} is not a file; give a checkpoint of a paper's code")
    try:
        with torch.serialization.safe_globals(_STAND_INS):
            return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file raises whatever its bytes lead to
        refused = re.search(r"GLOBAL (\S+)", str(error))
        if refused:
            raise TrainingError(
                f"{file} asks for {refused[1]}, which no checkpoint needs; it was not read further, "
                "save the state dicts alone with torch.save"
            ) from None
        reason = " ".join(str(error).split()).split(". ")[0][:200] or type(error).__name__
        raise TrainingError(
            f"{file} is damaged or no checkpoint of torch.save ({reason}); fetch it again"
        ) from None


def networks_in(content: Any, file: Path) -> list[dict[str, Tensor]]:
    """Networks of a file in its order, each as name to tensor, under the names of the papers' code.

    Args:
        content: of :func:`read_checkpoint`.
        file: named in the error.

    Raises:
        TrainingError: there is no network in a known layout.
    """
    values = [content]
    if isinstance(content, Mapping) and _state(content) is None:
        values = list(content.values())
    found = [state for value in values if (state := _state(value)) is not None]
    if not found:
        keys = ", ".join(map(str, content)) if isinstance(content, Mapping) else type(content).__name__
        raise TrainingError(
            f"{file} holds no network in a known layout (found: {keys[:200]}), expected state dicts of "
            "img_enc, txt_enc and sim_enc"
        )
    return found


def _state(value: Any) -> dict[str, Tensor] | None:
    """A network in either form under one naming, or None where the value is no network."""
    if isinstance(value, Mapping):
        named = _weights(value)
        return named if any(name.startswith(SCORING) for name in named) else None
    if not isinstance(value, Sequence) or not all(isinstance(part, Mapping) for part in value):
        return None
    state = {}
    for k, part in enumerate(value):
        weights = _weights(part)
        prefix = next((prefix for prefix, sign in PARTS.items() if sign in weights), f"part_{k}.")
        state.update({prefix + name: x for name, x in weights.items()})
    return state if any(name.startswith(SCORING) for name in state) else None


def _weights(state: Mapping[Any, Any]) -> dict[str, Tensor]:
    """The plain tensors of a state dict, without the ``module.`` that DataParallel puts into names."""
    return {
        ".".join(part for part in str(name).split(".") if part != "module"): x
        for name, x in state.items()
        if isinstance(x, Tensor) and _is_plain(x)
    }


def _is_plain(x: Tensor) -> bool:
    """A dense tensor that is as large as its bytes in the file."""
    dense = x.layout is torch.strided and x.device.type == "cpu" and not x.is_quantized
    return dense and x.numel() * x.element_size() <= x.untyped_storage().nbytes()
