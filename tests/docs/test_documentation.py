"""Every command and every example of the documents runs as it stands there."""

import re
from collections import Counter

import pytest
from pages import PAGES, ROOT, blocks_of, commands_of
from reader import Reader, forgetting

SHOWN_ONLY = Counter(
    {
        "README.md": 1,  # installs packages
        "docs/add-a-dataset.md": 1,
        "docs/audit.md": 2,
        "docs/audit-judge.md": 7,
        "docs/audit-runs.md": 6,
        "docs/beyond-one-machine.md": 3,
        "docs/clip.md": 5,
        "docs/data.md": 2,
        "docs/evaluate.md": 2,
        "docs/make-a-table.md": 6,
        "docs/measured-tables.md": 1,
        "docs/faq.md": 1,
        "docs/multi-gpu.md": 4,
        "docs/my-own-images.md": 2,
        "docs/noise.md": 5,
        "docs/own-pairs.md": 1,
        "docs/quickstart.md": 3,
        "docs/reproduce.md": 5,
        "docs/scale.md": 5,
        "docs/training-loop.md": 2,
    }
)
"""Blocks of each page that do not run here: they need a GPU, a cluster, the Hub, or minutes."""
LONG = {"docs/audit.md", "docs/audit-runs.md", "docs/multi-gpu.md", "docs/noise.md"}
"""Pages that take half a minute each."""


def name_of(page):
    return str(page.relative_to(ROOT))


@pytest.mark.timeout(600)  # processes of their own on a busy machine
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow) if name_of(page) in LONG else page for page in PAGES],
    ids=name_of,
)
def test_every_command_and_example_runs(page, tmp_path, monkeypatch):
    reader = Reader(tmp_path, monkeypatch)
    runnable = [b for b in blocks_of(page) if b.language in ("bash", "python") and not b.shown_only]
    with forgetting(tmp_path):
        for block in blocks_of(page):
            try:
                reader.read(block)
            except Exception as error:
                raise AssertionError(f"{block.place}: {error}") from error
    expected = sum(len(commands_of(b.text)) if b.language == "bash" else 1 for b in runnable if not b.words)
    assert len(reader.ran) == expected


def test_nothing_hides():
    blocks = [block for page in PAGES for block in blocks_of(page)]
    assert {block.language for block in blocks} <= {"bash", "python", "yaml", "text", "bibtex", "given"}
    shown = Counter(block.place.split(":")[0] for block in blocks if block.shown_only)
    assert shown == SHOWN_ONLY
    for page in PAGES:
        assert page.read_text("utf-8").count("```") % 2 == 0
        fences = re.findall(r"^```\S", page.read_text("utf-8"), re.MULTILINE)
        assert len(fences) == sum(block.language != "given" for block in blocks_of(page))


def anchors(page):
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\((?!https?://)([^)\s]+)\)", page.read_text("utf-8")):
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.exists(), f"{name_of(page)} links to {target}"
        assert not anchor or anchor in anchors(there), f"{name_of(page)} links to {target}"


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    for page in ROOT.glob("docs/*.md"):
        assert page.name == "README.md" or f"]({page.name})" in index
    assert "](docs/README.md)" in (ROOT / "README.md").read_text("utf-8")


def test_the_readme_stays_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120
