"""Flickr8K: texts in the published layout, features made of the photographs."""

import json

import numpy as np
import pytest
from support import flickr8k_miniature as miniature
from support.refusals import refused

from ncl_bench.data import DATASETS, flickr8k
from ncl_bench.data.encoding import Projection
from ncl_bench.data.layout import read_manifest
from ncl_bench.data.load import load_dataset
from ncl_bench.data.order import order_of_download
from ncl_bench.data.prepare import check, prepare
from ncl_bench.errors import DataError


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A few images, at the real size of their features."""
    monkeypatch.setitem(DATASETS.data, "flickr8k", miniature.SPEC)


@pytest.fixture
def download(tmp_path):
    return miniature.make(tmp_path / "flickr8k")


@pytest.mark.parametrize("split", miniature.IMAGES)
def test_captions_follow_their_images_in_the_order_of_the_lists(split, download, tmp_path):
    prepare("flickr8k", download, tmp_path / "data")
    dataset = load_dataset("flickr8k", split=split, root=tmp_path / "data")
    assert dataset.image_ids.tolist() == miniature.names(split)
    assert list(dataset.captions) == [
        miniature.caption(name, number) for name in miniature.names(split) for number in range(5)
    ]
    features = np.load(download / "features" / f"{split}_ims.npy")
    np.testing.assert_array_equal(dataset.image_features[np.arange(dataset.n_images)], features)


def test_texts_may_lie_in_a_folder_of_their_own(tmp_path):
    miniature.make_texts(tmp_path / "flickr8k" / "Flickr8k_text")
    miniature.make_features(tmp_path / "flickr8k")
    found = [record.name for record in check("flickr8k", tmp_path / "flickr8k").files]
    assert {"features/features.json", f"Flickr8k_text/{flickr8k.CAPTIONS}"} <= {*found}


def test_how_the_features_were_made_stands_in_manifest_card_and_dataset(download, tmp_path):
    folder = prepare("flickr8k", download, tmp_path / "data")
    manifest = read_manifest(folder)
    said = json.loads((download / "features" / "features.json").read_text())
    assert manifest.encoding.model_dump(mode="json") == said
    assert "features/features.json" in [file.name for file in manifest.sources]
    card = (folder / "README.md").read_text()
    assert f"encoder efficientnet-lite0, weights lite0.pth (sha256 `{flickr8k.WEIGHTS_SHA256}`)" in card
    assert "averaged to 4 x 4: 16 regions." in card
    dataset = load_dataset("flickr8k", split="train", noise_ratio=0.4, root=tmp_path / "data")
    assert dataset.encoding == manifest.encoding
    assert dataset.subset(np.arange(3)).encoding == manifest.encoding


def test_the_order_of_the_test_split_is_known_from_the_download(download, tmp_path):
    folder = prepare("flickr8k", download, tmp_path / "data")
    recorded = read_manifest(folder).splits["test"].order_fingerprint
    assert order_of_download(miniature.SPEC, download, "test") == recorded


@pytest.mark.parametrize(
    "changes",
    [
        {"weights_sha256": "0123456789abcdef" * 4},
        {"grid": 2},
        {"pca": Projection(dim=1280, fitted_on=12, variance=1.0)},
    ],
)
def test_features_of_another_make_are_refused(changes, tmp_path):
    place = miniature.make(tmp_path / "flickr8k", **changes)
    with refused(DataError):
        check("flickr8k", place)


def test_judgements_name_the_rows_of_images_and_captions(download, tmp_path):
    folder = prepare("flickr8k", download, tmp_path / "data")
    assert {*flickr8k.JUDGEMENT_FILES.values()} <= {file.name for file in read_manifest(folder).sources}
    test = load_dataset("flickr8k", split="test", root=tmp_path / "data")
    expert, crowd = test.judgements("expert"), test.judgements("crowd")
    assert expert.iloc[1].tolist() == [0, 5 + 2, 3, 3, 2]  # first image, third caption of the second image
    assert expert.columns.tolist() == ["image", "caption", "rating_1", "rating_2", "rating_3"]
    assert crowd.iloc[5].to_dict() == {"image": 1, "caption": 5 * 2 + 2, "yes": 2, "no": 1}
    assert test.judged("crowd").own.tolist() == [image == of for image in range(3) for of in range(3)]
    assert load_dataset("flickr8k", split="dev", root=tmp_path / "data").judgement_files == {}
    with refused(DataError):
        test.judgements("experts")


def test_a_download_without_judgements_is_prepared_with_a_warning(download, tmp_path):
    (download / flickr8k.JUDGEMENT_FILES["crowd"]).unlink()
    (warning,) = check("flickr8k", download).warnings
    assert "lacks CrowdFlowerAnnotations.txt" in warning
    assert "Flickr8k_text.zip" in warning
    prepare("flickr8k", download, tmp_path / "data")
    test = load_dataset("flickr8k", split="test", root=tmp_path / "data")
    assert len(test.judgements("expert")) == 9
    with refused(DataError):
        test.judgements("crowd")


EXPERT, CROWD = flickr8k.JUDGEMENT_FILES["expert"], flickr8k.JUDGEMENT_FILES["crowd"]
FEATURES, IDS, CAPTIONS = "features/features.json", "features/dev_ids.txt", "Flickr8k.token.txt"


@pytest.mark.parametrize(
    ("file", "change"),
    [
        (FEATURES, lambda text: "{}"),
        (FEATURES, lambda text: text[:50]),
        (FEATURES, None),
        (IDS, lambda text: text.replace("dev", "new", 1)),
        (IDS, lambda text: "\n".join(sorted(text.split()))),
        ("Flickr_8k.devImages.txt", lambda text: text + "more.jpg\n"),
        (CAPTIONS, lambda text: text.replace("_dev.jpg#3", "_dev.jpg#4", 1)),
        (CAPTIONS, lambda text: text.replace("_dev.jpg#3", "_dev.jpg#7", 1)),
        (CAPTIONS, lambda text: text.replace("_dev.jpg#", "_new.jpg#")),
        (CAPTIONS, lambda text: text.replace("\t", " ", 1)),
        (CAPTIONS, lambda text: "a.jpg#0\t \n" + text),
        (EXPERT, lambda text: text.replace("3\t3\t2", "3\t5\t2")),
        (EXPERT, lambda text: text.replace("3\t3\t2", "3\t3")),
        (EXPERT, lambda text: "a.jpg" + text),
        (CROWD, lambda text: text.replace("\t1\t3\t0", "\t1\t0\t0", 1)),
        (CROWD, lambda text: text.replace("#2", "#9", 1)),
    ],
)
def test_damaged_files_are_named(file, change, download):
    text = (download / file).read_text()
    (download / file).unlink()
    if change:
        (download / file).write_text(change(text))
    with refused(DataError):
        check("flickr8k", download)
