"""LEMoN against the published code's numbers, and the audit that it makes."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score
from support.command import invoke
from support.refusals import refused
from support.rounding import assert_near

import baselines.audit.lemon
import baselines.audit.report
from baselines.audit import apply_audit
from baselines.audit.lemon import FIXED, LemonSetting, lemon
from baselines.audit.report import write_lemon
from baselines.audit.result import read_result
from ncl_bench.data import dataset_spec, true_correspondence
from ncl_bench.data.load import load_dataset
from ncl_bench.errors import DataError, TrainingError

CASES, SETS = ("cosine", "euclidean", "subset"), ("train", "val", "test")
SETTINGS = ("fixed", "zero", "only_beta", "only_gamma", "uneven")
NUMBERS = ("beta", "gamma", "tau_1n", "tau_2n", "tau_1m", "tau_2m")
TOLERANCES = {"": (2e-5, 2e-6), "__f64": (1e-9, 1e-9)}
"""Of scores and terms, relative to the largest; of distances, absolute."""


def scored(stored, case, name, precision, **options):
    """All items as pairs, each image with the caption that it is shown with."""
    dtype = np.float64 if precision else np.float32
    images, captions = stored["images"].astype(dtype), stored["captions"].astype(dtype)
    reference = stored["train.items"][stored["subset.reference"] if case == "subset" else slice(None)]
    setting = LemonSetting(
        k=int(stored["k"]),
        distance="euclidean" if case == "euclidean" else "cosine",
        **dict(zip(NUMBERS, stored[f"setting.{name}"].tolist(), strict=True)),
        **options,
    )
    return lemon(images, captions[stored["shown"]], np.arange(len(images)), reference.copy(), setting)


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("case", CASES)
def test_scores_are_the_published_ones(golden, monkeypatch, case, name, precision):
    monkeypatch.setattr(baselines.audit.lemon, "MOST_NUMBERS", 7 * 150)  # blocks of seven pairs
    stored = golden("Y_lemon_scores")
    found = scored(stored, case, name, precision)
    relative, absolute = TOLERANCES[precision]
    for part in SETS:
        items, start = stored[f"{part}.items"], f"{case}.{part}"
        assert_near(found.score[items], stored[f"{start}.{name}.score{precision}"], relative)
        np.testing.assert_allclose(
            found.distance[items], stored[f"{start}.d_pair{precision}"], rtol=0, atol=absolute
        )
        if f"{start}.{name}.s_n{precision}" in stored:
            assert_near(found.image_term[items], stored[f"{start}.{name}.s_n{precision}"], relative)
            assert_near(found.caption_term[items], stored[f"{start}.{name}.s_m{precision}"], relative)


@pytest.mark.parametrize("case", CASES)
def test_neighbours_are_the_published_ones(golden, case):
    stored = golden("Y_lemon_scores")
    found = scored(stored, case, "fixed", "__f64")
    reference = stored["train.items"][stored["subset.reference"] if case == "subset" else slice(None)]
    for part in SETS:
        for side, name in enumerate(("image", "caption")):
            expected = reference[stored[f"{case}.{part}.neighbours_{name}"]]
            np.testing.assert_array_equal(found.neighbours[side][stored[f"{part}.items"]], expected)


@pytest.mark.parametrize("name", ["fixed", "uneven"])
def test_the_papers_exponent_is_the_distance(golden, name):
    stored = golden("Y_lemon_scores")
    found = scored(stored, "cosine", name, "__f64", exponent="paper")
    for part in SETS:
        expected = stored[f"paper.{part}.{name}.score__f64"]
        assert_near(found.score[stored[f"{part}.items"]], expected, 1e-9)


def test_sister_captions_are_no_neighbours():
    random = np.random.default_rng(0)
    images, captions = random.standard_normal((20, 8)), random.standard_normal((100, 8))
    image_of = np.repeat(np.arange(20), 5)
    found = lemon(images, captions, image_of, np.arange(100), FIXED.model_copy(update={"k": 90}))
    assert (image_of[found.neighbours] != image_of[None, :, None]).all()
    with refused(TrainingError):
        lemon(images, captions, image_of, np.arange(100), FIXED.model_copy(update={"k": 96}))


def test_embeddings_find_the_pairs_that_noise_moved(tmp_path):
    clean = load_dataset("digits", split="train")
    random = np.random.default_rng(0)
    images = random.standard_normal((clean.n_images, 16)).astype(np.float32)
    captions = images[clean.caption_to_image] + random.standard_normal((len(clean), 16)).astype(np.float32)
    for name, side in (("images", images), ("captions", captions)):
        np.save(tmp_path / f"{name}.npy", side)
    files = [str(tmp_path / name) for name in ("images.npy", "captions.npy")]
    to = tmp_path / "audit"
    command = ["audit", *files, "--method", "lemon", "--dataset", "digits", "--noise-ratio", "0.4"]
    invoke(*command, "--to", to, "--device", "cpu")
    table = pd.read_parquet(to / "pairs.parquet")
    noisy = load_dataset("digits", split="train", noise_ratio=0.4)
    found = lemon(images, captions, noisy.caption_to_image, np.arange(len(noisy)))
    assert_near(-table["lemon"], found.score, 1e-4)
    result = read_result(to)
    truth = true_correspondence(noisy)
    assert result.detection["lemon"].auroc == pytest.approx(roc_auc_score(truth, table["lemon"]))
    assert result.detection["lemon"].auroc > 0.95
    assert result.detection["lemon"].own is None
    fitting = table["better_1"][0]
    others = np.flatnonzero(noisy.caption_to_image != noisy.caption_to_image[0])
    unit = captions / np.linalg.norm(captions, axis=1, keepdims=True)
    assert fitting in others
    image = images[noisy.caption_to_image[0]]
    assert unit[fitting] @ image >= unit[0] @ image * (table["rank"][0] > 1)
    page = (to / "index.html").read_text()
    assert "ordered by LEMoN with its fixed setting (30 neighbours, none of the own image" in page
    with refused(TrainingError):
        apply_audit(to, tmp_path / "cleaned")
    middle = float(table["lemon"].median())
    assert (
        apply_audit(to, tmp_path / "cleaned", threshold=middle, sure=True).n_kept
        == (table["lemon"] > middle).sum()
    )


def test_what_lemon_cannot_read_is_refused(tmp_path):
    spec = dataset_spec("digits")
    images, captions = (np.ones((n, 4), np.float32) for n in (spec.images["train"], spec.n_captions("train")))
    captions[3] = 0
    for name, side in (("images", images), ("captions", captions)):
        np.save(tmp_path / f"{name}.npy", side)
    files = [str(tmp_path / name) for name in ("images.npy", "captions.npy")]
    for arguments in (
        (*files, "--dataset", "digits"),
        (files[0], "--dataset", "digits", "--method", "lemon"),
        (*files, "--method", "lemon"),
        (*files, "--noise-ratio", "0.4"),
        (*files, "--dataset", "digits", "--method", "lemon"),
        (*files[::-1], "--dataset", "digits", "--method", "lemon"),
    ):
        with refused():
            invoke("audit", *arguments, "--to", tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_vectors_of_any_length_are_scaled(tmp_path):
    dev = load_dataset("digits", split="dev")
    sides = [np.random.default_rng(0).standard_normal((n, 3)) for n in (dev.n_images, len(dev))]
    means = []
    for factor in (1, 1e100, 1e-100):
        for side, name in zip(sides, "ab", strict=True):
            np.save(tmp_path / f"{name}.npy", side * factor)
        result = write_lemon(
            (tmp_path / "a.npy", tmp_path / "b.npy"), tmp_path / str(factor), dev, device="cpu"
        )
        means.append(pd.read_parquet(tmp_path / str(factor) / "pairs.parquet")["lemon"].mean())
        assert result.lemon is not None
    np.testing.assert_allclose(means, means[0], rtol=1e-6)


def test_an_audit_compares_the_files_of_the_training_split_with_their_hashes(tmp_path, monkeypatch):
    compared = []

    def refuse(name, root, split, **_):
        compared.append((name, root, split))
        raise DataError("train.npy is not the file that was written")

    monkeypatch.setattr(baselines.audit.report, "refuse_damage", refuse)
    train = load_dataset("digits", split="train")
    with refused(DataError):
        write_lemon((tmp_path, tmp_path), tmp_path / "to", train, root=tmp_path)
    assert compared == [("digits", tmp_path, "train")]
