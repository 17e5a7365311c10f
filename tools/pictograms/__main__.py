"""How to run: ``python -m tools.pictograms build --from PACKAGES --work WORK``, from the root of a checkout.

Needs ``pip install -e '.[baselines,pictograms]'`` and the packages that ``python -m tools.pictograms packages`` lists.
"""

import argparse
import sys
from pathlib import Path

from ncl_bench.errors import NclBenchError
from ncl_bench.progress import bar
from tools.pictograms.build import HERE, PROJECTION, REPORT, SHIPPED, build, differences
from tools.pictograms.packages import PACKAGES


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(prog="python -m tools.pictograms", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("packages", help="List the packages and the commands that fetch them.")
    for name, explanation in (
        ("build", "Make the shipped files."),
        ("compare", "Make them in the work folder, and print how far they differ from the shipped ones."),
    ):
        command = commands.add_parser(name, help=explanation)
        command.add_argument(
            "--from", dest="packages", type=Path, required=True, help="Folder of the packages."
        )
        command.add_argument(
            "--work", type=Path, required=True, help="Folder for drawn pictures; about 2 GB."
        )
    chosen = parser.parse_args()
    try:
        _run(chosen)
    except NclBenchError as error:
        sys.exit(f"tools.pictograms: {error}")


def _run(chosen: argparse.Namespace) -> None:
    if chosen.command == "packages":
        for package in PACKAGES.values():
            print(f"{package.obtain:60} {package.file}  sha256 {package.sha256}")
        return
    made = chosen.work / "made"
    build(chosen.packages, chosen.work, made, bar)
    if chosen.command == "compare":
        for fact, number in differences(made).items():
            print(f"{fact}: {number:g}")
        return
    for path in made.iterdir():
        folder = HERE if path.name in (PROJECTION.name, REPORT.name) else SHIPPED
        (folder / path.name).write_bytes(path.read_bytes())


if __name__ == "__main__":
    main()
