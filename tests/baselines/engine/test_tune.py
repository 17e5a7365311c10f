"""Tuning: what is drawn, who does the trials, what a killed worker leaves, and the recipe that comes of it."""

import csv
import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy
import yaml
from filelock import FileLock, Timeout
from hypothesis import given
from hypothesis import strategies as st
from optuna import Study
from optuna.trial import TrialState
from sqlalchemy import Engine
from support.few_digits import TINY, load_few
from typer.main import get_command
from typer.testing import CliRunner

import baselines.engine.tune
from baselines.engine.recipe import Between, OneOf, Recipe
from baselines.engine.step import Diverged
from baselines.engine.tables import Table, Tuning, table_names
from baselines.engine.train import Trainer
from baselines.engine.tune import Search, drawn, finished, tune
from baselines.recipes import recipe_names
from ncl_bench.cli import app
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
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Search:
    """A search whose workers are threads of this process, on few pairs."""
    monkeypatch.setattr("baselines.engine.run_folder.load_dataset", load_few)
    monkeypatch.setattr(baselines.engine.sweep, "worker_pool", in_this_process)
    path = tmp_path / "info_nce" / "few.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(CONTENT))
    return Search(str(path), tmp_path / "out", TUNING)


class in_this_process:
    """In the place of a pool of processes."""

    def __init__(self, n_workers: int, initializer, arguments) -> None:
        baselines.engine.sweep._shares = arguments[0]

    def __enter__(self):
        return self

    def __exit__(self, *error: object) -> None:
        baselines.engine.sweep._shares = None

    def submit(self, function, *arguments):
        from concurrent.futures import Future

        future: Future = Future()
        future.set_result(function(*arguments))
        return future


@given(
    low=st.floats(1e-6, 1, allow_subnormal=False),
    factor=st.floats(1.01, 1e4),
    log=st.booleans(),
    number=st.integers(1, 99),
)
def test_a_drawn_number_lies_in_its_range_and_is_always_the_same(
    low: float, factor: float, log: bool, number: int
) -> None:
    among = Between(low=low, high=low * factor, log=log)
    value = drawn(among, 1000, number, "method.margin")
    assert among.low <= value <= among.high
    assert drawn(among, 1000, number, "method.margin") == value


def test_draws_fill_their_range_evenly_or_in_the_logarithm() -> None:
    def values(among, n=2000):
        return [drawn(among, 0, number, "x") for number in range(n)]

    plain = values(Between(low=0.5, high=0.9))
    assert sum(x < 0.7 for x in plain) / 2000 == pytest.approx(0.5, abs=0.05)
    logs = values(Between(low=0.001, high=0.1, log=True))
    assert sum(x < 0.01 for x in logs) / 2000 == pytest.approx(0.5, abs=0.05)
    assert set(values(Between(low=2, high=4), 100)) == {2, 3, 4}
    assert set(values(OneOf(choice=(1, "a")), 100)) == {1, "a"}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"method.temprature": {"choice": [1]}}, "no such option; did you mean method.temperature"),
        ({"method.temperature": {"low": -1, "high": 1}}, "temperature.* greater than 0"),
        ({"method.temperature": {"low": 1, "high": 1}}, "no range to draw from"),
        ({"method.temperature": {"low": 0, "high": 1, "log": True}}, "no range to draw from"),
    ],
)
def test_a_search_that_a_method_refuses_is_refused_with_the_recipe(changed: dict, sentence: str) -> None:
    with pytest.raises(RecipeError, match=sentence):
        Recipe.from_dict(CONTENT | {"search": changed})


def test_a_search_is_no_part_of_what_is_trained() -> None:
    recipe = Recipe.from_dict(CONTENT)
    assert "search" not in recipe.model_dump()
    assert set(recipe.search) == set(SEARCH)


def test_a_tuning_does_its_trials_once_and_writes_the_best_as_a_recipe(search: Search) -> None:
    path = tune(search)
    lines = list(csv.DictReader(path.with_suffix(".csv").read_text().splitlines()))
    assert [line["trial"] for line in lines] == ["0", "1", "2"]
    assert float(lines[0]["method.learning_rate"]) == 2e-4  # the recipe as it is
    for number in (1, 2):
        expected = search.values(number)
        assert float(lines[number]["method.learning_rate"]) == expected["method.learning_rate"]
    sums = [float(line["dev_rsum"]) for line in lines]
    best = sums.index(max(sums))
    assert [line["chosen"] for line in lines].index("yes") == best
    content = yaml.safe_load(path.read_text())
    assert "of 3 trials on dev under caption-60 noise, seed 1000, 4 steps" in content.pop("note")
    chosen = {f"method.{name}": value for name, value in content.get("method", {}).items()}
    assert chosen == search.values(best)
    before = path.read_bytes(), path.with_suffix(".csv").read_bytes()
    weights = [run.stat().st_mtime_ns for run in sorted(search.folder.glob("runs/*/*/*/best.safetensors"))]
    assert len(weights) == 3
    assert tune(search) == path
    assert before == (path.read_bytes(), path.with_suffix(".csv").read_bytes())
    more = replace(search, tuning=TUNING.model_copy(update={"trials": 4}))
    assert len(tune(more).with_suffix(".csv").read_text().splitlines()) == 5
    assert [run.stat().st_mtime_ns for run in sorted(search.folder.glob("runs/*/*/*/best.safetensors"))][
        :3
    ] == weights
    other = replace(search, settings=("steps=5",))
    with pytest.raises(NclBenchError, match="is of another recipe, search, noise or seed; fix"):
        tune(other)


def test_a_trial_that_nobody_keeps_alive_is_done_again_with_its_values(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines.engine.tune, "HEARTBEAT", 1)
    study = baselines.engine.tune._study(search)
    baselines.engine.tune._enqueue(study, search)
    abandoned = study.ask()  # begun by a worker that is no more: it shows no sign of life
    study._storage.record_heartbeat(abandoned._trial_id)
    tune(search)
    assert study.trials[abandoned.number].state == TrialState.FAIL
    done = finished(study)
    assert sorted(done) == [0, 1, 2]
    assert done[abandoned.user_attrs["number"]].number > abandoned.number


def test_a_loss_that_does_not_stay_finite_is_the_worst_trial(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = baselines.engine.tune.Trainer.run

    def diverging(trainer, progress):
        if trainer.folder.path.name == "trial-00":
            raise Diverged("the loss is nan")
        return train(trainer, progress)

    monkeypatch.setattr("baselines.engine.tune.Trainer.run", diverging)
    path = tune(search)
    lines = list(csv.DictReader(path.with_suffix(".csv").read_text().splitlines()))
    assert (lines[0]["dev_rsum"], lines[0]["chosen"]) == ("0.0", "")


def test_a_second_process_that_asks_for_the_same_trial_leaves_it(search: Search) -> None:
    study = baselines.engine.tune._study(search)
    for _ in range(2):
        study.enqueue_trial({}, user_attrs={"number": 0})
    baselines.engine.tune._enqueue(study, search)
    tune(search)
    states = [trial.state for trial in study.trials]
    assert states.count(TrialState.COMPLETE) == 3
    assert states.count(TrialState.PRUNED) == 1


@pytest.mark.slow
def test_a_killed_tuning_goes_on_and_ends_as_one_that_was_not(tmp_path: Path) -> None:
    recipe = tmp_path / "info_nce" / "few.yaml"
    recipe.parent.mkdir()
    recipe.write_text(yaml.safe_dump(CONTENT | {"steps": 12}))
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    program = (
        "import sys, baselines.engine.tune as t; from pathlib import Path; from baselines.engine.tables import Tuning\n"
        "if __name__ == '__main__':\n"
        "    t.HEARTBEAT = 1\n"
        f"    t.tune(t.Search({str(recipe)!r}, Path(sys.argv[1]), Tuning(trials=2), device='cpu'))"
    )
    script = tmp_path / "tune.py"
    script.write_text(program)
    command = [sys.executable, str(script)]
    process = subprocess.Popen([*command, str(tmp_path / "broken")], env=environment, start_new_session=True)
    deadline = time.monotonic() + 240
    while not list((tmp_path / "broken").glob("runs/*/*/*/run.json")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for name in ("broken", "whole"):
        subprocess.run([*command, str(tmp_path / name)], check=True, capture_output=True, env=environment)
    broken, whole = (
        (tmp_path / name / "tuned" / "info_nce" / "few_tuned.csv").read_text() for name in ("broken", "whole")
    )
    assert broken == whole


def test_the_shipped_tables_name_recipes_that_can_be_tuned_and_seeds_apart() -> None:
    for name in table_names():
        table = Table.load(name)
        assert table.tuning.seed not in table.seeds
        for recipe in table.recipes:
            assert "method.learning_rate" in Recipe.load(recipe).search
        assert set(table.recipes) <= set(table.trained())


@pytest.mark.parametrize("name", [name for name in recipe_names() if Recipe.load(name).search])
def test_a_search_contains_what_the_recipe_says(name: str) -> None:
    recipe = Recipe.load(name)
    options = recipe.model_dump(mode="json")
    for option, among in recipe.search.items():
        *sections, last = option.split(".")
        value = (options[sections[0]] if sections else options)[last]
        if isinstance(among, OneOf):
            assert value in among.choice, option
        else:
            assert among.low <= value <= among.high, option


def test_every_method_of_digits_is_in_a_table() -> None:
    methods = {name.split("/")[0] for table in table_names() for name in Table.load(table).recipes}
    from baselines.methods import METHODS

    assert methods == set(METHODS)


def test_a_table_that_tunes_on_one_of_its_seeds_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.yaml"
    content = {"title": "T", "steps": 1, "recipes": ["a/b"], "noises": ["none"], "seeds": [7]}
    path.write_text(yaml.safe_dump(content | {"tuning": {"seed": 7}}))
    with pytest.raises(RecipeError, match=r"tuning\.seed is 7, one of seeds; choose another one"):
        Table.load(str(path))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["tune"], "expected recipes or a table to tune; fix: name some"),
        (["tune", "--table", "nothing"], "no table 'nothing': neither a file nor one of digits"),
        (["tune", "ncr/flickr30k_sgr"], "has no search: name the options to tune"),
        (["tune", "ncr/digits_sgr", "--study", "nosuch://x"], "cannot open the study at nosuch://x"),
    ],
)
def test_the_command_says_what_is_wrong(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, [*arguments, "--to", str(tmp_path / "out")])
    assert found.exit_code != 0
    assert sentence in str(found.exception)


def test_the_help_says_what_a_search_takes_by_default() -> None:
    helps = {option.name: option.help for option in get_command(app).commands["tune"].params}
    for name, default in Tuning().model_dump().items():
        assert f"; {default} by default" in helps[name]


def test_recipes_narrow_a_table_and_the_table_says_the_rest(search: Search, tmp_path: Path) -> None:
    other = Path(search.recipe).with_name("other.yaml")
    other.write_text(yaml.safe_dump(CONTENT))
    content = {"title": "T", "steps": 2, "noises": ["none"], "seeds": [0]}
    content |= {"recipes": [search.recipe, str(other)], "tuning": {"trials": 2, "noise": "none", "seed": 7}}
    table = tmp_path / "table.yaml"
    table.write_text(yaml.safe_dump(content))
    arguments = ["tune", search.recipe, "--table", str(table), "--jobs", "1", "--to", str(search.folder)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert [path.name for path in (search.folder / "tuned" / "info_nce").glob("*.yaml")] == ["few_tuned.yaml"]
    note = yaml.safe_load((search.folder / "tuned" / "info_nce" / "few_tuned.yaml").read_text())["note"]
    assert note.startswith("The best of 2 trials on dev under none noise, seed 7, 2 steps per network")


def test_one_worker_at_a_time_takes_a_trial(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    """In SQLite, two that look at the same moment would take the same one."""
    other, free = FileLock(search.folder / "study.lock", thread_local=False), []

    def is_free() -> bool:
        with suppress(Timeout), other.acquire(blocking=False):
            return True
        return False

    pop, train = Study._pop_waiting_trial_id, Trainer.run
    monkeypatch.setattr(Study, "_pop_waiting_trial_id", lambda study: free.append(is_free()) or pop(study))
    monkeypatch.setattr(
        Trainer, "run", lambda trainer, progress: free.append(is_free()) or train(trainer, progress)
    )
    tune(search)
    assert free == [False, True] * TUNING.trials


def test_a_study_waits_for_a_file_that_others_write_to(search: Search) -> None:
    """On a disk that is slow to sync, longer than SQLite's own five seconds."""
    waited = []

    @sqlalchemy.event.listens_for(Engine, "connect")
    def look(connection: sqlite3.Connection, record: object) -> None:
        waited.extend(connection.execute("PRAGMA busy_timeout").fetchone())

    try:
        baselines.engine.tune._study(search)
    finally:
        sqlalchemy.event.remove(Engine, "connect", look)
    assert set(waited) == {1000 * baselines.engine.tune.PATIENCE}


def test_draws_of_the_ends_are_finite() -> None:
    assert math.isfinite(drawn(Between(low=1e-300, high=1e300, log=True), 0, 1, "x"))
