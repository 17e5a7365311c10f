"""PCSR: Pseudo-label Consistency-Guided Sample Refinement for Noisy Correspondence Learning.

Liu et al., AAAI 2026. https://arxiv.org/abs/2509.15623

PC2 with three sets. Two networks divide the pairs for each other by loss, as in NCR. A pseudo-classifier C sorts every
image and caption into K invented classes. The class of an image is counted over the epochs, and the lead of its most
frequent class is the pseudo-label consistency score (PCS). Pairs that are not clean are refinable if the score is
above an adaptive threshold tau, and ambiguous otherwise. Both kinds borrow the caption of the clean pair with the most
similar class prediction; ambiguous pairs add a class loss that tolerates wrong labels.

We follow the published code; of the paper only the abstract was available, so equations have no numbers here.
Deviations, each at its line:
  * the abstract gives refinable pairs a new caption and ambiguous ones robust losses; the code gives both both;
  * the score comes from the image alone, so the five captions of an image share it;
  * the entropy term raises the entropy of single predictions, which one class for everything satisfies too. The log
    counts the classes in use (``classes_used``);
  * margins have one side, and costs a floor of 1e-8;
  * three faults of the code are repaired, see ``faults``;
  * predictions are stored by pair, where the code stores them by position within a set;
  * dev chooses among all epochs, where the code forgets those before a further set begins, see ``selection``;
  * the code also keeps a checkpoint that is best on test; here test is not read;
  * sets or batches that are too small, at which the code stops;
  * backbones that pool (none published): C uses the pooled vector, and that vector is borrowed.
"""

from collections.abc import Iterator
from itertools import repeat
from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from baselines.kit.backbone import Backbone, Encoded
from baselines.kit.batches import Batch, TrainingBatches, to_device
from baselines.kit.co_teaching import Faults
from baselines.kit.losses import hardest_triplet, info_nce, soft_margin
from baselines.kit.method import EpochPlan, Modules, PairMemory, Selection, Setting, Step, WarmUpThenStepDecay
from baselines.kit.options import Share, ShareAboveZero, ShareBelowOne
from baselines.kit.pseudo_classification import (
    FLOOR,
    PseudoClassified,
    borrowed,
    classification_loss,
    classify,
    entropy,
    most_alike,
)

VOTES_PER_DIVISION = 2  # the code counts once in the network, and once more in its caller


class PCSRConfig(WarmUpThenStepDecay):
    """Every constant of the published code.

    Attributes:
        margin: of the triplets, at least 0 (code: 0.2).
        temperature: tau of the warm-up's InfoNCE, above 0 (code: 0.05).
        clean_threshold: of the division and of the stable pairs, in [0, 1) (code: 0.5).
        classes: K, at least 2 (code: 256).
        hidden_size: hidden size of the pseudo-classifier (code: 256).
        entropy_weight: at least 0 (code: 10).
        similarity_threshold: labels of borrowed captions below it become 0, in [0, 1] (code: 0.5).
        tolerance: q of the generalised cross entropy, in (0, 1]; near 0 it is the cross entropy (code: 0.7).
        first_share: share of pairs that should score above tau at the start, in [0, 1] (code: lambda_min 0.4).
        last_share: the same at the end (code: lambda_max 0.9).
        share_step: how far tau moves for a share that is off by 1, at least 0 (code: k 0.2).
        smoothing: share of a move that is made, in [0, 1] (code: beta 0.3).
        faults: ``published`` keeps three faults of the code: predictions of captions that depend on the batch, labels
            of borrowed captions with a gradient, and borrowed captions whose words are shifted or squeezed.
        warmup_epochs: epochs of warm-up (code: 5).
        epochs: epochs after the warm-up (code: 50).
        noisy_from_epoch: first epoch after the warm-up with refinable batches (code: 25).
        hard_from_epoch: first epoch after the warm-up with ambiguous batches (code: 40).
        learning_rate: learning rate of Adam (code: 2e-4).
        warmup_learning_rate: learning rate of the warm-up (default, as published: ``learning_rate``).
        lr_update: epochs between decays, counted after the warm-up (code: 30).
        lr_decay: factor of a decay (code: 0.1).
        selection: ``best`` epoch of the run on dev, or since ambiguous batches began (``published``).
    """

    margin: NonNegativeFloat = 0.2
    temperature: PositiveFloat = 0.05
    clean_threshold: ShareBelowOne = 0.5
    classes: Annotated[int, Field(ge=2)] = 256
    hidden_size: PositiveInt = 256
    entropy_weight: NonNegativeFloat = 10.0
    similarity_threshold: Share = 0.5
    tolerance: ShareAboveZero = 0.7
    first_share: Share = 0.4
    last_share: Share = 0.9
    share_step: NonNegativeFloat = 0.2
    smoothing: Share = 0.3
    faults: Faults = "repaired"
    warmup_epochs: NonNegativeInt = 5
    epochs: PositiveInt = 50
    noisy_from_epoch: NonNegativeInt = 25
    hard_from_epoch: NonNegativeInt = 40
    selection: Selection = "best"


def robust_classification_loss(probabilities: Tensor, caption_logits: Tensor, tolerance: float) -> Tensor:
    """Generalised cross entropy ``(1 - p^q) / q`` of the caption's most likely class, ``(B,)``."""
    given = probabilities.gather(1, caption_logits.argmax(dim=1, keepdim=True)).squeeze(1)
    return (1 - given**tolerance) / tolerance


def consistency_score(votes: Tensor) -> Tensor:
    """PCS, float64 ``(n,)``: votes ``(n, K)`` of the most frequent class, minus those of the second."""
    first, second = votes.topk(2, dim=1).values.double().unbind(dim=1)
    return first - second


def target_share(done: float, config: PCSRConfig) -> float:
    """Share of pairs that should score above tau after a fraction ``done`` of the training."""
    return config.first_share + (config.last_share - config.first_share) * done


def moved_threshold(threshold: Tensor, share: Tensor, target: float, config: PCSRConfig) -> Tensor:
    """The next tau, scalar: lower if too few pairs score above the present one."""
    # it moves by less than 0.06 in an epoch, while a stable pair gains two votes. So after some epochs refinable means
    # stable, whatever the share is
    return threshold - config.smoothing * config.share_step * (target - share)


def pcsr_triplet(
    similarities: Tensor, labels: Tensor, side: Literal["row", "column"], margin: float
) -> Tensor:
    """Hardest negatives, margin from the label of each pair, ``(B,)``.

    Args:
        similarities: float ``(B, B)``.
        labels: in [0, 1], ``(B,)``.
        side: whose margin an entry has in both directions.
        margin: margin of label 1.
    """
    margins = soft_margin(labels, margin)
    # as in the code: row i in both directions for clean and ambiguous pairs, column j for refinable ones
    one_sided = margins[:, None] if side == "row" else margins[None, :]
    # clamped at 1e-8 instead of 0, as in the code
    return hardest_triplet(similarities, one_sided, one_sided, floor=FLOOR)


def resized_from_own_length(captions: Encoded, n_items: int) -> Tensor:
    """Bring every caption to ``n_items`` words from its own length, ``(n, n_items, dim)``.

    A shorter one is centred between zeros, a longer one interpolated.
    """
    lengths = captions.lengths[:, None]
    place = torch.arange(n_items, dtype=torch.float64)
    longer = lengths > n_items
    # half-pixel centres, as torch interpolates
    squeezed = ((place + 0.5) * lengths / n_items - 0.5).clamp(min=0)
    source = squeezed.where(longer, place - (n_items - lengths) // 2)
    inside = longer | ((source >= 0) & (source < lengths))
    low = source.floor().long().clamp(min=0).minimum(lengths - 1)
    high = (low + 1).minimum(lengths - 1)
    words, device = captions.vectors, captions.vectors.device

    def at(places: Tensor) -> Tensor:
        index = to_device(places, device)[..., None].expand(-1, -1, words.shape[2])
        return words.gather(1, index)

    share = to_device(source - low, device)[..., None].to(words)
    return torch.lerp(at(low), at(high), share) * to_device(inside, device)[..., None]


class PCSR(PseudoClassified):
    """Two networks with a pseudo-classifier each; each is trained on the other's three sets.

    Attributes:
        votes: how often each class was the most likely one of a pair, one memory per network.
        threshold: tau of each network, float64 ``(2,)``; NaN before the first division.
        classes_used: classes that were the most likely of some pair in the last division, ``(2,)``.
    """

    name = "pcsr"
    title = "PCSR"
    paper = "https://arxiv.org/abs/2509.15623"
    variants = (("faults", "published", "the code's faults"),)
    Config = PCSRConfig
    config: PCSRConfig
    threshold: Tensor
    classes_used: Tensor

    def __init__(self, config: PCSRConfig, setting: Setting) -> None:
        super().__init__(config, setting)
        self.votes: Modules[PairMemory] = Modules(
            PairMemory(setting.n_pairs, initial=0, width=config.classes, dtype=torch.int16)
            for _ in range(self.n_networks)
        )
        self.register_buffer("threshold", torch.full((self.n_networks,), torch.nan, dtype=torch.float64))
        self.register_buffer("classes_used", torch.zeros(self.n_networks))

    def further_sets(self) -> tuple[int, ...]:
        """Epochs at which refinable and ambiguous batches begin."""
        return self.config.noisy_from_epoch, self.config.hard_from_epoch

    def warmup_step(self, k: int, batch: Batch, step: Step) -> None:
        """InfoNCE on all pairs; the pseudo-classifier only predicts."""
        network = self.networks[k]
        output = network(batch)
        with torch.no_grad():
            # C is untrained, so these votes are those of random weights
            predictions = classify(network, output.images).softmax(dim=1)
        self.prediction[k].write(batch.pair_ids, predictions)
        self.vote(k, batch.pair_ids, predictions, 1)
        losses = info_nce(output.similarities, self.config.temperature) + output.auxiliary
        step(network, losses.mean(), batch)

    @torch.no_grad()
    def vote(self, k: int, pair_ids: Tensor, predictions: Tensor, votes: int) -> None:
        """Count the most likely class of each pair; votes are never reset."""
        # predictions of images alone: the captions of an image vote alike, so the score cannot tell which is wrong
        self.votes[k].values[pair_ids, predictions.argmax(dim=1)] += votes

    def predicted(self, k: int, pair_ids: Tensor, predictions: Tensor) -> None:
        """Count the votes of the division."""
        self.vote(k, pair_ids, predictions, VOTES_PER_DIVISION)

    @torch.no_grad()
    def co_divide(self, plan: EpochPlan, batches: TrainingBatches) -> None:
        """w, c, votes and tau of both networks."""
        before = [memory.values.sum(dim=0) for memory in self.votes]
        super().co_divide(plan, batches)
        ids = batches.pair_ids.to(self.threshold.device)
        for k, memory in enumerate(self.votes):
            self.classes_used[k] = (memory.values.sum(dim=0) > before[k]).sum()
            self.move_threshold(k, plan, ids)

    def move_threshold(self, k: int, plan: EpochPlan, ids: Tensor) -> None:
        """Set tau of network k to the mean score at the first division, and move it at every one."""
        c, scores = self.config, consistency_score(self.votes[k].read(ids))
        threshold = torch.where(self.threshold[k].isnan(), scores.mean(), self.threshold[k])
        share = (scores > threshold).float().mean()
        done = (plan.epoch + c.warmup_epochs) / (c.epochs + c.warmup_epochs)
        self.threshold[k] = moved_threshold(threshold, share, target_share(done, c), c)

    def three_sets(self, k: int, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Clean, refinable and ambiguous pairs by network k, int64 each."""
        clean = self.is_clean(self.clean_probability[k].read(ids))
        stable = consistency_score(self.votes[k].read(ids)) > self.threshold[k]
        return ids[clean], ids[~clean & stable], ids[~clean & ~stable]

    def train_network(self, k: int, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Train once over the clean pairs of the peer, later with an ambiguous and a refinable batch after each."""
        c, peer = self.config, 1 - k
        ids = batches.pair_ids.to(self.threshold.device)
        clean_ids, refinable_ids, ambiguous_ids = self.three_sets(peer, ids)
        labels = self.labels_by(peer, ids)
        image_ids = batches.shown_images.to(ids.device)

        def partners(name: str, pair_ids: Tensor, from_epoch: int) -> Iterator[Batch | None]:
            if plan.epoch < from_epoch or len(pair_ids) < 2:
                return repeat(None)
            return batches.endless(name, k, pair_ids=pair_ids)

        refinables = partners("refinable", refinable_ids, c.noisy_from_epoch)
        ambiguous = partners("ambiguous", ambiguous_ids, c.hard_from_epoch)
        cleans = batches.shuffled("clean", k, pair_ids=clean_ids)
        for clean, hard, refinable in zip(cleans, ambiguous, refinables, strict=False):
            self.clean_step(k, clean, labels[clean.pair_ids], step)
            clean_images = image_ids[clean.pair_ids]
            if hard is not None:
                self.borrowed_step(k, clean, hard, clean_images, step, robust=True)
            if refinable is not None:
                self.borrowed_step(k, clean, refinable, clean_images, step, robust=False)

    def caption_logits(self, network: Backbone, captions: Encoded) -> Tensor:
        """Logits ``(n, K)`` of captions by the pseudo-classifier, without gradient."""
        with torch.no_grad():
            if self.config.faults == "repaired" and captions.vectors.dim() == 3:
                # fault of the code: resized from the longest caption of the batch, so the class of a caption depends
                # on its company
                vectors = resized_from_own_length(captions, self.setting.n_regions)
                captions = Encoded(vectors, torch.full_like(captions.lengths, self.setting.n_regions))
            return classify(network, captions)

    def clean_step(self, k: int, batch: Batch, labels: Tensor, step: Step) -> None:
        """Train on clean pairs with labels ``(B,)``; the caption's class teaches the image."""
        c, network = self.config, self.networks[k]
        output = network(batch)
        triplet = pcsr_triplet(output.similarities, labels, "row", c.margin).sum()
        logits = classify(network, output.images)
        classification = classification_loss(logits, self.caption_logits(network, output.captions)).mean()
        # of every single prediction, as in PC2's code: best for a pair is a probability of 0.04 for its class and
        # the rest even, and one class for all pairs costs nothing more
        spread = entropy(logits.softmax(dim=1)).mean()
        loss = triplet + classification - c.entropy_weight * spread + (labels * output.auxiliary).mean()
        step(
            network,
            loss,
            batch,
            triplet=triplet,
            classification=classification,
            entropy=spread,
            classes_used=self.classes_used[1 - k],
        )

    def borrowed_step(
        self, k: int, clean: Batch, batch: Batch, image_ids: Tensor, step: Step, *, robust: bool
    ) -> None:
        """Train on images with captions of the clean batch.

        Args:
            k: number of the network.
            clean: C clean pairs.
            batch: refinable or ambiguous pairs.
            image_ids: int64 ``(C,)``, image of each clean pair.
            step: the trainer's step.
            robust: adds the class loss of ambiguous pairs.
        """
        c, network = self.config, self.networks[k]
        published = c.faults == "published"
        # encoded again, with the weights after the steps before. Its images' global vectors too, so statistics of batch
        # normalisation move once more than in the code
        clean_images, clean_captions = network.encode(clean)
        images = network.encode_images(batch.image_features, batch.image_lengths)
        predictions = classify(network, images).softmax(dim=1)
        self.prediction[k].write(batch.pair_ids, predictions)
        likeness, rows = most_alike(predictions, classify(network, clean_images).softmax(dim=1), image_ids)
        labels = likeness.where(likeness >= c.similarity_threshold, 0.0)
        if published:
            # faults of the code: the gradient lowers the margin by making predictions less alike, and the words are
            # moved to the length of the other batch under the old count
            captions = borrowed(clean_captions, rows, batch.caption_tokens.shape[1])
        else:
            labels, captions = labels.detach(), clean_captions.chosen(rows)
        similarities = network.compare(images, captions)
        side: Literal["row", "column"] = "row" if robust else "column"
        triplet = pcsr_triplet(similarities, labels, side, c.margin).sum()
        if not robust:
            step(network, triplet, batch, refinable=triplet)
            return
        # the abstract gives robust losses to ambiguous pairs; in the code only the class term is robust, and the
        # triplet is that of refinable pairs
        with torch.no_grad():
            own_captions = network.captions_of(batch)
        targets = self.caption_logits(network, own_captions)
        classification = robust_classification_loss(predictions, targets, c.tolerance).mean()
        spread = entropy(predictions).mean()
        loss = triplet + classification - c.entropy_weight * spread
        step(
            network,
            loss,
            batch,
            ambiguous=triplet,
            robust_classification=classification,
            ambiguous_entropy=spread,
        )
