"""The workflows of continuous integration are YAML and name only what exists."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(name: str) -> dict[Any, Any]:
    content: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text("utf-8"))
    return content


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_paths_and_extras_of_a_workflow_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    assert all({"runs-on", "steps"} <= set(job) for job in jobs.values())
    assert all(job["needs"] in jobs for job in jobs.values() if "needs" in job)
    named = re.findall(
        r"(?<![\w./])(?:tests|leaderboard|baselines|ncl_bench|dataset_cards|docs)/[\w./]*\w", text
    )
    assert all((ROOT / name).exists() for name in named), named
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = ",".join(re.findall(r"\.\[([\w,]+)\]", text))
    assert set(filter(None, extras.split(","))) <= set(project["optional-dependencies"])


def test_the_oldest_and_newest_versions_that_the_project_promises_are_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = [line.split(" :: ")[-1] for line in project["classifiers"] if re.search(r":: 3\.\d+$", line)]
    jobs = read("tests.yml")["jobs"]
    matrix = jobs["benchmark"]["strategy"]["matrix"]
    assert matrix["python"] == [promised[0], promised[-1]]
    assert {system.split("-")[0] for system in matrix["system"]} == {"ubuntu", "macos", "windows"}
    torches = [one["torch"] for one in jobs["baselines"]["strategy"]["matrix"]["include"]]
    (oldest,) = (line for line in project["optional-dependencies"]["baselines"] if line.startswith("torch>="))
    assert torches == [oldest.replace(">=", "==") + ".*", "torch"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_a_pipe_fails_with_its_first_command(path: Path) -> None:
    """Tags of actions can be moved; and where `diff` failed, the step that piped it into `tee` succeeded."""
    text = path.read_text(encoding="utf-8")
    uses = re.findall(r"uses: (.+)", text)
    assert uses
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", one) for one in uses), uses
    content = yaml.safe_load(text)
    piped = any("|" in step.get("run", "") for job in content["jobs"].values() for step in job["steps"])
    shell = (
        content.get("defaults", {}).get("run", {}).get("shell")
    )  # a named bash has -o pipefail, the default has not
    assert shell == "bash" or not piped
