"""NPC: Negative Pre-aware for Noisy Cross-Modal Matching.

Zhang et al., AAAI 2024. https://arxiv.org/abs/2312.05777

A copy of the network, the siamese network, trains on each batch first. Every pair has entries in a memory bank: surely
clean pairs with a similar image or caption. If the copy's losses on a pair's entries rise, the pair is harmful, and its
weight falls below 1.

Only the paper's abstract and figures were available, so equations have no numbers here; ``faults: published`` keeps
what the code does against them. Deviations, each at its line:
  * in the code only the mean weight of a batch has an effect, and the memory loss has no gradient;
  * the code's schedule (see :meth:`baselines.kit.fine_tuning.FineTuning.rate`);
  * the published rate, 2e-7, is for half-precision weights and moments, where a step is far longer. In float32 it
    hardly changes CLIP, so the default is OSA's 1e-5;
  * entries are chosen by cosine, of copies of one image the first, and strictly clean sets are never empty;
  * a loss of exactly 0 counts as unchanged;
  * an incomplete last batch is kept, and backbones' auxiliary losses do not reach the siamese network;
  * without pre-trained weights the network warms up with InfoNCE first, and keeps a fixed temperature.
"""

from collections.abc import Sequence
from copy import deepcopy

import torch
from numpy.random import RandomState
from torch import Tensor, nn

from baselines.kit.backbone import Backbone
from baselines.kit.batches import Batch, TrainingBatches, derive_seed
from baselines.kit.fine_tuning import FineTuning, FineTuningConfig
from baselines.kit.method import PairMemory, Setting, Step
from baselines.kit.mixture import mixture_posterior
from baselines.kit.options import ShareBelowOne

QUERIES_AT_ONCE = 1024


class NPCConfig(FineTuningConfig):
    """Every constant of the published code, besides schedule and optimiser.

    Attributes:
        clean_threshold: pairs with a clean probability above it may be entries, in [0, 1) (code: 0.9).
    """

    clean_threshold: ShareBelowOne = 0.9


def clean_posterior(losses: Tensor, random_state: RandomState | int) -> Tensor:
    """Clean probability of each pair, ``(n,)`` in [0, 1]: lower component of a mixture fitted to raw losses."""
    values = losses.detach().cpu().numpy()
    # raw losses: they keep their scale, unlike NCR's
    posterior = mixture_posterior(values, larger_mean=False, random_state=random_state, max_iter=100)
    return torch.from_numpy(posterior).to(losses)


def surely_clean(probability: Tensor, threshold: float) -> Tensor:
    """The strict clean set, bool ``(n,)``: above the threshold; all pairs if fewer than two are."""
    clean = probability > threshold
    # no entry could be chosen from fewer
    return clean if clean.sum() > 1 else torch.ones_like(clean)


def nearest(queries: Tensor, keys: Tensor) -> Tensor:
    """Key with the largest dot product for each query, int64 ``(n,)``.

    Args:
        queries: float ``(n, dim)``; unit vectors.
        keys: float ``(m, dim)``; unit vectors, so that the largest cosine wins.
    """
    # cosines; the code does not normalise the clean side. A clean pair may be its own entry, as in the code
    return torch.cat([(block @ keys.T).argmax(dim=1) for block in torch.split(queries, QUERIES_AT_ONCE)])


def ratio(before: Tensor, after: Tensor) -> Tensor:
    """``a / a'``, ``(B,)``: below 1 if the loss of an entry has risen; 1 if a loss is 0."""
    # the code divides by 0, which gives weights of -1 and 1
    return torch.where((before == 0) | (after == 0), 1.0, before / after)


def confidence(ratios: Sequence[Tensor]) -> Tensor:
    """w, ``(B,)`` in [0, 1]: ``tanh(r)`` where r, the mean of both entries' ratios, is below 1, else 1."""
    r = torch.stack(list(ratios)).mean(dim=0)
    # so weights between tanh(1) = 0.76 and 1 do not occur
    return torch.where(r < 1, r.tanh(), 1.0)


class NPC(FineTuning):
    """One network, and a copy that tries every batch first.

    Attributes:
        siamese: the copy. It has the network's weights before every batch; its optimiser keeps its moments.
        image_entry: for each pair, the surely clean pair with the most similar image; -1 before the bank is built.
        caption_entry: likewise with the most similar caption.
        clean_probability: clean probability of each pair under the initial network.
        weight: last w of each pair.
    """

    name = "npc"
    title = "NPC"
    paper = "https://arxiv.org/abs/2312.05777"
    Config = NPCConfig
    config: NPCConfig

    def __init__(self, config: NPCConfig, setting: Setting) -> None:
        super().__init__(config, setting)
        n_pairs = setting.n_pairs
        self.image_entry = PairMemory(n_pairs, initial=-1, dtype=torch.int64)
        self.caption_entry = PairMemory(n_pairs, initial=-1, dtype=torch.int64)
        self.clean_probability = PairMemory(n_pairs, initial=1.0)
        self.weight = PairMemory(n_pairs, initial=1.0)

    def renew_networks(self) -> None:
        """Make a fresh network and its copy."""
        super().renew_networks()
        self.siamese = deepcopy(self.networks[0])

    def trained_modules(self) -> Sequence[nn.Module]:
        """The network and its copy."""
        return [*self.networks, self.siamese]

    @torch.no_grad()
    def prepare(self, batches: TrainingBatches) -> None:
        """Build the memory bank from losses and vectors in evaluation mode."""
        network, seen = self.networks[0].eval(), []
        for batch in batches.covering("bank"):
            output = network(batch)
            losses = self.pair_losses(network, output.similarities)
            seen.append((batch.pair_ids, output.images.vectors, output.captions.vectors, losses))
        ids, image_vectors, caption_vectors, all_losses = map(torch.cat, zip(*seen, strict=True))
        probability = clean_posterior(all_losses, derive_seed(batches.seed, "bank"))
        clean = surely_clean(probability, self.config.clean_threshold)
        self.clean_probability.write(ids, probability)
        entries = ids[clean][nearest(image_vectors, image_vectors[clean])]
        # copies of one image tie, and the code takes the first; rounding, which differs by place, would choose here
        image_of = batches.shown_images.to(ids.device)
        first = ids.new_full((int(image_of.max()) + 1,), len(image_of))
        first.scatter_reduce_(0, image_of[ids[clean]], ids[clean], "amin")
        self.image_entry.write(ids, first[image_of[entries]])
        self.caption_entry.write(ids, ids[clean][nearest(caption_vectors, caption_vectors[clean])])

    def train_step(self, batch: Batch, rate: float, batches: TrainingBatches, step: Step) -> None:
        """Try the batch on the copy, then train the network with the resulting weights."""
        memories = (self.image_entry, self.caption_entry)
        chosen = torch.stack([memory.read(batch.pair_ids) for memory in memories]).cpu()
        entries = [batches.read(ids) for ids in chosen]
        before, after = self.try_out(batch, entries, rate, step)
        weight = confidence([ratio(*losses) for losses in zip(before, after, strict=True)])
        self.weight.write(batch.pair_ids, weight)
        self.weighted_step(batch, entries, weight, before, rate, step)

    def try_out(
        self, batch: Batch, entries: Sequence[Batch], rate: float, step: Step
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Losses of image entries and caption entries before and after a step of the copy, ``(B,)`` each."""
        siamese = self.siamese
        # every batch is tried from the network's weights; the copy's optimiser keeps its moments
        siamese.load_state_dict(self.networks[0].state_dict())
        # in evaluation mode as in the code, so that dropout does not make losses rise
        siamese.eval()
        before = self.memory_losses(siamese, entries)
        for module in siamese.modules():
            if isinstance(module, nn.RNNBase):
                module.train()  # cuDNN has no backward pass in evaluation mode; one layer computes the same in both
        losses = self.pair_losses(siamese, siamese(batch).similarities)
        step(
            siamese, 4 * losses.mean(), batch, clip=False, learning_rate=rate
        )  # twice the sum of both directions
        return before, self.memory_losses(siamese.eval(), entries)

    @torch.no_grad()
    def memory_losses(self, network: Backbone, entries: Sequence[Batch]) -> list[Tensor]:
        """Losses of entries among themselves, ``(B,)`` per batch of entries, without gradient."""
        # an entry that occurs twice in a batch is its own negative, as in the code
        return [self.pair_losses(network, network(each).similarities) for each in entries]

    def weighted_step(
        self,
        batch: Batch,
        entries: Sequence[Batch],
        weight: Tensor,
        before: Sequence[Tensor],
        rate: float,
        step: Step,
    ) -> None:
        """Train the network on a batch and its entries.

        Args:
            batch: B pairs.
            entries: B image entries, and B caption entries.
            weight: w, ``(B,)``.
            before: the copy's losses of the entries before it tried the batch, ``(B,)`` each.
            rate: learning rate of this step.
            step: the trainer's step.
        """
        network = self.networks[0].train()
        output = network(batch)
        losses = self.pair_losses(network, output.similarities) + output.auxiliary
        if self.config.faults == "published":
            # fault of the code: one weight for the whole batch, and entries whose losses carry no gradient
            weighted, of_entries = weight.mean() * losses.mean(), before
        else:
            weighted = (weight * losses).mean()
            # the captioner of VSRN trains on the batch alone, so entries are compared and no more
            compared = [network.compare(*network.encode(each)) for each in entries]
            of_entries = [self.pair_losses(network, similarities) for similarities in compared]
        memory = torch.stack(list(of_entries)).sum(dim=0).mean()
        step(network, weighted + memory, batch, learning_rate=rate, weighted=weighted, memory=memory)

    def estimates(self) -> dict[str, Tensor]:
        """Initial clean probability, and last weight."""
        return {"clean_probability": self.clean_probability.values, "weight": self.weight.values}
