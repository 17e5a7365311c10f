"""Changes of training batches: words and regions masked, replaced or dropped (CRCL, supplement B.1; IN2R).

Every function returns a new batch and never writes to its tensors, which may share memory with the loaded dataset.
Random numbers come from torch's CPU generator, whatever the device.
"""

from dataclasses import replace

import torch
from torch import Tensor

from baselines.kit.batches import Batch, to_device

MASKED_SHARE = 0.5
REPLACED_SHARE = 0.1
BLANK = 1e-10


def augmented(
    batch: Batch, *, word_change: float, region_change: float, vocabulary_size: int, fixed_regions: bool
) -> Batch:
    """Drop or mask words and regions (supplement B.1; published code).

    Args:
        batch: batch to change.
        word_change: see :func:`change_words`.
        region_change: see :func:`drop_regions` and :func:`blank_regions`.
        vocabulary_size: with ``<mask>``, the last word.
        fixed_regions: whether the backbone needs a fixed number of regions.
    """
    batch = change_words(batch, word_change, mask_word=vocabulary_size - 1, vocabulary_size=vocabulary_size)
    return (blank_regions if fixed_regions else drop_regions)(batch, region_change)


def change_words(batch: Batch, probability: float, *, mask_word: int, vocabulary_size: int) -> Batch:
    """Change random tokens: half of them become ``<mask>``, a tenth any word, the rest are dropped.

    Start and end tokens are changed like the others. A caption keeps at least its first token.

    Args:
        batch: captions with at least one token each.
        probability: probability of changing a token, in [0, 1] (CRCL's code: 0.2).
        mask_word: id of ``<mask>``.
        vocabulary_size: replacements are drawn from the ids 0 to ``vocabulary_size - 1``.

    Returns:
        The batch with new, shorter captions.
    """
    tokens = batch.caption_tokens
    touched = torch.rand(tokens.shape) < probability
    fate = torch.rand(tokens.shape)
    masked = touched & (fate < MASKED_SHARE)
    replaced = touched & ~masked & (fate < MASKED_SHARE + REPLACED_SHARE)
    any_word = torch.randint(vocabulary_size, tokens.shape)
    # the code changes start and end tokens like words
    kept = ~touched | masked | replaced
    new_word = any_word.masked_fill(masked, mask_word)
    changed = torch.where(
        to_device(masked | replaced, tokens.device), to_device(new_word, tokens.device), tokens
    )
    caption_tokens, caption_lengths = compacted(changed, batch.caption_lengths, kept)
    return replace(batch, caption_tokens=caption_tokens, caption_lengths=caption_lengths)


def drop_regions(batch: Batch, probability: float) -> Batch:
    """Drop random regions, for backbones that pool any number of them; an image keeps at least its first.

    Args:
        batch: images with at least one region each.
        probability: probability of dropping a region, in [0, 1] (CRCL's code: 0.2).

    Returns:
        The batch with fewer regions: the kept ones move up, ``image_lengths`` counts them.
    """
    kept = torch.rand(batch.image_features.shape[:2]) >= probability
    image_features, image_lengths = compacted(batch.image_features, batch.image_lengths, kept)
    return replace(batch, image_features=image_features, image_lengths=image_lengths)


def blank_regions(batch: Batch, probability: float) -> Batch:
    """Set random regions to 1e-10, for backbones with a fixed number of regions.

    Args:
        batch: any images.
        probability: probability of blanking a region, in [0, 1] (CRCL's code: 0.2).

    Returns:
        The batch with as many regions as before.
    """
    features = batch.image_features
    # the code writes into the loaded features, so its masks accumulate over the epochs; this is a copy
    blank = to_device(torch.rand(features.shape[:2]) < probability, features.device)
    return replace(batch, image_features=features.masked_fill(blank[..., None], BLANK))


def compacted(items: Tensor, lengths: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """Keep some items of every row, in order, moved to the front.

    Args:
        items: ``(n, longest)`` or ``(n, longest, dim)``.
        lengths: int64 ``(n,)``, valid items of each row, at least 1, on the CPU.
        kept: bool ``(n, longest)``, on the CPU; a row without any keeps its first item.

    Returns:
        The kept items, zero beyond the new lengths and cut to the longest, and the new lengths.
    """
    kept = kept & (torch.arange(kept.shape[1]) < lengths[:, None])
    # nothing would be left: the first item stays
    kept[:, 0] |= ~kept.any(dim=1)
    counts = kept.sum(dim=1)
    # a stable sort of 0 and 1 moves kept items up and keeps their order, without a loop over rows
    order = (~kept).long().argsort(dim=1, stable=True)[:, : int(counts.max())]
    beyond = to_device(torch.arange(order.shape[1]) >= counts[:, None], items.device)
    order = to_device(order, items.device)
    if items.dim() == 3:
        order, beyond = order[..., None].expand(-1, -1, items.shape[2]), beyond[..., None]
    return items.gather(1, order).masked_fill(beyond, 0), counts
