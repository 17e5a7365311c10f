"""Runs in SLURM's queue: options, a queue that is played, and a real SLURM on one node where it is installed."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import submitit  # noqa: F401  # sets up logging, which closes absl's stream unless that is sys.stderr, as it is now
import yaml
from support.refusals import refused

from baselines.training.slurm import Call, job_pool, read_options
from ncl_bench.errors import NclBenchError
from ncl_bench.evaluation.submission import SUBMISSION_FILE

RECIPE = {
    "dataset": "digits",
    "batch_size": 1000,
    "backbone": {"name": "vse_infinity", "embed_size": 8, "word_dim": 4},
    "method": {"name": "info_nce", "epochs": 60},
}
"""Many short epochs: after the first, a loaded machine still has the time to stop a run before its last."""
PLAYED = {
    "sbatch": """#!{python}
import os, subprocess, sys
environment = os.environ | {{"SLURM_JOB_ID": "7", "SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}}
environment |= {{"SLURM_NNODES": "1", "SLURM_NODEID": "0", "SLURM_JOB_NODELIST": "here", "SLURM_JOB_NUM_NODES": "1"}}
quiet = {{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}}
job = subprocess.Popen(["bash", sys.argv[1]], env=environment, start_new_session=True, **quiet)
open({pid!r}, "w").write(str(job.pid))
print("Submitted batch job 7")
""",
    "srun": """#!/bin/bash
while [[ "$1" == -* ]]; do if [[ "$1" == "--output" || "$1" == "--error" ]]; then shift; fi; shift; done
exec "$@"
""",
    "squeue": '#!/bin/bash\nif kill -0 "$(cat {pid})" 2> /dev/null; then echo 7; fi\n',
    "scancel": '#!/bin/bash\nkill -KILL -- "-$(cat {pid})"\n',
}


@pytest.fixture
def queue(tmp_path, monkeypatch):
    """SLURM's programs for one job of this machine, without accounting; the file that holds its process id."""
    pid = tmp_path / "pid"
    for name, text in PLAYED.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.format(python=sys.executable, pid=str(pid)))
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv(
        "PYTHONPATH", f"{Path(__file__).parent}:{Path(__file__).parents[2]}"
    )  # jobs import this
    return pid


def nothing():
    """Begin a job."""


def wrong(name):
    """What a user did wrong."""
    raise NclBenchError(f"{name} is refused; fix: give another")


def killed():
    """A job that dies."""
    os.killpg(0, signal.SIGKILL)


def begun(folder):
    """A job that says that it began, and never ends."""
    Path(folder, "begun").write_text("")
    time.sleep(600)


def test_options_are_read_as_numbers_and_texts():
    found = read_options(["partition=gpu", "time=600", "constraint=a100&80gb"])
    assert found == {"partition": "gpu", "time": 600, "constraint": "a100&80gb"}


def test_without_submitit_a_sentence_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("ncl_bench.extras.find_spec", lambda name: None)
    with (
        refused(),
        job_pool({}, tmp_path, 1, nothing),
    ):
        pass


def test_a_job_gets_the_options_and_gives_its_result_or_a_sentence(queue, tmp_path):
    options = {"partition": "gpu", "time": 600, "gpus_per_node": 1}
    with job_pool(options, tmp_path / "jobs", 1, nothing) as jobs:
        assert jobs.submit("sum-2", sum, (2, 3)).result() == 5
    (script,) = (tmp_path / "jobs").glob("*_submission.sh")
    lines = [line.removeprefix("#SBATCH --") for line in script.read_text().splitlines()]
    assert {"partition=gpu", "time=600", "gpus-per-node=1", "job-name=sum-2"} <= set(lines)
    assert "dependency=singleton" in lines  # one of a name at a time
    with job_pool({}, tmp_path / "refused", 1, nothing) as jobs:
        future = jobs.submit("refused", wrong, "x")
        with refused():
            future.result()
    with (
        refused(words="colour"),
        job_pool({"colour": "red"}, tmp_path, 1, nothing),
    ):
        pass


def test_a_plugin_that_fails_on_the_node_is_one_sentence(queue, tmp_path):
    lacking = Call(("not_on_this_node",), nothing, sum, ((2, 3),))
    with job_pool({}, tmp_path / "jobs", 1, nothing) as jobs, refused(words="not_on_this_node"):
        jobs._result("plugin", lacking)


def test_what_sbatch_refuses_is_one_sentence(queue, tmp_path):
    (tmp_path / "bin" / "sbatch").write_text(
        "#!/bin/bash\necho 'invalid partition specified: gpu' >&2; exit 1\n"
    )
    with (
        refused(words="invalid partition specified: gpu"),
        job_pool({"partition": "gpu"}, tmp_path / "sweep" / "jobs", 1, nothing) as jobs,
    ):
        jobs.submit("refused", nothing).result()
    assert not (tmp_path / "sweep").exists()


def test_a_job_that_dies_is_noticed_without_accounting(queue, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("baselines.training.slurm.QUEUE_PATIENCE", 0)
    monkeypatch.setattr("baselines.training.slurm.POLL", 1)
    with job_pool({}, tmp_path, 1, nothing) as jobs:
        future = jobs.submit("dies", killed)
        with refused():
            future.result()
    assert not caplog.records  # submitit warns at every look where there is no accounting


@pytest.mark.usefixtures("signals_heard")
def test_jobs_end_with_an_interrupted_command(queue, tmp_path):
    def interrupt(jobs):
        jobs.submit("begun", begun, str(tmp_path))
        _wait((tmp_path / "begun").exists)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), job_pool({}, tmp_path / "jobs", 1, nothing) as jobs:
        interrupt(jobs)
    _wait(lambda: subprocess.run(["squeue"], capture_output=True, check=True).stdout == b"")
    with refused():
        jobs._result("late", None)  # type: ignore[arg-type]


def _wait(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


SLURM_CONF = """
ClusterName=test
SlurmctldHost={host}
SlurmctldPort={ctld}
SlurmdPort={slurmd}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def _free_port():
    with socket.socket() as listening:
        listening.bind(("", 0))
        return int(listening.getsockname()[1])


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A SLURM of one node, whose daemons are this user's and listen on ports of their own."""
    path = f"/usr/sbin:{os.environ['PATH']}"
    if not all(shutil.which(name, path=path) for name in ("munged", "slurmctld", "slurmd", "sbatch")):
        pytest.skip("needs SLURM: apt-get install slurm-wlm munge")
    monkeypatch.setenv("PATH", path)
    folder = tmp_path / "slurm"
    for name in (folder, folder / "state", folder / "spool"):
        name.mkdir(mode=0o755)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    values = {"host": socket.gethostname(), "user": user, "folder": folder, "cpus": os.cpu_count()}
    configuration = folder / "slurm.conf"
    configuration.write_text(SLURM_CONF.format(ctld=_free_port(), slurmd=_free_port(), **values))
    monkeypatch.setenv("SLURM_CONF", str(configuration))
    files = {"key": "key", "socket": "socket", "pid": "pid", "log": "log", "seed": "seed"}
    munge = [f"--{option}-file={folder}/munge.{end}" for option, end in files.items() if option != "socket"]
    commands = [
        ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *munge],
        ["slurmctld", "-D", "-c"],
        ["slurmd", "-D"],
    ]
    daemons = []
    try:
        for command in commands:
            log = (folder / f"{command[0]}.out").open("w")
            ending = ["setpriv", "--pdeathsig", "TERM", *command]  # with the tests, however they end
            daemons.append(subprocess.Popen(ending, stdout=log, stderr=log, start_new_session=True))
            if command[0] == "munged":
                _wait((folder / "munge.socket").exists)
        _wait(
            lambda: (
                b"idle" in subprocess.run(["sinfo", "--noheader"], capture_output=True, check=False).stdout
            )
        )
        yield
    finally:
        subprocess.run(["scancel", "--user", user], check=False, capture_output=True)
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(30)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sweep_on_a_real_slurm_survives_a_job_that_is_begun_again_and_one_that_is_killed(slurm, tmp_path):
    recipe = tmp_path / "tiny" / "digits.yaml"
    recipe.parent.mkdir()
    recipe.write_text(yaml.safe_dump(RECIPE))
    out = tmp_path / "out"
    command = [sys.executable, "-m", "ncl_bench", "sweep", str(recipe), "--noise", "none"]
    command += ["--seed", "0", "--seed", "1", "--executor", "slurm", "--device", "cpu", "--to", str(out)]
    runs = [out / "runs" / f"tiny-digits-none-seed{seed}" for seed in (0, 1)]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        _wait(lambda: {"seed0", "seed1"} <= set(_jobs()))
        jobs = _jobs()  # known before a run has an epoch, so that nothing else delays its end
        _wait((runs[0] / "history.json").exists)
        subprocess.run(["scontrol", "requeue", jobs["seed0"]], check=True)  # as SLURM does when a node fails
        _wait((runs[1] / "history.json").exists)
        subprocess.run(["scancel", "--signal=KILL", "--full", jobs["seed1"]], check=True)
        _, said = first.communicate()
    finally:
        first.kill()
    assert first.returncode == 2, said
    assert "seed1) ended without a result" in said
    assert "sacct" not in said
    assert "Traceback" not in said
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    for run in runs:
        assert (out / "submissions" / run.name / SUBMISSION_FILE).is_file()
    assert len((out / "table.csv").read_text().splitlines()) == 2
    assert ",2," in (out / "table.csv").read_text()  # the mean of two seeds


def _jobs():
    """The end of the name of every job in the queue, such as ``seed0``, to its id."""
    listed = subprocess.run(
        ["squeue", "--noheader", "--format=%A %j"], capture_output=True, text=True, check=True
    )
    return {line.rsplit("-", 1)[1].strip(): line.split()[0] for line in listed.stdout.splitlines()}
