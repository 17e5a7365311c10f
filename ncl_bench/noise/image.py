"""Unit ``image``: images change places, and their captions with them (DECL, RCL, L2RM)."""

import numpy as np

from ncl_bench.noise.unit import Task, Unit, permute_some
from ncl_bench.npy import Int64Array


def draw(task: Task) -> Int64Array:
    """Permute ``int(ratio * n_images)`` images. No seed gives the files that the papers share."""
    images = np.arange(len(task.clean) // task.captions_per_image)
    # all captions of an image follow it
    return np.repeat(permute_some(images, task.ratio, task.random), task.captions_per_image)


IMAGE = Unit("image", "images moved", draw, whole_images=True)
