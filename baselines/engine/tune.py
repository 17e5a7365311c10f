"""Random search over what a recipe's ``search`` names, with as many trials for every method, judged on dev alone.

The first trial is the recipe as it is; what the others draw depends on the seed and their number, so any number of
processes, on any number of machines, does the same trials. Optuna keeps the study, in SQLite or in any database whose
URL it understands. A worker that is killed leaves a trial without heartbeat, which another one begins again; its run
goes on from the last epoch. One that loses the database goes on training and waits for it; a run that was finished
meanwhile is told to the study, and not done again.

``FOLDER/study.db``                 the study, unless it is kept elsewhere
``FOLDER/study.lock``               held by the worker that takes a trial
``FOLDER/runs/RECIPE/trial-03``     the training of a trial
``FOLDER/tuned/RECIPE_tuned.csv``   every trial, and beside it as YAML the values of the best one
"""

import csv
import io
import json
import re
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import yaml
from filelock import FileLock
from optuna.trial import FrozenTrial, Trial, TrialState
from rich.console import Console
from sqlalchemy import Dialect, event

from baselines.engine.jobs import JobSystem
from baselines.engine.progress import progress_bar
from baselines.engine.recipe import Between, OneOf, Recipe, with_settings, with_values
from baselines.engine.run_folder import RunFolder, TrainingJob
from baselines.engine.step import Diverged
from baselines.engine.sweep import NoiseCell, SharedProgress, as_finished, pool_of, shared_shares
from baselines.engine.tables import TUNED, Tuning
from baselines.engine.train import Trainer
from baselines.kit.randomness import derive_seed
from ncl_bench.errors import NclBenchError
from ncl_bench.files import write_text

STUDY_FILE = "study.db"
LOCK_FILE = "study.lock"
HEARTBEAT = 20
"""Seconds between signs of life of a trial; after three times as many it counts as abandoned."""
PATIENCE = 600
"""Seconds to wait for a database that does not answer any more, or is locked."""
MOST_LOST = 10
"""How often in a row the database may go away in the middle of a statement."""
_OPEN = (TrialState.WAITING, TrialState.RUNNING, TrialState.COMPLETE)


@dataclass(frozen=True)
class Search:
    """The tuning of one recipe.

    Attributes:
        recipe: name of a shipped recipe, or a file.
        folder: for runs and results.
        tuning: trials, noise and seed.
        settings: of every trial, such as ``steps=1500``.
        url: of the database that holds the study; SQLite in the folder by default.
        root: folder of prepared datasets.
        device: ``auto``, ``cpu`` or ``cuda``.
    """

    recipe: str
    folder: Path
    tuning: Tuning
    settings: tuple[str, ...] = ()
    url: str | None = None
    root: Path | None = None
    device: str = "auto"

    @property
    def name(self) -> str:
        """Method and name of the recipe, such as ``ncr/digits_vse_infinity``."""
        return "/".join(Path(self.recipe).with_suffix("").parts[-2:])

    @property
    def base(self) -> Recipe:
        """The recipe as it is, with the settings."""
        return with_settings(Recipe.load(self.recipe), self.settings)[0]

    def values(self, number: int) -> dict[str, Any]:
        """What a trial sets; nothing for the first one."""
        if number == 0:
            return {}
        return {
            name: drawn(among, self.tuning.seed, number, name) for name, among in self.base.search.items()
        }

    def job(self, number: int) -> TrainingJob:
        """The training of a trial."""
        noise = NoiseCell.parse(self.tuning.noise)
        return TrainingJob(
            with_values(self.base, self.values(number))[0],
            noise_ratio=noise.percent / 100,
            noise_unit=noise.unit,
            seed=self.tuning.seed,
            root=self.root,
        )

    def statement(self) -> str:
        """All that the trials depend on but their number, as JSON."""
        base = self.base
        search = {name: among.model_dump(mode="json") for name, among in base.search.items()}
        said: dict[str, Any] = {"recipe": base.model_dump(mode="json"), "search": search}
        said |= {"noise": self.tuning.noise, "seed": self.tuning.seed}
        return json.dumps(said, sort_keys=True)


def drawn(among: Between | OneOf, seed: int, number: int, name: str) -> Any:
    """The value of an option in a trial: numbers that are not whole have four digits."""
    random = np.random.default_rng(derive_seed(seed, "search", number, name))
    if isinstance(among, OneOf):
        return among.choice[int(random.integers(len(among.choice)))]
    if isinstance(among.low, int) and isinstance(among.high, int) and not among.log:
        return int(random.integers(among.low, among.high + 1))
    low, high = (float(np.log(end)) if among.log else float(end) for end in (among.low, among.high))
    value = random.uniform(low, high)
    value = float(np.clip(float(f"{np.exp(value) if among.log else value:.4g}"), among.low, among.high))
    return round(value) if isinstance(among.low, int) and isinstance(among.high, int) else value


def tune(search: Search, *, jobs: int = 1, system: JobSystem | None = None) -> Path:
    """Do all trials that are not done yet, and write the best one's values with the table of all.

    Args:
        search: what to tune, and how.
        jobs: trials at a time, one thread each.
        system: where the workers go as jobs; they are processes of this command by default.

    Returns:
        The YAML file with the values of the best trial.

    Raises:
        NclBenchError: the recipe names nothing to search, the study is another one, or a trial fails.
    """
    if not search.base.search:
        raise NclBenchError(
            f"recipe {search.recipe} has no search: name the options to tune and their ranges there"
        )
    trials = search.tuning.trials
    study = _study(search)
    _enqueue(study, search)
    shares = shared_shares(trials)
    for number in set(finished(study)) & set(range(trials)):
        shares[number] = 1.0
    console = Console(stderr=True)
    workers = pool_of(system, search.folder / "jobs", min(jobs, trials), shares)
    with workers as pool, progress_bar(console) as bar:
        futures: list[Future[None]] = [pool.submit(_work, search) for _ in range(min(jobs, trials))]
        task = bar.add_task(f"{search.name}: {trials} trials", total=trials, state="")

        def show() -> None:
            bar.update(task, completed=sum(shares) if system is None else len(finished(study)))

        for index in as_finished(futures, show):
            futures[index].result()
    done = finished(study)
    return _write(search, [done[number] for number in range(trials)])


def finished(study: optuna.Study) -> dict[int, FrozenTrial]:
    """The complete trials by the number that their values were drawn with."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return {trial.user_attrs["number"]: trial for trial in complete}


def _study(search: Search) -> optuna.Study:
    """The recipe's study, made where it is not there yet.

    Raises:
        NclBenchError: no such database, or its study is of something else.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    search.folder.mkdir(parents=True, exist_ok=True)
    url = search.url or f"sqlite:///{search.folder / STUDY_FILE}"
    shown = re.sub(r":[^:@/]+@", ":***@", url)
    options: dict[str, Any] = {"pool_pre_ping": True}  # a connection that was lost is opened again
    if url.startswith("sqlite"):
        options["connect_args"] = {"timeout": PATIENCE}  # by default it waits five seconds for other writers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        try:
            storage = optuna.storages.RDBStorage(
                url,
                engine_kwargs=options,
                heartbeat_interval=HEARTBEAT,
                grace_period=3 * HEARTBEAT,
                heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(),
            )
            study = optuna.create_study(
                storage=storage, study_name=search.name, direction="maximize", load_if_exists=True
            )
        except Exception as error:  # every database has its own
            problem = str(error).strip().splitlines()[0]
            raise NclBenchError(
                f"cannot open the study at {shown}: {problem}; fix: give another --study"
            ) from None
    event.listen(storage.engine, "do_connect", _connect_patiently)
    stated = study.user_attrs.get("statement")
    if stated is None:
        study.set_user_attr("statement", search.statement())
    elif stated != search.statement():
        raise NclBenchError(
            f"the study of {search.name} at {shown} is of another recipe, search, noise or seed; fix: give another "
            "--study, or another --to"
        )
    return study


def _connect_patiently(dialect: Dialect, _: object, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Connect to a database that answered before, and may be away for a while."""
    gone_since = None
    while True:
        try:
            connection = dialect.connect(*given, **named)
        except dialect.loaded_dbapi.Error:
            gone_since = gone_since or time.monotonic()
            if time.monotonic() - gone_since > PATIENCE:
                raise
            time.sleep(1)
            continue
        if gone_since is not None and threading.current_thread() is threading.main_thread():
            connection.close()  # signs of life, which other threads give, come before anyone looks for them
            gone_since = None
            time.sleep(HEARTBEAT)
            continue
        return connection


def _enqueue(study: optuna.Study, search: Search) -> None:
    """Ask for every trial that nobody has done or begun."""
    known = {trial.user_attrs.get("number") for trial in study.get_trials(deepcopy=False, states=_OPEN)}
    for number in range(search.tuning.trials):
        if number not in known:
            study.enqueue_trial(search.values(number), user_attrs={"number": number})


def _work(search: Search) -> None:
    """Do trials until all are done, whoever does them."""
    study, trials = _study(search), search.tuning.trials
    # SQLite lets two workers take the same waiting trial: whoever takes one has the lock until its trial begins
    taking = FileLock(search.folder / LOCK_FILE)

    def objective(trial: Trial) -> float:
        taking.release()
        return _dev_of(study, search, trial)

    lost = 0
    while True:
        try:
            if len(finished(study)) >= trials:
                return
            with taking:
                waiting = study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
                if waiting:
                    study.optimize(objective, n_trials=1)
            if not waiting:  # another process has the rest; what it abandons comes back
                time.sleep(min(HEARTBEAT / 4, 2.0))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                    optuna.storages.fail_stale_trials(study)
            lost = 0
        except optuna.exceptions.StorageInternalError as error:
            # a trial that could not be told counts as abandoned later, and its finished run is found in its folder
            lost += 1
            if lost > MOST_LOST:
                raise NclBenchError(
                    f"the database of the study does not answer ({error.__cause__ or error}); run the same command "
                    "again when it does, it goes on where it stopped"
                ) from None
        except ValueError as error:
            # the database was away for so long that another process took the trial over, and finds the run
            if not str(error).startswith("Cannot tell a FAIL trial"):
                raise


def _dev_of(study: optuna.Study, search: Search, trial: Trial) -> float:
    """rSum on dev of the best epoch of a trial; 0 where its loss does not stay finite."""
    number = trial.user_attrs.get("number")
    earlier = [
        other for other in study.get_trials(deepcopy=False, states=_OPEN) if other.number < trial.number
    ]
    if number is None or any(other.user_attrs.get("number") == number for other in earlier):
        raise optuna.TrialPruned  # two processes began the study at once
    if number > 0:
        for name, among in search.base.search.items():
            _suggest(trial, name, among)
    folder = RunFolder(search.folder / "runs" / search.name / f"trial-{number:02d}")
    trainer = Trainer(search.job(number), folder, search.device)
    with SharedProgress(len(trainer.plans), number) as progress:
        try:
            outcome = trainer.run(progress)
        except Diverged as error:
            trial.set_user_attr("problem", str(error))
            return 0.0
    trial.set_user_attr("best_epoch", outcome.best_epoch + 1)
    return outcome.dev["r_sum"]


def _suggest(trial: Trial, name: str, among: Between | OneOf) -> None:
    """Tell the study from where the value was drawn that stands in the queue."""
    if isinstance(among, OneOf):
        trial.suggest_categorical(name, among.choice)
    elif isinstance(among.low, int) and isinstance(among.high, int):
        trial.suggest_int(name, among.low, among.high, log=among.log)
    else:
        trial.suggest_float(name, among.low, among.high, log=among.log)


def _write(search: Search, trials: Sequence[FrozenTrial]) -> Path:
    """The best trial's values as a recipe's variant, and all trials as a table."""
    best = max(range(len(trials)), key=lambda number: (_value(trials[number]), -number))
    target = search.folder / "tuned" / f"{search.name}{TUNED}"
    lines = io.StringIO()
    names = list(search.base.search)
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(["trial", *names, "dev_rsum", "best_epoch", "chosen"])
    for number, trial in enumerate(trials):
        options = _options(search.job(number).recipe)
        row = [options[name] for name in names]
        epoch = trial.user_attrs.get("best_epoch", "")
        writer.writerow([number, *row, f"{_value(trial):.1f}", epoch, "yes" if number == best else ""])
    write_text(target.parent / f"{target.name}.csv", lines.getvalue())
    path = target.parent / f"{target.name}.yaml"
    write_text(path, _variant(search, search.values(best)))
    return path


def _value(trial: FrozenTrial) -> float:
    assert trial.value is not None
    return trial.value


def _options(recipe: Recipe) -> dict[str, Any]:
    content = recipe.model_dump(mode="json")
    inner = (
        (f"{section}.{name}", x) for section in ("backbone", "method") for name, x in content[section].items()
    )
    return content | dict(inner)


def _variant(search: Search, values: Mapping[str, Any]) -> str:
    """Values by dotted name as the file of a tuned recipe."""
    tuning, steps = search.tuning, search.base.steps
    length = "" if steps is None else f", {steps} steps per network"
    content: dict[str, Any] = {}
    for name, value in values.items():
        section, _, option = name.rpartition(".")
        (content.setdefault(section, {}) if section else content)[option] = value
    content["note"] = (
        f"The best of {tuning.trials} trials on dev under {tuning.noise} noise, seed {tuning.seed}{length}"
        + ("." if values else "; it is the recipe as it was.")
    )
    return yaml.safe_dump(content, sort_keys=False, width=110)
