"""What papers print: the rows of their tables, our remarks on them, and the recipes that reproduce them.

``published/results.csv`` holds the rows as printed, ``notes.yaml`` our remarks and ``sources.yaml`` the papers.
``methods.yaml`` maps printed names to recipes: :meth:`Family.recipe_names` from a row to recipes, and
:func:`rows_by_recipe` back.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from ncl_bench.errors import SubmissionError
from ncl_bench.names import Link, LongText, Name, ShownText, Text
from ncl_bench.schema import Record, checked
from ncl_bench.tables import read_table
from ncl_bench.yaml import read_yaml

PUBLISHED = Path(__file__).parent / "published"
METHODS_FILE = Path(__file__).parent / "methods.yaml"

Number = Annotated[float | None, BeforeValidator(lambda text: text or None)]
"""A printed number; None if it is not printed."""


class Reference(Record):
    """A paper by its first author; ``link`` is its first known address."""

    authors: Text
    title: Text
    venue: Text
    year: int
    doi: ShownText = ""
    arxiv: ShownText = ""
    url: Link = ""

    @property
    def link(self) -> str:
        """Address of the paper; empty if unknown."""
        if self.doi:
            return f"https://doi.org/{self.doi}"
        return f"https://arxiv.org/abs/{self.arxiv}" if self.arxiv else self.url


class Paper(Reference):
    """A paper, repository or poster that prints numbers; ``method`` is the family that it introduces."""

    short: Text
    method: str
    read_from: LongText
    code: Link = ""

    @property
    def name(self) -> str:
        """Its short name without the venue."""
        return self.short.split(",")[0]


class Family(Record):
    """A method with all its printed names; one page of the site.

    Attributes:
        names: its names in results, without what stands in brackets after a name.
        single, ensemble: names of single-network results, and of averages of several networks.
        source: key in ``sources.yaml`` of the paper that introduced it; empty if none of its tables is copied.
        paper: that paper, if ``source`` is empty.
        recipes: folder of its recipes; empty if it has none.
        ensemble_recipes: folder of its recipes for an average of several networks.
        recipe_suffixes: name to the ending of its recipe; None if it has no recipe.
        compared: name to a recipe beside which its rows are shown, though the recipe does not reproduce them.
        code_unit: noise unit of the published code, for rows of which no paper states it.
        backbones: for a plain model: backbones of its own recipes.
        repaired: faults of its authors' code that its recipes repair; ``method.faults=published`` keeps them.
        base: name in results of the plain loss that it is built on, among the controls.
        settings: ``--set`` options of the printed rows at some noise ratios, such as ``{"coco 0.6":
            "method.epochs=2"}``.
    """

    title: Annotated[Text, Field(max_length=120)]
    summary: Annotated[LongText, Field(max_length=900)]
    names: tuple[Name, ...]
    single: tuple[str, ...] = ()
    ensemble: tuple[str, ...] = ()
    source: str = ""
    paper: Reference | None = None
    recipes: str = ""
    ensemble_recipes: str = ""
    recipe_suffixes: dict[str, str | None] = Field(default_factory=dict)
    compared: dict[str, str] = Field(default_factory=dict)
    code_unit: Literal["caption", "image", ""] = ""
    backbones: tuple[str, ...] = ()
    repaired: Annotated[str, Field(max_length=200)] = ""
    base: str = ""
    settings: dict[str, str] = Field(default_factory=dict)

    def networks(self, method: str, backbone: str) -> Literal["single", "ensemble", "unknown"]:
        """Whether a result uses one network, an average of several, or does not say."""
        if backbone == "SGRAF":
            return "ensemble"
        for name in (method, base_name(method)):
            if name in self.single:
                return "single"
            if name in self.ensemble:
                return "ensemble"
        return "unknown"

    def recipe_names(
        self, method: str, backbone: str, dataset: str, text: str = "", networks: str = ""
    ) -> list[str]:
        """Names of the recipes that would reproduce a result, shipped or not; several are averaged.

        Args:
            method: its printed name; a bracketed variant has a recipe only if ``recipe_suffixes`` names it.
            backbone: its printed name.
            dataset: name of the dataset.
            text: tokenizer, if the dataset has several.
            networks: ``single``, ``ensemble`` or ``unknown``; by default, what the names say.
        """
        suffix = self.recipe_suffixes.get(method, "" if method == base_name(method) else None)
        networks = networks or self.networks(method, backbone)
        folder = (networks == "ensemble" and self.ensemble_recipes) or self.recipes
        if suffix is None or not folder:
            return []
        text = f"_{text}" if text not in ("", "jieba") else ""
        name = _recipe_backbone(backbone)
        parts = (
            ("sgr", "saf") if name == "sgraf" else (name,)
        )  # SGRAF averages the similarities of SGR and SAF
        return [f"{folder}/{dataset}_{part}{text}{suffix}" for part in parts]


def drawn_noise(ratio: float, unit: str) -> str:
    """Options of ``ncl-bench train`` for the standard draw; empty without noise."""
    return f" --noise-ratio {ratio:g} --noise-unit {unit}" if ratio else ""


def command_lines(
    names: Sequence[str],
    options: str,
    target: str,
    plugins: Sequence[str] = (),
    seeds: Sequence[int] = (0,),
    scoring: str = "",
) -> tuple[str, ...]:
    """Commands that train recipes, score them together and evaluate the scores.

    Args:
        names: names of the recipes.
        options: options of ``ncl-bench train``, with a leading space.
        target: end of the submission folder's name.
        plugins: files that register the submitter's method or dataset.
        seeds: training seeds; runs of one recipe have one each, other runs share the first.
        scoring: options of ``ncl-bench score``, with a leading space.
    """
    again = len(set(names)) < len(names)
    of_run = seeds if again and len(seeds) == len(names) else [seeds[0]] * len(names)
    command = " ".join(["ncl-bench", *(f"--plugin {shlex.quote(plugin)}" for plugin in plugins)])
    runs = [
        f"runs/{name.replace('/', '-')}{f'-seed{seed}' if again else ''}"
        for name, seed in zip(names, of_run, strict=True)
    ]
    train = [
        f"{command} train {name}{options}{f' --seed {seed}' if seed else ''} --to {run}"
        for name, run, seed in zip(names, runs, of_run, strict=True)
    ]
    submission = f"submissions/{names[0].split('/')[0]}-{target}"
    return (
        *train,
        f"{command} score {' '.join(runs)}{scoring} --to {submission}",
        f"{command} evaluate {submission}",
    )


def base_name(method: str) -> str:
    """A method's name without a bracketed suffix."""
    return method.split(" (")[0]


def _recipe_backbone(printed: str) -> str:
    """Name in recipes of a backbone as printed; a tokenizer built into it, such as CLIP's, is not named."""
    return base_name(printed).lower().removesuffix(" vit-b/32").replace("∞", "_infinity")


def read_families(path: Path = METHODS_FILE) -> dict[str, Family]:
    """Read the families of methods.yaml by key, in the file's order; no two claim one name."""
    return {key: checked(Family, content, f"{path}: {key}") for key, content in read_yaml(path).items()}


def family_of(method: str, families: Mapping[str, Family]) -> str:
    """Key of the family that claims a method's name, in any letter case, or whose key it is; else empty."""
    wanted = base_name(method).lower()
    for key, family in families.items():
        if wanted == key or wanted in (name.lower() for name in family.names):
            return key
    return ""


class PrintedLine(Record):
    """A line of results.csv: a result as printed; recalls in percent."""

    source: str
    table: str
    method: str
    backbone: str
    dataset: str
    protocol: str
    noise_unit: str
    noise_ratio: Number
    tokenizer: str
    i2t_r1: Number
    i2t_r5: Number
    i2t_r10: Number
    t2i_r1: Number
    t2i_r5: Number
    t2i_r10: Number
    r_sum: Number


_RECALLS = tuple(PrintedLine.model_fields)[9:15]


def printed_sum(row: PrintedLine) -> float | None:
    """The rSum that a row prints, else the sum of its recalls; None where one is missing."""
    return row.r_sum or recall_sum(row)


def recall_sum(row: PrintedLine) -> float | None:
    """Sum of the six recalls of a row; None where one is missing."""
    recalls = [getattr(row, name) for name in _RECALLS]
    return None if None in recalls else round(sum(recalls), 1)


class Original(Record):
    """A line of results.csv whose numbers other papers repeat."""

    source: str
    table: str
    method: str


class Rule(Record):
    """A remark and the rows it applies to: those that have all values under ``where``; a list means any of them.

    With ``same_as``, the remark applies only to rows that repeat the six recalls of that row in its condition.
    """

    where: dict[str, Any]
    same_as: Original | None = None
    note: LongText = ""
    doubt: LongText = ""
    kind: Literal["ablation", "clean"] | None = None
    extra: ShownText = ""
    features: Literal["pretrained", "unknown"] | None = None
    selection: Literal["test"] | None = None
    noise: ShownText = ""

    @field_validator("where")
    @classmethod
    def _lists(cls, value: dict[str, Any]) -> dict[str, Any]:
        return {name: each if isinstance(each, list) else [each] for name, each in value.items()}

    def applies(self, row: PrintedLine) -> bool:
        """Whether a row has all values under ``where``."""
        return all(getattr(row, name) in values for name, values in self.where.items())


class _Rules(Record):
    """Content of notes.yaml."""

    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True)
class Printed:
    """A printed row with what is known about it.

    Attributes:
        where: its place, ``FILE line N``.
        key, family: the method it belongs to.
        rules: the remarks that apply to it.
    """

    where: str
    row: PrintedLine
    paper: Paper
    key: str
    family: Family
    rules: tuple[Rule, ...]

    @property
    def own(self) -> bool:
        """Whether the paper introduced the method."""
        return self.paper.method == self.key

    @property
    def doubts(self) -> list[str]:
        """Reasons not to trust the numbers."""
        return [rule.doubt for rule in self.rules if rule.doubt]


def read_papers(folder: Path = PUBLISHED) -> dict[str, Paper]:
    """Read the papers by key."""
    path = folder / "sources.yaml"
    return {key: checked(Paper, content, f"{path}: {key}") for key, content in read_yaml(path).items()}


def read_rows(folder: Path = PUBLISHED) -> dict[str, PrintedLine]:
    """Read results.csv, each row by its place."""
    path = folder / "results.csv"
    return {where: checked(PrintedLine, line, where) for where, line in _read_csv(path).items()}


def read_printed(families: Mapping[str, Family], folder: Path = PUBLISHED) -> list[Printed]:
    """Read the printed rows with their papers and remarks, in the file's order."""
    papers, rows, rules = read_papers(folder), read_rows(folder), read_rules(folder)
    originals = {
        (Original(source=row.source, table=row.table, method=row.method), _numbers(row))
        for row in rows.values()
    }
    keys = {method: family_of(method, families) for method in {row.method for row in rows.values()}}
    # most rules are about one paper: of each, only those that may apply
    of_paper = {key: [rule for rule in rules if key in rule.where.get("source", (key,))] for key in papers}
    printed = []
    for where, row in rows.items():
        numbers, key = _numbers(row), keys[row.method]
        fitting = tuple(
            rule
            for rule in of_paper[row.source]
            if rule.applies(row) and (rule.same_as is None or (rule.same_as, numbers) in originals)
        )
        printed.append(Printed(where, row, papers[row.source], key, families[key], fitting))
    return printed


def read_rules(folder: Path = PUBLISHED) -> tuple[Rule, ...]:
    """Read the remarks of notes.yaml, in the file's order."""
    path = folder / "notes.yaml"
    return checked(_Rules, read_yaml(path), str(path)).rules


def _numbers(row: PrintedLine) -> tuple[object, ...]:
    """What two papers print of one measurement: dataset, protocol, ratio and six recalls."""
    return (row.dataset, row.protocol, row.noise_ratio, *(getattr(row, name) for name in _RECALLS))


@cache
def rows_by_recipe(folder: Path = PUBLISHED) -> Mapping[str, Sequence[Printed]]:
    """Printed rows by the recipe they are compared with, ``A + B`` for two that are averaged.

    Rows of the method's own paper come first, then those under the family's first names.
    """

    def order(each: Printed) -> tuple[bool, int]:
        name = base_name(each.row.method)
        return not each.own, each.family.names.index(name) if name in each.family.names else 0

    rows_of: dict[str, list[Printed]] = {}
    for each in sorted(read_printed(read_families(), folder), key=order):
        row, family = each.row, each.family
        names = family.recipe_names(row.method, row.backbone, row.dataset, row.tokenizer)
        beside = family.compared.get(row.method, "")
        recipes = (
            " + ".join(names),
            beside.format(dataset=row.dataset, backbone=_recipe_backbone(row.backbone)),
        )
        for name in filter(None, recipes):
            rows_of.setdefault(name, []).append(each)
    return rows_of


def best_published() -> Mapping[str, Mapping[str, float]]:
    """Dataset and protocol to the highest rSum that any paper prints, at any noise ratio and with any encoder.

    Only rows with all six recalls and without a doubt count.
    """
    best: dict[str, dict[str, float]] = {}
    for printed in read_printed(read_families()):
        row, total = printed.row, recall_sum(printed.row)
        if total and not printed.doubts:
            of_dataset = best.setdefault(row.dataset, {})
            of_dataset[row.protocol] = max(total, of_dataset.get(row.protocol, 0.0))
    return best


class DetectionLine(Record):
    """A line of detection.csv: how well a method finds wrong pairs, as printed.

    Accuracy and AUROC are in [0, 1], like average precision and F1, whose positive class is the wrong pair; empty if
    not printed.
    """

    paper: ShownText
    table: ShownText
    method: ShownText
    backbone: ShownText
    dataset: ShownText
    noise: ShownText
    accuracy: ShownText
    auroc: ShownText
    average_precision_wrong: ShownText
    f1: ShownText
    remark: ShownText


def read_printed_detection(folder: Path = PUBLISHED) -> list[DetectionLine]:
    """Read detection.csv, in the file's order; empty if there is none."""
    path = folder / "detection.csv"
    lines = _read_csv(path) if path.exists() else {}
    return [checked(DetectionLine, line, where) for where, line in lines.items()]


def _read_csv(path: Path) -> dict[str, dict[str, str]]:
    """The lines of a table by their places, ``FILE line N``."""
    rows = read_table(path, SubmissionError, expected="a CSV file")[1]
    return dict(rows)
