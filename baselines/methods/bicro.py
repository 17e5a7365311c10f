"""BiCro: Noisy Correspondence Rectification via Bi-directional Cross-modal Similarity Consistency.

Yang et al., CVPR 2023. https://arxiv.org/abs/2303.12419

Similar images should have similar captions. How well a pair's image and caption agree on their similarity to anchors,
which are trustworthy pairs, tells how well the pair matches. This soft label becomes the margin of a triplet loss. Two
networks divide the pairs and make labels for each other, as in NCR.

We follow the published code; the paper's text was not available. Deviations, each at its line:
  * anchors come from the clean batch, and clean pairs have labels of at least 0.5;
  * noisy batches begin in the middle of training, each before the clean batch that gave its anchors;
  * margins of an image's costs are those of its negatives, see ``label_shape``;
  * three faults of the code are repaired, see ``faults``;
  * anchors at right angles, and sets or batches that are too small.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn

from baselines.kit.backbone import Backbone, overall
from baselines.kit.batches import Batch, TrainingBatches
from baselines.kit.co_teaching import CoTeaching, Faults
from baselines.kit.distributed import fitted_once
from baselines.kit.losses import Curve, hardest_triplet, mean_triplet, soft_margin
from baselines.kit.method import EpochPlan, Step, WarmUpThenStepDecay
from baselines.kit.mixture import BetaMixture, clean_posterior, fitted_for, is_clean, min_max_normalised
from baselines.kit.options import ShareAboveZero, ShareBelowOne

MIXTURE_UPDATES = 10
DENSITY_FLOOR = 1e-12
EDGE = 1e-4


class BiCroConfig(WarmUpThenStepDecay):
    """Every constant of the paper, in its order.

    Attributes:
        margin: alpha, at least 0 (code: 0.2).
        clean_threshold: pairs with a probability above it are clean, in [0, 1) (scripts: 0.5).
        mixture: mixture over the losses (scripts: ``beta``; ``gaussian`` is NCR's).
        label_threshold: labels up to it become 0; None keeps all (scripts: 0.5).
        curve: maps a label to a margin (scripts: ``exponential``).
        curve_base: base of the exponential curve, above 1 (code: 10).
        label_shape: margin of each pair in both directions (``paper``), or in columns (``published``).
        faults: ``published`` keeps the three faults of the code.
        kept_share: share of a warm-up batch to keep, those with the smallest losses, in (0, 1] (scripts: 0.3).
        warmup_epochs: epochs of warm-up (scripts: 10).
        epochs: epochs after the warm-up (scripts: 40).
        learning_rate: learning rate of Adam (scripts: 2e-4).
        lr_update: epochs between decays, counted after the warm-up (scripts: 30).
        lr_decay: factor of a decay (code: 0.1).
    """

    margin: NonNegativeFloat = 0.2
    clean_threshold: ShareBelowOne = 0.5
    mixture: Literal["beta", "gaussian"] = "beta"
    label_threshold: ShareBelowOne | None = 0.5
    curve: Curve = "exponential"
    curve_base: Annotated[float, Field(gt=1)] = 10.0
    label_shape: Literal["published", "paper"] = "published"
    faults: Faults = "repaired"
    kept_share: ShareAboveZero = 0.3
    warmup_epochs: NonNegativeInt = 10
    learning_rate: PositiveFloat = 2e-4
    lr_update: PositiveInt = 30
    lr_decay: ShareAboveZero = 0.1


def smallest_losses(similarities: Tensor, margin: float, share: float) -> Tensor:
    """Triplet losses of the best-fitting share of the pairs, at least one."""
    losses = mean_triplet(similarities, margin)
    # a batch too small for the share keeps one pair
    return losses.topk(max(int(share * len(losses)), 1), largest=False).values


def loss_mixture(normalised: Tensor) -> BetaMixture:
    """The beta mixture over losses in [0, 1]; component 0 starts at small losses."""
    start = BetaMixture(
        *(torch.tensor(pair, dtype=torch.float64) for pair in ((1.0, 2.0), (2.0, 1.0), (0.5, 0.5)))
    )
    return fitted_for(normalised.clamp(EDGE, 1 - EDGE), start, MIXTURE_UPDATES, DENSITY_FLOOR)


def first_component(mixture: BetaMixture, values: Tensor) -> Tensor:
    """Posterior of component 0, float64 ``(n,)``; where both densities are tiny, 0."""
    densities = mixture.log_densities(values).exp()
    return densities[:, 0] / (densities.sum(dim=1) + DENSITY_FLOOR)


@fitted_once
def beta_posterior(losses: Tensor, faults: Faults = "repaired") -> Tensor:
    """Probability that each pair is clean, ``(n,)``: posterior of the component initialised at small losses.

    It is not always decreasing in the loss. At a loss of exactly 1, where no component has a density, it is 0.
    """
    normalised = torch.from_numpy(min_max_normalised(losses.cpu().numpy())).double()
    # fault of the code: at a loss of exactly 0 the mixture has no value, so the surest pair counts as noisy;
    # the fit itself clamps at both ends
    evaluated = normalised if faults == "published" else normalised.clamp(min=EDGE)
    return first_component(loss_mixture(normalised), evaluated).nan_to_num(0.0).to(losses)


def divided(probability: Tensor, threshold: float, faults: Faults = "repaired") -> Tensor:
    """Which pairs are clean, bool ``(n,)``."""
    if faults == "repaired":
        return is_clean(probability, threshold)
    if probability.min() > threshold:
        # fault of the code: the probability of an arbitrary pair, for the values are not sorted
        threshold = float(probability[len(probability) // 100])
    return probability > threshold


def anchors_first(similarities: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Positions of the tenth of a batch with the best margins, and of the others by increasing margin."""
    advantage = (margin - mean_triplet(similarities, margin) / 2).clamp(0, margin)
    # NCR's tau takes the same tenth; the abstract speaks of anchors from the clean side of the division
    order, n_anchors = advantage.argsort(), len(advantage) // 10 + 1
    return order[-n_anchors:], order[:-n_anchors]


def cosines(items: Tensor, anchors: Tensor) -> Tensor:
    """Cosine of every item with every anchor, float ``(n, anchors)``."""
    return nn.functional.cosine_similarity(items[:, None], anchors[None], dim=2)


def agreement(alike: Tensor, other_side: Tensor) -> Tensor:
    """Agreement of the other modality on the nearest anchor, ``(n,)``, at most 1; negative if its cosine is.

    Args:
        alike: cosines ``(n, anchors)`` in the modality that picks the nearest anchor.
        other_side: the same pairs and anchors in the other modality.
    """
    there, nearest = alike.max(dim=1)
    back = other_side.gather(1, nearest[:, None]).squeeze(1)
    # the smaller over the larger, so that agreement is at most 1; 0 / 0 is NaN in the code, and 0 here
    ratio = there / back
    return ratio.where(ratio < 1, back / there).nan_to_num(0.0)


def consistency(images: Tensor, captions: Tensor) -> Tensor:
    """Mean agreement in both directions, ``(n,)``, from cosines with the anchors' images and captions."""
    return (agreement(images, captions) + agreement(captions, images)) / 2


def soft_label(consistency: Tensor, threshold: float | None) -> Tensor:
    """Consistency clamped to [0, 1], 0 up to the threshold."""
    if threshold is not None:
        consistency = consistency.where(consistency > threshold, 0.0)
    return consistency.clamp(0, 1)


def clean_labels(labels: Tensor, anchors: Tensor, others: Tensor, faults: Faults = "repaired") -> Tensor:
    """Labels of a clean batch, ``(B,)``: 1 for anchors, their own for the others (or, as published, another pair's)."""
    # fault of the code: the pair with the k-th worst margin gets the label made for the k-th pair of the
    # batch
    source = labels[others] if faults == "repaired" else labels[: len(others)]
    return torch.ones_like(labels).scatter(0, others, source)


def bicro_triplet(similarities: Tensor, labels: Tensor, config: BiCroConfig) -> Tensor:
    """Hardest negatives, margin from the labels ``(B,)``; ``(B,)``."""
    margins = soft_margin(labels, config.margin, config.curve, config.curve_base)
    rows, columns = margins[:, None], margins[None, :]
    # published: label j in column j of both directions, right for caption queries; an image's costs then have
    # the margins of its negatives
    return hardest_triplet(similarities, columns if config.label_shape == "published" else rows, columns)


class BiCro(CoTeaching):
    """Two networks, each trained on the division and labels of the other."""

    name = "bicro"
    title = "BiCro"
    paper = "https://arxiv.org/abs/2303.12419"
    variants = (
        ("faults", "published", "the code's faults"),
        ("label_shape", "paper", "the paper's label shape"),
    )
    Config = BiCroConfig
    config: BiCroConfig

    def warmup_step(self, k: int, batch: Batch, step: Step) -> None:
        """Train on the pairs with the smallest losses."""
        self.train_step(self.networks[k], batch, None, step)

    def pair_losses(self, similarities: Tensor) -> Tensor:
        """Triplet loss over mean negatives, as in NCR."""
        return mean_triplet(similarities, self.config.margin)

    def posterior(self, losses: Tensor, seed: int) -> Tensor:
        """Clean probability of pairs with these losses, ``(n,)``."""
        if self.config.mixture == "gaussian":
            return clean_posterior(losses, random_state=seed)
        return beta_posterior(losses.cpu(), self.config.faults)

    def is_clean(self, probability: Tensor) -> Tensor:
        """Which pairs are clean."""
        return divided(probability, self.config.clean_threshold, self.config.faults)

    def train_network(self, k: int, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Train network k on its peer's division and labels; later every clean batch follows a noisy one."""
        network, peer = self.networks[k], self.networks[1 - k]
        # as NCR's code: no noisy batch in the first half
        train_noisy = plan.epoch >= self.config.epochs // 2
        for batch, noisy in self.divided_batches(k, batches, noisy=train_noisy):
            labels, noisy_labels = self.labels(peer, batch, noisy)
            if noisy is not None and noisy_labels is not None:
                self.train_step(network, noisy, noisy_labels, step)
            self.train_step(network, batch, labels, step)

    def train_step(self, network: Backbone, batch: Batch, labels: Tensor | None, step: Step) -> None:
        """Triplet loss with soft labels, or the warm-up's loss without labels."""
        c, output = self.config, network.train()(batch)
        auxiliary = output.auxiliary
        if labels is None:
            losses = smallest_losses(output.similarities, c.margin, c.kept_share)
        else:
            losses = bicro_triplet(output.similarities, labels, c)
            auxiliary = labels * auxiliary
        step(network, losses.sum() + auxiliary.mean(), batch)

    @torch.no_grad()
    def labels(self, network: Backbone, clean: Batch, noisy: Batch | None) -> tuple[Tensor, Tensor | None]:
        """Labels of a clean batch, and of a noisy one, by a network in evaluation mode."""
        c, output = self.config, network.eval()(clean)
        anchors, others = anchors_first(output.similarities, c.margin)
        sides = [overall(side) for side in (output.images, output.captions)]
        anchor_sides = [side[anchors] for side in sides]

        def consistency_of(sides: Sequence[Tensor]) -> Tensor:
            return consistency(*(cosines(*both) for both in zip(sides, anchor_sides, strict=True)))

        # the code moves the consistency c of clean pairs to (1 + c) / 2, so most of them keep more than the
        # threshold; noisy pairs have c itself
        own = soft_label((1 + consistency_of(sides)) / 2, c.label_threshold)
        labels = clean_labels(own, anchors, others, c.faults)
        if noisy is None:
            return labels, None
        # the anchors of the clean batch serve the noisy one too, so its step comes first
        noisy_sides = [overall(side) for side in network.encode(noisy)]
        return labels, soft_label(consistency_of(noisy_sides), c.label_threshold)
