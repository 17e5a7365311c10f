"""Recipes as they resolve, the values that searches draw, and seeds derived from seeds."""

from collections.abc import Callable
from typing import Any

import yaml
from probe import command, first_of

SEEDS, TRIALS = (0, 1000), 40


def recipes() -> dict[str, Any]:
    """Every shipped recipe with every option, and the measured tables."""
    from baselines.recipes import recipe_names

    names = recipe_names()
    load = first_of("baselines.engine.recipe:Recipe").load
    table = first_of(
        "baselines.engine.tables:Table",
        "baselines.engine.sweep:MeasuredTable",
        "baselines.engine.sweep:Table",
    )
    derive = first_of("baselines.kit.randomness:derive_seed")
    listed = command("recipes")
    shown = command("recipes", "show", "ncr/digits_vse_infinity")
    return {
        "names": dict.fromkeys(names, True),
        "listed": listed["exit"] == 0 and listed["words"].split() == names,
        "resolved": {name: load(name).model_dump(mode="json") for name in names},
        "shown": yaml.safe_load(shown["words"]),
        "tables": {
            name: table.load(name).model_dump(mode="json") | {"trained": table.load(name).trained()}
            for name in ("digits", "pictograms", "pictograms_sgr")
        },
        "seeds": {
            str(of): derive(*of) for of in ((0, "init"), (1, "order", 3), (2**32 - 1, "dropout", 0), (7,))
        },
        "refusals": {
            "name": command("recipes", "show", "ncr/digits_sgrr"),
            "method": command("recipes", "show", "nrc/digits_sgr"),
            "match": command("recipes", "--match", "nothing"),
        },
    }


def search() -> dict[str, Any]:
    """The first trials of every recipe that names what to search."""
    from baselines.recipes import recipe_names

    load = first_of("baselines.engine.recipe:Recipe").load
    draw: Callable[..., Any] = first_of("baselines.engine.sweep:drawn", "baselines.engine.tune:drawn")
    found: dict[str, Any] = {}
    for name in recipe_names():
        among = load(name).search
        if among:
            found[name] = {
                option: {
                    f"seed {seed}": [draw(values, seed, trial, option) for trial in range(1, TRIALS)]
                    for seed in SEEDS
                }
                for option, values in among.items()
            }
    return found


PARTS = {"recipes": recipes, "search": search}
