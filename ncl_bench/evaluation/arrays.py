"""Arrays that people hold: in memory, as a tensor of any framework, or in a file; nothing is unpickled."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncl_bench.errors import ScoresError
from ncl_bench.extras import require
from ncl_bench.files import readable, refuse_packed
from ncl_bench.npy import map_npy, read_header


def as_array(given: Any) -> NDArray[Any]:
    """The numpy array behind what a user gives.

    Args:
        given: an array, a tensor (with a gradient, on a GPU, in bfloat16), nested lists, or the path of a file as
            :func:`read_array` reads it.

    Returns:
        The array, without a copy where it is one already, or lies in an ``.npy`` file, which is memory-mapped.

    Raises:
        ScoresError: it is none of them, or is masked.
    """
    if isinstance(given, str | os.PathLike):
        return read_array(Path(given))
    if isinstance(given, np.ma.MaskedArray):
        raise ScoresError("similarities are a masked array, expected a score for every pair; fill the mask")
    try:
        return np.asanyarray(_on_the_cpu(given))
    except (TypeError, ValueError, RuntimeError) as error:  # torch has tensors without data
        raise ScoresError(
            f"similarities are no array ({str(error).splitlines()[0]}); give a numpy array, a tensor, or the path of "
            "a file"
        ) from None


def _on_the_cpu(given: Any) -> Any:
    """A torch tensor as numpy can take it over; anything else as it is. By its methods, so that torch is not needed."""
    if not (hasattr(given, "detach") and hasattr(given, "cpu")):
        return given
    tensor = given.detach().cpu()
    return tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor


def read_array(path: Path) -> NDArray[Any]:
    """The one array in a file.

    Args:
        path: ``.npy``, which is memory-mapped; ``.safetensors``; or ``.pt`` and ``.pth`` of torch, opened with
            ``weights_only=True``. The last two hold one tensor, which is read into memory.

    Raises:
        ScoresError: the file is missing, damaged, of another kind, or holds several arrays.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        return map_npy(path, read_header(path))
    return reader(readable(path, ScoresError, f"a {path.suffix} file"))


def _read_safetensors(path: Path) -> NDArray[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 (it is no dict)
            name = _only(shapes, path)
            return np.asarray(file.get_tensor(name))
    except TypeError:  # numpy has no bfloat16, nor the floats of 8 bits
        raise ScoresError(f"{path} holds numbers that numpy does not know; save them as float32") from None
    except (SafetensorError, OSError) as error:
        raise ScoresError(f"{path} is damaged or no .safetensors file ({error}); write it again") from None


def _read_torch(path: Path) -> NDArray[Any]:
    require("baselines", "torch", needed_by=str(path))
    import torch

    refuse_packed(path, ScoresError)
    try:
        with path.open("rb") as stream:  # torch takes every path for UTF-8
            content = torch.load(stream, map_location="cpu", weights_only=True)
    except Exception as error:  # of pickle, of zip, of torch; their messages advise to unpickle
        raise ScoresError(
            f"{path} cannot be opened with weights_only=True ({type(error).__name__}): it is damaged, or holds more "
            "than tensors; save the tensor alone with torch.save"
        ) from None
    tensors = content if isinstance(content, dict) else {"tensor": content}
    if not all(isinstance(value, torch.Tensor) for value in tensors.values()):
        raise ScoresError(f"{path} holds more than tensors; save the tensor alone with torch.save")
    tensor = tensors[_only({name: value.shape for name, value in tensors.items()}, path)]
    if tensor.is_meta:
        raise ScoresError(
            f"{path} holds a tensor without data (of the device meta); save it from a CPU or GPU"
        )
    return as_array(tensor)


def _only(shapes: Mapping[Any, Sequence[int]], path: Path) -> Any:
    """The one name among them."""
    if len(shapes) != 1:
        some = ", ".join(f"{name} {tuple(shape)}" for name, shape in list(shapes.items())[:3])
        raise ScoresError(f"{path} holds {len(shapes)} arrays ({some}), expected one; save that one alone")
    return next(iter(shapes))


_READERS: dict[str, Callable[[Path], NDArray[Any]]] = {
    ".safetensors": _read_safetensors,
    ".pt": _read_torch,
    ".pth": _read_torch,
}
