"""What tests of runs share: tiny runs on a thousand pairs of digits, and all that they leave behind."""

import shutil
import sys
from concurrent.futures import Future

import numpy as np
import torch
from rich.console import Console

import baselines.training.job
import baselines.training.submit
import baselines.training.sweep
import baselines.training.train
import ncl_bench.data.digits
from baselines.methods import METHODS
from baselines.recipes import recipe_names
from baselines.training.job import TrainingJob
from baselines.training.recipe import Recipe
from baselines.training.run_folder import RunFolder
from baselines.training.train import Trainer, TrainingProgress
from ncl_bench.cli import main
from ncl_bench.data.load import load_dataset
from ncl_bench.errors import NclBenchError

TINY = {"name": "vse_infinity", "embed_size": 16, "word_dim": 8}
TINY_SGR = {"name": "sgr", "embed_size": 8, "word_dim": 8, "sim_dim": 8, "sgr_steps": 1}


def few_digits_recipe(method, **options):
    """A method's recipe on digits, made small: every registered method has one that trains in seconds.

    The backbone is tiny VSE-infinity, or tiny SGR for a method that has no recipe on VSE-infinity; closed forms have a
    linear one, and one setting.

    Args:
        method: its name.
        options: of the method, where it has them.
    """
    shipped = [name for name in recipe_names() if name.startswith(f"{method}/digits_")]
    plain = f"{method}/digits_vse_infinity"
    recipe = Recipe.load(plain if plain in shipped else shipped[0])
    backbone = TINY if plain in shipped else TINY_SGR
    if METHODS[method].closed_form:
        backbone = {"name": "linear", "embed_size": 8}
        one = {"image_ridges": [1.0], "word_ridges": [1.0], "components": [8], "judge": [1.0, 1.0, 8]}
        options = options | one | {"rounds": 1}
    chosen = recipe.method | {name: value for name, value in options.items() if name in recipe.method}
    changed = {"backbone": backbone, "method": chosen, "batch_size": min(recipe.batch_size, 100)}
    return recipe.model_dump() | changed


def digits_job(
    method,
    noise_ratio=0.4,
    *,
    recipe=None,
    **options,
):
    """A run of a method on tiny VSE-infinity in batches of 100, where ``recipe`` does not say otherwise."""
    content = {"dataset": "digits", "batch_size": 100, "backbone": TINY, "method": method, **(recipe or {})}
    return TrainingJob(Recipe.from_dict(content), noise_ratio=noise_ratio, **options)


def trained(job, folder, **options):
    """A run on the CPU up to its end, without a word."""
    trainer = Trainer(job, RunFolder(folder), "cpu", **options)
    trainer.run(TrainingProgress(len(trainer.plans), Console(quiet=True)))
    return trainer


def load_few(name, *, n_pairs=1000, **options):
    """``load_dataset``, but train has its first pairs only."""
    dataset = load_dataset(name, **options)
    return dataset.subset(np.arange(n_pairs)) if options["split"] == "train" else dataset


def run_command(arguments):
    """``ncl-bench`` with these arguments on few digits; for a process of its own."""
    torch.set_num_threads(1)
    baselines.training.job.load_dataset = load_few
    # the board takes what a run says of all pairs of the dataset, or nothing
    baselines.training.submit.pairs_to_judge = lambda run: None
    sys.argv = ["ncl-bench", *arguments]
    main()


def cut_short(whole, to):
    """Copy a finished run as if it had been stopped while the newest checkpoint was written."""
    shutil.copytree(whole, to)
    newest = max((to / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-100])
    (to / "training.json").unlink()


def outcome(folder):
    """Weights, metrics, and everything that the last checkpoint holds, comparable bit by bit."""
    names = ["best.safetensors", "history.json", "training.json"]
    names += [f"estimates/{path.name}" for path in sorted(folder.glob("estimates/*"))]
    newest = torch.load(max((folder / "checkpoints").iterdir()), weights_only=True)
    return {name: (folder / name).read_bytes() for name in names} | flat("state", newest)


def flat(name, value):
    """Nested containers of tensors as one dictionary of bytes and plain values."""
    if isinstance(value, torch.Tensor):
        return {name: value.numpy().tobytes()}
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {k: v for key, child in items for k, v in flat(f"{name}.{key}", child).items()}
    return {name: value}


class InThisProcess:
    """In the place of the pool of processes that runs the cells of a sweep."""

    def __init__(self, n_workers, initializer, arguments):
        baselines.training.sweep._shares = arguments[0]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        baselines.training.sweep._shares = None

    def submit(self, function, *arguments):
        future = Future()
        try:
            future.set_result(function(*arguments))
        except NclBenchError as error:
            future.set_exception(error)
        return future


for _split in ("train", "dev"):  # a server of processes composes them once
    ncl_bench.data.digits.digits_split(_split)
