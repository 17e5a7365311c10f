"""NCR: Learning with Noisy Correspondence for Cross-modal Matching. Huang et al., NeurIPS 2021.

https://proceedings.neurips.cc/paper/2021/hash/f5e62af885293cf4d511ceef31e61c80-Abstract.html

Networks memorise clean pairs first, so a mixture over the per-pair loss tells clean from noisy pairs
(co-divide); predictions of two networks turn the labels soft (co-rectify); soft labels become the margin of a
triplet loss with hardest negatives (robust matching).

Deviations between paper and published code, each at its line; we follow the code unless said otherwise:
  * the loss of the division (Eq. 2) is a mean in place of sums;
  * the mixture (Eq. 3) sees losses scaled to [0, 1] and takes ten iterations (in ``kit/mixture.py``);
  * labels of clean batches are matrices (Eq. 4), see ``label_shape``;
  * predictions come from costs instead of similarities (Eq. 5);
  * noisy batches begin in the middle of training (Algorithm 1), as gradient steps of their own;
  * divisions that separate nothing, and batches of one pair (in ``kit/mixture.py`` and ``kit/batches.py``);
  * the embedding size is 2048 in the paper and 1024 in the code;
  * Adam's rate is the default 1e-3 in the paper; the code has 2e-4 and a decay.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt
from torch import Tensor

from baselines.kit.backbone import Backbone
from baselines.kit.batches import Batch, TrainingBatches
from baselines.kit.co_teaching import CoTeaching
from baselines.kit.losses import Curve, hardest_triplet, matching_prediction, mean_triplet, soft_margin
from baselines.kit.method import EpochPlan, Step, WarmUpThenStepDecay
from baselines.kit.options import ShareBelowOne


class NCRConfig(WarmUpThenStepDecay):
    """Every constant of the paper, in its order.

    Attributes:
        margin: alpha of Eq. 2 and Eq. 7, at least 0 (section 4.2: 0.2).
        clean_threshold: pairs with w above it are clean, in [0, 1) (Algorithm 1: 0.5).
        curve: maps a label to a margin; Eq. 7 is ``exponential``, the others are the supplement's.
        curve_base: m of Eq. 7, above 1 (section 4.2: 10).
        label_shape: one label per pair (``paper``), or the code's matrix of a clean batch (``published``).
        co_divide: False trains on all pairs alike, each with the second label of Eq. 4 (Table 4).
        co_rectify: False trains on clean pairs only, each with label 1 (Table 4).
        warmup_epochs: epochs with Eq. 2 (code: 5 Flickr30K, 10 COCO and CC152K).
        epochs: epochs of Algorithm 1 (code: 40 Flickr30K and CC152K, 20 COCO).
        learning_rate: learning rate of Adam (code: 2e-4).
        warmup_learning_rate: learning rate of the warm-up (default, as published: ``learning_rate``).
        lr_update: epochs between decays, counted after the warm-up (code: 30; COCO 10).
        lr_decay: factor of a decay (code: 0.1).
    """

    margin: NonNegativeFloat = 0.2
    clean_threshold: ShareBelowOne = 0.5
    curve: Curve = "exponential"
    curve_base: Annotated[float, Field(gt=1)] = 10.0
    label_shape: Literal["published", "paper"] = "published"
    co_divide: bool = True
    co_rectify: bool = True
    warmup_epochs: NonNegativeInt = 5


def rectified_clean_label(clean_probability: Tensor, prediction: Tensor, shape: str) -> Tensor:
    """Eq. 4, first line: ``w + (1 - w) P``; ``(B, B)`` as published, ``(B,)`` as in the paper."""
    # the code has w as a column and P as a row, so entry (i, j) is w_i + (1 - w_i) P_j
    w = clean_probability[:, None] if shape == "published" else clean_probability
    return w + (1 - w) * prediction


def rectified_noisy_label(prediction: Tensor, peer_prediction: Tensor) -> Tensor:
    """Eq. 4, second line: the mean of both networks' predictions, ``(B,)``."""
    return (prediction + peer_prediction) / 2


def ncr_triplet(similarities: Tensor, labels: Tensor, config: NCRConfig) -> Tensor:
    """L_soft of Eq. 6, ``(B,)``: hardest negatives, margin from the label.

    Args:
        similarities: float ``(B, B)``.
        labels: in [0, 1]; ``(B, B)`` entry by entry, or ``(B,)`` per pair.
        config: curve and label shape.
    """
    margins = soft_margin(labels, config.margin, config.curve, config.curve_base)
    if margins.dim() == 2:
        return hardest_triplet(similarities, margins)
    # the code keeps labels of noisy batches as a column: row i of both directions has the margin of image i,
    # which is right for image queries; the paper has one margin per pair
    rows, columns = margins[:, None], margins[None, :]
    return hardest_triplet(similarities, rows, rows if config.label_shape == "published" else columns)


class NCR(CoTeaching):
    """Two networks, each trained on the other's division; optimisers continue after the warm-up."""

    name = "ncr"
    title = "NCR"
    paper = "https://proceedings.neurips.cc/paper/2021/hash/f5e62af885293cf4d511ceef31e61c80-Abstract.html"
    variants = (("label_shape", "paper", "the paper's label shape"),)
    Config = NCRConfig
    config: NCRConfig

    def warmup_step(self, k: int, batch: Batch, step: Step) -> None:
        """Eq. 2."""
        self.train_step(self.networks[k], batch, None, step)

    def pair_losses(self, similarities: Tensor) -> Tensor:
        """Eq. 2; the mixture of Eq. 3 divides the pairs by it."""
        return mean_triplet(similarities, self.config.margin)

    def train_network(self, k: int, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Co-rectify and train network k on its peer's division."""
        c, network, probability = self.config, self.networks[k], self.clean_probability[1 - k]
        if not c.co_divide:
            for batch in batches.shuffled("undivided", k):
                self.train_step(network, batch, self.noisy_label(batch), step)
            return
        # Algorithm 1 samples noisy batches in every epoch; the code only in the second half
        train_noisy = c.co_rectify and plan.epoch >= c.epochs // 2
        for clean, noisy in self.divided_batches(k, batches, noisy=train_noisy):
            w = probability.read(clean.pair_ids)
            label = torch.ones_like(w)
            if c.co_rectify:
                label = rectified_clean_label(w, self.predict(network, clean), c.label_shape)
            labelled = [(clean, label)]
            if noisy is not None:
                labelled.append((noisy, self.noisy_label(noisy)))
            # both labels are computed before the first step; the code takes a step on each batch, line 11 of
            # Algorithm 1 one on both
            for batch, label in labelled:
                self.train_step(network, batch, label, step)

    def train_step(self, network: Backbone, batch: Batch, label: Tensor | None, step: Step) -> None:
        """Eq. 6 with the rectified labels, or Eq. 2 without labels."""
        output = network.train()(batch)
        auxiliary = output.auxiliary
        if label is None:
            # a mean over the B entries of a row, of which the own one is zero; Eq. 2 has sums
            losses = mean_triplet(output.similarities, self.config.margin)
        else:
            losses = ncr_triplet(output.similarities, label, self.config)
            # the captioner of VSRN trusts a pair as far as its own label does
            auxiliary = auxiliary * (label.diagonal() if label.dim() == 2 else label)
        step(network, losses.sum() + auxiliary.mean(), batch)

    def noisy_label(self, batch: Batch) -> Tensor:
        """Eq. 4, second line, from both networks in their current state."""
        first, second = (self.predict(network, batch) for network in self.networks)
        return rectified_noisy_label(first, second)

    @torch.no_grad()
    def predict(self, network: Backbone, batch: Batch) -> Tensor:
        """P of a batch in evaluation mode."""
        # the paper does not name the mode; batch statistics and dropout would change P from call to call
        return matching_prediction(network.eval()(batch).similarities, self.config.margin)
