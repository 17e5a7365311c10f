"""How to run: ``python -m tools.pictograms build --from PACKAGES --work WORK``, from the root of a checkout.

Needs ``pip install -e '.[baselines,pictograms]'`` and the packages that ``python -m tools.pictograms packages`` lists.
"""

import argparse
import sys
import zipfile
from pathlib import Path

from ncl_bench.errors import NclBenchError
from ncl_bench.progress import bar
from tools.pictograms.build import HERE, PROJECTION, REPORT, SHIPPED, build, differences
from tools.pictograms.card import CARDS, example_sheet, render_cards
from tools.pictograms.check import contact_sheets
from tools.pictograms.packages import PACKAGES
from tools.pictograms.sample import SAMPLE, write_sample


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(prog="python -m tools.pictograms", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("packages", help="how to get each package")
    for name, explanation in (
        ("build", "make the shipped files"),
        ("compare", "make them elsewhere, and say how far they differ from the shipped ones"),
        ("sample", "write the small files from which a test rebuilds a dozen pictures of each source"),
        ("sheets", "draw contact sheets of 200 test pairs, to be looked at by a person"),
    ):
        command = commands.add_parser(name, help=explanation)
        command.add_argument(
            "--from", dest="packages", type=Path, required=True, help="folder of the packages"
        )
        command.add_argument("--work", type=Path, required=True, help="folder for drawn pictures; about 2 GB")
    curve = commands.add_parser(
        "curve", help="train a recipe, and print rSum on seen and unseen pairs by epoch"
    )
    curve.add_argument("recipe", help="such as info_nce/pictograms_sgr")
    curve.add_argument("--set", dest="settings", action="append", default=[], metavar="NAME=VALUE")
    curve.add_argument("--work", type=Path, required=True, help="folder for the run")
    commands.add_parser("card", help="write the dataset cards, whose numbers are counted")
    chosen = parser.parse_args()
    try:
        _run(chosen)
    except NclBenchError as error:
        sys.exit(f"tools.pictograms: {error}")


def _run(chosen: argparse.Namespace) -> None:
    if chosen.command == "packages":
        for package in PACKAGES.values():
            print(f"{package.obtain:60} {package.file}  sha256 {package.sha256}")
    elif chosen.command == "build":
        made = chosen.work / "made"
        build(chosen.packages, chosen.work, made, bar)
        for path in made.iterdir():
            folder = HERE if path.name in (PROJECTION.name, REPORT.name) else SHIPPED
            folder.mkdir(exist_ok=True)
            (folder / path.name).write_bytes(path.read_bytes())
    elif chosen.command == "compare":
        build(chosen.packages, chosen.work, chosen.work / "rebuilt", bar)
        for fact, number in differences(chosen.work / "rebuilt").items():
            print(f"{fact}: {number:g}")
    elif chosen.command == "sample":
        with zipfile.ZipFile(SAMPLE, "w", zipfile.ZIP_DEFLATED) as archive:
            write_sample(chosen.packages, archive)
    elif chosen.command == "sheets":
        for path in contact_sheets(chosen.packages, chosen.work):
            print(path)
    elif chosen.command == "curve":
        from tools.pictograms.curve import print_curve

        print_curve(chosen.recipe, chosen.settings, chosen.work)
    else:
        for name, text in render_cards().items():
            (CARDS / f"{name}.md").write_text(text, encoding="utf-8")
        example_sheet().save(CARDS / "pictograms.png")


if __name__ == "__main__":
    main()
