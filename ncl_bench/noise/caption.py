"""Unit ``caption``: captions exchange their images one by one (NCR and its successors)."""

from ncl_bench.noise.unit import Task, Unit, permute_some
from ncl_bench.npy import Int64Array


def draw(task: Task) -> Int64Array:
    """Permute the images of ``int(ratio * n_captions)`` captions."""
    return permute_some(task.clean, task.ratio, task.random)


CAPTION = Unit("caption", "captions moved", draw)
