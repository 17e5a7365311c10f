"""Other processes of a test."""

import time
from pathlib import Path


def assert_ends(process):
    """Wait until a process is gone; a zombie is."""
    deadline = time.monotonic() + 120
    while _is_running(process):
        assert time.monotonic() < deadline, "the worker outlives its parent"
        time.sleep(0.05)


def _is_running(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
