"""DECL: Deep Evidential Learning with Noisy Correspondence for Cross-modal Retrieval. Qin et al., ACM MM 2022.

https://doi.org/10.1145/3503161.3547922

A similarity is evidence that an image and a caption match. Evidential learning turns it into a distribution over the
batch. A pair counts as noisy for an epoch if its own candidate does not have the most evidence. Noisy pairs learn that
they have no match; clean pairs also have a triplet loss on ever fewer, ever harder negatives.

We follow the published code and the supplement; the paper's main text was not available. Deviations, each at its line:
  * evidence of a similarity with or without a sigmoid;
  * the number of negatives also falls in the warm-up, and from the recipe's batch size;
  * batches that are too small for mu are skipped;
  * dev is ranked by similarity, test by evidence;
  * the divergence is computed in float64;
  * the published training script evaluates on test after every epoch; here test is not read.
"""

import torch
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from baselines.kit.backbone import Backbone
from baselines.kit.batches import Batch, TrainingBatches
from baselines.kit.losses import hinge_costs
from baselines.kit.method import EpochPlan, Method, PairMemory, Setting, Step, WarmUpThenStepDecay
from ncl_bench.errors import TrainingError


class DECLConfig(WarmUpThenStepDecay):
    """Every constant of the paper, in its order.

    Attributes:
        temperature: tau, evidence is ``exp(tanh(r) / tau)``, above 0 (code: 0.1).
        hinge_weight: lambda_1, weight of the triplet loss, at least 0 (code: 0.8).
        divergence_weight: lambda_2, weight of misleading evidence, at least 0 (code: 0.1).
        hardening: eta, negatives dropped per step, at least 0 (code: 0.025).
        fewest_negatives: mu, at least 1 (code: 5).
        margin: margin of the triplet loss, at least 0 (code: 0.2).
        warmup_epochs: epochs that take every pair as clean (code, by noise 0.2, 0.4, 0.6, 0.8: Flickr30K 5, 5, 2, 2;
            COCO 2, 2, 1, 1; CC152K 5; without noise 5, 2, 5).
        epochs: epochs after the warm-up (code: 40 Flickr30K and CC152K, 20 COCO).
        learning_rate: learning rate of Adam (code: 2e-4; COCO 5e-4).
        lr_update: epochs between decays, counted after the warm-up (code: 20; COCO 10).
        lr_decay: factor of a decay (code: 0.1).
    """

    temperature: PositiveFloat = 0.1
    hinge_weight: NonNegativeFloat = 0.8
    divergence_weight: NonNegativeFloat = 0.1
    hardening: NonNegativeFloat = 0.025
    fewest_negatives: PositiveInt = 5
    margin: NonNegativeFloat = 0.2
    warmup_epochs: NonNegativeInt = 5
    lr_update: PositiveInt = 20


# Evidential learning (Sensoy et al., NeurIPS 2018, https://arxiv.org/abs/1806.01768): evidence plus one is the
# parameter of a Dirichlet distribution over the candidates. ``alpha`` is ``(queries, candidates)`` and above 1;
# ``labels`` has the same shape; a row of zeros means that no candidate is right.


def squared_error(alpha: Tensor, labels: Tensor) -> Tensor:
    """Squared distance of the expected probabilities from the labels, ``(queries,)``."""
    return (labels - alpha / alpha.sum(dim=1, keepdim=True)).square().sum(dim=1)


def variance(alpha: Tensor) -> Tensor:
    """Variance of the probabilities, summed over the candidates, ``(queries,)``."""
    total = alpha.sum(dim=1, keepdim=True)
    return (alpha * (total - alpha) / (total.square() * (total + 1))).sum(dim=1)


def misleading_evidence(alpha: Tensor, labels: Tensor) -> Tensor:
    """Divergence of the evidence for wrong candidates from no evidence, ``(queries,)``."""
    wrong = (1 + (alpha - 1) * (1 - labels)).double()
    total = wrong.sum(dim=1)
    n_candidates = wrong.new_full((), wrong.shape[1])
    # float64, unlike the code: large logarithms of gamma functions cancel
    normaliser = total.lgamma() - wrong.lgamma().sum(dim=1) - n_candidates.lgamma()
    slope = ((wrong - 1) * (wrong.digamma() - total.digamma()[:, None])).sum(dim=1)
    return (normaliser + slope).to(alpha)


def uncertainty(alpha: Tensor) -> Tensor:
    """Share of the distribution without evidence, ``(queries,)`` in (0, 1]."""
    return alpha.shape[1] / alpha.sum(dim=1)


def evidential_loss(alpha: Tensor, labels: Tensor, divergence_weight: float) -> Tensor:
    """Fit, spread and misleading evidence, ``(queries,)``."""
    divergence = misleading_evidence(alpha, labels)
    return squared_error(alpha, labels) + variance(alpha) + divergence_weight * divergence


def squashed(similarities: Tensor, similarity_range: tuple[float, float]) -> Tensor:
    """``tanh(r)``, same shape, in [-1, 1]; r is the similarity before its sigmoid, if it has one.

    Args:
        similarities: any shape.
        similarity_range: range of the network's similarities; (0, 1) means a sigmoid.
    """
    if similarity_range != (0.0, 1.0):
        # a cosine is taken as r itself; the code has networks with a sigmoid alone
        return similarities.tanh()
    # tanh(r) as a function of s = sigmoid(r), with the values and gradients of the code, which reads r
    return (2 * similarities - 1) / (similarities.square() + (1 - similarities).square())


def evidence(squashed_similarities: Tensor, temperature: float) -> Tensor:
    """``exp(tanh(r) / tau)``, same shape."""
    return (squashed_similarities / temperature).exp()


def predicted_clean(evidence: Tensor) -> Tensor:
    """Whether a pair's own evidence is the largest of its row, over both directions together, bool ``(B,)``.

    The first of equal entries counts.
    """
    both = evidence + evidence.T
    return both.argmax(dim=1) == torch.arange(len(both), device=both.device)


def cross_modal_evidential_loss(evidence: Tensor, clean: Tensor, divergence_weight: float) -> Tensor:
    """Evidential loss of every pair in both directions, ``(B,)``; noisy pairs have no match."""
    # a row of zeros: no candidate has a right to evidence
    labels = torch.diag(clean.to(evidence))
    images = evidential_loss(evidence + 1, labels, divergence_weight)
    return images + evidential_loss(evidence.T + 1, labels, divergence_weight)


def negatives_at(step: int, batch_size: int, pairs: int, config: DECLConfig) -> int:
    """Number of negatives of the triplet loss: from a whole batch down to mu.

    Args:
        step: counted from 1 over the whole run.
        batch_size: batch size of the recipe.
        pairs: pairs in this batch.
        config: eta and mu.
    """
    # the recipe's batch size, even in a smaller last batch
    n = max(int(batch_size - config.hardening * step), config.fewest_negatives)
    return n if n <= pairs else pairs - 1


def hardest_mean_triplet(similarities: Tensor, margin: float, negatives: int) -> Tensor:
    """Mean cost of the hardest negatives of each pair, both directions added, ``(B,)``."""
    caption_costs, image_costs = hinge_costs(similarities, margin)
    captions = caption_costs.topk(negatives, dim=1).values.sum(dim=1)
    images = image_costs.topk(negatives, dim=0).values.sum(dim=0)
    return (captions + images) / negatives


class DECL(Method):
    """One network that predicts which pairs have no match."""

    name = "decl"
    title = "DECL"
    paper = "https://doi.org/10.1145/3503161.3547922"
    Config = DECLConfig
    config: DECLConfig
    steps: Tensor

    def __init__(self, config: DECLConfig, setting: Setting) -> None:
        super().__init__(config, setting)
        self.clean = PairMemory(setting.n_pairs, initial=1.0)
        self.certainty = PairMemory(setting.n_pairs, initial=1.0)
        self.register_buffer("steps", torch.tensor(0))

    def train_epoch(self, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Algorithm of the supplement."""
        warming_up = plan.phase == "warmup"
        if not warming_up:
            self.refuse_small_batches(batches.batch_size)
            self.predict(batches)
        begun = int(self.steps)
        # a batch of at most mu pairs ends the code's epoch; skipped here, as it can only be the last
        trained = (
            batch
            for batch in batches.shuffled("train")
            if warming_up or len(batch) > self.config.fewest_negatives
        )
        # counted over the run, so that warm-up steps drop negatives too
        for number, batch in enumerate(trained, start=begun + 1):
            clean = torch.ones_like(batch.pair_ids) if warming_up else self.clean.read(batch.pair_ids)
            negatives = negatives_at(number, batches.batch_size, len(batch), self.config)
            self.steps += 1
            self.train_step(batch, clean.bool(), negatives, step)

    def refuse_small_batches(self, batch_size: int) -> None:
        """Refuse a batch size at which every batch would be skipped."""
        mu = self.config.fewest_negatives
        if batch_size <= mu:
            raise TrainingError(
                f"DECL leaves out batches of at most mu = {mu} pairs, and batch_size is {batch_size}; "
                f"set batch_size to {mu + 1} or more, or fewest_negatives lower"
            )

    def train_step(self, batch: Batch, clean: Tensor, negatives: int, step: Step) -> None:
        """Evidential loss of all pairs, triplet loss of the clean ones (bool ``(B,)``) on their hardest negatives."""
        c, network = self.config, self.networks[0].train()
        output = network(batch)
        signed = self.squash(network, output.similarities)
        evidential = cross_modal_evidential_loss(
            evidence(signed, c.temperature), clean, c.divergence_weight
        ).mean()
        triplet = hardest_mean_triplet(signed, c.margin, negatives)
        # a sum over pairs beside the mean of the evidential loss, as in the code: lambda_1 holds for its
        # batch size
        hinge = c.hinge_weight * triplet.masked_fill(~clean, 0).sum()
        auxiliary = output.auxiliary.masked_fill(~clean, 0).mean()
        step(network, evidential + hinge + auxiliary, batch, evidential=evidential, hinge=hinge)

    @torch.no_grad()
    def predict(self, batches: TrainingBatches) -> None:
        """Predict clean or noisy for every pair, for the whole epoch, in evaluation mode."""
        network = self.networks[0].eval()
        for batch in batches.covering("predict"):
            evidences = evidence(self.squash(network, network(batch).similarities), self.config.temperature)
            self.clean.write(batch.pair_ids, predicted_clean(evidences))
            # queries of both sides have a distribution of their own
            doubt = (uncertainty(evidences + 1) + uncertainty(evidences.T + 1)) / 2
            self.certainty.write(batch.pair_ids, 1 - doubt)

    def squash(self, network: Backbone, similarities: Tensor) -> Tensor:
        """``tanh(r)`` of a network's similarities."""
        return squashed(similarities, network.similarity_range)

    def ranking_scores(self, network: Backbone, similarities: Tensor) -> Tensor:
        """The evidence."""
        # the order of one network's similarities stays; a mean over two gives more weight to the surer one. Dev is
        # ranked by similarity, as in the code
        return evidence(self.squash(network, similarities), self.config.temperature)

    def estimates(self) -> dict[str, Tensor]:
        """The prediction, and the share of a pair's distributions that evidence backs."""
        return {"clean_probability": self.clean.values, "certainty": self.certainty.values}
