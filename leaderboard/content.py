"""Everything that the outputs are made from: rows, boards, methods and sources."""

from dataclasses import dataclass
from pathlib import Path

from leaderboard.boards import Board, boards_of, merge_seeds
from leaderboard.methods import Family, read_families
from leaderboard.published import Source, read_published, read_sources
from leaderboard.rows import Row
from leaderboard.significance import Alike
from leaderboard.submitted import read_submitted


@dataclass(frozen=True)
class Content:
    """What a leaderboard shows.

    Attributes:
        single: every row before seeds are merged.
        rows: every row as shown.
        boards: the rows by cell, ranked.
        families: the methods by key.
        sources: the sources of reported rows by key; empty without published rows.
    """

    single: tuple[Row, ...]
    rows: tuple[Row, ...]
    boards: tuple[Board, ...]
    families: dict[str, Family]
    sources: dict[str, Source]


def read_content(root: Path, *, published: bool) -> Content:
    """Read and check every row.

    Args:
        root: folder that holds ``submissions/``.
        published: show the published rows too.

    Raises:
        SubmissionError: a file or field is refused.
    """
    families = read_families()
    reported = read_published(families) if published else []
    submitted = read_submitted(root / "submissions", families)
    single = (*reported, *submitted)
    rows = tuple(merge_seeds(single))
    alike = Alike(root / "submissions")
    return Content(single, rows, tuple(boards_of(rows, alike)), families, read_sources() if published else {})
