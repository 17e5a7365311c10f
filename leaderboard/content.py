"""Everything that the outputs are made from: rows, boards, methods and sources."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from leaderboard.boards import Board, boards_of, merge_seeds
from leaderboard.methods import Family, read_families
from leaderboard.published import PUBLISHED, Source, read_published, read_sources
from leaderboard.rows import Row
from leaderboard.significance import ToldApart
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
        root: folder that holds ``submissions/``, and perhaps ``published/``.
        published: show the published rows too.

    Raises:
        SubmissionError: a file or field is refused.
    """
    families = read_families()
    folder = published_folder(root)
    reported = read_published(families, folder) if published else []
    submitted, hits = read_submitted(root / "submissions", families)
    single = (*reported, *submitted)
    rows = tuple(merge_seeds(single))
    boards = tuple(boards_of(rows, ToldApart(hits)))
    return Content(
        single, rows, boards, _with_own_pages(families, rows), read_sources(folder) if published else {}
    )


def published_folder(root: Path) -> Path:
    """Where a leaderboard's published results lie: below it, or those of this repository."""
    own = root / "published"
    return own if own.is_dir() else PUBLISHED


def _with_own_pages(families: dict[str, Family], rows: Iterable[Row]) -> dict[str, Family]:
    """The families, and one for every submitted method that none of them claims."""
    own = {
        row.family: Family(
            title=row.method,
            summary="Submitted to this leaderboard; described by its authors.",
            names=(row.method,),
        )
        for row in rows
        if row.family not in families
    }
    return {**families, **dict(sorted(own.items()))}
