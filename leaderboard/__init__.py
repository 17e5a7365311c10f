"""The leaderboard: submitted and published entries, ranked on boards and shown on a site."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def load_results() -> "pd.DataFrame":
    """Load all rows of the leaderboard, printed and measured, as a frame.

    An installed package holds only the printed rows and warns about it; a clone of the repository holds all.

    Returns:
        One row per printed number, and one per seed and protocol of a measured cell. Columns: the cell (``dataset``,
        ``protocol``, ``noise_unit``, ``noise_ratio``, ``text``), then the fields of
        :class:`leaderboard.entries.Entry`. Recalls (``i2t_r1`` ... ``t2i_r10``) and ``r_sum`` are in percent, NaN if a
        paper does not print one.
    """
    import warnings
    from pathlib import Path

    import pandas as pd

    from leaderboard.board import read_content

    root = Path(__file__).parent
    if not (root / "results").is_dir():
        warnings.warn(
            "an installed package holds only the printed rows; use a clone of the repository for measured rows",
            stacklevel=2,
        )
    rows = []
    for entry in read_content(root, published=True).unmerged:
        facts = dict(entry)  # unlike model_dump, keeps nested models and tuples
        del facts["cell"], facts["recalls"], facts["spread"]
        rows.append({**dict(entry.cell), **facts, **entry.recalls.values, "r_sum": entry.r_sum})
    return pd.DataFrame(rows)
