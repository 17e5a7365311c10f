"""Tuning: which options are drawn, resume after a kill, and the tuned recipe."""

import csv
import hashlib
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from support.command import invoke
from support.few_digits import TINY, InThisProcess
from support.refusals import refused

from baselines.methods import METHODS
from baselines.recipes import TABLES, ablations, recipe_names
from baselines.training import tune as tuning
from baselines.training.grids import Grid, Tuning
from baselines.training.recipe import Between, OneOf, Recipe
from baselines.training.run_folder import Outcome
from baselines.training.step import Diverged
from baselines.training.tune import drawn, trials_of, tune
from ncl_bench.data.load import load_dataset
from ncl_bench.errors import NclBenchError, RecipeError

SEARCH = {
    "method.learning_rate": {"low": 0.0001, "high": 0.01, "log": True},
    "method.temperature": {"choice": [0.05, 0.1]},
}
CONTENT = {
    "dataset": "digits",
    "batch_size": 500,
    "steps": 4,
    "backbone": TINY,
    "method": {"name": "info_nce", "epochs": 1},
    "search": SEARCH,
}
TUNING = Tuning(trials=3, noise="caption-60", seed=1000)


@pytest.fixture
def fitted(monkeypatch):
    """Trials that were trained, by a stand-in whose rSum on dev grows with the learning rate."""
    names = []

    def fit(trial, *_):
        names.append(trial.name.split("/")[-1])
        training = trial.training
        trial.run.write_run(training.record(load_dataset("digits", noise_ratio=training.noise_ratio)))
        r_sum = 1e4 * training.recipe.method["learning_rate"]
        trial.run.write_outcome(Outcome(epochs=1, dev={"r_sum": r_sum}, best_sha256="ab"))

    monkeypatch.setattr(tuning, "train_run", fit)
    monkeypatch.setattr("baselines.training.sweep.worker_pool", InThisProcess)
    return names


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "info_nce" / "few.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(CONTENT))
    return str(path)


@given(
    low=st.floats(1e-6, 1, allow_subnormal=False),
    factor=st.floats(1.01, 1e4),
    log=st.booleans(),
    number=st.integers(1, 99),
)
@example(low=1e-300, factor=1e300, log=True, number=1)
def test_a_drawn_number_lies_in_its_range_and_is_always_the_same(low, factor, log, number):
    among = Between(low=low, high=low * factor, log=log)
    value = drawn(among, 1000, number, "method.margin")
    assert among.low <= value <= among.high
    assert drawn(among, 1000, number, "method.margin") == value


@pytest.mark.parametrize(
    ("name", "among", "trials", "sha256"),
    [
        (
            "method.learning_rate",
            Between(low=0.0002, high=0.008, log=True),
            [2.145e-4, 5.586e-4, 4.463e-3, 2.189e-4, 3.561e-3, 2.213e-3, 6.22e-3, 1.378e-3, 6.964e-4],
            "25910ce51ee14b70",
        ),
        (
            "method.clean_threshold",
            Between(low=0.5, high=0.99),
            [0.6638, 0.8273, 0.7902, 0.6032, 0.9616, 0.8003, 0.7564, 0.9112, 0.6166],
            "b93ef056258a898a",
        ),
        (
            "method.rank",
            Between(low=2, high=64, log=True),
            [4, 41, 6, 31, 6, 23, 22, 9, 48],
            "9ba0c3a7a3b2d307",
        ),
        ("batch_size", Between(low=2, high=9), [5, 9, 8, 9, 6, 7, 9, 3, 8], "50bf7c66a5602877"),
        ("method.warmup_epochs", OneOf(choice=(1, 2, 3)), [1, 1, 3, 3, 2, 2, 2, 3, 3], "4d6f12cddaf10e9a"),
    ],
)
def test_a_trial_draws_what_it_always_drew(name, among, trials, sha256):
    """Recorded when the measured tables were tuned; other values would make their rows irreproducible."""
    assert [drawn(among, 1000, number, name) for number in range(1, 10)] == trials
    many = [drawn(among, seed, number, name) for seed in (0, 7, 1000, 2**32 - 1) for number in range(1, 501)]
    assert hashlib.sha256(json.dumps(many).encode()).hexdigest()[:16] == sha256


@pytest.mark.parametrize(
    "changed",
    [
        {"method.temprature": {"choice": [1]}},
        {"method.temperature": {"low": -1, "high": 1}},
        {"method.temperature": {"low": 1, "high": 1}},
        {"method.temperature": {"low": 0, "high": 1, "log": True}},
    ],
)
def test_a_search_that_a_method_refuses_is_refused_with_the_recipe(changed):
    with refused(RecipeError):
        Recipe.from_dict(CONTENT | {"search": changed})


def test_a_search_is_no_part_of_what_is_trained():
    recipe = Recipe.from_dict(CONTENT)
    assert "search" not in recipe.model_dump()
    assert set(recipe.search) == set(SEARCH)


def test_a_tuning_does_its_trials_once_and_writes_the_best_as_a_recipe(recipe, tmp_path, fitted):
    folder = tmp_path / "out"
    trials = trials_of(folder, [recipe, recipe], TUNING)
    (path,) = tune(folder, trials)
    lines = list(csv.DictReader(path.with_suffix(".csv").read_text().splitlines()))
    assert [line["trial"] for line in lines] == ["0", "1", "2"]
    rates = [float(line["method.learning_rate"]) for line in lines]
    assert rates == [2e-4, *(trial.values["method.learning_rate"] for trial in trials[1:])]  # 0 is unchanged
    best = rates.index(max(rates))
    assert [line["chosen"] for line in lines].index("yes") == best
    content = yaml.safe_load(path.read_text())
    assert "of 3 trials on dev under caption-60 noise, seed 1000, 4 steps" in content.pop("note")
    chosen = {f"method.{name}": value for name, value in content.get("method", {}).items()}
    assert chosen == trials[best].values
    before = path.read_bytes(), path.with_suffix(".csv").read_bytes()
    assert tune(folder, trials) == [path]
    assert before == (path.read_bytes(), path.with_suffix(".csv").read_bytes())
    more = trials_of(folder, [recipe], TUNING.model_copy(update={"trials": 4}))
    assert len(tune(folder, more)[0].with_suffix(".csv").read_text().splitlines()) == 5
    assert fitted == ["trial-00", "trial-01", "trial-02", "trial-03"]
    with refused():
        tune(folder, trials_of(folder, [recipe], TUNING, settings=["steps=5"]))


def test_a_loss_that_is_not_finite_is_the_worst_trial_and_is_not_repeated(
    recipe, tmp_path, fitted, monkeypatch
):
    fit = tuning.train_run

    def diverging(trial, *rest):
        fit(trial, *rest)
        if trial.number == 0:
            (trial.run.path / "training.json").unlink()
            raise Diverged("the loss is nan")

    monkeypatch.setattr(tuning, "train_run", diverging)
    trials = trials_of(tmp_path / "out", [recipe], TUNING)
    (path,) = tune(tmp_path / "out", trials)
    assert tune(tmp_path / "out", trials) == [path]
    assert fitted.count("trial-00") == 1
    lines = list(csv.DictReader(path.with_suffix(".csv").read_text().splitlines()))
    assert (lines[0]["dev_rsum"], lines[0]["best_epoch"], lines[0]["chosen"]) == ("0.0", "", "")


def test_the_table_of_trials_has_every_finished_one_when_another_fails(recipe, tmp_path, fitted, monkeypatch):
    fit = tuning.train_run

    def failing(trial, *rest):
        if trial.number == 2:
            raise NclBenchError("the disk is full")
        fit(trial, *rest)

    monkeypatch.setattr(tuning, "train_run", failing)
    with refused():
        tune(tmp_path / "out", trials_of(tmp_path / "out", [recipe], TUNING))
    (table,) = (tmp_path / "out" / "tuned" / "info_nce").iterdir()  # no tuned recipe yet
    assert [line["trial"] for line in csv.DictReader(table.read_text().splitlines())] == ["0", "1"]


MEASURED = [
    table
    for table in map(Grid.load, sorted({path.stem for path in TABLES.glob("*.yaml")} - ablations().keys()))
    if table.tuning is not None
]


def test_the_shipped_tables_name_every_method_recipes_that_can_be_tuned_and_seeds_apart():
    for table in MEASURED:
        assert table.tuning.seed not in table.seeds
        for recipe in table.recipes:
            assert "method.learning_rate" in Recipe.load(recipe).search
        assert set(table.recipes) <= set(table.trained())
    trained = {name.split("/")[0] for table in MEASURED for name in table.trained()}
    assert trained == set(METHODS)


@pytest.mark.parametrize("name", [name for name in recipe_names() if Recipe.load(name).search])
def test_a_search_contains_what_the_recipe_says(name):
    recipe = Recipe.load(name)
    options = recipe.model_dump(mode="json")
    for option, among in recipe.search.items():
        *sections, last = option.split(".")
        value = (options[sections[0]] if sections else options)[last]
        if isinstance(among, OneOf):
            assert value in among.choice, option
        else:
            assert among.low <= value <= among.high, option


def test_a_table_that_tunes_on_one_of_its_seeds_is_refused(tmp_path):
    path = tmp_path / "table.yaml"
    content = {"title": "T", "steps": 1, "recipes": ["a/b"], "noises": ["none"], "seeds": [7]}
    path.write_text(yaml.safe_dump(content | {"tuning": {"seed": 7}}))
    with refused(RecipeError):
        Grid.load(str(path))


@pytest.mark.usefixtures("fitted")
def test_recipes_narrow_a_table_and_the_table_says_the_rest(recipe, tmp_path):
    other, folder = Path(recipe).with_name("other.yaml"), tmp_path / "out"
    other.write_text(yaml.safe_dump(CONTENT))
    content = {"title": "T", "steps": 2, "noises": ["none"], "seeds": [0]}
    content |= {"recipes": [recipe, str(other)], "tuning": {"trials": 2, "noise": "none", "seed": 7}}
    table = tmp_path / "table.yaml"
    table.write_text(yaml.safe_dump(content))
    arguments = ["tune", recipe, "--table", str(table), "--jobs", "1", "--to", str(folder)]
    invoke(*arguments)
    assert [path.name for path in (folder / "tuned" / "info_nce").glob("*.yaml")] == ["few_tuned.yaml"]
    note = yaml.safe_load((folder / "tuned" / "info_nce" / "few_tuned.yaml").read_text())["note"]
    assert note.startswith("The best of 2 trials on dev under none noise, seed 7, 2 steps per network")
