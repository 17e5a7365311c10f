"""CRCL: Cross-modal Active Complementary Learning with Self-refining Correspondence.

Qin et al., NeurIPS 2023. https://arxiv.org/abs/2310.17468

The active complementary loss learns from "this is the match" as far as a pair is trusted, and from "those are not the
match" otherwise. Labels follow the network's predictions by momentum. Several rounds, each with a fresh network and the
old labels, remove what earlier networks had memorised.

Deviations between paper and published code, each at its line; we follow the code unless said otherwise:
  * a floor in the denominator of Eq. 3;
  * labels (Eq. 11, Eq. 12) come from the step's own forward pass, are filtered when stored, and when frozen;
  * the learning rate falls in every round, not only in the last;
  * masked regions do not accumulate (a fault of the code), and nothing becomes empty;
  * Table 4 without SCC has one round;
  * dev chooses among all rounds, where the code forgets the best epoch of earlier rounds, see ``selection``;
  * the published training script evaluates on test after every epoch; here test is not read.
"""

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn

from baselines.kit.augmentation import augmented
from baselines.kit.batches import Batch, TrainingBatches
from baselines.kit.losses import matching_log_probabilities
from baselines.kit.method import EpochPlan, Method, PairMemory, Selection, Setting, Step, stepwise
from baselines.kit.options import Options, Share, ShareAboveZero


class CRCLConfig(Options):
    """Every constant of the paper, in its order.

    Attributes:
        temperature: tau of Eq. 3, above 0 (supplement, Table 5: 0.05).
        complementary_weight: lambda of Eq. 8, at least 0 (Table 5: 5).
        active_weight: weight of L_d in Eq. 8, at least 0 (1; Table 4 without it: 0).
        exponent: q of Eq. 6 for every pair, in [0, 1]; ``1 - y`` by default (Table 4: 0 and 1).
        self_refining: SCC; False is Table 4 without it: one round, and predictions as labels.
        momentum: beta of Eq. 10, in [0, 1] (Table 5: 0.8).
        rounds: epochs e_1 ... e_m of the self-refining rounds, frozen epochs included (Table 5: 7, 7, 7, 32).
        freeze_epochs: e_f of Eq. 11, epochs of each round before labels move, at least 0 (Table 5: 2).
        confidence_threshold: epsilon of Eq. 12, labels below it become 0, in [0, 1] (Table 5: 0.1).
        word_change: probability of masking, replacing or dropping a word, in [0, 1] (code: 0.2).
        region_change: probability of dropping or blanking a region, in [0, 1] (code: 0.2).
        learning_rate: learning rate of AdamW (Table 5: 5e-4).
        lr_update: epochs between decays within a round (Table 5: 15).
        lr_decay: factor of a decay (supplement B.2: 0.1).
        selection: ``best`` epoch of all rounds on dev, or of the last round only (``published``).
    """

    temperature: PositiveFloat = 0.05
    complementary_weight: NonNegativeFloat = 5.0
    active_weight: NonNegativeFloat = 1.0
    exponent: Share | None = None
    self_refining: bool = True
    momentum: Share = 0.8
    rounds: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (7, 7, 7, 32)
    freeze_epochs: NonNegativeInt = 2
    confidence_threshold: Share = 0.1
    word_change: Share = 0.2
    region_change: Share = 0.2
    learning_rate: PositiveFloat = 5e-4
    lr_update: PositiveInt = 15
    lr_decay: ShareAboveZero = 0.1
    selection: Selection = "best"


def active_loss(log_i2t: Tensor, log_t2i: Tensor, labels: Tensor) -> Tensor:
    """L_d of section 2.2, ``(B,)``: ``-y (log p_ii + log p'_ii)``."""
    return -labels * (log_i2t.diagonal() + log_t2i.diagonal())


def complementary_loss(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """One direction of L_r of Eq. 6 with ``q = 1 - y``, ``(B,)``."""
    tangents = log_probabilities.exp().tan()
    # tan of a probability is at most tan(1), so no cost can explode as a logarithm's would
    total = tangents.sum(dim=1)
    return (total - tangents.diagonal()) / total ** (1 - labels)


def momentum_label(stored: Tensor, prediction: Tensor, momentum: float) -> Tensor:
    """Eq. 10, ``(B,)``: ``beta y + (1 - beta) p``."""
    return momentum * stored + (1 - momentum) * prediction


def confident_label(labels: Tensor, threshold: float) -> Tensor:
    """Eq. 12, ``(B,)``: labels below epsilon become 0."""
    return labels.masked_fill(labels < threshold, 0.0)


class CRCL(Method):
    """One network, renewed in every round; the labels are kept."""

    name = "crcl"
    title = "CRCL"
    paper = "https://arxiv.org/abs/2310.17468"
    Config = CRCLConfig
    config: CRCLConfig
    extra_words = 1

    def __init__(self, config: CRCLConfig, setting: Setting) -> None:
        super().__init__(config, setting)
        self.labels = PairMemory(setting.n_pairs, initial=1.0)

    def plan(self) -> Sequence[EpochPlan]:
        """The self-refining rounds: each starts with a fresh network."""
        c = self.config
        # Table 4 without SCC: one round as long as all of them
        rounds = c.rounds if c.self_refining else (sum(c.rounds),)
        return [
            EpochPlan(
                round,
                epoch,
                "frozen" if epoch < c.freeze_epochs else "refining",
                rate,
                new_networks=round > 0 and epoch == 0,
                forget_best=c.selection == "published" and round > 0 and epoch == 0,
            )
            for round, epochs in enumerate(rounds)
            # decays within each round; supplement B.2 has one, in the last round
            for epoch, rate in enumerate(stepwise(c.learning_rate, c.lr_decay, c.lr_update, epochs))
        ]

    def make_optimizer(self, network: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        """AdamW with its default weight decay of 0.01 (published code)."""
        return torch.optim.AdamW(network.parameters(), lr=learning_rate)

    def train_epoch(self, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Algorithm 1: one epoch of one round."""
        c, network = self.config, self.networks[0].train()
        for batch in batches.shuffled("train"):
            images, captions = network.encode(self.augmented(batch))
            output = network.output(batch, images, captions)  # a captioner writes the whole caption
            log_i2t = matching_log_probabilities(output.similarities, c.temperature)
            log_t2i = matching_log_probabilities(output.similarities.T, c.temperature)
            # in training mode, on augmented pairs: the label that weights the loss already includes this
            # step's prediction, where Eq. 11 has that of the epoch before
            labels = self.refine_labels(plan, batch.pair_ids, log_i2t, log_t2i)
            active = c.active_weight * active_loss(log_i2t, log_t2i, labels).mean()
            trust = labels if c.exponent is None else torch.full_like(labels, 1 - c.exponent)
            complementary = complementary_loss(log_i2t, trust) + complementary_loss(log_t2i, trust)
            weighted = c.complementary_weight * complementary.mean()
            auxiliary = (labels * output.auxiliary).mean()
            step(network, active + weighted + auxiliary, batch, active=active, complementary=weighted)

    @torch.no_grad()
    def refine_labels(self, plan: EpochPlan, pair_ids: Tensor, log_i2t: Tensor, log_t2i: Tensor) -> Tensor:
        """Eq. 10-12: labels of this step's loss, ``(B,)``, stored for the next epoch."""
        c = self.config
        prediction = (log_i2t.diagonal().exp() + log_t2i.diagonal().exp()) / 2
        if not c.self_refining and plan.epoch >= c.freeze_epochs:
            self.labels.write(pair_ids, prediction)
            # section 3.6: without SCC the prediction is the label, unfiltered
            return prediction
        labels = self.labels.read(pair_ids)
        if plan.epoch >= c.freeze_epochs:
            labels = momentum_label(labels, prediction, c.momentum)
        # Eq. 12 filters for the loss; the code filters frozen labels too, and stores the result
        labels = confident_label(labels, c.confidence_threshold)
        # Eq. 11 takes the last frozen prediction as the next epoch's label; the code stores it and then mixes
        # by momentum
        first_estimate = c.self_refining and plan.round == 0 and plan.epoch == c.freeze_epochs - 1
        self.labels.write(pair_ids, prediction if first_estimate else labels)
        return labels

    def augmented(self, batch: Batch) -> Batch:
        """Drop or mask words and regions."""
        return augmented(
            batch,
            word_change=self.config.word_change,
            region_change=self.config.region_change,
            vocabulary_size=self.setting.vocabulary_size,
            fixed_regions=self.networks[0].fixed_regions,
        )

    def estimates(self) -> dict[str, Tensor]:
        """The refined labels."""
        return {"clean_probability": self.labels.values}
