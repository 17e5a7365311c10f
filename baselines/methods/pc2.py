"""PC2: Pseudo-Classification Based Pseudo-Captioning for Noisy Correspondence Learning.

Duan et al., ACM MM 2024. https://arxiv.org/abs/2408.01349

Two networks divide the pairs for each other, as in NCR, and a pseudo-classifier C sorts images and captions into K
invented classes. On clean pairs the caption's class teaches the image (pseudo-classification). A noisy image borrows
the caption of the clean image with the most similar prediction (pseudo-captioning). Pairs whose class keeps changing
between visits are trusted less (oscillation).

Deviations between paper and published code, each at its line; we follow the code unless said otherwise:
  * Eq. 3 raises the entropy of single predictions, not that of their mean; the warm-up trains C too;
  * margins have one side (Eq. 6, Eq. 9), see ``label_shape``, and costs a floor of 1e-8;
  * borrowed captions are resized (Eq. 4), and small similarities become zero (Eq. 5);
  * noisy batches begin late, as gradient steps of their own;
  * dev chooses among all epochs, where the code forgets those before the noisy batches, see ``selection``;
  * predictions are stored in training, not by epoch (Eq. 7), and here by pair, where the code mixes pairs up;
  * the code keeps the checkpoint that is best on test; here test is not read;
  * divisions that separate nothing (in ``kit/mixture.py``);
  * backbones that pool (none published): C uses the pooled vector, and that vector is borrowed.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt
from torch import Tensor

from baselines.kit.backbone import Encoded
from baselines.kit.batches import Batch, TrainingBatches
from baselines.kit.losses import Curve, hardest_triplet, mean_triplet, soft_margin
from baselines.kit.method import EpochPlan, Selection, Step, WarmUpThenStepDecay
from baselines.kit.options import Share, ShareBelowOne
from baselines.kit.pseudo_classification import (
    FLOOR,
    PseudoClassified,
    borrowed,
    classification_loss,
    classify,
    entropy,
    most_alike,
)


class PC2Config(WarmUpThenStepDecay):
    """Every constant of the paper, in its order.

    Attributes:
        margin: alpha of Eq. 1, at least 0 (section 5.2: 0.2).
        clean_threshold: tau, of the division and of Eq. 8, in [0, 1) (section 5.2: 0.5).
        classes: K of section 4.2, at least 2 (section 5.2: 128).
        hidden_size: hidden size of the pseudo-classifier (code: 256).
        borrow_by: whether a noisy image borrows the caption of the clean image with the nearest ``prediction`` (Eq. 4),
            or with the nearest ``embedding`` (Table 3 without pseudo-classification).
        similarity_threshold: smaller similarities of Eq. 4 count as zero, in [0, 1] (code: 0.5).
        curve: maps a label to a margin; Eq. 5 and Eq. 8 are ``exponential``, the others are the code's.
        curve_base: m of Eq. 5 and Eq. 8, above 1 (section 5.2: 10).
        label_shape: margin of pair i in both directions (``paper``), or on one side (``published``).
        rectify: labels of clean pairs by Eq. 8; False sets them to 1 (Table 3 without CR).
        noisy_weight: lambda^n of Eq. 10, at least 0 (section 5.2: 1).
        classification_weight: lambda^pse of Eq. 10, at least 0 (section 5.2: 1).
        entropy_weight: lambda^ent of Eq. 10, at least 0 (section 5.2: 10).
        warmup_pairs: ``all`` of a warm-up batch, or the half with the ``lowest`` losses (a mode of the code).
        warmup_epochs: epochs of warm-up (section 5.2: 5 Flickr30K, 10 COCO and NoW; code: 5 COCO).
        epochs: epochs after the warm-up (section 5.2: 50).
        noisy_from_epoch: first epoch after the warm-up with noisy batches (code: 25); beyond ``epochs``, no caption is
            borrowed (Table 3 without P-Cap).
        learning_rate: learning rate of Adam (code: 2e-4).
        warmup_learning_rate: learning rate of the warm-up (default, as published: ``learning_rate``).
        lr_update: epochs between decays, counted after the warm-up (code: 30).
        lr_decay: factor of a decay (code: 0.1).
        selection: ``best`` epoch of the run on dev, or since noisy batches began (``published``).
    """

    margin: NonNegativeFloat = 0.2
    clean_threshold: ShareBelowOne = 0.5
    classes: Annotated[int, Field(ge=2)] = 128
    hidden_size: PositiveInt = 256
    borrow_by: Literal["prediction", "embedding"] = "prediction"
    similarity_threshold: Share = 0.5
    curve: Curve = "exponential"
    curve_base: Annotated[float, Field(gt=1)] = 10.0
    label_shape: Literal["published", "paper"] = "published"
    rectify: bool = True
    noisy_weight: NonNegativeFloat = 1.0
    classification_weight: NonNegativeFloat = 1.0
    entropy_weight: NonNegativeFloat = 10.0
    warmup_pairs: Literal["all", "lowest"] = "all"
    warmup_epochs: NonNegativeInt = 5
    epochs: PositiveInt = 50
    noisy_from_epoch: NonNegativeInt = 25
    selection: Selection = "best"


def embedding(items: Encoded) -> Tensor:
    """One vector per image ``(n, dim)``: the backbone's own, or the mean of the regions."""
    if items.pooled is not None:
        return items.pooled
    return items.vectors if items.vectors.dim() == 2 else items.vectors.mean(dim=1)


def pc2_triplet(
    similarities: Tensor, labels: Tensor, side: Literal["row", "column"], config: PC2Config
) -> Tensor:
    """Eq. 6 and Eq. 9, ``(B,)``: hardest negatives, margin from the label of each pair.

    Args:
        similarities: float ``(B, B)``.
        labels: in [0, 1], ``(B,)``.
        side: row or column of a pair's margin in the published code.
        config: curve and label shape.
    """
    margins = soft_margin(labels, config.margin, config.curve, config.curve_base)
    rows, columns = margins[:, None], margins[None, :]
    if config.label_shape == "published":
        # row i of both directions for clean pairs, column j for noisy ones; Eq. 6 and Eq. 9 give pair i its
        # margin in both
        rows = columns = rows if side == "row" else columns
    # clamped at 1e-8 instead of 0, as in the code
    return hardest_triplet(similarities, rows, columns, floor=FLOOR)


def warmup_triplet(similarities: Tensor, margin: float, pairs: str) -> Tensor:
    """NCR's Eq. 2 on all pairs of the batch, or on the half with the lowest values."""
    losses = mean_triplet(similarities, margin, floor=FLOOR)
    return losses if pairs == "all" else losses.sort().values[: len(losses) // 2]


class PC2(PseudoClassified):
    """Two networks with a pseudo-classifier each; each is trained on the other's division."""

    name = "pc2"
    title = "PC2"
    paper = "https://arxiv.org/abs/2408.01349"
    variants = (("label_shape", "paper", "the paper's label shape"),)
    Config = PC2Config
    config: PC2Config

    def warmup_step(self, k: int, batch: Batch, step: Step) -> None:
        """Train the network and its pseudo-classifier."""
        self.matched_step(k, batch, None, step)

    def train_network(self, k: int, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Train on clean batches, later each followed by a noisy one, by the peer's division."""
        c, peer = self.config, 1 - k
        ids = batches.pair_ids.to(self.prediction[k].values.device)
        clean = self.clean_probability[peer].values
        labels = self.labels_by(peer, ids) if c.rectify else torch.ones_like(clean)
        image_ids = batches.shown_images.to(ids.device)
        for batch, noisy in self.divided_batches(k, batches, noisy=plan.epoch >= c.noisy_from_epoch):
            self.matched_step(k, batch, labels[batch.pair_ids], step)
            if noisy is not None:
                self.pseudo_captioned_step(k, batch, noisy, image_ids[batch.pair_ids], step)

    def matched_step(self, k: int, batch: Batch, labels: Tensor | None, step: Step) -> None:
        """Train on given pairs: Eq. 9, or the warm-up without labels, plus pseudo-classification."""
        c, network = self.config, self.networks[k]
        output = network(batch)
        auxiliary = output.auxiliary
        logits = classify(network, output.images)
        probabilities = logits.softmax(dim=1)
        if labels is None:
            triplet = warmup_triplet(output.similarities, c.margin, c.warmup_pairs).sum()
            # clean steps store nothing after the warm-up, as in the code
            self.prediction[k].write(batch.pair_ids, probabilities)
        else:
            triplet = pc2_triplet(output.similarities, labels, "row", c).sum()
            auxiliary = labels * auxiliary
        with torch.no_grad():
            caption_logits = classify(network, output.captions)
        classification = classification_loss(logits, caption_logits).mean()
        # Eq. 3 is the entropy of the mean prediction, with the sign that would concentrate it; the code
        # raises that of every single one
        spread = entropy(probabilities).mean()
        loss = triplet + c.classification_weight * classification - c.entropy_weight * spread
        loss = loss + auxiliary.mean()
        step(network, loss, batch, triplet=triplet, classification=classification, entropy=spread)

    def pseudo_captioned_step(
        self, k: int, clean: Batch, noisy: Batch, image_ids: Tensor, step: Step
    ) -> None:
        """Eq. 4 to Eq. 6: train on noisy images with captions of clean pairs, whose images are ``image_ids``."""
        c, network = self.config, self.networks[k]
        # also encodes the clean images' global vectors, so statistics of batch normalisation move once more
        # than in the code
        clean_images, clean_captions = network.encode(clean)
        images = network.encode_images(noisy.image_features, noisy.image_lengths)
        donors, predictions = (classify(network, x).softmax(dim=1) for x in (clean_images, images))
        self.prediction[k].write(noisy.pair_ids, predictions)
        self.prediction[k].write(clean.pair_ids, donors)
        if c.borrow_by == "embedding":
            predictions, donors = embedding(images), embedding(clean_images)
        likeness, rows = most_alike(predictions, donors, image_ids)
        # Eq. 5 has no threshold; the gradient passes through the margin, as in the code
        labels = likeness.where(likeness >= c.similarity_threshold, 0.0)
        captions = borrowed(clean_captions, rows, noisy.caption_tokens.shape[1])
        triplet = pc2_triplet(network.compare(images, captions), labels, "column", c).sum()
        step(network, c.noisy_weight * triplet, noisy, pseudo_captioned=triplet)
