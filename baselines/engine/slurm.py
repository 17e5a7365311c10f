"""Trainings as jobs in SLURM's queue, in place of processes of this machine.

submitit submits the jobs and keeps their logs. SLURM may stop a job and begin it again on any node: a training resumes
from its last whole epoch. The command waits for its jobs. Interrupted, it cancels them. Killed, it leaves them in the
queue, and the same command waits for them: of the jobs of one name SLURM runs one at a time.
"""

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, cast

import yaml

from ncl_bench import plugins
from ncl_bench.errors import NclBenchError
from ncl_bench.extras import require

DAY = 24 * 60
"""Minutes that a job may take by default; SLURM begins one that takes longer again."""
MOST_AGAIN = 100
"""How often a job that reached its time limit is begun again."""
POLL = 20
"""Seconds between two looks at the queue; less for jobs that were just submitted."""


def read_options(given: Sequence[str]) -> dict[str, Any]:
    """Read options of every job, such as ``partition=gpu`` and ``time=600`` (minutes).

    Raises:
        NclBenchError: an option has another form.
    """
    options = {}
    for option in given:
        name, _, value = option.partition("=")
        if not name.isidentifier() or not value:
            raise NclBenchError(f"--slurm {option}: expected NAME=VALUE, such as partition=gpu")
        options[name] = yaml.safe_load(value)
    return options


@dataclass(frozen=True)
class Call:
    """What a job does; SLURM may begin it anew."""

    given_plugins: tuple[str, ...]
    begin: Callable[[], None]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __call__(self) -> Any:
        """Return the function's result, or a user's error: one that is raised would come back as text."""
        plugins.load_plugins(list(self.given_plugins))
        self.begin()
        try:
            return self.function(*self.arguments)
        except NclBenchError as error:
            return error

    def checkpoint(self) -> Any:
        """Say what submitit submits when SLURM stops the job: the same again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


class Jobs:
    """Submits functions as jobs.

    Args:
        executor: of submitit.
        threads: as many as jobs may be in the queue at a time; each waits for one.
        begin: called first in every job.
    """

    def __init__(self, executor: Any, threads: ThreadPoolExecutor, begin: Callable[[], None]) -> None:
        self._executor, self._threads, self._begin = executor, threads, begin
        self._submitting = Lock()
        self._submitted: list[Any] = []
        self._closed = False

    def submit(self, name: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Submit a job of this name as soon as there is a place for it."""
        given = tuple(plugin.given for plugin in plugins.loaded())
        return self._threads.submit(self._result, name, Call(given, self._begin, function, arguments))

    def cancel(self) -> None:
        """Cancel every job that is not done, and submit no more."""
        with self._submitting:
            self._closed = True
            for job in self._submitted:
                if not job.done():
                    job.cancel(check=False)
                    job._results_timeout_s = 0  # no result is late: there is none

    def _result(self, name: str, call: Call) -> Any:
        from submitit.core.utils import FailedJobError, UncompletedJobError

        with self._submitting:
            if self._closed:
                raise NclBenchError("the jobs were cancelled; run the same command again to resume")
            # a job of this name that a killed command left in the queue ends first, and its work is found
            self._executor.update_parameters(job_name=name, dependency="singleton")
            job = self._executor.submit(call)
            self._submitted.append(job)
        try:
            result = job.result()
        except (FailedJobError, UncompletedJobError):
            raise NclBenchError(
                f"job {job.job_id} ({name}) ended without a result, and {job.paths.stderr} may say why; run the same "
                "command again to resume"
            ) from None
        if isinstance(result, NclBenchError):
            raise result
        return result


@contextmanager
def job_pool(
    options: Mapping[str, Any], folder: Path, n_jobs: int, begin: Callable[[], None]
) -> Iterator[Jobs]:
    """Jobs for the length of a block; those that are not done when it raises are cancelled.

    Args:
        options: of every job, from :func:`read_options`.
        folder: for their logs, and for what they are given and return.
        n_jobs: how many are in the queue at a time.
        begin: called first in every job.

    Raises:
        NclBenchError: submitit or SLURM is not installed, an option is unknown, or a job died.
    """
    executor = _executor(options, folder)
    with ThreadPoolExecutor(n_jobs) as threads:
        jobs = Jobs(executor, threads, begin)
        try:
            yield jobs
        except BaseException:
            jobs.cancel()
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _executor(options: Mapping[str, Any], folder: Path) -> Any:
    require("slurm", "submitit", needed_by="--executor slurm")
    from submitit import SlurmExecutor, SlurmJob
    from submitit.slurm.slurm import SlurmInfoWatcher

    class Queue(SlurmInfoWatcher):
        """Asks ``squeue``: submitit asks for accounting, and where there is none it never learns that a job died."""

        def update(self) -> None:
            registered = set(self._registered)  # before the look: a job submitted meanwhile is not in it
            command = ["squeue", "--me", "--noheader", "--format=%A %T"]
            seen = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
            if seen.returncode == 0:  # a controller that is away for a while says nothing about the jobs
                states = dict(line.split() for line in seen.stdout.splitlines())
                self._info_dict = {job: {"State": states.get(job, "ENDED")} for job in registered}
            self._last_status_check = time.time()

    try:
        executor = SlurmExecutor(folder, max_num_timeout=MOST_AGAIN)
    except RuntimeError:
        raise NclBenchError(
            "--executor slurm finds no srun; fix: run the command on a machine that submits jobs to SLURM"
        ) from None
    executor.job_class = cast(Any, type("QueuedJob", (SlurmJob,), {"watcher": Queue(delay_s=POLL)}))
    try:
        executor.update_parameters(**({"time": DAY} | dict(options)))
    except (NameError, ValueError, TypeError) as error:
        sentence = str(error).strip().splitlines()[0].rstrip(".: ")
        raise NclBenchError(
            f"--slurm: {sentence}; fix: see the parameters of submitit's SlurmExecutor"
        ) from None
    return executor
