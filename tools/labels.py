"""Label training pairs with natural noise by looking at them, and compare two labellings.

    python -m tools.labels page --to page.html --order 1                    # pictures, captions and buttons
    python -m tools.labels merge FIRST.csv SECOND.csv --to merged.csv       # kappa, and the pairs to look at again

The pairs are those of ``pictograms-web`` unless ``--dataset`` and ``--root`` name others. A prepared dataset needs its
images (``ncl-bench add-images``). ``pictograms-web`` has thumbnails; ``--from`` draws them larger, from the package
``openclipart`` (``python -m tools.pictograms packages``). The page downloads a CSV file: ``pair_id,image_id,label``.
"""

import argparse
import base64
import html
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ncl_bench.data import dataset_spec
from ncl_bench.data.load import load_dataset
from ncl_bench.data.pair_labels import LABELS, read_pair_labels, strata
from ncl_bench.data.paired import PairedDataset
from ncl_bench.data.pictograms import WEB
from ncl_bench.errors import DataError, NclBenchError
from ncl_bench.evaluation.pages import Gallery
from ncl_bench.files import write_text
from ncl_bench.tables import as_csv

SEED = 0


def captions_of(train: PairedDataset) -> Sequence[str]:
    """Texts of the training captions.

    Raises:
        DataError: the dataset has only token ids.
    """
    if train.captions is None:
        raise DataError(
            f"{train.name} has token ids instead of captions, which nobody can read; label it elsewhere"
        )
    return train.captions


def sample(train: PairedDataset, n: int) -> list[int]:
    """Draw pairs to label, half of them from each stratum; a larger sample contains the smaller one.

    Args:
        train: the split.
        n: even number of pairs; a stratum with fewer than half of them gives all its pairs.

    Returns:
        Their ``pair_id``, ascending.
    """
    groups = np.array(strata(captions_of(train)))
    random = np.random.RandomState(SEED)
    drawn = [random.permutation(np.flatnonzero(groups == group))[: n // 2] for group in ("shared", "own")]
    return sorted(int(pair) for part in drawn for pair in part)


def pictures(train: PairedDataset, pairs: Sequence[int], packages: Path | None) -> list[str]:
    """Draw or read the pictures of some pairs, as data URIs.

    Args:
        train: the split.
        pairs: their ``pair_id``.
        packages: folder of the package that ``pictograms-web`` is drawn from; None for thumbnails and prepared images.

    Raises:
        DataError: a picture or the package is missing, or the package has another version.
    """
    if packages is None:
        gallery = Gallery(dataset_spec(train.name), train)
        found = [gallery.picture(int(train.caption_to_image[pair])) for pair in pairs]
        if "" in found:
            missing = train.image_ids[train.caption_to_image[pairs[found.index("")]]]
            raise DataError(
                f"{train.name} has no picture of image {missing}; add the images (ncl-bench add-images)"
            )
        return found
    from PIL import Image

    from tools.pictograms.items import Rendering, read_openclipart
    from tools.pictograms.packages import read_package
    from tools.pictograms.pictures import draw

    reading = Rendering()
    read_openclipart(read_package(packages, "openclipart"), reading)
    drawings = {item.id: item.svg for item in reading.items}
    found = []
    for pair in pairs:
        pixels = draw(drawings[str(train.image_ids[pair])])
        assert pixels is not None  # every shipped picture can be drawn
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, "WEBP", lossless=True)
        found.append(f"data:image/webp;base64,{base64.b64encode(stream.getvalue()).decode()}")
    return found


def kappa(first: Sequence[str], second: Sequence[str]) -> float:
    """Cohen's kappa of two labellings of the same pairs: 1 for equal ones, 0 for agreement by chance."""
    from sklearn.metrics import cohen_kappa_score

    return float(cohen_kappa_score(first, second))


def merge(
    train: PairedDataset, first: Mapping[int, str], second: Mapping[int, str]
) -> list[tuple[object, ...]]:
    """Merge two labellings; ``label`` is empty where they differ, for a third look.

    Raises:
        DataError: they label different pairs.
    """
    if first.keys() != second.keys():
        odd = sorted(first.keys() ^ second.keys())
        raise DataError(f"{len(odd)} pairs have one label only, such as pair {odd[0]}; label them twice")
    groups = strata(captions_of(train))
    return [
        (
            pair,
            train.image_ids[train.caption_to_image[pair]],
            groups[pair],
            first[pair],
            second[pair],
            first[pair] * (first[pair] == second[pair]),
        )
        for pair in sorted(first)
    ]


def page(train: PairedDataset, pairs: Sequence[int], packages: Path | None) -> str:
    """Render an HTML page with a button per label for each pair; the browser stores the labels."""
    buttons = "".join(f'<button data-label="{label}">{label}</button>' for label in LABELS)
    captions = captions_of(train)
    blocks = [
        f'<figure data-pair="{pair}" data-image="{html.escape(str(train.image_ids[train.caption_to_image[pair]]))}">'
        f'<img src="{source}" alt=""><figcaption>{html.escape(captions[pair])}</figcaption><p>{buttons}</p></figure>'
        for pair, source in zip(pairs, pictures(train, pairs, packages), strict=True)
    ]
    meanings = "".join(f"<dt>{label}</dt><dd>{text}</dd>" for label, text in LABELS.items())
    return (
        PAGE.replace("@MEANINGS@", meanings)
        .replace("@PAIRS@", "\n".join(blocks))
        .replace("@N@", str(len(pairs)))
        .replace("@NAME@", train.name)
    )


PAGE = """<!doctype html><meta charset="utf-8"><title>Does the caption fit the picture?</title>
<style>
body { font: 16px/1.4 system-ui, sans-serif; margin: 1rem; }
header { position: sticky; top: 0; background: Canvas; border-bottom: 1px solid; padding: .5rem 0; }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: 1rem; }
figure { margin: 0; padding: .5rem; border: 1px solid #8888; border-radius: .3rem; }
img { background: white; max-width: 15rem; max-height: 15rem; }
button[aria-pressed=true] { background: #069; color: white; }
</style>
<h1>Does the caption fit the picture?</h1><dl>@MEANINGS@</dl>
<header><output></output> of @N@ labelled <button id="save">Download CSV</button></header>
<main>
@PAIRS@
</main>
<script>
const kept = "labels of @NAME@", labels = JSON.parse(localStorage.getItem(kept) ?? "{}");
function show() {
  document.querySelectorAll("button[data-label]").forEach(button => button.setAttribute("aria-pressed",
    labels[button.closest("figure").dataset.pair] === button.dataset.label));
  document.querySelector("output").textContent = Object.keys(labels).length;
}
document.querySelector("main").onclick = event => {
  const label = event.target.dataset?.label;
  if (!label) return;
  labels[event.target.closest("figure").dataset.pair] = label;
  localStorage.setItem(kept, JSON.stringify(labels));
  show();
};
document.querySelector("#save").onclick = () => {
  const rows = [...document.querySelectorAll("figure")].map(figure => figure.dataset)
    .filter(row => labels[row.pair])
    .map(row => ({...row, image: row.image.replace(/^(?='*[=+@\\t\\r-])/, "'")}))  // no formula
    .map(row => `${row.pair},"${row.image.replaceAll('"', '""')}",${labels[row.pair]}\\n`);
  const text = "pair_id,image_id,label\\n" + rows.join("");
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
    making.add_argument(
        "--from",
        dest="packages",
        type=Path,
        help="Folder of the package, to draw pictograms-web larger (default: its thumbnails).",
    )
    making.add_argument("--n", type=int, default=600, help="Number of pairs (default: 600).")
    making.add_argument("--order", type=int, default=1, help="Seed of the order on the page (default: 1).")
    merging = commands.add_parser("merge", help="Compare two labellings.")
    merging.add_argument("first", type=Path, help="CSV of the first pass.")
    merging.add_argument("second", type=Path, help="CSV of the second pass.")
    for command in (making, merging):
        command.add_argument(
            "--dataset", default=WEB.name, help=f"Its train split has the pairs (default: {WEB.name})."
        )
        command.add_argument("--root", type=Path, help="Folder of prepared datasets.")
        command.add_argument("--to", type=Path, required=True, help="File to write.")
    chosen = parser.parse_args()
    try:
        _run(chosen)
    except (NclBenchError, OSError) as error:
        sys.exit(f"tools.labels: {error}")


def _run(chosen: argparse.Namespace) -> None:
    train = load_dataset(chosen.dataset, split="train", root=chosen.root)
    if chosen.command == "page":
        pairs = np.random.RandomState(chosen.order).permutation(sample(train, chosen.n)).tolist()
        chosen.to.write_text(page(train, pairs, chosen.packages), encoding="utf-8")
        return
    spec = dataset_spec(train.name)
    if chosen.to.resolve() in (chosen.first.resolve(), chosen.second.resolve()):
        raise DataError(f"--to {chosen.to} is one of the two labellings; name another file")
    merged = merge(train, read_pair_labels(chosen.first, spec), read_pair_labels(chosen.second, spec))
    write_text(chosen.to, as_csv([("pair_id", "image_id", "stratum", "first", "second", "label"), *merged]))
    first, second = [str(row[3]) for row in merged], [str(row[4]) for row in merged]
    print(
        f"{len(merged)} pairs, kappa {kappa(first, second):.3f}, {sum(not row[5] for row in merged)} differ"
    )


if __name__ == "__main__":
    main()
