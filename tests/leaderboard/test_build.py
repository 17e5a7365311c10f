import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from leaderboard.build import HERE, PLOT, build
from leaderboard.markdown import BEGIN, END
from ncl_bench.errors import SubmissionError


@pytest.fixture
def board(small_board: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_board, tmp_path / "board"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published rows, built into an empty folder."""
    root = tmp_path_factory.mktemp("whole")
    build(root)
    return root


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_the_committed_leaderboard_is_current() -> None:
    build(HERE, check=True)


def test_two_builds_give_the_same_bytes_wherever_they_are(board: Path, tmp_path: Path) -> None:
    build(board, published=False)
    other = tmp_path / "another place"
    shutil.copytree(board / "submissions", other / "submissions")
    build(other, published=False)
    assert contents(board) == contents(other)


def test_a_small_leaderboard_has_tables_and_a_plot(board: Path) -> None:
    built = build(board, published=False)
    assert built.rows == 4
    text = (board / "README.md").read_text(encoding="utf-8")
    assert re.search(r"\| CRCL \| VSE∞ \| single \| \d+\.\d ± \d+\.\d \(2\) \|.*verified", text)
    assert f"]({PLOT})" in text
    assert "<polyline" in (board / PLOT).read_text(encoding="utf-8")


def test_an_empty_leaderboard_can_be_built(tmp_path: Path) -> None:
    assert build(tmp_path, published=False).rows == 0
    assert "No rows yet." in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_words_outside_the_markers_are_kept(board: Path) -> None:
    (board / "README.md").write_text(f"# Mine\n\n{BEGIN}\nold\n{END}\n\nmy end\n", encoding="utf-8")
    build(board, published=False)
    text = (board / "README.md").read_text(encoding="utf-8")
    assert text.startswith("# Mine\n")
    assert text.endswith("my end\n")
    assert "old" not in text


def test_check_fails_on_a_stale_or_leftover_file_and_writes_nothing(board: Path) -> None:
    build(board, published=False)
    build(board, published=False, check=True)
    (board / "site" / "index.html").write_text("stale", encoding="utf-8")
    (board / "site" / "old.html").write_text("left over", encoding="utf-8")
    with pytest.raises(SubmissionError, match=r"2 leaderboard files are stale.*index\.html"):
        build(board, published=False, check=True)
    assert (board / "site" / "index.html").read_text(encoding="utf-8") == "stale"
    built = build(board, published=False)
    assert [str(path) for path in built.changed] == ["site/index.html"]
    assert [str(path) for path in built.removed] == ["site/old.html"]


class _Page(HTMLParser):
    """Collects what a browser would load, the links, the ids, and open elements."""

    VOID = frozenset({"meta", "link", "br", "input", "col", "img", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.loads += [found["src"]] if "src" in found else []
        self.loads += [found["href"]] if tag == "link" else []
        self.links += [found["href"]] if tag == "a" else []
        self.ids += [found["id"]] if "id" in found else []
        assert not [name for name in found if name.startswith("on")]
        assert "style" not in found
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def pages(root: Path) -> dict[Path, _Page]:
    return {path: _Page(path.read_text(encoding="utf-8")) for path in sorted((root / "site").rglob("*.html"))}


def test_pages_are_well_formed_and_load_nothing_from_elsewhere(whole: Path) -> None:
    found = pages(whole)
    assert len(found) > 40
    for path, page in found.items():
        assert not page.open, path
        assert len(page.ids) == len(set(page.ids)), path
        for target in page.loads:
            assert target == "data:," or (path.parent / target).is_file(), (path, target)
    css = (whole / "site" / "site.css").read_text(encoding="utf-8")
    assert "url(" not in css
    assert "@import" not in css


def test_every_internal_link_leads_somewhere(whole: Path) -> None:
    found = pages(whole)
    ids = {path.resolve(): set(page.ids) for path, page in found.items()}
    for path, page in found.items():
        for link in page.links:
            if link.startswith("https://"):
                continue
            target, _, fragment = link.partition("#")
            goal = (path.parent / target).resolve() if target else path.resolve()
            assert goal.is_file(), (path, link)
            assert not fragment or fragment in ids[goal], (path, link)


def test_every_published_row_is_on_the_front_page(whole: Path) -> None:
    text = (whole / "site" / "index.html").read_text(encoding="utf-8")
    rows = len(re.findall(r"<tr class=\"(?:muted)?\" data-status", text))
    folded = len(re.findall(r'<td class="source">', text))
    sources = len(re.findall(r'href="downloads.html#', text))
    assert rows == folded
    assert sources == 1058


def test_unknown_noise_units_are_called_unknown(whole: Path) -> None:
    text = (whole / "site" / "index.html").read_text(encoding="utf-8")
    section = text[text.index('id="flickr30k-1k-unknown-40"') :][:3000]
    assert "unit unknown" in section
    assert "do not say whether" in section


def test_a_card_is_rendered_without_its_raw_html(tmp_path: Path) -> None:
    from leaderboard.cards import card_html

    path = tmp_path / "x.md"
    path.write_text("---\na: 1\n---\n# X\n\n<script>bad</script>\n\n| a |\n| - |\n| 1 |\n", encoding="utf-8")
    html = str(card_html(path))
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "<table>" in html
    assert "a: 1" not in html


def test_templates_escape_text() -> None:
    from leaderboard.figures import Curve, curves

    text = curves(
        [Curve("<script>", ((0.0, 1.0, 0.0), (1.0, 2.0, 0.0)))], title="<b>", x_title="&", y_title='"'
    )
    assert "<script>" not in text
    assert "<b>" not in text
