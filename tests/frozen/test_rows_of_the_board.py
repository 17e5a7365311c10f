"""The board's rows to the byte, and what is published of a part of its results, whatever is added to it."""

import csv
import hashlib
import io
import re
import shutil
from collections import Counter
from pathlib import Path

from support.board_rows import whole_board

from leaderboard.build import HERE, built
from leaderboard.exports import RANKS, csv_text, tables_in

ROWS = Path(__file__).with_name("board.csv")
PAGES = ("index.html", "measured.html", "detection.html", "gain.html", "ablations.html", "people.html")
TRAINED_AGAIN = ("IN2R", "NPC (after a warm-up)")
"""Their rows on digits may change."""
CONDITION = ("dataset", "protocol", "noise_unit", "noise_ratio", "text")


def lines(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_no_row_has_changed() -> None:
    """A row may be added; then the ranks under its condition may change, and no others."""
    known, now = lines(ROWS.read_text("utf-8")), lines(csv_text(whole_board().rows))
    n_known, n_now = (
        Counter(tuple(row[name] for name in CONDITION) for row in rows) for rows in (known, now)
    )
    same = {condition for condition, n in n_known.items() if n_now[condition] == n}

    def content(row: dict[str, str]) -> tuple[str, ...]:
        ranked = tuple(row[name] for name in CONDITION) in same
        return tuple(row[name] for name in known[0] if ranked or name not in RANKS)

    missing = Counter(map(content, known)) - Counter(map(content, now))
    assert not missing, (
        f"{sum(missing.values())} rows are gone or have changed, the first is {next(iter(missing))}"
    )


def test_what_is_published(frozen, tmp_path: Path) -> None:
    """Of the rows of papers, and of the digits; of a page the cells of its tables."""
    for row in lines(ROWS.read_text("utf-8")):
        if row["dataset"] == "digits" and row["method"] not in TRAINED_AGAIN:
            for name in (f"results/{row['file']}.yaml", f"results/{row['file']}.npz"):
                (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(HERE / name, tmp_path / name)
    site = built(tmp_path)
    texts = {"tables of README.md": tables_in(site.readme).partition("-->")[2]}
    for name, text in site.files.items():
        if name.startswith(("data/", "methods/")) or name in PAGES:
            cells = re.findall(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", text, re.DOTALL)
            plain = (" ".join(re.sub("<[^>]+>", " ", cell).split()) for cell in cells)
            texts[name] = "\n".join(plain) if name.endswith(".html") else text
    found = {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in texts.items()}
    assert found == frozen("published", found)
