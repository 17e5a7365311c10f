"""From a foreign submission to trusted numbers."""

import hashlib
import json
import re
import shlex
import shutil
import sys

import numpy as np
import pytest
import yaml
from oracles.ranks import metrics_by_definition, ranks_by_definition
from pydantic import ValidationError
from rich.console import Console
from support.processes import python
from support.submission_folders import (
    EACH,
    read_json,
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
from ncl_bench.evaluation.submission import Submission, read_submission, write_submission

FOREIGN = """
import hashlib, sys
import numpy as np
folder = sys.argv[1]
random = np.random.default_rng(5)
scores = random.normal(size=(200, 1000))
scores[np.arange(1000) // 5, np.arange(1000)] += 2.0
np.save(f"{folder}/mine.npy", scores.astype(np.float16))
text = open(f"{folder}/submission.yaml").read()
sha256 = hashlib.sha256(open(f"{folder}/mine.npy", "rb").read()).hexdigest()
text = text.replace("file: test.npy", "file: mine.npy")
text = text.replace("sha256: FILL-IN", f"sha256: {sha256}")
open(f"{folder}/submission.yaml", "w").write(text.replace("FILL-IN", "mine"))
assert not any(name.startswith("ncl_bench") for name in sys.modules)
"""


def test_a_foreign_script_gets_the_numbers_of_the_definition(run, tmp_path):
    folder = tmp_path / "foreign"
    assert run("submission", "init", "--method", "F: 1", "--dataset", "digits", "--to", folder).code == 0
    python(FOREIGN, folder)
    assert run("submission", "check", folder).code == 0
    ran = run("evaluate", folder)
    assert (ran.code, ran.err) == (0, "digits: no noise; F: 1 on cpu\n")
    scores = np.load(folder / "mine.npy").astype(float).tolist()
    expected = metrics_by_definition(*ranks_by_definition(scores, EACH))
    best = metrics_by_definition(*ranks_by_definition(scores, EACH, optimistic=True))
    report = read_json(folder / "result.json")
    result = report["splits"]["test"]["protocols"]["200"]
    for direction in ("i2t", "t2i"):
        for name in ("r1", "r5", "r10", "median_rank", "mean_rank"):
            assert result[direction][name] == pytest.approx(expected[f"{direction}_{name}"], abs=1e-9)
    assert result["r_sum"] == pytest.approx(expected["r_sum"], abs=1e-9)
    assert result["r_sum_optimistic"] == pytest.approx(best["r_sum"], abs=1e-9)
    assert f"{expected['r_sum']:.1f}" in ran.out
    assert report["versions"]["numpy"] == np.__version__
    assert report["seconds"] > 0
    assert report["peak_memory_mb"] is None if sys.platform == "win32" else report["peak_memory_mb"] > 0


def test_result_json_repeats_bit_for_bit_apart_from_time(run, tmp_path):
    write_folder(tmp_path)
    texts = []
    for _ in range(2):
        assert run("evaluate", tmp_path).code == 0
        text = (tmp_path / "result.json").read_text()
        texts.append(re.sub(r'"(seconds|peak_memory_mb)": [\d.]+', "", text))
    assert texts[0] == texts[1]


def test_output_goes_elsewhere(run, tmp_path):
    folder = write_folder(tmp_path / "submission")
    before = sorted(p.name for p in folder.iterdir())
    ran = run("evaluate", folder, "--to", tmp_path / "out", "--plot", "--examples", 3)
    assert ran.code == 0
    assert sorted(p.name for p in folder.iterdir()) == before
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "examples_test.html",
        "ranks_test_200.svg",
        "result.json",
    ]
    assert (tmp_path / "out" / "ranks_test_200.svg").read_text().startswith("<?xml")


def test_dev_is_evaluated_beside_test(run, tmp_path):
    scores = {split: scores_of_form(tmp_path, "matrix", split=split) for split in ("dev", "test")}
    write_statement(tmp_path, statement(scores))
    assert run("evaluate", tmp_path).code == 0
    result = read_result(tmp_path)
    assert set(result.splits) == {"dev", "test"}
    assert list(result.splits["dev"].protocols) == ["dev"]


def test_the_correspondence_track_needs_no_scores_of_ours(run, tmp_path):
    content = statement({"test": scores_of_form(tmp_path, "matrix")})
    spec = DATASETS["digits"]
    noisy, _ = spec.draw_noise(noise_ratio=0.4, noise_unit="caption")
    truth = noisy == np.arange(len(noisy)) // 5
    probability = np.clip(truth * 0.4 + 0.3 + np.random.default_rng(0).normal(0, 0.2, len(truth)), 0, 1)
    write_statement(tmp_path, content | {"correspondence": write_array(tmp_path, "p.npy", probability)})
    ran = run("evaluate", tmp_path)
    assert ran.code == 0
    from sklearn.metrics import average_precision_score, roc_auc_score

    track = read_result(tmp_path).correspondence
    assert track.auroc == pytest.approx(roc_auc_score(truth, probability))
    assert track.average_precision == pytest.approx(average_precision_score(truth, probability))
    assert track.accuracy == pytest.approx(100 * np.mean((probability >= 0.5) == truth))
    assert (track.pairs, track.true_pairs) == (10_000, int(truth.sum()))
    assert f"{track.auroc:.4f}" in ran.out


def test_a_noise_file_stands_for_a_seed(run, tmp_path):
    noisy, record = DATASETS["digits"].draw_noise(noise_ratio=0.4, noise_unit="image", seed=77)
    content = statement({"test": scores_of_form(tmp_path, "matrix")})
    content["noise"] = {"unit": "image", "ratio": 0.4, "sha256": record.sha256}
    content["noise"]["index"] = write_array(tmp_path, "noise.npy", noisy)
    write_statement(tmp_path, content)
    ran = run("evaluate", tmp_path)
    assert ran.code == 0
    assert "studies of spread" in ran.out
    content["noise"]["published"] = "the digits 0.4 permutation of RCL and L2RM"
    write_statement(tmp_path, content)
    run("submission", "check", tmp_path).assert_refused()
    del content["noise"]["published"]
    del content["noise"]["index"]
    write_statement(tmp_path, content)
    assert "recorded but not checked" in run("evaluate", tmp_path).out


def test_other_datasets_are_evaluated_without_their_files(run, tmp_path):
    random = np.random.default_rng(0)
    scores = random.normal(size=(1000, 1000)).astype(np.float32) + 5 * np.eye(1000, dtype=np.float32)
    write_matrix(tmp_path, scores, dataset="cc152k", noise={"unit": "natural", "ratio": None})
    ran = run("evaluate", tmp_path)
    assert ran.code == 0
    assert "order_fingerprint of cc152k/test was recorded but not checked" in ran.out
    assert "rows were taken as images" in ran.out
    assert "above every published one (385.9)" in ran.out
    assert list(read_result(tmp_path).splits["test"].protocols) == ["1k"]


def test_a_template_is_complete_but_for_what_it_marks(run, tmp_path):
    np.save(tmp_path / "test.npy", similarities())
    init = ("submission", "init", "--method", "X", "--dataset", "digits", "--to", tmp_path)
    assert run(*init, "--noise-ratio", 0.4).code == 0
    text = (tmp_path / "submission.yaml").read_text()
    unfilled = run("evaluate", tmp_path)
    unfilled.assert_refused()
    (tmp_path / "submission.yaml").write_text(text.replace("FILL-IN", "mine"))
    assert run("evaluate", tmp_path).code == 0
    of_our_engine = {"training", "fingerprint", "correction"}
    named = set(yaml.safe_load(text)) | {"correspondence"} | of_our_engine
    assert named == set(Submission.model_fields)
    again = run(*init)
    again.assert_refused()


def test_a_template_is_right_in_a_folder_of_any_name(run, tmp_path):
    init = ("submission", "init", "--method", "X", "--dataset", "digits", "--to")
    folder = tmp_path / "my results" / "ncr $1"
    assert run(*init, folder).code == 0
    shown = (folder / "submission.yaml").read_text("utf-8").splitlines()[1:3]
    assert [shlex.split(line)[-1] for line in shown] == [str(folder), str(folder)]
    folder = tmp_path / "x\nnetworks: 7\n\udcff"  # a name that no encoding reads, as on old disks
    assert run(*init, folder).code == 0
    assert yaml.safe_load((folder / "submission.yaml").read_text("utf-8"))["networks"] == 1
    shutil.rmtree(folder)


@pytest.mark.parametrize("dataset", ["flickr30k", "coco", "cc152k", "now"])
def test_templates_of_other_datasets_parse(run, tmp_path, dataset):
    assert run("submission", "init", "--method", "X", "--dataset", dataset, "--to", tmp_path).code == 0
    text = (tmp_path / "submission.yaml").read_text()
    text = re.sub("(test|sha256): FILL-IN", rf"\1: {hashlib.sha256(b'x').hexdigest()}", text)
    submission = Submission.model_validate(yaml.safe_load(text.replace("FILL-IN", "mine")))
    assert submission.dataset == dataset


def test_the_record_of_the_training_is_read_back_and_left_out_where_there_is_none(tmp_path):
    content = statement({"test": scores_of_form(tmp_path, "matrix")})
    record = {"precision": "bf16-mixed", "torch": "2.6.0 + 2.7.0", "device": "CPU, 2 threads"}
    submission = Submission.model_validate(content | {"training": record})
    write_submission(tmp_path, submission)
    assert yaml.safe_load((tmp_path / "submission.yaml").read_text())["training"] == record
    assert read_submission(tmp_path) == submission
    assert "training" not in yaml.safe_load(Submission.model_validate(content).to_yaml())
    for wrong in (record | {"precision": "16-mixed"}, {"precision": "tf32"}, record | {"machine": "mine"}):
        with pytest.raises(ValidationError, match="training"):
            Submission.model_validate(content | {"training": wrong})


def test_the_schema_describes_what_is_read(run):
    schema = json.loads(run("submission", "schema").out)
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == set(Submission.model_fields)
    assert "dataset" in schema["required"]


def test_two_submissions_are_compared(run, tmp_path):
    good, other = write_folder(tmp_path / "good"), write_folder(tmp_path / "other", "embeddings")
    bad = write_matrix(tmp_path / "bad", similarities(0, noise=1.0), ratio=0.2)
    same = run("compare", good, other)
    assert same.code == 0
    assert "no significant difference" in same.out
    assert "+0.0" in same.out
    worse = run("compare", bad, good, "--plot", tmp_path / "difference.svg")
    assert worse.code == 0
    assert f"{good} is better" in worse.out
    assert re.search(
        r"differ in noise: caption 0\.2 \(sha256 [0-9a-f]{12}\) and caption 0\.4 \(sha256", worse.out
    )
    assert (tmp_path / "difference.svg").exists()


def folder_of_run(folder, seed, noise=0.5, **stated):
    return write_matrix(folder, similarities(seed, noise), training_seeds=[seed], **stated)


def test_several_runs_of_two_methods_are_compared(run, tmp_path):
    first = [folder_of_run(tmp_path / f"a{seed}", seed) for seed in range(3)]
    second = [folder_of_run(tmp_path / f"b{seed}", seed, noise=1.0, method="Other") for seed in range(2)]
    ran = run("compare", *first, "vs", *second, "--plot", tmp_path / "runs.pdf")
    assert ran.code == 0, ran.err
    assert f"200: {first[0]} and 2 more is better" in ran.out
    assert ran.out.count("±") == 2
    assert "little about their methods" not in ran.out
    assert (tmp_path / "runs.pdf").read_bytes().startswith(b"%PDF")
    mixed = run("compare", first[0], second[0], "vs", second[1])
    assert "the first side mixes submissions of another method: 'Example' and 'Other'" in mixed.out
    assert "stands for that model alone" in mixed.out


def test_a_run_counts_once_and_sides_are_told_by_vs(run, tmp_path):
    first, second, copy = (
        folder_of_run(tmp_path / name, seed) for name, seed in (("a", 0), ("b", 1), ("c", 0))
    )
    ran = run("compare", first, second)
    assert "with one training run per side, this compares two trained models, not their methods" in ran.out
    assert "differ in" not in ran.out
    for arguments in (
        (first, copy, "vs", second),
        (first, copy),
        (first, second, copy),
        (first,),
        ("vs", first),
        (first, "vs", second, "vs", copy),
        (first, second, "--split", "dev"),
    ):
        run("compare", *arguments).assert_refused()


@pytest.mark.parametrize(("name", "begins"), [("x.svg", b"<?xml"), ("x.PNG", b"\x89PNG"), ("x.pdf", b"%PDF")])
def test_a_picture_is_of_the_kind_that_its_name_says(run, tmp_path, name, begins):
    first, second = (folder_of_run(tmp_path / f"{seed}", seed) for seed in range(2))
    found = set()
    for place in ("one", "two"):
        assert run("compare", first, second, "--plot", tmp_path / place / name).code == 0
        found.add((tmp_path / place / name).read_bytes())
    assert len(found) == 1
    assert found.pop().startswith(begins)


def test_a_picture_of_another_kind_is_refused_before_anything_is_counted(run, tmp_path, monkeypatch):
    monkeypatch.setattr("ncl_bench.evaluation.compare.open_submission", None)
    run("compare", tmp_path, tmp_path, "--plot", tmp_path / "x.txt").assert_refused()


@pytest.mark.parametrize("width", [100, 60, 40, 30])
def test_a_narrow_table_leaves_out_intervals_then_columns_and_cuts_no_number(width):
    evaluation = evaluate(similarities(), dataset="digits")
    console = Console(width=width)
    with console.capture() as capture:
        console.print(evaluation)
    shown = capture.get()
    side = next(iter(evaluation.protocols.values())).i2t
    assert "…" not in shown
    assert ("–" in shown) == (width == 100)
    recalls = [f"{recall:.1f}" for recall in (side.r1, side.r5, side.r10)]
    row = next(line for line in shown.splitlines() if " i2t " in line).split()
    assert row[2:5] == recalls
