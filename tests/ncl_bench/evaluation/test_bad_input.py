"""What is wrong with a submission is said in one sentence, exit code 2, and nothing is written."""

import hashlib
import io
import os
import pickle
import struct
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from support.damaged import YAML, assert_damage_is_refused, assert_refused
from support.refusals import refused, saw
from support.submission_folders import (
    scores_of_form,
    similarities,
    statement,
    write_array,
    write_folder,
    write_matrix,
    write_statement,
)

from ncl_bench.data import DATASETS
from ncl_bench.evaluation.call import evaluate
from ncl_bench.evaluation.results import read_result
from ncl_bench.evaluation.submission import read_submission
from ncl_bench.yaml import read_yaml

ANOTHER_HASH = hashlib.sha256(b"another").hexdigest()
CASES = {}
"""Name to form of the scores, and what is done to a good folder and its statement."""


def case(form="matrix"):
    def add(mutation):
        assert mutation.__name__ not in CASES
        CASES[mutation.__name__] = (form, mutation)
        return mutation

    return add


def replace_matrix(make, name):
    def mutation(folder, content):
        content["scores"]["test"]["matrix"] = write_array(folder, "test.npy", make())

    CASES[name] = ("matrix", mutation)


def replace_bytes(change, name):
    def mutation(folder, content):
        path = folder / "test.npy"
        path.write_bytes(change(path.read_bytes()))

    CASES[name] = ("matrix", mutation)


def state(name, **changes):
    """Change statements; a dotted name stands for a nested key with ``__``."""

    def mutation(folder, content):
        for key, value in changes.items():
            *parents, last = key.split("__")
            place = content
            for parent in parents:
                place = place[parent]
            if value is ...:
                del place[last]
            else:
                place[last] = value

    CASES[name] = ("matrix", mutation)


def replace_yaml(text, name):
    def mutation(folder, content):
        content.clear()
        (folder / "submission.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())

    CASES[name] = ("matrix", mutation)


def with_value(value):
    scores = similarities()
    scores[17, 23] = scores[150, 900] = value
    return scores


def header(shape):
    """The head of an ``.npy`` file with this text as shape."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}"
    body = text.encode() + b" " * (117 - len(text)) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(body)) + body


def zip_bomb(_):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("test.npy", b"\0" * 50_000_000)
    return stream.getvalue()


class Exploit:
    def __reduce__(self):
        return (os.mkdir, ("exploited",))


replace_matrix(lambda: with_value(np.nan), "nan")
replace_matrix(lambda: similarities().T, "transposed")
replace_matrix(lambda: similarities().astype(object), "objects")
replace_bytes(lambda _: pickle.dumps(Exploit()), "pickle")
replace_bytes(lambda content: content[:-4], "truncated")
replace_bytes(lambda content: content + b"garbage", "appended_garbage")
replace_bytes(lambda _: b"", "empty_file")
replace_bytes(zip_bomb, "zip_bomb")
replace_bytes(lambda _: header("__import__('os').mkdir('exploited')"), "code_in_header")
replace_bytes(lambda _: header("(1000000000000, 1000000000000)"), "huge_shape")
replace_bytes(lambda _: header("(-200, -1000)") + bytes(800_000), "negative_shape")
replace_bytes(lambda content: content[:-1] + b"\x01", "another_hash")

# A carriage return in ``notes`` was accepted and then ended every later `leaderboard diff` with a traceback.
state("carriage_return", notes="a\rb")
state("text_turned_around", hardware="\u202eUPC")
state("name_of_two_lines", method="a\nb")
state("command_of_latex", pretrained_encoder="CLIP\n\\input{/etc/passwd}")
state(
    "password",
    code="https://a:b@example.org",
)
state("recipe_in_words", recipes=["NCR"])
state("parent_path", scores__test__matrix__file="../test.npy")
state("absolute_path", scores__test__matrix__file="/etc/test.npy")
state("npz_name", scores__test__matrix__file="test.npz")
state("missing_file", scores__test__matrix__file="other.npy")
state("unknown_key", metod="x")
state("missing_key", backbone=...)
state(
    "unfilled_in_three_places",
    backbone="FILL-IN",
    order_fingerprint__test="FILL-IN",
    hardware="FILL-IN",
)
state("extra_clean_data_none", extra_clean_data="None")
state("ratio_in_percent", noise__ratio=40)
state("unknown_dataset", dataset="flickr9k")
state("later_protocol", protocol_version=3)
state("unknown_form", scores__test__form="ranks")
state("no_scores", scores={})
state("hours_are_nan", hours=float("nan"))
state("script_as_link", code="javascript:alert(1)")
state("wrong_noise_hash", noise__sha256=ANOTHER_HASH)
state("wrong_noise_seed", noise__seed=5)
state("wrong_realised_ratio", noise__realised_ratio=0.3)
state("natural_noise_on_clean_data", noise={"unit": "natural", "ratio": None})
state("ratio_without_noise", noise__unit="none")
state("other_order", order_fingerprint__test=ANOTHER_HASH)
state("no_order", order_fingerprint={})
state("order_of_letters", order_fingerprint__test="a" * 64)

replace_yaml("- a\n- b\n", "yaml_list")
replace_yaml("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "yaml_bomb")
replace_yaml("method: !!python/object/apply:os.mkdir [exploited]\n", "yaml_tag")
replace_yaml("method: a\nmethod: b\n", "yaml_key_twice")
replace_yaml("method: a\n\tb: c\n", "yaml_tab")
replace_yaml(b"method: \xff\xfe\n", "yaml_not_utf8")
replace_yaml("[" * 20_000, "yaml_nested")
replace_yaml("notes: " + "x" * 70_000, "yaml_too_large")


def in_its_place(name, make):
    """Something else where the scores were."""

    def mutation(folder, content):
        (folder / "test.npy").unlink()
        make(folder / "test.npy")

    CASES[name] = ("matrix", mutation)


in_its_place("dangling_link", lambda path: path.symlink_to("nowhere.npy"))
in_its_place("folder_instead_of_file", Path.mkdir)
in_its_place("link_to_itself", lambda path: path.symlink_to("test.npy"))


@case()
def link_out(folder, content):
    os.replace(folder / "test.npy", folder.parent / "elsewhere.npy")
    (folder / "test.npy").symlink_to(folder.parent / "elsewhere.npy")


@case()
def folder_link_out(folder, content):
    (folder / "deep").symlink_to(folder.parent)
    content["scores"]["test"]["matrix"]["file"] = "deep/test.npy"


@case()
def sparse_giant(folder, content):
    (folder / "test.npy").write_bytes(header("(50000, 50000)"))
    os.truncate(folder / "test.npy", 128 + 10_000_000_000)


@case()
def sparse_giant_of_the_right_shape(folder, content):
    os.truncate(folder / "test.npy", 10_000_000_000)


@case()
def no_statement(folder, content):
    content.clear()
    (folder / "submission.yaml").unlink()


@case()
def root_without_data(folder, content):
    matrix = write_array(folder, "test.npy", np.eye(1000, dtype=np.float32))
    content["scores"]["test"]["matrix"] = matrix
    content |= {"dataset": "cc152k", "noise": {"unit": "natural", "ratio": None}, "root": str(folder)}


def embed(name, side, change, **changes):
    """Other embeddings of one side, with these changes of what is stated of them."""

    def mutation(folder, content):
        vectors = change(np.load(folder / f"test_{side}.npy"))
        content["scores"]["test"] |= {side: write_array(folder, f"test_{side}.npy", vectors)} | changes

    CASES[name] = ("embeddings", mutation)


def row(number, value):
    """Put one number into a whole row."""
    return lambda vectors: np.where(np.arange(len(vectors))[:, None] == number, np.float32(value), vectors)


embed("nan_in_embeddings", "captions", row(7, np.nan))
embed("zero_embedding", "images", row(3, 0), similarity="cosine")
embed("embeddings_of_two_lengths", "images", lambda x: x[:, 1:])
embed("unknown_similarity", "images", lambda x: x, similarity="euclidean")


@case("embeddings")
def embeddings_too_large(folder, content):
    for name, n in (("images", 200), ("captions", 1000)):
        vectors = np.full((n, 4), 1e30, np.float32)
        content["scores"]["test"][name] = write_array(folder, f"test_{name}.npy", vectors)


@case()
def statement_without_end(folder, content):
    content.clear()
    (folder / "submission.yaml").unlink()
    (folder / "submission.yaml").symlink_to("/dev/zero")


@case("embeddings")
def embeddings_swapped(folder, content):
    scores = content["scores"]["test"]
    scores["images"], scores["captions"] = scores["captions"], scores["images"]


def noise_file(name, make):
    """A file of noise in place of its seed."""

    def mutation(folder, content):
        content["noise"] |= {"seed": None, "index": write_array(folder, "noise.npy", make())}

    CASES[name] = ("matrix", mutation)


noise_file("noise_file_of_another_length", lambda: np.arange(10))
noise_file(
    "noise_file_of_another_hash",
    lambda: DATASETS["digits"].draw_noise(noise_ratio=0.2, noise_unit="caption")[0],
)


def state_probabilities(name, values, **noise):
    """State probabilities of correspondence, and other facts of the noise."""

    def mutation(folder, content):
        content["correspondence"] = write_array(folder, "probability.npy", values)
        content["noise"] = content["noise"] | noise if noise.get("unit") != "none" else noise

    CASES[name] = ("matrix", mutation)


HALF = np.full(10_000, 0.5)
WRONG = np.where(np.isin(np.arange(10_000), [3, 9]), np.nan, HALF)
state_probabilities("probabilities_that_are_nan", WRONG)
state_probabilities("probabilities_above_one", 3 * HALF)
state_probabilities("too_few_probabilities", HALF[1:])
state_probabilities(
    "probabilities_without_noise",
    HALF,
    unit="none",
    ratio=0,
)
state_probabilities(
    "probabilities_of_unknown_noise",
    HALF,
    seed=None,
    sha256=ANOTHER_HASH,
    realised_ratio=None,
)


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_one_sentence(name, run, tmp_path, monkeypatch):
    form, mutation = CASES[name]
    folder = tmp_path / "submission"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    content = statement({"test": scores_of_form(folder, form)})
    write_statement(folder, content)
    mutation(folder, content)
    options = [f"--{option}={content.pop(option)}" for option in ("examples", "root") if option in content]
    if content:
        write_statement(folder, content)
    before = sorted(tmp_path.rglob("*"))
    ran = run("evaluate", folder, "--to", tmp_path / "out", *options)
    assert ran.code == 2
    assert ran.out == ""
    *begun, sentence = ran.err.splitlines()
    assert sentence.startswith("ncl-bench: ")
    assert len(begun) <= 1  # the line with which evaluation begins
    assert len(saw(sentence)) < 700
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_or_a_dataset_is_needed(run, tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("nowhere", "file"):
        saw(run("evaluate", tmp_path / name).err)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes on another user's rights")
def test_unreadable_files_are_named(run):
    for locked, words in (("test.npy", "cannot be read"), ("submission.yaml", "cannot be read")):
        with tempfile.TemporaryDirectory() as place:
            os.chmod(place, 0o755)
            folder = write_folder(Path(place) / "submission")
            os.chmod(folder / locked, 0)
            os.seteuid(65534)
            try:
                ran = run("evaluate", folder)
            finally:
                os.seteuid(0)
        assert ran.code == 2
        assert words in ran.err
        assert "Permission denied" in ran.err


@pytest.mark.parametrize("layout", [np.asfortranarray, lambda x: x.astype(">f4"), lambda x: x.astype(">f2")])
def test_unusual_layouts_are_read_right(layout, run, tmp_path):
    scores = layout(similarities())
    assert run("evaluate", write_matrix(tmp_path, scores)).code == 0
    plain = np.ascontiguousarray(scores.astype(scores.dtype.newbyteorder("=")))
    assert read_result(tmp_path).splits["test"] == evaluate(plain, dataset="digits")


@pytest.mark.parametrize("nested", ["[" * 60_000, "{a: " * 15_000, "- " * 30_000, "? " * 30_000])
def test_yaml_that_is_nested_without_end_is_one_sentence(nested, tmp_path):
    (tmp_path / "a.yaml").write_text(nested)
    with refused():
        read_yaml(tmp_path / "a.yaml")


def test_damaged_yaml_is_read_or_refused(tmp_path):
    path = tmp_path / "plain.yaml"

    def read(content):
        path.write_bytes(content)
        read_yaml(path)

    seeds = [b"a: [1, 2.5, x]\nb: {c: null, d: 2020-01-01}\n", b"- 1\n", b'k: "\\u00e9"\n']
    assert_damage_is_refused(seeds, read, YAML)
    assert_refused(read, b"a: !!timestamp x\n", "tags are not allowed")
    assert_refused(read, b"a: !!int ''\n", "tags are not allowed")
    assert_refused(read, b"a: 1" + b":00" * 400 + b".5\n", "cannot be read")


def test_damaged_submissions_are_read_or_refused(tmp_path):
    seeds = [
        (write_folder(tmp_path / form, form) / "submission.yaml").read_bytes()
        for form in ("matrix", "embeddings")
    ]

    def read(content):
        (tmp_path / "submission.yaml").write_bytes(content)
        stated = read_submission(tmp_path)
        (tmp_path / "submission.yaml").write_text(stated.to_yaml(), "utf-8")
        assert read_submission(tmp_path) == stated

    assert_damage_is_refused(seeds, read, YAML)
    assert_refused(read, seeds[0].replace(b"networks: 1", b"networks: 0x" + b"f" * 5_000), "cannot be read")
    line_end = seeds[0].replace(b"file: test.npy", b'file: "a\\e[2J\\nb"')
    assert_refused(read, line_end, "holds the control character U+001B")
