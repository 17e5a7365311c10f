"""Read somebody's images and captions in the forms that people have, as rows that keep their order and columns.

Tables (CSV, TSV, JSON Lines, Parquet), Kaggle's ``captions.txt``, lines such as ``name.jpg#0<TAB>caption``, Karpathy's
JSON, captions with URLs without a header, a folder with a metadata table, a folder saved with ``datasets``, WebDataset
shards, and in Python a frame or a ``datasets.Dataset``.
"""

import re
from pathlib import Path
from typing import Any

import pandas as pd

from ncl_bench.data.pairs.folders import folder_form, kind_of
from ncl_bench.data.pairs.form import Form, is_table
from ncl_bench.data.pairs.frames import dataset_form, frame_form
from ncl_bench.data.pairs.shards import shards_form
from ncl_bench.data.pairs.tables import table_form
from ncl_bench.errors import DataError

_SHARD = re.compile(r"\.(tar|tgz|tar\.gz)$", re.IGNORECASE)


def form_of(source: Any) -> Form:
    """Read a file, a folder, a frame or a ``datasets.Dataset``."""
    if isinstance(source, pd.DataFrame):
        return frame_form(source.reset_index(drop=True).rename(columns=str), "the frame")
    if isinstance(source, str | Path):
        path = Path(source)
        if path.is_dir():
            return folder_form(path)
        return shards_form(path, [path]) if _SHARD.search(path.name) else table_form(path)
    import datasets

    if isinstance(source, datasets.DatasetDict):
        source = datasets.concatenate_datasets(list(source.values()))
    if isinstance(source, datasets.Dataset):
        return dataset_form(source, "the dataset")
    raise DataError(
        f"pairs are {type(source).__name__}, expected a path, a pandas.DataFrame or a datasets.Dataset"
    )


def rows_in(path: Path) -> bool:
    """Whether a file or folder holds rows of images, and not images alone."""
    return kind_of(path)[0] != "" if path.is_dir() else is_table(path)
