"""SCAN one caption at a time, written from the equations of the paper (ECCV 2018).

Slow on purpose: every attended vector is made in full, each caption cut to its words and each image to its
regions. It takes unit vectors and uses none of the network's similarity code.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from baselines.kit.backbone import Encoded

Aggregate = Callable[[Tensor], Tensor]


def similarities(
    images: Encoded,
    captions: Encoded,
    direction: str,
    sharpness: float,
    aggregate: Aggregate,
) -> Tensor:
    """Similarity of every image with every caption, float ``(n_images, n_captions)``.

    Args:
        images: regions.
        captions: words.
        direction: ``t2i``, words look at regions, or ``i2t``.
        sharpness: lambda_1.
        aggregate: cosines ``(n_images, looking items)`` to ``(n_images,)``.
    """
    result = images.vectors.new_zeros(len(images), len(captions))
    for k, length in enumerate(captions.lengths.tolist()):
        for count in images.lengths.unique().tolist():
            same = images.lengths == count
            parts = images.vectors[same, :count]
            words = captions.vectors[k, :length].expand(len(parts), -1, -1)
            looking, seen = (words, parts) if direction == "t2i" else (parts, words)
            result[same, k] = aggregate(look(looking, seen, sharpness))
    return result


def look(looking: Tensor, seen: Tensor, sharpness: float) -> Tensor:
    """Cosines of items with what they attend to, ``(n, looking items)``."""
    attention = torch.softmax(sharpness * leaky_unit(torch.bmm(seen, looking.transpose(1, 2))), dim=1)
    return cosine(looking, torch.bmm(attention.transpose(1, 2), seen))


def leaky_unit(scores: Tensor) -> Tensor:
    """Leaky ReLU, then unit length over the items that look."""
    return unit(nn.functional.leaky_relu(scores, 0.1))


def unit(x: Tensor) -> Tensor:
    """Over its length along the last dimension, 1e-8 added."""
    return x / (x.pow(2).sum(dim=-1, keepdim=True).sqrt() + 1e-8)


def cosine(x: Tensor, y: Tensor) -> Tensor:
    """Along the last dimension; a product of lengths below 1e-8 counts as 1e-8."""
    lengths = x.pow(2).sum(dim=-1).sqrt() * y.pow(2).sum(dim=-1).sqrt()
    return (x * y).sum(dim=-1) / lengths.clamp(min=1e-8)


def mean(cosines: Tensor) -> Tensor:
    """AVG."""
    return cosines.mean(dim=-1)


def log_sum_exp(sharpness: float) -> Aggregate:
    """LSE with lambda_2."""
    return lambda cosines: (sharpness * cosines).exp().sum(dim=-1).log() / sharpness
