"""One value per training pair that outlives a batch."""

import torch
from torch import Tensor, nn


class PairMemory(nn.Module):
    """A persistent buffer keyed by position in the full training split.

    Args:
        n_pairs: length of the full training split.
        initial: value of every entry at the start.
        width: values per pair; None stores one number per pair.
        dtype: dtype of the stored values.
    """

    values: Tensor

    def __init__(
        self, n_pairs: int, *, initial: float, width: int | None = None, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        shape = (n_pairs,) if width is None else (n_pairs, width)
        self.register_buffer("values", torch.full(shape, initial, dtype=dtype))

    def read(self, pair_ids: Tensor) -> Tensor:
        """Return values of some pairs, ``(len(pair_ids),)`` or ``(len(pair_ids), width)``, without gradient."""
        return self.values[pair_ids]

    @torch.no_grad()
    def write(self, pair_ids: Tensor, values: Tensor) -> None:
        """Replace the values of some pairs."""
        self.values[pair_ids] = values.detach().to(self.values)
