"""Trainings of a few steps on digits: weights, curves and scores, through kills, in two processes and in bf16."""

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image
from probe import BASE, PROGRAM, array, command, file_hashes, process, sha

SHORT = ("--set", "steps=60", "--set", "batch_size=500", "--noise-ratio", "0.4", "--device", "cpu")
BACKBONES = {
    "sgr": ("embed_size=8", "word_dim=8", "sim_dim=8", "sgr_steps=1"),
    "saf": ("embed_size=8", "word_dim=8", "sim_dim=8"),
    "scan": ("embed_size=8", "word_dim=8"),
    "imram": ("embed_size=8", "word_dim=8"),
    "vsrn": ("embed_size=8", "word_dim=8"),
    "vse_infinity": ("embed_size=16", "word_dim=8"),
}


def names() -> list[str]:
    """One shipped recipe on digits of every method."""
    from baselines.recipes import recipe_names

    of: dict[str, list[str]] = {}
    for name in recipe_names():
        if "/digits_" in name and not name.endswith("_tuned"):
            of.setdefault(name.split("/")[0], []).append(name)
    return [next((n for n in shipped if n.endswith("_vse_infinity")), shipped[0]) for shipped in of.values()]


def settings(*options: str) -> list[str]:
    """Options of the recipe as arguments."""
    return [argument for option in options for argument in ("--set", option)]


def small(backbone: str) -> list[str]:
    """Arguments that make a backbone small."""
    return settings(*(f"backbone.{option}" for option in BACKBONES[backbone]))


def backbone_of(recipe: str) -> str:
    """The backbone that a recipe's name says."""
    return next(name for name in sorted(BACKBONES, key=len, reverse=True) if f"digits_{name}" in recipe)


def run_of(folder: Path) -> dict[str, Any]:
    """What a training left behind, without times."""
    from safetensors.numpy import load_file

    if not (folder / "best.safetensors").is_file():
        return {"files": {path.name: True for path in folder.iterdir()} if folder.is_dir() else None}
    weights = load_file(folder / "best.safetensors")
    outcome = json.loads((folder / "training.json").read_text())
    described = json.loads((folder / "run.json").read_text())
    described.pop("trained_on", None)
    outcome.pop("cost", None)
    history = json.loads((folder / "history.json").read_text())
    for epoch in history:
        for separation in epoch["diagnosis"].values():
            separation["histogram"] = sha(json.dumps(separation["histogram"], sort_keys=True))
    return {
        "weights": {name: array(values) for name, values in weights.items()},
        "weights without names": sorted(array(values) for values in weights.values()),
        "history": history,
        "outcome": outcome,
        "run": described,
    }


def submission_of(folder: Path) -> dict[str, Any]:
    """A submission's text without times and machines, and its arrays."""
    text = (folder / "submission.yaml").read_text() if (folder / "submission.yaml").is_file() else ""
    text = re.sub(r"(hours|cost|hardware|device): .*", r"\1: ...", text)
    content = yaml.safe_load(text) or {}
    content["notes_words"] = content.pop("notes", "")
    arrays = {path.name: array(np.load(path)) for path in folder.glob("*.npy")}
    order = re.findall(r"^\w+", text, re.MULTILINE)
    return {
        "content": content,
        "keys in order": order,
        "arrays": arrays,
        "files": {p.name: True for p in folder.iterdir()} if folder.is_dir() else None,
    }


def evaluated(folder: Path) -> Any:
    """The numbers of an evaluated submission."""
    said = command("evaluate", folder)
    file = folder / "result.json"
    return {"said": said, "splits": json.loads(file.read_text())["splits"] if file.is_file() else None}


def trained_and_scored(
    recipe: str, *arguments: Any, name: str = "", embeddings: bool = False
) -> dict[str, Any]:
    """Train, score and evaluate a recipe."""
    name = name or recipe.replace("/", "-")
    run, to = Path("runs") / name, Path("submissions") / name
    found: dict[str, Any] = {"train": command("train", recipe, *arguments, "--to", run), "run": run_of(run)}
    options = ["--embeddings"] if embeddings else []
    found["score"] = command("score", run, "--to", to, "--device", "cpu", *options)
    found["submission"] = submission_of(to)
    if (to / "submission.yaml").is_file():
        found["evaluate"] = evaluated(to)
    return found


def methods() -> dict[str, Any]:
    """Every method for sixty steps, over all phases of its plan."""
    return {recipe: trained_and_scored(recipe, *SHORT, *small(backbone_of(recipe))) for recipe in names()}


def backbones() -> dict[str, Any]:
    """Every backbone for a few steps, with a plain loss and with a robust one."""
    short = ("--set", "batch_size=100", "--noise-ratio", "0.4", "--device", "cpu", *settings("steps=8"))
    found = {
        name: trained_and_scored(f"triplet/digits_{name}", *short, *small(name), name=name)
        for name in BACKBONES
    }
    found["mean of two"] = {
        "score": command("score", "runs/sgr", "runs/saf", "--to", "submissions/mean", "--device", "cpu"),
        "submission": submission_of(Path("submissions/mean")),
    }
    return found


def begun(
    folder: Path, recipe: str, *arguments: Any, program: list[str], environment: dict[str, str]
) -> None:
    """Train until a checkpoint is written, and kill the process in the middle of the next epoch."""
    training = subprocess.Popen(
        [*program, "train", recipe, *map(str, arguments), "--to", str(folder)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + 300
    while (
        training.poll() is None
        and time.monotonic() < end
        and not list((folder / "checkpoints").glob("epoch*"))
    ):
        time.sleep(0.02)
    time.sleep(0.3)
    training.send_signal(signal.SIGKILL)
    training.wait()


def resume() -> dict[str, Any]:
    """A training that was killed goes on to the same bits, also one that the base began or finished."""
    recipe = "ncr/digits_vse_infinity"
    arguments = (*SHORT, *settings("method.warmup_epochs=1", "method.epochs=4"))
    of_base = os.environ | {"PYTHONPATH": str(BASE)}
    begun(Path("killed"), recipe, *arguments, program=PROGRAM, environment=dict(os.environ))
    begun(Path("of-base"), recipe, *arguments, program=PROGRAM, environment=of_base)
    subprocess.run(
        [*PROGRAM, "train", recipe, *arguments, "--to", "done-by-base"],
        env=of_base,
        check=True,
        capture_output=True,
    )
    found: dict[str, Any] = {"whole": command("train", recipe, *arguments, "--to", "whole")}
    for folder in ("killed", "of-base", "done-by-base"):
        stopped = not (Path(folder) / "training.json").exists()
        found[folder] = {"stopped": stopped, "again": command("train", recipe, *arguments, "--to", folder)}
    for folder in ("whole", "killed", "of-base", "done-by-base"):
        found[f"{folder}, run"] = run_of(Path(folder))
        to = Path(f"{folder}-scores")
        found[f"{folder}, score"] = [
            command("score", folder, "--to", to, "--device", "cpu"),
            submission_of(to),
        ]
    other = command("train", recipe, *arguments, "--seed", 1, "--to", "whole")
    scored = command("score", "whole", "--to", "whole-scores", "--device", "cpu")
    plots = command("plot", "whole")
    tables = {path.name: path.read_text() for path in Path("whole").rglob("*.csv")}
    found["refusals"] = {
        "another seed": other,
        "scored twice": scored,
        "unfinished": command("score", "nowhere", "--to", "x"),
        "not a run": command("train", recipe, "--to", "whole-scores"),
    }
    found["plot"] = {
        "said": plots,
        "tables": tables,
        "drawn": {p.name: True for p in Path("whole").rglob("*.svg")},
    }
    return found


def ways() -> dict[str, Any]:
    """Embeddings, two processes, bf16, image noise, another language, and the cost of none of it in bits."""
    recipe, shorter = (
        "ncr/digits_vse_infinity",
        settings("steps=20", "batch_size=500", "method.warmup_epochs=0"),
    )
    common = (*shorter, "--noise-ratio", "0.4", "--device", "cpu")
    found = {
        "embeddings": trained_and_scored(recipe, *common, name="embeddings", embeddings=True),
        "image noise": trained_and_scored(recipe, *common, "--noise-unit", "image", name="image"),
        "seed": trained_and_scored(recipe, *common, "--seed", 3, name="seed"),
        "chinese": trained_and_scored(recipe, *common, *settings("language=zh"), name="zh"),
        "clean only": trained_and_scored(recipe, *common, *settings("clean_only=true"), name="clean"),
        "bf16": trained_and_scored(recipe, *common, "--precision", "bf16-mixed", name="bf16"),
        "natural": trained_and_scored(
            "triplet/pictograms_sgr",
            *settings("dataset=pictograms-web", "steps=3", "batch_size=32"),
            *small("sgr"),
            "--device",
            "cpu",
            name="natural",
        ),
    }
    folder = Path("two-processes")
    two = process("train", recipe, *common, "--devices", 2, "--to", folder)
    found["two processes"] = {"train": two, "run": run_of(folder)}
    to = Path("two-scores")
    scored = process("score", folder, "--to", to, "--device", "cpu", "--devices", 2)
    found["two processes"] |= {"score": scored, "submission": submission_of(to)}
    missing = command("score", "--zero-shot", recipe, "--to", "zero")
    found["zero shot, not pre-trained"] = missing
    return found


def sweep() -> dict[str, Any]:
    """Cells of a sweep, trials of a search, and the quickstart's rows."""
    recipe = "triplet/digits_vse_infinity"
    shorter = settings("steps=20", "batch_size=500", "backbone.embed_size=16")
    found: dict[str, Any] = {
        "said": process(
            "sweep",
            recipe,
            "--noise",
            "none",
            "--noise",
            "caption-60",
            "--seed",
            0,
            "--seed",
            1,
            "--jobs",
            1,
            *shorter,
            "--to",
            "swept",
        ),
        "table": rows_of(Path("swept/table.csv")),
        "submissions": {path.name: submission_of(path) for path in Path("swept/submissions").glob("*")},
    }
    found["tune"] = process("tune", recipe, "--trials", 3, "--jobs", 1, *shorter, "--to", "tuned")
    found["trials"] = {path.stem: rows_of(path) for path in Path("tuned/tuned").rglob("*.csv")}
    found["best"] = {
        path.stem: yaml.safe_load(path.read_text()) for path in Path("tuned/tuned").rglob("*.yaml")
    }
    for best in found["best"].values():
        best["note_words"] = best.pop("note", "")
    return found


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    return list(csv.DictReader(io.StringIO(path.read_text()))) if path.is_file() else []


def plugin() -> dict[str, Any]:
    """The method that the base's README shows, trained, scored and evaluated."""
    text = (BASE / "README.md").read_text(encoding="utf-8")
    code = re.search(r"```python trimmed\.py\n(.*?)```", text, re.DOTALL)
    assert code is not None
    Path("trimmed.py").write_text(code[1])
    return trained_with("trimmed.py", "trimmed/digits_vse_infinity", *SHORT)


def trained_with(file: str, recipe: str, *arguments: Any) -> dict[str, Any]:
    """The same with a plugin, in processes of their own."""
    train = process("--plugin", file, "train", recipe, *arguments, "--to", "run")
    score = process("--plugin", file, "score", "run", "--to", "scores", "--device", "cpu")
    return {
        "train": train,
        "run": run_of(Path("run")),
        "score": score,
        "submission": submission_of(Path("scores")),
        "evaluate": evaluated(Path("scores")),
    }


MAKE = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[1] + "/tests", sys.argv[1] + "/tests/baselines/imported"]
import torch
from test_import_checkpoint import as_list, ncr_file, published, tiny
ncr_file(Path("."))
for name in ("sgr", "saf", "vse_infinity", "scan"):
    torch.save({"model": as_list(published(name, tiny(name)))}, f"{name}.tar")
torch.save({"model": {f"module.{n}": x for n, x in published("imram", tiny("imram")).items()}}, "imram.tar")
torch.save({"model": as_list(published("vsrn", tiny("vsrn", caption_weight=0)))}, "vsrn.tar")
a, b = (as_list(published("saf", tiny("saf", seed)), "module.") for seed in (0, 1))
torch.save({"model_A": a, "model_B": b}, "parallel.tar")
torch.save({"other": torch.zeros(3)}, "other.tar")
"""


def imported() -> dict[str, Any]:
    """Checkpoints in the published layouts, which the base wrote, imported and scored."""
    subprocess.run(
        [sys.executable, "-c", MAKE, str(BASE)], env=os.environ | {"PYTHONPATH": str(BASE)}, check=True
    )
    Path("damaged.tar").write_bytes(Path("saf.tar").read_bytes()[:2000])
    found: dict[str, Any] = {}
    cases = {
        "model_best.pth": ("ncr", "model_best.pth.tar", ()),
        "parallel": ("ncr", "parallel.tar", ()),
        "sgr": ("gsc", "sgr.tar", ()),
        "saf": ("gsc", "saf.tar", ()),
        "vse_infinity": ("gsc", "vse_infinity.tar", ()),
        "scan": ("triplet", "scan.tar", settings("backbone.direction=i2t", "backbone.aggregation=lse")),
        "imram": ("triplet", "imram.tar", ()),
        "vsrn": ("triplet", "vsrn.tar", ()),
    }
    for name, (method, file, options) in cases.items():
        run, to = Path("runs") / name, Path("scores") / name
        found[name] = {
            "import": command(
                "import-checkpoint",
                file,
                "--method",
                method,
                "--dataset",
                "digits",
                "--noise-ratio",
                0.4,
                *options,
                "--to",
                run,
            ),
            "score": command("score", run, "--to", to, "--device", "cpu"),
            "submission": submission_of(to),
        }
    common = ("--dataset", "digits", "--noise-ratio", 0.4, "--to", "refused")
    found["refusals"] = {
        "other": command("import-checkpoint", "other.tar", "--method", "ncr", *common),
        "damaged": command("import-checkpoint", "damaged.tar", "--method", "ncr", *common),
        "missing": command("import-checkpoint", "missing.tar", "--method", "ncr", *common),
        "method": command("import-checkpoint", "sgr.tar", "--method", "nrc", *common),
        "trained on": command("train", "ncr/digits_sgr", "--to", "runs/sgr"),
        "written": Path("refused").exists(),
    }
    return found


def features() -> dict[str, Any]:
    """Features of twenty thumbnails, whole and reduced."""
    folder = Path("photos")
    folder.mkdir()
    for number in range(20):
        quarters = np.random.default_rng(number).integers(0, 256, (2, 2, 3), dtype=np.uint8)
        picture = Image.fromarray(quarters).resize((60 + number, 50), Image.Resampling.BILINEAR)
        picture.save(folder / f"{number:03}.png")
    found: dict[str, Any] = {}
    for name, options in {
        "whole": ("--dev", 4, "--test", 4),
        "reduced": ("--dev", 4, "--test", 4, "--grid", 1, "--pca", 5, "--dtype", "float32"),
    }.items():
        found[name] = {
            "said": command("features", folder, "--to", name, "--workers", 1, "--device", "cpu", *options)
        }
        file = Path(name, "features.json")
        described = json.loads(file.read_text()) if file.is_file() else {}
        for apart in ("key", "versions", "tool"):
            described.pop(apart, None)
        found[name] |= {"arrays": file_hashes(Path(name), ("*.npy", "*.txt")), "described": described}
    (folder / "damaged.png").write_bytes(b"\x89PNG\r\n")
    found["damaged"] = command("features", folder, "--to", "damaged", "--device", "cpu")
    shutil.rmtree("damaged", ignore_errors=True)
    skipping = (
        "features",
        folder,
        "--to",
        "skipping",
        "--skip-damaged",
        "--dev",
        4,
        "--test",
        4,
        "--device",
        "cpu",
    )
    found["skipping"] = [command(*skipping), file_hashes(Path("skipping"), ("*.npy", "*.txt"))]
    return found


PARTS = {
    "features": features,
    "imported": imported,
    "methods": methods,
    "backbones": backbones,
    "resume": resume,
    "ways": ways,
    "sweep": sweep,
    "plugin": plugin,
}
