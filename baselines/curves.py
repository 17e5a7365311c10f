"""The curves of a run for TensorBoard."""

from typing import Any

from baselines.run import RunFolder


def write_curves(folder: RunFolder, entry: dict[str, Any]) -> None:
    """Add one entry of ``history.json``; what an interrupted call wrote from this epoch on is dropped.

    Args:
        folder: of the run.
        entry: loss (None for an epoch without a step), learning rate, dev recalls, diagnosis.
    """
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder.tensorboard), purge_step=entry["index"]) as writer:
        for name in ("loss", "learning_rate"):
            if entry[name] is not None:
                writer.add_scalar(name, entry[name], entry["index"])
        for name, value in entry["dev"].items():
            writer.add_scalar(f"dev/{name}", value, entry["index"])
        for name, found in entry.get("diagnosis", {}).items():
            writer.add_scalar(f"diagnosis/{name}_auroc", found["auroc"], entry["index"])
