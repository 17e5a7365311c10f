"""The shipped recipes: one file per method, which says only what is not a default of its Config or of the backbone.

A recipe is called ``METHOD/DATASET_BACKBONE``, or ``METHOD/DATASET_BACKBONE_VARIANT``. It takes what stands under the
beginnings of its name, later ones over earlier ones: ``triplet/coco_sgr_clean`` takes ``coco``, ``coco_sgr`` and
``coco_sgr_clean`` of ``triplet.yaml``, after the same ones of ``every_method.yaml``. A ``note`` is a sentence for
readers.
"""

from pathlib import Path
from typing import Any

from ncl_bench.data import DATASETS
from ncl_bench.schema import read_yaml

RECIPES = Path(__file__).parent
EVERY_METHOD = RECIPES / "every_method.yaml"


def recipe_names() -> list[str]:
    """Names of all shipped recipes, sorted."""
    return sorted(
        f"{path.stem}/{key}"
        for path in RECIPES.glob("*.yaml")
        if path != EVERY_METHOD
        for key in read_yaml(path)
        if key not in DATASETS
    )


def written(name: str) -> dict[str, Any]:
    """What the files say for a recipe's name; everything else has its default."""
    method, ending = name.split("/", 1)
    own = RECIPES / f"{method}.yaml"
    merged: dict[str, Any] = {}
    for path in filter(Path.is_file, (EVERY_METHOD, own)):
        entries = read_yaml(path)
        for key in sorted(entries, key=len):
            if f"{ending}_".startswith(f"{key}_"):
                merged = _merge(merged, entries[key])
    return merged


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Both, with ``above`` winning; ``backbone`` and ``method`` are merged key by key."""
    sections = {key: below.get(key, {}) | above[key] for key in ("backbone", "method") if key in above}
    return below | above | sections
