"""CCA: the weights of words, the solution against a generalised eigenproblem, and the pairs that the filter keeps."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.linalg import eigh
from sklearn.feature_extraction.text import TfidfVectorizer
from support.doubles import StoredBatches
from support.refusals import refused

from baselines.backbones.linear import Linear, LinearConfig
from baselines.kit.batches import Batch
from baselines.kit.method import Setting
from baselines.methods.cca import CCA, CCAConfig, CCAFiltered, FilteredCCAConfig
from baselines.training.recipe import Recipe, with_settings
from ncl_bench.errors import RecipeError

N, DIM, WORDS, WRONG = 400, 12, 30, 120


def pairs(wrong=0):
    """Pairs whose image holds what its words stand for; the captions of the first ``wrong`` ones change places."""
    random = np.random.default_rng(0)
    meaning = random.standard_normal((WORDS, DIM))
    tokens = np.sort(random.integers(2, WORDS, (N, 8)), axis=1)
    features = meaning[tokens].mean(axis=1) + 0.1 * random.standard_normal((N, DIM))
    tokens[:wrong] = np.roll(tokens[:wrong], 1, axis=0)
    tokens = np.concatenate([np.ones((N, 1), np.int64), tokens], axis=1)  # every caption begins with 1
    return Batch(
        image_features=torch.from_numpy(np.repeat(features[:, None], 2, axis=1)).float(),
        image_lengths=torch.full((N,), 2),
        caption_tokens=torch.from_numpy(tokens),
        caption_lengths=torch.from_numpy(random.integers(6, 10, N)),
        pair_ids=torch.arange(N),
    )


def setting():
    return Setting(N, 2, WORDS, lambda: Linear(LinearConfig(embed_size=8), DIM, 2, WORDS))


GRID = {"image_ridges": (0.5,), "word_ridges": (1.0,), "components": (4, 8), "judge": (0.5, 1.0, 8)}


def trained(method, batch):
    for plan in method.plan():
        method.train_epoch(plan, StoredBatches(batch), no_step)
    return method


def no_step(*_, **__):
    raise AssertionError("a closed form takes no gradient step")


def expected(batch, components):
    """Cosines by the textbook: TF-IDF of scikit-learn, and the generalised eigenproblem of the covariances."""
    inside = np.arange(9) < batch.caption_lengths[:, None].numpy()
    texts = [
        " ".join(f"w{t}" for t in row[keep])
        for row, keep in zip(batch.caption_tokens.numpy(), inside, strict=True)
    ]
    words = TfidfVectorizer(sublinear_tf=True, min_df=3, max_df=N - 1, token_pattern=r"\w+").fit_transform(
        texts
    )
    t = words.toarray()
    mean = batch.image_features.numpy().astype(np.float64).mean(axis=1)
    x = np.sign(mean) * np.sqrt(np.abs(mean))
    x, t = x - x.mean(axis=0), t - t.mean(axis=0)
    xx, tt, xt = x.T @ x / N, t.T @ t / N, x.T @ t / N
    xx += 0.5 * np.trace(xx) / len(xx) * np.eye(len(xx))
    tt += 1.0 * np.trace(tt) / len(tt) * np.eye(len(tt))
    squared, a = eigh(xt @ np.linalg.solve(tt, xt.T), xx)
    a, s = a[:, ::-1][:, :components], np.sqrt(squared[::-1][:components])
    b = np.linalg.solve(tt, xt.T @ a) / s
    u, v = x @ (a * s), t @ (b * s)
    return (u / np.linalg.norm(u, axis=1, keepdims=True)) @ (v / np.linalg.norm(v, axis=1, keepdims=True)).T


def test_similarities_are_the_cosines_of_the_canonical_projections():
    batch, method = pairs(), CCA(CCAConfig(**GRID), setting())
    stored = StoredBatches(batch)
    for plan, components in zip(method.plan(), (4, 8), strict=True):
        method.train_epoch(plan, stored, no_step)
        found = method.networks[0](batch).similarities.numpy()
        assert np.abs(found - expected(batch, components)).max() < 1e-4


def test_the_epochs_are_the_grid():
    options = {"image_ridges": (1, 2), "word_ridges": (3,), "components": (4, 8)}
    method = CCAFiltered(FilteredCCAConfig(**GRID | options, rounds=2), setting())
    assert method.grid() == [(1, 3, 4), (1, 3, 8), (2, 3, 4), (2, 3, 8)]
    assert [(plan.round, plan.epoch) for plan in method.plan()] == list(product(range(3), range(4)))


def test_wrong_pairs_are_improbable_and_left_out_of_the_next_fit():
    batch = pairs(WRONG)
    wrong = torch.arange(N) < WRONG
    plain = trained(CCA(CCAConfig(**GRID), setting()), batch)
    assert plain.kept.values.all()
    estimate = plain.estimates()["clean_probability"]
    above = (estimate[~wrong, None] > estimate[None, wrong]).float().mean()
    assert above > 0.9
    filtered = trained(CCAFiltered(FilteredCCAConfig(**GRID, rounds=1), setting()), batch)
    kept = filtered.kept.values > 0
    assert kept.sum() == round((1 - plain.wrong.item()) * N)
    assert abs(plain.wrong.item() - WRONG / N) < 0.1
    assert (kept & wrong).sum() < 0.2 * WRONG

    def fit(method):
        return method.networks[0](pairs()).similarities.diagonal().mean().item()

    assert fit(filtered) > fit(plain)


def test_a_run_resumes_within_a_round():
    batch, config = pairs(WRONG), FilteredCCAConfig(**GRID, rounds=1)
    whole, first, second = (CCAFiltered(config, setting()) for _ in range(3))
    *done, last = whole.plan()
    for plan in done:
        first.train_epoch(plan, StoredBatches(batch), no_step)
    second.load_state_dict(first.state_dict())
    second.train_epoch(last, StoredBatches(batch), no_step)
    for name, values in trained(whole, batch).state_dict().items():
        assert torch.equal(values, second.state_dict()[name]), name


def test_few_images_limit_the_components():
    batch, method = pairs(), CCA(CCAConfig(**GRID), setting())
    stored = StoredBatches(batch)
    stored.shown_images = torch.arange(N) % 25
    for plan in method.plan():
        method.train_epoch(plan, stored, no_step)
    assert (method.network.image_weights != 0).any(dim=0).sum() == 5


@pytest.mark.parametrize(
    ("recipe", "given"),
    [
        ("info_nce/digits_vse_infinity", "backbone.name=linear"),
        ("cca/digits_linear", "backbone.name=vse_infinity"),
    ],
)
def test_a_closed_form_and_gradient_steps_do_not_mix(recipe, given):
    with refused(RecipeError):
        with_settings(Recipe.load(recipe), [given])


def test_too_few_components_in_the_backbone_are_named():
    with refused():
        CCA(CCAConfig(**GRID | {"components": (9,)}), setting())
