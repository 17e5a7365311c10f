"""What an audit of somebody's pairs found: its tables, its lists and its summary."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from baselines.audit.own_pairs import OwnPairs
from ncl_bench.data.columns import Int64Array
from ncl_bench.data.pair_labels import LABELS
from ncl_bench.errors import DataError, listed, shorten, shown
from ncl_bench.files import atomic_path, csv_cell, read_table, write_text
from ncl_bench.schema import Record

if TYPE_CHECKING:
    from baselines.audit.judge import Judged

SUMMARY, PAIRS, PAGE = "summary.json", "pairs", "index.html"


class Summary(Record):
    """``summary.json``.

    Attributes:
        source: file or folder of the pairs.
        image_column, caption_column: what was read.
        n_rows: rows of the input.
        n_judged: rows that were judged.
        n_pictures: different pictures among them.
        left_out: reason to number of rows.
        doubled: copies of pictures, judged as one picture.
        wrong, low, high: estimated number of wrong pairs, and a range: bootstrap over images, widened (share.py).
        obtained: how this was estimated, in a sentence.
        n_suspects: rows in ``suspects``: the estimated number of wrong pairs from the top, corrected by labels.
        labels: label to number of labelled rows.
        remarks: what else a reader has to know, in sentences.
    """

    source: str
    image_column: str
    caption_column: str
    n_rows: int
    n_judged: int
    n_pictures: int
    left_out: dict[str, int]
    doubled: int
    wrong: int
    low: int
    high: int
    obtained: str
    n_suspects: int
    labels: dict[str, int]
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class Judgement:
    """What is known of the judged rows.

    Attributes:
        rows: int64 ``(n,)``, the judged rows of the input, ascending.
        image_of: int64 ``(n,)``, a number for each row's picture.
        found: what was found of them; its pairs are places in ``rows``.
        files: picture of each number of ``image_of``; None for embeddings.
    """

    rows: Int64Array
    image_of: Int64Array
    found: "Judged"
    files: list[Path] | None

    @property
    def order(self) -> Int64Array:
        """Judged rows as places in ``rows``, the most suspicious first, int64 ``(n,)``."""
        return np.argsort(-self.found.table["score"].to_numpy(np.float64), kind="stable")


def read_labels(file: Path | str | None, images: Sequence[str]) -> dict[int, str]:
    """Row to label, as the page downloads them."""
    if file is None:
        return {}
    found: dict[int, str] = {}
    n = len(images)
    expected = "the labels that the page downloads: columns row and label"
    for where, line in read_table(Path(file), DataError, ("row", "label"), expected=expected)[1]:
        row, label = line["row"].strip(), line["label"].strip()
        if not (row.isascii() and row.isdecimal() and 1 <= int(row) <= n) or label not in LABELS:
            raise DataError(
                f"{where}: row is {shorten(row)} and label {shorten(label)}, expected a row from 1 to {n:,} and one of "
                f"{', '.join(LABELS)}; correct it"
            )
        if line.get("image", own := images[int(row) - 1]) != own:
            raise DataError(
                f"{where}: row {row} has the image {shown(line['image'])}, here it has {shown(own)}; give the labels "
                "of this audit"
            )
        if found.setdefault(int(row) - 1, label) != label:
            raise DataError(f"{where}: row {row} has another label above; keep one")
    return found


def write_found(
    folder: Path,
    own: OwnPairs,
    judgement: Judgement,
    reasons: NDArray[np.object_],
    doubled: Mapping[str, str],
    remarks: list[str],
    known: Mapping[int, str],
) -> tuple[pd.DataFrame, Summary]:
    """Write the tables, the lists and the summary.

    Args:
        folder: of the audit.
        own: the rows as they came.
        judgement: of the judged rows.
        reasons: why each row of the input was left out; empty for judged rows.
        doubled: name of a copy of a picture to the name of the first.
        remarks: for the summary.
        known: row of the input to its label.

    Returns:
        The table of pairs and the summary.
    """
    rows, found, n = judgement.rows, judgement.found, len(own.captions)
    rank = np.empty(len(rows), np.int64)
    rank[judgement.order] = np.arange(1, len(rows) + 1)
    wrong, low, high = found.numbers
    label = np.array([known.get(row, "") for row in rows.tolist()], object)
    suspect = ((rank <= wrong) & (label != "matches")) | (label == "wrong")
    added = pd.DataFrame(index=range(n))
    for name, column in {"rank": rank, **{c: found.table[c].to_numpy() for c in found.table}}.items():
        dtype = {"rank": "Int64", "reason": "string"}.get(name, "Float64")
        spread: Any = pd.array([pd.NA] * n, dtype)
        spread[rows] = column
        added[name] = spread
    for place, better in enumerate(found.better.T):
        texts = np.full(n, None, object)
        texts[rows] = [own.captions[rows[other]] if other >= 0 else None for other in better.tolist()]
        added[f"better_{place + 1}"] = pd.array(texts, "string")
    added["left_out"] = pd.array(reasons, "string")
    if known:
        added["label"] = pd.array([known.get(row, "") for row in range(n)], "string")
    taken = [str(name) for name in added if name in own.form.table.columns]
    if taken:
        remarks = [*remarks, f"Your table has columns {listed(taken)}; those of the audit begin with audit_."]
    added = added.rename(columns={name: f"audit_{name}" for name in taken})
    table = pd.concat([own.form.table.reset_index(drop=True), added], axis=1)
    counts = pd.Series(reasons[reasons != ""]).value_counts()
    summary = Summary(
        source=own.form.name,
        image_column=own.image_column,
        caption_column=own.caption_column,
        n_rows=n,
        n_judged=len(rows),
        n_pictures=len(np.unique(judgement.image_of)),
        left_out={str(reason): int(count) for reason, count in counts.items()},
        doubled=len(doubled),
        wrong=wrong,
        low=low,
        high=high,
        obtained=found.obtained,
        n_suspects=int(suspect.sum()),
        labels={name: sum(each == name for each in known.values()) for name in LABELS} if known else {},
        remarks=tuple(remarks),
    )
    _write_table(folder, table)
    own.form.save(folder / "clean", rows[~suspect])
    own.form.save(folder / "suspects", rows[suspect])
    text = json.dumps(summary.model_dump(mode="json"), indent=2, ensure_ascii=False)
    write_text(folder / SUMMARY, text + "\n")
    table.attrs["summary"] = summary.model_dump(mode="json")
    return table, summary


def _write_table(folder: Path, table: pd.DataFrame) -> None:
    """Write the pairs twice; CSV cells that a spreadsheet would compute get an apostrophe."""
    with atomic_path(folder / f"{PAIRS}.parquet") as temporary:
        typed = table.infer_objects()
        mixed = [str(name) for name in typed if typed[name].dtype == object]
        plain = typed.assign(**{name: typed[name].map(_plain, na_action="ignore") for name in mixed})
        plain.to_parquet(temporary, index=False)
    texts = [str(name) for name in table.select_dtypes(["object", "string"]).columns]
    safe = table.assign(**{name: table[name].map(csv_cell, na_action="ignore") for name in texts})
    with atomic_path(folder / f"{PAIRS}.csv") as temporary:
        safe.to_csv(temporary, index=False, lineterminator="\n")


def _plain(value: object) -> object:
    """A cell as Parquet stores a column of mixed types: as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
