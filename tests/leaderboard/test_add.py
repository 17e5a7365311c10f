import gzip
import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from leaderboard.add import add, new_row, write_rows
from leaderboard.board import read_content
from leaderboard.build import build
from leaderboard.diff import diff
from leaderboard.entries import Cell
from leaderboard.evidence import LARGEST, packed_path
from leaderboard.methods import read_families
from leaderboard.submissions import (
    entry_slug,
    noise_used,
    read_entry_file,
    read_entry_files,
    read_submissions,
    recipe_commands,
)
from ncl_bench.cli import app
from ncl_bench.errors import NclBenchError, SubmissionError
from ncl_bench.evaluation import protocol
from ncl_bench.evaluation.evaluate import evaluate_submission, open_submission
from ncl_bench.evaluation.submission import (
    MatrixScores,
    Noise,
    RankScores,
    Submission,
    Training,
    read_submission,
)
from ncl_bench.schema import parse_yaml

Maker = Callable[..., Path]


def edit(path: Path, *keys: str, value: Any) -> None:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    place = content
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def test_a_row_holds_what_evaluate_says_and_is_evaluated_again(make: Maker, tmp_path: Path) -> None:
    folder = make(tmp_path / "submission")
    report, _ = evaluate_submission(open_submission(folder))
    path = add(folder, tmp_path / "board")
    assert path == tmp_path / "board/submissions/digits/crcl-vse-infinity-caption-40-seed0.yaml"
    file = read_entry_file(path)
    assert file.result.recalls() == report.splits["test"].recalls()
    (entry,), hits = read_submissions(tmp_path / "board" / "submissions", read_families())
    assert entry.r_sum == pytest.approx(report.splits["test"].r_sum)
    assert entry.status == "recomputed"
    assert set(hits) == {(entry.files[0], "200")}


def test_kept_scores_are_small_and_evaluate_to_the_same_numbers(make: Maker, tmp_path: Path) -> None:
    folder = make(tmp_path / "submission")
    path = add(folder, tmp_path / "board")
    scores = read_entry_file(path).submission.scores["test"]
    assert isinstance(scores, MatrixScores)
    kept = packed_path(path.parent, scores.matrix)
    assert kept.stat().st_size < LARGEST < (folder / "test.npy").stat().st_size
    original = protocol.evaluate(np.load(folder / "test.npy"), dataset="digits")
    with gzip.open(kept) as stream:
        unpacked = np.load(io.BytesIO(stream.read()))
    assert protocol.evaluate(unpacked, dataset="digits").recalls() == original.recalls()


def test_where_scores_are_too_large_ranks_are_kept_and_the_row_is_submitted(
    make: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leaderboard.evidence.LARGEST", 100_000)
    folder = make(tmp_path / "submission")
    path = add(folder, tmp_path / "board")
    scores = read_entry_file(path).submission.scores["test"]
    assert isinstance(scores, RankScores)
    assert scores.scores_sha256 == read_entry_file(path).scores_sha256["test.npy"]
    (entry,), _ = read_submissions(tmp_path / "board" / "submissions", read_families())
    assert entry.status == "submitted"
    assert entry.r_sum == pytest.approx(
        protocol.evaluate(np.load(folder / "test.npy"), dataset="digits").r_sum
    )


@pytest.mark.parametrize("status", ["recomputed", "reproduced"])
def test_maintainers_may_say_what_they_did_again(
    make: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    monkeypatch.setattr("leaderboard.evidence.LARGEST", 100_000)
    board = tmp_path / "board"
    write_rows([new_row(make(tmp_path / "submission"), board, **{status: "on our machine"})], board)
    (entry,), _ = read_submissions(tmp_path / "board" / "submissions", read_families())
    assert entry.status == status
    assert entry.notes == (f"{status.capitalize()}: on our machine",)


def test_a_row_file_of_the_first_release_is_read(first_entry: Path, board: Path) -> None:
    edit(first_entry, "verified_how", value="evaluated the scores")
    assert read_entry_file(first_entry).recomputed == "evaluated the scores"


def test_a_duplicate_is_refused_whether_by_runs_or_by_scores(make: Maker, tmp_path: Path) -> None:
    board = tmp_path / "board"
    path = add(make(tmp_path / "first"), board)
    with pytest.raises(SubmissionError, match="the same method, data, noise and training seeds"):
        add(make(tmp_path / "runs", difficulty=1.6), board)
    with pytest.raises(SubmissionError, match="the same scores"):
        add(make(tmp_path / "scores", method="Copy"), board)
    assert sorted(path.parent.iterdir()) == sorted([path, path.with_suffix(".scores.npy.gz")])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"method": "<script>alert(1)</script>"}, "method is '<script>"),
        ({"backbone": "<b>x</b>"}, "backbone is '<b>x</b>'"),
    ],
)
def test_markup_in_names_is_refused_and_nothing_is_written(
    make: Maker, tmp_path: Path, fields: dict[str, str], message: str
) -> None:
    with pytest.raises(SubmissionError, match=message):
        add(make(tmp_path / "submission", **fields), tmp_path / "board")
    assert not list((tmp_path / "board").rglob("*.*"))


def test_a_recipe_that_does_not_exist_is_refused_by_add_and_by_build(
    first_entry: Path, board: Path, make: Maker, tmp_path: Path
) -> None:
    message = r"recipes names 'x/nope', which this repository does not have"
    with pytest.raises(SubmissionError, match=message):
        add(make(tmp_path / "submission", recipes=("x/nope",)), tmp_path / "new")
    assert not list((tmp_path / "new").rglob("*.*"))
    edit(first_entry, "submission", "recipes", value=["x/nope"])
    with pytest.raises(SubmissionError, match=message):
        build(board, board / "site", published=False)


def test_damaged_scores_are_refused_and_nothing_is_written(make: Maker, tmp_path: Path) -> None:
    folder = make(tmp_path / "submission")
    scores = np.load(folder / "test.npy")
    scores[3, 4] = np.nan
    np.save(folder / "test.npy", scores)
    with pytest.raises(NclBenchError, match="sha256"):
        add(folder, tmp_path / "board")
    assert not list((tmp_path / "board").rglob("*.*"))


def test_a_method_that_nobody_knows_gets_a_page_of_its_own(make: Maker, tmp_path: Path) -> None:
    add(
        make(tmp_path / "submission", method="Brand New (x)", paper="https://example.org/p"),
        tmp_path / "board",
    )
    build(tmp_path / "board", tmp_path / "board/site", published=False)
    (path,) = (tmp_path / "board/site/methods").glob("own-brand-new-x-*.html")
    page = path.read_text(encoding="utf-8")
    assert "Brand New (x)" in page
    assert 'href="https://example.org/p"' in page


def test_a_checkpoint_chosen_on_test_takes_no_rank_and_is_not_merged(make: Maker, tmp_path: Path) -> None:
    add(make(tmp_path / "test", selection_split="test"), tmp_path / "board")
    add(make(tmp_path / "dev", seed=1), tmp_path / "board")
    (board,) = read_content(tmp_path / "board", published=False).boards
    found = {ranked.entry.selection: ranked.rank for ranked in board.divisions[0].ranked}
    assert found == {"test": None, "dev": 1}
    build(tmp_path / "board", tmp_path / "board/site", published=False)
    page = (tmp_path / "board/site/index.html").read_text(encoding="utf-8")
    assert page.count("selection: test") == 1


def training(precision: str = "32-true", **settings: Any) -> Training:
    content = {"precision": precision, "torch": "2.9.0", "device": "NVIDIA H200", "settings": settings}
    return Training.model_validate(content)


def test_changed_settings_are_shown_and_make_another_row(make: Maker, tmp_path: Path) -> None:
    board, changed = tmp_path / "board", training(**{"method.epochs": 10, "batch_size": 32})
    add(make(tmp_path / "recipe"), board)
    path = add(make(tmp_path / "changed", difficulty=1.6, training=changed), board)
    assert path.stem == "crcl-vse-infinity-caption-40-batch-size-32-method.epochs-10-seed0"
    labels = {entry.label for entry in read_content(board, published=False).entries}
    assert labels == {"CRCL", "CRCL (batch_size=32, method.epochs=10)"}
    build(board, board / "site", published=False)
    assert '<span class="badge">method.epochs=10</span>' in (board / "site/index.html").read_text("utf-8")
    assert '"batch_size=32, method.epochs=10"' in (board / "site/data/leaderboard.csv").read_text("utf-8")
    assert diff(board, board, published=False) == "No row of the leaderboard moved.\n"


def test_a_reduced_precision_is_shown_and_its_seeds_are_merged_with_no_other(
    make: Maker, tmp_path: Path
) -> None:
    board = tmp_path / "board"
    for seed, precision in enumerate(["32-true", "32-true", "tf32", "bf16-mixed"]):
        add(make(tmp_path / f"{seed}", seed=seed, training=training(precision)), board)
    content = read_content(board, published=False)
    found = {entry.label: (entry.precision, entry.seeds) for entry in content.entries}
    assert found == {
        "CRCL": ("32-true", (0, 1)),
        "CRCL (tf32)": ("tf32", (2,)),
        "CRCL (bf16-mixed)": ("bf16-mixed", (3,)),
    }
    build(board, board / "site", published=False)
    front = (board / "site/index.html").read_text(encoding="utf-8")
    assert '<span class="badge">tf32</span>' in front
    assert '<span class="badge">32-true</span>' not in front
    assert "torch 2.9.0, NVIDIA H200" in (board / "site/methods/crcl.html").read_text(encoding="utf-8")


def test_the_same_run_in_another_precision_is_another_row(make: Maker, tmp_path: Path) -> None:
    add(make(tmp_path / "full"), tmp_path / "board")
    path = add(make(tmp_path / "half", difficulty=1.6, training=training("bf16-mixed")), tmp_path / "board")
    assert path.stem == "crcl-vse-infinity-caption-40-bf16-mixed-seed0"


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
def test_the_commands_of_a_row_train_on_its_noise_in_its_precision(
    make: Maker, tmp_path: Path, fields: dict[str, Any], options: str
) -> None:
    submission = read_submission(make(tmp_path / "submission", recipes=("crcl/digits_vse_infinity",)))
    noise = submission.noise.model_copy(update=fields.get("noise", {}))
    stated = submission.model_copy(update=fields | {"noise": noise})
    cell = Cell(dataset="digits", protocol="200", noise_unit="caption", noise_ratio=0.4)
    train, *_ = recipe_commands(stated, cell)
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
def test_a_row_says_which_noise_it_used(
    make: Maker, tmp_path: Path, noise: dict[str, Any], shown: str
) -> None:
    submission = read_submission(make(tmp_path / "submission"))
    stated = Noise.model_validate({"ratio": 0.4, "sha256": "0123456789abcdef" * 4} | noise)
    assert noise_used(submission.model_copy(update={"dataset": "flickr30k", "noise": stated})) == shown


def test_another_noise_seed_is_shown_as_such(make: Maker, tmp_path: Path) -> None:
    submission = read_submission(make(tmp_path / "submission"))
    other = submission.model_copy(update={"noise": submission.noise.model_copy(update={"seed": 7})})
    assert entry_slug(other) == "crcl-vse-infinity-caption-40-noise-seed-7-seed0"


def test_names_that_differ_in_a_plus_have_files_of_their_own(make: Maker, tmp_path: Path) -> None:
    submission = read_submission(make(tmp_path / "submission"))

    def slug(method: str) -> str:
        return entry_slug(Submission.model_copy(submission, update={"method": method}))

    assert slug("GSC") != slug("GSC+")


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("submission", "dataset"), "digit", "submission.dataset is 'digit'.*unknown dataset"),
        (("submission", "dataset"), "flickr30k", "submission"),
        (("submission", "protocol_version"), 3, "submission.protocol_version is 3"),
        (("submission", "method"), "<img src=x>", "method is '<img src=x>'"),
        (("submission", "paper"), "javascript:alert(1)", "submission.paper"),
        (("submission", "surprise"), 1, "unknown key 'submission.surprise'"),
        (("submission", "noise", "sha256"), "0" * 64, "noise.sha256"),
        (("submission", "scores", "test", "matrix", "file"), "../../x.npy", "submission.scores"),
        (("submission", "scores", "test", "matrix", "sha256"), "0" * 64, "sha256"),
        (
            ("result", "protocols", "200", "i2t", "r1"),
            140.0,
            "result.200.i2t_r1 is 140.0, the evidence gives",
        ),
        (
            ("result", "protocols", "200", "i2t", "r5"),
            1.0,
            "result.200.i2t_r5 is 1.0, the evidence gives",
        ),
        (("result", "protocols", "200", "r_sum"), 600.0, "result.200.r_sum is 600.0, the evidence gives"),
        (
            ("result", "protocols", "200", "t2i", "r10"),
            99.9,
            "result.200.t2i_r10 is 99.9, the evidence gives",
        ),
        (("result", "protocols"), {}, "result.200.i2t_r1 is None, the evidence gives"),
        (("result", "protocols", "200", "i2t", "intervals"), {}, r"result.200.i2t_r1 \(low\) is None"),
        (("scores_sha256",), {}, "scores_sha256"),
        (("status",), "recomputed", "unknown key 'status'"),
    ],
)
def test_a_changed_row_is_refused_with_file_and_field(
    first_entry: Path, board: Path, keys: tuple[str, ...], value: Any, message: str
) -> None:
    path = first_entry
    edit(path, *keys, value=value)
    with pytest.raises(SubmissionError, match=message) as error:
        build(board, board / "site", published=False)
    assert path.name in str(error.value) or path.stem in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("!!python/object/apply:os.system ['true']", "not plain YAML"),
        ("a: &a [1]\nb: *a", "aliases are not allowed"),
        ("a: 1\na: 2", "the key 'a' stands twice"),
        ("- 1", "holds list"),
        ("a: [", "not plain YAML"),
        ("x: " + "y" * 70_000, "bytes, expected at most"),
    ],
)
def test_a_file_that_is_no_row_is_refused(board: Path, text: str, message: str) -> None:
    path = board / "submissions" / "digits" / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SubmissionError, match=message) as error:
        build(board, board / "site", published=False)
    assert "bad.yaml" in str(error.value)


def test_a_folder_that_has_grown_can_be_added_again(make: Maker, tmp_path: Path) -> None:
    first = make(tmp_path / "all" / "a", seed=1, training_seeds=(1,))
    board = ["--root", str(tmp_path / "board")]
    assert CliRunner().invoke(app, ["leaderboard", "add", str(first), *board]).exit_code == 0
    (row,) = (tmp_path / "board").rglob("*.yaml")
    written = row.read_bytes()
    second = make(tmp_path / "all" / "b", seed=2, training_seeds=(2,))
    done = CliRunner().invoke(app, ["leaderboard", "add", str(first), str(second), *board])
    assert done.exit_code == 0
    assert done.output.splitlines()[0] == f"{row} is the row of {first} already"
    assert done.output.splitlines()[1].startswith("wrote ")
    assert row.read_bytes() == written
    assert len([*(tmp_path / "board").rglob("*.yaml")]) == 2


@pytest.mark.parametrize("last", ["unfinished", "like the first", "in the place of the first"])
def test_where_one_of_several_is_refused_none_is_written(make: Maker, tmp_path: Path, last: str) -> None:
    first = make(tmp_path / "first", method="NCR (ours)")
    if last == "unfinished":
        (refused := tmp_path / "refused").mkdir()
    elif last == "like the first":
        refused = make(tmp_path / "refused", method="NCR (ours)", difficulty=1.6)
    else:
        refused = make(tmp_path / "refused", method="NCR [ours]", difficulty=1.6)
    board = tmp_path / "board"
    command = ["leaderboard", "add", str(first), str(refused), "--root", str(board)]
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, type(done.exception)) == (1, SubmissionError)
    assert str(refused) in str(done.exception)
    assert not list(board.rglob("*.*"))


def test_a_folder_given_twice_is_added_once(make: Maker, tmp_path: Path) -> None:
    folder = str(make(tmp_path / "submission"))
    done = CliRunner().invoke(app, ["leaderboard", "add", folder, folder, "--root", str(tmp_path / "board")])
    assert done.exit_code == 0
    assert done.output.count("wrote ") == 1
    assert len([*(tmp_path / "board").rglob("*.yaml")]) == 1


@pytest.mark.parametrize("field", ["paper", "scores", "reproduced"])
def test_another_submission_in_the_place_of_a_row_is_refused(make: Maker, tmp_path: Path, field: str) -> None:
    board = tmp_path / "board"
    add(make(tmp_path / "a"), board)
    changed: dict[str, Any] = {
        "paper": {"paper": "https://example.org/other"},
        "scores": {"seed": 3, "training_seeds": (0,)},
    }.get(field, {})
    reproduced = "trained again" if field == "reproduced" else ""
    again = new_row(make(tmp_path / "b", **changed), board, reproduced=reproduced)
    with pytest.raises(SubmissionError, match="change the submission or remove the other first"):
        write_rows([again], board)


def test_a_row_that_stands_twice_is_refused(first_entry: Path, board: Path) -> None:
    path = first_entry
    shutil.copy(path, path.with_name("again.yaml"))
    with pytest.raises(SubmissionError, match="repeats the row"):
        build(board, board / "site", published=False)


def test_a_file_is_parsed_once_until_it_changes(
    make: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[Path] = []

    def parse(text: bytes, path: Path) -> dict[str, Any]:
        parsed.append(path)
        return parse_yaml(text, path)

    monkeypatch.setattr("leaderboard.submissions.parse_yaml", parse)
    submissions = tmp_path / "board" / "submissions"
    paths = [
        add(make(tmp_path / f"{seed}", seed=seed, training_seeds=(seed,)), tmp_path / "board")
        for seed in (0, 1)
    ]
    assert sorted(read_entry_files(submissions)) == sorted(parsed) == sorted(paths)
    edit(paths[0], "submission", "notes", value="changed")
    assert read_entry_files(submissions)[paths[0]].submission.notes == "changed"
    assert parsed[2:] == paths[:1]


def test_a_link_to_a_file_without_end_is_refused_unread(board: Path) -> None:
    path = board / "submissions" / "digits" / "endless.yaml"
    path.symlink_to("/dev/zero")
    with pytest.raises(SubmissionError, match=r"endless\.yaml is no regular file"):
        read_entry_files(board / "submissions")


def test_a_row_in_the_wrong_folder_is_refused(board: Path) -> None:
    shutil.move(board / "submissions" / "digits", board / "submissions" / "coco")
    with pytest.raises(SubmissionError, match=r"submission\.dataset is 'digits'"):
        build(board, board / "site", published=False)


def test_a_row_says_which_pre_training_and_stands_apart(make: Maker, tmp_path: Path) -> None:
    encoder = "CLIP ViT-B/32 (openai, sha256 0123456789ab)"
    make(tmp_path / "clip", pretrained_encoder=encoder, notes="A remark.")
    add(tmp_path / "clip", tmp_path / "board")
    (entry,), _ = read_submissions(tmp_path / "board" / "submissions", read_families())
    assert entry.features == "pretrained"
    assert entry.notes == (f"Pre-trained encoder: {encoder}.", "A remark.")


@pytest.mark.parametrize(("tokenizer", "text"), [("OpenCLIP byte pairs", ""), ("word-punkt", "word-punkt")])
def test_a_network_that_reads_captions_in_its_own_way_stands_beside_the_others(
    make: Maker, tmp_path: Path, tokenizer: str, text: str
) -> None:
    add(make(tmp_path / "a", tokenizer=tokenizer), tmp_path / "board")
    (entry,), _ = read_submissions(tmp_path / "board" / "submissions", read_families())
    assert entry.cell.text == text
