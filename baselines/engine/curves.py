"""The curves of a run for TensorBoard."""

import io
import time

from baselines.engine.records import Epoch
from baselines.engine.run_folder import RunFolder
from ncl_bench.files import write_bytes


def write_curves(folder: RunFolder, entry: Epoch) -> None:
    """Add one entry of ``history.json``; what an interrupted call wrote from this epoch on is dropped.

    TensorBoard reads the files of a folder by name. A file per epoch, named after it, keeps them in order where
    two epochs end in one second.

    Args:
        folder: of the run.
        entry: loss (None for an epoch without a step), learning rate, dev recalls, diagnosis.
    """
    values = {"learning_rate": entry.learning_rate} | ({} if entry.loss is None else {"loss": entry.loss})
    values |= {f"dev/{name}": value for name, value in entry.dev.items()}
    values |= {f"diagnosis/{name}_auroc": found.auroc for name, found in entry.diagnosis.items()}
    target = folder.tensorboard / f"events.out.tfevents.{entry.index:010d}"
    for written in folder.tensorboard.glob("events.out.tfevents.*"):
        if written.name > target.name:
            written.unlink()
    write_bytes(target, _event_file(entry.index, values))


def _event_file(step: int, values: dict[str, float]) -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    now = time.time()
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
    content = io.BytesIO()
    records = RecordWriter(content)
    for event in (
        Event(wall_time=now, file_version="brain.Event:2"),
        Event(wall_time=now, step=step, summary=summary),
    ):
        records.write(event.SerializeToString())
    return content.getvalue()
