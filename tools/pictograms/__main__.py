"""Run ``python -m tools.pictograms build --from PACKAGES --work WORK`` from the root of a checkout.

Needs ``pip install -e '.[baselines,pictograms]'`` and the packages that ``python -m tools.pictograms packages`` lists.
"""

import argparse
import sys
from pathlib import Path

from ncl_bench.errors import NclBenchError
from ncl_bench.progress import bar
from tools.pictograms.build import HERE, PROJECTION, REPORT, SHIPPED, build
from tools.pictograms.near import write_near_pairs
from tools.pictograms.packages import PACKAGES


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(prog="python -m tools.pictograms", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("packages", help="List the packages and the commands that fetch them.")
    command = commands.add_parser("build", help="Make the shipped files.")
    command.add_argument("--from", dest="packages", type=Path, required=True, help="Folder of the packages.")
    command.add_argument("--work", type=Path, required=True, help="Folder for drawn pictures; about 2 GB.")
    commands.add_parser(
        "near", help="Write near_pairs.csv: dev and test pictures that look like a training picture."
    )
    chosen = parser.parse_args()
    if chosen.command == "near":
        print(write_near_pairs())
        return
    if chosen.command == "packages":
        for package in PACKAGES.values():
            print(f"{package.obtain:60} {package.file}  sha256 {package.sha256}")
        return
    made = chosen.work / "made"
    try:
        build(chosen.packages, chosen.work, made, bar)
    except NclBenchError as error:
        sys.exit(f"tools.pictograms: {error}")
    for path in made.iterdir():
        folder = HERE if path.name in (PROJECTION.name, REPORT.name) else SHIPPED
        (folder / path.name).write_bytes(path.read_bytes())
    print(write_near_pairs())


if __name__ == "__main__":
    main()
