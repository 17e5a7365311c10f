"""A list of modules of one type."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


class Modules(nn.ModuleList, Generic[M]):
    """``nn.ModuleList`` whose items have one type: torch's own forgets it."""

    if TYPE_CHECKING:

        def __getitem__(self, index: int) -> M: ...  # type: ignore[override]

        def __iter__(self) -> Iterator[M]: ...
