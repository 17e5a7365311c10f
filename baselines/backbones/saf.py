"""SAF: the half of SGRAF that filters similarity nodes by attention (AAAI 2021, section 3.3)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from baselines.backbones.encoders import EPSILON, unit_length, xavier_linear
from baselines.backbones.pairwise import Block, Nodes, in_given_order, joined, mirrored, within_memory
from baselines.backbones.sgraf import SGRAF, SGRAFConfig, weight_sizes
from baselines.kit.backbone import IntraModal
from baselines.kit.distributed import of_all_captions, summed_over_ranks


class AttentionFiltration(nn.Module):
    """The sum of a pair's nodes, weighted by their significance (section 3.3).

    In training the published code normalises one anchor at a time: its statistics are those of all items
    with that anchor, and the running statistics move once per anchor, in the order of the batch.
    """

    def __init__(self, sim_dim: int) -> None:
        super().__init__()
        self.score = xavier_linear(sim_dim, 1)
        self.norm = nn.BatchNorm1d(1)

    def scores(self, nodes: Tensor) -> Tensor:
        """Significance of each node before normalisation, float ``(items, anchors, nodes)``."""
        scores: Tensor = self.score(nodes)
        return scores.squeeze(-1)

    def forward(
        self, nodes: Tensor, scores: Tensor, valid: Tensor | None, mean: Tensor, variance: Tensor
    ) -> Tensor:
        """Similarity vectors, float ``(items, anchors, sim_dim)``.

        Args:
            nodes: float ``(items, anchors, nodes, sim_dim)``.
            scores: of :meth:`scores`.
            valid: bool ``(anchors, nodes)``; None where nothing is padding.
            mean: of the scores; broadcasts with ``(items, anchors, 1)``.
            variance: of the scores, likewise.
        """
        scale = self.norm.weight * torch.rsqrt(variance + self.norm.eps)
        weights = torch.sigmoid((scores - mean) * scale + self.norm.bias)
        if valid is not None:
            weights = weights * valid
        weights = weights / (weights.sum(dim=-1, keepdim=True) + EPSILON)
        return unit_length((weights[..., None, :] @ nodes).squeeze(-2))

    def running_moments(self) -> tuple[Tensor, Tensor]:
        """Mean and variance used in evaluation, ``(1,)``."""
        assert self.norm.running_mean is not None
        assert self.norm.running_var is not None
        return self.norm.running_mean, self.norm.running_var

    @torch.no_grad()
    def track(self, means: Tensor, variances: Tensor, counts: Tensor) -> None:
        """Move the running statistics once per anchor, in order, in closed form.

        Args:
            means: float ``(n,)``.
            variances: float ``(n,)``, biased.
            counts: ``(n,)``, values behind each.
        """
        momentum, n = self.norm.momentum or 0.0, len(means)
        # the papers' code normalises caption by caption, so n captions are n steps of the running average
        ages = torch.arange(n - 1, -1, -1, device=means.device)
        weights = momentum * (1 - momentum) ** ages.to(means)
        unbiased = variances * counts / (counts - 1)
        for running, values in zip(self.running_moments(), (means, unbiased), strict=True):
            running.mul_((1 - momentum) ** n).add_((weights * values).sum())
        assert self.norm.num_batches_tracked is not None
        self.norm.num_batches_tracked.add_(n)


def moments(scores: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and biased variance over items and nodes, and how many there are, each ``(1, anchors, 1)``.

    Args:
        scores: float ``(items, anchors, nodes)``.
        valid: bool ``(anchors, nodes)``; None where nothing is padding.
    """
    weights = torch.ones_like(scores[0]) if valid is None else valid.to(scores)
    count = len(scores) * weights.sum(dim=1)[None, :, None]
    mean = (scores * weights).sum(dim=(0, 2), keepdim=True) / count
    variance = ((scores - mean).square() * weights).sum(dim=(0, 2), keepdim=True) / count
    return mean, variance, count


class SAF(SGRAF):
    """Similarity attention filtration."""

    name = "saf"
    title = "SAF"
    Config = SGRAFConfig
    weight_prefix = "sim_enc.SAF_module."

    def __init__(self, config: SGRAFConfig, feature_dim: int, n_regions: int, vocabulary_size: int) -> None:
        super().__init__(config, feature_dim, n_regions, vocabulary_size)
        self.reasoning = AttentionFiltration(config.sim_dim)

    def _logits(self, nodes: Iterable[Nodes], blocks: Sequence[Block]) -> Tensor:
        run = within_memory(len(blocks))
        results = [
            run(self._block_logits, *block_nodes, block.valid)
            for block_nodes, block in zip(nodes, blocks, strict=True)
        ]
        logits, *statistics = (in_given_order(columns, blocks) for columns in zip(*results, strict=True))
        if self.training:
            self.reasoning.track(*(of_all_captions(values) for values in statistics))
        return logits

    def _symmetric_logits(self, n: int, nodes: Sequence[Nodes], variant: IntraModal) -> Tensor:
        mean, variance = self._symmetric_moments(n, nodes, variant)
        # a pair has the same nodes in both orders, but each anchor normalises its scores by its own statistics
        lower, upper, run = [], [], within_memory(len(nodes))
        for block in nodes:
            first, size = n - len(block.whole), block.whole.shape[1]
            of_anchors = (x[:, first : first + size] for x in (mean, variance))
            of_items = (x[:, first:].transpose(0, 1) for x in (mean, variance))
            lower.append(run(self._filtered, *block, *of_anchors))
            upper.append(run(self._filtered, *block, *of_items))
        return mirrored(n, lower, upper)

    def _symmetric_moments(
        self, n: int, nodes: Sequence[Nodes], variant: IntraModal
    ) -> tuple[Tensor, Tensor]:
        """Mean and variance that normalise each anchor's scores, ``(1, anchors, 1)``.

        ``gsc`` normalises anchor by anchor, ``gsc+`` all pairs at once.
        """
        if not self.training:
            mean, variance = self.reasoning.running_moments()
            return mean.expand(1, n, 1), variance.expand(1, n, 1)
        run = within_memory(len(nodes))
        columns = [run(self._scores, *block) for block in nodes]
        scores = summed_over_ranks(mirrored(n, columns, columns))
        if variant == "gsc+":
            mean, variance, count = moments(scores.flatten(0, 1)[:, None], None)
        else:
            mean, variance, count = moments(scores, None)
        self.reasoning.track(mean.flatten(), variance.flatten(), count.flatten())
        return mean.expand(1, n, 1), variance.expand(1, n, 1)

    def _block_logits(
        self, whole: Tensor, parts: Tensor, valid: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logits of a block, and the statistics that normalised each of its anchors."""
        nodes = joined(Nodes(whole, parts))
        scores = self.reasoning.scores(nodes)
        mean, variance, count = moments(scores, valid)
        statistics = (mean.flatten(), variance.flatten(), count.flatten())
        if not self.training:
            mean, variance = self.reasoning.running_moments()
        vectors = self.reasoning(nodes, scores, valid, mean, variance)
        return self.head(vectors).squeeze(-1), *statistics

    def _scores(self, whole: Tensor, parts: Tensor) -> Tensor:
        return self.reasoning.scores(joined(Nodes(whole, parts)))

    def _filtered(self, whole: Tensor, parts: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        nodes = joined(Nodes(whole, parts))
        vectors = self.reasoning(nodes, self.reasoning.scores(nodes), None, mean, variance)
        logits: Tensor = self.head(vectors)
        return logits.squeeze(-1)

    @classmethod
    def from_weights(cls, state: Mapping[str, Tensor], **options: Any) -> Self:
        """Build the network from weights under their names (``img_enc.``, ``txt_enc.``, ``sim_enc.``).

        Args:
            state: their name to tensor; sizes are read from it.
            options: dropout and how the network is computed, which the weights do not tell.

        Raises:
            TrainingError: these are weights of another network.
        """
        names = {
            f"{cls.weight_prefix}attn_sim_w.": "reasoning.score.",
            f"{cls.weight_prefix}bn.": "reasoning.norm.",
        }
        return cls._with_weights(state, SGRAFConfig(**weight_sizes(state), **options), names)
