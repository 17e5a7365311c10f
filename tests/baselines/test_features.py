"""From images to the folder that ``prepare`` reads: contents, resuming, refusals."""

import hashlib
import os
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.drawings import SIZE, draw, drawing, tiny_encoder
from support.refusals import refused
from support.rounding import assert_near

import baselines.features as module
from baselines.features import FeatureOptions, ImageList, extract, list_images
from ncl_bench.data.encoding import Encoding
from ncl_bench.data.pictures import read_picture
from ncl_bench.errors import DataError

OPTIONS = FeatureOptions(grid=2, batch_size=3, dtype="float32")
SPLITS = ("train", "dev", "test")


def contents(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def rows_of(folder):
    """Image to its features, of all splits."""
    found = {}
    for split in SPLITS:
        names = (folder / f"{split}_ids.txt").read_text().splitlines()
        features = np.load(folder / f"{split}_ims.npy")
        found |= dict(zip(names, features, strict=True))
    return found


def defined_features(path, grid):
    """One image's features from the definition: a loop over regions, each the mean of the cells that touch it."""
    encoder = tiny_encoder()
    seen = (read_picture(path, "", SIZE, encoder.interpolation).astype(np.float32) - 127) / 128
    weight = encoder.network.stem.weight.detach().numpy()
    blocks = seen.reshape(4, 4, 4, 4, 3)  # of rows, within them, of columns, within them, colours
    cells = np.einsum("ryqxc,dcyx->rqd", blocks, weight)
    regions = []
    for row in range(grid):
        for column in range(grid):
            rows = slice(row * 4 // grid, -(-(row + 1) * 4 // grid))
            columns = slice(column * 4 // grid, -(-(column + 1) * 4 // grid))
            regions.append(cells[rows, columns].reshape(-1, 5).mean(axis=0))
    return np.array(regions)


def encode(source, to, **options):
    return extract(source, tiny_encoder(), to, replace(OPTIONS, **options))


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 14)  # four batches of three
    draw(tmp_path / "photos", 20)
    return list_images(tmp_path / "photos")


@pytest.mark.parametrize("grid", [1, 2, 3, 4])
def test_features_are_those_of_the_definition(grid, photos, tmp_path):
    done = extract(photos, tiny_encoder(), tmp_path / "out", replace(OPTIONS, grid=grid), workers=3)
    found = rows_of(tmp_path / "out")
    assert sorted(found) == photos.names
    for name, features in found.items():
        assert_near(features, defined_features(photos.folder / name, grid), 1e-4)
    assert (done.images, done.feature_dim, done.skipped) == ({"train": 16, "dev": 2, "test": 2}, 5, {})
    assert Encoding.model_validate_json((tmp_path / "out" / "features.json").read_bytes()) == done
    assert not list(tmp_path.glob(".*"))


class Stopped(Exception):
    pass


def stops_after(images):
    """A progress that stops the work once some images are done."""

    def advance(amount):
        nonlocal images
        images -= amount
        if images < 0:
            raise Stopped

    return lambda title, total: nullcontext(advance)


def names_read(monkeypatch):
    """The pictures that are read from now on."""
    read, decoded = [], module.decoded

    def noted(function, items, *arguments, **options):
        for (_, path), seen in zip(items, decoded(function, items, *arguments, **options), strict=True):
            read.append(path.name)
            yield seen

    monkeypatch.setattr(module, "decoded", noted)
    return read


@pytest.mark.parametrize("pca", [None, 3])
@pytest.mark.parametrize("after", [1, 11, 12, 13, 19, 20, 30, 41])
def test_a_stopped_run_goes_on_to_the_same_bytes(after, pca, photos, tmp_path, monkeypatch):
    options = replace(OPTIONS, pca=pca)
    extract(photos, tiny_encoder(), tmp_path / "whole", options)
    if pca is None and after == 41:
        return  # it has ended by then
    with pytest.raises(Stopped):
        extract(photos, tiny_encoder(), tmp_path / "stopped", options, progress=stops_after(after))
    assert not (tmp_path / "stopped").exists()
    read = names_read(monkeypatch)
    extract(photos, tiny_encoder(), tmp_path / "stopped", options)
    chunk = 12
    assert len(read) == 20 - min(20, after // chunk * chunk if after < 20 else 20)
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")


def test_the_same_command_again_does_nothing_and_another_is_refused(photos, tmp_path, monkeypatch):
    done = encode(photos, tmp_path / "out")
    monkeypatch.setattr(module, "_encode", None)
    (tmp_path / ".out.partial").mkdir()  # as after a kill between its last two steps
    assert encode(photos, tmp_path / "out") == done
    assert not (tmp_path / ".out.partial").exists()
    for weights, other in (
        ("tiny", replace(OPTIONS, pca=2)),
        ("tiny", replace(OPTIONS, seed=1)),
        ("other", OPTIONS),
    ):
        with refused(DataError):
            extract(photos, tiny_encoder(weights), tmp_path / "out", other)
    (tmp_path / "full").mkdir()
    with refused(DataError):
        encode(photos, tmp_path / "full")


def test_a_mended_file_costs_its_chunk_alone(photos, tmp_path, monkeypatch):
    bad = photos.folder / "013.png"
    whole = bad.read_bytes()
    bad.write_bytes(whole[:40])
    with refused(DataError):
        encode(photos, tmp_path / "out")
    bad.write_bytes(whole)
    os.utime(bad, ns=(1, 1))
    read = names_read(monkeypatch)
    encode(photos, tmp_path / "out")
    assert sorted(read) == photos.names[12:]


def test_what_cannot_be_read_is_left_out_and_listed(photos, tmp_path):
    (photos.folder / "003.png").write_bytes(b"")
    (photos.folder / "notes.txt").write_text("hello")
    listing = list_images(photos.folder)
    with refused(DataError):
        encode(listing, tmp_path / "out")
    done = encode(listing, tmp_path / "out", skip_damaged=True)
    assert list(done.skipped) == ["003.png", "notes.txt"]
    assert all(reason.startswith("is not an image of a known format") for reason in done.skipped.values())
    found = rows_of(tmp_path / "out")
    assert sorted(found) == [name for name in photos.names if name != "003.png"]
    for name, features in found.items():
        assert_near(features, defined_features(photos.folder / name, 2), 1e-4)


def test_a_pipe_among_the_pictures_is_not_waited_for(photos, tmp_path):
    os.mkfifo(photos.folder / "pipe.png")
    listing = ImageList(photos.folder, [*photos.names, "pipe.png"], None)
    done = encode(listing, tmp_path / "out", skip_damaged=True)
    assert list(done.skipped) == ["pipe.png"]


def test_given_splits_are_kept(photos, tmp_path):
    splits = {"train": ["004.png", "001.png"], "dev": ["003.png"], "test": ["000.png", "002.png"]}
    listing = ImageList(photos.folder, [name for names in splits.values() for name in names], splits)
    done = encode(listing, tmp_path / "out")
    for split, names in splits.items():
        assert (tmp_path / "out" / f"{split}_ids.txt").read_text().splitlines() == names
    assert done.splits == "given"
    (photos.folder / "003.png").write_bytes(b"")
    with refused(DataError):
        encode(listing, tmp_path / "other", skip_damaged=True)


def test_the_projection_is_that_of_the_training_images(photos, tmp_path):
    encode(photos, tmp_path / "plain")
    done = encode(photos, tmp_path / "out", pca=2)
    plain, found = rows_of(tmp_path / "plain"), rows_of(tmp_path / "out")
    train = np.load(tmp_path / "plain" / "train_ims.npy").reshape(-1, 5).astype(np.float64)
    mean = train.mean(axis=0)
    _, values, axes = np.linalg.svd(train - mean, full_matrices=False)
    for name, features in found.items():
        expected = (plain[name] - mean) @ axes[:2].T
        assert_near(np.abs(features), np.abs(expected), 1e-3)
    variance = (values[:2] ** 2).sum() / (values**2).sum()
    assert done.feature_dim == done.pca.dim == 2
    assert done.pca.fitted_on == 16
    assert done.pca.variance == pytest.approx(variance, abs=1e-5)


def test_options_that_do_not_fit_the_encoder_are_refused(photos, tmp_path):
    with refused(DataError):
        encode(photos, tmp_path / "out", grid=5)
    with refused(DataError):
        encode(photos, tmp_path / "out", pca=6)
    loud = tiny_encoder("loud")
    with torch.no_grad():
        loud.network.stem.bias.fill_(1e5)
    with refused(DataError):
        extract(photos, loud, tmp_path / "out", replace(OPTIONS, dtype="float16"))
    with torch.no_grad():
        loud.network.stem.bias.fill_(np.nan)
    loud = replace(loud, weights_sha256=hashlib.sha256(b"damaged").hexdigest())
    with refused(DataError):
        extract(photos, loud, tmp_path / "other", OPTIONS)
    assert not (tmp_path / "out").exists()


def test_half_precision_rounds_and_a_picture_changes_its_own_features_alone(photos, tmp_path):
    """Which images share a batch depends on the list alone, and a batch on none of its other images' pixels."""
    encode(photos, tmp_path / "single")
    encode(photos, tmp_path / "half", dtype="float16")
    drawing(99).save(photos.folder / "007.png")
    encode(photos, tmp_path / "changed")
    single, half, changed = (rows_of(tmp_path / name) for name in ("single", "half", "changed"))
    for name in photos.names:
        np.testing.assert_array_equal(half[name], single[name].astype(np.float16))
        assert np.array_equal(single[name], changed[name]) == (name != "007.png")


@pytest.mark.gpu
def test_a_gpu_gives_the_same_features(photos, tmp_path):
    encode(photos, tmp_path / "cpu")
    encoder = tiny_encoder()
    encoder.network.cuda()
    done = extract(photos, encoder, tmp_path / "gpu", OPTIONS)
    assert done.device == torch.cuda.get_device_name()
    on_cpu, on_gpu = rows_of(tmp_path / "cpu"), rows_of(tmp_path / "gpu")
    for name in photos.names:
        assert_near(on_gpu[name], on_cpu[name], 1e-4)
