"""What SECURITY.md promises and ruff's rules do not cover."""

import ast
import re
import socket
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import yaml
from support import miniatures
from support.refusals import refused

from ncl_bench import decoding, evaluate, load_dataset
from ncl_bench.data import DATASETS
from ncl_bench.data.hub import push_to_hub
from ncl_bench.data.prepare import prepare
from ncl_bench.errors import DataError

ROOT = Path(__file__).parent.parent
SOURCES = sorted(
    path for room in ("ncl_bench", "baselines", "leaderboard", "docs") for path in (ROOT / room).rglob("*.py")
)
UNPICKLING = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
NETWORK = {"aiohttp", "ftplib", "http", "httpx", "requests", "smtplib", "urllib", "xmlrpc"}
SAFE_ARGUMENT = {"torch.load": ("weights_only", True), "np.load": ("allow_pickle", False)}


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        # urllib.parse takes addresses apart and opens none
        yield from (name.split(".")[0] for name in names if name != "urllib.parse")


def faults(source):
    tree = ast.parse(source)
    found = [f"imports {name}" for name in imported(tree) if name in UNPICKLING | NETWORK]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name in ("eval", "exec", "__import__", "os.system", "os.popen"):
            found.append(f"calls {name}")
        if name.endswith((".isdecimal", ".isdigit", ".isnumeric")):
            found.append(f"calls {name}, where ncl_bench.foreign.whole_number reads numbers")
        # pandas' own takes parts of texts
        if name.endswith((".extract", ".extractall")) and not name.endswith(".str.extract"):
            found.append(f"calls {name}")
        if any(keyword.arg == "shell" for keyword in node.keywords):
            found.append(f"calls {name} with a shell")
        if name in SAFE_ARGUMENT:
            argument, value = SAFE_ARGUMENT[name]
            given = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
            if given.get(argument) is not value:
                found.append(f"calls {name} without {argument}={value}")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_unpickles_executes_extracts_or_calls_the_network(path):
    assert faults(path.read_text("utf-8")) == []


def test_no_source_touches_a_token_of_the_hub():
    for path in SOURCES:
        found = re.findall(r"HF_TOKEN|get_token|\btoken=|HfFolder|login\(", path.read_text("utf-8"))
        assert found == [], path


class Refusing:
    """A Hub that refuses and names the secret, as a careless client might."""

    def create_repo(self, *arguments, **options):
        raise PermissionError("401 unauthorised for hf_secret\nAuthorization: Bearer hf_secret")


def test_a_token_is_neither_written_nor_printed(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setitem(DATASETS.data, "coco", miniatures.SPECS["coco"])
    folder = prepare("coco", miniatures.make(tmp_path / "from", "coco"), tmp_path / "data")
    monkeypatch.setattr(huggingface_hub, "HfApi", Refusing)
    with refused(DataError) as caught:
        push_to_hub(folder, "owner/name")
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert len(written) > 5
    assert not any(b"hf_secret" in path.read_bytes() for path in written)
    assert "hf_secret" not in str(caught.value)
    assert "hf_secret" not in "".join(capfd.readouterr())


def test_loading_and_evaluating_connect_to_nothing(monkeypatch):
    def refuse(*_):
        raise AssertionError("a connection")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert len(load_dataset("digits", noise_ratio=0.4)) == 10_000
    scores = np.eye(1000, dtype=np.float32).repeat(5, axis=1)
    assert evaluate(scores, dataset="flickr30k", intervals=False).protocols["1k"].r_sum == 600


def test_the_limits_are_those_of_the_page():
    policy = " ".join((ROOT / "SECURITY.md").read_text("utf-8").split())
    memory, each = decoding.MEMORY // 2**30, decoding.MEMORY_PER_BYTE
    assert f"at most {memory} GiB of memory and {each} bytes for each of its own" in policy
    assert decoding.BYTES_PER_SECOND == 2**20
    assert f"and {decoding.SECONDS} seconds of CPU time and one for each of its MiB" in policy


def test_every_exception_to_a_security_rule_has_its_reason():
    settings = (ROOT / "pyproject.toml").read_text("utf-8")
    listed = settings.partition("per-file-ignores]")[2].partition("\n\n")[0].splitlines()[2:]
    assert listed
    assert [line for line in listed if not re.search(r"\] # \w", line)] == []
    for path in SOURCES:
        for line in path.read_text("utf-8").splitlines():
            if re.search(r"noqa: S\d", line):
                assert re.search(r"noqa: S\d+(, | \()\w", line), f"{path}: {line}"


WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text("utf-8"))
    for path in (ROOT / ".github" / "workflows").glob("*.yml")
}
JOBS = {
    f"{name}: {key}": (workflow, job)
    for name, workflow in WORKFLOWS.items()
    for key, job in workflow["jobs"].items()
}
TRIGGERS = True  # YAML 1.1 reads the key `on` so


def of_pull_requests(workflow, job):
    asked = {"pull_request", "pull_request_target"} & set(workflow[TRIGGERS])
    return bool(asked) and job.get("if") != "github.event_name == 'push'"


@pytest.mark.parametrize("name", JOBS)
def test_every_action_is_pinned_by_commit(name):
    used = [step["uses"] for step in JOBS[name][1]["steps"] if "uses" in step]
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action) for action in used)


@pytest.mark.parametrize(
    "name", [name for name in JOBS if name.startswith(("leaderboard.yml", "release.yml: build"))]
)
def test_what_judges_publishes_or_builds_installs_by_hash(name):
    runs = "\n".join(step.get("run", "") for step in JOBS[name][1]["steps"])
    for install in re.findall(r"pip install [^&\n]*", runs):
        assert re.search(
            r"--require-hashes -r hashes\.txt|--no-deps --no-build-isolation --editable \.", install
        )
    pinned = (ROOT / "hashes.txt").read_text("utf-8")
    versions = dict(re.findall(r"^([\w.-]+)==(\S+)", pinned, re.MULTILINE))
    plain = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    shared = versions.keys() & plain.keys()
    assert len(shared) > 15
    assert {package: versions[package] for package in shared} == {
        package: plain[package] for package in shared
    }
    assert pinned.count("--hash=sha256:") > len(versions)


@pytest.mark.parametrize("name", JOBS)
def test_no_text_of_a_pull_request_becomes_a_command(name):
    """A branch's name or an account's in ``run`` would be shell code; in ``env`` it is a text."""
    for step in JOBS[name][1]["steps"]:
        assert set(re.findall(r"\$\{\{\s*(\w+)", step.get("run", ""))) <= {"matrix"}
    assert "secrets." not in str(JOBS[name])


@pytest.mark.parametrize("name", JOBS)
def test_what_may_write_runs_nothing_of_a_pull_request(name):
    workflow, job = JOBS[name]
    rights = {**workflow["permissions"], **job.get("permissions", {})}
    assert set(workflow["permissions"].values()) <= {"read"}
    if of_pull_requests(workflow, job) and "write" in rights.values():
        assert [list(step) for step in job["steps"]] == [["env", "run"]]
        assert not re.search(r"pip|git |python|ncl-bench", job["steps"][0]["run"])


def test_no_workflow_has_the_rights_of_the_base():
    assert not [name for name, workflow in WORKFLOWS.items() if "pull_request_target" in workflow[TRIGGERS]]


def test_the_label_covers_the_commit_that_it_was_set_on_alone():
    """It counted as long as the pull request had it, for commits too that no maintainer had seen."""
    board = WORKFLOWS["leaderboard.yml"]
    assert {"synchronize", "labeled", "unlabeled"} <= set(board[TRIGGERS]["pull_request"]["types"])
    assert "paths" not in board[TRIGGERS]["pull_request"]
    set_now = "${{ github.event.action == 'labeled' && github.event.label.name == 'correction' }}"
    assert board["jobs"]["check"]["env"]["CORRECTION"] == set_now
    assert "labels" not in str(board)


def test_the_check_runs_the_code_of_the_base_alone():
    job = WORKFLOWS["leaderboard.yml"]["jobs"]["check"]
    assert job["if"].startswith("always() && ")  # a skipped job counts as passed
    (evaluated,) = (step for step in job["steps"] if "$EVALUATED" in step.get("run", ""))
    assert evaluated["run"] == 'test "$EVALUATED" = success'
    assert "if" not in evaluated
    installs = [step["run"] for step in job["steps"] if "pip install" in step.get("run", "")]
    assert len(installs) == 1
    assert installs[0].startswith("cd base\n")
    assert all(
        step["with"]["persist-credentials"] is False
        for name in ("evaluate", "check")
        for step in WORKFLOWS["leaderboard.yml"]["jobs"][name]["steps"]
        if step.get("uses", "").startswith("actions/checkout")
    )


def test_every_guarantee_names_its_tests():
    policy = (ROOT / "SECURITY.md").read_text("utf-8")
    rows = [line.split(" | ") for line in policy.splitlines() if line.startswith("| ")]
    guarantees = [row for row in rows if len(row) == 3 and row[0] not in ("| guarantee", "| ---")]
    assert len(guarantees) > 15
    for _, _, tests in guarantees:
        assert re.fullmatch(r"`test_\w+`(, `test_\w+`)* \|", tests)
    sources = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    defined = re.findall(r"^def (test_\w+)", sources, re.MULTILINE)
    for name in re.findall(r"`(test_\w+)`", policy):
        assert defined.count(name) == 1, name
    for name in re.findall(r"`([\w/]+\.\w+)`", policy):
        assert (ROOT / name).exists(), name
