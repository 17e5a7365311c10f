"""Measure how well wrong pairs are found without training: plant them in a prepared dataset and judge all pairs.

    python -m tools.wrong_pairs flickr8k --root data --work work --unit caption --ratio 0.1

Prints the estimated share, the reasons, the stated and the real share of wrong pairs among the suspects (as many of the
first pairs as are estimated to be wrong) and in each tenth of the order, and of each view AUROC, average precision, and
how many of N planted pairs are among the first N and 2N.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from baselines.audit.judge import judge_pairs
from ncl_bench.data import true_correspondence
from ncl_bench.data.load import load_dataset
from ncl_bench.evaluation.detection import detection


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--unit", choices=("caption", "similar"), default="caption")
    parser.add_argument("--ratio", type=float, required=True)
    parser.add_argument("--text-encoder")
    given = parser.parse_args()
    train = load_dataset(
        given.dataset, split="train", root=given.root, noise_ratio=given.ratio, noise_unit=given.unit
    )
    wrong = ~true_correspondence(train)
    n = int(wrong.sum())
    captions = list(map(str, train.captions or ()))
    features: Any = train.image_features  # an array, or read from disk like one
    found = judge_pairs(
        features, train.caption_to_image, captions, work=given.work, text_encoder=given.text_encoder
    )
    print(f"{n} of {len(wrong)} wrong; estimated {found.share:.4f}, {found.low:.4f} to {found.high:.4f}")
    reasons = found.table["reason"]
    print(
        "reasons:",
        ", ".join(f"{name} {n}" for name, n in reasons[reasons != ""].value_counts().items()) or "none",
    )
    order = np.argsort(-found.table["score"].to_numpy(), kind="stable")
    stated, real = found.table["probability"].to_numpy()[order], wrong[order]
    suspects = round(found.numbers[0])
    print(
        f"{suspects} suspects: stated (real) share {stated[:suspects].mean():.3f} ({real[:suspects].mean():.3f})"
    )
    tenths = (
        f"{s.mean():.3f} ({r.mean():.3f})"
        for s, r in zip(np.array_split(stated, 10), np.array_split(real, 10), strict=True)
    )
    print("stated (real) share in tenths:", ", ".join(tenths))
    for name, clean in (
        ("both", -found.table["score"]),
        ("cca", found.table["similarity"]),
        ("lemon", found.table["lemon"]),
    ):
        order = np.argsort(clean.to_numpy(), kind="stable")
        each = detection(clean.to_numpy(), ~wrong, None)
        print(
            f"{name}: AUROC {each.auroc:.3f}, average precision "
            f"{each.average_precision_wrong:.3f}, first N {wrong[order[:n]].sum()}, "
            f"first 2N {wrong[order[: 2 * n]].sum()}"
        )


if __name__ == "__main__":
    main()
