"""The card of digits: every figure is counted again."""

import hashlib
import re
from itertools import chain
from pathlib import Path

import pytest
from oracles.digits_reader import matches, read

from ncl_bench.data import DATASETS, digits
from ncl_bench.data.digits import GRAMMARS, LEFT_OUT_SHARE, SPEC, VAGUE_SHARE, digits_split
from ncl_bench.data.spec import SPLITS
from ncl_bench.noise.draw import UNITS

TEXT = (Path(__file__).parents[2] / "dataset_cards" / "digits.md").read_text("utf-8")
PLAIN = " ".join(TEXT.split())


def rows(*cells):
    return re.findall(r"^\| " + r" \| ".join(f"({cell})" for cell in cells) + r" \|$", TEXT, re.MULTILINE)


def count_shared(language, splits):
    """Captions that belong to more than one scene."""
    scenes = {}
    for split in splits:
        content = digits_split(split)
        for number, caption in enumerate(content.captions[language]):
            scenes.setdefault(caption, set()).add(content.image_ids[number // SPEC.captions_per_image])
    return sum(len(found) > 1 for found in scenes.values())


def test_splits_and_pools():
    assert rows("train|dev|test", r"[\d,]+", r"[\d,]+", r"[\d,]+") == [
        (split, f"{SPEC.images[split]:,}", f"{SPEC.n_captions(split):,}", f"{digits.POOLS[split]:,}")
        for split in SPLITS
    ]
    assert f"{sum(digits.POOLS.values()):,} handwritten digits of 8x8 pixels" in TEXT
    assert f"{SPEC.captions_per_image} captions per image" in TEXT


def test_shared_captions():
    counted = [
        (language, *(str(count_shared(language, splits)) for splits in (*((s,) for s in SPLITS), SPLITS)))
        for language in SPEC.languages
    ]
    assert rows("en|zh", r"\d+", r"\d+", r"\d+", r"\d+") == counted
    scenes = list(chain.from_iterable(digits_split(split).scenes for split in SPLITS))
    assert len(set(scenes)) == len(scenes)
    assert f"No two of the {len(scenes):,} scenes are equal" in TEXT


@pytest.mark.parametrize("language", SPEC.languages)
def test_captions_that_fit_one_scene_only(language):
    content = digits_split("test")
    named = [read(caption, language) for caption in content.captions[language]]
    sole = sum(sum(matches(items, scene) for scene in content.scenes) == 1 for items in named)
    assert f"{sole} {language}" in TEXT
    assert f"Of the {len(named):,} test captions" in PLAIN


def test_fingerprints():
    assert rows("train|dev|test", "`[0-9a-f]{64}`") == [
        (split, f"`{digits_split(split).fingerprint}`") for split in SPLITS
    ]
    found = {
        (split, language): hashlib.sha256("\n".join(captions).encode()).hexdigest()
        for split in SPLITS
        for language, captions in digits_split(split).captions.items()
    }
    assert rows("train|dev|test", "en|zh", "`[0-9a-f]{64}`") == [
        (split, language, f"`{digest}`") for (split, language), digest in found.items()
    ]


def test_what_a_scene_and_a_caption_are_made_of():
    assert f"{digits.FEWEST_DIGITS} to {digits.MOST_DIGITS} digits from its pool" in PLAIN
    assert f"grid of {digits.GRID}x{digits.GRID} cells" in PLAIN
    assert {len(grammar.forms) for grammar in GRAMMARS.values()} == {10}
    assert "grammar of 10 sentence forms per language" in PLAIN
    assert f"{LEFT_OUT_SHARE:.0%}".replace("%", " % leave one digit out") in PLAIN
    assert f"{VAGUE_SHARE:.0%}".replace("%", " % of the digits named") in PLAIN
    assert f"pixels between 0 and {digits.BLANK_NOISE}/256" in PLAIN
    assert f"{SPEC.n_regions} regions, one per cell" in PLAIN
    assert f"A region is {SPEC.feature_dim} numbers in [0, 1] as float32: {digits.PIXELS} pixels" in PLAIN


def test_the_example_is_the_first_training_image():
    content = digits_split("train")
    assert f"The scene of `{content.image_ids[0]}`" in TEXT
    for language in SPEC.languages:
        for caption in content.captions[language][: SPEC.captions_per_image]:
            assert f"- {caption}\n" in TEXT
    table = rows(*[r"\d| "] * digits.GRID)
    shown = {
        (row, column): int(cell)
        for row, line in enumerate(table)
        for column, cell in enumerate(line)
        if cell != " "
    }
    assert shown == {(placed.row, placed.column): placed.digit for placed in content.scenes[0]}


def test_source_terms_noise_and_citation_are_those_of_the_code():
    origin = DATASETS["digits"].origin
    for fact in (origin.summary, origin.homepage, origin.terms, origin.licence, origin.citation):
        assert " ".join(fact.split()) in PLAIN
    ratios = [step / 20 for step in range(20)]
    assert {DATASETS["digits"].standard_seed(unit, ratio) for unit in UNITS for ratio in ratios} == {0}
    assert "The standard seed is 0 for every unit and ratio." in TEXT
