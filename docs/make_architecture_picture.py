"""Draw docs/architecture.svg: the two walks through the code, and what each step hands to the next.

python docs/make_architecture_picture.py            write the picture
python docs/make_architecture_picture.py --check    say whether it is current, exit with 1 if not
"""

import sys
from html import escape
from pathlib import Path
from typing import NamedTuple

from ncl_bench.files import write_text

PICTURE = Path(__file__).parent / "architecture.svg"


class Part(NamedTuple):
    """One step of a walk.

    Attributes:
        name: what does it, importable.
        does: in a few words.
        gives: what the next step takes.
        written: whether that is files.
    """

    name: str
    does: str
    gives: str
    written: bool = False


WALKS = {
    "A training pair to a submission": (
        "the raw files of a dataset",
        [
            Part("ncl_bench.data.prepare", "checks and tokenizes, once", "manifest.json, tables", True),
            Part("ncl_bench.data.load_dataset", "opens a split; noise moves its images", "PairedDataset"),
            Part("baselines.kit.batches", "a shuffled pass, padded", "Batch"),
            Part("baselines.methods", "the loss and the algorithm of a paper", "loss"),
            Part("baselines.engine.step", "clips and steps the optimiser", "networks"),
            Part(
                "baselines.engine.train",
                "epochs; the best on dev is kept",
                "run.json, best.safetensors, ...",
                True,
            ),
            Part(
                "baselines.engine.score_run",
                "scores the test split, once",
                "submission.yaml, test.npy",
                True,
            ),
        ],
    ),
    "A score matrix to a row of the leaderboard": (
        "submission.yaml and the files it names",
        [
            Part("ncl_bench.evaluation.evaluate", "opens them; compares what is stated", "SplitScores"),
            Part("ncl_bench.evaluation.ranks", "counts who stands before the true one", "Ranks"),
            Part("ncl_bench.evaluation.protocol", "folds, recalls and their intervals", "Evaluation"),
            Part("ncl_bench.evaluation.results", "what was stated and what was found", "result.json", True),
            Part("leaderboard.add", "evaluates again, keeps evidence", "an entry and its evidence", True),
            Part("leaderboard.submissions", "evaluates the evidence at every build", "Entry"),
            Part("leaderboard.board", "merges seeds, shares ranks", "Board"),
            Part("leaderboard.build", "writes the pages", "site, tables of README.md", True),
        ],
    ),
}
WIDTH, BOX, GAP, TOP, COLUMN = 900, 52, 40, 84, 450
STYLE = """\
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1b1f27; text-anchor: middle }
.head { font-weight: 600; font-size: 15px }
.name { font: 600 13px ui-monospace, "DejaVu Sans Mono", Menlo, monospace }
.does { fill: #4a5260 }
.file { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, monospace; fill: #7a3e00 }
.thing { font-style: italic; fill: #2b4c86 }
.ncl_bench { fill: #e8eef8; stroke: #7f9bcc }
.baselines { fill: #e7f4ea; stroke: #79b187 }
.leaderboard { fill: #f6ecf7; stroke: #b98bc0 }
.arrow { stroke: #6b7280; stroke-width: 1.5; fill: none }
.tip { fill: #6b7280 }"""


def picture() -> str:
    """The SVG text: a column for each walk; boxes are modules, arrows carry what one hands to the next."""
    height = TOP + max(len(parts) for _, parts in WALKS.values()) * (BOX + GAP) + 62
    label = f"Two walks through the code: {' and '.join(title.lower() for title in WALKS)}"
    columns = [_column(title, *walk, COLUMN * k) for k, (title, walk) in enumerate(WALKS.items())]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">',
            f"<title>{label}</title>",
            f"<style>{STYLE}</style>",
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
            *columns,
            *_legend(height - 24),
            "</svg>\n",
        ]
    )


def _column(title: str, start: str, parts: list[Part], left: int) -> str:
    middle = left + COLUMN // 2
    lines = [
        f'<text class="head" x="{middle}" y="34">{title}</text>',
        f'<text class="file" x="{middle}" y="58">{escape(start)}</text>',
        _arrow(middle, 64, TOP),
    ]
    for number, part in enumerate(parts):
        y = TOP + number * (BOX + GAP)
        below, last = y + BOX, number == len(parts) - 1
        kind = "file" if part.written else "thing"
        lines += [
            f'<rect class="{part.name.split(".")[0]}" x="{left + 55}" y="{y}" '
            f'width="{COLUMN - 110}" height="{BOX}" rx="6"/>',
            f'<text class="name" x="{middle}" y="{y + 21}">{part.name}</text>',
            f'<text class="does" x="{middle}" y="{y + 40}">{escape(part.does)}</text>',
            _arrow(middle - 110, below, below + (GAP - 6 if last else GAP)),
            f'<text class="{kind}" x="{middle + 20}" y="{below + 25}">{escape(part.gives)}</text>',
        ]
    return "\n".join(lines)


def _arrow(x: int, top: int, bottom: int) -> str:
    tip = f"M{x - 4} {bottom - 7} L{x} {bottom} L{x + 4} {bottom - 7} Z"
    return f'<path class="arrow" d="M{x} {top} V{bottom - 6}"/><path class="tip" d="{tip}"/>'


def _legend(y: int) -> list[str]:
    rooms = ("ncl_bench", "baselines", "leaderboard")
    lines = []
    for number, room in enumerate(rooms):
        x = 60 + 140 * number
        lines.append(f'<rect class="{room}" x="{x}" y="{y - 12}" width="16" height="16" rx="3"/>')
        lines.append(f'<text x="{x + 64}" y="{y + 1}">{room}</text>')
    lines.append(f'<text class="file" x="{COLUMN + 100}" y="{y + 1}">files that are written</text>')
    lines.append(f'<text class="thing" x="{COLUMN + 290}" y="{y + 1}">objects in memory</text>')
    return lines


def main() -> int:
    """Write or check the picture; the exit code."""
    if "--check" not in sys.argv[1:]:
        write_text(PICTURE, picture())
        return 0
    current = PICTURE.is_file() and PICTURE.read_bytes() == picture().encode()
    print(f"{PICTURE} is {'current' if current else f'out of date: run python docs/{Path(__file__).name}'}")
    return 0 if current else 1


if __name__ == "__main__":
    sys.exit(main())
