"""Measure the reference networks side by side in one run: the papers' loop, ours, precision, memory, growth.

    python -m baselines.benchmark                      on the GPU where there is one, at published sizes
    python -m baselines.benchmark --size batch=64      other sizes; may be given several times
    python -m baselines.benchmark --only SCAN          what has SCAN in its title; other results of the file stay
    python -m baselines.benchmark --table FILE.json    the Markdown table of a result
    python -m baselines.benchmark --cost               what steps and scoring cost, counted, not measured: docs/scale.md

A GPU takes the published sizes, a CPU fewer pairs. The result goes to ``baselines/benchmarks/DEVICE.json``; it holds
seconds on a GPU only, ratios everywhere. The loop is an oracle of the tests, so a source checkout is needed.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

from baselines.benchmark.loop import oracle
from baselines.benchmark.measure import Found, Measurements
from baselines.benchmark.report import completed, device_name, file_of, markdown, read_report, report
from baselines.benchmark.scale import PAGE, TABLES, with_tables
from baselines.benchmark.sizes import PUBLISHED, SMALL
from baselines.engine.progress import progress_bar
from ncl_bench.errors import NclBenchError
from ncl_bench.files import write_text


def benchmark(device: torch.device, settings: Sequence[str], only: Sequence[str], to: Path | None) -> Path:
    """Measure and write the result; the file.

    Args:
        device: to measure.
        settings: sizes that differ from the device's usual ones, such as ``batch=64``.
        only: what the titles of measurements have in them; all by default. What the file says of others stays.
        to: the file; that of the device by default.

    Raises:
        NclBenchError: a size is refused, no title fits, or there is no source checkout.
    """
    sizes = (PUBLISHED if device.type == "cuda" else SMALL).changed(settings)
    oracle("sgraf_loop")
    target = to or file_of(device_name(device))
    console = Console(stderr=True)
    measurements, found = Measurements(sizes, device), list[Found]()
    peak, *others = measurements.plan()
    chosen = [entry for entry in others if not only or any(word in entry[0] for word in only)]
    if not chosen:
        raise NclBenchError(
            f"--only {' '.join(only)}: no measurement has it in its title, such as {others[0][0]!r}"
        )
    plan = [peak, *chosen]
    with progress_bar(console) as bar:
        task = bar.add_task("benchmark", total=len(plan), state="")
        for done, (title, measure) in enumerate(plan):
            bar.update(task, state=title)
            found += measure(lambda share, done=done: bar.update(task, completed=done + share))  # type: ignore[misc]
            if not console.is_terminal:
                console.print(f"{done + 1}/{len(plan)} {title}")
    content = report(found, sizes, device, measurements.matrix_peak)
    if only and target.exists():
        content = completed(content, read_report(target))
    write_text(target, json.dumps(content, indent=1, allow_nan=False) + "\n")
    return target


def write_costs() -> str:
    """Count what steps and scoring cost, and write it into ``docs/scale.md``; the page.

    Raises:
        NclBenchError: there is no source checkout.
    """
    if not PAGE.is_file():
        raise NclBenchError(f"{PAGE} is missing; --cost writes its tables and runs in a source checkout")
    console = Console(stderr=True)
    with progress_bar(console) as bar:
        task = bar.add_task("cost", total=len(TABLES), state="")
        page = with_tables(
            PAGE.read_text(encoding="utf-8"), lambda name: bar.update(task, advance=1, state=name)
        )
    write_text(PAGE, page)
    return page


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m baselines.benchmark", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="by default the GPU where there is one")
    parser.add_argument("--size", action="append", default=[], metavar="NAME=VALUE", help="such as batch=64")
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="such as SCAN")
    parser.add_argument("--to", type=Path, help="the JSON file; baselines/benchmarks/DEVICE.json by default")
    parser.add_argument("--table", type=Path, metavar="FILE.json", help="print the table of a result")
    parser.add_argument(
        "--cost", action="store_true", help="count what everything costs and write docs/scale.md"
    )
    options = parser.parse_args(arguments)
    try:
        if options.cost:
            print(write_costs(), end="")
            return 0
        path = options.table
        if path is None:
            found = "cuda" if torch.cuda.is_available() else "cpu"
            if options.device == "cuda" != found:
                raise NclBenchError("--device is cuda, but torch finds no CUDA device; leave it out")
            path = benchmark(torch.device(options.device or found), options.size, options.only, options.to)
            print(path, file=sys.stderr)
        print(markdown(read_report(path)), end="")
    except torch.OutOfMemoryError:
        print(
            "the device has too little memory; take smaller sizes, such as --size batch=64", file=sys.stderr
        )
        return 2
    except NclBenchError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
