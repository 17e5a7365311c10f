"""Sweeps: which jobs, one real tiny sweep with its table, and what a killed one leaves behind."""

import csv
import itertools
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import yaml
from rich.console import Console
from support.command import invoke
from support.few_digits import TINY as VSE
from support.few_digits import InThisProcess
from support.refusals import refused

import baselines
from baselines.methods import METHODS
from baselines.recipes import ablations
from baselines.training.grids import (
    NOISES,
    Grid,
    Job,
    jobs_of,
    jobs_of_ablation,
    jobs_of_table,
    move_to_dataset,
    planned_steps,
)
from baselines.training.plan import H100_MILLISECONDS
from baselines.training.sweep import _write_table, means_of, sweep, table_to_print
from baselines.training.train import TrainingProgress
from ncl_bench.data import DATASETS
from ncl_bench.evaluation.submission import read_submission
from ncl_bench.files import sole_owner

TINY = {
    "dataset": "digits",
    "batch_size": 1000,
    "backbone": VSE,
    "method": {"name": "info_nce", "epochs": 1},
}


@pytest.fixture
def asked(monkeypatch):
    """The jobs that a sweep is asked for, in place of the sweep."""
    jobs = []
    monkeypatch.setattr("baselines.training.sweep.sweep", lambda folder, found, **_: jobs.extend(found) or {})
    return jobs


def written(folder, **content):
    """A table of one's own."""
    (folder / "table.yaml").write_text(yaml.safe_dump({"title": "T", "seeds": [0, 1], **content}))
    return str(folder / "table.yaml")


@pytest.fixture
def in_this_process(monkeypatch):
    """No worker processes, which take seconds to start."""
    monkeypatch.setattr("baselines.training.sweep.worker_pool", InThisProcess)


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "tiny" / "digits.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(TINY))
    return str(path)


def test_the_table_of_digits_has_every_method_and_control():
    grid = Grid.load("digits")
    recipes = grid.recipes
    methods = {name.split("/")[0] for name in (*recipes, *grid.controls)}
    assert methods == set(METHODS) - {"mscn"}  # whose head needs the similarity vectors of SGR or SAF
    jobs = jobs_of(Path("to"), recipes)
    assert len(jobs) == len({job.name for job in jobs}) == 12 * len(recipes)
    assert jobs[0].training.seed == 0


def test_what_is_named_twice_is_trained_once():
    names, noises, seeds = ["ncr/digits_sgr"], ["none", "image-40"], [1, 0]
    once = jobs_of(Path("to"), names, noises, seeds)
    assert jobs_of(Path("to"), names * 2, [*noises, "none"], [*seeds, 1]) == once
    assert [(job.noise, job.seed) for job in once] == [(n, s) for s in (1, 0) for n in noises]


def test_means_and_spreads_of_a_table(tmp_path):
    noise = "image-40"
    results = {Job("ncr/flickr30k_sgr", noise, seed, tmp_path): r for seed, r in enumerate((1.0, 2.0, 6.0))}
    results[Job("ncr/flickr30k_sgr", "none", 0, tmp_path)] = 5.0
    first = Job("ncr/digits_sgr", noise, 0, tmp_path)
    results[first] = 4.0
    _write_table(tmp_path / "table.csv", {Job("ncr/digits_sgr", "none", 0, tmp_path): 7.0, first: 9.0})
    _write_table(tmp_path / "table.csv", results)  # rows of earlier sweeps stay
    _, *lines = csv.reader((tmp_path / "table.csv").read_text().splitlines())
    assert lines == [
        ["ncr/digits_sgr", "image-40", "1", "4.0", "", "", "", ""],
        ["ncr/digits_sgr", "none", "1", "7.0", "", "", "", ""],
        ["ncr/flickr30k_sgr", "image-40", "3", "3.0", "2.6", "467.1", "-175.4", "DECL, ACM MM 2022; Table 1"],
        ["ncr/flickr30k_sgr", "none", "1", "5.0", "", "502.7", "", "NCR, NeurIPS 2021; Table 1"],
    ]
    console = Console(width=120, record=True, file=StringIO())
    console.print(table_to_print(means_of(results)))
    shown = console.export_text()
    assert "467.1 printed (-175.4 std)" in shown
    assert "502.7 printed │" in shown  # one seed has no standard deviation


@pytest.mark.usefixtures("in_this_process")
def test_a_mean_is_scored_from_the_runs_of_its_members(tmp_path, recipe):
    other = Path(recipe).with_name("other.yaml")
    other.write_text(yaml.safe_dump(TINY | {"method": {"name": "triplet", "epochs": 1}}))
    mean = f"{recipe} + {other}"
    (job,) = jobs_of(tmp_path / "out", [mean], ["none"], seeds=[0])
    results = sweep(tmp_path / "out", [job], at_once=1, device="cpu")
    assert [each.name for each in results] == [
        "tiny-digits-none-seed0",
        "tiny-other-none-seed0",
        "tiny-digits+tiny-other-none-seed0",
    ]
    assert read_submission(job.submission).networks == 2
    scored = (job.submission / "test.npy").stat()
    assert sweep(tmp_path / "out", [job], at_once=1, device="cpu") == results
    assert (job.submission / "test.npy").stat() == scored


@pytest.mark.usefixtures("in_this_process")
def test_files_of_image_noise_replace_drawn_noise(tmp_path, recipe):
    files = tmp_path / "files"
    files.mkdir()
    for unit in ("caption", "image"):
        drawn, _ = DATASETS["digits"].draw_noise(noise_ratio=0.4, noise_unit=unit, seed=7)
        np.save(files / f"{unit}s.npy", drawn)
    np.save(files / "features.npy", np.zeros((2, 3)))
    options = {"noises": ["none", "caption-40", "image-40"], "seeds": [0], "noise_files": files}
    jobs = jobs_of(tmp_path / "out", [recipe], **options)
    assert [job.noise_file for job in jobs] == [None, None, files / "images.npy"]
    sweep(tmp_path / "out", jobs[2:], at_once=1, device="cpu")
    assert read_submission(jobs[2].submission).noise.seed is None
    drawn = jobs_of(tmp_path / "out", [recipe], ["image-40"], seeds=[0])
    with refused():
        sweep(tmp_path / "out", drawn, at_once=1, device="cpu")
    with refused():
        jobs_of(tmp_path / "out", [recipe], **(options | {"noises": ["image-60"]}))


def in_bfloat16(*what, **options):
    return [replace(job, precision="bf16-mixed") for job in jobs_of(*what, **options)]


@pytest.mark.usefixtures("in_this_process")
def test_a_sweep_is_one_submission_per_cell_and_does_nothing_twice(tmp_path, recipe):
    what = (tmp_path / "out", [recipe], ["caption-40"], [0])
    jobs = in_bfloat16(*what)
    first = sweep(tmp_path / "out", jobs, at_once=1, device="cpu")
    assert [job.name for job in first] == ["tiny-digits-caption-40-seed0"]
    assert 0 < first[jobs[0]] < 600
    assert f"{recipe},caption-40,1,{first[jobs[0]]:.1f}," in (tmp_path / "out" / "table.csv").read_text()
    training = read_submission(jobs[0].submission).training
    assert training.precision == "bf16-mixed"
    weights = jobs[0].run.best.stat()
    assert sweep(tmp_path / "out", jobs, at_once=1, device="cpu") == first
    one_more = in_bfloat16(*what[:3], [1])
    second = sweep(tmp_path / "out", one_more, at_once=1, device="cpu")
    (row,) = list(csv.reader((tmp_path / "out" / "table.csv").read_text().splitlines()))[1:]
    assert row[2:4] == ["2", f"{(first[jobs[0]] + second[one_more[0]]) / 2:.1f}"]  # the earlier seed stays
    assert jobs[0].run.best.stat() == weights
    for others in (
        in_bfloat16(*what, settings=["steps=3"]),
        jobs_of(*what),
    ):
        with refused():
            sweep(tmp_path / "out", others, at_once=1, device="cpu")
    Path(recipe).write_text(yaml.safe_dump(TINY | {"batch_size": 500}))
    with refused():
        sweep(tmp_path / "out", jobs, at_once=1, device="cpu")


def test_the_command_hands_over_where_data_and_features_lie_and_the_precision(tmp_path, recipe, monkeypatch):
    asked = {}
    monkeypatch.setattr(
        "baselines.training.sweep.sweep", lambda to, jobs, **options: asked.update(options, jobs=jobs) or {}
    )
    options = ["--root", str(tmp_path), "--precision", "tf32", "--features", "gpu", "--device", "cuda"]
    invoke("sweep", recipe, *options, "--to", tmp_path / "out")
    assert {(job.root, job.precision) for job in asked.pop("jobs")} == {(tmp_path, "tf32")}
    expected = {"features": "gpu", "device": "cuda", "at_once": 2, "slurm": None}
    assert asked == expected


def test_a_table_says_what_is_trained_and_arguments_narrow_it(tmp_path, recipe, asked):
    other = "info_nce/digits_vse_infinity"
    tuned = f"{other}_tuned"  # shipped, and another recipe
    table = written(tmp_path, steps=7, recipes=[recipe, other], noises=["none", "image-40"])
    command = ["sweep", "--table", table, "--to", str(tmp_path / "out")]
    invoke(*command)
    assert len(asked) == 12
    assert {job.recipe for job in asked} == {recipe, other, tuned}
    assert {job.training.recipe.steps for job in asked} == {7}
    asked.clear()
    narrow = ["--noise", "image-40", "--seed", "1", "--set", "method.temperature=0.1"]
    invoke(*command, *narrow, tuned)
    (job,) = asked
    assert (job.recipe, job.noise, job.seed) == (tuned, "image-40", 1)
    assert job.training.settings == {"steps": 7, "method.temperature": 0.1}


@pytest.mark.parametrize(
    ("arguments", "trained"),
    [
        (["ncr", "--seed", "1"], {("ncr-flickr30k_sgr", "none"), ("ncr-flickr30k_sgr", "caption-40")}),
        (["crcl/flickr30k_saf"], {("crcl-flickr30k_saf", "caption-40")}),
        (["crcl", "--noise", "none"], {("crcl-flickr30k_sgr+crcl-flickr30k_saf", "none")}),
        (
            ["crcl/flickr30k_saf", "crcl/flickr30k_sgr + crcl/flickr30k_saf", "--noise", "caption-40"],
            {("crcl-flickr30k_saf", "caption-40"), ("crcl-flickr30k_sgr+crcl-flickr30k_saf", "caption-40")},
        ),
    ],
)
def test_a_table_of_papers_has_its_noises_per_recipe_and_a_method_alone_narrows_it(
    arguments, trained, tmp_path, asked
):
    rows = {
        "ncr/flickr30k_sgr": ["none", "caption-40"],
        "crcl/flickr30k_saf": ["caption-40"],
        "crcl/flickr30k_sgr + crcl/flickr30k_saf": ["none", "caption-40"],
    }
    command = ["sweep", "--table", written(tmp_path, recipes=rows), "--to", str(tmp_path / "out")]
    invoke(*command, *arguments)
    names = {(job.name.removesuffix(f"-{job.noise}-seed{job.seed}"), job.noise) for job in asked}
    assert names == trained
    assert {member.training.recipe.steps for job in asked for member in job.members} == {None}


REFUSED = [
    "sweep ncr/digits_sgr --table pictograms_sgr",
    "sweep ncr/digits_vse_infinty --table digits",
    "sweep --noise image-40 --table pictograms_sgr",
    "sweep --seed 0 --seed 3 --table pictograms_sgr",
    "sweep --noise none --table ablation_ncr",
    "sweep --table ablation_rcl",
    "tune ncr/digits_sgr --table pictograms_sgr",
    "tune --seed 3 --table pictograms_sgr",
    "tune --table nothing",
    "tune ncr/flickr30k_sgr",
    "tune ncr/digits_vse_infinity --executor slurm --slurm time",
    "sweep ncr/digits_sgr --executor slurm --slurm 'time=&a [*a]'",
    "sweep ncr/digits_sgr --executor slurm",
    *(
        f"sweep ncr/digits_sgr --noise {name}"
        for name in ("40", "caption", "caption-0", "caption-100", "pair-40", "caption-0.4")
    ),
]


@pytest.mark.parametrize("command", REFUSED)
def test_what_cannot_be_swept_or_tuned_is_one_sentence(command, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # without srun
    with refused():
        invoke(*shlex.split(command), "--to", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"features": "gpu"},
        {},
    ],
    ids=["features", "root"],
)
def test_workers_are_told_where_features_and_data_lie(options, tmp_path, recipe):
    Path(recipe).write_text(yaml.safe_dump(TINY | {"dataset": "flickr30k"}))
    jobs = [Job(recipe, "none", 0, tmp_path / "out", tmp_path / "data")]
    with refused():
        sweep(tmp_path / "out", jobs, at_once=1, device="cpu", **options)


def test_the_table_is_written_while_the_folder_is_held(tmp_path, monkeypatch):
    def write(path, text):
        with refused(), sole_owner(tmp_path):
            pass
        path.write_text(text)

    monkeypatch.setattr("baselines.training.sweep.write_text", write)
    sweep(tmp_path, [])
    assert (tmp_path / "table.csv").read_text() == (
        "recipe,noise,seeds,rsum_mean,rsum_std,printed,stds_apart,paper\n"
    )


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with refused():
        sweep(tmp_path, [])


def test_what_a_killed_sweep_left_of_its_table_does_not_lock_it_out(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / f".table.csv.{dead.pid}.tmp").write_text("half a ta")
    assert sweep(tmp_path, []) == {}


def test_every_row_of_an_ablation_is_a_cell_of_its_own_on_any_dataset():
    for name, table in ablations().items():
        jobs = jobs_of_ablation(Path("to"), table, [0, 1], settings=["batch_size=64"])
        assert len({job.name for job in jobs}) == 2 * len(table.rows), name
        assert [job.variant for job in jobs] == [row.title for row in table.rows] * 2
        assert {job.training.recipe.steps for job in jobs} == {table.steps}
        assert {job.on("digits").training.recipe.dataset for job in jobs} == {"digits"}
        unchanged = [job.variant for job in jobs if set(job.training.settings) <= {"steps", "batch_size"}]
        assert unchanged[0] == table.rows[0].title


def test_a_table_moves_to_another_dataset():
    (job,) = jobs_of(Path("to"), ["ncr/pictograms_vse_infinity"], ["caption-60"], [0], settings=["steps=7"])
    assert job.on("digits").recipe == "ncr/digits_vse_infinity"
    web = job.on("pictograms-web")  # whose noise is natural
    assert (web.recipe, web.noise) == ("ncr/pictograms-web_vse_infinity", "none")
    emoji = job.on("pictograms-emoji")  # which has no recipes of its own
    assert emoji.training.settings == {"dataset": "pictograms-emoji", "steps": 7}
    with refused():
        job.on("mnist")


def test_natural_noise_takes_no_other_noise_on_top():
    web, clean = "ncr/pictograms-web_vse_infinity", "ncr/pictograms_vse_infinity"
    assert {job.noise for job in jobs_of(Path("to"), [web])} == {"none"}
    jobs = jobs_of(Path("to"), [web, clean], seeds=[0])
    assert [job.noise for job in jobs if job.recipe == clean] == [*NOISES]
    assert [job.noise for job in jobs if job.recipe == web] == ["none"]
    with refused():
        jobs_of(Path("to"), [web, clean], ["caption-60"])
    with refused():
        jobs_of_table(Path("to"), "pictograms", noises=["caption-60"], dataset="pictograms-web")


def test_controls_that_know_the_truth_do_not_move_to_natural_noise():
    control = "triplet/pictograms_vse_infinity_clean"
    recipes = ["ncr/pictograms_vse_infinity", "triplet/pictograms_vse_infinity", control]
    jobs = jobs_of(Path("to"), recipes, ["similar-40", "similar-60"], [0])
    moved = move_to_dataset(jobs, "pictograms-web")  # where both noises become none
    web = "pictograms-web_vse_infinity"
    assert [job.recipe for job in moved] == [f"ncr/{web}", f"triplet/{web}"]
    assert len(move_to_dataset(jobs, "digits")) == len(jobs)
    with refused():
        move_to_dataset([job for job in jobs if job.recipe == control], "pictograms-web")


def test_an_ablation_is_trained_and_printed_beside_the_paper(tmp_path, monkeypatch):
    def trained(folder, jobs, **options):
        return {job: 400.0 - 40 * (job.variant != "full") + job.seed for job in jobs}

    monkeypatch.setattr("baselines.training.sweep.sweep", trained)
    command = ["sweep", "--table", "ablation_ncr", "--dataset", "digits", "--to", str(tmp_path / "out")]
    result = invoke(*command, "--seed", "0", "--seed", "2", COLUMNS="120")
    (line,) = (line for line in result.output.splitlines() if "without co-divide" in line)
    assert re.findall(r"[\d.]+", line) == ["2", "361.0", "1.4", "10.0", "192.9", "60.0"]


@pytest.mark.parametrize(
    ("command", "numbers", "noise"),
    [
        (
            "sweep crcl --table flickr30k --noise caption-40 --seed 1 --set backbone.embed_size=8",
            ["4", "0", "3"],
            "caption-40",
        ),
        ("tune ncr/digits_vse_infinity --trials 3 --set steps=50", ["3", "0", "3", "300"], "caption-60"),
    ],
)
def test_a_plan_counts_what_is_left_without_data_and_writes_nothing(
    command, numbers, noise, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    found = invoke(*command.split(), "--plan", COLUMNS="80").stdout
    (total,) = (line for line in found.splitlines() if "sum" in line)
    assert re.findall(r"[\d,]+", total)[: len(numbers)] == numbers
    assert ("hours" in found) == ("sweep" in command)  # of a card that was measured
    assert found.endswith(f"added noise: {noise}\n")
    assert not list(tmp_path.iterdir())


def test_a_plan_with_time_states_the_hours_of_steps_that_were_timed(tmp_path, recipe, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ticks = itertools.count()
    monkeypatch.setattr("baselines.training.plan.seconds_of", lambda device: 36.0 * next(ticks))
    asked = {
        "noises": ["none"],
        "seeds": [0, 1],
        "settings": ["batch_size=200"],
    }
    planned = baselines.Sweep.of(recipe, **asked)
    counted = planned.plan()
    assert counted.columns.tolist() == ["jobs", "finished", "runs", "steps"]
    timed = planned.plan(time=True, device="cpu")
    # a step takes 36 seconds of this clock, which is read once for each
    assert timed["hours"].tolist() == [counted["steps"].item() / 100]
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def test_a_plan_states_hours_of_the_measured_card_and_the_papers_number(tmp_path):
    plan = baselines.Sweep.of("crcl/flickr30k_sgr", noises=["caption-40"], seeds=[1], to=tmp_path).plan()
    (row,) = plan.itertuples()
    assert row.h100_hours == pytest.approx(row.steps * H100_MILLISECONDS["sgr"]["32-true"] / 3.6e6)
    assert row.printed == "caption-40 496.6"
    page = (Path(__file__).parents[3] / "docs" / "scale.md").read_text()
    table = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    measured = {
        (cells[0], cells[1]): float(cells[5]) for cells in table if len(cells) == 10 and cells[5][0].isdigit()
    }
    for backbone, times in H100_MILLISECONDS.items():
        for precision, milliseconds in times.items():
            assert measured[backbone, precision] == milliseconds


def test_the_progress_of_a_run_of_steps_is_that_of_its_steps():
    progress = TrainingProgress(40, Console(quiet=True))
    progress.position = lambda: 20.4
    progress.begin("run", "epoch 1", "train", 1_000)
    progress.advance(10)
    assert progress._bar.tasks[0].percentage == pytest.approx(51)


@pytest.mark.usefixtures("in_this_process")
def test_the_steps_of_a_plan_are_those_of_the_training(tmp_path, recipe):
    def steps(name, *settings):
        (job,) = jobs_of(tmp_path, [name], ["caption-60"], seeds=[0], settings=settings)
        return planned_steps(job)

    tiny = ("method.epochs=2", "method.warmup_epochs=1", "backbone.embed_size=8")
    assert steps("bicro/flickr30k_sgr", *tiny) == 2 * 3 * -(-145_000 // 128)
    assert steps("ncr/flickr30k_sgr", *tiny, "steps=7") == 2 * 7
    assert steps("triplet/flickr30k_sgr_clean", *tiny) == 3 * -(-(145_000 * 2 // 5) // 128)
    (job,) = jobs_of(tmp_path / "out", [recipe], ["none"], seeds=[0])
    sweep(tmp_path / "out", [job], at_once=1, device="cpu")
    assert planned_steps(job) == sum(job.run.read_outcome().steps)


def test_a_recipe_that_is_averaged_with_itself_has_two_seeds():
    a, b = "rcl/digits_vse_infinity", "rcl/digits_vse_infinity_mean"
    twice = Job(f"{a} + {a}", "none", 1, Path("out"))
    assert [(job.recipe, job.seed) for job in twice.members] == [(a, 2), (a, 3)]
    assert [job.seed for job in Job(f"{a} + {b}", "none", 1, Path("out")).members] == [1, 1]


@pytest.mark.parametrize("name", METHODS)
def test_steps_are_planned_without_building_a_network(name):
    method = METHODS[name]
    config = method.Config()
    n_pairs = 950 + method.extra_clean_data(config)  # ten batches of 100, the last one half full
    steps = method.plan_steps(config, n_pairs, 100)
    if method.closed_form:
        assert steps == 0
    else:
        assert steps > 0
        assert steps % (10 * method.n_networks) == 0
        assert method.plan_steps(config, n_pairs + 100, 100) == steps * 11 // 10
