"""Parts of SGRAF (AAAI 2021): global vectors (3.1), graph reasoning of SGR (3.2) and filtration of SAF (3.3)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from baselines.backbones.encoders import EPSILON, unit_length, xavier_linear
from baselines.kit.batches import to_device, valid_items


class GlobalVector(nn.Module):
    """One vector per image or caption, by self-attention over its parts (SGRAF, section 3.1).

    Args:
        embed_size: dimension of the joint space.
        dropout: in [0, 1).
        n_regions: batch normalisation per region, for images; None for no normalisation, for captions.
    """

    def __init__(self, embed_size: int, dropout: float, n_regions: int | None = None) -> None:
        super().__init__()
        local: list[nn.Module] = [] if n_regions is None else [nn.BatchNorm1d(n_regions)]
        overall: list[nn.Module] = [] if n_regions is None else [nn.BatchNorm1d(embed_size)]
        ending = [nn.Tanh(), nn.Dropout(dropout)]
        self.local = nn.Sequential(xavier_linear(embed_size, embed_size), *local, *ending)
        self.overall = nn.Sequential(xavier_linear(embed_size, embed_size), *overall, *ending)
        self.common = xavier_linear(embed_size, 1)

    def forward(self, parts: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Unit vectors, float ``(n, dim)``.

        Args:
            parts: float ``(n, parts, dim)``, zero beyond a row's length.
            lengths: int64 ``(n,)`` (default: all parts).
        """
        n_parts = (
            parts.shape[1] if lengths is None else to_device(lengths.to(parts.dtype), parts.device)[:, None]
        )
        mean = parts.sum(dim=1) / n_parts
        scores = self.common(self.local(parts) * self.overall(mean)[:, None]).squeeze(-1)
        if lengths is not None:
            scores = scores.masked_fill(~valid_items(lengths, parts.shape[1], parts.device), -torch.inf)
        weights = torch.softmax(scores, dim=1)
        return unit_length((weights[..., None] * parts).sum(dim=1))


class ReasoningStep(nn.Module):
    """One step of similarity graph reasoning (SGRAF, section 3.2).

    Query and key weights only occur as a product, so both are merged into one matrix. The key's bias adds the same
    value to all keys, which does not change the softmax, so it is left out.
    """

    def __init__(self, sim_dim: int) -> None:
        super().__init__()
        self.query = xavier_linear(sim_dim, sim_dim)
        self.key = xavier_linear(sim_dim, sim_dim)
        self.out = xavier_linear(sim_dim, sim_dim)

    def merged(self) -> tuple[Tensor, Tensor]:
        """Return matrix and vector such that ``edges[p, q] = (x_p @ matrix + vector) . x_q``."""
        return self.query.weight.T @ self.key.weight, self.query.bias @ self.key.weight

    def forward(
        self, queries: Tensor, nodes: Tensor, hidden: Tensor | None, merged: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Compute new values of the query nodes, float ``(..., queries, sim_dim)``.

        Args:
            queries: float ``(..., queries, sim_dim)``, nodes to update.
            nodes: float ``(..., nodes, sim_dim)``, all nodes.
            hidden: float ``(anchors, 1, nodes)``, minus infinity for padding, else 0; None without padding.
            merged: result of :meth:`merged`.
        """
        matrix, vector = merged
        edges = functional.linear(queries, matrix.T, vector) @ nodes.transpose(-1, -2)
        if hidden is not None:
            edges = edges.add_(hidden)  # the softmax gives hidden edges no gradient
        return torch.relu(self.out(torch.softmax(edges, dim=-1) @ nodes))


class GraphReasoning(nn.Module):
    """Similarity graph reasoning. Only the global node is read, so the last step updates only that one."""

    def __init__(self, sim_dim: int, n_steps: int) -> None:
        super().__init__()
        self.steps: Sequence[ReasoningStep] = nn.ModuleList(ReasoningStep(sim_dim) for _ in range(n_steps))  # type: ignore[assignment]

    def shared_terms(self) -> tuple[Tensor, ...]:
        """Return the merged weights of all steps, computed once per batch for all blocks."""
        return tuple(tensor for step in self.steps for tensor in step.merged())

    def forward(self, nodes: Tensor, valid: Tensor | None, *shared: Tensor) -> Tensor:
        """Similarity vectors, float ``(items, anchors, sim_dim)``.

        Args:
            nodes: float ``(items, anchors, nodes, sim_dim)``, the global node first.
            valid: bool ``(anchors, nodes)``; None without padding.
            shared: result of :meth:`shared_terms`.
        """
        hidden = None
        if valid is not None:
            hidden = nodes.new_zeros(valid.shape).masked_fill_(~valid, -torch.inf)[:, None]
        for k, step in enumerate(self.steps):
            queries = nodes if k + 1 < len(self.steps) else nodes[..., :1, :]
            nodes = step(queries, nodes, hidden, shared[2 * k : 2 * k + 2])
        return nodes[..., 0, :]


class AttentionFiltration(nn.Module):
    """Sum of a pair's nodes, weighted by significance (section 3.3).

    In training the published code normalises one anchor at a time, with statistics over all items. The running
    statistics are updated once per anchor, in the order of the batch.
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
            scores: result of :meth:`scores`.
            valid: bool ``(anchors, nodes)``; None without padding.
            mean: mean of the scores; broadcasts with ``(items, anchors, 1)``.
            variance: variance of the scores; broadcasts with ``(items, anchors, 1)``.
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
        """Update the running statistics once per anchor, in order, in closed form.

        Args:
            means: float ``(n,)``.
            variances: float ``(n,)``, biased.
            counts: ``(n,)``, number of values behind each.
        """
        momentum, n = self.norm.momentum or 0.0, len(means)
        # the published code normalises caption by caption, so n captions are n steps of the running average
        ages = torch.arange(n - 1, -1, -1, device=means.device)
        weights = momentum * (1 - momentum) ** ages.to(means)
        unbiased = variances * counts / (counts - 1)
        for running, values in zip(self.running_moments(), (means, unbiased), strict=True):
            running.mul_((1 - momentum) ** n).add_((weights * values).sum())
        assert self.norm.num_batches_tracked is not None
        self.norm.num_batches_tracked.add_(n)


def moments(scores: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Compute mean, biased variance and number of the scores over items and nodes, each ``(1, anchors, 1)``.

    Args:
        scores: float ``(items, anchors, nodes)``.
        valid: bool ``(anchors, nodes)``; None without padding.
    """
    weights = torch.ones_like(scores[0]) if valid is None else valid.to(scores)
    count = len(scores) * weights.sum(dim=1)[None, :, None]
    mean = (scores * weights).sum(dim=(0, 2), keepdim=True) / count
    variance = ((scores - mean).square() * weights).sum(dim=(0, 2), keepdim=True) / count
    return mean, variance, count
