"""Workers never outlive the process that started them."""

import os
import signal
import subprocess
import sys

import pytest
from support.processes import assert_ends
from support.refusals import refused

from ncl_bench.processes import worker_pool

PARENT = """
import os, sys, time
from ncl_bench.processes import worker_pool

if __name__ == "__main__":
    with worker_pool(2) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        pool.submit(time.sleep, 600).result()
"""


@pytest.mark.usefixtures("signals_heard")
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT], ids=lambda stop: stop.name)
def test_workers_end_with_their_parent(stop, tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    worker = int(parent.stdout.readline())
    os.killpg(parent.pid, stop) if stop == signal.SIGINT else parent.send_signal(stop)
    parent.wait(120)
    assert_ends(worker)


def test_a_worker_that_dies_is_one_sentence():
    with refused(), worker_pool(2) as pool:
        pool.submit(os._exit, 1).result()
