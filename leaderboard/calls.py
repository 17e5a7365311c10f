"""The leaderboard from Python: all its rows, and the table of a paper, as frames."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ncl_bench.arguments import AnyPath, checked_arguments
from ncl_bench.errors import SubmissionError
from ncl_bench.extras import require

if TYPE_CHECKING:
    import pandas as pd


@checked_arguments()
def load_results() -> "pd.DataFrame":
    """Load all rows of the leaderboard, printed and measured, as a frame.

    They are read as the last build computed them. In a clone whose results changed since, they are computed again.

    Returns:
        One row per printed number, and one per seed and protocol of a measured row. Columns: the condition
        (``dataset``, ``protocol``, ``noise_unit``, ``noise_ratio``, ``text``), ``seed``, then the fields of
        :class:`leaderboard.entries.Entry`. ``seed`` is the key of the result: ``0``, or ``0+1`` where a result averages
        networks of two seeds; empty if a paper prints the number. Recalls (``i2t_r1`` ... ``t2i_r10``) and ``r_sum``
        are in percent, NaN if a paper does not print one.
    """
    require("data", "pandas", needed_by="load_results")
    import pandas as pd

    from leaderboard.entries import Condition, Entry
    from leaderboard.results_frame import read_frame
    from ncl_bench.evaluation.metrics import RECALLS

    root = Path(__file__).parent
    lines: Sequence[Entry] | None = read_frame(root)
    if lines is None:
        from leaderboard.board import read_content

        lines = read_content(root, published=True).seeds
    rows = [entry.flat() | {"seed": "".join(entry.runs)} for entry in lines]
    facts = [name for name in Entry.model_fields if name not in ("condition", "recalls", "spread")]
    return pd.DataFrame(rows, columns=[*Condition.model_fields, "seed", *facts, *RECALLS, "r_sum"])


@checked_arguments(SubmissionError)
def table(
    dataset: str,
    noise: str = "",
    *,
    mine: AnyPath | Sequence[AnyPath] = (),
    protocol: str = "",
    every: bool = False,
    label: str = "",
    root: AnyPath | None = None,
) -> "pd.DataFrame":
    """The table of a paper as a frame: the comparable rows of one dataset, best first, yours among them.

    Example::

        leaderboard.table("flickr30k", "caption-40", mine="submissions/ncr")

    Args:
        dataset: name of the dataset.
        noise: noise: caption-40, image-60, natural, none, or another that has rows (default: every one that has).
        mine: your submission folder, or a file of similarities of the test split: only the tables that it belongs to,
            with its row. Several are one per training seed.
        protocol: protocol, such as 5k (default: all of the dataset).
        every: put single networks and ensembles into one table, without ranks.
        label: name of your rows in the table (default: the method's name with its changed settings).
        root: leaderboard folder, which contains results/ (default: that of the installed package).

    Returns:
        One row per row of the tables. ``table`` names the category: only its rows are comparable. ``rank`` is missing
        for rows that take none (docs/protocol.md). Recalls, ``r_sum`` and its standard deviation over seeds,
        ``r_sum_std``, are in percent. ``mine`` marks your rows.
    """
    require("data", "pandas", needed_by="the table as a frame or JSON")
    import pandas as pd

    from leaderboard.paper_boards import chosen_boards

    paths = [mine] if isinstance(mine, str | PathLike) else list(mine)
    board_root = Path(__file__).parent if root is None else Path(root)
    if not board_root.is_dir():
        raise SubmissionError(
            f"root is {board_root}, which is no folder; give that of a leaderboard, with results/"
        )
    boards, files, papers = chosen_boards(
        dataset,
        noise,
        [Path(each) for each in paths],
        board_root,
        protocol=protocol,
        every=every,
        label=label,
    )
    lines = [
        {
            "protocol": board.condition.protocol,
            "table": category.title,
            "rank": row.rank,
            "method": row.label,
            "backbone": row.backbone,
            **row.recalls.values,
            "r_sum": row.r_sum,
            "r_sum_std": row.spread.get("r_sum"),
            "seeds": row.n_seeds,
            "source": papers[row.source].short if row.source in papers else row.status,
            "mine": row.file in files,
        }
        for board in boards
        for category in board.categories
        for row in category.rows
    ]
    return pd.DataFrame(lines).astype({"rank": "Int64"})
