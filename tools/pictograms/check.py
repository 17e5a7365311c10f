"""Contact sheets: pairs of the test split as a person looks at them."""

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from tools.pictograms.build import SHIPPED
from tools.pictograms.items import read_items
from tools.pictograms.pictures import SIDE, make_blocks, read_block

PAIRS, COLUMNS, LINES = 200, 8, 5
TEXT = 44


def sampled_ids() -> list[str]:
    """The 200 test pairs that were looked at, in the order of the sheets: those whose ids have the smallest hashes."""
    lines = [
        line.split("\t") for line in (SHIPPED / "items.tsv").read_text(encoding="utf-8").splitlines()[1:]
    ]
    test = [line[0] for line in lines if line[1] == "test"]
    return sorted(test, key=lambda name: hashlib.sha256(name.encode()).hexdigest())[:PAIRS]


def contact_sheets(packages: Path, work: Path) -> list[Path]:
    """Draw the sampled pairs, 40 to a sheet.

    Args:
        packages: folder of the downloads.
        work: folder of the drawn blocks, where the sheets go too.

    Returns:
        The sheets.
    """
    items = {item.id: item for item in read_items(packages).items}
    wanted = sampled_ids()
    pictures: dict[str, NDArray[np.uint8]] = {}
    for path in make_blocks(list(items.values()), work):
        block = read_block(path)
        pictures |= {name: block.pictures[row] for row, name in enumerate(block.ids) if name in set(wanted)}
    paths = []
    each = COLUMNS * LINES
    for start in range(0, len(wanted), each):
        sheet = Image.new("RGB", (COLUMNS * (SIDE + 8), LINES * (SIDE + TEXT + 8)), "white")
        pen = ImageDraw.Draw(sheet)
        for place, name in enumerate(wanted[start : start + each]):
            left, top = place % COLUMNS * (SIDE + 8), place // COLUMNS * (SIDE + TEXT + 8)
            sheet.paste(Image.fromarray(pictures[name]), (left, top))
            words = f"{start + place + 1} {items[name].caption}"
            lines = [words[at : at + 27] for at in range(0, len(words), 27)][:4]
            pen.multiline_text((left, top + SIDE), "\n".join(lines), fill="black", spacing=0)
        paths.append(work / f"sheet-{start // each + 1}.png")
        sheet.save(paths[-1])
    return paths
