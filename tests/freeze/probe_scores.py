"""``evaluate`` of every kind of input, with ties and refusals; submissions and their comparison."""

import hashlib
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from probe import command, refused, sha

from ncl_bench import DATASETS, evaluate

N, EACH, DIM = 200, 5, 16


def embeddings(seed: int = 0, noise: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings of 200 images and their 1,000 captions."""
    random = np.random.default_rng(seed)
    images = random.normal(size=(N, DIM))
    captions = np.repeat(images, EACH, axis=0) + noise * random.normal(size=(N * EACH, DIM))
    return images.astype(np.float32), captions.astype(np.float32)


def similarities(seed: int = 0, noise: float = 0.5) -> np.ndarray:
    """Their dot products, rounded from double precision."""
    images, captions = embeddings(seed, noise)
    return (images.astype(np.float64) @ captions.astype(np.float64).T).astype(np.float32)


def numbers(given: Any, **options: Any) -> dict[str, Any]:
    """What ``ncl_bench.evaluate`` gives, or how it refuses."""

    def call() -> dict[str, Any]:
        found = evaluate(given, **({"dataset": "digits"} | options)).to_dict()
        found["notes_words"] = found.pop("notes")
        return found

    return refused(call)


def inputs() -> dict[str, Any]:
    """Arrays, tensors and files; with ties; and what is refused."""
    import torch
    from safetensors.numpy import save_file

    scores = similarities()
    half = scores.astype(np.float16)
    np.save("a.npy", scores)
    np.save("half.npy", half)
    np.save("fortran.npy", np.asfortranarray(scores))
    np.save("big-endian.npy", scores.astype(">f4"))
    np.savez("one.npz", scores=scores)
    np.savez("two.npz", scores=scores, other=scores)
    save_file({"scores": scores}, "a.safetensors")
    save_file({"scores": scores, "other": scores}, "two.safetensors")
    torch.save(torch.from_numpy(scores), "a.pt")
    torch.save({"scores": torch.from_numpy(scores).bfloat16()}, "a.pth")
    torch.save({"scores": torch.from_numpy(scores), "names": {1}}, "more.pt")
    Path("pickled.npy").write_bytes(pickle.dumps(scores))
    np.save("objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    Path("text.csv").write_text("1,2\n3,4\n")
    Path("empty.npy").write_bytes(b"")
    Path("cut.npy").write_bytes(Path("a.npy").read_bytes()[:5000])
    gives = {
        "float32": scores,
        "float16": half,
        "float64": scores.astype(np.float64),
        "strided": np.repeat(scores, 2, axis=1)[:, ::2],
        "transposed view": np.ascontiguousarray(scores.T).T,
        "lists": scores.tolist(),
        "tensor": torch.from_numpy(scores),
        "tensor with gradient": torch.from_numpy(scores).requires_grad_(),
        "tensor in bfloat16": torch.from_numpy(scores).bfloat16(),
        "mapped": np.load("a.npy", mmap_mode="r"),
        "constant": np.zeros_like(scores),
        "two values": (scores > 0).astype(np.float32),
        "rounded": np.round(scores),
        "perfect": np.kron(np.eye(N), np.ones(EACH)).astype(np.float32),
        "reversed": -scores,
        "subnormal": (scores * np.float64(1e-42)).astype(np.float32),
    }
    files = (
        "a.npy",
        "half.npy",
        "fortran.npy",
        "big-endian.npy",
        "one.npz",
        "a.safetensors",
        "a.pt",
        "a.pth",
    )
    gives |= {name: name for name in files} | {"path": Path("a.npy")}
    spoiled = {name: scores.copy() for name in ("nan", "infinite")}
    spoiled["nan"][3, 4], spoiled["infinite"][199, 999] = np.nan, np.inf
    refuses = spoiled | {
        "transposed": scores.T,
        "short": scores[:-1],
        "row per caption": np.zeros((1000, 1000), np.float32),
        "column per image": np.zeros((200, 200), np.float32),
        "flat": scores.ravel(),
        "integers": np.zeros((N, N * EACH), np.int64),
        "complex": scores.astype(np.complex64),
        "text": "no such file.npy",
        "masked": np.ma.MaskedArray(scores, scores > 0),
        "ragged": [[1.0], [1.0, 2.0]],
        "nothing": None,
    }
    refuses |= {
        name: name
        for name in (
            "two.npz",
            "two.safetensors",
            "more.pt",
            "pickled.npy",
            "objects.npy",
            "text.csv",
            "empty.npy",
            "cut.npy",
        )
    }
    images, captions = embeddings()
    np.save("images.npy", images)
    np.save("captions.npy", captions)
    np.save("dev.npy", scores)
    return {
        "gives": {name: numbers(given) for name, given in gives.items()},
        "dev": numbers(scores, split="dev"),
        "without intervals": numbers(scores, intervals=False),
        "refuses": {name: numbers(given) for name, given in refuses.items()},
        "no dataset": numbers(scores, dataset="digit"),
        "no split": numbers(scores, split="train"),
        "flickr30k": numbers(flickr(), dataset="flickr30k"),
        "commands": {
            "file": command("evaluate", "a.npy", "--dataset", "digits"),
            "cosine": written(
                "evaluate", "images.npy", "captions.npy", "--dataset", "digits", "--to", "cosine"
            ),
            "dot": written(
                "evaluate",
                "images.npy",
                "captions.npy",
                "--dataset",
                "digits",
                "--similarity",
                "dot",
                "--to",
                "dot",
            ),
            "to": written(
                "evaluate", "a.npy", "--dataset", "digits", "--to", "out", "--plot", "--examples", 3
            ),
            "no dataset": command("evaluate", "a.npy"),
            "similarity": command("evaluate", "a.npy", "--dataset", "digits", "--similarity", "dot"),
            "missing": command("evaluate", "missing.npy", "--dataset", "digits"),
            "one side": command("evaluate", "images.npy", "--dataset", "digits"),
        },
        "left": {path.name: True for path in Path().iterdir()},
    }


def flickr() -> np.ndarray:
    """Scores of Flickr30K's test split, half of whose queries are answered."""
    random = np.random.default_rng(8)
    return (np.kron(np.eye(1000), np.ones(5)) + 0.35 * random.normal(size=(1000, 5000))).astype(np.float16)


def written(*arguments: Any) -> dict[str, Any]:
    """A command with ``--to``: what it says, and the numbers in the JSON that it writes."""
    said = command(*arguments)
    folder = Path(arguments[arguments.index("--to") + 1])
    found = {path.name: numbers_of(json.loads(path.read_text())) for path in folder.rglob("*.json")}
    names = {path.name: True for path in folder.rglob("*")} if folder.is_dir() else {}
    return {"said": said, "numbers": found, "names": names}


def numbers_of(content: Any) -> Any:
    """What an evaluation wrote, without what depends on the moment."""
    apart = ("seconds", "peak_memory_mb", "versions", "submission_sha256")
    if isinstance(content, dict):
        return {
            f"{key}_words" if key == "notes" else key: numbers_of(value)
            for key, value in content.items()
            if key not in apart
        }
    return content


def large() -> dict[str, Any]:
    """MS-COCO: 5,000 images and 25,000 captions, whole and in five folds, with ties."""
    random = np.random.default_rng(4)
    scores = random.normal(size=(5000, 25_000)).astype(np.float16)
    for image in range(5000):
        scores[image, 5 * image : 5 * image + 5] += np.float16(4)
    found = evaluate(scores, dataset="coco", intervals=False).to_dict()
    found["notes_words"] = found.pop("notes")
    return found


def submissions() -> dict[str, Any]:
    """Submission folders: begun, checked, evaluated, compared and refused."""
    found: dict[str, Any] = {}
    for seed, name in enumerate(("one", "two", "three", "four")):
        folder = Path(name)
        folder.mkdir()
        images, captions = embeddings(seed, 0.5 if seed < 2 else 0.8)
        if name == "two":
            files = {
                "images": array_file(folder, "i.npy", images),
                "captions": array_file(folder, "c.npy", captions),
            }
            form: dict[str, Any] = {"form": "embeddings", "similarity": "cosine"} | files
        else:
            form = {
                "form": "matrix",
                "matrix": array_file(folder, "test.npy", similarities(seed, 0.5 if seed < 2 else 0.8)),
            }
        state(folder, {"test": form})
        found[name] = {
            "check": command("submission", "check", folder),
            "evaluate": command("evaluate", folder),
            "result": numbers_of(json.loads((folder / "result.json").read_text())),
        }
    found["compare"] = {
        "two": command("compare", "one", "three"),
        "several": command("compare", "one", "two", "vs", "three", "four"),
        "one alone": command("compare", "one"),
        "drawn": command("compare", "one", "three", "--plot", "difference.svg"),
    }
    from ncl_bench.evaluation.compare import compare_folders

    for name, sides in {
        "two": ([Path("one")], [Path("three")]),
        "several": ([Path("one"), Path("two")], [Path("three"), Path("four")]),
    }.items():
        differences, notes = compare_folders(*sides, "test", names=("a", "b"), root=None, plot=None)
        found["compare"][f"{name}, numbers"] = {
            protocol: [one.difference, one.interval, one.r_sums, one.spreads]
            for protocol, one in differences.items()
        }
        found["compare"][f"{name}, notes_words"] = notes
    np.save("scores.npy", similarities())
    np.save("images.npy", embeddings()[0])
    np.save("captions.npy", embeddings()[1])
    begin = ("submission", "init", "--method", "Mine", "--dataset", "digits")
    found["init"] = {
        "said": command(*begin, "--noise-ratio", 0.4, "--scores", "scores.npy", "--to", "begun"),
        "content": yaml.safe_load(Path("begun/submission.yaml").read_text()),
        "text_words": Path("begun/submission.yaml").read_text(),
        "embeddings": command(
            *begin,
            "--scores",
            "images.npy",
            "--scores",
            "captions.npy",
            "--similarity",
            "dot",
            "--to",
            "begun2",
        ),
        "embeddings, content": yaml.safe_load(Path("begun2/submission.yaml").read_text()),
        "exists": command(*begin, "--scores", "scores.npy", "--to", "begun"),
        "unfilled": command("submission", "check", "begun"),
        "without": command("submission", "init", "--method", "M", "--dataset", "flickr30k", "--to", "begun3"),
        "without, content": yaml.safe_load(Path("begun3/submission.yaml").read_text()),
    }
    found["schema_words"] = command("submission", "schema")
    found["refusals"] = refusals()
    return found


def array_file(folder: Path, name: str, values: np.ndarray) -> dict[str, str]:
    """Write an array and state it."""
    np.save(folder / name, values)
    return {"file": name, "sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest()}


def state(folder: Path, scores: dict[str, Any], **changes: Any) -> None:
    """Write ``submission.yaml``."""
    from ncl_bench import load_dataset

    noise = load_dataset("digits", noise_ratio=0.4).noise
    content = {
        "protocol_version": 2,
        "method": "Example",
        "paper": "",
        "code": "https://example.org/code",
        "backbone": "a network",
        "networks": 1,
        "dataset": "digits",
        "order_fingerprint": {split: DATASETS["digits"].order_fingerprints[split] for split in scores},
        "language": "en",
        "tokenizer": "word",
        "noise": {
            "unit": "caption",
            "ratio": 0.4,
            "seed": noise.seed,
            "sha256": noise.sha256,
            "realised_ratio": noise.realised_ratio,
        },
        "training_seeds": [0],
        "selection_split": "dev",
        "extra_clean_data": "",
        "pretrained_encoder": "",
        "hardware": "a laptop",
        "hours": 0.5,
        "scores": scores,
    }
    (folder / "submission.yaml").write_text(
        yaml.safe_dump(content | changes, sort_keys=False), encoding="utf-8"
    )


def refusals() -> dict[str, Any]:
    """Statements that are refused, each with what was wrong."""
    good = yaml.safe_load(Path("one/submission.yaml").read_text())
    noise = good["noise"]
    changes: dict[str, dict[str, Any]] = {
        "another hash": {
            "scores": {"test": {"form": "matrix", "matrix": {"file": "test.npy", "sha256": sha("x") * 4}}}
        },
        "outside": {
            "scores": {"test": {"form": "matrix", "matrix": {"file": "../test.npy", "sha256": "ab" * 32}}}
        },
        "another order": {"order_fingerprint": {"test": sha("other") * 4}},
        "another noise": {"noise": noise | {"sha256": sha("noise") * 4}},
        "another seed": {"noise": noise | {"seed": 5}},
        "another ratio": {"noise": noise | {"ratio": 0.6}},
        "unknown key": {"nonsense": 1},
        "no networks": {"networks": 0},
        "version 9": {"protocol_version": 9},
        "no dataset": {"dataset": "digit"},
        "none": {"extra_clean_data": "none"},
        "natural": {"noise": {"unit": "natural", "ratio": None}},
        "rankings": {"scores": {"test": {"form": "rankings", "i2t": {"file": "a.npy", "sha256": "ab" * 32}}}},
    }
    found = {}
    for name, change in changes.items():
        folder = Path("refused")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree("one", folder)
        (folder / "result.json").unlink()
        (folder / "submission.yaml").write_text(yaml.safe_dump(good | change, sort_keys=False))
        found[name] = command("evaluate", folder) | {"written": (folder / "result.json").exists()}
    return found


PARTS = {"inputs": inputs, "large": large, "submissions": submissions}
