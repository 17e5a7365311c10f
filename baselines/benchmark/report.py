"""The benchmark's result: JSON for the repository, a Markdown table for people."""

import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from baselines.benchmark.measure import Row
from baselines.benchmark.sizes import Sizes
from ncl_bench.errors import NclBenchError

FOLDER = Path(__file__).parents[1] / "benchmarks"
COLUMNS = ("work", "reference", "side", "times faster", "memory, MiB", "share of peak", "largest difference")


def device_name(device: torch.device) -> str:
    """The GPU's name, or the processor's."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    facts = Path("/proc/cpuinfo")
    found = (
        re.search(
            r"^model name\s*:\s*(.+)$", facts.read_text(encoding="utf-8", errors="replace"), re.MULTILINE
        )
        if facts.is_file()
        else None
    )
    return found[1] if found else platform.processor() or platform.machine()


def file_of(name: str) -> Path:
    """Where a device's result is kept."""
    return FOLDER / f"{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}.json"


def report(rows: Sequence[Row], sizes: Sizes, device: torch.device, matrix_peak: float) -> dict[str, Any]:
    """Everything that was measured, as JSON values; absolute speeds on a GPU only."""
    packages = ("ncl-bench", "torch", "lightning-fabric", "numpy")
    return {
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in packages},
            "cuda": torch.version.cuda if device.type == "cuda" else None,
        },
        "sizes": sizes.model_dump(),
        "matrix_peak_flops": matrix_peak if device.type == "cuda" else None,
        "rows": [asdict(row) for row in rows],
    }


def read_report(path: Path) -> dict[str, Any]:
    """A result as :func:`report` gives it.

    Raises:
        NclBenchError: no such file, or not written by the benchmark.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for row in content["rows"]:
            Row(**row)
        Sizes(**content["sizes"])
    except (OSError, ValueError, KeyError, TypeError):
        raise NclBenchError(
            f"{path} is no result of python -m baselines.benchmark; give its JSON file"
        ) from None
    return content


def markdown(content: Mapping[str, Any]) -> str:
    """Tables of a result, one for each group of rows."""
    sizes = content["sizes"]
    peak = content["matrix_peak_flops"]
    lines = [
        f"Measured on {content['device']} ({content['threads']} threads, torch {content['versions']['torch']}): "
        f"batch {sizes['batch']}, {sizes['regions']} regions x {sizes['feature_dim']}, joint space "
        f"{sizes['embed_size']}, similarity {sizes['sim_dim']}, captions of {sizes['shortest']} to "
        f"{sizes['longest']} words, scoring {sizes['images']:,} x "
        f"{sizes['images'] * sizes['captions_per_image']:,}; memory at batch {sizes['memory_batch']}."
    ]
    if peak is not None:
        lines.append(f"The matrix product reaches {peak / 1e12:.1f} TFLOP/s in 32-bit arithmetic.")
    for group, rows in groupby(content["rows"], key=lambda row: row["group"]):
        lines += ["", f"### {group}", "", *_table(list(rows))]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = [_cells(row) for row in rows]
    shown = [k for k in range(len(COLUMNS)) if any(row[k] for row in cells)]
    lines = [[COLUMNS[k] for k in shown], ["---" if k < 3 else "---:" for k in shown]]
    lines += [[row[k] for k in shown] for row in cells]
    return [f"| {' | '.join(line)} |" for line in lines]


def _cells(row: Mapping[str, Any]) -> list[str]:
    parts = ", ".join(f"{name} {ratio:.2f}" for name, ratio in row["laps"].items())
    seconds, memory = row["seconds"], row["peak_mebibytes"]
    return [
        row["work"],
        row["reference"] + (f", {seconds[0]:.4g} s" if seconds else ""),
        row["side"] + (f", {seconds[1]:.4g} s" if seconds else ""),
        f"{row['ratio']:.2f}" + (f" ({parts})" if parts else ""),
        f"{memory[0]:.0f} → {memory[1]:.0f}" if memory else "",
        f"{100 * row['share_of_peak']:.0f} %" if row["share_of_peak"] is not None else "",
        f"{row['difference']:.1e}" if row["difference"] is not None else "",
    ]
