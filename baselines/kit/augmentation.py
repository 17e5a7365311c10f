"""Augmentation of training batches: words and regions are masked, replaced or left out at random.

Every function returns a new batch and never writes to the tensors it was given, which may share memory with
the loaded dataset. Random numbers come from torch's global generator on the host, whatever the device: so the host
knows the new lengths, and a batch is changed alike on every device.
"""

from dataclasses import replace

import torch
from torch import Tensor

from baselines.kit.batches import Batch
from baselines.kit.on_host import on_host, sent, uploaded

MASKED_SHARE = 0.5
REPLACED_SHARE = 0.1
BLANK = 1e-10


def change_words(batch: Batch, probability: float, *, mask_word: int, vocabulary_size: int) -> Batch:
    """Touch each token: half of the touched become ``<mask>``, a tenth any word, the rest are left out.

    Start and end tokens are touched like the others. A caption keeps at least its first token.

    Args:
        batch: captions with at least one token each.
        probability: of touching a token, in [0, 1] (CRCL's code: 0.2).
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
    kept = ~touched | masked | replaced
    new_word = any_word.masked_fill(masked, mask_word)
    changed = torch.where(sent(masked | replaced, tokens.device), sent(new_word, tokens.device), tokens)
    caption_tokens, caption_lengths = compacted(changed, batch.caption_lengths, kept)
    return replace(batch, caption_tokens=caption_tokens, caption_lengths=caption_lengths)


def drop_regions(batch: Batch, probability: float) -> Batch:
    """Leave out each region, for backbones that pool any number of them; an image keeps at least its first.

    Args:
        batch: images with at least one region each.
        probability: of leaving out a region, in [0, 1] (CRCL's code: 0.2).

    Returns:
        The batch with fewer regions: the kept ones move up, ``image_lengths`` counts them.
    """
    kept = torch.rand(batch.image_features.shape[:2]) >= probability
    image_features, image_lengths = compacted(batch.image_features, batch.image_lengths, kept)
    return replace(batch, image_features=image_features, image_lengths=image_lengths)


def blank_regions(batch: Batch, probability: float) -> Batch:
    """Set each region to 1e-10 throughout, for backbones with a fixed number of regions.

    Args:
        batch: any images.
        probability: of blanking a region, in [0, 1] (CRCL's code: 0.2).

    Returns:
        The batch with as many regions as before.
    """
    features = batch.image_features
    blank = sent(torch.rand(features.shape[:2]) < probability, features.device)
    return replace(batch, image_features=features.masked_fill(blank[..., None], BLANK))


def compacted(items: Tensor, lengths: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """Keep some items of every row, in order, moved to the front.

    Args:
        items: ``(n, longest)`` or ``(n, longest, dim)``.
        lengths: int64 ``(n,)``, valid items of each row, at least 1.
        kept: bool ``(n, longest)``, on the host; the first item stands in where a row would be empty.

    Returns:
        The kept items, zero beyond the new lengths and cut to the longest, and the new lengths.
    """
    kept = kept & (torch.arange(kept.shape[1]) < on_host(lengths)[:, None])
    kept[:, 0] |= ~kept.any(dim=1)
    counts = kept.sum(dim=1)
    order = (~kept).long().argsort(dim=1, stable=True)[:, : int(counts.max())]
    order, new_lengths = sent(order, items.device), uploaded(counts, items.device)
    beyond = torch.arange(order.shape[1], device=items.device) >= new_lengths[:, None]
    if items.dim() == 3:
        order, beyond = order[..., None].expand(-1, -1, items.shape[2]), beyond[..., None]
    return items.gather(1, order).masked_fill(beyond, 0), new_lengths
