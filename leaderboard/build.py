"""Build the leaderboard: check entries, write the site and the tables of README.md."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from leaderboard.board import Content, boards, published_folder, read_content
from leaderboard.cells import REPRODUCED
from leaderboard.exports import (
    bibtex_text,
    csv_text,
    latex_text,
    paper_tables,
    rows_in,
    tables,
    with_tables,
)
from leaderboard.figures import plain_chart
from leaderboard.site import repository_link, site_files
from ncl_bench.errors import SubmissionError
from ncl_bench.files import sole_owner, write_text
from ncl_bench.progress import Progress, silent

HERE = Path(__file__).parent
CARDS = HERE.parent / "dataset_cards"
PLOT = "rsum_vs_noise.svg"
README = "README.md"
ROWS = "data/leaderboard.csv"
"""Path in the site of the table of all rows."""
DOCS = "docs/index.html"
"""Folder of the documentation in the site, if it was built first."""
_TITLE = "# Leaderboard\n"


@dataclass(frozen=True)
class Built:
    """Outcome of a build.

    Attributes:
        entries: number of entries shown, seeds merged.
        files: pages and downloads, by path in the site's folder.
        behind: whether rows changed since the tables of README.md were written.
    """

    entries: int
    files: tuple[Path, ...]
    behind: bool


def build(
    root: Path, to: Path, *, published: bool = True, tables: bool = False, progress: Progress = silent
) -> Built:
    """Check every entry and write the site.

    Two builds of the same entries give the same bytes on every machine. The header links to the documentation if it
    is in ``to/docs``.

    Args:
        root: folder of the leaderboard; ``root/results`` is read.
        to: folder of the site.
        published: also show the numbers that papers print.
        tables: also write the tables of ``root/README.md``.
        progress: reports the rows read and evaluated.

    Raises:
        SubmissionError: an entry is refused.
    """
    with sole_owner(root), sole_owner(to):
        content = read_content(root, published=published, progress=progress)
        docs = [("Docs", DOCS)] if (to / DOCS).is_file() else []
        files = _site(content, docs)
        for path, text in files.items():
            write_text(to / path, text)
        if tables:
            write_text(root / README, _readme(content, root))
    return Built(len(content.rows), tuple(files), _behind(root))


def check(root: Path = HERE, *, published: bool = True, progress: Progress = silent) -> Built:
    """Check every entry and the tables of ``root/README.md``, without writing; the folder may be read-only.

    Tables written from other entries than the current ones are outdated and are not compared. So a change that adds an
    entry brings no tables, and two such changes never conflict.

    Raises:
        SubmissionError: an entry is refused, or the tables differ from those of their entries.
    """
    content = read_content(root, published=published, progress=progress)
    files = _site(content, [])
    behind = _behind(root)
    if not behind and _readme(content, root) != readme(root):
        raise SubmissionError(
            f"{root / README} does not hold the tables of its rows; "
            "write them with `ncl-bench leaderboard build --tables` and commit the file"
        )
    return Built(len(content.rows), tuple(files), behind)


def built(root: Path, *, published: bool = True, progress: Progress = silent) -> dict[str, str]:
    """Text of everything that a build publishes, by path in the site's folder, and README.md with its tables.

    Args:
        root: folder of the leaderboard; it is only read.
        published: also show the numbers that papers print.
        progress: reports the rows read and evaluated.

    Raises:
        SubmissionError: an entry is refused.
    """
    content = read_content(root, published=published, progress=progress)
    files = {path.as_posix(): text for path, text in _site(content, []).items()}
    return {**files, README: _readme(content, root)}


def _site(content: Content, docs: list[tuple[str, str]]) -> dict[Path, str]:
    files = site_files(content, CARDS, [*docs, *repository_link()])
    files[ROWS] = csv_text(content.rows)
    files["data/sources.bib"] = bibtex_text(content.papers)
    for board in boards(content.rows):
        files[f"data/latex/{board['cell'].slug}.tex"] = latex_text(paper_tables(board))
    chart = plain_chart(content.rows, content.papers)
    if chart:
        files[PLOT] = chart
    return {Path(name): files[name] for name in sorted(files)}


def _readme(content: Content, root: Path) -> str:
    return with_tables(readme(root) or _TITLE, tables(content), rows_sha256(root))


def readme(root: Path) -> str:
    """Text of README.md; empty if there is none."""
    path = root / README
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _behind(root: Path) -> bool:
    return rows_in(readme(root)) != rows_sha256(root)


def rows_sha256(root: Path) -> str:
    """Hash (hex) of everything the tables are written from: measured and published results."""
    measured = [path for path in (root / "results").rglob("*") if path.is_file()]
    names = {
        path: path.relative_to(root).as_posix() for path in [*measured, root / REPRODUCED] if path.is_file()
    }
    names |= {path: f"published/{path.name}" for path in published_folder(root).iterdir() if path.is_file()}
    lines = sorted(f"{name} {_sha256(path)}" for path, name in names.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
