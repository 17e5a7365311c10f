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

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from baselines.backbones.encoders import valid_items
from baselines.kit.backbone import Backbone, Encoded
from baselines.kit.batches import Batch, TrainingBatches, derive_seed
from baselines.kit.co_teaching import CoTeaching, mean_over
from baselines.kit.losses import hardest_triplet, mean_triplet
from baselines.kit.method import EpochPlan, Selection, Setting, Step, WarmUpThenStepDecay
from baselines.methods.ncr import Curve, soft_margin

FLOOR = 1e-8


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

    margin: Annotated[float, Field(ge=0)] = 0.2
    clean_threshold: Annotated[float, Field(ge=0, lt=1)] = 0.5
    classes: Annotated[int, Field(ge=2)] = 128
    hidden_size: Annotated[int, Field(ge=1)] = 256
    borrow_by: Literal["prediction", "embedding"] = "prediction"
    similarity_threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    curve: Curve = "exponential"
    curve_base: Annotated[float, Field(gt=1)] = 10.0
    label_shape: Literal["published", "paper"] = "published"
    rectify: bool = True
    noisy_weight: Annotated[float, Field(ge=0)] = 1.0
    classification_weight: Annotated[float, Field(ge=0)] = 1.0
    entropy_weight: Annotated[float, Field(ge=0)] = 10.0
    warmup_pairs: Literal["all", "lowest"] = "all"
    warmup_epochs: Annotated[int, Field(ge=0)] = 5
    epochs: Annotated[int, Field(ge=1)] = 50
    noisy_from_epoch: Annotated[int, Field(ge=0)] = 25
    selection: Selection = "best"


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
    assert isinstance(network.pseudo_classifier, PseudoClassifier)
    logits: Tensor = network.pseudo_classifier(items.vectors)
    return logits


def embedding(items: Encoded) -> Tensor:
    """One vector per image ``(n, dim)``: the backbone's own, or the mean of the regions."""
    if items.pooled is not None:
        return items.pooled
    return items.vectors if items.vectors.dim() == 2 else items.vectors.mean(dim=1)


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

    def predicted(self, k: int, pair_ids: Tensor, predictions: Tensor) -> None:
        """Called with the predictions ``(B, K)`` of a batch during the division."""

    def estimates(self) -> dict[str, Tensor]:
        """Clean probabilities by loss and by oscillation, each averaged over both networks."""
        return {**super().estimates(), "stable_probability": mean_over(self.stable_probability)}


class PC2(PseudoClassified):
    """Two networks with a pseudo-classifier each; each is trained on the other's division."""

    name = "pc2"
    title = "PC2"
    paper = "https://arxiv.org/abs/2408.01349"
    Config = PC2Config
    config: PC2Config

    @classmethod
    def title_of(cls, config: PC2Config) -> str:
        """Title; names the paper's label shape if used."""
        return cls.title if config.label_shape == "published" else f"{cls.title} (the paper's label shape)"

    def warmup_step(self, k: int, batch: Batch, step: Step) -> None:
        """Train the network and its pseudo-classifier."""
        self.matched_step(k, batch, None, step)

    def train_network(self, k: int, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Train on clean batches, later each followed by a noisy one, by the peer's division."""
        c, peer = self.config, 1 - k
        ids = batches.pair_ids.to(self.prediction[k].values.device)
        w, w_o = (memory[peer].read(ids) for memory in (self.clean_probability, self.stable_probability))
        labels = torch.zeros(self.setting.n_pairs, dtype=w.dtype, device=w.device)
        labels[ids] = rectified_label(w, w_o, self.is_clean(w_o)) if c.rectify else 1.0
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
