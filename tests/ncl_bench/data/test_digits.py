"""The embedded digits: the same bytes everywhere, disjoint digits, captions that tell the truth."""

import numpy as np
import pytest
from oracles.digits_reader import matches, read
from sklearn.datasets import load_digits
from support.processes import python

from ncl_bench.data.digits import (
    BLANK_NOISE,
    FEWEST_NAMED,
    FINGERPRINTS,
    GRID,
    LEFT_OUT_SHARE,
    PIXELS,
    POOLS,
    SPEC,
    VAGUE_SHARE,
    digits_split,
)
from ncl_bench.data.embedded import embedded_split
from ncl_bench.data.spec import SPLITS

# Bytes


def hashed(split):
    """The fingerprint of what is composed, in every language."""
    content = digits_split(split)
    return embedded_split(content.image_features, content.image_ids, content.captions).fingerprint


@pytest.mark.parametrize("split", SPLITS)
def test_fingerprint_is_the_published_one(split):
    assert hashed(split) == digits_split(split).fingerprint == FINGERPRINTS[split]


def test_another_process_with_other_global_seeds_composes_the_same_bytes():
    code = (
        "import numpy; numpy.random.seed(5); from ncl_bench.data.digits import digits_split; "
        "from ncl_bench.data.embedded import embedded_split; c = digits_split('dev'); "
        "print(embedded_split(c.image_features, c.image_ids, c.captions).fingerprint)"
    )
    assert python(code, env={"PYTHONHASHSEED": "1"}).stdout.strip() == FINGERPRINTS["dev"]


# Images


def pixels_by_cell(features):
    cells = {tuple((region[PIXELS:] * GRID - 0.5).tolist()): region[:PIXELS] for region in features}
    return {(int(row), int(column)): pixels for (row, column), pixels in cells.items()}


def test_scenes_show_real_digits_of_their_class_from_disjoint_pools():
    digits = load_digits()
    known = {row.tobytes(): label for row, label in zip(digits.data / 16, digits.target, strict=True)}
    assert len(known) == sum(POOLS.values())
    used = {}
    for split in SPLITS:
        content, used[split] = digits_split(split), set()
        for scene, features in zip(content.scenes, content.image_features, strict=True):
            cells = pixels_by_cell(features)
            assert len(cells) == GRID * GRID
            assert 3 <= len(scene) <= 5
            for placed in scene:
                pixels = cells.pop((placed.row, placed.column)).astype(float).tobytes()
                assert known[pixels] == placed.digit
                used[split].add(pixels)
            assert max(blank.max() for blank in cells.values()) <= BLANK_NOISE / 256
        assert len(used[split]) <= POOLS[split]
    assert sum(map(len, used.values())) == len(set.union(*used.values()))
    assert len(used["train"]) > 0.99 * POOLS["train"]


# Captions


@pytest.mark.parametrize("language", SPEC.languages)
@pytest.mark.parametrize("split", SPLITS)
def test_captions_tell_the_truth_about_their_scene(split, language):
    content = digits_split(split)
    left_out, vague, eligible, named_digits = 0, 0, 0, 0
    for number, caption in enumerate(content.captions[language]):
        scene = content.scenes[number // SPEC.captions_per_image]
        named = read(caption, language)
        assert matches(named, scene), caption
        assert len(named) >= max(FEWEST_NAMED, len(scene) - 1), caption
        assert all(row is not None or column is not None for _, row, column in named), caption
        left_out += len(named) < len(scene)
        eligible += len(scene) > FEWEST_NAMED
        vague += sum(row is None or column is None for _, row, column in named)
        named_digits += len(named)
    assert left_out / eligible == pytest.approx(LEFT_OUT_SHARE, abs=0.05)
    assert vague / named_digits == pytest.approx(VAGUE_SHARE, abs=0.03)


# Loading


@pytest.mark.parametrize("language", SPEC.languages)
def test_every_training_word_is_in_the_vocabulary(language):
    train, dev = SPEC.load_embedded("train", language), SPEC.load_embedded("dev", language)
    assert train.vocabulary == dev.vocabulary
    assert train.vocabulary.words[:4] == ("<pad>", "<start>", "<end>", "<unk>")
    assert set(np.unique(train.tokens.ids)) == set(range(train.vocabulary.size)) - {0, 3}
    share_unknown = np.mean(dev.tokens.ids == train.vocabulary.unknown)
    assert share_unknown < 0.001


def test_what_is_cached_cannot_be_spoilt():
    first = SPEC.load_embedded("dev")
    for array in (first.image_features, first.image_ids, first.tokens.ids, first.tokens.offsets):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
        with pytest.raises(ValueError, match="cannot set WRITEABLE"):
            array.view().setflags(write=True)
    first.caption_to_image[:] = 0
    first.pair_ids[:] = 0
    batch = first.image_features[np.arange(3)]
    batch[:] = 0
    again = SPEC.load_embedded("dev")
    assert again.caption_to_image.max() == again.n_images - 1
    assert again.pair_ids.max() == len(again) - 1
    assert again.image_features[np.arange(3)].max() > 0
    assert hashed("dev") == FINGERPRINTS["dev"]
