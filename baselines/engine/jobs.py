"""Runs as jobs beside the command that asks for them: in the queue of SLURM, or as processes of this machine.

Jobs are submitted with submitit, which keeps their logs in a folder. SLURM may stop a job and begin it again, on any
node: a run goes on from its last whole epoch. The command waits for its jobs. If it is interrupted it cancels them; if
it is killed they go on, and the same command finds what they finished: a run that is still at work keeps the folder to
itself on one machine, and in SLURM's queue has a name of which one job runs at a time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, Literal, Self

import yaml

from ncl_bench import plugins
from ncl_bench.errors import NclBenchError

DAY = 24 * 60
"""Minutes that a job may take where nothing else is said; SLURM begins one that takes longer again."""
MOST_AGAIN = 100
"""How often a job that was stopped is begun again."""


@dataclass(frozen=True)
class JobSystem:
    """Where jobs go.

    Attributes:
        kind: ``slurm``, or ``local`` for processes of this machine.
        options: of every job of SLURM by name, such as ``partition``, ``time`` (minutes) and ``gpus_per_node``.
    """

    kind: Literal["local", "slurm"]
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, executor: Literal["here", "local", "slurm"], options: Sequence[str]) -> Self | None:
        """Read what the command line says; None for processes of the command itself.

        Raises:
            NclBenchError: an option is not like ``partition=gpu``, or there is no SLURM that it could be for.
        """
        if options and executor != "slurm":
            raise NclBenchError(f"--slurm {options[0]} is about jobs of SLURM; fix: add --executor slurm")
        values = {}
        for option in options:
            name, _, value = option.partition("=")
            if not name.isidentifier() or not value:
                raise NclBenchError(f"--slurm {option}: expected NAME=VALUE, such as partition=gpu")
            values[name] = yaml.safe_load(value)
        return None if executor == "here" else cls(executor, values)


@dataclass(frozen=True)
class Call:
    """What a job does; SLURM may begin it anew."""

    given_plugins: tuple[str, ...]
    begin: Callable[..., None]
    begin_with: tuple[Any, ...]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __call__(self) -> Any:
        """Do it; an error that is a user's to fix is returned, since one that is raised comes back as text."""
        plugins.load_plugins(list(self.given_plugins))
        self.begin(*self.begin_with)
        try:
            return self.function(*self.arguments)
        except NclBenchError as error:
            return error

    def checkpoint(self) -> Any:
        """What is submitted in place of a job that SLURM stops: the same again."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


class Jobs:
    """Stands where a pool of processes would.

    Args:
        executor: of submitit.
        threads: as many as jobs may be submitted at a time; each waits for one.
        begin: called first in every job.
        begin_with: what ``begin`` is called with.
        name_of: names a job of SLURM by what it is called with; of one name one runs at a time.
    """

    def __init__(
        self,
        executor: Any,
        threads: ThreadPoolExecutor,
        begin: Callable[..., None],
        begin_with: tuple[Any, ...],
        name_of: Callable[..., str] | None = None,
    ) -> None:
        self._name_of = name_of
        self._executor, self._threads = executor, threads
        self._begin, self._begin_with = begin, begin_with
        self._submitting = Lock()
        self._submitted: list[Any] = []
        self._closed = False

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Submit a job as soon as there is a place for it."""
        given = tuple(plugin.given for plugin in plugins.loaded())
        return self._threads.submit(
            self._result, Call(given, self._begin, self._begin_with, function, arguments)
        )

    def cancel(self) -> None:
        """Cancel all that were submitted and are not done, and submit no more."""
        with self._submitting:
            self._closed = True
            for job in self._submitted:
                if not job.done():
                    job.cancel(check=False)

    def _result(self, call: Call) -> Any:
        from submitit.core.utils import FailedJobError, UncompletedJobError

        with self._submitting:
            if self._closed:
                raise NclBenchError("the jobs were cancelled; run the same command again, it goes on")
            if self._name_of is not None:
                # what a killed command has left in the queue ends first, and its work is found
                name = self._name_of(*call.arguments)
                self._executor.update_parameters(job_name=name, dependency="singleton")
            job = self._executor.submit(call)
            self._submitted.append(job)
        try:
            result = job.result()
        except (FailedJobError, UncompletedJobError):
            raise NclBenchError(
                f"job {job.job_id} ended without a result, and {job.paths.stderr} may say why; run the same command "
                "again, it goes on where it stopped"
            ) from None
        if isinstance(result, NclBenchError):
            raise result
        return result


@contextmanager
def job_pool(
    system: JobSystem,
    folder: Path,
    n_jobs: int,
    begin: Callable[..., None],
    begin_with: tuple[Any, ...],
    name_of: Callable[..., str] | None = None,
) -> Iterator[Jobs]:
    """Jobs for the length of a block; those that are not done when it raises are cancelled.

    Args:
        system: where they go.
        folder: for their logs, and for what they are given and return.
        n_jobs: how many are submitted at a time.
        begin: called first in every job.
        begin_with: what ``begin`` is called with.
        name_of: see :class:`Jobs`.

    Raises:
        NclBenchError: submitit or SLURM is not installed, or an option is unknown; a job died.
    """
    executor = _executor(system, folder)
    with ThreadPoolExecutor(n_jobs) as threads:
        jobs = Jobs(executor, threads, begin, begin_with, name_of if system.kind == "slurm" else None)
        try:
            yield jobs
        except BaseException:
            jobs.cancel()
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _executor(system: JobSystem, folder: Path) -> Any:
    if find_spec("submitit") is None:
        raise NclBenchError("jobs need submitit; install it with: pip install 'ncl-bench[slurm]'")
    import submitit

    if system.kind == "local":
        local = submitit.LocalExecutor(folder)
        local.update_parameters(timeout_min=365 * DAY)
        return local
    try:
        slurm = submitit.SlurmExecutor(folder, max_num_timeout=MOST_AGAIN)
    except RuntimeError:
        raise NclBenchError(
            "--executor slurm finds no srun; fix: run the command on a machine that submits jobs to SLURM"
        ) from None
    try:
        slurm.update_parameters(**({"job_name": "ncl-bench", "time": DAY} | dict(system.options)))
    except (NameError, ValueError, TypeError) as error:
        sentence = str(error).strip().splitlines()[0].rstrip(".: ")
        raise NclBenchError(
            f"--slurm: {sentence}; fix: see the parameters of submitit's SlurmExecutor"
        ) from None
    return slurm
