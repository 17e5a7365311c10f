"""Which training pairs are wrong? A table of suspects, from a finished run or from two arrays of embeddings.

    ncl-bench train ncr/digits_vse_infinity --noise-ratio 0.4 --to runs/ncr
    python examples/find_wrong_pairs.py runs/ncr
    python examples/find_wrong_pairs.py images.npy captions.npy    # digits/train with 40 % noise, any encoder

A run knows how sure its method is of every pair. Embeddings are judged by LEMoN: a caption should be near the captions
of the images that are nearest to its own image. `ncl-bench audit` does the same with a page to look at (docs/audit.md).
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from baselines.audit import audit
from baselines.audit.lemon import lemon_table
from ncl_bench import load_dataset
from ncl_bench.data import true_correspondence


def suspects_of_run(run):
    """All training pairs, the most suspicious first."""
    table = audit(run)
    # a method without an estimate of its own, such as a triplet: the mixture over the losses (NCR Eq. 3)
    column = "posterior" if table["clean_probability"].isna().all() else "clean_probability"
    return table.sort_values(column, kind="stable"), column


def suspects_of_embeddings(train, images, captions):
    """The same by LEMoN, which trains nothing."""
    rows = np.arange(len(train))
    table = lemon_table(train, rows, 0, images, captions, device=torch.device("cpu"))
    return table.sort_values("lemon", kind="stable"), "lemon"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a finished run, or the embeddings of all images")
    parser.add_argument("captions", type=Path, nargs="?", help="the embeddings of all captions")
    given = parser.parse_args()
    train = load_dataset("digits", split="train", noise_ratio=0.4)
    if given.captions is None:
        found, column = suspects_of_run(given.run)
    else:
        found, column = suspects_of_embeddings(train, np.load(given.run), np.load(given.captions))
    print(found[["pair_id", column, "rank", "caption"]].head(10).to_string(index=False))
    # digits are clean until noise is drawn, so here the truth is known; natural noise has none
    wrong = ~true_correspondence(train)[np.searchsorted(train.pair_ids, found["pair_id"])]
    print(f"{wrong[:200].sum()} of the first 200 are wrong, and {wrong.mean():.0%} of all")
