"""Label training pairs of ``pictograms-web`` by looking at them, and compare two labellings.

    python -m tools.labels page --from PACKAGES --to page.html --order 1    # pictures, captions and buttons
    python -m tools.labels merge FIRST.csv SECOND.csv --to merged.csv       # kappa, and the pairs to look at again

The page needs the package ``openclipart`` (``python -m tools.pictograms packages``) and no network. It downloads the
labels as CSV: ``pair_id,label``.
"""

import argparse
import base64
import csv
import html
import io
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data.pair_labels import LABELS, read_pair_labels
from ncl_bench.data.pictograms import WEB, Row, rows
from ncl_bench.errors import DataError, NclBenchError

SHARED = 5
"""Images that carry a title, from which on the title counts as shared."""
SEED = 0

Stratum = Literal["shared", "own"]


def training_pairs() -> list[Row]:
    """The training pairs of ``pictograms-web``; a pair's position is its ``pair_id``."""
    return [row for row in rows() if row.web_split == "train"]


def strata(captions: Sequence[str]) -> list[Stratum]:
    """Whether at least ``SHARED`` captions begin with the same title (the words before the first comma)."""
    titles = [caption.split(",")[0] for caption in captions]
    count = Counter(titles)
    return ["shared" if count[title] >= SHARED else "own" for title in titles]


def sample(n: int) -> list[int]:
    """Draw pairs to label, half of them from each stratum; a larger sample contains the smaller one.

    Args:
        n: even number of pairs.

    Returns:
        Their ``pair_id``, ascending.
    """
    groups = np.array(strata([row.as_it_comes for row in training_pairs()]))
    random = np.random.RandomState(SEED)
    drawn = [random.permutation(np.flatnonzero(groups == group))[: n // 2] for group in ("shared", "own")]
    return sorted(int(pair) for part in drawn for pair in part)


def pictures(packages: Path, pairs: Sequence[int]) -> list[NDArray[np.uint8]]:
    """Draw the pictures of some pairs.

    Args:
        packages: folder of the downloaded package.
        pairs: their ``pair_id``.

    Returns:
        uint8 ``(160, 160, 3)`` each.

    Raises:
        DataError: the package is missing or is another version.
    """
    from tools.pictograms.items import Reading, read_openclipart
    from tools.pictograms.packages import read_package
    from tools.pictograms.pictures import draw

    reading = Reading()
    read_openclipart(read_package(packages, "openclipart"), reading)
    drawings = {item.id: item.svg for item in reading.items}
    drawn = [draw(drawings[training_pairs()[pair].id]) for pair in pairs]
    return [pixels for pixels in drawn if pixels is not None]  # every shipped picture can be drawn


def kappa(first: Sequence[str], second: Sequence[str]) -> float:
    """Cohen's kappa of two labellings of the same pairs: 1 for equal ones, 0 for agreement by chance."""
    from sklearn.metrics import cohen_kappa_score

    return float(cohen_kappa_score(first, second))


def merge(first: Mapping[int, str], second: Mapping[int, str]) -> list[tuple[object, ...]]:
    """Rows of both labellings; ``label`` is empty where they differ, for a third look.

    Raises:
        DataError: they label different pairs.
    """
    if first.keys() != second.keys():
        odd = sorted(first.keys() ^ second.keys())
        raise DataError(f"{len(odd)} pairs have one label only, such as pair {odd[0]}; label them twice")
    pairs = training_pairs()
    groups = strata([row.as_it_comes for row in pairs])
    return [
        (
            pair,
            pairs[pair].id,
            groups[pair],
            first[pair],
            second[pair],
            first[pair] * (first[pair] == second[pair]),
        )
        for pair in sorted(first)
    ]


def page(packages: Path, pairs: Sequence[int]) -> str:
    """An HTML page that shows each pair with a button per label; it keeps its state in the browser."""
    from PIL import Image

    every = training_pairs()
    blocks = []
    for pair, pixels in zip(pairs, pictures(packages, pairs), strict=True):
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, "WEBP", lossless=True)
        source = base64.b64encode(stream.getvalue()).decode()
        buttons = "".join(f'<button data-label="{label}">{label}</button>' for label in LABELS)
        blocks.append(
            f'<figure data-pair="{pair}"><img src="data:image/webp;base64,{source}" alt="" width="160" height="160">'
            f"<figcaption>{html.escape(every[pair].as_it_comes)}</figcaption><p>{buttons}</p></figure>"
        )
    meanings = "".join(f"<dt>{label}</dt><dd>{text}</dd>" for label, text in LABELS.items())
    return (
        PAGE.replace("@MEANINGS@", meanings)
        .replace("@PAIRS@", "\n".join(blocks))
        .replace("@N@", str(len(pairs)))
    )


PAGE = """<!doctype html><meta charset="utf-8"><title>Does the caption fit the picture?</title>
<style>
body { font: 16px/1.4 system-ui, sans-serif; margin: 1rem; }
header { position: sticky; top: 0; background: Canvas; border-bottom: 1px solid; padding: .5rem 0; }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: 1rem; }
figure { margin: 0; padding: .5rem; border: 1px solid #8888; border-radius: .3rem; }
img { background: white; } button[aria-pressed=true] { background: #069; color: white; }
</style>
<h1>Does the caption fit the picture?</h1><dl>@MEANINGS@</dl>
<header><output></output> of @N@ labelled <button id="save">Download CSV</button></header>
<main>
@PAIRS@
</main>
<script>
const labels = JSON.parse(localStorage.getItem("labels") ?? "{}");
function show() {
  document.querySelectorAll("button[data-label]").forEach(button => button.setAttribute("aria-pressed",
    labels[button.closest("figure").dataset.pair] === button.dataset.label));
  document.querySelector("output").textContent = Object.keys(labels).length;
}
document.querySelector("main").onclick = event => {
  const label = event.target.dataset?.label;
  if (!label) return;
  labels[event.target.closest("figure").dataset.pair] = label;
  localStorage.setItem("labels", JSON.stringify(labels));
  show();
};
document.querySelector("#save").onclick = () => {
  const text = "pair_id,label\\n" + Object.entries(labels).map(row => row.join(",")).join("\\n") + "\\n";
  const link = Object.assign(document.createElement("a"), {download: "labels.csv"});
  link.href = URL.createObjectURL(new Blob([text], {type: "text/csv"}));
  link.click();
};
show();
</script>
"""


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.labels",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("page", help="Write the labelling page.")
    making.add_argument("--from", dest="packages", type=Path, required=True, help="Folder of the package.")
    making.add_argument("--n", type=int, default=600, help="Number of pairs (default: 600).")
    making.add_argument("--order", type=int, default=1, help="Seed of the order on the page (default: 1).")
    merging = commands.add_parser("merge", help="Compare two labellings.")
    merging.add_argument("first", type=Path, help="CSV of the first pass.")
    merging.add_argument("second", type=Path, help="CSV of the second pass.")
    for command in (making, merging):
        command.add_argument("--to", type=Path, required=True, help="File to write.")
    chosen = parser.parse_args()
    try:
        _run(chosen)
    except (NclBenchError, OSError) as error:
        sys.exit(f"tools.labels: {error}")


def _run(chosen: argparse.Namespace) -> None:
    if chosen.command == "page":
        pairs = np.random.RandomState(chosen.order).permutation(sample(chosen.n)).tolist()
        chosen.to.write_text(page(chosen.packages, pairs), encoding="utf-8")
        return
    merged = merge(read_pair_labels(chosen.first, WEB), read_pair_labels(chosen.second, WEB))
    with chosen.to.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerows([("pair_id", "image_id", "stratum", "first", "second", "label"), *merged])
    first, second = [str(row[3]) for row in merged], [str(row[4]) for row in merged]
    print(
        f"{len(merged)} pairs, kappa {kappa(first, second):.3f}, {sum(not row[5] for row in merged)} differ"
    )


if __name__ == "__main__":
    main()
