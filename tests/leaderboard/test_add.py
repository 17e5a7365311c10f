"""Adding submissions: what is checked, what is written, and how the board shows it."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from support.board_rows import rows_on
from support.command import invoke
from support.refusals import refused
from test_row_files import edit, training

from leaderboard.add import RowStands, add, new_row, write_rows
from leaderboard.build import build
from leaderboard.entries import Condition
from leaderboard.read_entries import noise_used, read_measured, recipe_commands
from leaderboard.row_files import header_of, read_row_file
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation.evaluate import evaluate_submission, open_submission
from ncl_bench.evaluation.submission import StatedNoise, read_submission
from ncl_bench.files import sha256_of_file, write_text
from ncl_bench.papers import read_families


def test_a_row_holds_what_evaluate_says(make, tmp_path):
    folder = make(tmp_path / "submission")
    report, _ = evaluate_submission(open_submission(folder))
    path = add(folder, tmp_path / "board")
    assert path.parent == tmp_path / "board/results/digits/crcl"
    (entry,), hits, _ = read_measured(tmp_path / "board", read_families())
    result = report.splits["test"].default
    assert {**entry.recalls.values, "r_sum": pytest.approx(entry.r_sum)} == result.recalls()
    assert entry.intervals["t2i_r5"] == (result.t2i.intervals or {})["r5"]
    assert entry.status == "submitted"
    name = path.relative_to(tmp_path / "board/results").with_suffix("").as_posix()
    assert set(hits) == {(name, "0", "200")}


def test_maintainers_list_what_they_trained(make, put, tmp_path):
    board = tmp_path / "board"
    for seed in (1, 0):
        write_rows([new_row(make(tmp_path / str(seed), seed=seed), board)], board, reproduced=True)
    put(board, method="Other", difficulty=1.6)
    entries = read_measured(board, read_families()).entries
    found = {(entry.method, entry.status) for entry in entries}
    assert found == {("CRCL", "reproduced"), ("Other", "submitted")}
    (listed,) = yaml.safe_load((board / "reproduced.yaml").read_text("utf-8")).values()
    assert listed == [0, 1]


def test_a_submission_that_has_a_row_stands_and_is_not_written_twice(make, tmp_path):
    board, folder = tmp_path / "board", make(tmp_path / "0")
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    rows = [new_row(each, board) for each in (folder, copy)]
    with refused(SubmissionError):
        write_rows(rows, board)
    add(folder, board)
    with pytest.raises(RowStands):
        add(copy, board)


def test_a_further_seed_leaves_the_text_of_the_others_as_it_is(put, tmp_path):
    board = tmp_path / "board"
    path = put(board, seed=1, training=training())
    header, _, first = path.read_text("utf-8").partition("seeds:\n")
    for seed in (12, 0):
        assert put(board, seed=seed, training=training()) == path
    text = path.read_text("utf-8")
    assert text.startswith(f"{header}seeds:\n- training_seeds: [0]\n")
    assert f"\n{first}- training_seeds: [12]\n" in text
    assert sorted(path.parent.iterdir()) == [path.with_suffix(".npz"), path]
    (row,) = rows_on(board)
    assert row.seeds == (0, 1, 12)


@pytest.mark.parametrize("standing", [(), (0,), (0, 2)])
@pytest.mark.parametrize("at", ["yaml", "reproduced"])
def test_an_addition_that_was_stopped_loses_nothing_and_can_be_made_again(
    make, tmp_path, monkeypatch, standing, at
):
    def stop(path, text):
        if (path.name == "reproduced.yaml") == (at == "reproduced"):
            raise KeyboardInterrupt
        write_text(path, text)

    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    submissions = [make(tmp_path / str(seed), seed=seed) for seed in (*standing, 1)]
    for board in (whole, stopped):
        for folder in submissions[: len(standing)]:
            write_rows([new_row(folder, board)], board, reproduced=True)
    last = ["leaderboard", "add", str(submissions[-1]), "--reproduced", "--root"]
    with monkeypatch.context() as patch:
        patch.setattr("leaderboard.add.write_text", stop)
        with pytest.raises(KeyboardInterrupt):
            write_rows([new_row(submissions[-1], stopped)], stopped, reproduced=True)
    seeds = [seed for entry in read_measured(stopped, read_families())[0] for seed in entry.seeds]
    assert set(seeds) == {*standing, *([1] if at == "reproduced" else [])}
    for board in (whole, stopped):
        invoke(*last, board)
    files = [path.relative_to(whole) for path in sorted(whole.rglob("*")) if path.is_file()]
    assert {path.suffix for path in files} >= {".yaml", ".npz"}
    for path in files:
        assert (whole / path).read_bytes() == (stopped / path).read_bytes()


def test_a_submitter_has_a_file_and_row_of_their_own(make, put, tmp_path):
    board = tmp_path / "board"
    put(board)
    ada = new_row(make(tmp_path / "hers", difficulty=1.6), board, submitter="Ada Lovelace")
    write_rows([ada], board)
    notes = {row.notes: row.seeds for row in rows_on(board)}
    assert notes == {(): (0,), ("Submitted by Ada Lovelace.",): (0,)}


def test_a_statement_unlike_that_of_the_other_seeds_is_refused(put, tmp_path):
    board = tmp_path / "board"
    path = put(board)
    written = path.read_bytes()
    with refused(SubmissionError):
        put(board, seed=1, notes="New.")
    assert path.read_bytes() == written


def test_a_duplicate_is_refused_whether_by_run_or_scores_or_ranks(make, put, tmp_path):
    board = tmp_path / "board"
    path = put(board)
    with refused(SubmissionError):
        put(board, difficulty=1.6)
    with refused(SubmissionError):
        put(board, difficulty=1.6, paper="https://example.org")
    with refused(SubmissionError):
        put(board, method="Copy")
    copy = make(tmp_path / "copy", method="Copy")
    np.save(copy / "test.npy", 2 * np.load(copy / "test.npy"))
    sha256 = sha256_of_file(copy / "test.npy")
    edit(copy / "submission.yaml", "scores", "test", "matrix", "sha256", value=sha256)
    with refused(SubmissionError):
        add(copy, board)
    assert sorted(board.rglob("*.*")) == [path.with_suffix(".npz"), path]


def test_a_copy_under_another_name_is_refused_by_build(first_entry, board):
    cell = read_row_file(first_entry)
    copied = cell.model_copy(update={"header": cell.header.model_copy(update={"method": "Copy"})})
    (target := board / "results" / f"{copied.name}.yaml").parent.mkdir()
    target.write_text(copied.to_yaml(), "utf-8")
    target.with_suffix(".npz").write_bytes(first_entry.with_suffix(".npz").read_bytes())
    with refused(SubmissionError):
        build(board, board / "site", published=False)


def test_a_recipe_that_does_not_exist_is_refused_by_add_and_by_build(first_entry, board, put, tmp_path):
    with refused(SubmissionError):
        put(tmp_path / "new", recipes=("x/nope",))
    assert not list((tmp_path / "new").rglob("*.*"))
    edit(first_entry, "header", "recipes", value=["x/nope"])
    named = first_entry.parents[2] / f"{read_row_file(first_entry).name}.yaml"
    for suffix in (".npz", ".yaml"):
        first_entry.with_suffix(suffix).rename(named.with_suffix(suffix))
    with refused(SubmissionError):
        build(board, board / "site", published=False)


def test_a_method_that_nobody_knows_gets_a_page_of_its_own(put, tmp_path):
    put(tmp_path / "board", method="Brand New (x)", paper="https://example.org/p")
    build(tmp_path / "board", tmp_path / "board/site", published=False)
    (path,) = (tmp_path / "board/site/methods").glob("own-brand-new-x-*.html")
    page = path.read_text("utf-8")
    assert "Brand New (x)" in page
    assert 'href="https://example.org/p"' in page


def test_a_checkpoint_chosen_on_test_takes_no_rank_and_is_not_merged(put, tmp_path):
    put(tmp_path / "board", selection_split="test")
    for seed in (1, 2, 3):
        put(tmp_path / "board", seed=seed)
    rows = rows_on(tmp_path / "board")
    found = {row.selection: row.rank for row in rows}
    assert found == {"test": None, "dev": 1}
    build(tmp_path / "board", tmp_path / "board/site", published=False)
    page = (tmp_path / "board/site/index.html").read_text("utf-8")
    assert page.count("selection: test") == 1


def test_changed_settings_are_shown_and_make_another_row(put, tmp_path):
    board, changed = tmp_path / "board", training(**{"method.epochs": 10, "batch_size": 32})
    put(board)
    put(board, difficulty=1.6, training=changed)
    labels = {row.label for row in rows_on(board)}
    assert labels == {"CRCL", "CRCL (batch_size=32, method.epochs=10)"}
    build(board, board / "site", published=False)
    assert '<span class="badge">method.epochs=10</span>' in (board / "site/index.html").read_text("utf-8")
    assert '"batch_size=32, method.epochs=10"' in (board / "site/data/leaderboard.csv").read_text("utf-8")


def test_a_reduced_precision_is_shown_and_its_seeds_are_merged_with_no_other(put, tmp_path):
    board = tmp_path / "board"
    for seed, precision in enumerate(["32-true", "32-true", "tf32", "bf16-mixed"]):
        put(board, seed=seed, training=training(precision))
    rows = rows_on(board)
    found = {row.label: (row.precision, row.seeds) for row in rows}
    assert found == {
        "CRCL": ("32-true", (0, 1)),
        "CRCL (tf32)": ("tf32", (2,)),
        "CRCL (bf16-mixed)": ("bf16-mixed", (3,)),
    }
    build(board, board / "site", published=False)
    front = (board / "site/index.html").read_text("utf-8")
    assert '<span class="badge">tf32</span>' in front
    assert '<span class="badge">32-true</span>' not in front
    assert "torch 2.9.0, NVIDIA H200" in (board / "site/methods/crcl.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, "--noise-ratio 0.4 --noise-unit caption"),
        ({"training_seeds": (3,)}, "--noise-ratio 0.4 --noise-unit caption --seed 3"),
        ({"training": training("tf32")}, "--noise-ratio 0.4 --noise-unit caption --precision tf32"),
        ({"training": training("32-true")}, "--noise-ratio 0.4 --noise-unit caption"),
        (
            {"training": training(**{"method.name": "a b", "compile": True})},
            "--noise-ratio 0.4 --noise-unit caption --set compile=true --set 'method.name=a b'",
        ),
        ({"noise": {"seed": 7}}, "--noise-ratio 0.4 --noise-unit caption --noise-seed 7"),
        ({"noise": {"seed": None}}, "--noise-file FILE --noise-unit caption"),
    ],
)
def test_the_commands_of_a_row_train_on_its_noise_in_its_precision(make, tmp_path, fields, options):
    submission = read_submission(make(tmp_path / "submission", recipes=("crcl/digits_vse_infinity",)))
    noise = submission.noise.model_copy(update=fields.get("noise", {}))
    stated = submission.model_copy(update=fields | {"noise": noise})
    cell = Condition(dataset="digits", protocol="200", noise_unit="caption", noise_ratio=0.4)
    train, *_ = recipe_commands(header_of(stated), stated.training_seeds, cell)
    assert train == f"ncl-bench train crcl/digits_vse_infinity {options} --to runs/crcl-digits_vse_infinity"


@pytest.mark.parametrize(
    ("noise", "shown"),
    [
        ({"unit": "image", "seed": 0}, "our draw, seed 0"),
        ({"unit": "image", "seed": 7}, "noise seed 7"),
        ({"unit": "image", "published": "the file of X"}, "the file of X"),
        ({"unit": "image"}, "noise file 01234567"),
        ({"unit": "caption", "seed": 96}, ""),
        (
            {"unit": "caption", "sha256": "8152f92aa51c5afc86bdaae64d228d975d994bdcf0724b645ed3c69969a4ddc0"},
            "f30k_precomp_0.4.npy of BiCro and PC2",
        ),
    ],
)
def test_a_row_says_which_noise_it_used(make, tmp_path, noise, shown):
    submission = read_submission(make(tmp_path / "submission"))
    stated = StatedNoise.model_validate({"ratio": 0.4, "sha256": "0123456789abcdef" * 4} | noise)
    changed = header_of(submission).model_copy(update={"dataset": "flickr30k", "noise": stated})
    assert noise_used(changed) == shown


def typed(board, *folders):
    """Add folders by the command."""
    return invoke("leaderboard", "add", *folders, "--root", board)


def test_a_folder_that_has_grown_can_be_added_again(make, tmp_path):
    first, second = (make(tmp_path / "all" / str(seed), seed=seed) for seed in (1, 2))
    typed(tmp_path / "board", first)
    (row,) = (tmp_path / "board").rglob("*.yaml")
    written = row.read_bytes()
    done = typed(tmp_path / "board", first, second)
    assert done.output.splitlines()[0] == f"{row} has seed 1 of {first} already"
    assert done.output.splitlines()[1].startswith("wrote seed 2 to ")
    assert row.read_bytes().startswith(written)


@pytest.mark.parametrize("last", ["unfinished", "like the first"])
def test_where_one_of_several_is_refused_none_is_written(make, tmp_path, last):
    first, wrong = make(tmp_path / "first", method="NCR (ours)"), tmp_path / "refused"
    if last == "unfinished":
        wrong.mkdir()
    else:
        make(wrong, method="NCR (ours)", difficulty=1.6)
    with refused(SubmissionError, str(wrong)):
        typed(tmp_path / "board", first, wrong)
    assert not list((tmp_path / "board").rglob("*.*"))


def test_a_row_says_which_pre_training_and_stands_apart(make, tmp_path):
    encoder = "CLIP ViT-B/32 (openai, sha256 0123456789ab)"
    make(tmp_path / "clip", pretrained_encoder=encoder, notes="A remark.")
    add(tmp_path / "clip", tmp_path / "board")
    (entry,), *_ = read_measured(tmp_path / "board", read_families())
    assert entry.features == "pretrained"
    assert entry.notes == (f"Pre-trained encoder: {encoder}.", "A remark.")


@pytest.mark.parametrize(("tokenizer", "text"), [("OpenCLIP byte pairs", ""), ("word-punkt", "word-punkt")])
def test_a_network_that_reads_captions_in_its_own_way_stands_beside_the_others(
    put, tmp_path, tokenizer, text
):
    put(tmp_path / "board", tokenizer=tokenizer)
    (entry,), *_ = read_measured(tmp_path / "board", read_families())
    assert entry.condition.text == text
