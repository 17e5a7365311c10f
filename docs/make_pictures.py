"""Draw the two pictures of the noise units: what each moves, and what each does to NCR on Flickr30K.

python docs/make_pictures.py            write docs/noise_units.svg and docs/ncr_by_unit.svg
python docs/make_pictures.py --check    say whether they are current, exit with 1 if not
"""

import csv
import sys
from collections.abc import Callable
from pathlib import Path
from string import ascii_uppercase

from ncl_bench.files import write_text
from ncl_bench.noise.draw import NoiseUnit, clean_pairing, inject_noise

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "ncl_bench" / "papers" / "published" / "results.csv"
IMAGES, EACH, RATIO, SEED = 10, 5, 0.4, 0
CELL, LEFT, TOP, PANEL = 26, 56, 74, 300
TITLES: dict[NoiseUnit, str] = {
    "caption": "Unit caption (NCR, CRCL, PC2, ...)",
    "image": "Unit image (DECL, RCL, ...)",
    "similar": "Unit similar (near misses)",
}
SUBJECTS = ("dog", "puppy", "cat", "kitten", "car", "bus", "apple", "pear", "guitar", "piano")
KINDS = ("animal", "pet", "vehicle", "fruit", "music")
CAPTIONS = [f"{SUBJECTS[image]}, {KINDS[image // 2]}" for image in range(IMAGES) for _ in range(EACH)]
"""Images A and B are alike, as are C and D, and so on."""
STYLE = """\
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1b1f27; text-anchor: middle }
.head { font-weight: 600; font-size: 14px; text-anchor: start }
.note { fill: #4a5260; text-anchor: start }
.right { fill: #e8eef8; stroke: #b9c8e3 }
.wrong { fill: #c2410c; stroke: #8f2f08 }
.moved { fill: #ffffff; font-weight: 600 }"""
CURVES = """\
.end { text-anchor: end }
.start { text-anchor: start }
.grid { stroke: #dfe3ea }
polyline { fill: none; stroke-width: 2.5 }
polyline.caption { stroke: #1f5fbf }
polyline.image { stroke: #c2410c }
circle.caption { fill: #1f5fbf }
circle.image { fill: #c2410c }"""


def noise_units() -> str:
    """The SVG text: cell (i, j) shows the image that caption j of image i is paired with."""
    panels = [_panel(unit, 20 + PANEL * number) for number, unit in enumerate(TITLES)]
    width, height = 20 + PANEL * len(TITLES), TOP + CELL * IMAGES + 70
    label = (
        f"Synthetic noise at {RATIO:.0%}: by caption nearly every image keeps a true caption, "
        "by image the captions of an image are wrong together, by similar captions images that are alike exchange them"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">',
            f"<title>{label}</title>",
            f"<style>{STYLE}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
            *panels,
            "</svg>\n",
        ]
    )


def _panel(unit: NoiseUnit, x: int) -> str:
    clean = clean_pairing(IMAGES, EACH)
    options = {
        "noise_ratio": RATIO,
        "noise_unit": unit,
        "seed": SEED,
        "captions_per_image": EACH,
        "captions": CAPTIONS,
    }
    paired = inject_noise(clean, **options).reshape(IMAGES, EACH)  # type: ignore[arg-type]
    wrong = paired != clean.reshape(IMAGES, EACH)
    lines = [
        f'<text class="head" x="{x}" y="30">{TITLES[unit]}</text>',
        f'<text class="note" x="{x}" y="52">image</text>',
        f'<text class="note" x="{x + LEFT}" y="52">image its captions are paired with</text>',
    ]
    for row in range(IMAGES):
        y = TOP + CELL * row
        lines.append(f'<text x="{x + 18}" y="{y + 5}">{ascii_uppercase[row]}</text>')
        for column in range(EACH):
            left, moved = x + LEFT + CELL * column, bool(wrong[row, column])
            lines.append(
                f'<rect class="{"wrong" if moved else "right"}" x="{left}" y="{y - 12}" '
                f'width="{CELL - 4}" height="{CELL - 4}" rx="3"/>'
            )
            letter = ascii_uppercase[paired[row, column]]
            lines.append(
                f"<text{' class=' + chr(34) + 'moved' + chr(34) if moved else ''} "
                f'x="{left + CELL // 2 - 2}" y="{y + 4}">{letter}</text>'
            )
    foot = TOP + CELL * IMAGES + 14
    spoiled = int(wrong.all(axis=1).sum())
    lines.append(
        f'<text class="note" x="{x}" y="{foot}">{int(wrong.sum())} of {wrong.size} pairs are wrong</text>'
    )
    lines.append(
        f'<text class="note" x="{x}" y="{foot + 22}">{IMAGES - spoiled} of {IMAGES} images keep a true caption</text>'
    )
    return "\n".join(lines)


def printed_by_unit() -> dict[str, dict[float, float]]:
    """Noise unit to ratio to the rSum that papers print for NCR on Flickr30K (SGR, two networks)."""
    found: dict[str, dict[float, float]] = {"caption": {}, "image": {}}
    with RESULTS.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            wanted = (row["method"], row["backbone"], row["dataset"]) == ("NCR", "SGR", "flickr30k")
            if not (wanted and row["source"] in ("crcl2023", "decl2022") and row["r_sum"]):
                continue
            for unit in found if row["noise_unit"] == "none" else (row["noise_unit"],):
                found[unit][float(row["noise_ratio"])] = float(row["r_sum"])
    return found


def ncr_by_unit() -> str:
    """The SVG text: printed rSum of NCR against the noise ratio, a line per noise unit."""
    left, right, top, bottom = 56, 560, 56, 300

    def place(ratio: float, r_sum: float) -> tuple[int, int]:
        return round(left + (right - left) * ratio / 0.8), round(bottom - (bottom - top) * r_sum / 600)

    label = "NCR on Flickr30K, printed rSum against the noise ratio: two kinds of noise share one name"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 350" role="img" aria-label="{label}">',
        f"<title>{label}</title>",
        f"<style>{STYLE}\n{CURVES}</style>",
        '<rect width="640" height="350" rx="8" fill="#ffffff"/>',
        '<text class="head" x="20" y="30">NCR on Flickr30K: rSum as printed, by noise unit</text>',
    ]
    for value in range(0, 700, 200):
        y = place(0, value)[1]
        lines.append(f'<line class="grid" x1="{left}" y1="{y}" x2="{right}" y2="{y}"/>')
        lines.append(f'<text class="note end" x="{left - 8}" y="{y + 4}">{value}</text>')
    for ratio in (0, 0.2, 0.4, 0.6, 0.8):
        lines.append(f'<text class="note" x="{place(ratio, 0)[0] - 14}" y="{bottom + 22}">{ratio:.0%}</text>')
    for unit, points in printed_by_unit().items():
        path = " ".join(f"{x},{y}" for x, y in (place(*point) for point in sorted(points.items())))
        lines.append(f'<polyline class="{unit}" points="{path}"/>')
        x, y = place(0.6, points[0.6])
        lines.append(f'<circle class="{unit}" cx="{x}" cy="{y}" r="5"/>')
        side = (
            f'class="start" x="{x + 12}" y="{y}"'
            if unit == "caption"
            else f'class="end" x="{x - 14}" y="{y + 16}"'
        )
        lines.append(f"<text {side}>{points[0.6]:.1f} by {unit}</text>")
    return "\n".join([*lines, f'<text x="308" y="{bottom + 42}">noise ratio</text>', "</svg>\n"])


PICTURES: dict[str, Callable[[], str]] = {"noise_units.svg": noise_units, "ncr_by_unit.svg": ncr_by_unit}


def main() -> int:
    """Write or check the pictures; the exit code."""
    if "--check" not in sys.argv[1:]:
        for name, draw in PICTURES.items():
            write_text(DOCS / name, draw())
        return 0
    old = [name for name, draw in PICTURES.items() if (DOCS / name).read_bytes() != draw().encode()]
    print(f"out of date: {', '.join(old)}; run python docs/make_pictures.py" if old else "current")
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
