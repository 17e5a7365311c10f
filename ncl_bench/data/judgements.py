"""People's judgements of pairs of a test image and a test caption, nearly all of them not each other's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ncl_bench.extras import require
from ncl_bench.foreign import reading
from ncl_bench.npy import BoolArray, Float64Array, Int64Array

if TYPE_CHECKING:
    import pandas as pd

EXPERT = ("image", "caption", "rating_1", "rating_2", "rating_3")
CROWD = ("image", "caption", "yes", "no")
JUDGEMENT_COLUMNS: Mapping[str, Sequence[str]] = {"expert": EXPERT, "crowd": CROWD}
"""Columns of each kind of judgement: row of the image, row of the caption, and what people said."""


@dataclass(frozen=True, eq=False)
class Judgements:
    """Judgements of one kind.

    Attributes:
        kind: ``expert``, with three ratings from 1 (does not describe the image) to 4 (describes it); or ``crowd``,
            with the numbers of Yes and No to the question whether the caption describes the image.
        rows: int64 ``(n, columns)``, columns as in ``JUDGEMENT_COLUMNS``.
        captions_per_image: caption ``c`` was written for image ``c // captions_per_image``.
    """

    kind: str
    rows: Int64Array
    captions_per_image: int

    @property
    def image(self) -> Int64Array:
        """Row of each pair's image, int64 ``(n,)``."""
        return self.rows[:, 0]

    @property
    def caption(self) -> Int64Array:
        """Row of each pair's caption, int64 ``(n,)``."""
        return self.rows[:, 1]

    @property
    def own(self) -> BoolArray:
        """Whether the caption was written for the image, bool ``(n,)``."""
        own: BoolArray = self.caption // self.captions_per_image == self.image
        return own

    @cached_property
    def judged(self) -> Float64Array:
        """Ratings ``(n, 3)``, or the share of Yes among the crowd's answers ``(n, 1)``, in [0, 1]."""
        said = self.rows[:, 2:].astype(np.float64)
        return said if self.kind == "expert" else said[:, :1] / said.sum(axis=1, keepdims=True)

    def to_pandas(self) -> "pd.DataFrame":
        """A frame with one row per judged pair."""
        require("data", "pandas", needed_by="to_pandas")
        import pandas as pd

        return pd.DataFrame(self.rows, columns=list(JUDGEMENT_COLUMNS[self.kind]))


def write_judgements(path: Path, judgements: Judgements) -> None:
    """Write judgements as parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = dict(zip(JUDGEMENT_COLUMNS[judgements.kind], judgements.rows.T.astype(np.int32), strict=True))
    pq.write_table(pa.table(columns), path)


def read_judgements(path: Path, kind: str, captions_per_image: int) -> Judgements:
    """Read what :func:`write_judgements` wrote."""
    require("data", "pyarrow", needed_by=f"judgements by {kind}s")
    import pyarrow.parquet as pq

    with reading(path, fix="prepare the dataset again"):
        table = pq.read_table(path, columns=list(JUDGEMENT_COLUMNS[kind]))
    return Judgements(
        kind,
        np.stack([column.to_numpy() for column in table.columns], axis=1).astype(np.int64),
        captions_per_image,
    )
