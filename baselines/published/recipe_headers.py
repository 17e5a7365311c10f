"""The comment on top of every recipe: what it is, its command, and the published numbers it should come near.

    python -m baselines.published.recipe_headers            write the headers
    python -m baselines.published.recipe_headers --check    name the recipes whose header is out of date, exit with 1

Numbers come from ``leaderboard/published``, as printed. For each cell the row of the paper that introduced
the method is taken; where that has none, the first of another paper that tells the unit of its noise. Rows on
images come from noise files that no seed draws, so their command takes a file.
"""

import csv
import math
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ncl_bench.data import DATASETS
from ncl_bench.errors import NclBenchError, RecipeError, unknown_name
from ncl_bench.files import write_text

RECIPES = Path(__file__).parents[1] / "recipes"
PUBLISHED = Path(__file__).parents[2] / "leaderboard" / "published"
UNITS = ("none", "caption", "image", "natural")
RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10")

TITLES = {
    "crcl": "CRCL",
    "gsc": "GSC (one network)",
    "gsc_plus": "GSC+ (two networks)",
    "info_nce": "Plain InfoNCE",
    "ncr": "NCR",
    "pc2": "PC2",
    "rcl": "RCL",
    "triplet": "Plain triplet loss",
}
BACKBONES = {"sgr": "SGR", "saf": "SAF", "vse_infinity": "VSE∞"}
PRINTED = {
    "crcl": "CRCL-{backbone}",
    "gsc": "GSC-{backbone} (single network)",
    "gsc_plus": "GSC-{backbone}",
    "ncr": "NCR",
    "pc2": "PC2",
    "rcl": "RCL-{backbone}",
    "triplet": "{backbone}",
    "triplet/clean": "{backbone}-C",
    "triplet/warmup": "{backbone}*",
}
AVERAGED = {"crcl": "CRCL-SGRAF", "rcl": "RCL-SGRAF", "triplet": "SGRAF"}
REMARKS = {
    ("rcl", "cc152k"): "The published code documents no schedule for CC152K; this is the one for Flickr30K."
}
COLUMNS = "i2t R@1   R@5  R@10   t2i R@1   R@5  R@10    rSum   source"

Row = Mapping[str, str]


def published_rows(folder: Path = PUBLISHED) -> list[dict[str, str]]:
    """Rows of ``results.csv``, each with its paper ``short``, that paper's method ``family``, and its ``code``.

    Raises:
        RecipeError: the published numbers are not there.
    """
    try:
        sources = yaml.safe_load((folder / "sources.yaml").read_text(encoding="utf-8"))
        with (folder / "results.csv").open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except FileNotFoundError as error:
        raise RecipeError(f"{error.filename} is missing; headers are written in a full checkout") from None
    for row in rows:
        source = sources[row["source"]]
        row |= {"short": source["short"], "family": source["method"], "code": source.get("code", "")}
    return rows


def header(name: str, content: Mapping[str, Any], rows: Iterable[Row]) -> str:
    """The comment lines of a recipe, without the line end after the last.

    Args:
        name: below ``baselines/recipes``, such as ``ncr/flickr30k_sgr``.
        content: the recipe's keys.
        rows: published rows.

    Raises:
        RecipeError: no dataset of that name.
    """
    method, dataset = content["method"]["name"], content["dataset"]
    if dataset not in DATASETS:
        raise RecipeError(f"{name}: {unknown_name('dataset', dataset, DATASETS)}")
    if dataset == "digits":
        return _joined([_title(content), _command(name, "--noise-ratio 0.6 ")])
    own = _best_rows(rows, content, _printed(name, content), _backbone(content))
    averaged: list[Row] = []
    backbone = content["backbone"]["name"]
    if backbone in ("sgr", "saf") and method in AVERAGED and name.endswith(backbone):
        averaged = _best_rows(rows, content, AVERAGED[method], "SGRAF")
    lines = [_title(content), _command(name, _noise([*own, *averaged], dataset))]
    lines += _remarks(method, dataset, [*own, *averaged])
    lines += _table(f"Published results of {_printed(name, content)}:", own) if own else []
    if averaged:
        other = name.removesuffix(backbone) + ("saf" if backbone == "sgr" else "sgr")
        lines += _table(f"Averaged with {other}, as {AVERAGED[method]}:", averaged)
    return _joined(lines if own or averaged else [*lines, "No published result."])


def with_header(text: str, comment: str) -> str:
    """A recipe's text under another header; comments further down stay."""
    lines = text.splitlines(keepends=True)
    while lines and (lines[0].startswith("#") or not lines[0].strip()):
        lines.pop(0)
    return f"{comment}\n{''.join(lines)}"


def outdated(recipes: Path = RECIPES, published: Path = PUBLISHED) -> dict[Path, str]:
    """The recipes whose header is not what it should be, with the text they should have.

    Recipes that are not named after their dataset, such as ones of your own, keep their own comments.
    """
    rows = published_rows(published)
    wanted = {}
    for path in sorted(recipes.rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        content = yaml.safe_load(text)
        if not path.stem.startswith(f"{content['dataset']}_"):
            continue
        name = str(path.relative_to(recipes).with_suffix(""))
        better = with_header(text, header(name, content, rows))
        if better != text:
            wanted[path] = better
    return wanted


def _title(content: Mapping[str, Any]) -> str:
    method, dataset = content["method"], content["dataset"]
    title = TITLES.get(method["name"], method["name"])
    if method["name"] == "triplet":
        title += " over all negatives" if method.get("negatives") == "mean" else " with hardest negatives"
        warmup = method.get("warmup_epochs", 0)
        title += f" after {warmup} epoch{'s' * (warmup > 1)} over all negatives" * bool(warmup)
    if content.get("clean_only"):
        title += " on the truly clean pairs alone (an upper bound, not a method)"
    if dataset == "digits":
        backbone = {**BACKBONES, "vse_infinity": "VSE-infinity"}[content["backbone"]["name"]]
        return f"{title} on the embedded digits with a small {backbone}: minutes on a CPU."
    tokens = f" ({content['tokenizer']} tokens)" if "tokenizer" in content else ""
    return f"{title}: {_backbone(content)} on {DATASETS[dataset].title}{tokens}."


def _backbone(content: Mapping[str, Any]) -> str:
    name: str = content["backbone"]["name"]
    return BACKBONES.get(name, name)


def _printed(name: str, content: Mapping[str, Any]) -> str:
    method, variant = content["method"]["name"], name.rsplit("_", 1)[-1]
    template = PRINTED.get(f"{method}/{variant}", PRINTED.get(method, ""))
    return template.format(backbone=_backbone(content))


def _best_rows(rows: Iterable[Row], content: Mapping[str, Any], method: str, backbone: str) -> list[Row]:
    """One row per protocol, unit and ratio: of the method's own paper, else the first."""
    family = content["method"]["name"].removesuffix("_plus")
    wanted = (method, backbone, content["dataset"], content.get("tokenizer", ""))
    chosen: dict[tuple[int, int, float], Row] = {}
    protocols = DATASETS[content["dataset"]].protocols
    for row in rows:
        facts = tuple(row[key] for key in ("method", "backbone", "dataset", "tokenizer"))
        if facts != wanted or row["noise_unit"] not in UNITS:
            continue
        ratio = float(row["noise_ratio"] or 0)
        cell = (protocols.index(row["protocol"]), UNITS.index(row["noise_unit"]), ratio)
        if cell not in chosen or (row["family"] == family) > (chosen[cell]["family"] == family):
            chosen[cell] = row
    return [chosen[cell] for cell in sorted(chosen)]


def _noise(rows: Sequence[Row], dataset: str) -> str:
    if DATASETS[dataset].noise == "natural":
        return ""
    noisy = [row for row in rows if row["noise_unit"] in ("caption", "image")]
    if noisy and noisy[0]["noise_unit"] == "image":
        return "--noise-file FILE --noise-unit image "
    ratio = noisy[0]["noise_ratio"] if noisy else "0.4"
    return f"--noise-ratio {ratio} --noise-unit caption "


def _remarks(method: str, dataset: str, rows: Sequence[Row]) -> list[str]:
    remarks = [REMARKS[method, dataset]] if (method, dataset) in REMARKS else []
    files = dict.fromkeys(row["code"] for row in rows if row["noise_unit"] == "image")
    if files:
        remarks.append(
            f"The rows on images were trained with noise files of {' and '.join(files)}, which no seed draws: give "
            "one with --noise-file FILE --noise-unit image. Alone, --noise-unit image draws another noise, and its "
            "results belong to another cell."
        )
    return [line for remark in remarks for line in textwrap.wrap(remark, 110, break_on_hyphens=False)]


def _command(name: str, noise: str) -> str:
    folder, stem = name.split("/")
    run = folder if stem == "digits_vse_infinity" else f"{folder}-{stem}"
    return f"ncl-bench train {name} {noise}--to runs/{run}"


def _table(caption: str, rows: Sequence[Row]) -> list[str]:
    return ["", caption, f"{'':26}{COLUMNS}", *map(_line, rows)]


def _line(row: Row) -> str:
    unit, ratio = row["noise_unit"], row["noise_ratio"]
    noise = {"none": "no noise", "natural": "natural noise"}.get(unit) or f"{unit}s {100 * float(ratio):g} %"
    recalls = [row[key] for key in RECALLS]
    total = row["r_sum"] or (f"{math.fsum(map(float, recalls)):.1f}" if all(recalls) else "-")
    widths = (7, 6, 6, 10, 6, 6)
    numbers = "".join(f"{value or '-':>{width}}" for value, width in zip(recalls, widths, strict=True))
    return f"{row['protocol'] + ', ' + noise:26}{numbers}{total:>8}   {row['short']}; {row['table']}"


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(f"# {line}".rstrip() for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the headers; the exit code."""
    check = "--check" in (sys.argv[1:] if arguments is None else arguments)
    try:
        wanted = outdated()
    except NclBenchError as error:
        print(error, file=sys.stderr)
        return 2
    for path, text in wanted.items():
        print(f"{path}: header {'is out of date' if check else 'written'}")
        if not check:
            write_text(path, text)
    return int(check and bool(wanted))


if __name__ == "__main__":
    sys.exit(main())
