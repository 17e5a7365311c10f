import json

import numpy as np
import pytest
from support.refusals import refused

import ncl_bench
from ncl_bench.errors import ScoresError
from ncl_bench.evaluation import hubs


def slow(scores, captions, images, weight, neighbours):
    """The formula, one pair at a time."""
    result = np.empty(scores.shape)
    for i, c in np.ndindex(*scores.shape):
        of_image = np.mean(sorted(captions[i].tolist())[-neighbours:])
        of_caption = np.mean(sorted(images[:, c].tolist())[-neighbours:])
        result[i, c] = float(scores[i, c]) - weight / 2 * of_image - weight / 2 * of_caption
    return result


def similarities(dtype):
    random = np.random.default_rng(0)
    scores, captions, images = (
        random.standard_normal(shape).astype(dtype) for shape in ((12, 60), (12, 41), (33, 60))
    )
    return scores, captions, images


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f4"])
@pytest.mark.parametrize(("weight", "neighbours"), [(0.0, 1), (0.5, 10), (1.5, 33)])
def test_the_formula_pair_by_pair(dtype, weight, neighbours, monkeypatch):
    monkeypatch.setattr(hubs, "ROWS_AT_ONCE", 5)
    given = similarities(dtype)
    found = ncl_bench.without_hubs(*given, weight, neighbours)
    np.testing.assert_allclose(found, slow(*given, weight, neighbours), rtol=1e-6, atol=1e-6)
    assert found.dtype == (np.float64 if dtype is np.float64 else np.float32)


def test_blocks_files_and_tensors_do_not_change_bits(tmp_path, monkeypatch):
    given = similarities(np.float32)
    whole = ncl_bench.without_hubs(*given)
    monkeypatch.setattr(hubs, "ROWS_AT_ONCE", 7)
    paths = [tmp_path / f"{number}.npy" for number in range(3)]
    for path, values in zip(paths, given, strict=True):
        np.save(path, np.asfortranarray(values))
    assert np.array_equal(ncl_bench.without_hubs(*paths), whole)
    torch = pytest.importorskip("torch")
    assert np.array_equal(ncl_bench.without_hubs(*map(torch.from_numpy, given)), whole)


def test_a_caption_near_every_image_is_no_longer_the_first_answer():
    angles = np.linspace(0, 2 * np.pi, 8, endpoint=False)
    images = np.column_stack([np.cos(angles), np.sin(angles), np.ones(8)])
    captions = images.copy()
    captions[0, 2] = 3.0
    scores = images @ captions.T
    assert (scores.argmax(axis=1) == 0).all()
    found = ncl_bench.without_hubs(scores, images @ images.T, images @ captions.T, 2.0, 8)
    assert (found.argmax(axis=1) == np.arange(8)).all()


@pytest.mark.parametrize(
    ("place", "damaged"),
    [
        (1, lambda a: a[:1]),  # numpy would repeat the row
        (2, lambda a: a.T),
        (0, lambda a: a.astype(complex)),  # numpy would drop the imaginary part
        (1, lambda a: a[:, 0]),
        (1, lambda a: a[0, 0]),
        (1, lambda a: a.astype(str)),
        (2, lambda a: a[:9]),
        (1, lambda a: a[:, :9]),
    ],
)
def test_banks_that_do_not_fit_are_refused(place, damaged):
    given = list(similarities(np.float32))
    given[place] = damaged(given[place])
    with refused(ScoresError):
        ncl_bench.without_hubs(*given, 1.0, 10)


def of_digits(folder):
    """Files of similarities of the test split, and to a bank."""
    random = np.random.default_rng(1)
    arrays = [random.random(shape, np.float32) for shape in ((200, 1000), (200, 60), (70, 1000))]
    arrays[0][np.arange(1000) // 5, np.arange(1000)] += 0.3
    paths = [folder / f"{name}.npy" for name in ("scores", "to_captions", "from_images")]
    for path, array in zip(paths, arrays, strict=True):
        np.save(path, array)
    return arrays, paths


@pytest.mark.parametrize(
    ("options", "weight", "neighbours"),
    [((), 1.0, 10), (("--weight", 0.5), 0.5, 10), (("--weight", 1.5, "--neighbours", 50), 1.5, 50)],
)
def test_a_terminal_takes_the_bank_as_files(options, weight, neighbours, run, tmp_path):
    arrays, (scores, *bank) = of_digits(tmp_path)
    ran = run("evaluate", scores, "--dataset", "digits", "--bank", *bank, *options, "--json")
    assert ran.code == 0
    wanted = ncl_bench.evaluate(ncl_bench.without_hubs(*arrays, weight, neighbours), dataset="digits")
    assert json.loads(ran.out) == json.loads(wanted.to_json())
    assert wanted.r_sum != ncl_bench.evaluate(arrays[0], dataset="digits").r_sum


@pytest.mark.parametrize(
    "given",
    [
        ("--bank", "to_captions.npy", "to_captions.npy"),
        ("--bank", "from_images.npy", "to_captions.npy"),
        ("--bank", "to_captions.npy", "from_images.npy", "--t2i", "scores.npy"),
        ("--weight", 1),
        ("--bank", "to_captions.npy", "from_images.npy", "--neighbours", 61),
    ],
)
def test_at_a_terminal_a_bank_that_does_not_fit_is_refused(given, run, tmp_path):
    _, (scores, *_) = of_digits(tmp_path)
    files = [tmp_path / each if str(each).endswith(".npy") else each for each in given]
    run("evaluate", scores, "--dataset", "digits", *files).assert_refused()
