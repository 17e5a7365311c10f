"""``ncl-bench datasets`` and ``ncl-bench prepare`` from the command line."""

import pytest
from support import miniatures
from typer.testing import CliRunner

from ncl_bench.cli import app
from ncl_bench.data import DATASETS
from ncl_bench.data.prepared import load_prepared
from ncl_bench.errors import DataError


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def refusal(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert isinstance(result.exception, DataError), result.output
    return str(result.exception)


def test_datasets_lists_every_dataset():
    listed = run("datasets")
    assert [line.split()[0] for line in listed.splitlines()[1:]] == list(DATASETS)


@pytest.mark.parametrize("name", DATASETS)
def test_show_names_source_licence_size_and_files(name):
    shown, origin = run("datasets", "show", name), DATASETS[name].origin
    for fact in (origin.summary, origin.homepage, *origin.obtain, origin.licence, origin.terms):
        assert fact in shown
    for split, images in DATASETS[name].images.items():
        assert f"{split:<6}{images:>9,} images" in shown
        for file in origin.split_files(split):
            assert file in shown
    assert ("Upload: refused" in shown) == (not DATASETS[name].origin.upload)


def test_prepare_writes_a_folder_that_loads(tmp_path):
    source = miniatures.make_scan(tmp_path / "from", "flickr30k")
    options = ("--dtype", "float16", "--tokenizer", "word", "--tokenizer", "bpe")
    out = run("prepare", "flickr30k", "--from", source.parent, "--to", tmp_path / "data", *options)
    assert f"flickr30k is prepared in {tmp_path / 'data' / 'flickr30k'}" in out
    spec = miniatures.SPECS["flickr30k"]
    dataset = load_prepared(tmp_path / "data", spec, "train", tokenizer="bpe")
    assert dataset.image_features.dtype == "float16"


def test_what_deserves_a_look_stands_out(tmp_path):
    source = miniatures.make_scan(tmp_path / "from", "flickr30k")
    arguments = ["prepare", "flickr30k", "--from", str(source), "--to", str(tmp_path / "data")]
    for more in (["--check"], [], []):
        said = CliRunner().invoke(app, arguments + more)
        assert "WARNING: the vocabulary of the tokenizer word is built" in said.stderr
        assert "flickr30k: checked content: no sha256 is known of 9 files" in said.stdout
    shown = run("datasets", "show", "flickr30k")
    assert "TOKEN IDS DIFFER FROM THE PUBLISHED ONES" in shown
    assert "put f30k_precomp_vocab.json (sha256 begins ece46633; from folder vocab/" in shown


def test_prepare_takes_the_folder_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("NCL_BENCH_DATA", str(tmp_path / "data"))
    run("prepare", "cc152k", "--from", miniatures.make_cc152k(tmp_path / "from"))
    assert (tmp_path / "data" / "cc152k" / "manifest.json").exists()


def test_check_lists_every_file_and_writes_nothing(tmp_path):
    source = miniatures.make_now(tmp_path / "from")
    out = run("prepare", "now", "--from", source, "--check", "--to", tmp_path / "data")
    assert "now: checked counts: 12 / 4 / 3 images in train / dev / test, 1 caption(s) each" in out
    assert "now: checked types: float16, 3 regions of 4 numbers, all finite, no row all zero" in out
    assert "now: checked content: no sha256 is known of 18 files, so their content was not compared" in out
    assert "as published" not in out
    assert "h5100k_precomp/train_ims.npy" in out
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("prepare", "nope"), "unknown dataset 'nope'; choose one of: cc152k, coco"),
        (
            ("prepare", "coco", "--to", "x"),
            "coco is made from downloaded files; give their folder with --from",
        ),
        (
            ("prepare", "coco", "--download"),
            "--download cannot fetch coco; `ncl-bench datasets show coco` says where",
        ),
        (("prepare", "now", "--download", "--from", "x"), "cannot be combined"),
        (
            ("prepare", "flickr30k", "--from", "x", "--push-to-hub", "a/b"),
            "cannot be uploaded: the Flickr terms",
        ),
        (("prepare", "digits", "--check"), "digits is embedded and has no download to check"),
        (("datasets", "show", "nope"), "unknown dataset 'nope'"),
    ],
)
def test_misuse_is_refused(arguments, message):
    assert message in refusal(*arguments)


def test_a_missing_target_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("NCL_BENCH_DATA", raising=False)
    source = miniatures.make_scan(tmp_path / "from", "coco")
    assert "add --to DIR or set NCL_BENCH_DATA" in refusal("prepare", "coco", "--from", source)
