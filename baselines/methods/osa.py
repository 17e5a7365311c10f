"""OSA: Debiased Orthogonal Boundary-Driven Efficient Noise Mitigation.

Li et al., 2024. https://arxiv.org/abs/2410.01944

An estimator, the network before training, scores every pair once. For it, unrelated inputs are not orthogonal: they lie
in a cone, with a mean similarity beta. Pairs below beta have weight 0; above it, weights rise with similarity. Equation
numbers refer to the first version.

Where the published code differs from the paper, the default follows the paper and ``faults: published`` the code: beta
(Eq. 4), the weight (Eq. 5), and the schedule (:meth:`baselines.kit.fine_tuning.FineTuning.rate`).

Deviations in either form, each at its line:
  * no pair of a batch above beta, and no pair at all;
  * every pair is scored once, on the whole image;
  * random captions, and beta of backbones that read features;
  * without pre-trained weights the network warms up with InfoNCE first, and keeps a fixed temperature.
"""

from dataclasses import replace

import torch
from torch import Tensor

from baselines.kit.batches import Batch, TrainingBatches, derive_seed, to_device
from baselines.kit.fine_tuning import FineTuning, FineTuningConfig
from baselines.kit.method import PairMemory, Setting, Step
from ncl_bench.errors import TrainingError

RANDOM_WORDS = 100  # random captions use the first ids (code)


class OSAConfig(FineTuningConfig):
    """Schedule and optimiser; the method has no constant of its own."""


def random_pairs(batch: Batch, seed: int) -> Batch:
    """Equally many pairs of random images and captions: numbers in [0, 1), and words of the first hundred."""
    generator = torch.Generator().manual_seed(seed)
    # as many regions and words as a batch of the data, with its start and end tokens and lengths
    images = torch.rand(batch.image_features.shape, generator=generator)
    words = torch.randint(RANDOM_WORDS, batch.caption_tokens.shape, generator=generator)
    device = batch.pair_ids.device
    return replace(batch, image_features=to_device(images, device), caption_tokens=to_device(words, device))


def paired_shift(similarities: Tensor) -> Tensor:
    """beta of Eq. 4, scalar: mean similarity of unrelated inputs ``(K, K)``, image k with caption k."""
    return similarities.diagonal().mean()


def overall_shift(similarities: Tensor) -> Tensor:
    """beta of the published code, scalar: mean over all pairings ``(K, K)`` of unrelated inputs."""
    return similarities.mean()


def mismatched_shift(similarities: Tensor) -> Tensor:
    """beta without random inputs, scalar: mean similarity of images with others' captions; 0 for one pair.

    Args:
        similarities: similarities of given pairs, float ``(B, B)``.
    """
    others = len(similarities) * (len(similarities) - 1)
    return (similarities.sum() - similarities.diagonal().sum()) / max(others, 1)


def pair_weight(similarity: Tensor, shift: Tensor | float) -> Tensor:
    """w of Eq. 5, ``(B,)``: ``z^2 (1 - z)`` with ``z = cos - beta``, 0 for z below 0; largest at z = 2/3."""
    z = (similarity - shift).clamp(min=0)
    return z.square() * (1 - z)


def batch_weight(similarity: Tensor, shift: Tensor | float) -> Tensor:
    """w of the published code, ``(B,)``: ``x^2 (1 - x) (1 + x)``, x the share of the batch's largest z, or 0."""
    z = (similarity - shift).clamp(min=0)
    # the code divides by the largest z of the batch, so its best pair has weight 0; and 0 by 0 if none is
    # above beta
    x = torch.where(z > 0, z / z.max(), 0.0)
    return x.square() * (1 - x) * (1 + x)


class OSA(FineTuning):
    """One network, weighted by its similarities before training.

    Attributes:
        similarity: cosine of each pair under the estimator; 0 before.
        shift: beta, scalar.
    """

    name = "osa"
    title = "OSA"
    paper = "https://arxiv.org/abs/2410.01944"
    Config = OSAConfig
    config: OSAConfig
    shift: Tensor

    def __init__(self, config: OSAConfig, setting: Setting) -> None:
        super().__init__(config, setting)
        self.similarity = PairMemory(setting.n_pairs, initial=0.0)
        self.register_buffer("shift", torch.zeros(()))

    @torch.no_grad()
    def prepare(self, batches: TrainingBatches) -> None:
        """Score every pair and measure beta."""
        network, shifts = self.networks[0].eval(), []
        of_random = overall_shift if self.config.faults == "published" else paired_shift
        # the estimator never changes, so one pass is enough; the code scores every batch again
        for batch in batches.covering("estimate"):
            cosines = network(batch).similarities
            self.similarity.write(batch.pair_ids, cosines.diagonal())
            if not network.reads_images:
                # random numbers are no region features, so the unrelated inputs are captions of other pairs
                shifts.append(mismatched_shift(cosines))
            elif not shifts:
                unrelated = random_pairs(batch, derive_seed(batches.seed, "shift"))
                shifts.append(of_random(network(unrelated).similarities))
        self.shift.copy_(torch.stack(shifts).mean())
        if not (self.similarity.values > self.shift).any():
            raise TrainingError(
                f"no training pair is more similar than unrelated inputs ({self.shift:.3f}), so OSA trusts none; "
                "start from pre-trained weights, or set method.warmup_epochs; found at the start"
            )

    def train_step(self, batch: Batch, rate: float, batches: TrainingBatches, step: Step) -> None:
        """Eq. 6: CLIP's loss of each pair times its weight; the mean includes pairs of weight 0."""
        network = self.networks[0].train()
        output = network(batch)
        losses = self.pair_losses(network, output.similarities) + output.auxiliary
        weigh = batch_weight if self.config.faults == "published" else pair_weight
        weight = weigh(self.similarity.read(batch.pair_ids), self.shift)
        step(network, (weight * losses).mean(), batch, learning_rate=rate, weight=weight.mean())

    def estimates(self) -> dict[str, Tensor]:
        """The estimator's similarity, scaled to [0, 1]."""
        return {"similarity": (1 + self.similarity.values.clamp(-1, 1)) / 2}
