"""Whether ranges hold and probabilities are right, on sets of several sizes drawn from a prepared dataset.

    python tests/benchmarks/audit_ranges.py flickr8k --root data --work work

Every set has one caption of each drawn image, and a share of its captions permuted. Prints for each size and share how
many ranges hold the planted share, the largest difference of stated and real share in any tenth of the pairs and the
stated and real share of the suspects (all draws together), and the average precision. Captions are encoded once, into
the folder ``work``. With ``--prior 4000``, projections of 4,000 images order the pairs of the others.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from sklearn.metrics import average_precision_score

from baselines.audit.cca import COMPONENTS, RIDGES, pooled, write_projections
from baselines.audit.judge import judge_pairs
from baselines.audit.sentences import MINILM, TFIDF, sentence_vectors
from baselines.kit.cca import Moments
from ncl_bench.data.load import load_dataset


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 300, 1_000])
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.0, 0.05, 0.1])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--text-encoder", default=MINILM)
    parser.add_argument("--prior", type=int, default=0, help="images of the prior; no set has one of them")
    given = parser.parse_args()
    train = load_dataset(given.dataset, split="train", root=given.root)
    captions = np.array(list(map(str, train.captions or ())), object)
    given.work.mkdir(parents=True, exist_ok=True)
    if not (given.work / "all_pooled.npy").exists():
        features = train.image_features
        pooled(features, given.work / "all_pooled.npy")
    images = np.load(given.work / "all_pooled.npy", mmap_mode="r")
    texts = None
    if given.text_encoder != TFIDF:
        if not (given.work / "all_captions.npy").exists():
            np.save(given.work / "all_captions.npy", sentence_vectors(list(captions), given.text_encoder))
        texts = np.load(given.work / "all_captions.npy", mmap_mode="r")
    others, able = map(np.sort, np.split(np.random.default_rng(0).permutation(train.n_images), [given.prior]))
    prior = None
    if given.prior:
        if texts is None:
            parser.error("--prior needs a sentence encoder")
        # a user has one prior for all sets, so it is fitted once
        prior = given.work / f"prior_{given.prior}.safetensors"
        first = np.searchsorted(train.caption_to_image, others)
        fitted = Moments.of(images, others, texts[first]).projections(COMPONENTS, RIDGES)
        write_projections(prior, fitted, {"images": "", "captions": given.text_encoder})
    for n in given.sizes:
        for ratio in given.ratios:
            held, stated, real, precision, suspects = [], [], [], [], []
            for draw in range(given.draws):
                random = np.random.default_rng([n, round(1000 * ratio), draw])
                chosen = random.permutation(able)[:n]
                pair = np.array([random.choice(np.flatnonzero(train.caption_to_image == i)) for i in chosen])
                moved = random.permutation(n)[: round(ratio * n)]
                pair[moved] = pair[np.roll(moved, 1)]
                wrong = np.isin(np.arange(n), moved)
                with tempfile.TemporaryDirectory() as folder:
                    work = Path(folder)
                    np.save(work / "pooled.npy", images[chosen])
                    if texts is not None:
                        np.save(work / "captions.npy", texts[pair])
                    found = judge_pairs(
                        images,
                        np.arange(n),
                        captions[pair].tolist(),
                        work=work,
                        text_encoder=given.text_encoder,
                        prior=prior,
                    )
                if ratio:
                    precision.append(average_precision_score(wrong, found.table["score"]))
                if found.enough:
                    held.append(found.low <= ratio <= found.high)
                    order = np.argsort(-found.table["score"].to_numpy(), kind="stable")
                    stated.append(found.table["probability"].to_numpy()[order])
                    real.append(wrong[order])
                    suspects.append(np.arange(n) < round(found.numbers[0]))
            print(f"{n:,} pairs, {ratio:.1%} wrong: ", end="")
            if held:
                tenths = np.array_split(np.mean(stated, axis=0) - np.mean(real, axis=0), 10)
                worst = max((float(tenth.mean()) for tenth in tenths), key=abs)
                print(
                    f"{sum(held)} of {len(held)} ranges hold, stated minus real {worst:+.3f} at most", end=""
                )
                if np.any(suspects):
                    said, found_wrong = (np.array(each)[suspects].mean() for each in (stated, real))
                    print(f", suspects: stated {said:.2f}, really wrong {found_wrong:.2f}", end="")
            else:
                print("too few for a share", end="")
            print(f", average precision {np.mean(precision):.3f}" if precision else "", flush=True)


if __name__ == "__main__":
    main()
