"""The Croissant files: what the code says of every dataset, valid for MLCommons' own reader, which opens the tables."""

from pathlib import Path

import mlcroissant
import pytest

from ncl_bench.data import DATASETS
from ncl_bench.data.croissant import croissant_text
from ncl_bench.data.pictograms import EMOJI, SPEC, WEB, Pictograms
from ncl_bench.data.spec import SPLITS

CARDS = Path(__file__).parents[2] / "dataset_cards"


def metadata(name):
    return mlcroissant.Dataset(jsonld=CARDS / f"{name}.json")


@pytest.mark.parametrize("name", DATASETS)
def test_the_file_is_what_the_command_prints_and_valid(name):
    text = (CARDS / f"{name}.json").read_text("utf-8")
    assert text == croissant_text(DATASETS[name]), (
        f"write it again: ncl-bench datasets show {name} --croissant > dataset_cards/{name}.json"
    )
    found = metadata(name)
    issues = found.metadata.ctx.issues
    assert not issues.errors
    assert not issues.warnings
    assert all(licence.startswith("https://") for licence in found.metadata.license)
    assert found.metadata.date_published.year == int(DATASETS[name].origin.published)
    records = list(found.records("splits"))
    assert [record["splits/images"] for record in records] == [DATASETS[name].images[x] for x in SPLITS]


@pytest.mark.parametrize(
    ("spec", "columns"),
    [
        (SPEC, ("split", {"en": "caption"})),
        (EMOJI, ("split", {"zh": "chinese", "en": "caption"})),
        (WEB, ("web_split", {"en": "caption"})),
    ],
    ids=lambda value: value.name if isinstance(value, Pictograms) else "",
)
def test_the_table_of_an_embedded_dataset_holds_its_captions(spec, columns):
    split_column, captions = columns
    records = [
        {key.removeprefix("pictures/"): (value or b"").decode() for key, value in record.items()}
        for record in metadata(spec.name).records("pictures")
    ]
    for split in ("dev", "test"):
        told = [row for row in records if all(row[column] for column in captions.values())]
        rows = [row for row in told if row[split_column] == split]
        content = spec.content(split)
        assert [row["id"] for row in rows] == list(content.image_ids)
        for language, column in captions.items():
            assert tuple(row[column] for row in rows) == content.captions[language]
