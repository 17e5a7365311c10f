"""Training runs as SLURM jobs, in place of local processes.

submitit submits the jobs and keeps their logs and results. ``squeue`` says which jobs are unfinished: submitit asks
SLURM's accounting, and without accounting it never notices that a job died. SLURM may stop a job and restart it on any
node; the training resumes from its last complete epoch. The command waits for its jobs. An interrupted command cancels
them. A killed command leaves them in the queue; when it runs again, its new jobs wait for the old ones.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from threading import Lock
from typing import Any

from baselines.training.recipe import named_value
from ncl_bench import plugins
from ncl_bench.errors import NclBenchError, named
from ncl_bench.extras import require
from ncl_bench.foreign import reading

DAY = 24 * 60
"""Default time limit of a job, in minutes; a job that reaches it is restarted and resumes."""
MOST_AGAIN = 100
"""Number of restarts after a job reached its time limit."""
POLL = 20
"""Seconds between two queries of the queue."""
QUEUE_PATIENCE = 15
"""Seconds that the result of an ended job may take to appear on a shared file system."""
_FIX = "see submitit's SlurmExecutor for its options, where srun is installed"
"""Of what submitit or ``sbatch`` refuses: no srun, an unknown option, no such partition."""


def read_options(given: Sequence[str]) -> dict[str, Any]:
    """Read the options of all jobs, such as ``partition=gpu`` and ``time=600`` (minutes).

    Raises:
        RecipeError: an option is not NAME=VALUE.
    """
    return dict(named_value(option, "slurm", "partition=gpu") for option in given)


@dataclass(frozen=True)
class Call:
    """Function that a job runs; SLURM may restart it."""

    given_plugins: tuple[str, ...]
    begin: Callable[[], None]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __call__(self) -> Any:
        """Return the function's result, or a user error, since submitit turns a raised error into text."""
        try:
            plugins.load_plugins(self.given_plugins)
            self.begin()
            return self.function(*self.arguments)
        except NclBenchError as error:
            return error

    def checkpoint(self) -> Any:
        """Resubmit the same call when SLURM stops the job; submitit's hook."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


class Jobs:
    """Submit functions as jobs.

    Args:
        executor: submitit executor.
        threads: one thread per job in the queue; each waits for its job.
        begin: called first in every job.
    """

    def __init__(self, executor: Any, threads: ThreadPoolExecutor, begin: Callable[[], None]) -> None:
        self._executor, self._threads, self._begin = executor, threads, begin
        self._lock = Lock()
        self.submitted: list[Any] = []
        self._closed = False
        # the user's unfinished jobs, asked of SLURM for all threads together; None if it did not answer
        self._queue: set[str] | None = None
        self._asked = float("-inf")

    def submit(self, name: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Submit a job of this name as soon as a thread is free."""
        given = tuple(plugin.given for plugin in plugins.loaded())
        return self._threads.submit(self._result, name, Call(given, self._begin, function, arguments))

    def cancel(self) -> None:
        """Cancel every unfinished job, and submit no new ones."""
        with self._lock:
            self._closed = True
            for job in self.submitted:
                if not _has_result(job):
                    job.cancel(check=False)

    def _result(self, name: str, call: Call) -> Any:
        with self._lock:
            self._refuse_if_closed()
            # "singleton": a job of this name left by a killed command ends first, and this one reuses its work
            self._executor.update_parameters(job_name=name, dependency="singleton")
            with reading(named("slurm"), fix=_FIX):
                job = self._executor.submit(call)
            self.submitted.append(job)
        held = time.monotonic() + POLL  # a list of the queue may be so old, and not name this job
        while not _has_result(job) and time.monotonic() - held <= QUEUE_PATIENCE:
            self._refuse_if_closed()
            if self._is_queued(job.job_id):
                held = max(held, time.monotonic())
            time.sleep(1)
        if not _has_result(job) or job.exception() is not None:
            raise NclBenchError(
                f"job {job.job_id} ({name}) ended without a result; see {job.paths.stderr}, then run the same command "
                "again to resume"
            )
        result = job.result()
        if isinstance(result, NclBenchError):
            raise result
        return result

    def _is_queued(self, job_id: str) -> bool:
        """Whether a job is unfinished, or SLURM does not answer."""
        with self._lock:
            if self._asked < time.monotonic() - POLL:
                command = ["squeue", "--me", "--noheader", "--format=%A"]
                seen = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (our own words)
                # a controller that does not answer says nothing about the jobs
                self._queue = set(seen.stdout.split()) if seen.returncode == 0 else None
                self._asked = time.monotonic()
            return self._queue is None or job_id in self._queue

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise NclBenchError("the jobs were cancelled; run the same command again to resume")


def _has_result(job: Any) -> bool:
    """Whether a job left its result; a list of its folder is newer than a network file system's memory of a name."""
    return job.paths.result_pickle.name in os.listdir(job.paths.folder)


@contextmanager
def job_pool(
    options: Mapping[str, Any], folder: Path, n_jobs: int, begin: Callable[[], None]
) -> Iterator[Jobs]:
    """Open a pool of jobs; if the block raises, unfinished jobs are cancelled.

    Args:
        options: options of every job, from :func:`read_options`.
        folder: folder of the jobs' logs, arguments and results.
        n_jobs: number of jobs in the queue at once.
        begin: called first in every job.

    Raises:
        NclBenchError: submitit or SLURM is not installed, an option is unknown, or a job died.
    """
    executor = _executor(options, folder)
    new = [each for each in (folder, folder.parent) if not each.exists()]
    with ThreadPoolExecutor(n_jobs) as threads:
        jobs = Jobs(executor, threads, begin)
        try:
            yield jobs
        except BaseException:
            jobs.cancel()
            threads.shutdown(cancel_futures=True)
            if new and not jobs.submitted:  # submitit writes a job's arguments before sbatch refuses it
                rmtree(folder, ignore_errors=True)
                with suppress(OSError):
                    new[-1].rmdir()
            raise


def _executor(options: Mapping[str, Any], folder: Path) -> Any:
    require("slurm", "submitit", needed_by="a SLURM job")
    from submitit import SlurmExecutor

    with reading(named("slurm"), fix=_FIX):
        executor = SlurmExecutor(folder, max_num_timeout=MOST_AGAIN)
        executor.update_parameters(**({"time": DAY} | dict(options)))
    return executor
