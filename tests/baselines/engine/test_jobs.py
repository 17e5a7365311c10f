"""Runs as jobs: what the command line says, a real job of this machine, one that dies, and a queue like SLURM's."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import baselines.engine.jobs
from baselines.engine.jobs import Jobs, JobSystem, job_pool
from baselines.engine.sweep import cells_of, sweep
from ncl_bench.cli import app
from ncl_bench.errors import NclBenchError

TINY = {
    "dataset": "digits",
    "batch_size": 1000,
    "backbone": {"name": "vse_infinity", "embed_size": 8, "word_dim": 4},
    "method": {"name": "info_nce", "epochs": 1},
}
LOCAL = JobSystem("local")
SBATCH = """#!{python}
import os, re, subprocess, sys
text = open(sys.argv[1]).read()
log = re.search("--output=(.*)", text)[1].replace("%j", "7").replace("%x", "x")
environment = os.environ | {{"SLURM_JOB_ID": "7", "SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}}
environment |= {{"SLURM_NNODES": "1", "SLURM_NODEID": "0", "SLURM_JOB_NODELIST": "here", "SLURM_JOB_NUM_NODES": "1"}}
quiet = {{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}}
subprocess.Popen(["bash", sys.argv[1]], env=environment, start_new_session=True, **quiet)
print("Submitted batch job 7")
"""
SRUN = """#!/bin/bash
while [[ "$1" == -* ]]; do if [[ "$1" == "--output" || "$1" == "--error" ]]; then shift; fi; shift; done
exec "$@"
"""
SACCT = """#!/bin/bash
echo "JobID|State|NodeList"
echo "7|RUNNING|here"
"""


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "tiny" / "digits.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(TINY))
    return str(path)


def test_options_are_read_as_numbers_and_texts() -> None:
    found = JobSystem.parse("slurm", ["partition=gpu", "time=600", "constraint=a100&80gb"])
    assert found == JobSystem("slurm", {"partition": "gpu", "time": 600, "constraint": "a100&80gb"})
    assert JobSystem.parse("here", []) is None
    assert JobSystem.parse("local", []) == LOCAL


@pytest.mark.parametrize("command", ["sweep", "tune"])
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--slurm", "partition=gpu"],
            "--slurm partition=gpu is about jobs of SLURM; fix: add --executor slurm",
        ),
        (
            ["--executor", "slurm", "--slurm", "gpu"],
            "--slurm gpu: expected NAME=VALUE, such as partition=gpu",
        ),
        (["--executor", "slurm"], "--executor slurm finds no srun"),
    ],
)
def test_the_command_says_what_is_wrong(
    command: str, options: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    arguments = [command, "ncr/digits_vse_infinity", *options, "--to", str(tmp_path / "out")]
    found = CliRunner().invoke(app, arguments)
    assert sentence in str(found.exception)


def test_without_submitit_a_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines.engine.jobs, "find_spec", lambda name: None)
    with pytest.raises(NclBenchError, match=r"ncl-bench\[slurm\]"), job_pool(LOCAL, tmp_path, 1, print, ()):
        pass


def test_a_sweep_of_jobs_is_trained_once(recipe: str, tmp_path: Path) -> None:
    cells = cells_of(tmp_path / "out", [recipe], ["none"], seeds=[0])
    results = sweep(tmp_path / "out", cells, jobs=1, device="cpu", system=LOCAL)
    assert results[cells[0]] > 0
    assert len(list((tmp_path / "out" / "jobs").glob("*_0_log.out"))) == 1
    assert sweep(tmp_path / "out", cells, jobs=1, device="cpu", system=LOCAL) == results
    assert len(list((tmp_path / "out" / "jobs").glob("*_0_log.out"))) == 1


def refused(name: str) -> None:
    """What a user did wrong."""
    raise NclBenchError(f"{name} is refused; fix: give another")


def killed() -> None:
    """A job that dies."""
    os.kill(os.getpid(), signal.SIGKILL)


def begun(folder: str) -> None:
    """A job that says that it began, and never ends."""
    Path(folder, "begun").write_text("")
    time.sleep(600)


@pytest.fixture
def found_by_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs import this module."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


@pytest.mark.usefixtures("found_by_jobs")
def test_what_a_job_refuses_and_how_it_dies_are_sentences(tmp_path: Path) -> None:
    with job_pool(LOCAL, tmp_path, 2, print, ("begun",)) as jobs:
        futures = [jobs.submit(refused, "x"), jobs.submit(killed)]
        with pytest.raises(NclBenchError, match=r"^x is refused; fix: give another$"):
            futures[0].result()
        with pytest.raises(NclBenchError, match=r"ended without a result, and .*log\.err may say why"):
            futures[1].result()


@pytest.mark.usefixtures("found_by_jobs", "signals_heard")
def test_jobs_end_with_an_interrupted_command(tmp_path: Path) -> None:
    def interrupt(jobs: Jobs) -> None:
        jobs.submit(begun, str(tmp_path))
        while not (tmp_path / "begun").exists():
            time.sleep(0.1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), job_pool(LOCAL, tmp_path / "jobs", 1, print, ()) as jobs:
        interrupt(jobs)
    (job,) = jobs._submitted
    assert job.done()
    with pytest.raises(NclBenchError, match="were cancelled"):
        jobs._result(None)  # type: ignore[arg-type]


def test_a_queue_like_slurm_gets_the_options_and_gives_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("sbatch", SBATCH.format(python=sys.executable)), ("srun", SRUN), ("sacct", SACCT)):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    system = JobSystem("slurm", {"partition": "gpu", "time": 600, "gpus_per_node": 1})
    with job_pool(system, tmp_path / "jobs", 1, print, (), lambda numbers: f"sum-{len(numbers)}") as jobs:
        assert jobs.submit(sum, (2, 3)).result() == 5
    (script,) = (tmp_path / "jobs").glob("*_submission.sh")
    lines = [line.removeprefix("#SBATCH --") for line in script.read_text().splitlines()]
    assert {"partition=gpu", "time=600", "gpus-per-node=1", "job-name=sum-2"} <= set(lines)
    assert "dependency=singleton" in lines  # one of a name at a time
    unknown = JobSystem("slurm", {"colour": "red"})
    with pytest.raises(NclBenchError, match=r"--slurm: .*colour"), job_pool(unknown, tmp_path, 1, print, ()):
        pass
