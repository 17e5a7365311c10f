"""Agreement with people's judgements, against scipy and scikit-learn on the same observations."""

import numpy as np
import pytest
from scipy.stats import kendalltau
from sklearn.metrics import roc_auc_score
from support import flickr8k_miniature

from ncl_bench.data import DATASETS, ROOT_VARIABLE
from ncl_bench.data.judgements import Judgements
from ncl_bench.data.load import load_dataset
from ncl_bench.data.prepare import prepare
from ncl_bench.evaluation.call import evaluate
from ncl_bench.evaluation.compare import compare_agreement
from ncl_bench.evaluation.people import (
    agreement_in_order,
    agreement_interval,
    agreement_of,
    agreements,
    ceiling,
    concordance,
    crossing,
    in_order,
    persons,
)

N_IMAGES = 40
SHAPE = (N_IMAGES, 5 * N_IMAGES)


def judgements(n_expert=300, n_crowd=900):
    random = np.random.default_rng(0)

    def pairs(n):
        flat = random.choice(N_IMAGES * N_IMAGES, n, replace=False)
        return np.stack([flat // N_IMAGES, 5 * (flat % N_IMAGES) + 2], axis=1)

    base = random.integers(1, 5, (n_expert, 1))
    ratings = np.clip(base + random.integers(-1, 2, (n_expert, 3)), 1, 4)
    yes = random.integers(0, 4, n_crowd)
    return {
        "expert": Judgements("expert", np.hstack([pairs(n_expert), ratings]), 5),
        "crowd": Judgements("crowd", np.stack([*pairs(n_crowd).T, yes, 3 - yes], axis=1), 5),
    }


def similarities(step):
    """A matrix with ties if ``step`` is positive."""
    scores = np.random.default_rng(1).normal(size=(N_IMAGES, 5 * N_IMAGES))
    return np.round(scores / step) * step if step else scores


def judged_scores(step):
    """Judgements, and the similarities of their pairs."""
    judged = judgements()
    return judged, {kind: similarities(step)[one.image, one.caption] for kind, one in judged.items()}


def expected(scores, judged):
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
def test_the_measures_are_those_of_the_libraries(step):
    judged, scores = judged_scores(step)
    found = agreements(scores, judged, SHAPE)
    assert {name: one.value for name, one in found.items()} == pytest.approx(
        expected(scores, judged), rel=1e-12
    )


@pytest.mark.parametrize("step", [0.0, 0.5])
def test_the_influence_of_a_pair_is_the_change_when_it_counts_more(step):
    judged, scores = judged_scores(step)
    found = agreements(scores, judged, SHAPE)
    often = 20
    for kind, names in {
        "expert": ("expert_tau_c", "expert_auroc"),
        "crowd": ("crowd_tau_b", "crowd_auroc"),
    }.items():
        one = judged[kind]
        for pair in np.flatnonzero(~one.own)[:5]:
            times = np.full(len(one.rows), often)
            times[pair] += 1
            copied = {kind: Judgements(kind, np.repeat(one.rows, times, axis=0), 5)}
            moved = agreements({kind: np.repeat(scores[kind], times)}, copied, SHAPE)
            for name in names:
                place = pair if name == "crowd_tau_b" else np.count_nonzero(~one.own[:pair])
                change = often * (moved[name].value - found[name].value)
                assert change == pytest.approx(
                    found[name].pairs[place], abs=1e-3 * abs(found[name].pairs).max()
                ), name


def test_influences_of_images_and_captions_are_sums_over_their_pairs():
    judged, scores = judged_scores(0.1)
    one, crowd = agreements(scores, judged, SHAPE)["crowd_tau_b"], judged["crowd"]
    assert one.pairs.sum() == pytest.approx(0, abs=1e-12 * abs(one.pairs).sum())
    assert one.images[3] == pytest.approx(one.pairs[crowd.image == 3].sum())
    assert one.captions[17] == pytest.approx(one.pairs[crowd.caption == 17].sum())
    assert not one.captions[16]  # nobody judged it


def drawn(random, n=100):
    """Agreement of a model on new images and captions; both move the similarities and the ratings of their pairs."""
    image, caption = np.divmod(random.permutation(n * n)[:2_000], n)

    def moved():
        return random.normal(size=n)[image] + random.normal(size=n)[caption]

    shared = moved() + 0.3 * random.normal(size=2_000)
    rating = np.digitize(shared, [-1.5, 0, 1.5]) + 1
    rows = np.column_stack([image, 5 * caption + 2, rating, rating, rating])
    judged = {"expert": Judgements("expert", rows, 5)}
    return agreements({"expert": shared + moved()}, judged, (n, 5 * n))["expert_tau_c"]


def test_intervals_cover_new_images_and_captions():
    random = np.random.default_rng(5)
    found = [drawn(random) for _ in range(300)]
    values = np.array([one.value for one in found])
    low, high = np.array([agreement_interval([one]) for one in found]).T
    inside = np.mean((low <= values.mean()) & (values.mean() <= high))
    assert 0.92 <= inside <= 0.98
    over_images = np.array([2 * np.sqrt(one.images @ one.images) for one in found])
    assert np.mean(abs(values - values.mean()) <= over_images) < 0.87  # images alone are too narrow


def test_models_that_differ_by_seed_alone_rarely_differ_significantly():
    random, judged = np.random.default_rng(6), judgements()
    expert = judged["expert"]
    shared = expert.judged.mean(axis=1)

    def side(n):
        noise = random.normal(size=(n, len(shared))) + random.normal(size=(n, 1)) * random.normal(
            size=(1, 300)
        )
        return [agreements({"expert": shared + one}, judged, SHAPE)["expert_tau_c"] for one in noise]

    outside = 0
    for _ in range(100):
        low, high = agreement_interval(side(3), side(3))
        outside += low > 0 or high < 0
    assert outside <= 6


def test_the_ceiling_is_the_mean_rating_against_the_ratings():
    expert = judgements()["expert"]
    others = ~expert.own
    ratings = expert.judged[others]
    want = 100 * kendalltau(np.repeat(ratings.mean(axis=1), 3), ratings.ravel(), variant="c").statistic
    assert ceiling(expert) == pytest.approx(want, rel=1e-12)


def test_the_level_of_a_person_is_one_rating_against_the_mean_of_the_others():
    expert = judgements()["expert"]
    ratings = expert.judged[~expert.own]
    want = [
        100 * kendalltau(ratings[:, one], np.delete(ratings, one, axis=1).mean(axis=1), variant="c").statistic
        for one in range(3)
    ]
    assert persons(expert) == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("longest_tie", [1, 5, 500])
def test_concordance_counts_every_partner_once(longest_tie):
    random = np.random.default_rng(2)
    scores, judged = random.permutation(700) // longest_tie, random.integers(0, 5, 700)
    sign = np.sign(scores[:, None] - scores) * np.sign(judged[:, None] - judged)
    np.testing.assert_array_equal(concordance(scores, judged), sign.sum(axis=1))


@pytest.mark.parametrize("step", [0.0, 0.5])
def test_the_order_alone_gives_the_values_and_names_no_pair(step):
    judged, scores = judged_scores(step)
    said = in_order(scores, judged)
    assert agreement_in_order(said) == pytest.approx(expected(scores, judged), rel=1e-12)
    crossed = crossing(scores, judged, SHAPE)
    # the order of the files, which would tell the pairs, is gone
    shuffled = {kind: np.random.default_rng(2).permutation(len(one.rows)) for kind, one in judged.items()}
    others = {kind: scores[kind][order] for kind, order in shuffled.items()}
    files = {kind: Judgements(kind, judged[kind].rows[order], 5) for kind, order in shuffled.items()}
    again = in_order(others, files)
    assert all(np.array_equal(said[kind], again[kind]) for kind in said)
    if not step:  # ties with equal ratings may stand in any order
        assert all(np.array_equal(one, crossing(others, files, SHAPE)[kind]) for kind, one in crossed.items())


@pytest.mark.parametrize("step", [0.0, 0.5])
def test_the_evidence_gives_the_intervals_of_a_row_and_of_two_rows(step):
    judged = judgements()
    full, kept = [], []
    for run in range(3):
        noise = np.random.default_rng(run).normal(size=300)
        score = judged["expert"].judged.mean(axis=1) + noise
        scores = {"expert": np.round(score / step) * step if step else score}
        full.append(agreements(scores, judged, SHAPE)["expert_tau_c"])
        kept.append(agreement_of(in_order(scores, judged), crossing(scores, judged, SHAPE)))
    assert agreement_interval(kept) == pytest.approx(agreement_interval(full), rel=1e-5)
    assert agreement_interval(kept[:1], kept[1:]) == pytest.approx(
        agreement_interval(full[:1], full[1:]), rel=1e-5
    )


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """Flickr8K with three test images, prepared with its judgements."""
    monkeypatch.setitem(DATASETS.data, "flickr8k", flickr8k_miniature.SPEC)
    prepare("flickr8k", flickr8k_miniature.make(tmp_path / "flickr8k"), tmp_path / "data")
    return tmp_path / "data"


def test_evaluate_adds_agreement_where_the_judgements_are_prepared(prepared, monkeypatch):
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)
    scores = np.random.default_rng(3).random((3, 15))
    # three images are too few for a bootstrap: some resamples hold no pair that people call matching
    evaluation = evaluate(scores, dataset="flickr8k", root=prepared, intervals=False)
    test = load_dataset("flickr8k", split="test", root=prepared)
    judged = {kind: test.judged(kind) for kind in ("expert", "crowd")}
    of_pairs = {kind: scores[one.image, one.caption] for kind, one in judged.items()}
    found = {name: one.value for name, one in evaluation.people.items()}
    assert found["expert_tau_c"] == pytest.approx(expected(of_pairs, judged)["expert_tau_c"])
    assert found["crowd_tau_b"] == pytest.approx(expected(of_pairs, judged)["crowd_tau_b"])
    assert "CLIPScore 51.2; one person" in "".join(evaluation.lines())
    elsewhere = evaluate(scores, dataset="flickr8k", intervals=False)
    assert elsewhere.people == {}
    assert any(
        "agreement with people needs flickr8k prepared with Expert" in note for note in elsewhere.notes
    )


@pytest.mark.parametrize("runs", [1, 3])
def test_a_side_that_agrees_more_is_better(runs):
    judged = judgements(n_expert=800)
    sides = []
    for weight in (2.0, 0.0):
        side = []
        for run in range(runs):
            noise = np.random.default_rng(run).normal(size=800)
            scores = {"expert": weight * judged["expert"].judged.mean(axis=1) + noise}
            side.append(agreements(scores, judged, SHAPE))
        sides.append(side)
    found = compare_agreement((sides[0], sides[1]))["expert_tau_c"]
    assert found.verdict == "A is better"
    assert found.difference == pytest.approx(found.values[0] - found.values[1])
    assert found.values[0] == pytest.approx(np.mean([run["expert_tau_c"].value for run in sides[0]]))
    assert compare_agreement((sides[0], sides[0]))["expert_auroc"].verdict == "no significant difference"
