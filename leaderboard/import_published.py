"""Copy the facts of a collected table of published results into published/results.csv.

    ncl-bench leaderboard import-published published_results.csv

Numbers are copied as printed, in the collection's order; remarks are not: ours stand in published/notes.yaml.
"""

import csv
import io
from pathlib import Path

from leaderboard.rows import RECALLS
from ncl_bench.errors import SubmissionError
from ncl_bench.files import write_text

COLUMNS = (
    "source",
    "table",
    "method",
    "backbone",
    "dataset",
    "protocol",
    "noise_unit",
    "noise_ratio",
    "tokenizer",
)
_UNIT_OF_TYPE = {"none": "none", "real": "natural"}


def import_published(collected: Path, target: Path) -> int:
    """Write ``target`` from a collected CSV file.

    Args:
        collected: CSV with one row per published number: ``source_key``, ``table``, ``method``, ``backbone``,
            ``dataset``, ``protocol``, ``noise_type``, ``noise_ratio``, ``noise_unit``, ``tokenizer``, six
            recalls and ``rsum_reported``.
        target: the CSV file to write.

    Returns:
        The number of rows.

    Raises:
        SubmissionError: a column is missing or a row stands twice.
    """
    with collected.open(encoding="utf-8", newline="") as stream:
        rows = [
            _facts(row, f"{collected}:{line}") for line, row in enumerate(csv.DictReader(stream), start=2)
        ]
    seen: dict[tuple[str, ...], int] = {}
    for line, row in enumerate(rows, start=2):
        key = tuple(row[name] for name in COLUMNS)
        if key in seen:
            raise SubmissionError(
                f"{collected}:{line} repeats line {seen[key]}: {', '.join(filter(None, key))}; remove one of the two"
            )
        seen[key] = line
    out = io.StringIO()
    writer = csv.DictWriter(out, (*COLUMNS, *RECALLS, "r_sum"), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(target, out.getvalue())
    return len(rows)


def _facts(row: dict[str, str], where: str) -> dict[str, str]:
    try:
        unit = _UNIT_OF_TYPE.get(row["noise_type"], row["noise_unit"])
        renamed = {"source": row["source_key"], "noise_unit": unit, "r_sum": row["rsum_reported"]}
        copied = {name: row[name] for name in (*COLUMNS, *RECALLS) if name not in renamed}
        return copied | renamed
    except KeyError as error:
        raise SubmissionError(
            f"{where} has no column {error}; expected the columns of a collected table"
        ) from None
