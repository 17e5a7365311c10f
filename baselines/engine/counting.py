"""Ranks of scores that are on a GPU already: counted there, the same integers as ncl_bench.evaluation.ranks."""

import numpy as np
import torch
from torch import Tensor

from ncl_bench.data import dataset_spec
from ncl_bench.evaluation.protocol import check_matrix, evaluate_counted, split_fold_size
from ncl_bench.evaluation.ranks import Counted, Geometry, Ranks, refuse_non_finite
from ncl_bench.evaluation.results import Evaluation

BLOCK = 250
"""Rows compared at a time."""


def evaluate(
    similarities: Tensor, *, dataset: str, split: str = "test", intervals: bool = True
) -> Evaluation:
    """Every metric of every protocol of a split, counted where the scores are.

    Args:
        similarities: float16, bfloat16, float32 or float64 ``(n_images, n_captions)``, on any device.
        dataset: its name.
        split: ``test`` or ``dev``.
        intervals: compute the bootstrap intervals.

    Raises:
        DataError: dataset or split is unknown.
        ScoresError: dtype or shape is wrong, or a score is not finite.
    """
    spec = dataset_spec(dataset)
    dtype = {torch.float16: "f2", torch.bfloat16: "f2", torch.float32: "f4", torch.float64: "f8"}
    check_matrix(tuple(similarities.shape), np.dtype(dtype.get(similarities.dtype, "V1")), spec, split)
    counted = count_ranks(
        similarities,
        captions_per_image=spec.captions_per_image,
        images_per_fold=split_fold_size(spec, split),
    )
    return evaluate_counted(counted, spec, split, intervals=intervals)


@torch.no_grad()
def count_ranks(
    similarities: Tensor, *, captions_per_image: int, images_per_fold: int | None = None, block: int = BLOCK
) -> Counted:
    """Ranks of every query among all items and, where asked for, among the items of its fold.

    Args:
        similarities: float ``(n_images, n_images * captions_per_image)``, on any device.
        captions_per_image: a fact of the dataset.
        images_per_fold: size of consecutive folds, or None.
        block: rows compared at a time; the result does not depend on it.

    Raises:
        ScoresError: a score is not finite.
    """
    n_images, n_captions = similarities.shape
    geometry = Geometry(n_images, n_captions, captions_per_image, images_per_fold or n_images)
    _refuse_non_finite(similarities)
    own = torch.arange(n_captions, device=similarities.device)
    true = similarities[own // captions_per_image, own]
    best = true.view(n_images, captions_per_image).amax(dim=1, keepdim=True)
    i2t = torch.zeros(2, 2, n_images, dtype=torch.int64, device=similarities.device)
    t2i = torch.zeros(2, 2, n_captions, dtype=torch.int64, device=similarities.device)
    for start, stop in geometry.blocks(block):
        rows, fold = similarities[start:stop], geometry.fold_columns(start)
        wrong = own // captions_per_image != torch.arange(start, stop, device=own.device)[:, None]
        for tie, compare in enumerate((torch.ge, torch.gt)):
            beaten = compare(rows, best[start:stop]) & wrong
            i2t[tie, 0, start:stop] = beaten.sum(dim=1)
            i2t[tie, 1, start:stop] = beaten[:, fold].sum(dim=1)
            columns = (compare(rows, true) & wrong).sum(dim=0)
            t2i[tie, 0] += columns
            t2i[tie, 1, fold] += columns[fold]
    ranks = [(1 + side).cpu().numpy() for side in (i2t, t2i)]
    whole, within = (Ranks(ranks[0][0, s], ranks[1][0, s], ranks[0][1, s], ranks[1][1, s]) for s in (0, 1))
    low, high = (float(x) for x in torch.aminmax(similarities))
    name = str(similarities.dtype).removeprefix("torch.")
    return Counted(whole, within if images_per_fold else None, (low, high), name)


def _refuse_non_finite(similarities: Tensor) -> None:
    if not bool(torch.isfinite(similarities.sum())):
        places = (~torch.isfinite(similarities)).nonzero()
        if len(places):
            refuse_non_finite(len(places), (int(places[0, 0]), int(places[0, 1])))
