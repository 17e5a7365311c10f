"""SPS: Seeking Proxy Point via Stable Feature Space for Noisy Correspondence Learning.

Xie et al., IJCAI 2025. https://doi.org/10.24963/ijcai.2025/231

Two networks divide the pairs for each other, as in NCR, with InfoNCE instead of the triplet and three sets of pairs:
strictly clean, clean (partially matched) and noisy. Strictly clean pairs also stabilise the feature space: their
similarity matrix should be symmetric (cross-transformation consistency), and distances within images should equal those
within captions (metric consistency). A noisy image uses the caption of the nearest strictly clean image, its proxy.

We follow the published code; the paper's text was not available, so equations have no numbers here. Deviations, each at
its line:
  * both directions' cross entropies are added, not averaged (in ``kit/co_teaching.py``);
  * proxies are searched in the current batch;
  * a division above ``strict_threshold``, see ``faults``, and empty sets, at which the code stops;
  * a batch of one ends the code's epoch, or skips its step; we skip a single left-over pair;
  * the code restores the best epoch of the warm-up, and uses untrained networks if there is none. Here training
    continues from the end of the warm-up;
  * backbones that pool (none published): the pooled vector replaces the mean over an image's regions or a caption's
    words.
"""

import torch
from pydantic import NonNegativeFloat, NonNegativeInt
from torch import Tensor

from baselines.kit.backbone import Backbone, overall
from baselines.kit.batches import Batch, TrainingBatches
from baselines.kit.co_teaching import (
    ContrastiveConfig,
    ContrastiveCoTeaching,
    Faults,
    batches_in_turn,
    refined_label,
)
from baselines.kit.losses import matching_probability
from baselines.kit.method import EpochPlan, Step
from baselines.kit.mixture import exceeds
from baselines.kit.options import Share, ShareBelowOne

SMALLEST_PRODUCT = 1e-8


class SPSConfig(ContrastiveConfig):
    """The other constants of the published code.

    Attributes:
        strict_threshold: pairs with a probability above it are strictly clean, in [0, 1) (code: 0.6).
        label_threshold: labels of noisy images with their proxies below it become 0, in [0, 1] (code: 0.5).
        symmetry_weight: at least 0 (code: 25).
        geometry_weight: at least 0 (code: 25).
        clean_from_epoch: first epoch after the warm-up with clean batches (code: 10).
    """

    strict_threshold: ShareBelowOne = 0.6
    label_threshold: Share = 0.5
    symmetry_weight: NonNegativeFloat = 25.0
    geometry_weight: NonNegativeFloat = 25.0
    clean_from_epoch: NonNegativeInt = 10


def three_sets(
    probability: Tensor, threshold: float, strict_threshold: float, faults: Faults = "repaired"
) -> tuple[Tensor, Tensor, Tensor]:
    """Strictly clean, clean and noisy pairs by one network's probabilities ``(n,)``, bool ``(n,)`` each."""
    above, strict = exceeds(probability, threshold), probability > strict_threshold
    # if every probability exceeds the strict threshold, the lowest hundredth is noisy; fault of the code:
    # strictly clean too
    return strict if faults == "published" else strict & above, above & ~strict, ~above


def cosines(items: Tensor, others: Tensor) -> Tensor:
    """Cosine of every item with every other item, float ``(n, others)``; 0 for a zero vector."""
    lengths, other_lengths = (torch.linalg.vector_norm(vectors, dim=1) for vectors in (items, others))
    products: Tensor = lengths[:, None] * other_lengths[None, :]
    return items @ others.T / products.clamp(min=SMALLEST_PRODUCT)


def symmetry_loss(similarities: Tensor) -> Tensor:
    """Mean squared difference of S ``(B, B)`` and its transpose, scalar."""
    # image i and caption j should be as alike as image j and caption i
    return (similarities - similarities.T).square().mean()


def geometry_loss(images: Tensor, captions: Tensor) -> Tensor:
    """Mean squared difference of the cosines within images ``(B, dim)`` and within captions ``(B, dim)``, scalar."""
    return (cosines(images, images) - cosines(captions, captions)).square().mean()


def proxy_label(prediction: Tensor, likeness: Tensor, threshold: float) -> Tensor:
    """``p c``, ``(n,)``, labels of noisy images with their proxies' captions; below the threshold 0."""
    label = prediction * likeness
    # a doubtful proxy teaches nothing, in place of teaching a little
    return label.where(label >= threshold, 0.0)


class SPS(ContrastiveCoTeaching):
    """Two networks, each trained on the division that the other one makes, and on proxies that it finds itself."""

    name = "sps"
    title = "SPS"
    paper = "https://doi.org/10.24963/ijcai.2025/231"
    variants = (("faults", "published", "the code's fault"),)
    Config = SPSConfig
    config: SPSConfig

    def divide(self, k: int, batches: TrainingBatches) -> tuple[Tensor, Tensor, Tensor]:
        """Three sets for network k, int64 each; all pairs are strictly clean if fewer than two would be."""
        c, probability = self.config, self.clean_probability[1 - k]
        ids = batches.pair_ids.to(probability.values.device)
        sets = three_sets(probability.read(ids), c.clean_threshold, c.strict_threshold, c.faults)
        strict, clean, noisy = (ids[chosen] for chosen in sets)
        # too few to take turns with: the division has separated nothing
        return (strict, clean, noisy) if len(strict) > 1 else (ids, ids[:0], ids[:0])

    def train_network(self, k: int, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Train once over the strictly clean pairs, later with a clean and a noisy batch after each."""
        c, network = self.config, self.networks[k]
        w = self.clean_probability[1 - k]
        strict_ids, clean_ids, noisy_ids = self.divide(k, batches)
        clean_ids = clean_ids if plan.epoch >= c.clean_from_epoch else clean_ids[:0]
        noisy_ids = noisy_ids if plan.epoch >= c.noisy_from_epoch else noisy_ids[:0]
        for strict, clean, noisy in batches_in_turn(k, batches, strict_ids, clean_ids, noisy_ids):
            # compute all labels before the first step changes the network
            if clean is not None:
                label = refined_label(w.read(clean.pair_ids), self.predict(network, clean))
            if noisy is not None:
                proxies, proxy_labels = self.proxies(network, strict, noisy)
            self.strict_step(network, strict, step)
            if clean is not None:
                self.train_step(network, clean, label, step)
            if noisy is not None:
                self.proxy_step(network, strict, noisy, proxies, proxy_labels, step)

    def strict_step(self, network: Backbone, batch: Batch, step: Step) -> None:
        """Train on a strictly clean batch with full weight, under both constraints."""
        c, output = self.config, network.train()(batch)
        contrast = self.pair_losses(output.similarities).mean()
        symmetry = symmetry_loss(output.similarities)
        geometry = geometry_loss(overall(output.images), overall(output.captions))
        loss = (
            contrast + c.symmetry_weight * symmetry + c.geometry_weight * geometry + output.auxiliary.mean()
        )
        step(network, loss, batch, contrast=contrast, symmetry=symmetry, geometry=geometry)

    def train_step(self, network: Backbone, batch: Batch, labels: Tensor, step: Step) -> None:
        """A batch with labels ``(B,)``."""
        output = network.train()(batch)
        losses = self.pair_losses(output.similarities) + output.auxiliary
        step(network, (labels * losses).mean(), batch)

    def proxy_step(
        self, network: Backbone, strict: Batch, noisy: Batch, proxies: Tensor, labels: Tensor, step: Step
    ) -> None:
        """Train on the noisy images with the captions of their proxies."""
        network.train()
        images = network.encode_images(noisy.image_features, noisy.image_lengths)
        # encoded anew, in training mode: proxies get a gradient too; two images with one caption make its
        # copies negatives of each other
        captions = network.captions_of(strict).chosen(proxies)
        losses = labels * self.pair_losses(network.compare(images, captions))
        step(network, losses.mean(), noisy)

    @torch.no_grad()
    def proxies(self, network: Backbone, strict: Batch, noisy: Batch) -> tuple[Tensor, Tensor]:
        """Find the strictly clean pair nearest to each noisy image, and the image's label with that pair's caption.

        Args:
            network: put into evaluation mode.
            strict: B strictly clean pairs.
            noisy: n noisy pairs; only their images are used.

        Returns:
            Rows of ``strict``, int64 ``(n,)``, and labels in [0, 1], ``(n,)``.
        """
        c = self.config
        donors, captions = network.eval().encode(strict)
        images = network.encode_images(noisy.image_features, noisy.image_lengths)
        # among the strictly clean pairs of this batch alone, as in the code, not of the whole set
        likeness, nearest = cosines(overall(images), overall(donors)).max(dim=1)
        similarities = network.compare(images, captions.chosen(nearest))
        prediction = matching_probability(similarities, c.temperature)
        return nearest, proxy_label(prediction, likeness, c.label_threshold)
