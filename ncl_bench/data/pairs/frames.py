"""Rows in memory and in Parquet files: frames and datasets, whose cells may be pictures."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ncl_bench.data.columns import Int64Array
from ncl_bench.data.layout import save_quietly
from ncl_bench.data.pairs.form import EXPECTED, LARGEST_TEXT, PICTURE_ENDINGS, Form, with_captions
from ncl_bench.errors import DataError, first_line, shown
from ncl_bench.files import atomic_folder, atomic_path, write_text
from ncl_bench.foreign import readable
from ncl_bench.tables import csv_of

FEW_CELLS = 2_000_000
MOST_PACKED = 100
"""Cells of a Parquet file that are read whatever its size, and how often its size the columns may take in memory."""
_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG", b"RIFF", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"\xff\x4f\xff\x51")
"""First bytes of pictures."""


def parquet_form(path: Path) -> Form:
    return frame_form(read_parquet(path), path.name, path.parent, ".parquet")


def read_parquet(path: Path) -> pd.DataFrame:
    """All columns of a Parquet file; its footer is checked before anything is decompressed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    readable(path, DataError, EXPECTED)
    packed = path.stat().st_size
    largest = max(LARGEST_TEXT, MOST_PACKED * packed)
    too_much = f"{path} has {packed:,} bytes and holds {{}}, which is more than is read into memory; split it"
    try:
        with pq.ParquetFile(path) as file:
            facts, schema = file.metadata, file.schema_arrow
            leaves = [facts.schema.column(place) for place in range(facts.num_columns)]
            sizes = [_unpacked(facts.row_group(group), leaves) for group in range(facts.num_row_groups)]
            cells, size = (sum(each) for each in zip(*sizes, strict=True)) if sizes else (0, 0)
            # equal rows are stored once, so cells count too: each takes memory when it is read
            if max(cells, facts.num_rows) > max(FEW_CELLS, packed) or size > largest:
                raise DataError(
                    too_much.format(f"{facts.num_rows:,} rows, {cells:,} cells and {size:,} bytes")
                )
            for name in schema.names:
                if schema.names.count(name) > 1:
                    raise DataError(f"{path} has two columns {shown(name)}; rename one of them")
            texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        batches, decoded = [], 0
        with pq.ParquetFile(path, read_dictionary=texts) as file:
            for batch in file.iter_batches(1_000):  # equal cells stay one until their size is known
                decoded += sum(map(_bytes_of_text, batch.columns))
                if decoded > largest:
                    raise DataError(too_much.format(f"over {decoded:,} bytes of text"))
                batches.append(batch)
        if not batches:
            return pd.DataFrame(columns=schema.names, dtype=object)
        kinds = [field.with_type(_known_to_pandas(field.type)) for field in schema]
        table = pa.Table.from_batches(batches).cast(pa.schema(kinds))
        table.validate(full=True)  # that texts are UTF-8, which pandas may not notice before it shows them
        found: pd.DataFrame = table.to_pandas(ignore_metadata=True, integer_object_nulls=True)
        return found.drop(columns="__index_level_0__", errors="ignore")  # an index without a name
    except DataError:
        raise
    except Exception as error:  # pyarrow raises many classes for a damaged file
        raise DataError(f"{path} cannot be read as Parquet ({first_line(error)}); write it again") from None


def _known_to_pandas(kind: Any) -> Any:
    """An Arrow type, with plain text and bytes for views and for bytes of a fixed size, in lists and structures too."""
    import pyarrow as pa

    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_known_to_pandas(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_known_to_pandas(kind.value_type)))
    return kind


def _unpacked(group: Any, leaves: Sequence[Any]) -> tuple[int, int]:
    """Cells of a row group, those in lists too, and its bytes before compression, by the footer."""
    counts = [group.column(place).num_values for place in range(group.num_columns)]
    # cells of a fixed size may refer to one that is stored once
    fixed = (count * max(leaf.length, 0) for count, leaf in zip(counts, leaves, strict=True))
    return sum(counts), max(group.total_byte_size, sum(fixed))


def _bytes_of_text(cells: Any) -> int:
    """Bytes that texts of an Arrow column take, in lists and structures too, where equal ones are stored once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_struct(cells.type):
        return sum(map(_bytes_of_text, cells.flatten()))
    if pa.types.is_map(cells.type):
        return _bytes_of_text(cells.keys) + _bytes_of_text(cells.items)
    if pa.types.is_nested(cells.type):
        return _bytes_of_text(cells.flatten())
    if not pa.types.is_dictionary(cells.type):
        return 0
    return pc.sum(pc.take(pc.binary_length(cells.dictionary), cells.indices)).as_py() or 0


def frame_form(frame: pd.DataFrame, name: str, folder: Path | None = None, ending: str = "") -> Form:
    """A frame, whose cells may be pictures as ``datasets`` stores them: ``{"bytes": ..., "path": ...}``.

    Args:
        frame: the rows.
        name: of the frame, for messages.
        folder: that image paths start from.
        ending: of the files to write (default: .csv, or .parquet for pictures).
    """
    columns = list(frame.columns)
    if len(set(columns)) < len(columns):
        twice = next(column for column in columns if columns.count(column) > 1)
        raise DataError(f"{name} has two columns {shown(twice)}; rename one of them")
    pictures = [str(column) for column in columns if _holds_pictures(frame[column])]

    def write(target: Path, chosen: Int64Array, column: str, captions: Mapping[int, str]) -> Path:
        kept = with_captions(frame, chosen, column, captions)
        suffix = ending or (".parquet" if pictures else ".csv")
        target = target.with_name(f"{target.name}{suffix}")
        if suffix == ".csv":
            write_text(target, csv_of(kept))
            return target
        with atomic_path(target) as temporary:
            if suffix == ".jsonl":
                kept.to_json(temporary, orient="records", lines=True, force_ascii=False)
            else:
                kept.to_parquet(temporary, index=False)
        return target

    # map() is called anew for every pass over the pictures
    of_rows = {column: partial(map, _picture_of, frame[column]) for column in pictures}
    return Form(name, frame.drop(columns=pictures), write, folder, of_rows)


def dataset_form(found: Any, name: str, folder: Path | None = None) -> Form:
    """A ``datasets.Dataset``; pictures are read when they are needed."""
    import datasets

    found = found.with_format(None)  # a format may hide columns or change values
    pictures = [column for column, feature in found.features.items() if isinstance(feature, datasets.Image)]
    for column in pictures:
        found = found.cast_column(column, datasets.Image(decode=False))
    table = (
        found.remove_columns(pictures).with_format("arrow")[:].to_pandas(integer_object_nulls=True)
        if len(found.column_names) > len(pictures)
        else pd.DataFrame(index=range(len(found)))
    )

    def write(target: Path, chosen: Int64Array, column: str, captions: Mapping[int, str]) -> Path:
        kept = found.select(chosen)
        if captions:
            new = {place: captions[row] for place, row in enumerate(chosen.tolist()) if row in captions}
            kept = kept.map(
                lambda text, place: {column: new.get(place, text)},
                with_indices=True,
                input_columns=[column],
                keep_in_memory=True,
            )
        for column in pictures:
            kept = kept.cast_column(column, datasets.Image())
        shutil.rmtree(target, ignore_errors=True)  # of the same audit with other labels
        if len(kept):  # an empty folder cannot be loaded
            with atomic_folder(target) as temporary:
                save_quietly(kept, temporary)
        return target

    def of_rows(column: str) -> Iterator[bytes | Path | None]:
        return (_picture_of(row[column]) for row in found.select_columns([column]))

    return Form(name, table, write, folder, {column: partial(of_rows, column) for column in pictures})


def _holds_pictures(cells: "pd.Series[Any]") -> bool:
    """Whether most of the first filled cells are pictures; bytes may be a hash or a sound."""
    filled = [cell for cell in cells.head(1000) if isinstance(cell, bytes | dict)][:100]
    return 2 * sum(map(_is_picture, filled)) > len(filled)


def _is_picture(cell: object) -> bool:
    if isinstance(cell, dict) and {"bytes", "path"} <= cell.keys():
        content, path = cell["bytes"], cell["path"]
        if content is None:
            return isinstance(path, str) and path.lower().endswith(PICTURE_ENDINGS)
        cell = content
    return isinstance(cell, bytes) and (cell.startswith(_SIGNATURES) or cell[4:8] in (b"ftyp", b"jP  "))


def _picture_of(cell: Any) -> bytes | Path | None:
    if isinstance(cell, bytes):
        return cell
    content, path = (cell.get("bytes"), cell.get("path")) if isinstance(cell, dict) else (None, cell)
    if isinstance(content, bytes):
        return content
    return Path(path) if isinstance(path, str) and path else None
