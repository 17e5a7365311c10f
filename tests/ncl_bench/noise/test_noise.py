"""Noise: published hashes, golden arrays, invariants, files that are refused, and what an index is."""

import hashlib
import io
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import miniatures
from support.command import invoke
from support.damaged import NPY, assert_damage_is_refused, npy, was_read
from support.refusals import refused

from ncl_bench.data import DATASETS
from ncl_bench.errors import NoiseError
from ncl_bench.noise import UNITS, Unit, register
from ncl_bench.noise.draw import clean_pairing, inject_noise, noise_sha256
from ncl_bench.noise.files import KnownNoise, find_known_noise, nominal_ratios, read_noise_file
from ncl_bench.noise.identify import identify as identify_among

DIGITS, FLICKR30K = DATASETS["digits"], DATASETS["flickr30k"]
identify = partial(identify_among, datasets=DATASETS.values())
KNOWN_NOISE = [(spec.name, file) for spec in DATASETS.values() for file in spec.noise_files]
OF_CAPTIONS = [(dataset, file) for dataset, file in KNOWN_NOISE if file.unit == "caption"]
CAPTION_FILES = {(dataset, file.ratio, file.seed): file for dataset, file in OF_CAPTIONS}


def draw(n_images, each, ratio, seed, unit="caption"):
    clean = clean_pairing(n_images, each)
    return inject_noise(clean, noise_ratio=ratio, noise_unit=unit, seed=seed, captions_per_image=each)


def test_the_standard_seeds_are_those_of_the_protocol():
    seeds = {"flickr30k": [96, 96, 34, 96], "coco": [16, 96, 43, 96]}
    for name, spec in DATASETS.items():
        expected = dict(zip((0.2, 0.4, 0.5, 0.6), seeds.get(name, ()), strict=False))
        for step in range(20):
            assert spec.standard_seed("caption", step / 20) == expected.get(step / 20, 0)
            assert spec.standard_seed("image", step / 20) == 0


def test_published_image_files_are_listed_for_both_datasets_and_five_ratios():
    files = [(dataset, file) for dataset, file in KNOWN_NOISE if file.unit == "image"]
    assert {(dataset, file.ratio) for dataset, file in files} == {
        (dataset, ratio) for dataset in ("flickr30k", "coco") for ratio in (0.2, 0.4, 0.5, 0.6, 0.8)
    }
    assert all(len(file.sha256) == 16 and file.seed is None for _, file in files)
    assert len({file.sha256 for _, file in KNOWN_NOISE}) == len(KNOWN_NOISE)


def test_a_published_file_is_named_by_its_hash_and_other_noise_is_not():
    _, record = FLICKR30K.draw_noise(noise_ratio=0.4, noise_unit="caption")
    known = find_known_noise(record.sha256, FLICKR30K)
    assert known.title == "f30k_precomp_0.4.npy of BiCro and PC2"
    for dataset, file in KNOWN_NOISE:
        assert find_known_noise(file.sha256.ljust(64, "0"), DATASETS[dataset]) == file
    for unit, seed in (("caption", 7), ("image", None)):
        _, record = FLICKR30K.draw_noise(noise_ratio=0.4, noise_unit=unit, seed=seed)
        assert find_known_noise(record.sha256, FLICKR30K) is None


def test_golden_arrays(golden):
    arrays = golden("H_noise")
    n_images, each = int(arrays["n_images"]), int(arrays["per_image"])
    assert n_images * each == arrays["n_captions"]
    checked = 0
    for name in arrays:
        level, _, rest = name.partition(".seed")
        if not rest.endswith(".index") or level == "image_level_gsc":
            continue
        seed, _, ratio = rest.removesuffix(".index").partition(".ratio")
        unit = "caption" if level == "caption_level" else "image"
        noisy = draw(n_images, each, float(ratio), int(seed), unit)
        expected = arrays[name] if unit == "caption" else np.repeat(arrays[name], each)
        np.testing.assert_array_equal(noisy, expected)
        stem = name.removesuffix("index")
        assert int((noisy != clean_pairing(n_images, each)).sum()) == arrays[stem + "n_wrong"]
        checked += 1
    assert checked == 2 * len(arrays["seeds"]) * len(arrays["ratios"])


def test_golden_published_files(golden):
    arrays = golden("H_noise")
    known = set(CAPTION_FILES)
    for row, name in enumerate(arrays["published.names"].tolist()):
        dataset = "coco" if name.startswith("coco") else "flickr30k"
        ratio, seed = float(arrays["published.nominal_ratio"][row]), int(arrays["published.numpy_seed"][row])
        noisy, record = DATASETS[dataset].draw_noise(noise_ratio=ratio, noise_unit="caption", seed=seed)
        file = CAPTION_FILES[dataset, ratio, seed]
        known.discard((dataset, ratio, seed))
        assert record.sha256 == file.sha256 == noise_sha256(noisy)
        assert find_known_noise(record.sha256, DATASETS[dataset]) == file
        content = io.BytesIO()
        np.save(content, noisy)
        assert len(content.getvalue()) == arrays["published.n_bytes"][row]
        assert hashlib.sha256(content.getvalue()).hexdigest() == arrays["published.sha256"][row]
        assert record.realised_ratio == pytest.approx(arrays["published.effective_rate"][row], abs=1e-12)
        stem = name.removesuffix(".npy")
        positions = arrays[f"published.{stem}.positions"]
        np.testing.assert_array_equal(noisy[positions], arrays[f"published.{stem}.values"])
    assert not known


sizes = st.tuples(st.integers(1, 40), st.integers(1, 5), st.floats(0, 0.99), st.integers(0, 2**32 - 1))


@given(sizes, st.sampled_from(["caption", "image"]))
def test_noise_permutes_images_and_moves_no_more_than_asked(size, unit):
    n_images, each, ratio, seed = size
    clean = clean_pairing(n_images, each)
    before = clean.copy()
    np.random.seed(seed)
    try:
        noisy = draw(n_images, each, ratio, seed, unit)
    except NoiseError as error:  # too few units, or a shuffle that changed nothing
        sentence = str(error)
    else:
        sentence = ""
    if sentence:
        assert ratio > 0
        assert "moves none of" in sentence
        return
    np.testing.assert_array_equal(np.sort(noisy), clean)
    n_units = n_images if unit == "image" else n_images * each
    moved = (noisy != clean).sum() // (each if unit == "image" else 1)
    assert moved <= int(ratio * n_units)
    assert noisy.dtype == np.int64
    np.testing.assert_array_equal(clean, before)
    # the global generator is left alone
    assert np.random.random_sample() == np.random.RandomState(seed).random_sample()
    if unit == "image":
        assert (noisy.reshape(n_images, each) == noisy[::each, None]).all()


def test_other_ratios_seeds_and_pairings_are_refused():
    for ratio in (1, -0.1, float("nan")):
        with refused(NoiseError):
            draw(10, 5, ratio, 0)
    for seed in (-1, 2**32, 1.5):
        with refused(NoiseError):
            draw(10, 5, 0.2, seed)
    with refused(NoiseError):
        inject_noise(draw(10, 5, 0.5, 0), noise_ratio=0.2, noise_unit="caption", seed=1, captions_per_image=5)


def save(folder, index, name="index.npy"):
    np.save(folder / name, index)
    return folder / name


@pytest.mark.parametrize("unit", ["caption", "image"])
@pytest.mark.parametrize("ratio", [0.0, 0.2, 0.45, 0.6])
def test_a_drawn_file_reads_back(tmp_path, unit, ratio):
    noisy, drawn = DIGITS.draw_noise(noise_ratio=ratio, noise_unit=unit, seed=4)
    forms = [noisy] if unit == "caption" else [noisy, noisy[::5]]
    for form in forms:
        path = save(tmp_path, form)
        index, record = read_noise_file(path, DIGITS, unit)
        np.testing.assert_array_equal(index, noisy)
        assert record.sha256 == drawn.sha256
        assert (record.unit, record.seed, record.source) == (unit if ratio else None, None, str(path))
        assert record.ratio == pytest.approx(ratio)
        assert record.realised_ratio == drawn.realised_ratio


CLEAN = clean_pairing(2000, 5)
NOISY, _ = DIGITS.draw_noise(noise_ratio=0.4, noise_unit="caption", seed=123_456)
OF_IMAGES, _ = DIGITS.draw_noise(noise_ratio=0.4, noise_unit="image", seed=123_456)
RIGHT = NOISY == CLEAN
NOUNS, _ = DIGITS.draw_noise(noise_ratio=0.8, noise_unit="noun")


@pytest.mark.parametrize(
    ("index", "asked", "unit"),
    [
        (NOISY, None, "file"),
        (NOISY, "caption", "file"),
        (NOISY.astype(np.int16), "file", "file"),
        (NOISY.astype(">u4"), None, "file"),
        (OF_IMAGES, None, "file"),
        (OF_IMAGES[::5], "image", "file"),
        (NOUNS, "noun", "file"),
        (NOUNS, "file", "file"),
        (CLEAN, "caption", None),
        (DIGITS.draw_noise(noise_ratio=0.2, noise_unit="caption", seed=7)[0], None, "caption"),
        (DIGITS.draw_noise(noise_ratio=0.2, noise_unit="image")[0], None, "image"),
    ],
)
def test_a_file_of_ones_own_is_noise_of_unit_file(tmp_path, index, asked, unit):
    pairing, record = read_noise_file(save(tmp_path, index), DIGITS, asked)
    expected = np.repeat(index, 5) if len(index) == 2000 else index
    np.testing.assert_array_equal(pairing, expected)
    assert (record.unit, record.seed) == (unit, None)
    assert record.sha256 == noise_sha256(pairing)


shuffled = np.random.RandomState(1).permutation


@pytest.mark.parametrize(
    ("index", "asked"),
    [
        (RIGHT, None),
        (RIGHT.astype(np.uint8), "caption"),
        (RIGHT.astype(np.int64), "file"),
        (RIGHT[::5].astype(np.int64), "image"),
        (np.zeros(10_000, np.int64), "file"),
        (np.where(RIGHT, 1, -1), None),
        (np.where(RIGHT, 255, 0).astype(np.uint8), None),
        (RIGHT + 1, None),
        (CLEAN % 10, "file"),
        (np.arange(2000) % 10, None),
        (NOISY // 2, "noun"),
        (NOISY + 1, None),
        (OF_IMAGES[::5] + 1, "image"),
        (shuffled(10_000), None),
        (shuffled(CLEAN), None),
        (shuffled(2000), "file"),
        (NOUNS, None),
        (np.append(CLEAN[:-1], 0), "caption"),
        (np.append(CLEAN[:-1], 2000), "file"),
        (np.append(CLEAN[:-1], 2**60), "file"),
        (np.append(-1, CLEAN[1:]), None),
        (CLEAN[:-1], None),
        (NOISY[:, None] == CLEAN[None, :3], None),
        (CLEAN.astype(float), None),
        (np.linspace(0, 1, 10_000, dtype=np.float32), None),
        (np.array(["dog.jpg"] * 10_000), None),
        (np.array([{}]), None),
        (np.empty(0, np.int64), None),
        (OF_IMAGES, "caption"),
        (OF_IMAGES[::5], "similar"),
        (NOISY, "image"),
        (NOISY, "word"),
    ],
)
def test_what_is_no_noise_is_told_what_it_is(tmp_path, index, asked):
    with refused(NoiseError):
        read_noise_file(save(tmp_path, index), DIGITS, asked)


def test_one_caption_per_image_has_both_units(tmp_path):
    emoji = DATASETS["pictograms-emoji"]
    n = emoji.images["train"]
    for asked in (None, "caption", "image"):
        drawn, _ = emoji.draw_noise(noise_ratio=0.4, noise_unit="caption", seed=99)
        assert read_noise_file(save(tmp_path, drawn), emoji, asked)[1].unit == "file"
    with refused(NoiseError):
        read_noise_file(save(tmp_path, shuffled(n)), emoji)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "f30k_precomp_0.4",
        "absent.npy",
    ],
)
def test_a_wrong_path_names_the_likely_file(tmp_path, path):
    save(tmp_path, CLEAN, "f30k_precomp_0.4.npy")
    with refused(NoiseError):
        read_noise_file(tmp_path / path, DIGITS, "caption")
    assert [path.name for path in tmp_path.iterdir()] == ["f30k_precomp_0.4.npy"]


def test_a_registered_unit_is_drawn_like_the_others(monkeypatch):
    monkeypatch.setattr(UNITS, "data", dict(UNITS))

    def swap(task):
        task.clean[:2] = 1, 0
        return task.clean

    register(Unit("swap", "first pairs swapped", swap))
    assert draw(10, 1, 0.4, 0, "swap")[:3].tolist() == [1, 0, 2]
    for name in ("caption", "none", "Swap", "two words"):
        with refused():
            register(Unit(name, "", swap))
    UNITS.data["wrong"] = Unit("wrong", "", lambda task: task.clean * 0)
    with refused(NoiseError):
        draw(10, 1, 0.4, 0, "wrong")


def test_identify_a_published_file():
    noisy, record = FLICKR30K.draw_noise(noise_ratio=0.5, noise_unit="caption")
    found = identify(noisy)
    assert found.known_as == "f30k_precomp_0.5.npy of BiCro and PC2"
    assert (found.dataset, found.unit, found.ratio, found.seed) == ("flickr30k", "caption", 0.5, 34)
    assert (found.sha256, found.realised_ratio) == (record.sha256, record.realised_ratio)


def test_identify_a_published_permutation_by_hash():
    noisy, _ = FLICKR30K.draw_noise(noise_ratio=0.4, noise_unit="image", seed=12_345)
    file = KnownNoise("theirs", "image", 0.4, None, noise_sha256(noisy[::5])[:16])
    for index in (noisy, noisy[::5]):
        found = identify(index, datasets=[DIGITS, replace(FLICKR30K, noise_files=(file,))])
        assert (found.known_as, found.unit, found.ratio, found.seed) == ("theirs", "image", 0.4, None)
        assert found.per_image == (len(index) == 29_000)


def test_a_record_tells_a_shared_image_file_from_our_own_draw(tmp_path):
    theirs, _ = FLICKR30K.draw_noise(noise_ratio=0.4, noise_unit="image", seed=12_345)
    file = KnownNoise("theirs", "image", 0.4, None, noise_sha256(theirs[::5])[:16])
    spec = replace(FLICKR30K, noise_files=(file,))
    for index in (theirs, theirs[::5]):
        _, record = read_noise_file(save(tmp_path, index), spec, "image")
        assert (record.published, record.seed) == ("theirs", None)
    ours, drawn = spec.draw_noise(noise_ratio=0.4, noise_unit="image")
    _, record = read_noise_file(save(tmp_path, ours), spec, "image")
    assert (drawn.published, drawn.seed) == (None, 0)
    assert record.published is None


@pytest.mark.parametrize("unit", ["caption", "image"])
@pytest.mark.parametrize(("ratio", "seed"), [(0.2, 0), (0.4, 17), (0.35, 3), (0.42, 1), (0.8, 5)])
def test_identify_finds_unit_ratio_and_seed(unit, ratio, seed):
    noisy, record = DIGITS.draw_noise(noise_ratio=ratio, noise_unit=unit, seed=seed)
    found = identify(noisy, seeds=range(20))
    assert (found.dataset, found.unit, found.ratio, found.seed) == ("digits", unit, ratio, seed)
    assert found.realised_ratio == pytest.approx(record.realised_ratio)
    assert found.balanced
    good = (noisy == CLEAN).reshape(-1, 5).sum(axis=1)
    shares = (np.mean(good == 5), np.mean((good > 0) & (good < 5)), np.mean(good == 0))
    assert (found.all_good, found.some_good, found.none_good) == pytest.approx(shares)
    if unit == "image":
        short = identify(noisy[::5], seeds=range(20))
        assert (short.unit, short.per_image, short.ratio, short.seed) == ("image", True, ratio, seed)
        assert short.none_good == found.none_good


def test_identify_a_clean_an_unknown_and_an_unbalanced_index():
    clean = identify(CLEAN)
    assert (clean.unit, clean.ratio, clean.realised_ratio, clean.all_good) == (None, 0.0, 0.0, 1.0)
    noisy, _ = DIGITS.draw_noise(noise_ratio=0.6, noise_unit="caption", seed=500)
    found = identify(noisy, seeds=range(3))
    assert (found.ratio, found.seed) == (0.6, None)
    index = CLEAN.copy()
    index[:3] = 7
    found = identify(index, seeds=range(2))
    assert (found.unit, found.balanced, found.ratio) == ("caption", False, None)


def test_identify_refuses_what_is_no_index():
    with refused(NoiseError):
        identify(np.arange(777))
    with refused(NoiseError):
        identify(np.arange(777), captions_per_image=5)
    with refused(NoiseError):
        identify(np.append(CLEAN[:-1], 2000))


@given(st.integers(100, 5000), st.sampled_from([0.2, 0.4, 0.5, 0.6, 0.8]))
def test_no_own_image_back_means_the_ratio_itself_is_a_candidate(n_units, ratio):
    assert ratio in nominal_ratios(int(ratio * n_units), n_units)


def run(*arguments):
    return invoke("noise", *arguments).output


def test_make_check_identify(tmp_path):
    path = str(tmp_path / "new" / "index.npy")
    assert "10,000 entries, caption noise of nominal ratio 0.4 with seed 0" in run(
        "make", "digits", "--ratio", "0.4", "--to", path
    )
    np.testing.assert_array_equal(np.load(path), DIGITS.draw_noise(noise_ratio=0.4, noise_unit="caption")[0])
    assert "fits digits/train, caption noise of nominal ratio 0.4" in run(
        "check", path, "--dataset", "digits", "--unit", "caption"
    )
    lines = dict(line.split(None, 1) for line in run("identify", path).splitlines())
    assert (lines["dataset"], lines["unit"], lines["seed"]) == ("digits", "caption", "0")
    by_hand = str(tmp_path / "by_hand.npy")
    # captions are exchanged by twos, as by unit similar, whose texts are not read
    paired = np.arange(10_000) // 5
    paired[:4_000:5] = paired[3_995::-5]
    np.save(by_hand, paired)
    lines = dict(line.split(None, 1) for line in run("identify", by_hand).splitlines())
    assert lines["unit"] == "similar, by what it moves alone"
    image = str(tmp_path / "image.npy")
    run("make", "digits", "--ratio", "0.4", "--unit", "image", "--seed", "9", "--to", image)
    assert sorted(np.load(image)) == list(range(2000))
    assert "one per image" in run("identify", image)
    ran = invoke("noise", "identify", path, "--seeds", "-5", code=2)
    assert "Input should be greater than or equal to 0" in " ".join(ran.output.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["digits", "--ratio", "1.0"],
        ["digits", "--ratio", "0.2", "--unit", "word"],
        ["mnist", "--ratio", "0.2"],
        ["now", "--ratio", "0.2"],
    ],
)
def test_make_refuses_and_writes_nothing(tmp_path, arguments):
    with refused():
        run("make", *arguments, "--to", str(tmp_path / "index.npy"))
    assert not list(tmp_path.iterdir())


def test_make_overwrites_nothing_not_even_what_appears_while_it_draws(tmp_path, monkeypatch):
    path = tmp_path / "index.npy"

    def draw(*arguments, **options):
        path.write_text("another's")
        return inject_noise(*arguments, **options)

    monkeypatch.setattr("ncl_bench.data.spec.inject_noise", draw)
    with refused(NoiseError):
        run("make", "digits", "--ratio", "0.4", "--to", str(path))
    assert path.read_text() == "another's"
    monkeypatch.undo()
    with refused(NoiseError):
        run("make", "digits", "--ratio", "0.4", "--to", str(path))
    assert path.read_text() == "another's"


def test_damaged_noise_files_are_read_or_refused(tmp_path):
    path, spec = tmp_path / "noise.npy", miniatures.SPECS["flickr30k"]
    clean, archive = np.repeat(np.arange(12), 5), io.BytesIO()
    np.savez(archive, a=clean)
    swapped = clean.copy()
    swapped[[0, 30]] = swapped[[30, 0]]

    def read(content):
        path.write_bytes(content)
        was_read(lambda _: read_noise_file(path, spec, "image"), content)
        read_noise_file(path, spec, "caption")

    text = "\n".join(map(str, clean)).encode()
    assert_damage_is_refused([npy(swapped), npy(np.arange(12)[::-1]), archive.getvalue(), text], read, NPY)


@pytest.mark.parametrize("ratio", [1e-9, 2e-4, 0.009])
@pytest.mark.parametrize("unit", ["caption", "image", "similar"])
def test_noise_that_moves_no_pair_is_refused(ratio, unit):
    captions = [f"a dog {number}" for number in range(100)]
    with refused(NoiseError):
        inject_noise(
            np.arange(100),
            noise_ratio=ratio,
            noise_unit=unit,
            seed=0,
            captions_per_image=1,
            captions=captions,
        )
