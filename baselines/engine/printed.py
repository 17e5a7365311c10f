"""Numbers that papers print for a recipe, as the comments of ``ncl-bench recipes show``.

Numbers come from ``leaderboard/published``, as printed. Each cell uses the row of the paper that introduced the method,
or else the first row of another paper that states its noise unit. Image-unit rows come from noise files that no seed
draws, so their command takes a file.
"""

import math
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from baselines.backbones import BACKBONES
from baselines.engine.recipe import Recipe
from baselines.methods import METHODS
from baselines.recipes import written
from ncl_bench.data import dataset_spec
from ncl_bench.errors import RecipeError, SubmissionError
from ncl_bench.files import read_table
from ncl_bench.plugins import command_name
from ncl_bench.schema import read_yaml

PUBLISHED = Path(__file__).parents[2] / "leaderboard" / "published"
UNITS = ("none", "caption", "image", "natural")
RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10")
COLUMNS = "i2t R@1   R@5  R@10   t2i R@1   R@5  R@10    rSum   source"

PRINTED = {
    "bicro": "BiCro-{backbone}",
    "crcl": "CRCL-{backbone}",
    "decl": "DECL-{backbone}",
    "gsc": "GSC-{backbone} (single network)",
    "gsc_plus": "GSC-{backbone}",
    "cream": "CREAM",
    "in2r": "IN2R",
    "info_nce/clip": "CLIP fine-tuned",
    "l2rm": "L2RM-{backbone}",
    "mscn": "MSCN",
    "ncr": "NCR",
    "npc": "NPC",
    "osa": "{backbone}+OSA",
    "pc2": "PC2",
    "rcl": "RCL-{backbone}",
    "rince": "RINCE-{backbone}",
    "sps": "SPS",
    "triplet": "{backbone}",
    "triplet/clean": "{backbone}-C",
    "triplet/warmup": "{backbone}*",
}
"""Method, or method/variant, to its name in the papers' tables."""
AVERAGED = {
    "bicro": "BiCro",
    "crcl": "CRCL-SGRAF",
    "decl": "DECL-SGRAF",
    "l2rm": "L2RM",
    "rcl": "RCL-SGRAF",
    "triplet": "SGRAF",
}
"""Method to the name of its SGR and SAF networks averaged."""

QUOTED = {"cream": "SGRAF", "sps": ""}
"""Method to the backbone that other papers' tables name beside it; its published code trains SGR alone."""

UNSTATED = {"cream": "caption", "l2rm": "image", "rince": "caption", "sps": "caption"}
"""Method to the noise unit of its published code, for rows of which no paper states it."""

Row = Mapping[str, str]


def published_rows(folder: Path = PUBLISHED) -> list[dict[str, str]]:
    """Rows of ``results.csv``, each with its paper's ``short`` name, method ``family`` and ``code``, and any ``doubt``.

    Raises:
        RecipeError: the published numbers are missing.
    """
    try:
        papers = read_yaml(folder / "sources.yaml", largest=10_000_000)
        rules = read_yaml(folder / "notes.yaml", largest=10_000_000)["rules"]
        rows = [row for _, row in read_table(folder / "results.csv", SubmissionError)[1]]
    except SubmissionError as error:
        raise RecipeError(f"the papers' numbers are missing ({error}); install ncl-bench again") from None
    for row in rows:
        paper = papers[row["source"]]
        doubt = next(
            (rule["doubt"] for rule in rules if "doubt" in rule and _is_about(rule["where"], row)), ""
        )
        row |= {
            "short": paper["short"],
            "family": paper["method"],
            "code": paper.get("code", ""),
            "doubt": doubt,
        }
    return rows


def _is_about(where: Mapping[str, Any], row: Row) -> bool:
    """Whether a row has all the values of a remark; a list means any of them."""
    return all(
        row[key] in [str(each) for each in (value if isinstance(value, list) else [value])]
        for key, value in where.items()
    )


def printed_row(name: str, unit: str, ratio: float, rows: Iterable[Row]) -> Row | None:
    """The row that a paper prints for a recipe under one noise, in the dataset's first protocol.

    Rows without a doubt come first, then those of the method's own paper. Where no paper states the unit, that of the
    method's published code counts.

    Args:
        name: of a recipe, or of two that are averaged, such as ``crcl/coco_sgr + crcl/coco_saf``.
        unit: ``caption`` or ``image``; any for ratio 0 and for datasets with natural noise.
        ratio: nominal noise ratio, in [0, 1).
        rows: of :func:`published_rows`.

    Returns:
        None where no paper prints one, or prints no sum.
    """
    first, *others = name.split(" + ")
    recipe = Recipe.load(first)
    method, spec = recipe.method["name"], dataset_spec(recipe.dataset)
    printed, backbones = _printed(first, recipe), _backbones(recipe)
    if others:
        printed, backbones = AVERAGED.get(method, ""), {"SGRAF"}
    if method in QUOTED:
        backbones = {QUOTED[method]}
    unit = "natural" if spec.noise == "natural" else unit if ratio else "none"
    units = {unit, "unknown"} if UNSTATED.get(method) == unit else {unit}
    found = [
        row
        for row in _rows_of(rows, recipe, printed, backbones)
        if (row["protocol"], float(row["noise_ratio"] or 0)) == (spec.protocols[0], ratio)
        and row["noise_unit"] in units
        and printed_sum(row) is not None
    ]
    family = method.removesuffix("_plus")
    return min(found, key=lambda row: (row["doubt"], row["family"] != family), default=None)


def _rows_of(rows: Iterable[Row], recipe: Recipe, printed: str, backbones: Collection[str]) -> list[Row]:
    """Rows of a method, as papers name it, with one of the backbones on a recipe's dataset and tokens."""
    wanted = (printed, recipe.dataset, recipe.tokenizer or "")
    return [
        row
        for row in rows
        if (row["method"], row["dataset"], row["tokenizer"]) == wanted
        and row["backbone"].split(" (")[0] in backbones  # IN2R writes VSE∞ (GPO)
    ]


def printed_sum(row: Row) -> float | None:
    """The rSum that a row prints, else the sum of its recalls; None where one is missing."""
    recalls = [row[key] for key in RECALLS]
    if row["r_sum"]:
        return float(row["r_sum"])
    return math.fsum(map(float, recalls)) if all(recalls) else None


ARITHMETIC = "Arithmetic: float32 (--precision 32-true). Hours are counted for it, unless you name another."


def described(name: str) -> str:
    """Format a recipe as YAML with every option; shipped recipes have their comments on top.

    Args:
        name: name of a recipe, or path of a recipe file.

    Raises:
        RecipeError: the recipe does not exist or is refused.
    """
    recipe = Recipe.load(name)
    default = {key: field.default for key, field in Recipe.model_fields.items()}
    content = {key: x for key, x in recipe.model_dump(mode="json").items() if x is not None or default[key]}
    if recipe.search:
        drawn = {option: values.model_dump(mode="json") for option, values in recipe.search.items()}
        content["search"] = drawn
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True).rstrip()
    if Path(name).is_file():
        return text
    return f"{comments(name, recipe, published_rows(), written(name).get('note', ''))}\n{text}"


def comments(name: str, recipe: Recipe, rows: Iterable[Row], note: str = "") -> str:
    """Comments above a recipe: description, command, note, and the numbers that papers print for it.

    Args:
        name: name of the recipe, such as ``ncr/flickr30k_sgr``.
        recipe: the recipe.
        rows: from :func:`published_rows`.
        note: a sentence about the recipe; empty for none.

    Returns:
        Lines that start with ``#``, without a final line end.
    """
    lines = [_title(recipe)]
    notes = [note] if note else []
    spec = dataset_spec(recipe.dataset)
    if spec.embedded:  # no paper prints numbers on it
        noise = "--noise-ratio 0.6 " if spec.noise == "synthetic" else ""
        return _commented([*lines, _command(name, noise), *_wrapped(notes)])
    own = _best_rows(rows, recipe, _printed(name, recipe), _backbones(recipe))
    averaged: list[Row] = []
    method, backbone = recipe.method["name"], recipe.backbone["name"]
    if backbone in ("sgr", "saf") and method in AVERAGED and name.endswith(backbone):
        averaged = _best_rows(rows, recipe, AVERAGED[method], {"SGRAF"})
    lines += [_command(name, _noise([*own, *averaged], recipe))]
    lines += _wrapped([*notes, ARITHMETIC, *_about_noise_files([*own, *averaged])])
    if own:
        lines += _table(f"Published results of {_printed(name, recipe)}:", own)
    if averaged:
        other = name.removesuffix(backbone) + ("saf" if backbone == "sgr" else "sgr")
        lines += _table(f"Averaged with {other}, as {AVERAGED[method]}:", averaged)
    if not own and not averaged:
        known = " with a known noise unit" if spec.noise == "synthetic" else ""
        lines += [f"No published result{known}."]
    return _commented(lines)


def _title(recipe: Recipe) -> str:
    title = METHODS[recipe.method["name"]].title_of(recipe.method_config)
    if recipe.clean_only:
        title += " on truly clean pairs only (an upper bound, not a method)"
    tokens = f" ({recipe.tokenizer} tokens)" if recipe.tokenizer else ""
    backbone, spec = _backbone(recipe), dataset_spec(recipe.dataset)
    if spec.embedded:
        return f"{title}: a small {backbone} on {spec.title}, minutes on a CPU."
    return f"{title}: {backbone} on {spec.title}{tokens}."


def _backbone(recipe: Recipe) -> str:
    """Name of the backbone in papers."""
    return BACKBONES[recipe.backbone["name"]].title.replace("-infinity", "∞")


def _backbones(recipe: Recipe) -> set[str]:
    """Names of the backbone in tables; some name the architecture."""
    return {_backbone(recipe), BACKBONES[recipe.backbone["name"]].title_of(recipe.backbone_config)}


def _printed(name: str, recipe: Recipe) -> str:
    """Name of a recipe's method in the papers' tables; empty if no paper prints it."""
    method, variant = recipe.method["name"], name.rsplit("_", 1)[-1]
    template = PRINTED.get(f"{method}/{variant}", PRINTED.get(method, ""))
    return template.format(backbone=_backbone(recipe))


def _best_rows(rows: Iterable[Row], recipe: Recipe, printed: str, backbones: Collection[str]) -> list[Row]:
    """One row per protocol, unit and ratio: from the method's own paper, else the first."""
    family, protocols = recipe.method["name"].removesuffix("_plus"), dataset_spec(recipe.dataset).protocols
    chosen: dict[tuple[int, int, float], Row] = {}
    found = [row for row in _rows_of(rows, recipe, printed, backbones) if row["noise_unit"] in UNITS]
    for row in sorted(found, key=lambda row: row["family"] != family):
        ratio = float(row["noise_ratio"] or 0)
        cell = (protocols.index(row["protocol"]), UNITS.index(row["noise_unit"]), ratio)
        chosen.setdefault(cell, row)
    return [chosen[cell] for cell in sorted(chosen)]


def _noise(rows: Sequence[Row], recipe: Recipe) -> str:
    if dataset_spec(recipe.dataset).noise == "natural":
        return ""
    noisy = [row for row in rows if row["noise_unit"] in ("caption", "image")]
    if (noisy and noisy[0]["noise_unit"] == "image") or UNSTATED.get(recipe.method["name"]) == "image":
        return "--noise-file FILE --noise-unit image "
    ratio = noisy[0]["noise_ratio"] if noisy else "0.4"
    return f"--noise-ratio {ratio} --noise-unit caption "


def _about_noise_files(rows: Sequence[Row]) -> list[str]:
    files = dict.fromkeys(row["code"] for row in rows if row["noise_unit"] == "image")
    if not files:
        return []
    return [
        f"Image-unit rows were trained with noise files of {' and '.join(files)}, which no seed draws: give one "
        "with --noise-file FILE --noise-unit image. Without a file, --noise-unit image draws other noise, and the "
        "results belong to another cell."
    ]


def _wrapped(sentences: Iterable[str]) -> list[str]:
    return [line for each in sentences for line in textwrap.wrap(each, 110, break_on_hyphens=False)]


def _command(name: str, noise: str) -> str:
    method, ending = name.split("/")
    return f"{command_name()} train {name} {noise}--to runs/{method}-{ending}"


def _table(caption: str, rows: Sequence[Row]) -> list[str]:
    return ["", caption, f"{'':26}{COLUMNS}", *map(_line, rows)]


def _line(row: Row) -> str:
    unit, ratio = row["noise_unit"], row["noise_ratio"]
    noise = {"none": "no noise", "natural": "natural noise"}.get(unit) or f"{unit}s {100 * float(ratio):g} %"
    recalls, r_sum = [row[key] for key in RECALLS], printed_sum(row)
    total = row["r_sum"] or ("-" if r_sum is None else f"{r_sum:.1f}")
    widths = (7, 6, 6, 10, 6, 6)
    numbers = "".join(f"{value or '-':>{width}}" for value, width in zip(recalls, widths, strict=True))
    return f"{row['protocol'] + ', ' + noise:26}{numbers}{total:>8}   {row['short']}; {row['table']}"


def _commented(lines: Iterable[str]) -> str:
    return "\n".join(f"# {line}".rstrip() for line in lines)
