"""The leaderboard: submitted and published entries, ranked on boards and shown on a site."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def load_results() -> "pd.DataFrame":
    """Load all rows of the leaderboard, printed and measured, as a frame.

    An installed package holds only the printed rows and warns about it; a clone of the repository holds all.

    Returns:
        One row per printed number, and one per seed and protocol of a measured row. Columns: the condition
        (``dataset``, ``protocol``, ``noise_unit``, ``noise_ratio``, ``text``), then the fields of
        :class:`leaderboard.entries.Entry`. Recalls (``i2t_r1`` ... ``t2i_r10``) and ``r_sum`` are in percent, NaN if a
        paper does not print one.
    """
    import warnings
    from pathlib import Path

    import pandas as pd

    from leaderboard.board import read_content
    from leaderboard.entries import Condition, Entry
    from ncl_bench.evaluation.metrics import RECALLS

    root = Path(__file__).parent
    if not (root / "results").is_dir():
        warnings.warn(
            "an installed package holds only the printed rows; use a clone of the repository for measured rows",
            stacklevel=2,
        )
    rows = [entry.row() for entry in read_content(root, published=True).seeds]
    facts = [name for name in Entry.model_fields if name not in ("condition", "recalls", "spread")]
    return pd.DataFrame(rows, columns=[*Condition.model_fields, *facts, *RECALLS, "r_sum"])
