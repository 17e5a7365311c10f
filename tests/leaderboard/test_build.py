import base64
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from support.refusals import refused

from leaderboard.build import build, check
from leaderboard.exports import BEGIN, END
from leaderboard.site import card_html
from ncl_bench.errors import SubmissionError


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The published rows, built into an empty folder."""
    root = tmp_path_factory.mktemp("whole")
    build(root, root / "site")
    return root


def test_a_check_writes_nothing_and_so_needs_no_lock(board, monkeypatch):
    """The folder may be read-only, where no lock can be made."""
    monkeypatch.setattr("leaderboard.build.sole_owner", None)
    before = contents(board.parent)
    assert check(board, published=False).rows == 4
    assert contents(board.parent) == before


def contents(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_two_builds_give_the_same_bytes_wherever_they_are(board, tmp_path):
    build(board, tmp_path / "site", published=False, tables=True)
    other = tmp_path / "another place"
    shutil.copytree(board / "results", other / "results")
    build(other, tmp_path / "other site", published=False, tables=True)
    assert contents(board) == contents(other)
    assert contents(tmp_path / "site") == contents(tmp_path / "other site")


def test_the_header_links_to_the_code_and_to_documentation_in_the_site(board, tmp_path):
    page = tmp_path / "site" / "methods" / "index.html"
    build(board, tmp_path / "site", published=False)
    assert ">Docs</a>" not in page.read_text("utf-8")
    (tmp_path / "site" / "docs").mkdir()
    (tmp_path / "site" / "docs" / "index.html").write_text("the documentation", "utf-8")
    build(board, tmp_path / "site", published=False, repository="https://example.org/code")
    assert '<a href="../docs/index.html">Docs</a>' in page.read_text("utf-8")
    assert '<a href="https://example.org/code">Code</a>' in page.read_text("utf-8")


def test_words_outside_the_markers_are_kept(board):
    (board / "README.md").write_text(f"# Mine\n\n{BEGIN}\nold\n{END}\n\nmy end\n", "utf-8")
    build(board, board / "site", published=False, tables=True)
    text = (board / "README.md").read_text("utf-8")
    assert text.startswith("# Mine\n")
    assert text.endswith("my end\n")
    assert "old" not in text


def test_a_build_leaves_the_tables_and_what_else_is_in_its_folder_alone(board, tmp_path):
    (tmp_path / "mine.txt").write_text("mine", "utf-8")
    before = contents(board)
    assert build(board, tmp_path, published=False).behind
    assert (tmp_path / "mine.txt").read_text("utf-8") == "mine"
    assert {name: text for name, text in contents(board).items() if not name.startswith("site/")} == before


def test_tables_that_were_changed_by_hand_are_refused_and_nothing_is_written(board, tmp_path):
    build(board, tmp_path / "site", published=False, tables=True)
    assert not check(board, published=False).behind
    page = board / "README.md"
    page.write_text(page.read_text("utf-8").replace("| CRCL |", "| Mine |"), "utf-8")
    before = contents(board)
    with refused(SubmissionError):
        check(board, published=False)
    assert contents(board) == before


def test_two_changes_that_add_a_row_each_are_merged_without_conflict(board, put, tmp_path):
    def git(*arguments):
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *identity, *arguments], cwd=board, check=True, capture_output=True)

    git("init", "--initial-branch", "main")
    build(board, tmp_path / "site", published=False, tables=True)
    git("add", ".")
    git("commit", "--message", "rows and their tables")
    for seed, method in enumerate(("First", "Second")):
        git("checkout", "-b", method, "main")
        put(board, method=method, difficulty=1.2, seed=seed)
        git("add", ".")
        git("commit", "--message", method)
        assert check(board, published=False).behind
    git("checkout", "main")
    git("merge", "--no-edit", "First")
    git("merge", "--no-edit", "Second")
    merged = check(board, published=False)
    assert (merged.rows, merged.behind) == (6, True)
    build(board, tmp_path / "site", published=False, tables=True)
    assert not check(board, published=False).behind
    text = (board / "README.md").read_text("utf-8")
    assert "| First |" in text
    assert "| Second |" in text


class _Page(HTMLParser):
    """Collects what a browser would load, the links, the ids, and open elements."""

    VOID = frozenset({"meta", "link", "br", "input", "col", "img", "hr"})

    def __init__(self, text):
        super().__init__()
        self.loads = []
        self.links = []
        self.ids = []
        self.open = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = {name: value or "" for name, value in attrs}
        self.loads += [found["src"]] if "src" in found else []
        self.loads += [found["href"]] if tag == "link" else []
        self.links += [found["href"]] if tag == "a" else []
        self.ids += [found["id"]] if "id" in found else []
        assert not [name for name in found if name.startswith("on")]
        assert "style" not in found
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def pages(root):
    return {path: _Page(path.read_text("utf-8")) for path in sorted((root / "site").rglob("*.html"))}


def test_pages_are_well_formed_and_load_nothing_from_elsewhere(whole):
    found = pages(whole)
    assert len(found) > 40
    for path, page in found.items():
        assert not page.open, path
        assert len(page.ids) == len(set(page.ids)), path
        for target in page.loads:
            assert target.startswith("data:") or (path.parent / target).is_file(), (path, target[:80])
    css = (whole / "site" / "site.css").read_text("utf-8")
    assert "url(" not in css
    assert "@import" not in css


def test_every_internal_link_leads_somewhere(whole):
    found = pages(whole)
    ids = {path.resolve(): set(page.ids) for path, page in found.items()}
    for path, page in found.items():
        for link in page.links:
            if link.startswith(("https://", "http://")):
                continue
            target, _, fragment = link.partition("#")
            goal = (path.parent / target).resolve() if target else path.resolve()
            assert goal.is_file(), (path, link)
            assert not fragment or fragment in ids[goal], (path, link)


def test_a_card_is_rendered_without_its_raw_html_and_with_its_pictures(tmp_path):
    (tmp_path / "x.png").write_bytes(b"a picture")
    card = "---\na: 1\n---\n# X\n\n<script>bad</script>\n\n| a |\n| - |\n| 1 |\n\n![Four of each](x.png)\n"
    (tmp_path / "x.md").write_text(card, "utf-8")
    html = str(card_html(tmp_path / "x.md"))
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "<table>" in html
    assert "a: 1" not in html
    encoded = base64.b64encode(b"a picture").decode()
    assert f'<img src="data:image/png;base64,{encoded}" alt="Four of each"' in html
