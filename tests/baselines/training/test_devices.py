"""Several processes from one command: who starts them, and what happens when one is killed."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from support.few_digits import TINY, outcome
from support.refusals import refused

from baselines.kit.distributed import Processes, device_for, started_processes
from ncl_bench.errors import TrainingError

TORCHRUN = {"WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "3", "RANK": "4", "LOCAL_RANK": "1"}
TORCHRUN["TORCHELASTIC_RUN_ID"] = "x"
TASKS = {"STEP_NUM_TASKS": 8, "NTASKS": 8, "NTASKS_PER_NODE": 4, "NNODES": 2}
SLURM = {f"SLURM_{key}": str(x) for key, x in {**TASKS, "PROCID": 5, "LOCALID": 1, "NODEID": 1}.items()}


def test_the_gpu_of_a_mac_is_left_alone(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert device_for("auto", "32-true").type == "cpu"


@pytest.mark.parametrize(("found", "expected"), [({}, (1, 1)), (TORCHRUN, (3, 2)), (SLURM, (4, 2))])
def test_torchrun_and_slurm_say_how_many_processes_there_are(found, expected, monkeypatch):
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    processes = started_processes()
    assert (processes.here, processes.machines) == expected
    assert bool(processes.address) == bool(found)


def test_a_command_within_a_slurm_job_that_srun_did_not_start_is_alone(
    monkeypatch,
):
    monkeypatch.setenv("SLURM_NTASKS", "4")  # set in the batch script
    assert started_processes() == Processes()


def test_slurm_without_tasks_per_node_is_refused(monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    with refused(TrainingError):
        started_processes()


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("a1", "a1"), ("a1,b2", "a1"), ("gpu[03-05,9]", "gpu03"), ("gpu[7,9],x", "gpu7"), ("gpu[4]", "gpu4")],
)
def test_tasks_of_slurm_meet_on_the_first_node(nodes, first, monkeypatch):
    for name, value in {**SLURM, "SLURM_NODELIST": nodes, "SLURM_JOB_ID": "123456"}.items():
        monkeypatch.setenv(name, value)
    assert started_processes()[2:] == (5, 1, f"tcp://{first}:18456")


def test_missing_devices_are_refused_before_anything_starts(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with refused(TrainingError):
        device_for("cuda", "32-true")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    with refused(TrainingError):
        device_for("auto", "32-true")


SCRIPT = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import baselines.training.job
from support.few_digits import load_few
from ncl_bench.cli import main
baselines.training.job.load_dataset = load_few
main()
"""


class Training:
    """``ncl-bench train`` in two processes on few digits, in a folder with its script and recipe."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "script.py").write_text(SCRIPT)
        method = {"name": "ncr", "warmup_epochs": 1, "epochs": 3, "learning_rate": 0.001}
        recipe = {"dataset": "digits", "batch_size": 100, "backbone": TINY, "method": method}
        (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))

    def start(self, to, *options, environment=None):
        command = [sys.executable, "script.py", "train", "recipe.yaml", "--noise-ratio", "0.4"]
        return subprocess.Popen(
            [*command, "--device", "cpu", *options, "--to", to],
            cwd=self.folder,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | dict(environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def on_two_machines(self, to):
        """The command as SLURM starts it on two machines with a process each; both are this one."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        sizes = {"STEP_NUM_TASKS": 2, "NTASKS": 2, "NTASKS_PER_NODE": 1, "NNODES": 2, "LOCALID": 0}
        started = []
        for number in range(2):
            said = sizes | {"PROCID": number, "NODEID": number}
            environment = {f"SLURM_{name}": str(value) for name, value in said.items()}
            environment |= {"SLURM_NODELIST": "127.0.0.1", "MASTER_PORT": port}
            started.append(self.start(to, environment=environment))
        return started

    def wait_for_an_epoch(self, process, to):
        deadline = time.monotonic() + 500
        while not list((self.folder / to / "checkpoints").glob("epoch-*.*.pt")):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("dead", [0, 1])
def test_a_machine_that_dies_ends_the_run_and_the_same_command_goes_on(dead, tmp_path):
    training = Training(tmp_path)
    machines = training.on_two_machines("broken")
    training.wait_for_an_epoch(machines[0], "broken")
    machines[dead].kill()
    said = machines[1 - dead].communicate(timeout=300)
    assert machines[1 - dead].returncode == 2, said
    assert said[1].count("another process of this command has ended or does not answer") == 1
    assert "Traceback" not in said[1]
    assert not (tmp_path / "broken" / "training.json").exists()

    for to in ("broken", "whole"):
        said_by = [machine.communicate(timeout=600) for machine in training.on_two_machines(to)]
        assert [said[0].count("best on dev") for said in said_by] == [1, 0], said_by
    assert outcome(tmp_path / "broken") == outcome(tmp_path / "whole")
    assert machines[dead].wait() == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_torchrun_starts_the_processes_too(tmp_path):
    training = Training(tmp_path)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["script.py", "train", "recipe.yaml", "--noise-ratio", "0.4", "--device", "cpu"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--to", "torchrun"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("best on dev") == 1
    for machine in training.on_two_machines("slurm"):
        machine.communicate(timeout=600)
    assert outcome(tmp_path / "torchrun") == outcome(tmp_path / "slurm")
