"""Create the commented ``submission.yaml`` for a submitter to fill in, with the scores beside it."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import yaml

from ncl_bench.data import dataset_spec
from ncl_bench.data.load import train_noise
from ncl_bench.data.order import order_of_download
from ncl_bench.data.spec import DatasetSpec, refuse_noise
from ncl_bench.errors import SubmissionError, one_line
from ncl_bench.evaluation.protocol import PROTOCOL_VERSION, expected_shape, known_order, open_scores
from ncl_bench.evaluation.scores import Similarity, as_array
from ncl_bench.evaluation.submission import FILL_IN, ORDER, SUBMISSION_FILE, Submission, noise_of, unfilled
from ncl_bench.files import atomic_path, refuse_existing, sha256_of_file, sole_owner, write_text
from ncl_bench.noise.draw import Noise
from ncl_bench.progress import as_typed

_ASSUMED = {
    "paper": "",
    "code": "",
    "networks": 1,
    "training_seeds": [0],
    "selection_split": "dev",
    "extra_clean_data": "",
    "pretrained_encoder": "",
    "hours": None,
}
"""Keys with a usual value that may be wrong for this submission."""
_MATRIX = {"matrix": "test.npy"}
_EMBEDDINGS = {"images": "test_images.npy", "captions": "test_captions.npy"}
_EXPLAINED = {
    "order_fingerprint.test": "--order-from FOLDER computes it from downloaded files of captions and ids, or --root "
    "FOLDER from the prepared dataset; its manifest.json holds it too",
} | {
    f"scores.test.{key}.sha256": f"sha256sum {name}; --scores FILE copies a file and fills it in"
    for key, name in (_MATRIX | _EMBEDDINGS).items()
}
"""Where the submitter finds a value that no description tells."""


@dataclass(frozen=True)
class Begun:
    """A newly created submission folder.

    Attributes:
        written: written files, the statement first.
        filled_in: key to the source of its value.
        left: key to where the value can be found, for every key left to fill in.
        assumed: key to its usual value, which the submitter corrects if it is wrong.
    """

    written: tuple[Path, ...]
    filled_in: dict[str, str]
    left: dict[str, str]
    assumed: dict[str, object]


def begin_submission(
    folder: Path,
    method: str,
    dataset: str,
    scores: Sequence[Path],
    similarity: Similarity | None,
    noise_setting: tuple[float | None, str | None, int | None],
    order_from: Path | None,
    root: Path | None,
) -> Begun:
    """Do what :func:`ncl_bench.evaluation.call.begin_submission` says; the noise is ratio, unit and seed."""
    spec = dataset_spec(dataset)
    # without a ratio nobody knows the noise: then it is a guess, and is listed under `assumed`
    noise, origin = _noise(spec, *noise_setting, root)
    filled_in = {"noise": origin} if origin else {}
    order, origin_of_order = _order(spec, order_from, root)
    if origin_of_order:
        filled_in["order_fingerprint.test"] = origin_of_order
    if scores:
        # before anything is written: a matrix of another shape leaves no folder behind
        open_scores(scores, spec, "test", similarity=similarity)
    files, form = _MATRIX, {"form": "matrix"}
    if len(scores) == 2 or similarity is not None:
        files, form = _EMBEDDINGS, {"form": "embeddings", "similarity": similarity or "cosine"}
    path, targets = folder / SUBMISSION_FILE, [folder / name for name in files.values()]
    # two processes that begin the same folder would mix their files
    with sole_owner(folder, nested=False):
        refuse_existing(path)
        # without scores there is nothing to copy: they lie in the folder already, or follow later
        for source, target in zip(scores, targets, strict=False):
            _copy(source, target)
        # FILL-IN for a file that is not there yet
        arrays = {
            key: {"file": target.name, "sha256": sha256_of_file(target) if target.is_file() else FILL_IN}
            for key, target in zip(files, targets, strict=True)
        }
        if all(target.is_file() for target in targets):
            filled_in["scores.test"] = f"sha256 of {' and '.join(files.values())}"
        content = {
            **_ASSUMED,
            "protocol_version": PROTOCOL_VERSION,
            "method": method,
            "backbone": FILL_IN,
            "dataset": spec.name,
            "order_fingerprint": {"test": order},
            "language": spec.languages[0],
            "tokenizer": spec.tokenizers[spec.languages[0]],
            "noise": noise,
            "hardware": FILL_IN,
            "scores": {"test": form | arrays},
            "recipes": [],
            "notes": "",
        }
        write_text(path, _template(folder, content, spec))
    left = {key: _EXPLAINED.get(key) or _described(key) for key in unfilled(content)}
    assumed = {key: content[key] for key in ORDER if key in _ASSUMED.keys() | {"language", "tokenizer"}}
    return Begun(
        written=(path, *(targets if scores else ())),
        filled_in=filled_in,
        left=left,
        assumed=assumed if origin else assumed | {"noise": noise["unit"]},
    )


def _template(folder: Path, content: Mapping[str, Any], spec: DatasetSpec) -> str:
    """Print every key with the description of its field above it; optional keys without a value are comments."""
    place = one_line(quote(str(folder)))
    n_images, n_captions = expected_shape(spec, "test")
    lines = [
        f"# A submission to ncl-bench. Replace every {FILL_IN}, put the score files beside this file, then run:",
        one_line(as_typed(f"#   ncl-bench submission check {place}")),
        one_line(as_typed(f"#   ncl-bench evaluate {place}")),
    ]
    for key in ORDER:
        if key in content:
            text = yaml.safe_dump({key: content[key]}, sort_keys=False, allow_unicode=True, width=110)
            lines += ["", f"# {_described(key)}"]
            if key == "scores":
                lines.append(
                    f"# {n_images:,} images (rows) and {n_captions:,} captions (columns); caption c belongs to image "
                    f"c // {spec.captions_per_image}."
                )
            lines.append(text.rstrip())
        elif key == "correspondence":
            lines += [
                "",
                f"# {_described(key)}",
                f"# {key}:",
                "#   file: clean_probability.npy",
                "#   sha256:",
            ]
    return "\n".join(lines) + "\n"


def _described(key: str) -> str:
    return str(Submission.model_fields[key.split(".", 1)[0]].description).replace("\n", " ")


def _order(spec: DatasetSpec, download: Path | None, root: Path | None) -> tuple[str, str]:
    """Order fingerprint of test, and its source; the source is empty if the fingerprint is unknown."""
    if download is not None:
        return order_of_download(spec, download, "test"), f"of the files in {download}"
    order = known_order(spec, "test", root)
    if order is None:
        return FILL_IN, ""
    return order, f"a fact of {spec.name}" if "test" in spec.order_fingerprints else "of the prepared dataset"


def _copy(source: Path, target: Path) -> None:
    """Copy an ``.npy`` file as it is, or the array of another file in its own dtype; overwrite no other scores."""
    if target.exists():  # for example after an interruption
        there, given = as_array(target), as_array(source)
        if there.dtype != given.dtype or not np.array_equal(there, given):
            raise SubmissionError(f"{target} exists already and is not {source}; remove one of the two")
        return
    with atomic_path(target) as temporary:
        if source.suffix == ".npy":
            shutil.copyfile(source, temporary)
        else:
            with temporary.open("wb") as stream:
                np.save(stream, as_array(source), allow_pickle=False)


def _noise(
    spec: DatasetSpec, ratio: float | None, unit: str | None, seed: int | None, root: Path | None
) -> tuple[dict[str, Any], str]:
    """The section on noise, and its source; the source is empty if no noise was requested."""
    refuse_noise(spec, ratio, unit, seed is not None)
    if spec.noise == "natural":
        return {"unit": "natural", "ratio": None}, f"a fact of {spec.name}"
    asked = Noise.asked(ratio, unit, seed)
    if asked.unit is None:
        return {"unit": "none", "ratio": 0}, ""
    _, record = train_noise(spec, asked.ratio, asked.unit, seed, root)
    facts = noise_of(record, spec).model_dump(exclude_none=True)
    facts["realised_ratio"] = round(record.realised_ratio, 6)
    return facts, f"drawn by {record.unit} with {'the standard ' if seed is None else ''}seed {record.seed}"
