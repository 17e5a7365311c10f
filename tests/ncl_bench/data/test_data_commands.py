"""``ncl-bench datasets`` and ``ncl-bench prepare`` from the command line."""

import pytest
from support import miniatures

from ncl_bench.data import DATASETS
from ncl_bench.data.prepared import load_prepared


def test_datasets_lists_every_dataset(run):
    listed = run("datasets").out
    assert [line.split()[0] for line in listed.splitlines()[1:]] == list(DATASETS)


@pytest.mark.parametrize("name", DATASETS)
def test_show_names_source_licence_size_and_files(name, run):
    shown, origin = run("datasets", "show", name).out, DATASETS[name].origin
    for fact in (origin.summary, origin.homepage, *origin.obtain, origin.licence, origin.terms):
        assert fact in shown
    for split, images in DATASETS[name].images.items():
        assert f"{split:<6}{images:>9,} images" in shown
        for file in origin.split_files(split):
            assert file in shown
    assert ("Upload: refused" in shown) == (not DATASETS[name].origin.upload)


def test_prepare_writes_a_folder_that_loads(run, tmp_path, source):
    options = ("--dtype", "float16", "--tokenizer", "word", "--tokenizer", "bpe")
    out = run("prepare", "flickr30k", "--from", source.parent, "--to", tmp_path / "data", *options).out
    assert f"flickr30k is prepared in {tmp_path / 'data' / 'flickr30k'}" in out
    spec = miniatures.SPECS["flickr30k"]
    dataset = load_prepared(tmp_path / "data", spec, "train", tokenizer="bpe")
    assert dataset.image_features.dtype == "float16"


def test_what_deserves_a_look_stands_out(run, tmp_path, source):
    for more in (["--check"], [], []):
        said = run("prepare", "flickr30k", "--from", source, "--to", tmp_path / "data", *more)
        assert "WARNING: the vocabulary of the tokenizer word is built" in said.err
        assert "flickr30k: checked content: no sha256 is known of 9 files" in said.out
    shown = run("datasets", "show", "flickr30k").out
    assert "TOKEN IDS DIFFER FROM THE PUBLISHED ONES" in shown
    assert "put f30k_precomp_vocab.json (sha256 begins ece46633; from folder vocab/" in shown


def test_prepare_takes_the_folder_from_the_environment(run, tmp_path, monkeypatch):
    monkeypatch.setenv("NCL_BENCH_DATA", str(tmp_path / "data"))
    run("prepare", "cc152k", "--from", miniatures.make_cc152k(tmp_path / "from"))
    assert (tmp_path / "data" / "cc152k" / "manifest.json").exists()


def test_check_lists_every_file_and_writes_nothing(run, tmp_path):
    source = miniatures.make_now(tmp_path / "from")
    out = run("prepare", "now", "--from", source, "--check", "--to", tmp_path / "data").out
    assert "now: checked counts: 12 / 4 / 3 images in train / dev / test, 1 caption(s) each" in out
    assert "now: checked types: float16, 3 regions of 4 numbers, all finite, no row all zero" in out
    assert "now: checked content: no sha256 is known of 18 files, so their content was not compared" in out
    assert "as published" not in out
    assert "h5100k_precomp/train_ims.npy" in out
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        "prepare nope",
        "prepare coco --to x",
        "prepare coco --from {download}",
        "prepare coco --download",
        "prepare flickr30k --from x --push-to-hub a/b",
        "prepare digits --check",
        "prepare digits --from x --to y",
        "datasets show nope",
    ],
)
def test_misuse_is_refused(run, arguments, tmp_path):
    download = miniatures.make_scan(tmp_path / "from", "coco")
    run(*(part.format(download=download) for part in arguments.split())).assert_refused()
