"""What `ncl-bench sweep --plan` prints: runs, steps, arithmetic, bytes on disk, and the hours that cards need at least.

Everything is counted, see :mod:`baselines.engine.cost`; nothing is trained and no data are read. Hours are a bound from
below, since these are left out: the passes in which a method divides or corrects its pairs, the optimiser, and whatever
keeps a card from its published peaks.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from math import ceil
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.table import Column, Table
from torch import Tensor

from baselines.backbones import BACKBONES
from baselines.engine.cost import CARDS, META, WORDS, Cost, hollow, hollow_batch, scoring_cost, step_cost
from baselines.engine.recipe import Recipe
from baselines.engine.sweep import Cell
from baselines.kit.backbone import Backbone
from baselines.kit.batches import Batch
from baselines.kit.method import Setting
from baselines.methods import METHODS
from ncl_bench.data import dataset_spec
from ncl_bench.evaluation.protocol import selection_images

BOUND = (
    "Counted, not measured: no card does this work in fewer hours. A network takes one step per batch of all pairs in "
    "every epoch, though some methods leave pairs out; captions have 8 to 20 words."
)
BLOCK = 128
Work = Counter[str]
"""``runs``, ``steps``, ``flops``, ``bytes`` on disk, and ``hours`` on each card, by the card's name."""


def left_to_do(cells: Sequence[Cell]) -> dict[str, Work]:
    """Count what is left of a sweep, by recipe and settings, with the numbers of ``cells`` and of ``finished`` ones."""
    members = [member for cell in cells for member in cell.members]
    found: dict[str, Work] = {}
    for cell in dict.fromkeys([*members, *cells]):
        work = found.setdefault(cell.title, Counter())
        work["cells"] += 1
        if cell.finished:
            work["finished"] += 1
            continue
        jobs = [member.job for member in cell.members]
        if len(jobs) == 1 and not cell.run.finished:
            share = 1 - cell.noise.percent / 100 if jobs[0].recipe.clean_only else 1.0
            work.update(training(jobs[0].recipe.model_dump_json(), share, cell.precision))
        for job in jobs:
            work.update(scoring(job.recipe.model_dump_json(), "test", cell.precision))
        spec = dataset_spec(jobs[0].recipe.dataset)
        work["bytes"] += 4 * spec.images["test"] * spec.n_captions("test")
    return found


@cache
def training(recipe_json: str, share: float, precision: str) -> Work:
    """Count a run: its steps, and dev scored after each epoch.

    Args:
        recipe_json: the recipe.
        share: share of the training pairs that are trained on, in (0, 1].
        precision: arithmetic of the networks.
    """
    recipe = Recipe.model_validate_json(recipe_json)
    spec, method = dataset_spec(recipe.dataset), METHODS[recipe.method["name"]]
    network, batch = _hollow(recipe, recipe.batch_size)
    n_pairs, trusted = spec.n_captions("train"), method.extra_clean_data(recipe.method_config)
    setting = Setting(
        n_pairs,
        spec.n_regions,
        WORDS,
        lambda: _hollow(recipe, 1)[0],
        recipe.batch_size,
        torch.empty(trusted, dtype=torch.int64, device=META),
    )
    with META:
        built = method(recipe.method_config, setting)
    per_epoch = ceil((share * n_pairs - trusted) / recipe.batch_size)
    epochs = len(built.plan()) if recipe.steps is None else ceil(recipe.steps / per_epoch)
    steps = built.n_networks * (recipe.steps or epochs * per_epoch)
    work = _work(step_cost(network, batch), steps, precision)
    for _ in range(epochs):
        work.update(scoring(recipe_json, "dev", precision))
    weights, state = _size(built.networks.state_dict()), _size(built.state_dict())
    work["bytes"] += weights + 2 * (
        state + 2 * weights
    )  # the best networks, and two checkpoints with Adam's moments
    return work + Counter(runs=1, steps=steps)


@cache
def scoring(recipe_json: str, split: str, precision: str) -> Work:
    """Count the scoring of a split with every network of a recipe."""
    recipe = Recipe.model_validate_json(recipe_json)
    spec = dataset_spec(recipe.dataset)
    images = selection_images(spec) if split == "dev" else spec.images[split]
    network, block = _hollow(recipe, BLOCK)
    cost = scoring_cost(network, block, images, images * spec.captions_per_image)
    return _work(cost, METHODS[recipe.method["name"]].n_networks, precision)


def _work(cost: Cost, times: int, precision: str) -> Work:
    hours = {name: times * card.seconds(cost, precision) / 3600 for name, card in CARDS.items()}
    return Counter({"flops": times * cost.flops, **hours})


def _hollow(recipe: Recipe, pairs: int) -> tuple[Backbone, Batch]:
    """Build a recipe's network and a batch, both without values."""
    spec, words = dataset_spec(recipe.dataset), WORDS
    name, config = recipe.backbone["name"], recipe.backbone_config
    options = {key: value for key, value in recipe.backbone.items() if key != "name"}
    regions, numbers = spec.n_regions, spec.feature_dim
    if BACKBONES[name].reads_images:
        from baselines.backbones.clip_models import architecture

        sizes: dict[str, Any] = architecture(config)
        patch, words = sizes["vision_cfg"]["patch_size"], sizes["text_cfg"]["vocab_size"]
        regions, numbers = (sizes["vision_cfg"]["image_size"] // patch) ** 2, 3 * patch**2
    network = hollow(name, regions, numbers, words, **options)
    return network, hollow_batch(pairs, 20, regions, numbers)


def _size(state: dict[str, Tensor]) -> int:
    return sum(x.nbytes for x in state.values())


def table_of_work(found: dict[str, Work]) -> Table:
    """Format what is left: a line per recipe, and their sum."""
    numbers = ("cells", "finished", "runs", "steps", "PFLOP", "GB", *(f"{card} h" for card in CARDS))
    table = Table(
        Column("left to do", overflow="fold"),
        *(Column(name, justify="right", no_wrap=True) for name in numbers),
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for title, work in found.items():
        table.add_row(title, *_numbers(work))
    table.add_section()
    table.add_row("sum", *_numbers(sum(found.values(), Counter())))
    return table


def _numbers(work: Work) -> list[str]:
    whole = [f"{work[key]:,.0f}" for key in ("cells", "finished", "runs", "steps")]
    return [
        *whole,
        f"{work['flops'] / 1e15:,.1f}",
        f"{work['bytes'] / 1e9:,.1f}",
        *(f"{work[card]:,.1f}" for card in CARDS),
    ]
