"""RCL: Cross-Modal Retrieval with Partially Mismatched Pairs. Hu et al., IEEE TPAMI 2023.

https://doi.org/10.1109/TPAMI.2023.3247939

Complementary contrastive learning: instead of "image i matches caption i", which is wrong for a false pair, the network
learns "image i does not match caption j", which is nearly always right. One network, one loss, no division of the
pairs, no memory and no warm-up.

Deviations and choices, most at their line; we follow the published code unless said otherwise:
  * floors of denominators and logarithms;
  * the main table uses the ``log`` penalty, the code's default: its row of RCL-SGR for MS-COCO at 60 % equals, digit
    for digit, the row of L_log in the paper's comparison of losses, and not the row of L_tan;
  * one mask of negatives for both directions; ``negative_ratio`` 1 is the code's -1;
  * ``q`` of ``gce`` is the code's option ``margin``;
  * schedules are those of the training scripts (Flickr30K since April 2023; SGR and SAF alike). The README and the
    first scripts train Flickr30K at 5e-4 for 40 epochs with lr_update 30 (SGR) or for 30 with lr_update 20 (SAF).
    Nothing is documented for CC152K, whose captions the code cannot read: its recipes use the schedule of Flickr30K;
  * the published vocabulary ends in a ``<mask>`` that no caption contains; here it is left out;
  * the published code fails if the last batch is a single pair; we skip that pair.
"""

from typing import Literal, get_args

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from baselines.kit.batches import TrainingBatches, derive_seed, to_device
from baselines.kit.method import EpochPlan, Method, Step, StepDecay
from baselines.kit.options import ShareAboveZero

SUM_FLOOR = 1e-10
LARGEST_EXPONENT = 80.0
"""Largest exponent of a sum in float32; rows above it are shifted, which changes no quotient."""

Penalty = Literal["log", "tan", "abs", "exp", "gce", "info_nce"]


class RCLConfig(StepDecay):
    """Every constant of the method.

    Attributes:
        temperature: tau, above 0 (code: 0.05).
        penalty: cost of a negative, see :func:`penalised` (code: ``log``); ``info_nce`` is the plain contrastive loss
            of the paper's comparison, which uses the given pair only.
        q: exponent of ``gce``, in (0, 1] (code: 0.2).
        negative_ratio: share of a batch drawn as negatives of each query, in (0, 1] (code: 1, all).
        epochs: passes over the pairs (code: 30 Flickr30K, 20 COCO).
        learning_rate: learning rate of Adam (code: 2e-4 Flickr30K, 5e-4 COCO).
        lr_update: epochs between decays (code: 15 Flickr30K, 10 COCO).
        lr_decay: factor of a decay (code: 0.1).
    """

    temperature: PositiveFloat = 0.05
    penalty: Penalty = "log"
    q: ShareAboveZero = 0.2
    negative_ratio: ShareAboveZero = 1.0
    epochs: PositiveInt = 30
    lr_update: PositiveInt = 15


def matching_probabilities(similarities: Tensor, temperature: float) -> Tensor:
    """p, ``(B, B)``: of each caption given the row's image; transpose the similarities for captions."""
    logits = similarities / temperature
    # IMRAM's sums can exceed it
    excess = (logits.detach().amax(dim=1, keepdim=True) - LARGEST_EXPONENT).clamp(min=0)
    powers = (logits - excess).exp()
    # a softmax, with 1e-10 in its denominator as in the code
    return powers / (powers.sum(dim=1, keepdim=True) + SUM_FLOOR)


def penalised(probability: Tensor, config: RCLConfig) -> Tensor:
    """Cost of this probability for a negative, in [0, 1]; increasing."""
    if config.penalty == "tan":
        return probability.tan()
    if config.penalty == "abs":
        return probability
    if config.penalty == "exp":
        return (probability - 1).exp()
    # a p that float32 rounds to 1 costs 23.03, and its gradient is noise; with similarities in (0, 1) and
    # batches of 128, as published, none does
    complement = 1 - probability + SUM_FLOOR
    if config.penalty == "gce":
        return (1 - complement**config.q) / config.q
    return -complement.log()


def random_negatives(n_pairs: int, ratio: float, seed: int) -> Tensor:
    """The negatives of each query, bool ``(B, B)``: ``int(ratio * B)`` per row, never the pair itself."""
    # a function of its seed; the code draws from one generator that goes on
    order = torch.rand(n_pairs, n_pairs, generator=torch.Generator().manual_seed(seed))
    # a last batch too small for any negative has none, and loss 0
    n_negatives = min(int(ratio * n_pairs), n_pairs - 1)
    chosen = order.fill_diagonal_(2).argsort(dim=1)[:, :n_negatives]
    return torch.zeros(n_pairs, n_pairs, dtype=torch.bool).scatter_(1, chosen, True)


def contrastive_cost(probabilities: Tensor, negatives: Tensor, config: RCLConfig) -> Tensor:
    """One direction of the loss, ``(B,)``: sum of the penalties of a query's negatives."""
    if config.penalty == "info_nce":
        return -probabilities.diagonal().log()
    # a sum, not divided by the number of negatives
    return penalised(probabilities, config).masked_fill(~negatives, 0).sum(dim=1)


def complementary_contrastive(similarities: Tensor, negatives: Tensor, config: RCLConfig) -> Tensor:
    """The loss, ``(B,)``: image i as query plus caption i as query.

    Args:
        similarities: float ``(B, B)``.
        negatives: bool ``(B, B)``; row i serves image i and caption i.
        config: temperature and penalty.
    """
    captions = matching_probabilities(similarities, config.temperature)
    images = matching_probabilities(similarities.T, config.temperature)
    # row i of the mask serves image i and caption i: the code does not transpose it
    return contrastive_cost(captions, negatives, config) + contrastive_cost(images, negatives, config)


class RCL(Method):
    """One network, trained on negatives only."""

    name = "rcl"
    title = "RCL"
    paper = "https://doi.org/10.1109/TPAMI.2023.3247939"
    variants = tuple(("penalty", other, other) for other in get_args(Penalty) if other != "log")
    Config = RCLConfig
    config: RCLConfig

    def train_epoch(self, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Train once over all pairs."""
        c, network = self.config, self.networks[0].train()
        for k, batch in enumerate(batches.shuffled("rcl")):
            seed = derive_seed(batches.seed, "negatives", plan.epoch, k)
            negatives = to_device(random_negatives(len(batch), c.negative_ratio, seed), batch.pair_ids.device)
            output = network(batch)
            losses = complementary_contrastive(output.similarities, negatives, c)
            step(network, losses.mean() + output.auxiliary.mean(), batch)
