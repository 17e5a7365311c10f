"""Compare an earlier commit with this tree: every number, hash and file that must stay equal.

    python tests/freeze/freeze.py --base 81e59b5                    # all parts, this tree
    python tests/freeze/freeze.py --base 81e59b5 --part noise runs  # some of them
    python tests/freeze/freeze.py --base 81e59b5 --present 81e59b5  # the base with itself: it must be silent

Each part runs in a process of its own for either tree and writes what it found as JSON. What changes on purpose stands
in ``expected.yaml``. The base's findings are kept in the temporary folder, since they do not change.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
WORK = Path(tempfile.gettempdir()) / "ncl-bench-freeze"
PARTS = {
    "commands": "names",
    "data": "data",
    "noise": "data",
    "prepare": "data",
    "recipes": "recipes",
    "search": "recipes",
    "rows": "board",
    "site": "board",
    "inputs": "scores",
    "large": "scores",
    "submissions": "scores",
    "features": "runs",
    "imported": "runs",
    "methods": "runs",
    "backbones": "runs",
    "resume": "runs",
    "ways": "runs",
    "sweep": "runs",
    "plugin": "runs",
}
"""Each part, and the probe that has it."""


def git(*arguments: str) -> str:
    """Output of a git command."""
    return subprocess.run(
        ["git", *arguments], cwd=REPOSITORY, check=True, capture_output=True, text=True
    ).stdout.strip()


def checked_out(revision: str) -> Path:
    """A worktree of a commit; an earlier call's is used again."""
    commit = git("rev-parse", "--verify", f"{revision}^{{commit}}")
    tree = WORK / "trees" / commit[:12]
    if not (tree / "pyproject.toml").is_file():
        git("worktree", "prune")
        git("worktree", "add", "--quiet", "--detach", "--force", str(tree), commit)
    return tree


def findings(part: str, tree: Path, base: Path, kept: Path | None) -> dict[str, Any]:
    """What a part finds in a tree.

    Args:
        part: its name.
        tree: whose packages are imported.
        base: the tree of the base, from which both sides take what they are given (checkpoints, begun runs).
        kept: file that keeps the findings; None to find them anew.
    """
    if kept is not None and kept.is_file():
        return json.loads(kept.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix=f"freeze-{part}-") as folder:
        target = Path(folder) / "findings.json"
        environment = os.environ | {
            "PYTHONPATH": str(tree),
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "NCL_BENCH_DATA": "",
            "COLUMNS": "160",
            "NO_COLOR": "1",
            "TERM": "dumb",
            "FREEZE_BASE": str(base),
        }
        work = Path(folder) / "work"
        work.mkdir()
        subprocess.run(
            [sys.executable, str(HERE / "probe.py"), PARTS[part], part, str(tree), str(target)],
            cwd=work,
            env=environment,
            check=True,
        )
        text = target.read_text(encoding="utf-8")
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(text, encoding="utf-8")
    return json.loads(text)


def differences(path: str, base: Any, present: Any) -> Iterator[tuple[str, Any, Any]]:
    """Every leaf that differs: its path, and its value on either side (``ABSENT`` where it is not there)."""
    if isinstance(base, dict) and isinstance(present, dict):
        for key in sorted(base.keys() | present.keys()):
            yield from differences(f"{path}/{key}", base.get(key, ABSENT), present.get(key, ABSENT))
    elif isinstance(base, list) and isinstance(present, list) and len(base) == len(present):
        for index, (one, other) in enumerate(zip(base, present, strict=True)):
            yield from differences(f"{path}/{index}", one, other)
    elif base != present:
        yield path, base, present


ABSENT = "(absent)"


def shown(value: Any) -> str:
    """A value in at most 140 characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 140 else f"{text[:137]}..."


def main() -> int:
    """Compare; 1 where something differs that ``expected.yaml`` does not list."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", required=True, help="Commit to compare with.")
    parser.add_argument("--present", help="Commit to compare (default: this tree as it lies here).")
    parser.add_argument("--part", nargs="*", choices=PARTS, default=list(PARTS), help="Parts (default: all).")
    parser.add_argument("--verbose", action="store_true", help="Print the listed differences too.")
    asked = parser.parse_args()
    base = checked_out(asked.base)
    present = checked_out(asked.present) if asked.present else REPOSITORY
    listed = yaml.safe_load((HERE / "expected.yaml").read_text(encoding="utf-8")) or []
    unlisted, failed, met = 0, [], set()
    for part in asked.part:
        probes = (HERE / "probe.py", HERE / f"probe_{PARTS[part]}.py")
        version = hashlib.sha256(b"".join(path.read_bytes() for path in probes)).hexdigest()[:12]
        try:
            before = findings(part, base, base, WORK / "base" / f"{base.name}-{part}-{version}.json")
            now = findings(part, present, base, None)
        except subprocess.CalledProcessError as error:
            print(f"{part}: the probe failed with exit code {error.returncode}", flush=True)
            failed.append(part)
            continue
        found = list(differences(part, before, now))
        new = []
        for difference in found:
            matching = [n for n, entry in enumerate(listed) if fnmatchcase(difference[0], entry["where"])]
            met.update(matching)
            if not matching or asked.verbose:
                new.append(difference)
            unlisted += not matching
        print(f"{part}: {count(before)} values, {len(found)} differ, {len(new)} shown", flush=True)
        for path, one, other in new:
            print(f"  {path}\n    base:    {shown(one)}\n    present: {shown(other)}", flush=True)
    for number, entry in enumerate(listed):
        if number not in met and entry["where"].split("/")[0] in asked.part and not asked.present:
            print(f"listed, but equal: {entry['where']}")
    print(
        f"{unlisted} differences are not listed in expected.yaml" + (f"; failed: {failed}" if failed else "")
    )
    return 1 if unlisted or failed else 0


def count(value: Any) -> int:
    """Leaves of nested dictionaries and lists."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 1 if children is None else sum(map(count, children))


if __name__ == "__main__":
    sys.exit(main())
