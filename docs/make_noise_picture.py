"""Draw docs/noise_units.svg: the two units of synthetic noise on ten images of five captions each.

python docs/make_noise_picture.py            write the picture
python docs/make_noise_picture.py --check    say whether it is current, exit with 1 if not
"""

import sys
from pathlib import Path
from string import ascii_uppercase

from ncl_bench.files import write_text
from ncl_bench.noise.draw import NoiseUnit, clean_pairing, inject_noise

PICTURE = Path(__file__).parent / "noise_units.svg"
IMAGES, EACH, RATIO, SEED = 10, 5, 0.4, 0
CELL, LEFT, TOP, PANEL = 26, 56, 74, 300
TITLES: dict[NoiseUnit, str] = {
    "caption": "Unit caption (NCR, CRCL, PC2, ...)",
    "image": "Unit image (DECL, RCL, ...)",
}
STYLE = """\
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1b1f27; text-anchor: middle }
.head { font-weight: 600; font-size: 14px; text-anchor: start }
.note { fill: #4a5260; text-anchor: start }
.right { fill: #e8eef8; stroke: #b9c8e3 }
.wrong { fill: #c2410c; stroke: #8f2f08 }
.moved { fill: #ffffff; font-weight: 600 }"""


def picture() -> str:
    """The SVG text: cell (i, j) shows the image that caption j of image i is paired with."""
    panels = [_panel(unit, 20 + PANEL * number) for number, unit in enumerate(TITLES)]
    width, height = 20 + PANEL * len(TITLES), TOP + CELL * IMAGES + 70
    label = (
        f"Synthetic noise at {RATIO:.0%}: by caption nearly every image keeps a true caption, "
        "by image the captions of an image are wrong together"
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
    options = {"noise_ratio": RATIO, "noise_unit": unit, "seed": SEED, "captions_per_image": EACH}
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


def main() -> int:
    """Write or check the picture; the exit code."""
    if "--check" not in sys.argv[1:]:
        write_text(PICTURE, picture())
        return 0
    current = PICTURE.is_file() and PICTURE.read_bytes() == picture().encode()
    print(f"{PICTURE} is {'current' if current else 'out of date: run python docs/make_noise_picture.py'}")
    return 0 if current else 1


if __name__ == "__main__":
    sys.exit(main())
