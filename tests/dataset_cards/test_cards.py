"""The cards: front matter that the Hub accepts, and no number that the code does not know."""

import re
from pathlib import Path

import pytest
from huggingface_hub import DatasetCard

from ncl_bench.data import DATASETS
from ncl_bench.data.card import feature_gigabytes
from ncl_bench.evaluation.protocol import IMAGES_PER_FOLD, selection_images

CARDS = Path(__file__).parents[2] / "dataset_cards"
DOWNLOADED = sorted(name for name, spec in DATASETS.items() if not spec.embedded)
NUMBER = re.compile(r"(?<![\w.,-])\d[\d,]*(?:\.\d+)?(?![\w])")


def card(name):
    return (CARDS / f"{name}.md").read_text("utf-8")


def prose(name):
    """The card without front matter, code and addresses, on one line."""
    text = card(name).split("---\n", 2)[2]
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`|https?://\S+", "", text)
    return " ".join(text.split())


def numbers(text):
    return {found.rstrip(",") for found in NUMBER.findall(text)}


def standard_seeds(name):
    """Ratio to the seed that draws the file of captions that papers share."""
    spec = DATASETS[name]
    ratios = sorted({file.ratio for file in spec.noise_files if file.unit == "caption"})
    return {ratio: spec.standard_seed("caption", ratio) for ratio in ratios}


def known_numbers(name):
    """Every number that the code states about a dataset."""
    spec, origin = DATASETS[name], DATASETS[name].origin
    facts = {spec.n_regions, spec.feature_dim, spec.captions_per_image, selection_images(spec)}
    facts |= {spec.images[split] for split in spec.images} | {spec.n_captions(split) for split in spec.images}
    facts |= set(IMAGES_PER_FOLD.values())
    facts |= set(standard_seeds(name).values())
    known = {f"{fact:,}" for fact in facts}
    known |= {f"{feature_gigabytes(spec, split):.2f}" for split in spec.images}
    known |= {f"{ratio:g}" for ratio in standard_seeds(name)}
    for text in (origin.summary, *origin.obtain, origin.licence, origin.terms, origin.noise):
        known |= numbers(text)
    return known


def plain(text):
    return " ".join(text.split())


@pytest.mark.parametrize("name", DATASETS)
def test_front_matter_is_valid_for_the_hub(name):
    data = DatasetCard(card(name)).data
    assert data.license == DATASETS[name].origin.licence_id
    assert data.pretty_name == DATASETS[name].title
    assert data.language == list(DATASETS[name].languages)
    assert (data.license == "other") == bool(data.to_dict().get("license_name"))


@pytest.mark.parametrize("name", DOWNLOADED)
def test_every_number_is_known_to_the_code(name):
    # A share of wrong pairs, the first images of dev, ceilings, another sample: said in words that the protocol fixes.
    fixed = {
        "flickr30k": {"200", "0"},
        "coco": {"0"},
        "cc152k": {"118,851"},
        "now": {"100"},
        "flickr8k": {"4", "0"},
    }[name]
    if name == "now":
        from ncl_bench.data.now import VOCABULARY_SIZES

        fixed |= {f"{size:,}" for size in VOCABULARY_SIZES.values()}
    assert numbers(prose(name)) - known_numbers(name) - fixed == set()


@pytest.mark.parametrize("name", DOWNLOADED)
def test_the_splits_are_those_of_the_code(name):
    spec = DATASETS[name]
    rows = re.findall(r"^\| (\w+) \| ([\d,]+) \| ([\d,]+) \| ([\d.]+) GB \|$", card(name), re.MULTILINE)
    assert rows == [
        (split, f"{images:,}", f"{spec.n_captions(split):,}", f"{feature_gigabytes(spec, split):.2f}")
        for split, images in spec.images.items()
    ]


@pytest.mark.parametrize("name", DOWNLOADED)
def test_source_terms_noise_and_citation_are_those_of_the_code(name):
    origin, text = DATASETS[name].origin, plain(re.sub(r"<(http\S+)>", r"\1", card(name)))
    facts = (origin.summary, origin.homepage, *origin.obtain, origin.licence, origin.terms, origin.noise)
    for fact in (*facts, origin.upload_reason, origin.citation):
        assert plain(fact) in text
    for split in DATASETS[name].images:
        for file in origin.split_files(split):
            assert f"`{file}`" in text


@pytest.mark.parametrize("name", DATASETS)
def test_every_address_is_a_link_on_every_site(name):
    assert not re.findall(r"(?<![<(])https?://\S+", card(name))


@pytest.mark.parametrize("name", ["flickr30k", "coco"])
def test_the_standard_seeds_are_those_of_the_code(name):
    seeds = standard_seeds(name)
    assert f"| noise ratio | {' | '.join(f'{ratio:g}' for ratio in seeds)} |" in card(name)
    assert f"| seed, caption unit | {' | '.join(map(str, seeds.values()))} |" in card(name)
