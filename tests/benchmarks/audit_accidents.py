"""What the audit finds of accidents of one kind each, planted in 5 % of 1,500 pairs of a prepared dataset.

    python tests/benchmarks/audit_accidents.py flickr8k --root data --work work

Run audit_ranges.py first: it leaves the encoded captions in ``work``. Prints AUROC and average precision of the changed
rows, how many of them and of the others have a reason, and the rows that are out of order.
"""

import argparse
import re
import tempfile
from pathlib import Path

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from baselines.audit.judge import judge_pairs
from baselines.audit.sentences import MINILM, sentence_vectors
from ncl_bench.data.load import load_dataset

N, PART = 1_500, 0.05


def exchanged(*groups):
    """Replace each word by the next one of its group."""
    following = {}
    for group in groups:
        words = group.split()
        following |= dict(zip(words, words[1:] + words[:1], strict=True))
    return lambda caption: re.sub(r"\w+", lambda word: following.get(word[0].lower(), word[0]), caption)


CHANGES = {
    "colour": exchanged("black white red blue green yellow brown orange pink"),
    "gender": exchanged("man woman", "men women", "boy girl", "boys girls", "he she", "his her"),
    "number": exchanged("two three four", "a several"),
    "cut to three words": lambda caption: " ".join(caption.split()[:3]),
    "file name": lambda caption: f"IMG_{len(caption):04d}",
    "emoji": lambda caption: "\N{GRINNING FACE}\N{DOG FACE}" * (len(caption) % 9 + 1),
    "quoted, with a URL": lambda caption: f"&quot;{caption}&quot; https://example.org/de/la/{len(caption)}",
}


def planted(kind, captions, random):
    """The captions with an accident, and the rows that it changed."""
    changed, n = captions.copy(), round(PART * N)
    if kind == "one caption pasted":
        rows = random.permutation(N)[:n]
        changed[rows] = "a great product with free shipping"
    elif kind == "random":
        rows = random.permutation(N)[:n]
        changed[rows] = captions[np.roll(rows, 1)]
    elif kind == "a row lost":
        rows = np.arange(N // 2, N - 1)
        changed[rows] = captions[rows + 1]
    elif kind.startswith("blocks"):
        length, parts = int(kind.split()[-1]), []
        for start in range(100, 100 + n // length * 180, 180):
            block = np.arange(start, start + length) + random.integers(80)
            changed[block] = captions[np.roll(block, 1)]
            parts.append(block)
        rows = np.concatenate(parts)
    else:
        able = [row for row in range(N) if CHANGES[kind](captions[row]) != captions[row]]
        rows = random.permutation(able)[:n]
        changed[rows] = [CHANGES[kind](captions[row]) for row in rows]
    return changed, rows


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    given = parser.parse_args()
    train = load_dataset(given.dataset, split="train", root=given.root)
    images, texts = (
        np.load(given.work / f"all_{name}.npy", mmap_mode="r") for name in ("pooled", "captions")
    )
    chosen = np.random.default_rng(0).permutation(train.n_images)[:N]
    pairs = np.array([int(np.flatnonzero(train.caption_to_image == image)[0]) for image in chosen])
    captions = np.array(list(map(str, train.captions or ())), object)[pairs]
    vectors = dict(zip(captions, texts[pairs], strict=True))
    for kind in (
        "clean",
        "random",
        "blocks of 10",
        "blocks of 70",
        "a row lost",
        "one caption pasted",
        *CHANGES,
    ):
        changed, rows = captions, np.array([], np.int64)
        if kind != "clean":
            changed, rows = planted(kind, captions, np.random.default_rng(1))
        new = sorted(set(changed) - set(vectors))
        if new:
            vectors |= dict(zip(new, sentence_vectors(new, MINILM), strict=True))
        with tempfile.TemporaryDirectory() as folder:
            np.save(Path(folder, "pooled.npy"), images[chosen])
            np.save(Path(folder, "captions.npy"), np.stack([vectors[caption] for caption in changed]))
            found = judge_pairs(
                images, np.arange(N), changed.tolist(), work=Path(folder), text_encoder=MINILM
            )
        wrong, score = np.isin(np.arange(N), rows), found.table["score"].to_numpy()
        named = (found.table["reason"] != "").to_numpy()
        said = f"{kind}: {named[wrong].sum()} of {len(rows)} named, {named[~wrong].sum()} others"
        if len(rows):
            said += (
                f"; AUROC {roc_auc_score(wrong, score):.3f}, AP {average_precision_score(wrong, score):.3f}"
            )
        print(said + f"; {len(found.order_faults)} faults of order", flush=True)


if __name__ == "__main__":
    main()
