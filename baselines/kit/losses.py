"""Loss terms that several papers share, as functions of similarities that return one value per pair or cost matrices.

``similarities`` is ``(B, B)`` with images as rows and captions as columns; the diagonal holds the given pairs.
"""

import math
from typing import Literal

import torch
from torch import Tensor

Curve = Literal["exponential", "linear", "sin"]
DENOMINATOR_FLOOR = 1e-10


def hinge_costs(
    similarities: Tensor,
    margin: Tensor | float,
    caption_margin: Tensor | float | None = None,
    *,
    floor: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Pairwise triplet costs ``[margin - S(I, T) + S(negative)]_+``.

    Args:
        similarities: float ``(B, B)``.
        margin: number or tensor that broadcasts to ``(B, B)``; entry (i, j) applies to image i and caption j.
        caption_margin: the same for caption queries; ``margin`` by default.
        floor: smallest cost.

    Returns:
        ``caption_costs`` (row i: image i as query, caption j as negative) and ``image_costs`` (column j:
        caption j as query, image i as negative), both ``(B, B)`` with a zero diagonal.
    """
    caption_margin = margin if caption_margin is None else caption_margin
    given = similarities.diagonal()
    caption_costs = _at_least(floor, margin + similarities - given[:, None])
    image_costs = _at_least(floor, caption_margin + similarities - given[None, :])
    own = torch.eye(len(similarities), dtype=torch.bool, device=similarities.device)
    # the own entry would cost exactly the margin
    return caption_costs.masked_fill(own, 0), image_costs.masked_fill(own, 0)


def _at_least(floor: float, costs: Tensor) -> Tensor:
    # a cost equal to the floor keeps its gradient, as published; clamp drops it in newer versions of torch
    return torch.where(costs < floor, floor, costs)


def mean_triplet(similarities: Tensor, margin: Tensor | float, *, floor: float = 0.0) -> Tensor:
    """Triplet loss over all negatives, ``(B,)``: mean cost of row i plus mean cost of column i (NCR Eq. 2)."""
    caption_costs, image_costs = hinge_costs(similarities, margin, floor=floor)
    # by B, not by the B - 1 negatives, as in NCR's code; Eq. 2 has sums
    return caption_costs.mean(dim=1) + image_costs.mean(dim=0)


def hardest_triplet(
    similarities: Tensor,
    margin: Tensor | float,
    caption_margin: Tensor | float | None = None,
    *,
    floor: float = 0.0,
) -> Tensor:
    """Triplet loss with the hardest negative of the batch on either side, ``(B,)`` (VSE++; NCR Eq. 6)."""
    caption_costs, image_costs = hinge_costs(similarities, margin, caption_margin, floor=floor)
    # the largest cost, not the most similar negative: the same with one margin per query, not with one per
    # entry
    return caption_costs.max(dim=1).values + image_costs.max(dim=0).values


def info_nce(similarities: Tensor, temperature: float) -> Tensor:
    """Symmetric InfoNCE, ``(B,)``: mean of both directions' cross entropies of the given pair."""
    logits = similarities / temperature
    rows = logits.log_softmax(dim=1).diagonal()
    columns = logits.log_softmax(dim=0).diagonal()
    return -(rows + columns) / 2


def matching_probability(similarities: Tensor, temperature: float) -> Tensor:
    """Softmax probability of the given pair within the batch, ``(B,)`` in [0, 1], averaged over both directions."""
    logits = similarities / temperature
    return (logits.softmax(dim=1).diagonal() + logits.softmax(dim=0).diagonal()) / 2


def matching_log_probabilities(similarities: Tensor, temperature: float) -> Tensor:
    """Logarithm of p in CRCL Eq. 3 for image queries, ``(B, B)``; transpose the similarities for caption queries."""
    logits = similarities / temperature
    # the code adds 1e-10 to the denominator of Eq. 3: one more candidate, whose logit is log(1e-10)
    floor = logits.new_full((len(logits), 1), math.log(DENOMINATOR_FLOOR))
    return torch.cat([logits, floor], dim=1).log_softmax(dim=1)[:, :-1]


def soft_margin(labels: Tensor, margin: float, curve: Curve = "exponential", base: float = 10.0) -> Tensor:
    """NCR Eq. 7, shape of ``labels``, in [0, margin]: small for doubtful pairs, ``margin`` for certain ones."""
    if curve == "exponential":
        return margin * (base**labels - 1) / (base - 1)
    if curve == "linear":
        return margin * labels
    return margin * (torch.sin(math.pi * labels - math.pi / 2) + 1) / 2


def matching_prediction(similarities: Tensor, margin: float) -> Tensor:
    """P of NCR Eq. 5, ``(B,)`` in [0, 1]: margin over the negatives, relative to the batch's best tenth."""
    caption_costs, image_costs = hinge_costs(similarities, margin)
    # s of Eq. 5 subtracts the mean similarity of the negatives; the code works with costs, so a negative that is
    # further away than the margin, and the own entry, count as exactly the margin away
    mean_cost = (caption_costs.mean(dim=1) + image_costs.mean(dim=0)) / 2
    advantage = (margin - mean_cost).clamp(0, margin)
    # tau: the largest 10 %, and one more; the code clamps before this mean, Eq. 5 means s itself
    anchor = advantage.topk(len(advantage) // 10 + 1).values.mean()
    # no pair of the batch has an advantage: the code goes on with 0 / 0, we with 0
    return (advantage / anchor).nan_to_num(0.0).clamp(0, 1)
