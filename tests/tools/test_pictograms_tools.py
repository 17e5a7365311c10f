"""The makers of the pictograms: a dozen pictures of each source are rebuilt, and the rules of texts and splits hold."""

import zipfile
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncl_bench.data.pictograms import FILES, NEAR_PAIRS, rows
from tools.pictograms import items as texts
from tools.pictograms.build import fit_projection, read_projection
from tools.pictograms.items import Rendering, caption
from tools.pictograms.near import near_pairs_table
from tools.pictograms.packages import PACKAGES
from tools.pictograms.pictures import draw, encode, encoder, make_blocks, read_block
from tools.pictograms.split import KINDS, clusters, concept, near_pairs

SAMPLE = Path(__file__).parents[1] / "golden" / "pictograms_sources.zip"
"""``SOURCE/PATH``: the files behind the first dozen small shipped pictures of each source, cut out of the packages."""
DOZEN = 12
SHIPPED = {row.id: row for row in rows()}


@cache
def sampled():
    reading = Rendering()
    with zipfile.ZipFile(SAMPLE) as archive:
        files = {source: {} for source in PACKAGES}
        for name in archive.namelist():
            source, _, path = name.partition("/")
            files[source][path] = archive.read(name)
    names = texts.read_names(files["names"] | files["names-of-sequences"])
    texts.read_openclipart(files["openclipart"], reading)
    for source in ("noto", "fluent"):
        texts.read_emoji(source, files[source], names, reading)
    texts.read_lucide(files["lucide"], reading)
    texts.read_phosphor(files["phosphor"], reading)
    return reading


# A rebuild


def test_a_dozen_texts_of_each_source_are_read_as_they_are_shipped():
    items = sampled().items
    assert Counter(item.source for item in items) == dict.fromkeys(KINDS, DOZEN)
    for item in items:
        row = SHIPPED[item.id]
        assert (item.caption, item.chinese) == (row.caption, row.chinese)


def test_a_dozen_pictures_of_each_source_give_the_shipped_numbers(tmp_path):
    (path,) = make_blocks(sampled().items, tmp_path)
    block = read_block(path)
    assert not block.empty
    assert make_blocks(sampled().items, tmp_path) == [path]
    steps = np.load(FILES / "features.npy", mmap_mode="r", allow_pickle=False)
    shipped = steps[[SHIPPED[name].number for name in block.ids]].astype(np.int16)
    gaps = np.abs(read_projection()(block.grids) - shipped)
    assert (gaps > 0).mean() < 0.02  # where rounding falls depends on the CPU
    assert gaps.max() <= 3


# Texts


def clip_art(title, keywords="food", licence="PublicDomain", shapes="<path/>"):
    return f"""<svg xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:cc="c/" xmlns:dc="d/" xmlns:rdf="r/"><metadata>
    <cc:Work><dc:title>{title}</dc:title><dc:subject><rdf:li>{keywords}</rdf:li><rdf:li>hash</rdf:li></dc:subject>
    <cc:license rdf:resource="http://web.resource.org/cc/{licence}"/></cc:Work></metadata>{shapes}</svg>""".encode()


def read_clip_art(**drawings):
    reading = Rendering()
    files = {f"usr/share/openclipart/svg/{name}.svg": content for name, content in drawings.items()}
    texts.read_openclipart(files, reading)
    return reading


def test_a_title_counts_where_it_fits_the_name_of_the_file():
    reading = read_clip_art(pear_02=clip_art("Pear_02"), cherries=clip_art("Pear"))
    assert [(item.id, item.caption) for item in reading.items] == [
        ("openclipart/cherries", ""),
        ("openclipart/pear_02", "pear, food"),
    ]
    assert reading.items[0].as_it_comes == "pear, food, hash"


def test_a_title_of_a_batch_tells_nothing():
    many = {f"star_{number}": clip_art("Star") for number in range(texts.SHARED_TITLE + 1)}
    assert {item.caption for item in read_clip_art(**many).items} == {""}
    many.popitem()
    assert {item.caption for item in read_clip_art(**many).items} == {"star, food"}


@pytest.mark.parametrize(
    ("drawing", "reason"),
    [
        (clip_art("Pear", licence="GPL"), "not marked as public domain"),
        (clip_art("Pear", shapes="<text>pear</text>"), "letters"),
        (clip_art("Pear", shapes='<g xmlns="s"><image xlink:href="pear.png"/></g>'), "another file"),
    ],
)
def test_drawings_that_are_left_out(drawing, reason):
    reading = read_clip_art(pear=drawing)
    assert not reading.items
    ((told, number),) = reading.left_out.items()
    assert reason in told
    assert number == 1


@given(st.lists(st.text(alphabet="ab ", max_size=12), max_size=40), st.text(alphabet="ab", min_size=1))
def test_a_caption_begins_with_the_name_and_repeats_nothing(keywords, name):
    parts = caption(name, keywords).split(", ")
    assert parts[0] == name
    assert len(set(parts)) == len(parts)
    assert len(caption(name, keywords).split()) <= max(texts.LONGEST, 1)


# Concepts and splits


def test_one_concept_has_many_names():
    assert concept("up arrow") == concept("arrow-up 2") == concept("Arrow up (red)")
    assert concept("woman astronaut") == concept("astronaut")
    assert concept("flag: Algeria") == concept("algeria")
    assert concept("pear") != concept("apple")


def test_near_pictures_are_those_above_the_threshold():
    random = np.random.default_rng(0)
    vectors = random.normal(size=(600, 3)).astype(np.float32)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    wanted = {(i, j) for i in range(600) for j in range(i + 1, 600) if units[i] @ units[j] > 0.99}
    found = near_pairs(vectors, 0.99)
    assert set(found) == wanted
    assert len(found) == len(wanted) > 100


def test_a_cluster_is_what_names_and_pictures_connect():
    labels = clusters(["pear", "", "pear", "apple", ""], [(1, 2)]).tolist()
    assert labels[0] == labels[1] == labels[2]
    assert len({labels[0], labels[3], labels[4]}) == 3


@pytest.mark.slow
def test_the_table_of_near_pairs_is_that_of_the_shipped_features():
    assert near_pairs_table() == NEAR_PAIRS.read_text("utf-8")
    near = pd.read_csv(NEAR_PAIRS)
    found = near[near.split == "test"].groupby("dataset").image_id.nunique()
    assert found.to_dict() == {"pictograms": 61, "pictograms-emoji": 14, "pictograms-web": 24}
    named = set(zip(near.image_id, near.train_image_id, strict=True))
    assert {("phosphor/lifebuoy", "lucide/life-buoy"), ("noto/merperson", "noto/merman")} <= named
    assert not {row.split for row in rows() if row.id in set(near.train_image_id)} & {"dev", "test"}
    assert {row.split for row in rows() if row.id in set(near.image_id)} == {"dev", "test"}


# Pictures


def test_a_drawing_is_centred_on_white():
    wide = draw(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 20 10"><rect width="20" height="10"/></svg>'
    )
    tall = draw(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 20"><rect width="10" height="20"/></svg>'
    )
    np.testing.assert_array_equal(wide, tall.transpose(1, 0, 2))
    assert (wide[:35] == 255).all()
    assert (wide[45:115] == 0).all()
    assert draw('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 20 10"/>') is None
    assert draw("<svg") is None


def test_principal_components_of_the_regions():
    random = np.random.default_rng(0)
    grids = (random.normal(size=(40, 16, 1280)) * np.linspace(2, 0.1, 1280)).astype(np.float32)
    projection = fit_projection(lambda: iter([grids[:25], grids[25:]]))
    np.testing.assert_allclose(projection.axes @ projection.axes.T, np.eye(64), atol=1e-4)
    regions = grids.reshape(-1, 1280)
    _, wanted, _ = np.linalg.svd(regions - regions.mean(axis=0), full_matrices=False)
    found = np.linalg.norm((regions - projection.mean) @ projection.axes.T, axis=0)
    np.testing.assert_allclose(found, wanted[:64], rtol=1e-3)
    steps = projection(grids)
    assert np.abs(steps.astype(np.int16)).max() == 127


def test_the_network_sees_a_picture_the_same_alone_and_among_others():
    pictures = np.random.default_rng(0).integers(0, 256, (3, 160, 160, 3)).astype(np.uint8)
    together = encode(encoder(), pictures)
    assert together.shape == (3, 16, 1280)
    np.testing.assert_allclose(together[:1], encode(encoder(), pictures[:1]), atol=1e-4)
