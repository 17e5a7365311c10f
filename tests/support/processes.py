"""Other processes of a test."""

import subprocess
import sys
import time
from pathlib import Path


def python(code, *arguments, **options):
    """Let a fresh Python run this code to its good end; give what it wrote."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


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
