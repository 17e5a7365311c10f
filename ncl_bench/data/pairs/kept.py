"""``kept.json``: which of a user's pairs an audit kept, and where it found their pictures and put their features."""

import json
from pathlib import Path

import numpy as np

from ncl_bench.data.pairs.rows import UserPairs
from ncl_bench.errors import DataError, named
from ncl_bench.files import write_text
from ncl_bench.foreign import readable, reading
from ncl_bench.npy import Int64Array
from ncl_bench.schema import Record

KEPT = "kept.json"


class KeptRows(Record):
    """``kept.json``.

    Attributes:
        path: file or folder of the pairs, absolute.
        image_column, caption_column: columns that were read.
        rows_sha256: :meth:`~ncl_bench.data.pairs.rows.UserPairs.sha256` of the pairs.
        rows: the kept pairs, from 0, ascending; a list of captions gives several.
        images: folder of the pictures, absolute, if one was given.
        features: folder of their features, absolute; None if embeddings were judged.
        encoder: name of the encoder that made them.
        rows_in_order: whether files numbered by row were taken for those of the rows.
    """

    path: str
    image_column: str
    caption_column: str
    rows_sha256: str
    rows: tuple[int, ...]
    images: str | None = None
    features: str | None = None
    encoder: str | None = None
    rows_in_order: bool = False

    def taken(self, own: UserPairs) -> Int64Array:
        """The kept rows, int64, of pairs that were read again; refused if these have changed."""
        if own.sha256() != self.rows_sha256:
            raise DataError(f"{self.path} has changed since its audit; audit it again")
        return np.array(self.rows, np.int64)


def write_kept(folder: Path, kept: KeptRows) -> None:
    """Write ``kept.json`` into a folder of an audit."""
    write_text(folder / KEPT, json.dumps(kept.model_dump(mode="json")) + "\n")


def read_kept(folder: Path) -> KeptRows:
    """Read ``kept.json`` of a folder that ``ncl-bench audit`` or ``ncl-bench audit apply`` wrote."""
    path = folder / KEPT
    fix = f"run `ncl-bench audit` again, and give its folder, or its file clean.* with {named('images')}"
    with reading(path, fix=fix):
        return KeptRows.model_validate_json(
            readable(path, DataError, "the kept pairs of an audit", fix=fix).read_bytes()
        )
