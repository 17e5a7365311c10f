"""Files of results: their names, their text, and what is refused."""

import os
import re
from pathlib import Path

import pytest
import yaml
from support.board_rows import rows_on
from support.damaged import YAML, ZIP, assert_damage_is_refused
from support.refusals import refused

from leaderboard.add import add
from leaderboard.build import build
from leaderboard.folder import REPRODUCED
from leaderboard.rank_files import read_ranks
from leaderboard.read_entries import features_of
from leaderboard.row_files import (
    header_of,
    read_results,
    read_row_file,
    recipe_kind,
    row_name,
)
from ncl_bench.data import dataset_spec
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation.submission import read_submission
from ncl_bench.evaluation.training_record import Training


def edit(path, *keys, value):
    content = yaml.safe_load(path.read_text("utf-8"))
    place = content
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    path.write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")


def training(precision="32-true", budget=None, **settings):
    content = {"precision": precision, "torch": "2.9.0", "device": "NVIDIA H200", "settings": settings}
    return Training.model_validate(content | {"budget": budget})


@pytest.fixture
def header(make, tmp_path):
    """Header of a submission with the fields that are given."""

    def header(submitter="", **fields):
        folder = tmp_path / "submitted" / str(len(list(tmp_path.glob("submitted/*"))))
        return header_of(read_submission(make(folder, **fields)), submitter)

    return header


RECIPE = {"recipes": ("crcl/digits_vse_infinity",), "training": training()}


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        (RECIPE, "digits/crcl/vse-infinity-1net-caption-40"),
        (RECIPE | {"ratio": 0.0, "networks": 2}, "digits/crcl/vse-infinity-2net-none"),
        (
            RECIPE | {"recipes": ("crcl/digits_vse_infinity_tuned",), "training": training("tf32", 1500)},
            "digits/crcl/vse-infinity-1net-caption-40-tuned-1500steps-tf32",
        ),
    ],
)
def test_shipped_recipes_have_plain_names(header, fields, name):
    assert row_name(header(**fields)) == name


def test_whatever_else_makes_a_cell_is_in_the_hash_of_its_name(header):
    others = [
        {},
        {"submitter": "Ada"},
        {"submitter": "Ada", "paper": "https://example.org"},
        {"submitter": "Ada", "code": "https://example.org"},
        {"submitter": "Ada", "selection_split": "test"},
        {"submitter": "Ada", "extra_clean_data": "200 pairs"},
        {"submitter": "Ada", "pretrained_encoder": "CLIP"},
        {"submitter": "Ada", "recipes": ("crcl/digits_vse_infinity",)},
        {"submitter": "Ada", "training": training()},
        {"submitter": "Ada", "training": training(**{"method.epochs": 3})},
        {"submitter": "Ada", "method": "crcl"},
        {"submitter": "Ada", "tokenizer": "my own"},
    ]
    names = [row_name(header(**fields)) for fields in others]
    assert len(set(names)) == len(names)
    assert {name.rsplit("-", 1)[0] for name in names} == {"digits/crcl/vse-infinity-1net-caption-40"}


@pytest.mark.parametrize(
    ("recipe", "kind"),
    [
        ("crcl/digits_vse_infinity", "default"),
        ("crcl/digits_vse_infinity_tuned", "tuned"),
        ("crcl/pictograms_vse_infinity_tuned", "tuned on pictograms"),  # moved to digits by a setting
        ("crcl/pictograms-web_vse_infinity", "tuned on pictograms"),
        ("triplet/flickr8k_vse_infinity_mean", "tuned on pictograms"),
        ("in2r/flickr8k_vse_infinity", "default"),
        ("rcl/flickr8k_sgr", "default"),
        ("mine/pets_sgr", "default"),
    ],
)
def test_a_row_says_on_which_data_its_options_were_tuned(header, recipe, kind):
    assert recipe_kind(header(recipes=(recipe,), training=training())) == kind
    assert recipe_kind(header()) == ""


@pytest.mark.parametrize(
    ("fields", "features"),
    [
        ({"backbone": "CLIP"}, "images"),
        ({"backbone": "OpenCLIP ViT-B-32"}, "images"),
        ({"backbone": "SigLIP"}, "images"),
        ({"backbone": "ALIGN"}, "images"),
        ({"backbone": "CLIP", "pretrained_encoder": "OpenAI"}, "pretrained"),
        ({"backbone": "VSE-infinity"}, "region"),
        ({"backbone": "Aligned SCAN"}, "region"),
    ],
)
def test_a_network_that_reads_images_is_not_among_those_on_region_features(header, fields, features):
    assert features_of(header(**fields)) == features


def test_every_file_of_the_board_is_as_the_program_writes_it():
    root = Path(__file__).parents[2] / "leaderboard"
    for name, file in read_results(root).files.items():
        assert file.to_yaml() == (root / "results" / f"{name}.yaml").read_text("utf-8"), name


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("header", "dataset"), "pictograms"),
        (("header", "method"), "Another"),
        (("header", "surprise"), 1),
        (("header", "order_fingerprint"), {}),
        (("header", "order_fingerprint", "test"), "0123456789abcdef" * 4),
        (("header", "noise", "realised_ratio"), 0.1),
        (("seeds", 0, "r_sum"), 600.0),
        (("seeds", 1, "training_seeds"), [0]),
    ],
)
def test_a_changed_file_is_refused_with_its_name_and_field(first_entry, board, keys, value):
    edit(first_entry, *keys, value=value)
    with refused(SubmissionError) as error:
        build(board, board / "site", published=False)
    assert str(first_entry) in str(error.value)


def test_a_row_without_its_ranks_is_refused(first_entry, board):
    path = first_entry.with_suffix(".npz")
    path.unlink()
    with refused(SubmissionError):
        build(board, board / "site", published=False)


def test_a_file_that_an_addition_writes_is_passed_over(first_entry, board):
    """Table, check and every other command refused the whole board while one row was added to it."""
    for process in (os.getpid(), 2**22 + 1):  # one that runs, and one that was killed
        first_entry.with_name(f".x.npz.{process}-0123456789abcdef.tmp").write_bytes(b"half")
    assert first_entry.stem in str(list(read_results(board).files))


@pytest.mark.parametrize("name", ["CON", "nul", "Com1", "...", "600.0"])
def test_a_folder_has_a_name_on_every_system(header, name):
    """Windows has no folder ``con``, so no clone there could hold the board."""
    assert re.fullmatch(
        r"m-[0-9a-f]{8}", row_name(header().model_copy(update={"method": name})).split("/")[1]
    )


def test_one_run_of_one_submitter_in_two_files_is_refused(put, tmp_path):
    board = tmp_path / "board"
    put(board)
    path = put(board, difficulty=1.6, seed=1, paper="https://example.org")
    edit(path, "seeds", 0, "training_seeds", value=[0])
    with refused(SubmissionError):
        read_results(board)


def test_a_correction_for_hubs_is_part_of_the_row(make, put, tmp_path):
    """Without it, or with a weight that was given, the same run is another row, and none of them takes a rank."""
    board, common = tmp_path / "board", {**RECIPE, "ratio": 0.4}
    bank = {"name": "csls", "captions": 10_000, "images": 6_000}
    chosen = [{"weight": 1.0, "neighbours": 50}, {"weight": 1.5, "neighbours": 10}]
    corrections = [None, bank | chosen[0], bank | chosen[1] | {"given_weight": 1.5}]
    paths = [
        put(board, difficulty=1 + n / 5, correction=correction, **common)
        for n, correction in enumerate(corrections)
    ]
    plain, auto, given = (path.stem for path in paths)
    assert (auto, given) == (f"{plain}-csls", f"{plain}-csls-150")
    # dev may choose otherwise for another seed
    again = make(tmp_path / "again", seed=1, difficulty=1.7, correction=bank | chosen[1], **common)
    assert add(again, board) == paths[1]
    rows = {row.file.rpartition("/")[2]: row for row in rows_on(board)}
    assert [rows[name].correction for name in (plain, auto, given)] == ["", "CSLS", "CSLS, weight 1.5"]
    assert [rows[name].ranked for name in (plain, auto, given)] == [False] * 3
    assert [rows[name].kind for name in (plain, auto, given)] == ["method", "corrected", "corrected"]
    assert rows[auto].label.endswith("(CSLS)")
    assert [note.split("; ")[1] for note in rows[auto].notes if "hubs" in note] == [
        "weight 1, 50 neighbours.",
        "weight 1.5, 10 neighbours.",
    ]
    assert "--hubs auto --to" in rows[auto].command
    assert "--hubs 1.5 --to" in rows[given].command


@pytest.mark.parametrize("seeds", ["5", "first", "{0: 1}", "[0, [1]]"])
def test_a_damaged_list_of_reproduced_seeds_is_told(board, seeds):
    (board / REPRODUCED).write_text(f"a: {seeds}\n", "utf-8")
    with refused(SubmissionError):
        read_results(board)


def test_every_reproduced_seed_has_its_result():
    results = read_results(Path(__file__).parents[2] / "leaderboard")
    assert len(results.reproduced) > 500
    for name, seeds in results.reproduced.items():
        assert set(seeds) <= {record.key for record in results.files[name].seeds}, name


RESULTS = Path(__file__).parents[2] / "leaderboard" / "results" / "digits"


def test_damaged_cells_are_read_or_refused(tmp_path):
    path = tmp_path / "cell.yaml"

    def read(content):
        path.write_bytes(content)
        file = read_row_file(path)
        assert file.name.startswith("digits/")
        path.write_text(file.to_yaml(), "utf-8")
        assert read_row_file(path) == file

    assert_damage_is_refused([cell.read_bytes() for cell in sorted(RESULTS.rglob("*.yaml"))[:3]], read, YAML)


def test_damaged_ranks_are_read_or_refused(tmp_path):
    path = tmp_path / "cell.npz"

    def read(content):
        path.write_bytes(content)
        read_ranks(path, ["0", "1", "2", "3", "4"], dataset_spec("digits"))

    assert_damage_is_refused([file.read_bytes() for file in sorted(RESULTS.rglob("*.npz"))[:2]], read, ZIP)
