"""Agreement with people's judgements, against scipy and scikit-learn on the same observations."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import kendalltau
from sklearn.metrics import roc_auc_score
from support import flickr8k_miniature

from ncl_bench.data import DATASETS, ROOT_VARIABLE, load_dataset
from ncl_bench.data.judgements import Judgements
from ncl_bench.data.prepare import prepare
from ncl_bench.evaluation.compare import compare_agreement
from ncl_bench.evaluation.difference import difference_interval
from ncl_bench.evaluation.metrics import resamples
from ncl_bench.evaluation.people import (
    agreement_in_order,
    agreements,
    ceiling,
    concordance,
    in_order,
    persons,
)
from ncl_bench.evaluation.protocol import evaluate_scores
from ncl_bench.evaluation.results import lines_of_labels

N_IMAGES = 40


def judgements(n_expert: int = 300, n_crowd: int = 900) -> dict[str, Judgements]:
    random = np.random.default_rng(0)

    def pairs(n: int) -> NDArray[np.int64]:
        flat = random.choice(N_IMAGES * N_IMAGES, n, replace=False)
        return np.stack([flat // N_IMAGES, 5 * (flat % N_IMAGES) + 2], axis=1)

    base = random.integers(1, 5, (n_expert, 1))
    ratings = np.clip(base + random.integers(-1, 2, (n_expert, 3)), 1, 4)
    yes = random.integers(0, 4, n_crowd)
    return {
        "expert": Judgements("expert", np.hstack([pairs(n_expert), ratings]), 5),
        "crowd": Judgements("crowd", np.stack([*pairs(n_crowd).T, yes, 3 - yes], axis=1), 5),
    }


def similarities(step: float) -> NDArray[np.float64]:
    """A matrix with ties if ``step`` is positive."""
    scores = np.random.default_rng(1).normal(size=(N_IMAGES, 5 * N_IMAGES))
    return np.round(scores / step) * step if step else scores


def expected(scores: dict[str, NDArray[np.float64]], judged: dict[str, Judgements]) -> dict[str, float]:
    """The definitions of docs/protocol.md, by two libraries."""
    expert, crowd = judged["expert"], judged["crowd"]
    others = ~expert.own
    ratings, similarity = expert.judged[others], scores["expert"][others]
    share, not_own = crowd.judged[:, 0], ~crowd.own
    return {
        "expert_tau_c": 100 * kendalltau(np.repeat(similarity, 3), ratings.ravel(), variant="c").statistic,
        "expert_auroc": roc_auc_score(np.median(ratings, axis=1) >= 3, similarity),
        "crowd_tau_b": 100 * kendalltau(scores["crowd"], share, variant="b").statistic,
        "crowd_auroc": roc_auc_score(share[not_own] > 0.5, scores["crowd"][not_own]),
    }


@pytest.mark.parametrize("step", [0.0, 0.01, 0.5, 2.0])
def test_the_measures_are_those_of_the_libraries(step: float) -> None:
    judged = judgements()
    scores = {kind: similarities(step)[one.image, one.caption] for kind, one in judged.items()}
    found = agreements(scores, judged, N_IMAGES)
    assert {name: one.value for name, one in found.items()} == pytest.approx(
        expected(scores, judged), rel=1e-12
    )


def test_a_resample_counts_an_image_as_often_as_it_was_drawn() -> None:
    judged = judgements()
    scores = {kind: similarities(0.1)[one.image, one.caption] for kind, one in judged.items()}
    counts = resamples(N_IMAGES, N_IMAGES, 100)[0][:3].astype(np.float64)
    found = agreements(scores, judged, N_IMAGES)
    for number, count in enumerate(counts):
        copied, of = {}, {}
        for kind, one in judged.items():
            times = count[one.image].astype(int)
            rows = np.repeat(one.rows, times, axis=0)
            copied[kind] = Judgements(kind, rows, 5)
            of[kind] = np.repeat(scores[kind], times)
        want = expected(of, copied)
        for name, agreement in found.items():
            assert agreement.resampled(counts)[number] == pytest.approx(want[name], rel=1e-9), name


def test_the_parts_of_the_images_average_to_the_measure_and_spread_as_the_resamples_do() -> None:
    judged = judgements()
    scores = {
        "expert": judged["expert"].judged.mean(axis=1)
        + similarities(0.1)[judged["expert"].image, judged["expert"].caption],
        "crowd": similarities(0.1)[judged["crowd"].image, judged["crowd"].caption],
    }
    counts = resamples(N_IMAGES, N_IMAGES, 1_000)[0].astype(np.float64)
    for name, one in agreements(scores, judged, N_IMAGES).items():
        parts = one.parts()
        assert parts.mean() == pytest.approx(one.value, rel=1e-9), name
        assert parts.std(ddof=1) / N_IMAGES**0.5 == pytest.approx(one.resampled(counts).std(), rel=0.25), name
        low, high = difference_interval(parts[None], parts[None] - 50 * abs(one.value), N_IMAGES)
        assert low <= 50 * abs(one.value) <= high


def test_the_ceiling_is_the_mean_rating_against_the_ratings() -> None:
    expert = judgements()["expert"]
    others = ~expert.own
    ratings = expert.judged[others]
    want = 100 * kendalltau(np.repeat(ratings.mean(axis=1), 3), ratings.ravel(), variant="c").statistic
    assert ceiling(expert, N_IMAGES) == pytest.approx(want, rel=1e-12)


def test_the_level_of_a_person_is_one_rating_against_the_mean_of_the_others() -> None:
    expert = judgements()["expert"]
    ratings = expert.judged[~expert.own]
    want = [
        100 * kendalltau(ratings[:, one], np.delete(ratings, one, axis=1).mean(axis=1), variant="c").statistic
        for one in range(3)
    ]
    assert persons(expert, N_IMAGES) == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("longest_tie", [1, 5, 500])
def test_blocks_count_every_pair_once(longest_tie: int) -> None:
    random = np.random.default_rng(2)
    n = 700  # several blocks
    scores = random.permutation(n) // longest_tie
    judged, image = random.integers(0, 5, n), random.integers(0, 7, n)
    sign = np.sign(scores[:, None] - scores) * np.sign(judged[:, None] - judged)
    want = np.zeros((7, 7))
    np.add.at(want, (image[:, None], image[None]), sign)
    np.testing.assert_array_equal(concordance(scores, judged, image, 7), want)


@pytest.mark.parametrize("step", [0.0, 0.5])
def test_the_order_alone_gives_the_values_and_names_no_pair(step: float) -> None:
    judged = judgements()
    scores = {kind: similarities(step)[one.image, one.caption] for kind, one in judged.items()}
    said = in_order(scores, judged)
    assert agreement_in_order(said) == pytest.approx(expected(scores, judged), rel=1e-12)
    # the order of the files, which would tell the pairs, is gone
    shuffled = {kind: np.random.default_rng(2).permutation(len(one.rows)) for kind, one in judged.items()}
    again = in_order(
        {kind: scores[kind][order] for kind, order in shuffled.items()},
        {kind: Judgements(kind, judged[kind].rows[order], 5) for kind, order in shuffled.items()},
    )
    assert all(np.array_equal(said[kind], again[kind]) for kind in said)


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Flickr8K with three test images, prepared with its judgements."""
    monkeypatch.setitem(DATASETS, "flickr8k", flickr8k_miniature.SPEC)
    prepare("flickr8k", flickr8k_miniature.make(tmp_path / "flickr8k"), tmp_path / "data")
    return tmp_path / "data"


def test_evaluate_adds_agreement_where_the_judgements_are_prepared(
    prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)
    scores = np.random.default_rng(3).random((3, 15))
    # three images are too few for a bootstrap: some resamples hold no pair that people call matching
    evaluation = evaluate_scores(scores, dataset="flickr8k", root=prepared, intervals=False)
    test = load_dataset("flickr8k", split="test", root=prepared)
    judged = {kind: test.judged(kind) for kind in ("expert", "crowd")}
    of_pairs = {kind: scores[one.image, one.caption] for kind, one in judged.items()}
    found = {name: one.value for name, one in evaluation.people.items()}
    assert found["expert_tau_c"] == pytest.approx(expected(of_pairs, judged)["expert_tau_c"])
    assert found["crowd_tau_b"] == pytest.approx(expected(of_pairs, judged)["crowd_tau_b"])
    assert "CLIPScore 51.2; one person" in "".join(lines_of_labels(evaluation))
    elsewhere = evaluate_scores(scores, dataset="flickr8k", intervals=False)
    assert elsewhere.people == {}
    assert any(
        "agreement with people needs flickr8k prepared with Expert" in note for note in elsewhere.notes
    )


@pytest.mark.parametrize("runs", [1, 3])
def test_a_side_that_agrees_more_is_better(runs: int) -> None:
    judged = judgements(n_expert=800)
    sides = []
    for weight in (2.0, 0.0):
        side = []
        for run in range(runs):
            noise = np.random.default_rng(run).normal(size=800)
            scores = {"expert": weight * judged["expert"].judged.mean(axis=1) + noise}
            side.append(agreements(scores, judged, N_IMAGES))
        sides.append(side)
    found = compare_agreement((sides[0], sides[1]))["expert_tau_c"]
    assert found.verdict == "A is better"
    assert found.difference == pytest.approx(found.values[0] - found.values[1])
    assert found.values[0] == pytest.approx(np.mean([run["expert_tau_c"].value for run in sides[0]]))
    assert compare_agreement((sides[0], sides[0]))["expert_auroc"].verdict == "no significant difference"
