"""Pictures of dev and test that look like a training picture, by the shipped features.

The build joined concepts by the mean of all 1,280 numbers of the CNN, not centred. The shipped features are 64
principal components, centred on the training regions. They find pairs that the build took for different.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data.pictograms import EMOJI, NEAR_PAIRS, SPEC, WEB, Pictograms
from ncl_bench.files import write_text
from ncl_bench.tables import as_csv
from tools.pictograms.split import NEAR


def near_training_pictures(spec: Pictograms) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield dataset, split, image, training image and cosine of every near pair, in the order of the split.

    The vector of a picture is the mean of its 16 shipped regions; vectors are not centred again. A pair is near if the
    cosine of its two vectors is above ``NEAR``.
    """
    train = spec.content("train")
    directions = _directions(np.asarray(train.image_features))
    for split in ("dev", "test"):
        content = spec.content(split)
        cosines = _directions(np.asarray(content.image_features)) @ directions.T
        for row, column in zip(*np.nonzero(cosines > NEAR), strict=True):
            names = str(content.image_ids[row]), str(train.image_ids[column])
            yield spec.name, split, *names, f"{cosines[row, column]:.4f}"


def _directions(features: NDArray[np.float32]) -> NDArray[np.float64]:
    """Unit vectors of the mean regions, float64 ``(n, dim)``."""
    means = features.mean(axis=1, dtype=np.float64)
    units: NDArray[np.float64] = means / np.linalg.norm(means, axis=1, keepdims=True)
    return units


def near_pairs_table() -> str:
    """Format ``near_pairs.csv``: the near pairs of the three datasets."""
    columns = ("dataset", "split", "image_id", "train_image_id", "cosine")
    return as_csv([columns, *(pair for spec in (SPEC, EMOJI, WEB) for pair in near_training_pictures(spec))])


def write_near_pairs() -> str:
    """Write the shipped table, and return how many pictures of each split have a near training picture."""
    table = near_pairs_table()
    write_text(NEAR_PAIRS, table)
    held_out = {tuple(line.split(",")[:3]) for line in table.splitlines()[1:]}
    lines = [
        f"{spec.name}: {sum(one[:2] == (spec.name, split) for one in held_out)} of {spec.images[split]:,} in {split}"
        for spec in (SPEC, EMOJI, WEB)
        for split in ("dev", "test")
    ]
    return "\n".join(lines)
