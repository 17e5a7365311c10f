"""The leaderboard: entries that were submitted or published, ranked on boards, and shown on a site."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def load_results() -> "pd.DataFrame":
    """All rows of the leaderboard, printed and measured, as a table.

    An installed package holds the printed rows alone, and a warning says so; a clone of the repository holds all.

    Returns:
        One row per printed number, and one per seed and protocol of a measured cell. Columns: the cell (``dataset``,
        ``protocol``, ``noise_unit``, ``noise_ratio``, ``text``), then what :class:`leaderboard.entries.Entry` holds
        of it. Recalls (``i2t_r1`` ... ``t2i_r10``) and ``r_sum`` are in percent, NaN where a paper does not print one.
    """
    import warnings
    from pathlib import Path

    import pandas as pd

    from leaderboard.board import read_content

    root = Path(__file__).parent
    if not (root / "results").is_dir():
        warnings.warn(
            "an installed package holds the printed rows alone; for measured rows use a clone of the repository",
            stacklevel=2,
        )
    rows = []
    for entry in read_content(root, published=True).unmerged:
        facts = dict(entry)  # models and tuples stay what they are
        del facts["cell"], facts["recalls"], facts["spread"]
        rows.append({**dict(entry.cell), **facts, **entry.recalls.values, "r_sum": entry.r_sum})
    return pd.DataFrame(rows)
