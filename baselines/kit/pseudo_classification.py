"""Two networks with a pseudo-classifier each, divided by loss and by oscillation: what PC2 and PCSR share.

Equations are those of PC2 (Duan et al., ACM MM 2024, https://arxiv.org/abs/2408.01349). Where its code deviates from
them, we follow the code and say so at the line.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from baselines.kit.backbone import Backbone, Encoded
from baselines.kit.batches import TrainingBatches, derive_seed, valid_items
from baselines.kit.co_teaching import CoTeaching, mean_over
from baselines.kit.losses import mean_triplet
from baselines.kit.method import EpochPlan, Setting, Step

FLOOR = 1e-8


class PseudoClassifier(nn.Module):
    """C of section 4.2: all vectors of an image or caption concatenated, one hidden layer, K classes."""

    def __init__(self, n_vectors: int, embed_size: int, hidden_size: int, classes: int) -> None:
        super().__init__()
        self.n_vectors = n_vectors
        self.hidden = nn.Linear(n_vectors * embed_size, hidden_size)
        self.out = nn.Linear(hidden_size, classes)

    def forward(self, vectors: Tensor) -> Tensor:
        """Logits ``(n, K)`` of vectors ``(n, items, dim)``, or of pooled ones ``(n, dim)``."""
        if vectors.dim() == 3:
            vectors = resized(vectors, self.n_vectors).flatten(1)
        logits: Tensor = self.out(torch.relu(self.hidden(vectors)))
        return logits


def resized(vectors: Tensor, n_items: int) -> Tensor:
    """Resize sequences ``(n, items, dim)``: centred between zeros, or interpolated."""
    # the code's way to give captions of any length to a layer of fixed width
    missing = n_items - vectors.shape[1]
    if missing >= 0:
        return nn.functional.pad(vectors, (0, 0, missing // 2, missing - missing // 2))
    return nn.functional.interpolate(vectors.transpose(1, 2), size=n_items, mode="linear").transpose(1, 2)


def classification_loss(image_logits: Tensor, caption_logits: Tensor) -> Tensor:
    """L^pse of Eq. 2, ``(B,)``: the caption's most likely class is the image's target, without gradient."""
    return nn.functional.cross_entropy(image_logits, caption_logits.argmax(dim=1), reduction="none")


def entropy(probabilities: Tensor) -> Tensor:
    """Entropy over the last dimension (Eq. 3), at least 0."""
    probabilities = probabilities.clamp(min=FLOOR)
    return -(probabilities * probabilities.log()).sum(dim=-1)


def classify(network: Backbone, items: Encoded) -> Tensor:
    """Logits ``(n, K)`` of images or captions by the pseudo-classifier of ``network``."""
    return cast(Tensor, cast(PseudoClassifier, network.pseudo_classifier)(items.vectors))


def most_alike(noisy: Tensor, clean: Tensor, image_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. 4: cosine and row of the nearest clean prediction for each noisy one, both ``(B,)``.

    Args:
        noisy: predictions ``(B, K)``.
        clean: predictions ``(C, K)``.
        image_ids: int64 ``(C,)``, image of each clean pair; of copies of one image, the first row counts.
    """
    cosines = nn.functional.normalize(noisy, dim=1) @ nn.functional.normalize(clean, dim=1).T
    nearest = cosines.max(dim=1)
    # copies tie, and the code takes the first; here rounding, which differs by column, would choose between them
    copies = image_ids[nearest.indices][:, None] == image_ids
    return nearest.values, copies.int().argmax(dim=1)


def borrowed(captions: Encoded, rows: Tensor, longest: int) -> Encoded:
    """T^p of Eq. 4: captions of the clean batch, borrowed by the noisy images.

    Args:
        captions: captions of the clean batch.
        rows: int64 ``(B,)``, row of the caption that each noisy image borrows.
        longest: words of the noisy batch's longest caption.
    """
    donors = captions.chosen(rows)
    if donors.vectors.dim() == 2:
        return donors
    # the code resizes the words to the noisy batch's longest caption but keeps the donor's length, so words
    # are lost or zeros counted
    lengths = donors.lengths.clamp(max=longest)
    valid = valid_items(lengths, longest, donors.vectors.device)
    return Encoded(resized(donors.vectors, longest) * valid[..., None], lengths)


def oscillation(before: Tensor, now: Tensor) -> Tensor:
    """o of Eq. 7, ``(B,)``: divergence of predictions ``(B, K)`` from the stored ones; 0 if none is stored."""
    # from the present prediction to the stored one; nothing stored means a row of zeros
    divergence = (now * (now.clamp(min=FLOOR).log() - before.clamp(min=FLOOR).log())).sum(dim=1)
    return divergence.where(before.sum(dim=1) > 0, 0.0)


def rectified_label(clean_probability: Tensor, stable_probability: Tensor, stable: Tensor) -> Tensor:
    """Exponent of Eq. 8, ``(B,)``: ``w + (1 - w) 1[stable] w_o``."""
    return clean_probability + (1 - clean_probability) * stable * stable_probability


class PseudoClassified(CoTeaching):
    """Two networks with a pseudo-classifier each, divided by loss and by oscillation; PC2, and what follows it.

    Attributes:
        stable_probability: probability of each pair by its oscillation, one memory per network.
        prediction: the last prediction of each pair in training, one memory per network; zeros before the first.
    """

    def __init__(self, config: Any, setting: Setting) -> None:
        super().__init__(config, setting)
        self.stable_probability = self.memories(initial=1.0)
        # by position in the full split. Fault of the code: by position within one side of the division, which
        # moves with every division, so pairs are mixed up
        self.prediction = self.memories(initial=0.0, width=config.classes)

    def make_network(self) -> Backbone:
        """Make a backbone with its pseudo-classifier."""
        network, c = super().make_network(), self.config
        n_vectors = 1 if network.pools else self.setting.n_regions
        network.pseudo_classifier = PseudoClassifier(n_vectors, network.embed_size, c.hidden_size, c.classes)
        return network

    def further_sets(self) -> tuple[int, ...]:
        """Epochs after the warm-up at which batches of a further set begin."""
        return (self.config.noisy_from_epoch,)

    def plan(self) -> Sequence[EpochPlan]:
        """Fresh optimisers after the warm-up."""
        published = self.config.selection == "published"
        return [
            replace(
                plan,
                new_optimizers=plan.epoch == 0,
                # in the code, an epoch before batches of a further set does not compete with the epochs after
                forget_best=published and plan.epoch in self.further_sets(),
            )
            if plan.phase == "train"
            else plan
            for plan in self.config.plan()
        ]

    def train_epoch(self, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Warm up, or divide and train for one epoch."""
        self.train()
        super().train_epoch(plan, batches, step)

    def pair_losses(self, similarities: Tensor) -> Tensor:
        """NCR's Eq. 2."""
        return mean_triplet(similarities, self.config.margin, floor=FLOOR)

    @torch.no_grad()
    def co_divide(self, plan: EpochPlan, batches: TrainingBatches) -> None:
        """w and w^o of every pair by both networks: mixtures over loss and oscillation (Eq. 7)."""
        self.eval()
        ids = batches.pair_ids.to(self.prediction[0].values.device)
        shape = (self.n_networks, self.setting.n_pairs)
        losses, oscillations = torch.zeros(2, *shape, dtype=torch.float64, device=ids.device)
        for batch in batches.covering("divide"):
            for k, network in enumerate(self.networks):
                output = network(batch)
                losses[k, batch.pair_ids] = self.pair_losses(output.similarities).double()
                now = classify(network, output.images).softmax(dim=1)
                # Eq. 7 compares adjacent epochs; the code the last visit of a warm-up or noisy step, in
                # training mode
                before = self.prediction[k].read(batch.pair_ids)
                oscillations[k, batch.pair_ids] = oscillation(before, now).double()
                self.predicted(k, batch.pair_ids, now)
        self.divided_by = losses.mean(dim=0)
        for memories, values, purpose in (
            (self.clean_probability, losses, "mixture"),
            (self.stable_probability, oscillations, "oscillation"),
        ):
            for k, memory in enumerate(memories):
                seed = derive_seed(batches.seed, purpose, plan.epoch, k)
                memory.write(ids, self.posterior(values[k, ids], seed))
        self.train()

    def labels_by(self, peer: int, ids: Tensor) -> Tensor:
        """Labels of these pairs from the division of a network, ``(n_pairs,)``; 0 elsewhere."""
        w, w_o = (memory[peer].read(ids) for memory in (self.clean_probability, self.stable_probability))
        labels = torch.zeros(self.setting.n_pairs, dtype=w.dtype, device=w.device)
        labels[ids] = rectified_label(w, w_o, self.is_clean(w_o))
        return labels

    def predicted(self, k: int, pair_ids: Tensor, predictions: Tensor) -> None:
        """Called with the predictions ``(B, K)`` of a batch during the division."""

    def estimates(self) -> dict[str, Tensor]:
        """Clean probabilities by loss and by oscillation, each averaged over both networks."""
        return {**super().estimates(), "stable_probability": mean_over(self.stable_probability)}
