"""The cards of the pictograms: written by a command that counts, and the hand check is of the shipped pairs."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ncl_bench.data.pictograms import EMOJI, FILES, SPEC, WEB
from ncl_bench.noise.draw import UNITS, standard_seed
from tools.pictograms.card import CARDS, DOUBTFUL, DROPPED_BY_HAND, example_ids, example_sheet, render_cards
from tools.pictograms.check import PAIRS, sampled_ids
from tools.pictograms.packages import PACKAGES


@pytest.mark.parametrize("name", [SPEC.name, EMOJI.name, WEB.name])
def test_the_card_is_what_the_command_counts(name: str) -> None:
    fix = "run: python -m tools.pictograms card"
    assert (CARDS / f"{name}.md").read_text(encoding="utf-8") == render_cards()[name], fix


def test_the_pictures_are_the_thumbnails_of_the_table() -> None:
    with Image.open(CARDS / "pictograms.png") as shown:
        np.testing.assert_array_equal(np.asarray(shown), np.asarray(example_sheet()))
    text = (CARDS / "pictograms.md").read_text(encoding="utf-8")
    assert len(example_ids()) == 20
    assert all(f"| `{name}` |" in text for name in example_ids())


def test_doubts_are_about_pairs_that_were_looked_at_and_dropped_pictures_are_in_no_split() -> None:
    sample = sampled_ids()
    assert len(set(sample)) == PAIRS
    doubted = [line.split("\t") for line in Path(DOUBTFUL).read_text(encoding="utf-8").splitlines()]
    assert {name for name, _ in doubted} <= set(sample)
    assert all(reason for _, reason in doubted)
    dropped = {line.split("\t")[0] for line in DROPPED_BY_HAND.read_text(encoding="utf-8").splitlines()}
    assert dropped
    for split in SPEC.images:
        assert not dropped & set(SPEC.content(split).image_ids.tolist())


def test_every_source_has_its_notice() -> None:
    text = (FILES / "LICENSES.txt").read_text(encoding="utf-8")
    for package in PACKAGES.values():
        assert package.file in text or package.file.startswith("cldr-annotations-derived")
    for words in (
        "Public Domain Dedication",
        "Apache License",
        "Microsoft Corporation",
        "Lucide Icons and Contributors",
        "Phosphor Icons",
        "UNICODE LICENSE V3",
    ):
        assert words in text


def test_the_standard_seed_is_zero() -> None:
    assert {standard_seed("pictograms", unit, step / 20) for unit in UNITS for step in range(20)} == {0}
