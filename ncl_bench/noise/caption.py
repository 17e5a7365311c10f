"""Unit ``caption``: captions exchange their images one by one (NCR and its successors)."""

import numpy as np
from numpy.typing import NDArray

from ncl_bench.noise.unit import Task, Unit, permute_some


def draw(task: Task) -> NDArray[np.int64]:
    """Permute the images of ``int(ratio * n_captions)`` captions."""
    return permute_some(task.clean, task.ratio, task.random)


CAPTION = Unit("caption", "captions moved", draw)
