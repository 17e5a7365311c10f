"""Create the commented ``submission.yaml`` for a submitter to fill in, with the scores beside it."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import numpy as np
import yaml
from pydantic import ValidationError

from ncl_bench.data import dataset_spec, train_noise
from ncl_bench.data.order import order_of_download
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.errors import NoiseError, SubmissionError, first_problem, one_line
from ncl_bench.evaluation.claims import known_order
from ncl_bench.evaluation.evaluate import open_scores_of
from ncl_bench.evaluation.protocol import PROTOCOL_VERSION, expected_shape
from ncl_bench.evaluation.scores import Similarity, as_array
from ncl_bench.evaluation.submission import FILL_IN, SUBMISSION_FILE, unfilled
from ncl_bench.files import atomic_path, sha256_of_file, sole_owner, write_text
from ncl_bench.noise.draw import NoiseUnit, refuse_without_ratio
from ncl_bench.plugins import command_name
from ncl_bench.schema import Record
from ncl_bench.shown import Name

_TEMPLATE = """\
# A submission to ncl-bench. Replace every {fill}, put the score files beside this file, then run:
#   {command} submission check {folder}
#   {command} evaluate {folder}
protocol_version: {version}
method: {method}
paper: ""                  # link, or empty
code: ""                   # link, or empty
backbone: {fill}          # network that computes similarities, such as SGR
networks: 1                # networks whose similarities were averaged
dataset: {dataset}
order_fingerprint:         # sha256 of image ids and captions in order (docs/protocol.md)
  test: "{order}"
language: {language}
tokenizer: {tokenizer}
noise:
{noise}
training_seeds: [0]        # one per training run behind the scores
selection_split: dev       # where the checkpoint was chosen: dev, test, train, or none for the last epoch
extra_clean_data: ""       # clean pairs beyond the noisy training split, or empty
pretrained_encoder: ""     # encoder pre-trained on image-text pairs, such as CLIP ViT-B/32, or empty
hardware: {fill}          # such as 1 GPU of 24 GB
hours: null                # of training, all networks together
scores:
  test:
{scores}
# correspondence:          # optional: one clean probability per training caption
#   file: clean_probability.npy
#   sha256: "{fill}"
recipes: []                # recipes of ncl_bench itself that trained it, as `ncl-bench recipes` lists them
notes: ""
"""

_MATRIX = """\
    # {n_images:,} rows (images), {n_captions:,} columns (captions); caption c belongs to image c // {each}.
    # float16, float32 or float64, by numpy.save. For embeddings see
    # ncl-bench submission schema
    form: matrix
    matrix:
      file: test.npy
      sha256: "{sha256}"      # sha256sum test.npy"""
_EMBEDDINGS = """\
    # {n_images:,} images and {n_captions:,} captions; caption c belongs to image c // {each}.
    form: embeddings
    similarity: {similarity}
    images:
      file: test_images.npy
      sha256: "{sha256}"
    captions:
      file: test_captions.npy
      sha256: "{second_sha256}\""""

_EXPLAINED = {
    "backbone": "name of the network that computes similarities, such as SGR",
    "hardware": "what it was trained on, such as 1 GPU of 24 GB",
    "order_fingerprint.test": "--order-from FOLDER computes it from downloaded files of captions and ids, or --root "
    "FOLDER from the prepared dataset; its manifest.json holds it too",
    "scores.test.matrix.sha256": "sha256sum test.npy; --scores FILE copies a file and fills it in",
}
"""Where the submitter finds the value of each key left open."""
ASSUMED = (
    "paper",
    "code",
    "networks",
    "language",
    "tokenizer",
    "training_seeds",
    "selection_split",
    "extra_clean_data",
    "pretrained_encoder",
    "hours",
)
"""Keys with a usual default that may be wrong for this submission."""


class _Named(Record):
    method: Name


@dataclass(frozen=True)
class Begun:
    """A newly created submission folder.

    Attributes:
        written: written files, the statement first.
        filled_in: key to the source of its value.
        left: key to where the value can be found, for every key left to fill in.
        assumed: key to its default, which the submitter corrects if it is wrong.
    """

    written: tuple[Path, ...]
    filled_in: dict[str, str]
    left: dict[str, str]
    assumed: dict[str, object]


def begin_submission(
    folder: Path,
    method: str,
    dataset: str,
    *,
    scores: Sequence[Path] = (),
    similarity: Similarity = "cosine",
    noise_unit: NoiseUnit | None = None,
    noise_ratio: float | None = None,
    noise_seed: int | None = None,
    order_from: Path | None = None,
    root: Path | None = None,
) -> Begun:
    """Copy scores of the test split into a folder and write its ``submission.yaml``, as complete as possible.

    Args:
        folder: the submission folder, without a statement so far.
        method: name of the method.
        dataset: name of the dataset.
        scores: one similarity file, or two embedding files, images first; none if ``test.npy`` is already in the folder
            or follows later.
        similarity: similarity of embeddings.
        noise_unit: unit of the training noise (default: caption).
        noise_ratio: nominal ratio (default: clean pairs, or the natural noise of the dataset).
        noise_seed: noise seed (default: the standard seed).
        order_from: downloaded files of captions and ids, to compute the order fingerprint without features.
        root: folder of prepared datasets.

    Raises:
        DataError: the dataset is unknown, or its files are missing or damaged.
        NoiseError: the noise is refused.
        ScoresError: the scores cannot be read, or have the wrong type or shape for the test split.
        SubmissionError: the name cannot stand on the leaderboard, or the folder holds a statement already.
        NclBenchError: the folder cannot be written, or another process writes there.
    """
    spec = dataset_spec(dataset)
    if not method.strip():
        raise SubmissionError("--method is empty; give the name that the leaderboard shows")
    try:
        method = _Named(method=method).method
    except ValidationError as error:
        raise SubmissionError(f"--{first_problem(error)}") from None
    noise, origin = _noise(spec, noise_unit, noise_ratio, noise_seed, root)
    filled_in = {"noise": origin} if origin else {}
    order, origin_of_order = _order(spec, order_from, root)
    if origin_of_order:
        filled_in["order_fingerprint.test"] = origin_of_order
    if scores:
        open_scores_of(scores, spec, "test", similarity=similarity)
    names = ("test.npy",) if len(scores) < 2 else ("test_images.npy", "test_captions.npy")
    path = folder / SUBMISSION_FILE
    with sole_owner(folder, nested=False):
        _refuse_files(folder, [path, *(folder / name for name in names)], scores)
        for source, name in zip(scores, names, strict=False):
            _copy(source, folder / name)
        hashes = [sha256_of_file(folder / name) if (folder / name).is_file() else FILL_IN for name in names]
        if FILL_IN not in hashes:
            filled_in["scores.test"] = f"sha256 of {' and '.join(names)}"
        n_images, n_captions = expected_shape(spec, "test")
        facts = {"n_images": n_images, "n_captions": n_captions, "each": spec.captions_per_image}
        form = _MATRIX if len(names) == 1 else _EMBEDDINGS
        text = _TEMPLATE.format(
            fill=FILL_IN,
            command=one_line(command_name()),
            folder=one_line(quote(str(folder))),
            version=PROTOCOL_VERSION,
            method=yaml.safe_dump(method, default_style='"').strip(),
            dataset=spec.name,
            order=order,
            language=spec.languages[0],
            tokenizer=spec.tokenizers[spec.languages[0]],
            noise=noise,
            scores=form.format(sha256=hashes[0], second_sha256=hashes[-1], similarity=similarity, **facts),
        )
        write_text(path, text)
    content = yaml.safe_load(text)
    return Begun(
        written=(path, *(folder / name for name in names if scores)),
        filled_in=filled_in,
        left={key: _EXPLAINED[key] for key in unfilled(content)},
        assumed={key: content[key] for key in ASSUMED}
        | ({} if origin else {"noise": content["noise"]["unit"]}),
    )


def _order(spec: DatasetSpec, download: Path | None, root: Path | None) -> tuple[str, str]:
    """Order fingerprint of test, and its source; the source is empty if the fingerprint is unknown."""
    if download is not None:
        return order_of_download(spec, download, "test"), f"of the files in {download}"
    order = known_order(spec, "test", root)
    if order is None:
        return FILL_IN, ""
    return order, f"a fact of {spec.name}" if "test" in spec.order_fingerprints else "of the prepared dataset"


def _refuse_files(folder: Path, targets: list[Path], scores: Sequence[Path]) -> None:
    """Refuse to overwrite any file; scores already in place are fine."""
    if targets[0].exists():
        raise SubmissionError(f"{targets[0]} exists already; remove it or choose another folder with --to")
    for source, target in zip(scores, targets[1:], strict=False):
        if target.exists() and not _is_copy(source, target):
            raise SubmissionError(f"{target} exists already and is not {source}; remove one of the two")


def _is_copy(source: Path, target: Path) -> bool:
    """Whether the scores are already in place, for example after an interruption."""
    there, given = as_array(target), as_array(source)
    return there.dtype == given.dtype and np.array_equal(there, given)


def _copy(source: Path, target: Path) -> None:
    """Copy an ``.npy`` file as it is, or the array of another file in its own dtype."""
    if target.exists():
        return
    with atomic_path(target) as temporary:
        if source.suffix == ".npy":
            shutil.copyfile(source, temporary)
        else:
            with temporary.open("wb") as stream:
                np.save(stream, as_array(source), allow_pickle=False)


def _noise(
    spec: DatasetSpec, unit: NoiseUnit | None, ratio: float | None, seed: int | None, root: Path | None
) -> tuple[str, str]:
    """The section on noise, and its source; the source is empty if no noise was requested."""
    if spec.noise == "natural":
        if ratio or (unit, seed) != (None, None):
            raise NoiseError(
                f"{spec.name} carries natural noise, and synthetic noise on top of it is no cell of the protocol; "
                "leave --noise-ratio, --noise-unit and --noise-seed out"
            )
        return "  unit: natural\n  ratio: null", f"a fact of {spec.name}"
    if not ratio:
        refuse_without_ratio(unit, seed)
        return (
            "  unit: none               # caption, image or similar; none for clean pairs\n  ratio: 0",
            "",
        )
    _, record = train_noise(spec, ratio, unit or "caption", seed, root)
    text = (
        f"  unit: {record.unit}\n  ratio: {record.ratio}\n  seed: {record.seed}\n"
        f'  sha256: "{record.sha256}"\n  realised_ratio: {record.realised_ratio:.6f}'
    )
    return text, f"drawn by {unit} with {'the standard ' if seed is None else ''}seed {record.seed}"
