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

from baselines.benchmark.measure import GROUPS, MEMORY, STEP_COSTS, Found, Row
from baselines.benchmark.memory import ScoringMemory
from baselines.benchmark.sizes import Sizes
from baselines.benchmark.step_costs import ALLOWED, StepCost
from ncl_bench.errors import NclBenchError

FOLDER = Path(__file__).parents[1] / "benchmarks"
COLUMNS = (
    "workload",
    "reference",
    "variant",
    "times faster",
    "rounds",
    "memory, MiB",
    "share of peak",
    "largest difference",
)


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


SECTIONS: dict[str, type[Found]] = {
    "rows": Row,
    "step_costs": StepCost,
    "scoring_memory": ScoringMemory,
}
"""Key of a result to what stands below it."""
IDENTITY = {
    "rows": ("group", "workload", "reference", "variant"),
    "step_costs": ("network", "method"),
    "scoring_memory": ("network", "images"),
}
"""What tells one entry of a section from the others."""


def report(found: Sequence[Found], sizes: Sizes, device: torch.device, matrix_peak: float) -> dict[str, Any]:
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
        **{key: [asdict(each) for each in found if type(each) is kind] for key, kind in SECTIONS.items()},
    }


def read_report(path: Path) -> dict[str, Any]:
    """A result as :func:`report` gives it.

    Raises:
        NclBenchError: no such file, or not written by the benchmark.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for key, kind in SECTIONS.items():
            for each in content[key]:
                kind(**each)
        Sizes(**content["sizes"])
    except (OSError, ValueError, KeyError, TypeError):
        raise NclBenchError(
            f"{path} is no result of python -m baselines.benchmark; give its JSON file"
        ) from None
    return content


def completed(content: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """A result with what an earlier one says of all that was not measured again, group by group.

    Raises:
        NclBenchError: the earlier one is of another device, or of other sizes.
    """
    same = {key: content[key] == before[key] for key in ("device", "threads")}
    same["sizes"] = Sizes(**content["sizes"]) == Sizes(**before["sizes"])
    for key, agrees in same.items():
        if not agrees:
            raise NclBenchError(
                f"the file has results of other {key}; write the new ones elsewhere with --to"
            )
    joined = dict(content)
    for section, names in IDENTITY.items():
        by_name = {tuple(each[name] for name in names): each for each in before[section]}
        by_name |= {tuple(each[name] for name in names): each for each in content[section]}
        joined[section] = list(by_name.values())
    joined["rows"].sort(key=lambda row: GROUPS.index(row["group"]))
    return joined


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
    return "\n".join([*lines, *_step_costs(content), *_scoring_memory(content)]) + "\n"


def _step_costs(content: Mapping[str, Any]) -> list[str]:
    if not content["step_costs"]:
        return []
    columns = ("network", "method", "forward passes", "backward passes", "both", "allowed", "cost", "rounds")
    lines = [
        *("", f"### {STEP_COSTS}", ""),
        f"In steps of the plain triplet loss on the same network and {content['sizes']['method_batch']} pairs. Passes "
        "are counted by their arithmetic, those of dividing the pairs among them. A step may cost "
        f"{ALLOWED:g} plain ones and what the method's own passes need.",
        *("", f"| {' | '.join(columns)} |", f"| --- | --- |{' ---: |' * (len(columns) - 2)}"),
    ]
    for each in content["step_costs"]:
        numbers = (f"{each[key]:.2f}" for key in ("forward", "backward", "passes", "allowed", "cost"))
        low, high = each["spread"]
        cells = (each["network"], each["method"], *numbers, f"{low:.2f} to {high:.2f} of {each['rounds']}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _scoring_memory(content: Mapping[str, Any]) -> list[str]:
    if not content["scoring_memory"]:
        return []
    lines = [
        *("", f"### {MEMORY}", ""),
        "In MiB. Image vectors and the matrix of similarities grow with the set. The rest is bounded: at most 256 "
        "images or captions are encoded at once, and the tensors of one block of pairs are kept.",
        *(
            "",
            "| network | images x captions | vectors and matrix | peak | rest |",
            "| --- | --- | ---: | ---: | ---: |",
        ),
    ]
    for each in content["scoring_memory"]:
        kept, peak = each["kept"], each["peak"]
        size = f"{each['images']:,} x {each['captions']:,}"
        lines.append(f"| {each['network']} | {size} | {kept:.0f} | {peak:.0f} | {peak - kept:.0f} |")
    return lines


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = [_cells(row) for row in rows]
    shown = [k for k in range(len(COLUMNS)) if any(row[k] for row in cells)]
    lines = [[COLUMNS[k] for k in shown], ["---" if k < 3 else "---:" for k in shown]]
    lines += [[row[k] for k in shown] for row in cells]
    return [f"| {' | '.join(line)} |" for line in lines]


def _cells(row: Mapping[str, Any]) -> list[str]:
    parts = ", ".join(f"{name} {ratio:.2f}" for name, ratio in row["stages"].items())
    seconds, memory, spread = row["seconds"], row["peak_mebibytes"], row["spread"]
    return [
        row["workload"],
        row["reference"] + (f", {seconds[0]:.4g} s" if seconds else ""),
        row["variant"] + (f", {seconds[1]:.4g} s" if seconds else ""),
        f"{row['ratio']:.2f}" + (f" ({parts})" if parts else ""),
        f"{spread[0]:.2f} to {spread[1]:.2f} of {row['rounds']}" if spread else "",
        f"{memory[0]:.0f} → {memory[1]:.0f}" if memory else "",
        f"{100 * row['share_of_peak']:.0f} %" if row["share_of_peak"] is not None else "",
        f"{row['difference']:.1e}" if row["difference"] is not None else "",
    ]
