"""A dataset of pairs in memory, of arrays that a test or a benchmark makes."""

import numpy as np

from ncl_bench.data.columns import TokenTable
from ncl_bench.data.paired import PairedDataset
from ncl_bench.data.vocabulary import Vocabulary
from ncl_bench.noise.draw import Noise


def paired_dataset(features, words, lengths, image_of, vocabulary_size, **fields):
    """Pairs of a training split.

    Args:
        features: of images, ``(images, regions, dim)``.
        words: int ``(sum of lengths,)``, of all captions in order.
        lengths: int ``(pairs,)``.
        image_of: int ``(pairs,)``, the image of every caption.
        vocabulary_size: words that there may be.
        fields: in place of the others.
    """
    own = {
        "name": "toy",
        "split": "train",
        "image_features": features,
        "image_ids": np.arange(len(features)),
        "caption_to_image": image_of,
        "pair_ids": np.arange(len(lengths)),
        "tokens": TokenTable(words.astype(np.int32), np.concatenate([[0], np.cumsum(lengths)])),
        "captions": None,
        "vocabulary": Vocabulary(("<pad>", "<start>", "<end>", "<unk>"), vocabulary_size),
        "captions_per_image": 1,
        "noise": Noise(None, ratio=0.0, seed=None, sha256="", realised_ratio=0.0),
        "fingerprint": "",
    }
    return PairedDataset(**own | fields)
