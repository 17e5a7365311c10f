"""A server of processes that has imported what tests need, so that none of its children imports it again."""

import os
import sys
from multiprocessing import forkserver, get_context

import pytest

context = get_context("forkserver")
context.set_forkserver_preload(
    [
        "support.few_digits",
        "support.miniatures",
        "support.drawings",
        "baselines.training.submit",
        "leaderboard.build",
        "leaderboard.add",
        "ncl_bench.cli.commands",
        "sklearn.mixture",
        "torch._dynamo",  # torch imports it when it makes an optimiser
        "pytest",
    ]
)


def process(function, *arguments):
    """Make a process of the server, which begins with ``start()``."""
    # the server looks for modules on PYTHONPATH alone, and skips what it does not find
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        forkserver.ensure_running()
    return context.Process(target=function, args=arguments)
