"""What SECURITY.md promises and ruff's rules do not cover."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import miniatures

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


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        # urllib.parse takes addresses apart and opens none
        yield from (name.split(".")[0] for name in names if name != "urllib.parse")


def faults(source: str) -> list[str]:
    tree = ast.parse(source)
    found = [f"imports {name}" for name in imported(tree) if name in UNPICKLING | NETWORK]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name in ("eval", "exec", "__import__", "os.system", "os.popen"):
            found.append(f"calls {name}")
        if name.endswith((".extract", ".extractall")):
            found.append(f"calls {name}")
        if name in SAFE_ARGUMENT:
            argument, value = SAFE_ARGUMENT[name]
            given = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
            if given.get(argument) is not value:
                found.append(f"calls {name} without {argument}={value}")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_unpickles_executes_extracts_or_calls_the_network(path: Path) -> None:
    assert faults(path.read_text(encoding="utf-8")) == []


def test_no_source_touches_a_token_of_the_hub() -> None:
    for path in SOURCES:
        found = re.findall(r"HF_TOKEN|get_token|\btoken=|HfFolder|login\(", path.read_text(encoding="utf-8"))
        assert found == [], path


class Refusing:
    """A Hub that refuses and names the secret, as a careless client might on a later line."""

    def create_repo(self, *arguments: object, **options: object) -> None:
        raise PermissionError("401 unauthorised\nAuthorization: Bearer hf_secret")


def test_a_token_is_neither_written_nor_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setitem(DATASETS, "coco", miniatures.SPECS["coco"])
    folder = prepare("coco", miniatures.make(tmp_path / "from", "coco"), tmp_path / "data")
    with pytest.raises(DataError, match="401 unauthorised") as refused:
        push_to_hub(folder, "owner/name", api=Refusing())
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert len(written) > 5
    assert not any(b"hf_secret" in path.read_bytes() for path in written)
    assert "hf_secret" not in str(refused.value)
    assert "hf_secret" not in "".join(capfd.readouterr())


def test_the_policy_names_checks_that_exist() -> None:
    policy = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.\w+)`", policy)
    assert {"tests/test_security.py", "pyproject.toml"} <= set(named)
    for name in named:
        assert (ROOT / name).exists() or name == "submission.yaml"
