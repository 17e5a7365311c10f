"""Build the leaderboard: read and check rows, write the site, and the tables of README.md."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from leaderboard.charts import plain_chart
from leaderboard.content import Content, published_folder, read_content
from leaderboard.exports import bibtex_text, csv_text, json_text, latex_text
from leaderboard.markdown import rows_of, tables, with_tables
from leaderboard.site import site_files
from ncl_bench.errors import SubmissionError
from ncl_bench.files import sole_owner, write_text
from ncl_bench.protocol import PROTOCOL_VERSION

HERE = Path(__file__).parent
CARDS = HERE.parent / "dataset_cards"
PLOT = "rsum_vs_noise.svg"
README = "README.md"
_TITLE = "# Leaderboard\n"


@dataclass(frozen=True)
class Built:
    """What a build found.

    Attributes:
        rows: rows as shown, seeds merged.
        files: every page and download, below the site's folder.
        behind: whether rows changed since the tables of README.md were written.
    """

    rows: int
    files: tuple[Path, ...]
    behind: bool


def build(root: Path, to: Path, *, published: bool = True, tables: bool = False) -> Built:
    """Check every row and write the site.

    Two builds of the same rows give the same bytes on every machine.

    Args:
        root: the leaderboard's folder; ``root/submissions`` is read.
        to: the site's folder.
        published: show the published rows too.
        tables: write the tables of ``root/README.md`` as well.

    Raises:
        SubmissionError: a row is refused.
    """
    with sole_owner(root), sole_owner(to):
        content = read_content(root, published=published)
        files = _site(content)
        for path, text in files.items():
            write_text(to / path, text)
        if tables:
            write_text(root / README, _readme(content, root))
    return Built(len(content.rows), tuple(files), _behind(root))


def check(root: Path = HERE, *, published: bool = True) -> Built:
    """Check every row and the tables of ``root/README.md``, and write nothing.

    Tables that were written from other rows than those that are there now are behind and are not looked at: a
    change that adds a row brings no tables, so that two of them never conflict.

    Raises:
        SubmissionError: a row is refused, or the tables are not those of the rows that they were written from.
    """
    with sole_owner(root):
        content = read_content(root, published=published)
        files = _site(content)
        behind = _behind(root)
        if not behind and _readme(content, root) != _text(root):
            raise SubmissionError(
                f"{root / README} holds other tables than its rows give; run `ncl-bench leaderboard build --tables` "
                "and commit it"
            )
    return Built(len(content.rows), tuple(files), behind)


def _site(content: Content) -> dict[Path, str]:
    files = site_files(content, CARDS)
    files["data/leaderboard.csv"] = csv_text(content.boards)
    files["data/leaderboard.json"] = json_text(content.boards, PROTOCOL_VERSION)
    files["data/sources.bib"] = bibtex_text(content.sources)
    for board in content.boards:
        files[f"data/latex/{board.cell.slug}.tex"] = latex_text(board)
    chart = plain_chart(content.boards, content.sources)
    if chart:
        files[PLOT] = chart
    return {Path(name): files[name] for name in sorted(files)}


def _readme(content: Content, root: Path) -> str:
    return with_tables(_text(root) or _TITLE, tables(content), rows_sha256(root))


def _text(root: Path) -> str:
    path = root / README
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _behind(root: Path) -> bool:
    return rows_of(_text(root)) != rows_sha256(root)


def rows_sha256(root: Path) -> str:
    """Hash (hex) of all that the tables are written from: the row files and the published results."""
    files = [*(root / "submissions").glob("*/*.yaml"), *published_folder(root).iterdir()]
    lines = sorted(f"{path.parent.name}/{path.name} {_sha256(path)}" for path in files if path.is_file())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
