"""Training features that stay on the device, so that a step waits for no disk and no bus."""

import numpy as np
import torch
from torch import Tensor

from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import TrainingError

_BLOCK = 512


def features_on(device: torch.device, dataset: PairedDataset) -> Tensor:
    """All image features of a split, in the type they are stored in; float16 takes half the memory of float32.

    Args:
        device: where they go; on a CPU this is main memory.
        dataset: the training split.

    Returns:
        ``(n_images, n_regions, feature_dim)``.

    Raises:
        TrainingError: they do not fit into the GPU's free memory.
    """
    features = dataset.image_features
    dtype = torch.from_numpy(np.empty(0, features.dtype)).dtype
    needed = int(np.prod(features.shape)) * dtype.itemsize
    free = free_memory(device)
    if free is not None and needed > free:
        raise TrainingError(
            f"--features gpu needs {needed / 1e9:.1f} GB for the features of {dataset.name}, but {device} has "
            f"{free / 1e9:.1f} GB free; use --features mapped"
        )
    resident = torch.empty(features.shape, dtype=dtype, device=device)
    for start in range(0, dataset.n_images, _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, dataset.n_images))
        resident[start : start + len(rows)] = torch.from_numpy(features[rows])
    return resident


def free_memory(device: torch.device) -> int | None:
    """Free bytes of a GPU; None for a CPU, which can swap."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None
