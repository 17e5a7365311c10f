"""The true correspondence, kept apart from PairedDataset so that no training loop reads it by accident."""

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data import dataset_spec
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import DataError


def true_correspondence(dataset: PairedDataset) -> NDArray[np.bool_]:
    """Which captions are paired with their own image.

    Args:
        dataset: any split of a dataset with synthetic noise, or a dev or test split; subsets and shards too.

    Returns:
        bool ``(n_captions,)``.

    Raises:
        DataError: the train split of a dataset with natural noise, where nobody knows.
    """
    if dataset.split == "train" and dataset_spec(dataset.name).noise == "natural":
        raise DataError(
            f"{dataset.name}/train carries natural noise, so its true correspondence is unknown; "
            "use a dataset with synthetic noise for diagnosis"
        )
    own: NDArray[np.bool_] = dataset.caption_to_image == dataset.pair_ids // dataset.captions_per_image
    return own
