"""Weights under the names of the papers' code, in our names."""

from collections.abc import Mapping

from torch import Tensor

from ncl_bench.errors import TrainingError


def translate(
    state: Mapping[str, Tensor], names: Mapping[str, str], unused: tuple[str, ...] = ()
) -> dict[str, Tensor]:
    """Rename the weights of a network.

    Args:
        state: their name to tensor.
        names: beginning of their names to beginning of ours; the longest that fits is taken.
        unused: beginnings of the names of weights that no computation reads; left out.

    Returns:
        Our name to tensor.

    Raises:
        TrainingError: a name that no prefix covers, so these are weights of another network.
    """
    translated = {}
    for name, tensor in state.items():
        if name.startswith(unused):
            continue
        prefix = max((p for p in names if name.startswith(p)), key=len, default=None)
        if prefix is None:
            raise TrainingError(f"the weights hold {name!r}, which is no part of this backbone")
        translated[names[prefix] + name[len(prefix) :]] = tensor
    return translated


def size_of(state: Mapping[str, Tensor], name: str, dim: int = 0) -> int:
    """Size of a weight along a dimension.

    Raises:
        TrainingError: no such tensor, so these are weights of another network.
    """
    if name not in state or state[name].dim() <= dim:
        raise TrainingError(f"the weights lack {name!r}; are they weights of another backbone?")
    return state[name].shape[dim]
