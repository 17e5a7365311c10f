"""Which captions stand beside the wrong picture? A table of images and captions in, the suspects out.

    python examples/find_wrong_pairs.py                          # 1,000 pictograms, of which 80 get a wrong caption
    python examples/find_wrong_pairs.py captions.csv photos      # your own table, and the folder of its pictures

`ncl-bench audit captions.csv --images photos --to audit` does the same in one command (docs/audit.md).
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))  # an installed package lacks the pictures of train

from baselines.audit import find_wrong_pairs
from ncl_bench import load_dataset

WRONG = 80


def pictograms(folder, n=1000):
    """Write pictures and their captions to a folder, of which some change places; the table, and the wrong rows."""
    train = load_dataset("pictograms-emoji", split="train", language="en")
    random = np.random.default_rng(0)
    rows = np.sort(random.choice(len(train), n, replace=False))
    folder.mkdir(parents=True, exist_ok=True)
    for number, row in enumerate(rows):
        (folder / f"{number:04}.png").write_bytes(train.images[int(row)])
    table = pd.DataFrame(
        {"image": [f"{n:04}.png" for n in range(n)], "caption": [train.captions[r] for r in rows]}
    )
    moved = random.choice(n, WRONG, replace=False)
    table.loc[moved, "caption"] = table["caption"][np.roll(moved, 1)].to_numpy()
    table.to_csv(folder / "captions.csv", index=False)
    return folder / "captions.csv", set(moved.tolist())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path, nargs="?", help="a table of images and captions")
    parser.add_argument("images", type=Path, nargs="?", help="the folder of the pictures")
    parser.add_argument("--to", type=Path, default=Path("audit"), help="folder to write")
    given = parser.parse_args()
    images, wrong = given.images, None
    if given.table is None:
        images = Path("pictograms")
        pairs, wrong = pictograms(images)
    else:
        pairs = given.table
    found = find_wrong_pairs(pairs, images=images, to=given.to)
    summary = found.attrs["summary"]
    for sentence in summary["order_faults"]:
        print(sentence)
    for reason, rows in found[found["reason"].fillna("") != ""].groupby("reason"):
        print(f"{reason}: {len(rows)} rows, the first is row {rows.index[0] + 1}")
    suspects = found.sort_values("rank").head(10)
    columns = ["rank", "probability", *found.attrs["columns"]]
    print(suspects[columns].to_string(index=False))
    if summary["wrong"] is not None:
        print(f"about {summary['wrong']} of {summary['n_judged']} are wrong", end=" ")
        print(f"({summary['low']} to {summary['high']})")
    if wrong is not None:  # here the truth is known
        first = found.sort_values("rank").index[: 2 * WRONG]
        print(f"{len(wrong & set(first))} of the {WRONG} wrong captions are among the first {2 * WRONG}")
    print(f"open {given.to / 'index.html'}")
