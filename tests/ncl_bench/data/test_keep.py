"""Pairs to keep: a subset after the noise, refused for other data."""

import json
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ncl_bench.data.keep import Kept, write_keep
from ncl_bench.data.load import load_dataset
from ncl_bench.errors import DataError
from ncl_bench.noise.draw import noise_sha256

IDS = np.array([1, 4, 9_999])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three pairs of digits at 40 % noise."""
    noisy = load_dataset("digits", noise_ratio=0.4)
    kept = Kept(
        dataset="digits",
        fingerprint=noisy.fingerprint,
        noise=noisy.noise,
        n_pairs=len(noisy),
        n_kept=len(IDS),
        sha256=noise_sha256(IDS),
        chosen_by="clean_probability",
        threshold=0.5,
        runs=("runs/ncr",),
    )
    write_keep(tmp_path / "cleaned", IDS, kept)
    return tmp_path / "cleaned"


def test_it_is_a_subset_after_the_noise_and_can_be_pickled(folder: Path) -> None:
    noisy, kept = (load_dataset("digits", noise_ratio=0.4, keep=keep) for keep in (None, folder))
    for again in (kept, pickle.loads(pickle.dumps(kept))):
        assert again.pair_ids.tolist() == IDS.tolist()
        np.testing.assert_array_equal(again.caption_to_image, noisy.caption_to_image[IDS])
        assert (again.noise, again.fingerprint) == (noisy.noise, noisy.fingerprint)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "digits"}, "belongs to data with another noise"),
        ({"name": "digits", "noise_ratio": 0.4, "noise_seed": 1}, "belongs to data with another noise"),
        ({"name": "pictograms", "noise_ratio": 0.4}, "another dataset ('digits' there, 'pictograms' here)"),
        ({"name": "digits", "split": "dev"}, "keep lists pairs of train, not of dev"),
        ({"name": "digits", "keep": 3}, "keep is 3, expected a path"),
    ],
)
def test_other_data_are_refused(folder: Path, options: dict, message: str) -> None:
    with pytest.raises(DataError) as refused:
        load_dataset(**{"keep": folder} | options)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("keep.csv", "pair_id\n1\n4\n", "keep.csv does not hold the pairs that keep.json states"),
        ("keep.csv", "pair_id\n1\nfour\n", "keep.csv line 3: 'four' is no pair id"),
        ("keep.csv", None, "keep.csv does not exist"),
        ("keep.json", "{}", "keep.json: key 'dataset' is missing"),
        ("keep.json", "{", "keep.json is damaged"),
    ],
)
def test_damaged_files_are_named(folder: Path, file: str, content: str | None, message: str) -> None:
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content)
    with pytest.raises(DataError) as refused:
        load_dataset("digits", noise_ratio=0.4, keep=folder)
    assert message in str(refused.value)
    assert "audit apply" in str(refused.value)


@pytest.mark.parametrize(
    ("stated", "ids"),
    [
        ({"n_kept": 2}, IDS),
        ({"n_kept": 9_000}, IDS),
        ({"n_pairs": 2}, IDS),
        ({"n_pairs": 10_001}, IDS),
        ({}, [1, 4, 10_000]),
        ({}, [1, 4, 4]),
        ({"n_kept": 2}, [1, 4, 4]),
    ],
)
def test_another_number_of_pairs_than_stated_is_refused(
    folder: Path, stated: dict, ids: Sequence[int]
) -> None:
    said = json.loads((folder / "keep.json").read_text()) | {"sha256": noise_sha256(np.array(ids))} | stated
    (folder / "keep.json").write_text(json.dumps(said))
    (folder / "keep.csv").write_text("pair_id\n" + "".join(f"{pair}\n" for pair in ids))
    n_kept, n_pairs = f"{said['n_kept']:,}", f"{said['n_pairs']:,}"
    with pytest.raises(DataError, match=f"keep.csv holds 3 pairs, . of them .* states {n_kept} of {n_pairs}"):
        load_dataset("digits", noise_ratio=0.4, keep=folder)


def test_a_list_that_is_too_long_is_not_read(folder: Path) -> None:
    (folder / "keep.csv").write_text("pair_id\n" + "1\n" * 200_000)
    with pytest.raises(
        DataError, match=r"keep\.csv has 400,008 bytes, expected at most 210,021; write it again"
    ):
        load_dataset("digits", noise_ratio=0.4, keep=folder)


def test_another_fingerprint_is_refused(folder: Path) -> None:
    said = json.loads((folder / "keep.json").read_text())
    (folder / "keep.json").write_text(json.dumps(said | {"fingerprint": "0123456789abcdef" * 4}))
    with pytest.raises(DataError, match="belongs to data with another fingerprint"):
        load_dataset("digits", noise_ratio=0.4, keep=folder)


def test_an_existing_folder_is_not_overwritten(folder: Path) -> None:
    said = Kept.model_validate(json.loads((folder / "keep.json").read_text()))
    with pytest.raises(DataError, match="exists already; choose a new folder with --to"):
        write_keep(folder, IDS, said)
