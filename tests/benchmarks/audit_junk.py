"""What the audit says of captions of no picture, planted among a user's pairs, beside captions of other pictures.

    python tests/benchmarks/audit_junk.py captions.csv photos --work work [--truth truth.csv]
    python tests/benchmarks/audit_junk.py Flickr8k.token.txt

``captions.csv`` has the columns ``image`` and ``caption``; ``truth.csv`` the column ``image`` of pairs that are wrong
already. Prints for each kind how many of 67 planted captions have a reason and how many others do; the same of texts
that were written by hand (``junk_by_hand.tsv``); how many ranges of ``--draws`` hold swaps and junk together; how many
right and wrong pairs have a suggestion; and how many wrong pairs are among the next 100 before and after 50 ticks from
the top, and after a forest and a logistic regression that know the labels of all other pairs. The second form prints
every caption that a rule names, of the whole file and of parts of 1,500 captions.
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from junk_captions import JUNK
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict

from baselines.audit import find_wrong_pairs
from baselines.audit.judge import judge_pairs
from baselines.audit.labels import Label, weigh
from baselines.audit.reasons import COPY, reasons_of
from baselines.audit.sentences import sentence_vectors

PLANTED, TICKS, NEXT = 67, 50, 100


def accidents(captions, random):
    """Kind to what becomes of a row's caption: those of :data:`JUNK`, loops, and cuts."""

    def looped(row):
        words = captions[row].rstrip(" .").split()
        return " ".join([*words, *(words[1 : 2 + int(random.integers(2, 5))] * 3)])

    return {
        **{kind: lambda row, make=make: make(random) for kind, make in JUNK.items()},  # type: ignore[misc]
        "captioner's loop": looped,
        "cut at 30 letters": lambda row: captions[row][:30],
        "cut to three words": lambda row: " ".join(captions[row].split()[:3]),
        "file name": lambda row: f"IMG_{row:04d}.jpg",
    }


def planted(kind, captions, able, random):
    """The captions with 67 of one kind, and the rows that changed."""
    changed, rule = list(captions), accidents(captions, random)[kind]
    if kind.startswith("cut at"):  # in the middle of a word
        able = np.array([row for row in able if captions[row][29:31].isalpha() and len(captions[row]) > 31])
    rows = random.permutation(able)[:PLANTED]
    for row in rows.tolist():
        changed[row] = rule(row)
    return changed, rows


def named_of(path):
    """Print the captions that have a reason, copies aside, where a row is a name, a tab and a caption."""
    table = pd.read_csv(path, sep="\t", names=["image", "caption"], quoting=3, keep_default_na=False)
    for size in (len(table), 1_500):
        found = Counter()
        for start in range(0, len(table), size):
            part = table[start : start + size]
            image_of = pd.factorize(part["image"].str.split("#").str[0])[0]
            # no two pictures are alike
            pictures = np.random.default_rng(0).standard_normal((image_of.max() + 1, 16))
            reasons = reasons_of(part["caption"].tolist(), image_of, pictures)
            found.update(
                (reason, text) for reason, text in zip(reasons, part["caption"], strict=True) if reason
            )
        kinds = Counter(reason for reason, _ in found.elements())
        print(f"{len(table):,} captions in parts of {size:,}: {dict(kinds)}")
        print("\n".join(f"  {reason}: {text}" for reason, text in found if reason != COPY))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("captions", type=Path)
    parser.add_argument("images", type=Path, nargs="?", help="without it only the rules run")
    parser.add_argument("--work", type=Path, default=Path("work"))
    parser.add_argument("--truth", type=Path)
    parser.add_argument("--text-encoder", default="all-minilm-l6-v2")
    parser.add_argument("--draws", type=int, default=20)
    given = parser.parse_args()
    if given.images is None:
        named_of(given.captions)
        return
    # encodes the pictures once
    table = find_wrong_pairs(
        given.captions, images=given.images, to=given.work / "audit", text_encoder=given.text_encoder
    )
    n, captions = len(table), table["caption"].tolist()
    wrong = np.zeros(n, bool)
    if given.truth is not None:
        wrong = table["image"].isin(pd.read_csv(given.truth)["image"]).to_numpy()
    features = np.load(given.work / "audit" / "work" / "features" / "all_ims.npy", mmap_mode="r")
    vectors = dict(zip(captions, sentence_vectors(captions, given.text_encoder), strict=True))

    def judged(changed):
        if new := sorted(set(changed) - set(vectors)):
            vectors.update(zip(new, sentence_vectors(new, given.text_encoder), strict=True))
        with tempfile.TemporaryDirectory() as work:
            np.save(Path(work, "captions.npy"), np.stack([vectors[caption] for caption in changed]))
            return judge_pairs(
                features, np.arange(n), changed, work=Path(work), text_encoder=given.text_encoder
            )

    clean = judged(captions)
    if wrong.any():
        score = clean.table["score"].to_numpy()
        print(f"average precision of {wrong.sum()} wrong pairs: {average_precision_score(wrong, score):.3f}")
    print(f"as given: {(clean.table['reason'] != '').sum()} named of {n:,}")
    suggested = clean.better[:, 0] >= 0
    print(
        f"with a suggestion: {suggested[~wrong].mean():.1%} of the others, {suggested[wrong].mean():.1%} of the wrong"
    )
    right = np.flatnonzero(~wrong)
    for kind in accidents(captions, np.random.default_rng(0)):
        changed, rows = planted(kind, captions, right, np.random.default_rng(1))
        reason = judged(changed).table["reason"].to_numpy()
        others = np.delete(reason, rows)
        print(
            f"{kind}: {(reason[rows] != '').sum()} of {len(rows)} named, {(others != '').sum()} others",
            end=" ",
        )
        print(dict(Counter(each for each in reason[rows].tolist() if each)), flush=True)
    by_hand = pd.read_csv(
        Path(__file__).with_name("junk_by_hand.tsv"),
        sep="\t",
        names=["kind", "text"],
        quoting=3,
        keep_default_na=False,
    )
    for kind, texts in by_hand.groupby("kind")["text"]:
        changed, rows = list(captions), np.random.default_rng(1).permutation(right)[: len(texts)]
        for row, text in zip(rows.tolist(), texts, strict=True):
            changed[row] = text
        reason = reasons_of(changed, np.arange(n), np.asarray(features).mean(axis=1))
        others = (np.delete(reason, rows) != "").sum()
        print(
            f"{kind}, by hand: {(reason[rows] != '').sum()} of {len(rows)} named, {others} others", flush=True
        )
    held = []
    for draw in range(given.draws):
        random = np.random.default_rng(draw)
        changed, rows = list(captions), random.permutation(right)
        junk, swapped = np.split(rows[: PLANTED + 75], [PLANTED])
        makers = accidents(captions, random)
        for place, row in enumerate(junk.tolist()):
            changed[row] = makers[[*JUNK][place % len(JUNK)]](row)
        for row, other in zip(swapped.tolist(), np.roll(swapped, 1).tolist(), strict=True):
            changed[row] = captions[other]
        found = judged(changed)
        _, low, high = found.numbers
        truth = int(wrong.sum()) + len(junk) + len(swapped)
        held.append(low <= truth <= high)
        print(f"draw {draw}: {low:.0f} to {high:.0f}, planted and given {truth}", flush=True)
    print(f"{sum(held)} of {len(held)} ranges hold swaps and junk together")
    if wrong.any():
        found = clean
        parts = [found.table[name].to_numpy(float) for name in ("score", "probability", *found.views)]
        settings = parts[0], parts[1], (parts[2], parts[3]), found.numbers
        before = weigh(*settings, {}, found.lean, found.named).order
        first = before[:TICKS]
        labels = {int(row): Label("wrong" if wrong[row] else "matches") for row in first}
        after = weigh(*settings, labels, found.lean, found.named).order
        rest = after[~np.isin(after, first)]
        print(
            f"{TICKS} ticks: {wrong[before[TICKS : TICKS + NEXT]].sum()} wrong among the next {NEXT} before, "
            f"{wrong[rest[:NEXT]].sum()} after"
        )
        views = np.stack([np.log(1e-3 + parts[1]), parts[0], parts[2], parts[3]], axis=1)
        views = (views - views.mean(axis=0)) / views.std(axis=0)
        for model in (LogisticRegression(), RandomForestClassifier(500, min_samples_leaf=5, random_state=0)):
            # nothing that ticks can teach of these views goes beyond what all labels teach
            chance = cross_val_predict(model, views, wrong, cv=10, method="predict_proba")[:, 1]
            best = rest[np.argsort(-chance[rest], kind="stable")][:NEXT]
            print(
                f"with all other labels, {type(model).__name__}: {wrong[best].sum()} wrong among the next {NEXT}"
            )


if __name__ == "__main__":
    main()
