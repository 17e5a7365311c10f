"""load_dataset: names, noise on train alone, noise files, prepared folders, the hidden truth."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ncl_bench
from ncl_bench.data import DATASETS, true_correspondence
from ncl_bench.data.load import load_dataset
from ncl_bench.errors import DataError, NclBenchError, NoiseError
from ncl_bench.noise.draw import noise_sha256

DIGITS = DATASETS["digits"]


def test_clean_data_says_so() -> None:
    for split in ("train", "dev", "test"):
        dataset = load_dataset("digits", split=split)
        np.testing.assert_array_equal(dataset.caption_to_image, np.arange(len(dataset)) // 5)
        assert (dataset.noise.unit, dataset.noise.ratio, dataset.noise.realised_ratio) == (None, 0.0, 0.0)
        assert dataset.noise.sha256 == noise_sha256(dataset.caption_to_image)
        assert (dataset.name, dataset.split, len(dataset)) == ("digits", split, DIGITS.n_captions(split))


@pytest.mark.parametrize("unit", ["caption", "image"])
def test_noise_is_that_of_the_standard_seed(unit) -> None:
    dataset = load_dataset("digits", noise_ratio=0.4, noise_unit=unit)
    expected, record = DIGITS.draw_noise(noise_ratio=0.4, noise_unit=unit, seed=0)
    np.testing.assert_array_equal(dataset.caption_to_image, expected)
    assert dataset.noise == record
    assert dataset.noise.seed == 0
    clean = load_dataset("digits")
    assert dataset.fingerprint == clean.fingerprint
    assert list(dataset.captions) == list(clean.captions)
    other = load_dataset("digits", noise_ratio=0.4, noise_unit=unit, noise_seed=1)
    assert other.noise.sha256 != dataset.noise.sha256


@pytest.mark.parametrize("split", ["dev", "test"])
def test_dev_and_test_are_never_touched(split: str, tmp_path: Path) -> None:
    np.save(tmp_path / "index.npy", DIGITS.draw_noise(noise_ratio=0.2, noise_unit="caption")[0])
    for noise in ({"noise_ratio": 0.2}, {"noise_file": tmp_path / "index.npy"}):
        with pytest.raises(NoiseError, match=f"requested for digits/{split}, but only train is corrupted"):
            load_dataset("digits", split=split, **noise)


@pytest.mark.parametrize("name", ["cc152k", "now"])
def test_natural_noise_takes_no_synthetic_noise(name: str) -> None:
    with pytest.raises(NoiseError, match=f"{name} carries natural noise, and synthetic noise on top"):
        load_dataset(name, noise_ratio=0.2)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"name": "f30k"},
            rf"unknown dataset 'f30k'; did you mean flickr30k\? Choose one of: {', '.join(sorted(DATASETS))}",
        ),
        ({"split": "val"}, "split is 'val', expected one of: train, dev, test"),
        ({"language": "de"}, "unknown language of digits 'de'; choose one of: en, zh"),
        ({"tokenizer": "spaces"}, "unknown tokenizer of digits 'spaces'; choose one of: jieba, word"),
        ({"preload": "gpu"}, "preload is 'gpu', expected one of: ram or None"),
        ({"noise_file": np.arange(10)}, r"noise_file is ndarray of shape \(10,\), expected a path"),
    ],
)
def test_unknown_names_list_the_known(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        load_dataset(**{"name": "digits", **options})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"noise_ratio": "0.4"}, "noise_ratio is '0.4', expected a number or None"),
        ({"noise_ratio": True}, "noise_ratio is True, expected a number"),
        ({"noise_ratio": 1}, r"noise_ratio=1.0: expected a number in \[0, 1\)"),
        ({"noise_ratio": 0.4, "noise_seed": "zero"}, "noise_seed is 'zero', expected a whole number or None"),
        ({"noise_ratio": 0.4, "noise_seed": -1}, "noise_seed=-1: expected a whole number in"),
        ({"noise_unit": "captions"}, "unknown noise unit 'captions'; did you mean caption"),
        ({"noise_unit": "image"}, "noise_unit='image' has no effect without noise; give noise_ratio=0.4"),
        ({"noise_seed": 3}, "noise_seed=3 has no effect without noise"),
        ({"split": "dev", "noise_seed": 3}, "noise_seed=3 has no effect without noise"),
    ],
)
def test_noise_settings_that_mean_nothing_are_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(NclBenchError, match=sentence):
        load_dataset("digits", **options)


def test_a_ratio_of_zero_takes_the_settings_of_the_other_ratios() -> None:
    clean = load_dataset("digits", noise_ratio=0.0, noise_unit="image", noise_seed=3)
    assert clean.noise == load_dataset("digits").noise


def test_noise_file_is_used_and_recorded(tmp_path: Path) -> None:
    path = tmp_path / "index.npy"
    expected, drawn = DIGITS.draw_noise(noise_ratio=0.6, noise_unit="caption", seed=77)
    np.save(path, expected)
    for ratio in (0.0, 0.6):
        dataset = load_dataset("digits", noise_file=path, noise_ratio=ratio)
        np.testing.assert_array_equal(dataset.caption_to_image, expected)
        assert dataset.noise == replace(drawn, unit="file", seed=None, source=str(path))
    for options, words in (
        ({"noise_ratio": 0.4}, r"noise_ratio is 0\.4, noise file .*index\.npy carries 0\.6"),
        ({"noise_seed": 3}, r"noise_seed is 3 and noise_file is .*; give one of them"),
        ({"noise_unit": "image"}, "moves captions one by one"),
        ({"noise_ratio": 0.6, "noise_file": tmp_path / "absent.npy"}, r"absent\.npy does not exist"),
    ):
        with pytest.raises(NoiseError, match=words):
            load_dataset("digits", **{"noise_file": path} | options)


def test_without_a_root_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NCL_BENCH_DATA", raising=False)
    with pytest.raises(
        DataError, match=r"prepare flickr30k`, then name its --to folder with root= or NCL_BENCH_DATA"
    ):
        load_dataset("flickr30k")
    for root in (tmp_path, tmp_path / "absent"):
        with pytest.raises(DataError, match="is not a prepared dataset"):
            load_dataset("flickr30k", root=root)


def test_truth_agrees_with_the_realised_ratio_and_survives_subsetting() -> None:
    dataset = load_dataset("digits", noise_ratio=0.6)
    truth = true_correspondence(dataset)
    assert truth.dtype == np.bool_
    assert 1 - truth.mean() == pytest.approx(dataset.noise.realised_ratio)
    np.testing.assert_array_equal(truth, dataset.caption_to_image == np.arange(10_000) // 5)
    rows = np.random.RandomState(0).permutation(10_000)[:300]
    np.testing.assert_array_equal(true_correspondence(dataset.subset(rows)), truth[rows])
    np.testing.assert_array_equal(true_correspondence(dataset.shard(4, 3)), truth[7_500:])
    part = dataset.first_images(50)
    np.testing.assert_array_equal(true_correspondence(part), truth[part.pair_ids])


def test_truth_of_natural_noise_is_unknown() -> None:
    dataset = load_dataset("digits", split="dev")
    assert true_correspondence(replace(dataset, name="now")).all()
    with pytest.raises(DataError, match="now/train carries natural noise, so its true correspondence is"):
        true_correspondence(replace(dataset, name="now", split="train"))


def test_every_public_name_is_there() -> None:
    for name in ncl_bench.__all__:
        assert getattr(ncl_bench, name) is not None
        assert name in dir(ncl_bench)
    with pytest.raises(AttributeError, match="has no attribute 'load'"):
        _ = ncl_bench.load  # type: ignore[attr-defined]
