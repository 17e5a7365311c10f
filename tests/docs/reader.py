"""A reader who types what a page says, in an empty folder; quick, since everything runs in one process."""

import os
import runpy
import shlex
import subprocess
import sys
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import pages
from givens import GIVENS

from baselines.methods import METHODS
from ncl_bench import plugins
from ncl_bench.cli import main
from ncl_bench.data import DATASETS
from ncl_bench.noise import UNITS

BOARD = ("--root", "board")
APPENDED = {
    "leaderboard add": BOARD,
    "leaderboard build": (*BOARD, "--no-published"),
    "leaderboard diff": BOARD,
}
"""A checkout's leaderboard is left alone: its commands work on one of the reader's own."""


REGISTRIES = (METHODS, DATASETS, UNITS, plugins._loaded)


@contextmanager
def forgetting(folder):
    """Forget afterwards what was registered and imported from a folder, as the end of a process does."""
    before = [dict(registry) for registry in REGISTRIES]
    try:
        yield
    finally:
        for registry, content in zip(REGISTRIES, before, strict=True):
            registry.clear()
            registry.update(content)
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(f"{folder}/"):
                del sys.modules[name]


class Reader:
    """Runs the blocks of one page in order.

    Args:
        folder: where the reader sits.
        patch: undoes the givens' and the exports' changes afterwards.
    """

    def __init__(self, folder, patch):
        self.folder = folder
        self.patch = patch
        self.names = {"__name__": "__main__"}
        self.ran = []
        patch.chdir(folder)
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        patch.delenv("NCL_BENCH_DATA", raising=False)
        patch.syspath_prepend(str(folder))

    def read(self, block):
        """Do what one block asks for."""
        if block.language == "given":
            GIVENS[block.words[0]](self.folder, self.patch)
        elif block.shown_only:
            return
        elif block.words:
            (self.folder / block.words[0]).write_text(block.text, "utf-8")
        elif block.language == "python":
            self.ran.append(block.place)
            exec(compile(block.text, block.place, "exec"), self.names)
        elif block.language == "bash":
            for command in pages.commands_of(block.text):
                self.ran.append(command)
                self._type(command)

    def _type(self, command):
        words = shlex.split(command)
        if words[0] == "ncl-bench" and words[-2] == ">":
            with (self.folder / words[-1]).open("w", encoding="utf-8") as file, redirect_stdout(file):
                self._type(shlex.join(words[:-2]))
        elif any(mark in command for mark in "|><;&$`*"):
            subprocess.run(["bash", "-euo", "pipefail", "-c", command], check=True, cwd=self.folder)
        elif words[0] == "export":
            self.patch.setenv(*words[1].split("=", 1))
        elif words[0] == "make":  # the target is there; what it runs is tested on its own
            subprocess.run(["make", "--dry-run", *words[1:]], check=True, cwd=pages.ROOT, capture_output=True)
        elif words[0] == "ncl-bench":
            self._inside(words, main)
        elif words[:2] == ["python", "-m"]:
            self._inside(words[2:], lambda: runpy.run_module(words[2], run_name="__main__", alter_sys=True))
        elif words[0] == "python":
            with forgetting(self.folder):
                script = str(self.folder / words[1])  # its worker processes begin elsewhere
                self._inside(words[1:], lambda: runpy.run_path(script, run_name="__main__"))
        else:
            subprocess.run(words, check=True, cwd=self.folder)

    def _inside(self, words, run):
        self.patch.setattr(sys, "argv", [*words, *APPENDED.get(" ".join(words[1:3]), ())])
        code = None
        try:
            run()
        except SystemExit as stop:
            code = stop.code
        assert not code, f"{shlex.join(words)} ended with exit code {code}"
