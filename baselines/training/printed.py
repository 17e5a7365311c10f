"""Numbers that papers print for a recipe, as the comments of ``ncl-bench recipes show``.

Each noise setting uses the row of the paper that introduced the method, or else the first row of another paper that
states its noise unit. Image-unit rows come from noise files that no seed draws, so their command takes a file.
"""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from baselines.recipes import recipe_names, written
from baselines.training.grids import AND, Job
from baselines.training.recipe import Recipe
from ncl_bench.data import dataset_spec
from ncl_bench.evaluation.metrics import RECALLS
from ncl_bench.noise.draw import Noise
from ncl_bench.papers import Printed, printed_sum, rows_by_recipe
from ncl_bench.progress import as_typed

_UNITS = ("none", "caption", "image", "natural")
"""Stated noise units, in the order of the comments."""
_HEADER = "i2t R@1   R@5  R@10   t2i R@1   R@5  R@10    rSum   source"
ARITHMETIC = "Arithmetic: float32 (--precision 32-true), unless you name another."


def printed_row(name: str, unit: str, ratio: float, rows: Mapping[str, Sequence[Printed]]) -> Printed | None:
    """The row that a paper prints for a recipe under one noise, in the dataset's first protocol.

    Rows without a doubt come first, then those of the method's own paper. Where no paper states the unit, that of the
    method's published code counts.

    Args:
        name: of a recipe, or of two that are averaged, such as ``crcl/coco_sgr + crcl/coco_saf``.
        unit: ``caption`` or ``image``; any for ratio 0 and for datasets with natural noise.
        ratio: nominal noise ratio, in [0, 1).
        rows: from :func:`ncl_bench.papers.rows_by_recipe`.

    Returns:
        None where no paper prints one, or prints no sum.
    """
    of_setting = []
    for each in rows.get(name, ()):
        row, spec = each.row, dataset_spec(each.row.dataset)
        wanted = "natural" if spec.noise == "natural" else unit if ratio else "none"
        # a paper without a unit counts as the unit of its published code
        units = {wanted, "unknown"} if each.family.code_unit == wanted else {wanted}
        setting = (row.protocol, row.noise_ratio or 0)
        if setting == (spec.protocols[0], ratio) and row.noise_unit in units and printed_sum(row) is not None:
            of_setting.append(each)
    # `min` keeps the first of equal ones: rows are in the order of papers
    return min(of_setting, key=lambda each: bool(each.doubts), default=None)


def row_of_paper(job: Job, rows: Mapping[str, Sequence[Printed]]) -> Printed | None:
    """The row that a paper prints for a job, of :func:`ncl_bench.papers.rows_by_recipe`; None of a recipe file."""
    if any(Path(name).is_file() for name in job.recipe.split(AND)):
        return None
    noise = Noise.parse(job.noise)
    return printed_row(job.recipe, noise.unit or "caption", noise.ratio, rows)


def described(name: str) -> str:
    """Format a recipe as YAML with every option; shipped recipes have their comments on top.

    Args:
        name: name of a recipe, or path of a recipe file.

    Raises:
        RecipeError: the recipe does not exist or is refused.
    """
    recipe = Recipe.load(name)
    default = {key: field.default for key, field in Recipe.model_fields.items()}
    # an option that is off by default stays out, so that what is set can be seen
    content = {key: x for key, x in recipe.model_dump(mode="json").items() if x is not None or default[key]}
    if recipe.search:
        drawn = {option: values.model_dump(mode="json") for option, values in recipe.search.items()}
        content["search"] = drawn
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True).rstrip()
    # a user's file has comments of its own
    if Path(name).is_file():
        return text
    rows = rows_by_recipe()
    return f"{comments(name, recipe, rows, written(name).get('note', ''))}\n{text}"


def comments(name: str, recipe: Recipe, rows: Mapping[str, Sequence[Printed]], note: str = "") -> str:
    """Comments above a recipe: description, command, note, and the numbers that papers print for it.

    Args:
        name: name of the recipe, such as ``ncr/flickr30k_sgr``.
        recipe: the recipe.
        rows: from :func:`ncl_bench.papers.rows_by_recipe`.
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
    own, averaged, other = _best_rows(rows.get(name, ())), [], ""
    if name.endswith(("_sgr", "_saf")):
        # SGRAF is the mean of an SGR and an SAF, so its numbers belong to both recipes
        beginning, backbone = name[:-3], name[-3:]
        other = beginning + ("saf" if backbone == "sgr" else "sgr")
        averaged = (
            _best_rows(rows.get(f"{beginning}sgr + {beginning}saf", ())) if other in recipe_names() else []
        )
    lines += [_command(name, _noise([*own, *averaged], recipe, rows))]
    lines += _wrapped([*notes, ARITHMETIC, *_about_noise_files([*own, *averaged])])
    if own:
        lines += _table(f"Published results of {own[0].row.method}:", own)
    if averaged:
        lines += _table(f"Averaged with {other}, as {averaged[0].row.method}:", averaged)
    if not own and not averaged:
        known = " with a known noise unit" if spec.noise == "synthetic" else ""
        lines += [f"No published result{known}."]
    return _commented(lines)


def _title(recipe: Recipe) -> str:
    title = recipe.method_class.title_of(recipe.method_config)
    if recipe.clean_only:
        title += " on truly clean pairs only (a control that knows the truth)"
    tokens = f" ({recipe.tokenizer} tokens)" if recipe.tokenizer else ""
    backbone, spec = _backbone(recipe), dataset_spec(recipe.dataset)
    if spec.embedded:
        return f"{title}: a small {backbone} on {spec.title}, minutes on a CPU."
    return f"{title}: {backbone} on {spec.title}{tokens}."


def _backbone(recipe: Recipe) -> str:
    """Name of the backbone in papers."""
    return recipe.backbone_class.title.replace("-infinity", "∞")


def _best_rows(printed: Iterable[Printed]) -> list[Printed]:
    """The first row of every protocol, stated unit and ratio."""
    chosen: dict[tuple[int, int, float], Printed] = {}
    for each in printed:
        row = each.row
        if row.noise_unit in _UNITS:
            protocol = dataset_spec(row.dataset).protocols.index(row.protocol)
            # rows of the method's own paper come first
            chosen.setdefault((protocol, _UNITS.index(row.noise_unit), row.noise_ratio or 0), each)
    return [chosen[setting] for setting in sorted(chosen)]


def _noise(shown: Sequence[Printed], recipe: Recipe, rows: Mapping[str, Sequence[Printed]]) -> str:
    if dataset_spec(recipe.dataset).noise == "natural":
        return ""
    noisy = [each.row for each in shown if each.row.noise_unit in ("caption", "image")]
    method = f"{recipe.method['name']}/"
    of_method = (each for name, printed in rows.items() if name.startswith(method) for each in printed)
    by_file = bool(noisy) and noisy[0].noise_unit == "image"
    # drawn noise would be of another unit than the paper's
    if by_file or any(each.family.code_unit == "image" for each in of_method):
        return "--noise-file FILE --noise-unit image "
    ratio = noisy[0].noise_ratio if noisy else 0.4
    return f"--noise-ratio {ratio:g} --noise-unit caption "


def _about_noise_files(shown: Sequence[Printed]) -> list[str]:
    files = dict.fromkeys(each.paper.code for each in shown if each.row.noise_unit == "image")
    if not files:
        return []
    return [
        f"Image-unit rows were trained with noise files of {' and '.join(files)}, which no seed draws: give one "
        "with --noise-file FILE --noise-unit image. Without a file, --noise-unit image draws other noise, and the "
        "results belong to another condition."
    ]


def _wrapped(sentences: Iterable[str]) -> list[str]:
    return [line for each in sentences for line in textwrap.wrap(each, 110, break_on_hyphens=False)]


def _command(name: str, noise: str) -> str:
    method, ending = name.split("/")
    return as_typed(f"ncl-bench train {name} {noise}--to runs/{method}-{ending}")


def _table(caption: str, shown: Sequence[Printed]) -> list[str]:
    return ["", caption, f"{'':26}{_HEADER}", *map(_line, shown)]


def _line(printed: Printed) -> str:
    row = printed.row
    noise = {"none": "no noise", "natural": "natural noise"}.get(row.noise_unit)
    noise = noise or f"{row.noise_unit}s {100 * (row.noise_ratio or 0):g} %"
    values = [*(getattr(row, name) for name in RECALLS), printed_sum(row)]
    widths = (7, 6, 6, 10, 6, 6, 8)
    numbers = "".join(
        f"{'-' if value is None else f'{value:.1f}':>{width}}"
        for value, width in zip(values, widths, strict=True)
    )
    return f"{row.protocol + ', ' + noise:26}{numbers}   {printed.paper.short}; {row.table}"


def _commented(lines: Iterable[str]) -> str:
    return "\n".join(f"# {line}".rstrip() for line in lines)
