"""Labels of training pairs: the shipped ones, their card, the reader and the labelling page."""

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ncl_bench.data.pair_labels import LABELS, read_pair_labels
from ncl_bench.data.pictograms import FILES, WEB
from ncl_bench.errors import DataError
from tools import labels

SHIPPED = FILES / "web_labels.csv"
CARD = " ".join(
    (Path(labels.__file__).parents[1] / "dataset_cards" / "pictograms-web.md")
    .read_text(encoding="utf-8")
    .split()
)


@pytest.fixture(scope="module")
def shipped() -> list[dict[str, str]]:
    with SHIPPED.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_the_shipped_labels_are_those_of_the_sample(shipped: list[dict[str, str]]) -> None:
    found = read_pair_labels(SHIPPED, WEB)
    assert list(found) == labels.sample(1_200)
    assert set(labels.sample(600)) < set(found)
    pairs = labels.training_pairs()
    groups = labels.strata([row.as_it_comes for row in pairs])
    for row in shipped:
        pair = int(row["pair_id"])
        assert (row["image_id"], row["stratum"]) == (pairs[pair].id, groups[pair])
        assert row["label"] == row["first"] or row["first"] != row["second"]


def test_the_card_counts_them(shipped: list[dict[str, str]]) -> None:
    count = Counter((row["stratum"], row["label"]) for row in shipped)
    size = Counter(labels.strata([row.as_it_comes for row in labels.training_pairs()]))
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


def test_kappa() -> None:
    assert labels.kappa(["wrong", "matches"], ["wrong", "matches"]) == 1
    # half of four agree, and half would by chance
    assert labels.kappa(["wrong", "wrong", "matches", "matches"], ["wrong", "matches"] * 2) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "holds no labels"),
        ("pair,label\n0,wrong\n", "line 2: pair_id is ''"),
        ("pair_id,label\n-1,wrong\n", "pair_id is '-1'"),
        ("pair_id,label\n6078,wrong\n", "expected a pair from 0 to 6077"),
        ("pair_id,label\n5,bad\n", "label 'bad', expected .* one of: matches, partly, wrong, cannot say"),
        ("pair_id,label\n5,wrong\n5,matches\n", "line 3: pair 5 has a label already"),
    ],
)
def test_labels_that_do_not_fit_are_refused(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=expected):
        read_pair_labels(path, WEB)


def test_a_merge_leaves_a_difference_open() -> None:
    assert [row[5] for row in labels.merge({1: "wrong", 2: "partly"}, {1: "wrong", 2: "matches"})] == [
        "wrong",
        "",
    ]
    with pytest.raises(DataError, match="1 pairs have one label only, such as pair 3"):
        labels.merge({1: "wrong"}, {1: "wrong", 3: "matches"})


def test_the_page_shows_each_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        labels, "pictures", lambda packages, pairs: [np.zeros((160, 160, 3), np.uint8)] * len(pairs)
    )
    text = labels.page(Path(), [4, 7])
    assert text.count("<figure data-pair=") == 2
    assert text.count("<button data-label=") == 2 * len(LABELS)
