"""Labels of natural noise: weighted measures against scikit-learn's, strata, and what too few labels leave."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score
from support.refusals import refused

from baselines.audit.labelled import (
    labelled_pairs,
    labels_of_split,
    says,
    weighted_measures,
)
from ncl_bench.data import dataset_spec
from ncl_bench.data.load import load_dataset
from ncl_bench.data.pair_labels import strata
from ncl_bench.errors import DataError, TrainingError


@pytest.fixture(scope="module")
def web():
    return load_dataset("pictograms-web", split="train")


def write(path, labels):
    path.write_text("pair_id,label\n" + "".join(f"{pair},{label}\n" for pair, label in labels.items()))
    return path


@pytest.mark.parametrize("distinct", [7, 10_000])
def test_weighted_measures_are_those_of_copied_pairs(distinct):
    random = np.random.default_rng(0)
    values = random.integers(0, distinct, 300) / distinct
    wrong = random.random(300) < 0.6 - 0.4 * values
    weight = random.integers(1, 5, 300).astype(float)
    drawn = random.integers(0, 3, (2, 300)).astype(float)
    found = weighted_measures(values, wrong, weight, drawn)
    for resample, times in enumerate(drawn):
        own = {"sample_weight": weight * times}
        expected = {
            "auroc": roc_auc_score(~wrong, values, **own),
            "average_precision": average_precision_score(~wrong, values, **own),
            "average_precision_wrong": average_precision_score(wrong, -values, **own),
        }
        for name, value in expected.items():
            assert found[name][resample] == pytest.approx(value, abs=1e-12)
    if distinct > 300:
        first = np.argsort(values)[:50]
        share = weight[first][wrong[first]].sum() / weight[first].sum()
        once = weighted_measures(values, wrong, weight, np.ones((1, 300)))
        assert once["precision_at_50"] == pytest.approx(share)


def labelled(file, train, values, seed=0):
    table = pd.DataFrame({"pair_id": train.pair_ids, "posterior": values, "loss": -values})
    return labelled_pairs(file, labels_of_split(file, train), train, table, ["posterior"], seed)


def test_the_shipped_labels_give_counts_and_no_score(web):
    file = dataset_spec("pictograms-web").pair_labels
    labels = labels_of_split(file, web)
    values = np.random.default_rng(0).random(len(web))
    found = labelled(file, web, values)
    assert found.detection == {}
    n_wrong = Counter(labels.values())["wrong"]
    assert says(found).startswith(
        f"The noise is natural. Labelled pairs (web_labels.csv): 1,200, {n_wrong} of them wrong"
    )
    assert says(found).endswith("AUROC, average precision and precision are not given.")
    of_all = Counter(strata(web.captions))
    assert {name: (each.size, each.labelled) for name, each in found.strata.items()} == {
        name: (of_all[name], 600) for name in ("own", "shared")
    }
    first = np.argsort(values)[:500].tolist()
    assert found.first[500] == {
        label: sum(labels.get(pair) == label for pair in first) for label in found.labels
    }


def test_enough_labels_give_weighted_scores_with_intervals(web, tmp_path):
    random = np.random.default_rng(1)
    groups = np.array(strata(web.captions))
    values = random.random(len(web))
    chosen = np.concatenate(
        [random.permutation(np.flatnonzero(groups == g))[:200] for g in ("own", "shared")]
    )
    wrong = random.random(400) < np.where(groups[chosen] == "own", 0.2, 0.7)
    values[chosen[wrong]] *= 0.6
    label = np.where(wrong, "wrong", np.where(random.random(400) < 0.2, "partly", "matches")).astype(object)
    label[:3] = "cannot say"
    given = dict(zip(chosen.tolist(), label.tolist(), strict=True))
    file = write(tmp_path / "mine.csv", given)
    found = labelled(file, web, values)
    assert set(found.detection["posterior"]) == {"wrong", "partly"}
    rows = np.isin(label, ("wrong", "matches"))
    weight = np.array([(groups == group).sum() / 200 for group in groups[chosen]])
    expected = roc_auc_score(label[rows] == "matches", values[chosen[rows]], sample_weight=weight[rows])
    auroc = found.detection["posterior"]["wrong"].auroc
    assert auroc.value == pytest.approx(expected)
    assert auroc.low < auroc.value < auroc.high < auroc.low + 0.25
    assert labelled(file, web, values) == found
    assert labelled(file, web, values, seed=1).seed != found.seed


def test_captions_without_text_are_one_stratum(web, tmp_path):
    silent = replace(web, captions=None)
    file = write(tmp_path / "mine.csv", {0: "wrong", 9: "matches"})
    found = labelled(file, silent, np.arange(6078.0))
    assert {name: each.model_dump() for name, each in found.strata.items()} == {
        "all": {"size": 6078, "labelled": 2}
    }
    assert found.first[50]["wrong"] == 1


def test_labels_that_do_not_belong_to_the_pairs_are_refused(web, tmp_path):
    file, few = write(tmp_path / "mine.csv", {6000: "wrong"}), web.subset(np.arange(100))
    table = pd.DataFrame({"pair_id": few.pair_ids, "posterior": np.arange(100.0), "loss": 0.0})
    with refused(TrainingError):
        labelled_pairs(file, labels_of_split(file, web), few, table, ["posterior"], seed=0)
    other = tmp_path / "other.csv"
    other.write_text("pair_id,image_id,label\n3,a-photograph,wrong\n")
    with refused(DataError):
        labels_of_split(other, web)
    noisy = load_dataset("digits", noise_ratio=0.4)
    with refused(TrainingError):
        labels_of_split(other, noisy)
