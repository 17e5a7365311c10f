"""Judging a user's pairs: CCA against an eigenproblem, folds that leak nothing, shares that hold."""

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.sparse import csr_array
from sklearn.metrics import average_precision_score
from support.refusals import refused

from baselines.audit.cca import caption_vectors, cross_fitted, pooled
from baselines.audit.judge import FEWEST_FOR_SHARE, PROJECTIONS, Others, judge_embeddings, judge_pairs
from baselines.audit.reasons import REPEATED
from baselines.audit.sentences import MINILM
from baselines.kit.cca import Moments, unit
from baselines.kit.share import SURE, most_supported, share_of_wrong, suspicion
from ncl_bench.errors import TrainingError

TOPICS = ("dog grass ball", "beach sea surf", "snow ski hill", "city car street", "horse rider fence")
TOPICS_ZH = ("小狗追球草地", "海边沙滩冲浪", "雪山滑雪斜坡", "城市汽车街道", "骑手马匹栅栏")


def test_projections_solve_the_generalised_eigenproblem():
    random = np.random.default_rng(0)
    shared = random.standard_normal((300, 3))
    x = shared @ random.standard_normal((3, 7)) + random.standard_normal((300, 7))
    y = shared @ random.standard_normal((3, 5)) + random.standard_normal((300, 5))
    ridges = (0.5, 0.2)
    found = Moments.of(x, np.arange(300), csr_array(y)).projections(4, ridges)
    cx, cy = (np.cov(side.T, bias=True) for side in (x, y))
    cx += ridges[0] * np.trace(cx) / 7 * np.eye(7)
    cy += ridges[1] * np.trace(cy) / 5 * np.eye(5)
    cxy = (x - x.mean(axis=0)).T @ (y - y.mean(axis=0)) / 300
    across = np.block([[np.zeros((7, 7)), cxy], [cxy.T, np.zeros((5, 5))]])
    inside = np.block([[cx, np.zeros((7, 5))], [np.zeros((5, 7)), cy]])
    values, vectors = eigh(across, inside)
    values, vectors = values[::-1][:4], vectors[:, ::-1][:, :4]
    np.testing.assert_allclose(found.correlations, values, rtol=1e-6)
    px, py = (x - x.mean(axis=0)) @ vectors[:7] * values, (y - y.mean(axis=0)) @ vectors[7:] * values
    cosine = (px * py).sum(axis=1) / np.linalg.norm(px, axis=1) / np.linalg.norm(py, axis=1)
    ours = (found.of_images(x) * found.of_captions(csr_array(y))).sum(axis=1)
    np.testing.assert_allclose(ours, cosine, atol=1e-5)


def topics(words=TOPICS, n_images=200, per_image=1, seed=0):
    """Region features, the image and caption of each pair, and the topic of each caption."""
    random = np.random.default_rng(seed)
    topic = random.integers(len(words), size=n_images)
    features = np.abs(random.standard_normal((n_images, 2, 12)))
    features[np.arange(n_images), :, topic] += 3
    image_of = np.repeat(np.arange(n_images), per_image)
    captions = []
    for each in topic[image_of]:
        split = words[each].split()
        captions.append(" ".join(random.permutation(split)[:2]) if len(split) > 1 else words[each])
    return features.astype(np.float32), image_of, captions, topic[image_of]


def test_the_captions_of_a_fold_do_not_move_its_projections(tmp_path):
    features, image_of, captions, _ = topics(per_image=2)
    images = pooled(features, tmp_path / "pooled.npy")
    before = cross_fitted(images, image_of, caption_vectors(captions))[0]
    moved = np.array(captions, object)
    moved[before.rows] = np.roll(moved[before.rows], 3)
    after = cross_fitted(images, image_of, caption_vectors(moved.tolist()))[0]
    assert set(image_of[before.rows]).isdisjoint(image_of[before.others])
    np.testing.assert_array_equal(after.rows, before.rows)
    # signs of components may differ, cosines do not
    cosines = [unit(fold.images(fold.rows)) @ unit(fold.captions(fold.rows)).T for fold in (before, after)]
    np.testing.assert_allclose(cosines[1], np.roll(cosines[0], 3, axis=1), atol=1e-4)


def test_a_caption_of_rare_words_is_no_caption_of_its_one_frequent_word():
    vectors = caption_vectors([*["a happy face", "a sad face", "a happy dog"] * 4, "unicorn face"]).toarray()
    lengths = np.linalg.norm(vectors, axis=1)
    np.testing.assert_allclose(lengths[:-1], 1)
    assert lengths[-1] < 0.6


@pytest.mark.parametrize(("words", "per_image"), [(TOPICS, 1), (TOPICS, 3), (TOPICS_ZH, 1)])
def test_planted_captions_come_first(words, per_image, tmp_path, monkeypatch):
    monkeypatch.setattr("baselines.audit.judge.FEWEST_FOR_SHARE", 200)
    features, image_of, captions, topic = topics(words, per_image=per_image)
    random = np.random.default_rng(1)
    wrong = random.permutation(len(captions))[:20]
    given = list(captions)
    for row in wrong.tolist():
        given[row] = captions[int(random.choice(np.flatnonzero(topic != topic[row])))]
    done = []
    found = judge_pairs(features, image_of, given, work=tmp_path, advance=done.append)
    assert np.isin(np.argsort(-found.table["score"])[:20], wrong).sum() >= 18
    assert "Captions were read by TF-IDF" in found.unseen
    means = found.table.groupby(np.isin(np.arange(len(captions)), wrong))[["similarity", "lemon"]].mean()
    assert (means.loc[False] > means.loc[True]).all()  # both views are larger where the caption fits
    assert sum(done) == len(captions)
    ordered = found.table.sort_values("score")["probability"]
    assert ordered.is_monotonic_increasing
    assert ordered.between(0, 1).all()
    named = found.better[wrong]
    fits = np.isin(named, np.flatnonzero(np.isin(np.arange(len(topic)), wrong, invert=True)))
    assert (topic[named] == topic[wrong][:, None])[fits].mean() > 0.9
    again = judge_pairs(features, image_of, given, work=tmp_path)
    np.testing.assert_array_equal(again.table, found.table)


def test_embeddings_are_judged_with_several_captions_an_image(tmp_path):
    random = np.random.default_rng(0)
    image_of = np.repeat(np.arange(100), 2)
    images = random.standard_normal((100, 16))[image_of]
    captions = images + random.standard_normal((200, 16)) / 2
    wrong = np.arange(0, 40, 4)
    captions[wrong] = captions[np.roll(wrong, 1)]
    found = judge_embeddings(images, captions, image_of)
    assert set(np.argsort(-found.table["score"])[:10]) == set(wrong)
    cosine = (images * captions).sum(1) / np.linalg.norm(images, axis=1) / np.linalg.norm(captions, axis=1)
    np.testing.assert_allclose(found.table["similarity"], cosine, atol=1e-5)
    named = found.better[wrong[0]]
    assert (image_of[named[named >= 0]] != image_of[wrong[0]]).all()


@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_the_other_captions_of_a_picture_are_what_a_loop_finds(form):
    image_of = np.array([0, 0, 3, 3, 3, 5])
    units = unit(np.random.default_rng(0).standard_normal((6, 4)))
    pairs, captions = np.array([0, 2, 5, 4]), np.array([0, 5, 1, 4])
    expected = []
    for pair, caption in zip(pairs, captions, strict=True):
        beside = [row for row in range(6) if image_of[row] == image_of[pair] and row != pair]
        expected.append(np.mean([units[row] @ units[caption] for row in beside]) if beside else 0)
    others = Others.of(form(3 * units), image_of)
    np.testing.assert_allclose(others.agree(pairs, captions), expected, atol=1e-6)
    assert Others.of(form(units), np.arange(6)) is None


@pytest.mark.parametrize("share", [0.0, 0.005, 0.03, 0.1, 0.4])
def test_share_and_probabilities_hold(share):
    random = np.random.default_rng(0)
    n = 12_000
    wrong = random.random(n) < share
    views = random.standard_normal((n, 2)) + np.where(wrong, 0, 3)[:, None]
    planted = random.standard_normal((n, 3, 2))
    scores, scores_planted = suspicion(views, planted, np.arange(n) % 10)
    found = share_of_wrong(scores, scores_planted, np.arange(n), np.ones(n, bool))
    assert found.low <= wrong.mean() <= found.high
    assert found.high - found.low < 0.02 + 0.35 * share
    order = np.argsort(-found.probability, kind="stable")
    for rows in np.array_split(order, 10):
        assert abs(found.probability[rows].mean() - wrong[rows].mean()) < 0.05
    assert found.probability.max() <= 0.99
    assert (np.diff(found.probability[np.argsort(scores)]) >= 0).all()


def test_pairs_that_are_wrong_together_widen_the_range():
    random = np.random.default_rng(0)
    n = 2_000
    scores = np.where(np.arange(n) < 100, 3, -3) + random.standard_normal(n)
    planted = 3 + random.standard_normal((n, 2))
    alone, together = (
        share_of_wrong(scores, planted, image_of, np.ones(n, bool))
        for image_of in (np.arange(n), np.arange(n) // 5)
    )
    assert together.high - together.low > 1.5 * (alone.high - alone.low)


def test_a_caption_on_all_pictures_but_one_has_projections():
    random = np.random.default_rng(0)
    images, captions = random.standard_normal((55, 20)), unit(random.standard_normal((2, 384)))
    folds = cross_fitted(images, np.arange(55), captions[np.arange(55) // 54])
    assert all(np.isfinite(fold.captions(fold.rows)).all() for fold in folds)


def test_too_few_pairs_are_ordered_and_not_counted(tmp_path):
    features, image_of, captions, _ = topics()
    found = judge_pairs(features, image_of, captions, work=tmp_path)
    assert not found.enough
    assert found.table["probability"].isna().all()
    assert found.table["score"].notna().all()
    assert "Fewer than 1,000 pairs" in found.obtained


@pytest.mark.parametrize(("n_images", "per_image", "copies"), [(25, 8, False), (100, 2, True)])
def test_copies_and_many_captions_of_few_images_are_too_few(
    n_images, per_image, copies, tmp_path, monkeypatch
):
    monkeypatch.setattr("baselines.audit.judge.FEWEST_FOR_SHARE", 150)
    features, image_of, captions, _ = topics(n_images=n_images, per_image=per_image)
    if copies:
        captions = [captions[row - row % per_image] for row in range(len(captions))]
    found = judge_pairs(features, image_of, captions, work=tmp_path)
    assert not found.enough
    assert "Copies do not count" in found.obtained


def test_pairs_that_rules_explain_leave_too_few_to_count(tmp_path, monkeypatch):
    monkeypatch.setattr("baselines.audit.judge.FEWEST_FOR_SHARE", 150)
    features, image_of, captions, _ = topics()
    found = judge_pairs(features, image_of, ["🐶", *captions[1:60], *["image"] * 140], work=tmp_path)
    assert not found.enough
    assert found.obtained.startswith("Most pairs have a cause that a rule names")


def test_a_repeated_caption_is_counted_by_its_name_and_not_by_its_score(tmp_path, monkeypatch):
    monkeypatch.setattr("baselines.audit.judge.FEWEST_FOR_SHARE", 150)
    features, image_of, captions, _ = topics()
    given = [f"{caption} nr{chr(97 + row % 26)}{chr(97 + row // 26)}" for row, caption in enumerate(captions)]
    given[20:60] = ["buy now with free shipping"] * 40
    found = judge_pairs(features, image_of, given, work=tmp_path)
    assert (found.table["reason"][20:60] == REPEATED).all()
    assert (found.table["reason"].drop(range(20, 60)) == "").all()
    assert found.numbers[0] == pytest.approx(40 + 160 * found.share)


def test_no_probability_exceeds_what_the_number_of_pairs_shows():
    few = np.array([50.0, 8.0, 3.0, 0.2, 0.1])
    assert most_supported(few) == pytest.approx(4 / 5)
    assert most_supported(np.array([0.9, 0.7, 0.1])) == pytest.approx(2 / 3)
    assert most_supported(np.full(3, 0.1)) == 1 / 2
    assert most_supported(np.full(17, 9.0)) == pytest.approx(18 / 19)
    assert most_supported(np.full(500, 9.0)) == SURE


def work_of(folder, n, wrong, seed):
    """Pairs of pooled features and sentence vectors that share ten directions; the first ``wrong`` do not fit."""
    maps = np.random.default_rng(0).standard_normal((2, 10, 200))
    random = np.random.default_rng(seed)
    meaning = random.standard_normal((n, 10))
    sides = [meaning @ each + 8 * random.standard_normal((n, 200)) for each in maps]
    sides[1][:wrong] = np.roll(sides[1][:wrong], 1, axis=0)
    folder.mkdir()
    for name, side in zip(("pooled", "captions"), sides, strict=True):
        np.save(folder / f"{name}.npy", side.astype(np.float32))
    captions = [f"text of pair {row} in {folder.name}" for row in range(n)]
    return {"features": sides[0][:, None], "image_of": np.arange(n), "captions": captions, "work": folder}


def test_other_pairs_order_a_small_set_better_than_it_does_itself(tmp_path):
    settings = {"image_encoder": "tiny", "text_encoder": MINILM}
    judge_pairs(**work_of(tmp_path / "large", FEWEST_FOR_SHARE, 50, 1), **settings)
    prior = tmp_path / "large" / PROJECTIONS
    given = work_of(tmp_path / "small", 100, 10, 2)
    wrong = np.arange(100) < 10
    alone = judge_pairs(**given, **settings)
    assert not (tmp_path / "small" / PROJECTIONS).exists()
    better = judge_pairs(**given, **settings, prior=prior)
    assert not better.enough
    precisions = [average_precision_score(wrong, found.table["score"]) for found in (alone, better)]
    assert precisions[1] > precisions[0] + 0.1
    with refused(TrainingError):
        judge_pairs(**given, **settings | {"image_encoder": "other"}, prior=prior)
    prior.write_bytes(prior.read_bytes()[:-8])
    with refused(TrainingError):
        judge_pairs(**given, **settings, prior=prior)
