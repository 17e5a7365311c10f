"""Build the leaderboard: check entries, write the site and the tables of README.md."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from leaderboard.board import Content, boards, read_content
from leaderboard.exports import (
    README,
    ROWS,
    bibtex_text,
    csv_text,
    latex_text,
    paper_tables,
    rows_in,
    tables,
    with_tables,
)
from leaderboard.measured_tables import MeasuredTable, cost_chart, each_table, measured_pages, measured_tables
from leaderboard.results_frame import FRAME, evidence_sha256, frame_text
from leaderboard.site import site_files
from ncl_bench.errors import SubmissionError
from ncl_bench.files import sole_owner, write_text
from ncl_bench.progress import Progress, silent

HERE = Path(__file__).parent
CARDS = HERE.parent / "dataset_cards"
PLOT = "rsum_vs_cost.svg"
DOCS = "docs/index.html"
"""Folder of the documentation in the site, if it was built first."""
_TITLE = "# Leaderboard\n"


@dataclass(frozen=True)
class Built:
    """What a leaderboard publishes.

    Attributes:
        rows: number of rows shown, seeds merged.
        files: pages and downloads, by path in the site's folder.
        readme: README.md with its tables written anew.
        frame: the numbers (:mod:`leaderboard.results_frame`); empty without printed results, which belong to it.
        chart: figure of rSum against cost as SVG; empty without measured rows of the noise that it shows.
        behind: whether rows changed since the tables of README.md were written.
    """

    rows: int
    files: dict[str, str]
    readme: str
    frame: str
    chart: str
    behind: bool

    @property
    def texts(self) -> dict[str, str]:
        """The files and README.md, by path."""
        return {**self.files, README: self.readme}


def built(
    root: Path,
    *,
    published: bool = True,
    links: Sequence[tuple[str, str]] = (),
    progress: Progress = silent,
) -> Built:
    """Check every entry and make the texts of everything that is published; ``root`` is only read.

    Two builds of the same entries give the same bytes on every machine.

    Args:
        root: folder of the leaderboard; ``root/results`` is read.
        published: also show the numbers that papers print.
        links: label and address of more links in the header of every page.
        progress: reports the rows read and evaluated.
    """
    content = read_content(root, published=published, progress=progress)
    measured = measured_tables(content)
    files = site_files(content, measured_pages(content, measured), CARDS, links)
    files[ROWS] = csv_text(content.rows)
    files["data/sources.bib"] = bibtex_text(content.papers)
    for board in boards(content.rows):
        files[f"data/latex/{board.condition.slug}.tex"] = latex_text(paper_tables(board))
    return _of_root(root, content, measured, files)


def _of_root(root: Path, content: Content, measured: Iterable[MeasuredTable], files: dict[str, str]) -> Built:
    text, sha256 = _text(root / README), evidence_sha256(root)
    frame = frame_text(content.seeds, content.rows, sha256) if content.papers else ""
    new = with_tables(text or _TITLE, tables(content), sha256)
    chart = cost_chart(measured, content.rows, standalone=True)
    return Built(len(content.rows), files, new, frame, f"{chart}\n" if chart else "", rows_in(text) != sha256)


def _text(path: Path) -> str:
    """Text of a file; empty if there is none."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def build(
    root: Path,
    to: Path,
    *,
    published: bool = True,
    tables: bool = False,
    repository: str = "",
    progress: Progress = silent,
) -> Built:
    """Write the site and the frame; the header links to the documentation if that is in ``to/docs``.

    Args:
        root: leaderboard folder, which contains results/.
        to: folder to write the site to.
        published: include the results that papers report.
        tables: write the tables in README.md too (for maintainers).
        repository: address of the source code, for a link in the header.
        progress: see :func:`built`.
    """
    with sole_owner(root), sole_owner(to):
        links = [("Docs", DOCS)] if (to / DOCS).is_file() else []
        links += [("Code", repository)] if repository else []
        site = built(root, published=published, links=links, progress=progress)
        for path, text in site.files.items():
            write_text(to / path, text)
        if site.frame:
            write_text(root / FRAME, site.frame)
        if tables:
            write_text(root / README, site.readme)
        if tables and site.chart:
            write_text(root / PLOT, site.chart)
    return replace(site, behind=site.behind and not tables)


def check(root: Path = HERE, *, published: bool = True, progress: Progress = silent) -> Built:
    """Recompute every number and compare it with the frame and the tables of ``root/README.md``, without writing.

    A frame and tables of other evidence than the present one are outdated and are not compared. So a change that adds
    an entry brings neither, and two such changes never conflict.
    """
    content = read_content(root, published=published, progress=progress)
    rebuilt = _of_root(root, content, each_table(content), {})  # the first one has the figure
    frame = _text(root / FRAME)
    same_evidence = frame.partition(",")[0] == rebuilt.frame.partition(",")[0]  # each begins with its hash
    for name, differs, option in (
        (FRAME, rebuilt.frame and same_evidence and frame != rebuilt.frame, ""),
        (README, not rebuilt.behind and rebuilt.readme != _text(root / README), " --tables"),
        (PLOT, not rebuilt.behind and rebuilt.chart != _text(root / PLOT), " --tables"),
    ):
        if differs:
            raise SubmissionError(
                f"{root / name} does not hold the numbers of its rows; write them with "
                f"`ncl-bench leaderboard build{option}` and commit the file"
            )
    return rebuilt
