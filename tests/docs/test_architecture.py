"""The page on architecture names what there is: modules, rooms, and files where they are written."""

import re
import tomllib
from pathlib import Path
from pkgutil import resolve_name

import pytest
from pages import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
NAME = r"(?:ncl_bench|baselines|leaderboard)(?:\.\w+)+"


def names():
    return set(re.findall(f"`({NAME})`", PAGE))


@pytest.mark.parametrize("name", sorted(names()))
def test_every_module_that_is_named_exists(name):
    assert resolve_name(name)


def test_every_module_that_is_named_is_linked_to_its_source():
    links = dict(re.findall(rf"\[`({NAME})`\]\(\.\./([^\s)]+)\)", PAGE))
    assert links.keys() == names()
    for name, path in links.items():
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        assert f"{name}.".startswith(f"{module}.")


@pytest.mark.parametrize("package", ["ncl_bench", "baselines"])
def test_the_rooms_are_those_whose_imports_are_checked(package):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = {contract["id"]: contract for contract in project["tool"]["importlinter"]["contracts"]}
    rows = PAGE.split(f"`{package}`, from the top:")[1].split("\n\n")[1].splitlines()[2:]
    rooms = [row.split("|")[1].strip().split(", ") for row in rows]
    assert rooms == [layer.split(" | ") for layer in contracts[package]["layers"]]


def written():
    """File and module, from the table of who writes what."""
    found = []
    for row in PAGE.split("## Who writes")[1].splitlines():
        if row.startswith("| ") and "`" in row:
            _, files, by, *_ = row.split("|")
            names, modules = (re.findall(r"`([\w.]+)`", cell) for cell in (files, by))
            found += [(name, modules[0]) for name in names if Path(name).suffix]
    return found


@pytest.mark.parametrize(("file", "module"), written())
def test_a_file_is_written_where_the_page_says(file, module):
    place = ROOT / module.replace(".", "/")
    sources = place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]
    assert any(f'"{file}"' in source.read_text("utf-8") for source in sources)
