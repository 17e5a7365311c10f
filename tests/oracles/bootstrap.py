"""Bootstrap of recalls by loops: draw images, look up their queries, count."""

from collections.abc import Sequence

import numpy as np


def resampled_recalls(
    i2t: Sequence[int], t2i: Sequence[int], images_per_fold: int, n_resamples: int, k: int
) -> tuple[list[float], list[float]]:
    """Recall at ``k`` of both directions in every resample; images are drawn within their fold."""
    n_images, each = len(i2t), len(t2i) // len(i2t)
    random = np.random.RandomState(0)
    drawn: list[list[int]] = [[] for _ in range(n_resamples)]
    for first in range(0, n_images, images_per_fold):
        for images in drawn:
            images += [
                first + int(random.randint(0, images_per_fold, dtype=np.int64))
                for _ in range(images_per_fold)
            ]
    recalls: tuple[list[float], list[float]] = ([], [])
    for images in drawn:
        captions = [image * each + own for image in images for own in range(each)]
        recalls[0].append(100 * sum(i2t[image] <= k for image in images) / len(images))
        recalls[1].append(100 * sum(t2i[caption] <= k for caption in captions) / len(captions))
    return recalls
