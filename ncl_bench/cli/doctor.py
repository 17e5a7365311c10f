"""``ncl-bench doctor``: report versions, devices and data, and the commands that fix what is missing.

The checks stand in :data:`ncl_bench.cli.commands.CHECKS` and in the entry points of packages.
"""

import json
import os
import platform
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, entry_points, requires, version
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Literal

import typer

from ncl_bench.extras import install_command
from ncl_bench.progress import as_typed

State = Literal["ok", "absent", "broken"]
NEEDED = {
    "data": "to prepare datasets and for frames",
    "leaderboard": "to build the leaderboard and draw pictures",
    "baselines": "to train and score",
    "features": "to make features of images",
}
"""Purpose of each extra, before the extras that include it; extras for development are left out."""


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        topic: ``version``, ``device`` or ``data``.
        name: package, device or dataset.
        state: ``absent`` is not a fault, ``broken`` is.
        detail: what was found.
        fix: command that fixes it; empty if nothing needs fixing.
    """

    topic: Literal["version", "device", "data"]
    name: str
    state: State
    detail: str
    fix: str = ""


def versions() -> Iterator[Finding]:
    """Check Python, ncl_bench and its dependencies against the versions that ncl_bench allows."""
    from packaging.requirements import Requirement

    yield Finding("version", "python", "ok", platform.python_version())
    yield Finding("version", "ncl-bench", "ok", version("ncl-bench"))
    extras = (None, *NEEDED)
    required = [(_extra(text), Requirement(text)) for text in requires("ncl-bench") or ()]
    needed = sorted((one for one in required if one[0] in extras), key=lambda one: extras.index(one[0]))
    # a wheel repeats what an extra requires in every extra that includes it; the smallest one brings it
    first = {requirement.name: (extra, requirement) for extra, requirement in reversed(needed)}
    first.pop("ncl-bench", None)
    for extra, requirement in reversed(first.values()):
        fix = install_command(extra) if extra else f"pip install '{requirement.name}{requirement.specifier}'"
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            state: State = "absent" if extra else "broken"
            detail = f"not installed{f', needed {NEEDED[extra]}' if extra else ''}"
            yield Finding("version", requirement.name, state, detail, fix)
            continue
        if requirement.specifier.contains(found, prereleases=True):
            yield Finding("version", requirement.name, "ok", found)
        else:
            yield Finding(
                "version", requirement.name, "broken", f"{found}, expected {requirement.specifier}", fix
            )


def _extra(marker: str) -> str | None:
    found = re.search(r"extra == ['\"]([^'\"]+)['\"]", marker)
    return found[1] if found else None


def processors() -> Iterator[Finding]:
    """Report the processor and its number of threads."""
    yield Finding("device", "cpu", "ok", f"{platform.machine()}, {os.cpu_count()} threads")


def data(root: Path | None, *, deep: bool = False) -> Iterator[Finding]:
    """Report every dataset as embedded, prepared, damaged or absent.

    A prepared dataset is opened: its manifest, and the name, size and header of every file, are checked.

    Args:
        root: folder of prepared datasets; ``NCL_BENCH_DATA`` by default.
        deep: also read every byte and compare the recorded hashes.
    """
    from ncl_bench.data import DATASETS, ROOT_VARIABLE
    from ncl_bench.data.spec import SPLITS

    root = root or (Path(place) if (place := os.environ.get(ROOT_VARIABLE)) else None)
    where = root or "DIR"
    if root is not None and not root.is_dir():
        fix = f"give an existing folder with --root or {ROOT_VARIABLE}, or prepare a dataset into {root}"
        yield Finding("data", "folder", "broken", f"{root} does not exist", fix)
    for name, spec in DATASETS.items():
        # `datasets show` says what to download
        fix = as_typed(f"ncl-bench prepare {name} --from DOWNLOADS --to {where}")
        # the folder of an embedded dataset may hold a noise file alone
        if root is None or not (root / name / ("manifest.json" if spec.embedded else "")).exists():
            if spec.embedded:
                yield Finding("data", name, "ok", "embedded")
            else:
                detail = f"not in {root}" if root else f"no folder given by --root or {ROOT_VARIABLE}"
                yield Finding("data", name, "absent", detail, fix)
            continue
        yield from _prepared(root, name, {split: spec.images[split] for split in SPLITS}, fix, deep)


def _prepared(root: Path, name: str, images: dict[str, int], fix: str, deep: bool) -> Iterator[Finding]:
    from ncl_bench.data.load import load_dataset
    from ncl_bench.data.prepared import damage
    from ncl_bench.data.spec import SplitName
    from ncl_bench.errors import DataError
    from ncl_bench.progress import bar

    try:
        splits: tuple[SplitName, ...] = ("train", "dev", "test")
        for split in splits:
            load_dataset(name, split=split, root=root)
        damaged = list(damage(root / name, progress=bar)) if deep else []
    except DataError as error:
        damaged = [str(error)]
    for sentence in damaged:
        yield Finding("data", name, "broken", sentence, f"delete {root / name}, then {fix}")
    if not damaged:
        sizes = ", ".join(f"{split} {n:,}" for split, n in images.items())
        compared = ", every hash correct" if deep else ""
        yield Finding("data", name, "ok", f"prepared in {root / name} ({sizes} images{compared})")


_MARKS = {"ok": "ok", "absent": "--", "broken": "!!"}


def doctor(
    root: Annotated[
        Path | None,
        typer.Option(help="Folder of prepared datasets (default: environment variable NCL_BENCH_DATA)."),
    ] = None,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Read every byte of the prepared datasets too, and compare its sha256."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    gpu: Annotated[
        bool,
        typer.Option(
            "--gpu",
            help="Train 100 steps of every backbone on the GPU instead, in every precision, and print their losses, "
            "times and memory as a table for an issue.",
        ),
    ] = False,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="With --gpu, print the host's time, operations, kernels, copies and synchronisations of one step.",
        ),
    ] = False,
) -> None:
    """Report versions, devices and data, and how to fix what is missing; exit with code 1 if something is broken.

    Example: ncl-bench doctor --root data
    """
    from ncl_bench.cli.commands import CHECKS

    if gpu or profile:
        for check in entry_points(group="ncl_bench.gpu_checks"):
            for line in check.load()(profiling=profile):
                typer.echo(line)
        return
    checks = [*map(resolve_name, CHECKS), *(check.load() for check in entry_points(group="ncl_bench.checks"))]
    findings = [finding for check in checks for finding in check()]
    findings += data(root, deep=deep)
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            typer.echo(f"{_MARKS[finding.state]}  {finding.topic:<8} {finding.name:<18} {finding.detail}")
        for fix in dict.fromkeys(finding.fix for finding in findings if finding.fix):
            typer.echo(f"fix: {fix}")
        broken = [finding.name for finding in findings if finding.state == "broken"]
        typer.echo(f"broken: {', '.join(broken)}" if broken else "ncl-bench is usable")
    if any(finding.state == "broken" for finding in findings):
        raise typer.Exit(1)
