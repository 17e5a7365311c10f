"""From published files to a prepared folder: contents, options, resuming, one owner, nothing half-written."""

import errno
import hashlib
import os
import tracemalloc
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from support import miniatures
from support.refusals import refused
from tokenizers import Tokenizer, models

from ncl_bench.data import DATASETS, digits, flickr30k, now
from ncl_bench.data import prepare as preparing
from ncl_bench.data.download import open_download
from ncl_bench.data.embedded import embedded_material
from ncl_bench.data.features import SCAN_ROWS, open_features, scan
from ncl_bench.data.layout import FileRecord, read_manifest
from ncl_bench.data.prepare import check, prepare
from ncl_bench.data.prepared import load_prepared
from ncl_bench.data.spec import KnownFile
from ncl_bench.data.tokenizers import tokenizer
from ncl_bench.data.vocabulary import SPECIAL_WORDS, Vocabulary, vocabulary_json
from ncl_bench.errors import DataError
from ncl_bench.foreign import normalized


def contents(folder):
    """sha256 of every file below a folder."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("name", ["flickr30k", "coco", "cc152k"])
@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_every_row_and_caption_arrives(name, split, prepared, tmp_path):
    dataset = prepared(name, split)
    number = list(miniatures.IMAGES).index(split)
    n_images = miniatures.IMAGES[split]
    per_image = miniatures.SPECS[name].captions_per_image
    expected = miniatures.features(n_images, number)
    np.testing.assert_array_equal(dataset.image_features[np.arange(n_images)], expected)
    np.testing.assert_array_equal(dataset.caption_to_image, np.arange(n_images * per_image) // per_image)
    for c in range(2, len(dataset)):
        assert dataset.captions[c] == miniatures.caption(100 * number + c)
        words = tokenizer("word")(dataset.captions[c])
        tokens, lengths = dataset.tokens.padded(np.array([c]))
        assert tokens[0].tolist() == dataset.vocabulary.encode(words)
        assert lengths[0] == len(words) + 2


def test_ids_are_those_of_the_files_and_a_stray_quotation_mark_swallows_no_line(prepared):
    assert prepared("flickr30k", "dev").image_ids.tolist() == ["1000", "1007", "1014", "1021"]
    assert prepared("cc152k", "test").image_ids.tolist() == ["2000_0", "2001_1", "2002_4"]
    assert prepared("cc152k", "train").captions[1] == '"quoted at the start only'


def test_now_keeps_the_shipped_ids_and_vocabulary_size(prepared, tmp_path):
    for shift, name in enumerate(["bpe", "bert", "jieba"]):
        dataset = prepared("now", "train", tokenizer=name)
        tokens, _ = dataset.tokens.padded(np.array([0]))
        assert tokens[0].tolist() == [1, *(4 + (j + shift) % 5 for j in range(3)), 2]
        assert dataset.vocabulary.size == len(dataset.vocabulary.words) + 3
        assert dataset.captions is None
        source = tmp_path / "from" / "vocab" / f"now100k_precomp_vocab_{name}.json"
        copy = tmp_path / "root" / "now" / "vocab" / f"{name}.json"
        assert source.read_bytes() == copy.read_bytes()


def test_now_keeps_what_the_published_files_may_hold_and_says_so(tmp_path):
    source = miniatures.make_now(tmp_path / "from")
    files = source / "h5100k_precomp"
    for split in miniatures.IMAGES:
        np.save(files / f"{split}_ims.npy", np.load(files / f"{split}_ims.npy").astype(np.float64) / 3)
    for name, blank in (("bpe", 1), ("jieba", 3)):
        lines = (files / f"dev_caps_{name}.txt").read_text().splitlines()
        lines[blank] = ""
        (files / f"dev_caps_{name}.txt").write_text("\n".join(lines) + "\n")
    ids = (files / "dev_ids.txt").read_text().splitlines()
    (files / "dev_ids.txt").write_text("\n".join([*ids[:3], ids[0]]) + "\n")
    manifest = read_manifest(prepare("now", source, tmp_path / "root"))
    dev = load_prepared(tmp_path / "root", miniatures.SPECS["now"], "dev")
    assert dev.image_ids.tolist() == [*ids[:3], ids[0]]
    assert dev.tokens.padded(np.array([3]))[0].tolist() == [[1, 2]]
    expected = (miniatures.features(4, 1, "float16").astype(np.float64) / 3).astype(np.float32)
    np.testing.assert_array_equal(dev.image_features[np.arange(4)], expected)
    assert manifest.warnings == (
        "h5100k_precomp/dev_ids.txt: 1 line(s) repeat the id of an earlier image",
        "h5100k_precomp/dev_caps_bpe.txt: 1 caption(s) hold no token id",
        "h5100k_precomp/dev_caps_jieba.txt: 1 caption(s) hold no token id",
        *(
            f"h5100k_precomp/{split}_ims.npy: the numbers are float64 and are written as float32"
            for split in miniatures.IMAGES
        ),
    )
    assert check("now", source).warnings == manifest.warnings


@pytest.mark.parametrize("folder", ["h5100k_precomp", "now100k_precomp"])
def test_now_reads_the_zip_in_place_under_both_names(folder, tmp_path):
    source = miniatures.make_now(tmp_path / "now", folder)
    prepare("now", miniatures.zipped(source, tmp_path / "NoW.zip"), tmp_path / "zipped")
    prepare("now", source, tmp_path / "plain")
    assert contents(tmp_path / "zipped") == contents(tmp_path / "plain")


def test_float16_halves_the_features_and_changes_the_fingerprint(prepared, tmp_path):
    whole = prepared("flickr30k", "train")
    prepare("flickr30k", tmp_path / "from", tmp_path / "half", dtype="float16")
    half = load_prepared(tmp_path / "half", miniatures.SPECS["flickr30k"], "train")
    rows = np.arange(12)
    np.testing.assert_array_equal(half.image_features[rows], whole.image_features[rows].astype(np.float16))
    assert half.fingerprint != whole.fingerprint


FINGERPRINTS = {
    "flickr30k": [
        ("57ed8b68fe4c7208", "29b2c478e2f3da94"),
        ("15e5597458a2b37e", "f055fc6e9c331ad5"),
        ("61eeacfb4237c495", "eafd8e7bf0c8e728"),
    ],
    "coco": [
        ("8214b225287ab3ee", "29b2c478e2f3da94"),
        ("3fc50949d465963a", "f055fc6e9c331ad5"),
        ("e10d666ccd33fa8c", "eafd8e7bf0c8e728"),
    ],
    "cc152k": [
        ("e04ccec497d6e8b4", "8d00527209b98412"),
        ("6400a746f758249d", "683c5e7e958dd2b6"),
        ("b678213fef21febe", "42447c63b168f2f9"),
    ],
    "now": [
        ("58072f155a1aac9f", "bfc71c88429ab4e9"),
        ("b05978cef408a9a8", "922dcf613f8807e7"),
        ("f2cc0983d3aec029", "e0333d971857ed8b"),
    ],
}


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_fingerprints_are_those_of_every_version_before(name, tmp_path, monkeypatch):
    """With more images than are hashed at a time."""
    images = {"train": 300, "dev": 4, "test": 3}
    monkeypatch.setattr(miniatures, "IMAGES", images)
    monkeypatch.setitem(DATASETS.data, name, replace(miniatures.SPECS[name], images=images))
    splits = read_manifest(prepare(name, miniatures.make(tmp_path / "from", name), tmp_path / "root")).splits
    assert [(splits[split].fingerprint[:16], splits[split].order_fingerprint[:16]) for split in images] == (
        FINGERPRINTS[name]
    )


def test_the_vocabulary_is_built_from_train_alone(prepared):
    dataset = prepared("flickr30k", "dev")
    train = prepared("flickr30k", "train").captions
    counts = {}
    for word in (word for caption in train for word in tokenizer("word")(caption)):
        counts[word] = counts.get(word, 0) + 1
    assert set(dataset.vocabulary.words[4:]) == {word for word, count in counts.items() if count >= 4}


def test_several_tokenizers_in_one_preparation(tmp_path):
    source = miniatures.make_scan(tmp_path / "from", "coco")
    options = {"tokenizers": ("word", "jieba", "bpe")}
    folder = prepare("coco", source, tmp_path / "root", **options)
    pieces = tokenizer("bpe", file=folder / "vocab" / "bpe_tokenizer.json")
    for name in ("word", "jieba", "bpe"):
        dataset = load_prepared(tmp_path / "root", miniatures.SPECS["coco"], "test", tokenizer=name)
        split = pieces if name == "bpe" else tokenizer(name)
        tokens, _ = dataset.tokens.padded(np.array([3]))
        assert tokens[0].tolist() == dataset.vocabulary.encode(split(dataset.captions[3]))


def test_a_tokenizer_given_twice_counts_once(tmp_path):
    source = miniatures.make_scan(tmp_path / "from", "coco")
    folder = prepare("coco", source, tmp_path / "root", tokenizers=("bpe", "bpe"))
    assert [own.name for own in read_manifest(folder).tokenizations] == ["bpe"]
    assert prepare("coco", source, tmp_path / "root", tokenizers=("bpe",)) == folder


def test_digits_are_the_same_prepared_and_embedded(tmp_path):
    prepare("digits", None, tmp_path)
    for language in digits.SPEC.languages:
        embedded = digits.SPEC.load_embedded("dev", language)
        opened = load_prepared(tmp_path, digits.SPEC, "dev", language=language)
        rows = np.arange(embedded.n_images)
        np.testing.assert_array_equal(opened.image_features[rows], embedded.image_features[rows])
        assert list(opened.captions) == list(embedded.captions)
        every = np.arange(len(embedded))
        for found, expected in zip(opened.tokens.padded(every), embedded.tokens.padded(every), strict=True):
            np.testing.assert_array_equal(found, expected)
        assert opened.vocabulary == embedded.vocabulary
        assert opened.fingerprint == embedded.fingerprint
        assert opened.image_ids.tolist() == embedded.image_ids.tolist()


def test_check_reads_everything_and_writes_nothing(tmp_path, source):
    before = contents(tmp_path)
    found = check("flickr30k", source)
    assert contents(tmp_path) == before
    assert not [warning for warning in found.warnings if "earlier one" in warning]
    assert {record.name: record.sha256 for record in found.files} == contents(source)


@pytest.mark.parametrize(
    ("file", "repeat", "sentence"),
    [
        ("train_ims.npy", 1, "6 of 12 images have exactly the features of an earlier one (row 1 is row 0)"),
        ("dev_ims.npy", 5, "2 of 4 images have exactly the features of an earlier one (row 5 is row 0)"),
    ],
)
def test_images_that_are_copies_of_others_are_counted_and_written_down(
    file, repeat, sentence, tmp_path, source
):
    rows = np.load(source / file)
    copied = rows[(np.arange(len(rows)) // repeat // 2) * 2 * repeat]
    np.save(source / file, copied)
    folder = prepare("flickr30k", source, tmp_path / "root")
    for warnings in (check("flickr30k", source).warnings, read_manifest(folder).warnings):
        assert any(warning.startswith(f"{file}: {sentence}") for warning in warnings)
    assert sentence in (folder / "README.md").read_text()


@pytest.mark.parametrize(("dtype", "dim"), [("float32", 4), ("float32", 1), ("float16", 1)])
def test_one_copy_is_found_whatever_the_bytes_of_a_row(dtype, dim, tmp_path):
    known = miniatures.SPECS["flickr30k"]
    spec = replace(known, feature_dim=dim, origin=replace(known.origin, dtypes=(dtype,)))
    rows = np.random.default_rng(0).random((12, 3, dim)).astype(dtype)
    rows[7] = rows[2]
    rows[8] = rows[2][::-1]
    np.save(tmp_path / "train_ims.npy", rows)
    file = open_features(open_download(tmp_path), "train_ims.npy", spec, "train")
    _, keys = scan(file, dtype="float32", advance=lambda amount: None)
    assert len(set(keys)) == 11
    assert keys[7] == keys[2]


@pytest.mark.slow  # measures memory
def test_the_scan_keeps_a_few_bytes_an_image(monkeypatch, source):
    spec = replace(
        miniatures.SPECS["flickr30k"], images={"train": 600, "dev": 4, "test": 3}, feature_dim=4096
    )
    np.save(source / "train_ims.npy", np.random.default_rng(0).random((600, 3, 4096), np.float32))
    file = open_features(open_download(source), "train_ims.npy", spec, "train")
    tracemalloc.start()
    _, keys = scan(file, dtype="float32", advance=lambda amount: None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(set(keys)) == 600
    row_bytes = 3 * 4096 * 4
    assert peak < 2 * SCAN_ROWS * row_bytes < 600 * row_bytes / 4


WORDS = (*SPECIAL_WORDS, "never", *sorted({*miniatures.WORDS, "is", "n't"} - {"the"}))
VOCABULARY = vocabulary_json(Vocabulary(WORDS, len(WORDS))).encode()


@pytest.fixture
def published_vocabulary(monkeypatch):
    """The miniature's vocabulary is the published one."""
    known = replace(flickr30k.VOCABULARY, sha256=hashlib.sha256(VOCABULARY).hexdigest()[:8])
    origin = replace(flickr30k.SPEC.origin, vocabulary=known)
    monkeypatch.setitem(DATASETS.data, "flickr30k", replace(DATASETS["flickr30k"], origin=origin))
    return known.name


@pytest.mark.parametrize(
    ("beside", "given"),
    [(".", "."), ("vocab", "."), ("..", "."), ("../vocab", "."), (".", ".."), ("..", "..")],
)
def test_the_published_vocabulary_beside_the_download_is_used(
    beside, given, published_vocabulary, tmp_path, monkeypatch, source
):
    (source / beside).mkdir(exist_ok=True)
    (source / beside / published_vocabulary).write_bytes(VOCABULARY)
    place = (source / given).resolve()
    folder = prepare("flickr30k", place, tmp_path / "root")
    manifest, checked = read_manifest(folder), check("flickr30k", place)
    assert (folder / "vocab" / "word.json").read_bytes() == VOCABULARY
    assert manifest.tokenizations[0].origin == "imported"
    assert manifest.warnings == checked.warnings == ()
    assert manifest.checked == checked.checked
    assert manifest.checked[-1] == (
        f"content: {published_vocabulary} has the published sha256; no sha256 is known of 9 files, "
        "so their content was not compared"
    )
    assert [file.published for file in manifest.sources] == [None] * 9 + [True]


def test_other_ids_than_the_published_ones_are_said_loudly(published_vocabulary, tmp_path, source):
    built = read_manifest(prepare("flickr30k", source, tmp_path / "built"))
    other = tmp_path / "other.json"
    other.write_bytes(VOCABULARY.replace(b"never", b"often"))
    options = {"vocabulary": other}
    given = read_manifest(prepare("flickr30k", source, tmp_path / "given", **options))
    for manifest, own in (
        (built, "built from the training captions"),
        (given, "another file than the published"),
    ):
        (warning,) = manifest.warnings
        assert own in warning
        assert "TOKEN IDS DIFFER FROM THE PUBLISHED ONES" in warning
        assert f"put {published_vocabulary} " in warning
    assert given.sources[-1].published is False
    assert given.tokenizations[0].origin == "imported"
    assert given.tokenizations[0].vocabulary_sha256 == hashlib.sha256(other.read_bytes()).hexdigest()
    assert (tmp_path / "given" / "flickr30k" / "vocab" / "word.json").read_bytes() == other.read_bytes()
    assert "other.json has another sha256 than the published file" in given.checked[-1]
    assert check("flickr30k", source).warnings == built.warnings
    assert not read_manifest(prepare("flickr30k", source, tmp_path / "jieba", tokenizers=("jieba",))).warnings


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("flickr30k", "vocabulary"),
        ("flickr30k", "bert"),
        ("now", "shipped"),
    ],
)
def test_a_vocabulary_that_covers_nothing_is_refused_for_every_tokenizer(name, options, tmp_path):
    source, file, text = miniatures.make(tmp_path / "from", name), tmp_path / "v.json", {}
    if options == "vocabulary":
        file.write_text(vocabulary_json(Vocabulary((*SPECIAL_WORDS, "dog"), 5)))
        text = {"vocabulary": file}
    elif options == "bert":
        pieces = Tokenizer(models.WordLevel({"[UNK]": 0, "犬": 1}, unk_token="[UNK]"))
        file.write_text(pieces.to_str())
        text = {"tokenizers": ("bert",), "tokenizer_file": file}
    else:
        for path in source.rglob("*_caps_bert.txt"):
            path.write_text("3,3,3,4\n" * len(path.read_text().splitlines()))
    with refused(DataError):
        prepare(name, source, tmp_path / "root", **text)
    assert not (tmp_path / "root" / name).exists()


@pytest.mark.parametrize("name", sorted(name for name, spec in DATASETS.items() if spec.embedded))
def test_embedded_datasets_are_in_one_unicode_form_and_share_no_features_across_splits(name):
    """So that their token ids stay those of every version before."""
    material = embedded_material(DATASETS[name])
    splits_of = {}
    for split, content in material.splits.items():
        texts = [*content.image_ids, *chain(*content.captions.values())]
        assert all(normalized(text) == text for text in texts)
        for row in chain(*content.blocks(128)):
            splits_of.setdefault(hashlib.sha256(row.tobytes()).digest(), set()).add(split)
    assert {len(splits) for splits in splits_of.values()} == {1}


def test_the_same_download_with_another_vocabulary_is_another_preparation(
    published_vocabulary, tmp_path, source
):
    prepare("flickr30k", source, tmp_path / "root")
    (source / published_vocabulary).write_bytes(VOCABULARY)
    with refused(DataError):
        prepare("flickr30k", source, tmp_path / "root")
    prepare("flickr30k", source, tmp_path / "theirs")
    spec = miniatures.SPECS["flickr30k"]
    built, theirs = (load_prepared(tmp_path / name, spec, "train") for name in ("root", "theirs"))
    assert built.fingerprint == theirs.fingerprint, "the fingerprint is of the data, not of the token ids"
    assert built.vocabulary.sha256 != theirs.vocabulary.sha256
    every = np.arange(len(built))
    assert not np.array_equal(built.tokens.padded(every)[0], theirs.tokens.padded(every)[0])


def test_the_published_archive_is_known_by_its_hash(tmp_path, monkeypatch):
    archive = miniatures.zipped(miniatures.make_now(tmp_path / "from"), tmp_path / "mine.zip")
    known = KnownFile("NoW.zip", hashlib.sha256(archive.read_bytes()).hexdigest(), archive.stat().st_size)
    for published, sha256 in ((True, known.sha256), (False, "0" * 64)):
        origin = replace(now.SPEC.origin, archive=replace(known, sha256=sha256))
        with monkeypatch.context() as patch:
            patch.setitem(DATASETS.data, "now", replace(DATASETS["now"], origin=origin))
            assert check("now", archive).files[-1] == FileRecord(
                name="mine.zip", bytes=known.bytes, sha256=known.sha256, published=published
            )


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_a_full_disk_leaves_nothing_half_written_and_work_of_the_same_settings_is_kept(
    dtype, tmp_path, monkeypatch, source
):
    write, written = preparing._write_features, []

    def full(path, spec, split, *others):
        if split == "test" and len(written) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(split)
        return write(path, spec, split, *others)

    with monkeypatch.context() as patch:
        patch.setattr(preparing, "_write_features", full)
        with refused(DataError):
            prepare("flickr30k", source, tmp_path / "root")
        assert not (tmp_path / "root" / "flickr30k").exists()
        written.append("again")
        prepare("flickr30k", source, tmp_path / "root", dtype=dtype)
    assert written == ["train", "dev", "again", *(["train", "dev"] if dtype else []), "test"]
    prepare("flickr30k", source, tmp_path / "fresh", dtype=dtype)
    assert contents(tmp_path / "root") == contents(tmp_path / "fresh")
    assert os.listdir(tmp_path / "root") == ["flickr30k"]


def test_a_stop_after_the_manifest_is_written_changes_nothing(tmp_path, monkeypatch, source):
    write = preparing._write

    def stop(*arguments):
        write(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(preparing, "_write", stop)
        with pytest.raises(KeyboardInterrupt):
            prepare("flickr30k", source, tmp_path / "root")
    prepare("flickr30k", source, tmp_path / "root")
    prepare("flickr30k", source, tmp_path / "fresh")
    assert contents(tmp_path / "root") == contents(tmp_path / "fresh")


def test_the_same_command_again_changes_nothing(tmp_path, source):
    folder = prepare("flickr30k", source, tmp_path / "root")
    stamps = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert prepare("flickr30k", source, tmp_path / "root") == folder
    assert prepare("flickr30k", source.parent, tmp_path / "root") == folder  # the same files, named otherwise
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == stamps


def test_float16_features_are_written_as_float32_where_it_is_asked_for(tmp_path):
    source = miniatures.make(tmp_path / "from", "now")
    half = prepare("now", source, tmp_path / "half")
    whole = prepare("now", source, tmp_path / "whole", dtype="float32")
    features, same = (np.load(folder / "features" / "train.npy") for folder in (half, whole))
    assert (features.dtype, same.dtype) == (np.float16, np.float32)
    assert np.array_equal(features, same)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("now", {"tokenizers": ("word",)}),
        ("coco", {"tokenizers": ("ids",)}),
        ("coco", {"tokenizers": ("bert",)}),
        ("coco", {"tokenizers": ("jieba",), "vocabulary": Path("v.json")}),
        ("coco", {"tokenizer_file": Path("t.json")}),
        ("coco", {"vocabulary": Path("absent.json")}),
    ],
)
def test_options_are_checked_before_writing(name, options, tmp_path):
    source = miniatures.make(tmp_path / "from", name)
    with refused(DataError):
        prepare(name, source, tmp_path / "root", **options)
    assert not (tmp_path / "root").exists()
