"""The curves of a run for TensorBoard."""

from typing import TYPE_CHECKING

from baselines.engine.records import Epoch
from baselines.engine.run_folder import RunFolder

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class Curves:
    """Writes one file of events, from the first epoch that it is given.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._writer: SummaryWriter | None = None

    def write(self, entry: Epoch) -> None:
        """Add one entry of ``history.json``.

        TensorBoard hides what an interrupted process wrote from the first epoch of this one on.

        Args:
            entry: loss (None for an epoch without a step), learning rate, dev recalls, diagnosis.
        """
        values = {"learning_rate": entry.learning_rate} | ({} if entry.loss is None else {"loss": entry.loss})
        values |= {f"dev/{name}": value for name, value in entry.dev.items()}
        values |= {f"diagnosis/{name}_auroc": found.auroc for name, found in entry.diagnosis.items()}
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(self._folder.tensorboard, purge_step=entry.index)
        for tag, value in values.items():
            self._writer.add_scalar(tag, value, entry.index)
        self._writer.flush()

    def close(self) -> None:
        """End the file, if there is one."""
        if self._writer is not None:
            self._writer.close()
