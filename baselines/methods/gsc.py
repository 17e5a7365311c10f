"""GSC: Mitigating Noisy Correspondence by Geometrical Structure Consistency Learning.

Zhao et al., CVPR 2024. https://arxiv.org/abs/2405.16996

A matching pair is close across modalities, and its image relates to other images as its caption relates to other
captions. Both agreements are learned by contrast, and both indicate how far a pair can be trusted. The smaller
indicator, smoothed over epochs, weights the pair in the next epoch.

Deviations between paper and published code, each at its line; we follow the code unless said otherwise:
  * ``gsc_plus`` is Algorithm 1, two networks that exchange labels, as in the paper's tables; ``gsc`` is
    the single network of the ablation in Table 4. Their published codes compare items of one modality
    differently (see the backbones' ``image_image_similarities`` and ``caption_caption_similarities``);
  * both networks train on each batch, not one after the other;
  * Eq. 3 and Eq. 8 run over the batch, in training mode, and Eq. 7 weights twice by y;
  * the weight of Eq. 9 is called gamma and, in section 4.2, lambda; the scripts set it per dataset;
  * the warm-up, which fails in the code, keeps all labels at 1;
  * labels are part of a checkpoint;
  * the published training script evaluates on test after every epoch; here test is not read.
"""

from typing import ClassVar

import torch
from numpy.random import RandomState
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn

from baselines.kit.backbone import IntraModal
from baselines.kit.batches import Batch, TrainingBatches, derive_seed
from baselines.kit.losses import info_nce, matching_probability
from baselines.kit.method import EpochPlan, Method, Modules, PairMemory, Setting, Step, StepDecay
from baselines.kit.mixture import min_max_normalised, mixture_posterior
from baselines.kit.options import Share, ShareAboveZero


class GSCConfig(StepDecay):
    """Every constant of the paper, in its order.

    Attributes:
        cross_modal_temperature: tau_1 of Eq. 3 and Eq. 6, above 0 (section 4.2: 0.07).
        intra_modal_temperature: tau_2 of Eq. 7, above 0 (section 4.2: 1).
        intra_modal_weight: gamma of Eq. 9, at least 0 (section 4.2: 0.01).
        intra_modal: False drops L_IM and y_IM, so that y_CM is the label (Table 4).
        cross_modal_momentum: beta_1 of Eq. 10, weight of the new value, in [0, 1] (section 4.2: 0.7).
        intra_modal_momentum: beta_2 of Eq. 10, likewise.
        warmup_epochs: first epochs, with all labels 1, at least 1 (Algorithm 1: 1; Table 4 without momentum: 5).
        epochs: epochs of Algorithm 1 (code: 60).
        learning_rate: learning rate of Adam (section 4.2: 2e-4).
        lr_update: epochs between decays (section 4.2: 15).
        lr_decay: factor of a decay (section 4.2: 0.2).
    """

    cross_modal_temperature: PositiveFloat = 0.07
    intra_modal_temperature: PositiveFloat = 1.0
    intra_modal_weight: NonNegativeFloat = 0.01
    intra_modal: bool = True
    cross_modal_momentum: Share = 0.7
    intra_modal_momentum: Share = 0.7
    warmup_epochs: PositiveInt = 1
    epochs: PositiveInt = 60
    lr_update: PositiveInt = 15
    lr_decay: ShareAboveZero = 0.2


def intra_modal_indicator(agreement: Tensor, random_state: RandomState | int) -> Tensor:
    """y_IM of Eq. 4, ``(n,)`` in [0, 1]: posterior of the mixture component with the larger agreement.

    Args:
        agreement: S_IM of every pair, float ``(n,)``.
        random_state: random state of the fit.
    """
    normalised = min_max_normalised(agreement.cpu().numpy())
    posterior = mixture_posterior(normalised, larger_mean=True, random_state=random_state)
    return torch.from_numpy(posterior).to(agreement)


def cross_modal_loss(similarities: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """L_CM of Eq. 6, ``(B,)``."""
    return labels * info_nce(similarities, temperature)


def intra_modal_loss(images: Tensor, captions: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """L_IM of Eq. 7, ``(B,)``: an image's structure should find its caption's structure in the batch.

    Args:
        images: float ``(B, B)``, ``y^k <I_i, I_k>``: row i is the structure of image i.
        captions: float ``(B, B)``, ``y^k <T_j, T_k>``.
        labels: y, float ``(B,)``.
        temperature: tau_2.
    """
    logits = images @ captions.T / temperature
    # Eq. 7 weights the structures by y; the code also weights the loss by y
    return -labels * logits.log_softmax(dim=1).diagonal()


def structural_agreement(images: Tensor, captions: Tensor) -> Tensor:
    """S_IM of Eq. 8, ``(B,)``: cosine of row i of both structures."""
    return nn.functional.cosine_similarity(images, captions, dim=1)


def momentum_update(old: Tensor, new: Tensor, momentum: float) -> Tensor:
    """Eq. 10: ``beta y[t] + (1 - beta) y[t - 1]``."""
    return momentum * new + (1 - momentum) * old


class Indicators(nn.Module):
    """Indicators of every training pair by one network.

    Attributes:
        cross_modal: y_CM, smoothed over epochs.
        intra_modal: y_IM, smoothed over epochs.
        label: y of Eq. 5.
        seen_cross_modal: y_CM of this epoch.
        seen_agreement: S_IM of this epoch.
    """

    def __init__(self, n_pairs: int) -> None:
        super().__init__()
        # buffers of the dataset's length; the code has tables of fixed lengths for three datasets, and leaves
        # them out of its checkpoints
        self.cross_modal = PairMemory(n_pairs, initial=1.0)
        self.intra_modal = PairMemory(n_pairs, initial=1.0)
        self.label = PairMemory(n_pairs, initial=1.0)
        self.seen_cross_modal = PairMemory(n_pairs, initial=1.0)
        self.seen_agreement = PairMemory(n_pairs, initial=1.0)

    def update(self, pair_ids: Tensor, config: GSCConfig, random_state: RandomState | int) -> None:
        """Finish an epoch: Eq. 4, Eq. 10 and Eq. 5 for the visited pairs."""
        intra_modal = intra_modal_indicator(self.seen_agreement.read(pair_ids), random_state)
        for memory, new, momentum in (
            (self.cross_modal, self.seen_cross_modal.read(pair_ids), config.cross_modal_momentum),
            (self.intra_modal, intra_modal, config.intra_modal_momentum),
        ):
            memory.write(pair_ids, momentum_update(memory.read(pair_ids), new, momentum))
        label = self.cross_modal.read(pair_ids)
        if config.intra_modal:
            # the smaller one: a pair is trusted as far as both agree that it matches
            label = torch.minimum(label, self.intra_modal.read(pair_ids))
        self.label.write(pair_ids, label)


class GSC(Method):
    """One network, weighted by its own indicators of the previous epoch."""

    name = "gsc"
    title = "GSC"
    paper = "https://arxiv.org/abs/2405.16996"
    Config = GSCConfig
    config: GSCConfig
    needs_intra_modal = True
    variant: ClassVar[IntraModal] = "gsc"

    def __init__(self, config: GSCConfig, setting: Setting) -> None:
        super().__init__(config, setting)
        self.indicators: Modules[Indicators] = Modules(
            Indicators(setting.n_pairs) for _ in range(self.n_networks)
        )

    def train_epoch(self, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Algorithm 1."""
        self.train()
        for batch in batches.shuffled("train"):
            # Algorithm 1 trains one network after the other; the code both on each batch, A first
            for k in range(self.n_networks):
                self.train_step(k, batch, step)
        # Algorithm 1 begins with labels of 1 for an epoch; the code's warm-up fails and no script uses it
        if plan.epoch + 1 < self.config.warmup_epochs:
            return
        for k, own in enumerate(self.indicators):
            seed = derive_seed(batches.seed, "mixture", plan.epoch, k)
            own.update(batches.pair_ids, self.config, seed)

    def train_step(self, k: int, batch: Batch, step: Step) -> None:
        """Eq. 6 to Eq. 9 for network k with the other network's labels (its own for a single network)."""
        c, network, own = self.config, self.networks[k], self.indicators[k]
        labels = self.indicators[(k + 1) % self.n_networks].label.read(batch.pair_ids)
        output = network(batch)
        similarities = output.similarities
        # labels weight columns: items of doubtful pairs are poor landmarks
        image_structure = labels * network.image_image_similarities(output.images, self.variant)
        caption_structure = labels * network.caption_caption_similarities(output.captions, self.variant)
        cross_modal = cross_modal_loss(similarities, labels, c.cross_modal_temperature).mean()
        intra_modal = intra_modal_loss(
            image_structure, caption_structure, labels, c.intra_modal_temperature
        ).mean()
        auxiliary = (labels * output.auxiliary).mean()
        intra_modal_weight = c.intra_modal_weight if c.intra_modal else 0.0
        loss = cross_modal + intra_modal_weight * intra_modal + auxiliary
        # Eq. 3 and Eq. 8 run over all N pairs; the code takes both within the batch, from the forward pass of
        # this step
        indicator = matching_probability(similarities, c.cross_modal_temperature)  # y_CM of Eq. 3
        own.seen_cross_modal.write(batch.pair_ids, indicator)
        own.seen_agreement.write(batch.pair_ids, structural_agreement(image_structure, caption_structure))
        step(network, loss, batch, cross_modal=cross_modal, intra_modal=intra_modal)

    def estimates(self) -> dict[str, Tensor]:
        """Label, and the two indicators whose minimum it is, averaged over the networks."""
        return {
            "clean_probability": self._mean("label"),
            "cross_modal": self._mean("cross_modal"),
            "intra_modal": self._mean("intra_modal"),
        }

    def measurements(self) -> dict[str, Tensor]:
        """S_IM of the epoch, the mean over the networks."""
        return {"agreement": self._mean("seen_agreement")}

    def _mean(self, name: str) -> Tensor:
        return torch.stack([getattr(own, name).values for own in self.indicators]).mean(dim=0)


class GSCPlus(GSC):
    """Two networks, each weighted by the other's indicators."""

    name = "gsc_plus"
    title = "GSC+"
    n_networks = 2
    variant = "gsc+"
