"""The page of worst failures."""

import base64
import io
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from support.submission_folders import similarities, write_folder, write_matrix

from ncl_bench.data import pictograms
from ncl_bench.data.digits import GRID, SPEC, digits_split
from ncl_bench.data.load import load_dataset
from ncl_bench.evaluation.call import evaluate
from ncl_bench.evaluation.pages import Gallery, plot_ranks, write_examples
from ncl_bench.evaluation.ranks import Ranks


def test_a_picture_shows_every_region_at_its_place():
    regions = digits_split("test").image_features[0]
    canvas = np.asarray(Image.open(io.BytesIO(SPEC.drawn_images("test")[0])))
    assert canvas.shape == (8 * GRID, 8 * GRID)
    for region in regions:
        row, column = (int(centre * GRID) for centre in region[64:])
        cell = canvas[8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
        np.testing.assert_allclose(cell, region[:64].reshape(8, 8) * 255, atol=1)


@pytest.mark.parametrize("form", ["matrix", "embeddings"])
def test_the_worst_failures_come_first(form, run, tmp_path):
    scores = similarities()
    write_folder(tmp_path, form)
    assert run("evaluate", tmp_path, "--examples", 4).code == 0
    page = (tmp_path / "examples_test.html").read_text()
    ranks = [int(rank.replace(",", "")) for rank in re.findall(r"rank ([\d,]+)</h2>", page)]
    assert ranks[:4] == sorted(ranks[:4], reverse=True)
    own = np.arange(1000)
    true = scores[own // 5, own]
    deepest = 1 + (scores >= true).sum(axis=0) - 1
    assert ranks[-4:] == sorted(deepest.tolist(), reverse=True)[:4]
    query = int(np.argmax(deepest))
    captions = load_dataset("digits", split="test").captions
    assert f"{query}: {captions[query]}" in page
    assert page.count("data:image/png") >= 4
    best = int(np.argmax(scores[:, query]))
    section = page[page.index(f"<span>{query}: {captions[query]}") :]
    assert f"image {best} (digits-test-{best:04d})" in section[section.index("Retrieved") :][:2_000]


def test_queries_of_rank_one_are_no_failures(run, tmp_path):
    perfect = np.repeat(np.eye(200, dtype=np.float32), 5, axis=1)
    write_matrix(tmp_path, perfect)
    assert run("evaluate", tmp_path, "--examples", 4).code == 0
    assert "Every query has rank 1." in (tmp_path / "examples_test.html").read_text()
    assert evaluate(perfect, dataset="digits").r_sum == 600


def test_a_page_without_the_dataset_shows_numbers(run, tmp_path):
    random = np.random.default_rng(0)
    scores = random.normal(size=(1000, 1000)).astype(np.float32)
    noise = {"unit": "natural", "ratio": None}
    write_matrix(tmp_path, scores, dataset="now", language="zh", noise=noise)
    ran = run("evaluate", tmp_path, "--examples", 2)
    assert ran.code == 0, ran.err
    page = (tmp_path / "examples_test.html").read_text()
    assert re.search(r"<span>image \d+</span>", page)
    assert "data:image" not in page


def test_what_a_submitter_writes_is_escaped(run, tmp_path):
    write_matrix(tmp_path, similarities(), method="A & B")
    assert run("evaluate", tmp_path, "--examples", 2, "--plot").code == 0
    page = (tmp_path / "examples_test.html").read_text()
    assert "A &amp; B" in page
    assert "A & B" not in page
    hostile = "<script>alert(1)</script> [red] $\\frac"  # a submission refuses it as a name
    write_examples(tmp_path / "hostile.html", [], hostile)
    page = (tmp_path / "hostile.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    plot_ranks(tmp_path / "hostile.svg", Ranks(i2t=np.array([1, 3]), t2i=np.array([1, 2])), hostile)
    assert "<script" not in (tmp_path / "hostile.svg").read_text()


def test_pictograms_are_shown_by_their_thumbnails():
    gallery = Gallery(pictograms.SPEC, load_dataset("pictograms", split="test"))
    item = gallery.image(7)
    name = str(load_dataset("pictograms", split="test").image_ids[7])
    assert item.label == f"image 7 ({name})"
    shown = Image.open(io.BytesIO(base64.b64decode(item.picture.removeprefix("data:image/png;base64,"))))
    np.testing.assert_array_equal(np.asarray(shown), pictograms.thumbnails("test")[name])


def test_photographs_are_shown_small_and_upright_and_damaged_ones_not_at_all():
    """Where a dataset draws no picture, the images that were stored beside its features are shown."""
    stream, turned = io.BytesIO(), Image.Exif()
    turned[0x0112] = 6  # the camera was held upright
    Image.new("RGB", (600, 300)).save(stream, "JPEG", exif=turned)
    photographs = [stream.getvalue(), stream.getvalue()[:500]]
    mine = replace(load_dataset("pictograms"), images=photographs, image_ids=np.array(["first", "second"]))
    gallery = Gallery(pictograms.SPEC, mine)
    kind, content = gallery.image(0).picture.split(",")
    assert kind == "data:image/jpeg;base64"
    assert Image.open(io.BytesIO(base64.b64decode(content))).size == (120, 240)
    assert gallery.image(1).picture == ""
