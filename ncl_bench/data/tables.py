"""Write tables as Arrow or parquet files that the stock Hugging Face library opens."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ncl_bench.data.layout import Format
from ncl_bench.data.paired import FloatArray, TokenTable
from ncl_bench.files import write_text

CAPTION_ROWS = 10_000


def arrow_schema(columns: Mapping[str, Any]) -> Any:
    """An Arrow schema that carries the columns in the notation of the Hugging Face library."""
    import pyarrow as pa

    def arrow_type(column: Mapping[str, Any]) -> Any:
        if column["_type"] == "List":
            return pa.list_(arrow_type(column["feature"]), column.get("length", -1))
        return getattr(pa, column["dtype"])()

    metadata = json.dumps({"info": {"features": columns}})
    fields = [(name, arrow_type(column)) for name, column in columns.items()]
    return pa.schema(fields, metadata={"huggingface": metadata})


@contextmanager
def table_writer(path: Path, schema: Any, file_format: Format) -> Iterator[Callable[[Any], None]]:
    """A function that writes one record batch; the file is whole and on disk when the block ends well."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with path.open("wb") as sink:  # by Python, since Arrow takes every path for UTF-8
        if file_format == "arrow":
            with pa.ipc.new_stream(sink, schema) as stream:
                yield stream.write_batch
        else:
            with pq.ParquetWriter(sink, schema, compression="zstd", use_dictionary=False) as parquet:
                yield lambda batch: parquet.write_table(pa.Table.from_batches([batch]))
        sink.flush()
        os.fsync(sink.fileno())


def image_batch(schema: Any, image_ids: list[str], block: FloatArray) -> Any:
    """Rows of the images table; the features are not copied."""
    import pyarrow as pa

    numbers = schema.field("image_features").type
    values = pa.Array.from_buffers(numbers.value_type, block.size, [None, pa.py_buffer(block)])
    features = pa.FixedSizeListArray.from_arrays(values, numbers.list_size)
    return pa.record_batch([pa.array(image_ids), features], schema=schema)


def caption_batches(
    schema: Any,
    image_ids: list[str],
    captions_per_image: int,
    texts: list[list[str]],
    tokens: list[TokenTable],
) -> Iterator[Any]:
    """Rows of the captions table, in the order of the clean pairing.

    Args:
        schema: of the table; its text and token columns in the order of the next two.
        image_ids: one per image.
        captions_per_image: a fact of the dataset.
        texts: captions of each text column.
        tokens: token ids of each token column.
    """
    import pyarrow as pa

    for start in range(0, len(image_ids) * captions_per_image, CAPTION_ROWS):
        rows = np.arange(start, min(start + CAPTION_ROWS, len(image_ids) * captions_per_image))
        images = rows // captions_per_image
        columns = [pa.array(rows), pa.array(images), pa.array([image_ids[i] for i in images.tolist()])]
        columns += [pa.array(text[start : start + len(rows)], pa.string()) for text in texts]
        for table in tokens:
            offsets = table.offsets[start : start + len(rows) + 1]
            values = table.ids[offsets[0] : offsets[-1]]
            columns.append(pa.ListArray.from_arrays((offsets - offsets[0]).astype(np.int32), values))
        yield pa.record_batch(columns, schema=schema)


def write_state(
    folder: Path, columns: Mapping[str, Any], split: str, files: list[str], fingerprint: str
) -> None:
    """The two small files that make a folder of Arrow files open with ``datasets.load_from_disk``."""
    info = {"citation": "", "description": "", "features": columns, "homepage": "", "license": ""}
    state: dict[str, Any] = {
        "_data_files": [{"filename": name} for name in files],
        "_fingerprint": fingerprint[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": split,
    }
    write_text(folder / "dataset_info.json", json.dumps(info, indent=2) + "\n")
    write_text(folder / "state.json", json.dumps(state, indent=2) + "\n")
