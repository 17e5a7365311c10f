"""Labels of training pairs: the shipped ones, their card, the reader and the labelling page."""

import csv
from collections import Counter
from pathlib import Path

import pytest
from support.refusals import refused

from ncl_bench.data.load import load_dataset
from ncl_bench.data.pair_labels import LABELS, read_pair_labels, strata
from ncl_bench.data.pictograms import WEB
from ncl_bench.errors import DataError
from tools import labels

SHIPPED = WEB.pair_labels
CARD = " ".join(
    (Path(labels.__file__).parents[1] / "dataset_cards" / "pictograms-web.md").read_text("utf-8").split()
)


@pytest.fixture(scope="module")
def shipped():
    with SHIPPED.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def train():
    return load_dataset("pictograms-web", split="train")


def test_the_shipped_labels_are_those_of_the_sample(shipped, train):
    found = read_pair_labels(SHIPPED, WEB)
    assert list(found) == labels.sample(train, 1_200)
    assert set(labels.sample(train, 600)) < set(found)
    groups = strata(train.captions)
    for row in shipped:
        pair = int(row["pair_id"])
        assert (row["image_id"], row["stratum"]) == (train.image_ids[pair], groups[pair])
        assert row["label"] == row["first"] or row["first"] != row["second"]


def test_the_card_counts_them(shipped, train):
    count = Counter((row["stratum"], row["label"]) for row in shipped)
    size = Counter(strata(train.captions))
    for label, meaning in LABELS.items():
        assert f"| `{label}` | {meaning} | {count['shared', label]} | {count['own', label]} |" in CARD
    first, second = ([row[name] for row in shipped] for name in ("first", "second"))
    agreed = sum(one == other for one, other in zip(first, second, strict=True))
    assert f"agree on {agreed:,} pairs (Cohen's kappa {labels.kappa(first, second):.3f})" in CARD
    assert f"`shared`, of {size['shared']:,}" in CARD
    assert f"`own`, of {size['own']:,}" in CARD
    share = {
        label: sum(count[group, label] / 600 * size[group] for group in size) / sum(size.values())
        for label in LABELS
    }
    assert f"{share['wrong']:.1%} of the training pairs are wrong".replace("%", " %") in CARD
    assert f"{share['partly']:.1%} fit partly".replace("%", " %") in CARD
    assert f"{count['shared', 'wrong'] + count['own', 'wrong']} wrong pairs are too few" in CARD


def test_kappa():
    assert labels.kappa(["wrong", "matches"], ["wrong", "matches"]) == 1
    # half of four agree, and half would by chance
    assert labels.kappa(["wrong", "wrong", "matches", "matches"], ["wrong", "matches"] * 2) == 0


@pytest.mark.parametrize(
    "text",
    [
        "pair_id,label\n",
        "pair,label\n0,wrong\n",
        "pair_id,label\n6078,wrong\n",
        "pair_id,label\n5,bad\n",
        "pair_id,label\n5,wrong\n5,matches\n",
        "pair_id,image_id,label\n5,this,wrong\n7,that,wrong\n",
    ],
)
def test_labels_that_do_not_fit_are_refused(tmp_path, text):
    path = tmp_path / "labels.csv"
    path.write_text(text)
    with refused(DataError):
        read_pair_labels(path, WEB, {5: "this", 7: "other"})


def test_a_merge_leaves_a_difference_open(train):
    assert [row[5] for row in labels.merge(train, {1: "wrong", 2: "partly"}, {1: "wrong", 2: "matches"})] == [
        "wrong",
        "",
    ]
    with refused(DataError):
        labels.merge(train, {1: "wrong"}, {1: "wrong", 3: "matches"})


def test_a_merge_does_not_overwrite_what_it_merges(tmp_path, monkeypatch):
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    for file in (first, second):
        file.write_text("pair_id,label\n1,wrong\n", "utf-8")
    for to in (first, tmp_path / "." / "b.csv"):
        monkeypatch.setattr("sys.argv", ["labels", "merge", str(first), str(second), "--to", str(to)])
        with refused(SystemExit):
            labels.main()
    assert first.read_text("utf-8") == "pair_id,label\n1,wrong\n"


def test_the_page_shows_each_pair(train, monkeypatch):
    monkeypatch.setattr(labels, "pictures", lambda train, pairs, packages: ["data:,"] * len(pairs))
    text = labels.page(train, [4, 7], None)
    assert text.count("<figure data-pair=") == 2
    assert f'data-pair="7" data-image="{train.image_ids[7]}"' in text
    assert text.count("<button data-label=") == 2 * len(LABELS)


def test_pairs_of_another_dataset_are_shown_with_its_pictures():
    digits = load_dataset("digits", split="train")
    assert [source[:15] for source in labels.pictures(digits, [0, 9], None)] == ["data:image/png;"] * 2
    assert len(labels.sample(digits, 20)) == 20
