"""SGR: the half of SGRAF that reasons over the graph of similarity nodes (AAAI 2021, section 3.2)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Self

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from baselines.backbones.encoders import xavier_linear
from baselines.backbones.pairwise import Block, Nodes, in_given_order, joined, mirrored, within_memory
from baselines.backbones.sgraf import SGRAF, SGRAFConfig, weight_sizes
from baselines.kit.backbone import IntraModal


class SGRConfig(SGRAFConfig):
    """Sizes of SGR.

    Attributes:
        sgr_steps: steps of graph reasoning (section 4.1: 3).
    """

    sgr_steps: Annotated[int, Field(ge=1)] = 3


class ReasoningStep(nn.Module):
    """One step of similarity graph reasoning (SGRAF, section 3.2).

    Query and key only meet in their product, so both are merged into one matrix; what the key's bias adds is
    equal for all keys and leaves the softmax as it is.
    """

    def __init__(self, sim_dim: int) -> None:
        super().__init__()
        self.query = xavier_linear(sim_dim, sim_dim)
        self.key = xavier_linear(sim_dim, sim_dim)
        self.out = xavier_linear(sim_dim, sim_dim)

    def merged(self) -> tuple[Tensor, Tensor]:
        """Matrix and vector with ``edges[p, q] = (x_p @ matrix + vector) . x_q``."""
        return self.query.weight.T @ self.key.weight, self.query.bias @ self.key.weight

    def forward(
        self, queries: Tensor, nodes: Tensor, hidden: Tensor | None, merged: tuple[Tensor, Tensor]
    ) -> Tensor:
        """New values of the query nodes, float ``(..., queries, sim_dim)``.

        Args:
            queries: float ``(..., queries, sim_dim)``, the nodes whose values are wanted.
            nodes: float ``(..., nodes, sim_dim)``, all nodes.
            hidden: float ``(anchors, 1, nodes)``, minus infinity for padding and else 0; None where there is none.
            merged: of this step.
        """
        matrix, vector = merged
        edges = functional.linear(queries, matrix.T, vector) @ nodes.transpose(-1, -2)
        if hidden is not None:
            edges = edges.add_(hidden)  # the softmax gives hidden edges no gradient
        return torch.relu(self.out(torch.softmax(edges, dim=-1) @ nodes))


class GraphReasoning(nn.Module):
    """Similarity graph reasoning; only the global node is read, so the last step makes only that one."""

    def __init__(self, sim_dim: int, n_steps: int) -> None:
        super().__init__()
        self.steps: Sequence[ReasoningStep] = nn.ModuleList(ReasoningStep(sim_dim) for _ in range(n_steps))  # type: ignore[assignment]

    def shared_terms(self) -> tuple[Tensor, ...]:
        """What all blocks of a batch share."""
        return tuple(tensor for step in self.steps for tensor in step.merged())

    def forward(self, nodes: Tensor, valid: Tensor | None, *shared: Tensor) -> Tensor:
        """Similarity vectors, float ``(items, anchors, sim_dim)``.

        Args:
            nodes: float ``(items, anchors, nodes, sim_dim)``, the global node first.
            valid: bool ``(anchors, nodes)``; None where nothing is padding.
            shared: of :meth:`shared_terms`.
        """
        hidden = None
        if valid is not None:
            hidden = nodes.new_zeros(valid.shape).masked_fill_(~valid, -torch.inf)[:, None]
        for k, step in enumerate(self.steps):
            queries = nodes if k + 1 < len(self.steps) else nodes[..., :1, :]
            nodes = step(queries, nodes, hidden, shared[2 * k : 2 * k + 2])
        return nodes[..., 0, :]


class SGR(SGRAF):
    """Similarity graph reasoning."""

    name = "sgr"
    title = "SGR"
    Config = SGRConfig
    weight_prefix = "sim_enc.SGR_module."

    def __init__(self, config: SGRConfig, feature_dim: int, n_regions: int, vocabulary_size: int) -> None:
        super().__init__(config, feature_dim, n_regions, vocabulary_size)
        self.reasoning = GraphReasoning(config.sim_dim, config.sgr_steps)

    def _logits(self, nodes: Iterable[Nodes], blocks: Sequence[Block]) -> Tensor:
        shared, run = self.reasoning.shared_terms(), within_memory(len(blocks))
        columns = [
            run(self._block_logits, *block_nodes, block.valid, *shared)
            for block_nodes, block in zip(nodes, blocks, strict=True)
        ]
        return in_given_order(columns, blocks)

    def _symmetric_logits(self, n: int, nodes: Sequence[Nodes], variant: IntraModal) -> Tensor:
        shared, run = self.reasoning.shared_terms(), within_memory(len(nodes))
        columns = [run(self._block_logits, *block_nodes, None, *shared) for block_nodes in nodes]
        return mirrored(n, columns, columns)

    def _block_logits(self, whole: Tensor, parts: Tensor, valid: Tensor | None, *shared: Tensor) -> Tensor:
        vectors = self.autocast(self.reasoning, joined(Nodes(whole, parts)), valid, *shared)
        logits: Tensor = self.head(vectors.to(next(self.head.parameters()).dtype))
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
        steps = (name for name in state if name.startswith(cls.weight_prefix))
        n_steps = max(1, sum(name.endswith(".sim_graph_w.bias") for name in steps))
        names = {
            f"{cls.weight_prefix}{k}.{theirs}.": f"reasoning.steps.{k}.{ours}."
            for k in range(n_steps)
            for theirs, ours in (("graph_query_w", "query"), ("graph_key_w", "key"), ("sim_graph_w", "out"))
        }
        return cls._with_weights(state, SGRConfig(**weight_sizes(state), sgr_steps=n_steps, **options), names)
