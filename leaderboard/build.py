"""Build the leaderboard: read rows, write pages, tables, figures and downloads, or check them."""

from dataclasses import dataclass
from pathlib import Path

from leaderboard.charts import plain_chart
from leaderboard.content import Content, read_content
from leaderboard.exports import bibtex_text, csv_text, json_text, latex_text
from leaderboard.markdown import tables, with_tables
from leaderboard.site import site_files
from ncl_bench.errors import SubmissionError
from ncl_bench.files import sole_owner, write_text
from ncl_bench.protocol import PROTOCOL_VERSION

HERE = Path(__file__).parent
CARDS = HERE.parent / "dataset_cards"
PLOT = "rsum_vs_noise.svg"
_TITLE = "# Leaderboard\n"


@dataclass(frozen=True)
class Built:
    """What a build found.

    Attributes:
        rows: rows as shown, seeds merged.
        files: every output, below ``root``.
        changed: the outputs that were written.
        removed: outputs of an earlier build that are no longer made.
    """

    rows: int
    files: tuple[Path, ...]
    changed: tuple[Path, ...]
    removed: tuple[Path, ...]


def build(root: Path = HERE, *, published: bool = True, check: bool = False) -> Built:
    """Build the leaderboard of a folder.

    Reads ``root/submissions``; writes ``root/README.md`` (tables between markers), a plot of rSum against
    noise ratio, and the static site below ``root/site``. Two builds of the same rows give the same bytes on
    every machine.

    Args:
        root: the folder.
        published: show the published rows too.
        check: write nothing, and fail if anything would change.

    Raises:
        SubmissionError: a row is refused, or, with ``check``, an output is stale.
    """
    with sole_owner(root):
        return _build(root, published=published, check=check)


def _build(root: Path, *, published: bool, check: bool) -> Built:
    content = read_content(root, published=published)
    outputs = _outputs(content, root)
    changed = tuple(path for path, text in outputs.items() if not _holds(root / path, text))
    leftover = sorted(path.relative_to(root) for path in (root / "site").rglob("*") if path.is_file())
    removed = tuple(path for path in leftover if path not in outputs)
    if check and (changed or removed):
        first = (*changed, *removed)[0]
        count = len(changed) + len(removed)
        raise SubmissionError(
            f"{count} leaderboard file{'s are' if count > 1 else ' is'} stale, the first is {root / first}; "
            "run `ncl-bench leaderboard build` and commit what it wrote"
        )
    for path in changed:
        write_text(root / path, outputs[path])
    for path in removed:
        (root / path).unlink()
    return Built(len(content.rows), tuple(outputs), changed, removed)


def _outputs(content: Content, root: Path) -> dict[Path, str]:
    files = {f"site/{name}": text for name, text in site_files(content, CARDS).items()}
    files["site/data/leaderboard.csv"] = csv_text(content.boards)
    files["site/data/leaderboard.json"] = json_text(content.boards, PROTOCOL_VERSION)
    files["site/data/sources.bib"] = bibtex_text(content.sources)
    for board in content.boards:
        files[f"site/data/latex/{board.cell.slug}.tex"] = latex_text(board)
    chart = plain_chart(content.boards, content.sources)
    if chart:
        files[PLOT] = chart
    readme = root / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else _TITLE
    picture = f"![rSum against noise ratio]({PLOT})\n\n" if chart else ""
    files["README.md"] = with_tables(text, picture + tables(content))
    return {Path(name): files[name] for name in sorted(files)}


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode("utf-8")
