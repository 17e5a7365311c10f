"""CREAM: Cross-Modal Retrieval with Noisy Correspondence via Consistency Refining and Mining.

Ma et al., IEEE Transactions on Image Processing 33 (2024). https://doi.org/10.1109/TIP.2024.3374221

NCR's two networks, with InfoNCE instead of the triplet and one division for both: pairs that both networks call clean,
pairs that one of them does (hard), and the rest (noisy). All labels are refined with the networks' own predictions. The
weight that a label takes from the given pair goes to other captions and images of the batch (mining).

We follow the published code; the paper's text was not available, so equations have no numbers here. Deviations, each at
its line:
  * both directions' cross entropies are added, not averaged (in ``kit/co_teaching.py``);
  * negative cosines, which the code cannot have, count as 0 when negatives are mined;
  * the filter counts a hard set that is used up, see ``faults``;
  * empty sets take no step, where the code stops, and pairs are not predicted without need;
  * a batch of one ends the code's epoch, or skips its step; we skip a single left-over pair;
  * training continues from the end of the warm-up. The code restores its best epoch, which needs a new best dev rSum
    and six new best recalls at once; without one it goes on with untrained networks;
  * ``negatives: even`` is an option that the code leaves off.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from pydantic import NonNegativeInt
from torch import Tensor

from baselines.kit.backbone import Backbone
from baselines.kit.batches import Batch, TrainingBatches
from baselines.kit.co_teaching import (
    ContrastiveConfig,
    ContrastiveCoTeaching,
    batches_in_turn,
    mean_over,
    refined_label,
)
from baselines.kit.method import EpochPlan, Step
from baselines.kit.mixture import exceeds
from baselines.kit.options import Share

SMALLEST_SUM = 1e-6


class CREAMConfig(ContrastiveConfig):
    """The other constants of the published code.

    Attributes:
        trusted_share: with a larger share of clean pairs, clean and hard batches keep every mined weight, in [0, 1]
            (code: 0.85).
        negatives: ``mined``, or ``even``: what a label leaves is spread over all others of the batch.
        hard_from_epoch: first epoch after the warm-up with hard batches (code: 10).
            Noisy batches never come before them.
    """

    trusted_share: Share = 0.85
    negatives: Literal["mined", "even"] = "mined"
    hard_from_epoch: NonNegativeInt = 10


@dataclass(frozen=True)
class ThreeSets:
    """Pairs of the three sets, int64 positions in the full training split."""

    clean: Tensor
    hard: Tensor
    noisy: Tensor

    @property
    def clean_share(self) -> float:
        """Share of clean pairs, in [0, 1]."""
        return len(self.clean) / (len(self.clean) + len(self.hard) + len(self.noisy))


class Targets(NamedTuple):
    """Target distribution of every query of a batch, float ``(B, B)`` each; given pairs on the diagonal."""

    captions: Tensor
    """Row i: target of image i."""
    images: Tensor
    """Column j: target of caption j."""


def three_sets(probabilities: Sequence[Tensor], threshold: float) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs that are clean for both networks, for exactly one (hard), and for neither (noisy), bool ``(n,)`` each.

    Args:
        probabilities: float ``(n,)`` per network.
        threshold: see :func:`~baselines.kit.mixture.exceeds`, applied to each network.
    """
    one, other = (exceeds(probability, threshold) for probability in probabilities)
    return one & other, one ^ other, ~(one | other)


def refined_noisy_label(prediction: Tensor, peer_prediction: Tensor) -> Tensor:
    """The mean of both networks' predictions, ``(B,)``."""
    return (prediction + peer_prediction) / 2


def expected_label(mean_labels: Mapping[str, Tensor], sets: ThreeSets) -> Tensor:
    """f, scalar in [0, 1]: mean label of a batch of each set, weighted by the size of the set.

    Args:
        mean_labels: ``clean``, ``hard`` and ``noisy`` to a scalar; missing sets do not count.
        sets: sets that give the sizes.
    """
    sizes = {name: len(getattr(sets, name)) for name in mean_labels}
    # an empty set has no mean label and no part; the code stops at one
    total = sum(sizes.values())
    return torch.stack([mean * (sizes[name] / total) for name, mean in mean_labels.items()]).sum()


def filters(
    f: Tensor, clean_share: float, epoch: int, config: CREAMConfig
) -> tuple[Tensor | float, Tensor | float]:
    """Minimum mined weight kept in a clean batch, and in a hard one; in a noisy batch it is f.

    Args:
        f: the expected label; not used below ``hard_from_epoch``.
        clean_share: share of clean pairs, in [0, 1].
        epoch: epoch after the warm-up.
        config: ``trusted_share`` and ``hard_from_epoch``.
    """
    if clean_share > config.trusted_share:
        return 0.0, 0.0
    if epoch < config.hard_from_epoch:
        # at least 1, so nothing is mined; it does not depend on labels, so those of the other sets are not predicted
        return float(config.hard_from_epoch - epoch), f
    return f, f


def mined_targets(similarities: Tensor, labels: Tensor, smallest: Tensor | float) -> Targets:
    """Labels on the diagonal; ``1 - y`` distributed in proportion to the other similarities.

    Image i gives caption j the weight ``(1 - y_i) S'_ij / sum_k S'_ik``, caption j gives image i
    ``(1 - y_j) S'_ij / sum_k S'_kj``, where S' is S without its diagonal. Weights below ``smallest`` become 0, without
    renormalisation.

    Args:
        similarities: S, float ``(B, B)``; the targets have a gradient.
        labels: y in [0, 1], ``(B,)``.
        smallest: the filter.
    """
    # the code's similarities are sigmoids; a negative share would be no weight
    others = similarities.where(similarities >= 0, 0.0)
    others = others.masked_fill(torch.eye(len(labels), dtype=torch.bool, device=labels.device), 0.0)
    left = 1 - labels
    # weights are shares of similarities, so the loss also moves its own targets: they keep their gradient
    captions = left[:, None] * others / (others.sum(dim=1, keepdim=True) + SMALLEST_SUM)
    images = left[None, :] * others / (others.sum(dim=0, keepdim=True) + SMALLEST_SUM)
    return Targets(
        # dropped weights are not given to the others: rows then sum to less than 1
        *(weights.where(weights >= smallest, 0.0) + labels.diag() for weights in (captions, images))
    )


def even_targets(labels: Tensor) -> Targets:
    """Labels ``(B,)`` on the diagonal; ``1 - y`` distributed evenly."""
    spread = ((1 - labels) / max(len(labels) - 1, 1))[:, None].expand(-1, len(labels))
    captions = spread.diagonal_scatter(labels)
    return Targets(captions, captions.T)


def cream_loss(similarities: Tensor, targets: Targets, temperature: float) -> Tensor:
    """``-sum_j (a_ij log r_ij + b_ji log q_ji)``, ``(B,)``: loss of image i and caption i with targets a and b."""
    logits = similarities / temperature
    of_images = (targets.captions * logits.log_softmax(dim=1)).sum(dim=1)
    of_captions = (targets.images * logits.log_softmax(dim=0)).sum(dim=0)
    return -(of_images + of_captions)


class CREAM(ContrastiveCoTeaching):
    """Two networks that are trained on one division, one after the other."""

    name = "cream"
    title = "CREAM"
    paper = "https://doi.org/10.1109/TIP.2024.3374221"
    variants = (("faults", "published", "the code's fault"), ("negatives", "even", "even negatives"))
    Config = CREAMConfig
    config: CREAMConfig

    def divide(self, batches: TrainingBatches) -> ThreeSets:
        """Three sets, the same for both networks; all pairs are clean if fewer than two would be."""
        ids = batches.pair_ids.to(self.clean_probability[0].values.device)
        both = [memory.read(ids) for memory in self.clean_probability]
        clean, hard, noisy = three_sets(both, self.config.clean_threshold)
        # the mixtures have separated nothing: train on all pairs
        if clean.sum() < 2:
            return ThreeSets(ids, ids[:0], ids[:0])
        return ThreeSets(ids[clean], ids[hard], ids[noisy])

    def train_network(self, k: int, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Train once over the clean pairs, later with a hard and a noisy batch after each clean one."""
        c, network, peer = self.config, self.networks[k], self.networks[1 - k]
        w, v = self.clean_probability[1 - k].values, mean_over(self.clean_probability)
        sets = self.divide(batches)
        others = (
            (sets.hard, sets.noisy) if plan.epoch >= c.hard_from_epoch else (sets.hard[:0], sets.noisy[:0])
        )
        mean_labels: dict[str, Tensor] = {}  # from each set's last batch
        last_hard: Batch | None = None
        for clean, hard, noisy in batches_in_turn(k, batches, sets.clean, *others):
            # all labels stand before the first step moves the network; a hard pair's w is the mean of both networks'
            label = refined_label(w[clean.pair_ids], self.predict(network, clean))
            mean_labels["clean"] = label.mean()
            # the hard set runs out before the clean one. The code predicts its last batch anew in every
            # iteration, by a network that has moved; repaired, the last mean stays in the filter
            counted = last_hard if hard is None and c.faults == "published" else hard
            if counted is not None:
                last_hard = counted
                hard_label = refined_label(v[counted.pair_ids], self.predict(network, counted))
                mean_labels["hard"] = hard_label.mean()
            if noisy is not None:
                noisy_label = refined_noisy_label(self.predict(network, noisy), self.predict(peer, noisy))
                mean_labels["noisy"] = noisy_label.mean()
            f = expected_label(mean_labels, sets)
            clean_filter, hard_filter = filters(f, sets.clean_share, plan.epoch, c)
            self.train_step(network, clean, label, clean_filter, step)
            if hard is not None:
                self.train_step(network, hard, hard_label, hard_filter, step)
            if noisy is not None and plan.epoch >= c.noisy_from_epoch:
                self.train_step(network, noisy, noisy_label, f, step)

    def train_step(
        self, network: Backbone, batch: Batch, labels: Tensor, smallest: Tensor | float, step: Step
    ) -> None:
        """Train on a batch with labels ``(B,)``; mined weights below ``smallest`` are dropped."""
        c, output = self.config, network.train()(batch)
        similarities = output.similarities
        even = c.negatives == "even"
        targets = even_targets(labels) if even else mined_targets(similarities, labels, smallest)
        losses = cream_loss(similarities, targets, c.temperature)
        mined = (targets.captions.sum() + targets.images.sum()) / len(labels) - 2 * labels.mean()
        step(network, losses.mean() + (labels * output.auxiliary).mean(), batch, mined_weight=mined)
