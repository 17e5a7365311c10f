"""The cards of the pictograms: their numbers are those of the shipped files, and every source has its notice."""

import json
import re
from hashlib import sha256

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from ncl_bench import load_dataset
from ncl_bench.data.pictograms import EMOJI, FILES, NEAR_PAIRS, SPEC, WEB, rows, thumbnails
from ncl_bench.data.spec import SPLITS
from tools.pictograms.build import DROPPED_BY_HAND, HERE, REPORT
from tools.pictograms.packages import PACKAGES
from tools.pictograms.split import KINDS

CARDS = HERE.parents[1] / "dataset_cards"


@pytest.mark.parametrize("spec", [SPEC, EMOJI, WEB], ids=lambda spec: spec.name)
def test_the_card_says_what_is_shipped(spec):
    text = (CARDS / f"{spec.name}.md").read_text("utf-8")
    for split in SPLITS:
        content = spec.content(split)
        assert content.image_features.shape == (spec.images[split], spec.n_regions, spec.feature_dim)
        assert f"| {split} | `{content.fingerprint}` |" in text
        assert f"| {split} | {len(content.image_ids):,} | {spec.n_captions(split):,} |" in text
        for language in spec.languages:
            dataset = load_dataset(spec.name, split=split, language=language)
            lengths = dataset.tokens.lengths - 2  # without the start and end token
            facts = f"{lengths.min()} | {np.median(lengths):.0f} | {lengths.mean():.1f} | {lengths.max()}"
            assert f"| {language} | {split} | {facts} | {dataset.vocabulary.size:,} |" in text
    for fact in (spec.origin.licence, spec.origin.homepage, *spec.origin.citation.splitlines()):
        assert fact in text


def test_the_cards_count_near_pairs_shared_names_and_shared_captions():
    cards = {spec.name: (CARDS / f"{spec.name}.md").read_text("utf-8") for spec in (SPEC, EMOJI, WEB)}
    cards = {name: " ".join(card.split()) for name, card in cards.items()}
    near = pd.read_csv(NEAR_PAIRS).groupby(["dataset", "split"]).image_id.nunique()
    for name, card in cards.items():
        assert f"{near[name, 'dev']} dev and {near[name, 'test']} test" in card
    keywords = {part for row in rows() if row.split == "train" for part in row.caption.split(", ")}
    named = sum(row.caption.split(", ")[0] in keywords for row in rows() if row.split == "test")
    assert f"the names of {named} test pictures are keywords of training captions" in cards["pictograms"]
    for name, others in (
        ("pictograms", "pictograms: {} % of the pairs"),
        ("pictograms-web", "{} % of the pairs share"),
    ):
        count = pd.Series(load_dataset(name).captions).value_counts()
        pairs = count.sum()
        # no other of the 127 has the caption: each is drawn from the rest
        alone = [np.prod(1 - (n - 1) / (pairs - 1 - np.arange(127))) for n in count]
        alone = np.maximum(alone, 0)
        assert others.format(f"{100 * ((1 - alone) * count).sum() / pairs:.0f}") in cards["pictograms-web"]


def test_the_sample_that_was_looked_at_is_the_one_on_the_card():
    text = (CARDS / "pictograms.md").read_text("utf-8")
    sample = text.split("## A sample that was looked at")[1].split("2 pictures were dropped")[0]
    doubtful = set(re.findall(r"^\| `([^`]+)` \|", sample, re.MULTILINE))
    ids = sorted(SPEC.content("test").image_ids, key=lambda one: sha256(one.encode()).hexdigest())[:200]
    assert len(doubtful) == 19
    assert doubtful <= {name for name in ids if name.startswith("openclipart/")}
    assert f"{sum(name.startswith('openclipart/') for name in ids)} of them are clip art" in " ".join(
        sample.split()
    )
    for spec in (SPEC, WEB):
        assert "19 are doubtful" in spec.origin.noise


def test_the_card_counts_what_the_last_build_reported():
    text = (CARDS / "pictograms.md").read_text("utf-8")
    report = json.loads(REPORT.read_text("utf-8"))
    for reason, number in report["left_out"].items():
        assert not number or f"| {reason} | {number:,} |" in text
    for fact in ("near_pairs", "concepts", "left_out_of_concepts_in_dev_and_test"):
        assert f"{report[fact]:,} " in text


def test_the_pictures_are_the_first_four_of_each_source_in_test():
    test = SPEC.content("test").image_ids
    names = [name for source in KINDS for name in [x for x in test if x.startswith(f"{source}/")][:4]]
    with Image.open(CARDS / "pictograms.png") as picture:
        shown = np.asarray(picture)
    text, known = (CARDS / "pictograms.md").read_text("utf-8"), {row.id: row for row in rows()}
    for place, name in enumerate(names):
        top, left = place // 4 * 96, place % 4 * 96
        large = Image.fromarray(thumbnails("test")[name]).resize((96, 96), Image.Resampling.BICUBIC)
        np.testing.assert_array_equal(shown[top : top + 96, left : left + 96], np.asarray(large))
        assert f"| `{name}` | {known[name].caption} | {known[name].chinese} |" in text


def test_pictures_dropped_by_hand_are_in_no_split():
    dropped = {line.split("\t")[0] for line in DROPPED_BY_HAND.read_text("utf-8").splitlines()}
    assert dropped
    for split in SPEC.images:
        assert not dropped & set(SPEC.content(split).image_ids)


def test_every_source_has_its_notice():
    text = (FILES / "LICENSES.txt").read_text("utf-8")
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
