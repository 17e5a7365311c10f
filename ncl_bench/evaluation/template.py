"""The commented ``submission.yaml`` that a submitter fills in."""

from pathlib import Path
from shlex import quote

from ncl_bench.data import dataset_spec
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.errors import SubmissionError, one_line
from ncl_bench.evaluation.claims import local_split
from ncl_bench.evaluation.protocol import PROTOCOL_VERSION, expected_shape
from ncl_bench.evaluation.submission import SUBMISSION_FILE
from ncl_bench.files import sha256_of_file, sole_owner, write_text
from ncl_bench.noise.draw import NoiseUnit, draw_noise
from ncl_bench.schema import FILL_IN

_TEMPLATE = """\
# A submission to ncl-bench. Replace every {fill}, put the score file beside this file, then run:
#   ncl-bench submission check {folder}
#   ncl-bench evaluate {folder}
protocol_version: {version}
method: {method}
paper: ""                  # link, or empty
code: ""                   # link, or empty
backbone: {fill}          # network that computes similarities, such as SGR
networks: 1                # networks whose similarities were averaged
dataset: {dataset}
fingerprint:               # of the prepared dataset (its manifest.json), one per evaluated split
  test: "{fingerprint}"
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
    # {n_images:,} rows (images), {n_captions:,} columns (captions); caption c belongs to image c // {each}.
    # float16, float32 or float64, by numpy.save. Other forms (embeddings, rankings, ranks) are
    # described by: ncl-bench submission schema
    form: matrix
    matrix:
      file: test.npy
      sha256: "{sha256}"      # sha256sum test.npy
# correspondence:          # optional: one clean probability per training caption
#   file: clean_probability.npy
#   sha256: "{fill}"
recipes: []                # recipes of ncl_bench itself that trained it, such as ncr/flickr30k_sgr
notes: ""
"""


def template(
    folder: Path,
    method: str,
    dataset: str,
    *,
    noise_unit: NoiseUnit = "caption",
    noise_ratio: float = 0.0,
    noise_seed: int | None = None,
    root: Path | None = None,
) -> str:
    """Text of a template, with noise, fingerprint and the hash of an existing ``test.npy``.

    Args:
        folder: where the template will lie.
        method: name of the method.
        dataset: its name.
        noise_unit: of the training noise.
        noise_ratio: nominal; 0 for clean pairs.
        noise_seed: the standard seed by default.
        root: folder of prepared datasets.

    Raises:
        DataError: the dataset is unknown.
        NoiseError: the noise is refused.
    """
    import yaml

    spec = dataset_spec(dataset)
    local = local_split(spec, "test", root)
    n_images, n_captions = expected_shape(spec, "test")
    scores = folder / "test.npy"
    return _TEMPLATE.format(
        fill=FILL_IN,
        folder=one_line(quote(str(folder))),
        version=PROTOCOL_VERSION,
        method=yaml.safe_dump(method, default_style='"').strip(),
        dataset=spec.name,
        fingerprint=FILL_IN if local is None else local.fingerprint,
        language=spec.languages[0],
        tokenizer=spec.tokenizers[spec.languages[0]],
        noise=_noise(spec, noise_unit, noise_ratio, noise_seed),
        n_images=n_images,
        n_captions=n_captions,
        each=spec.captions_per_image,
        sha256=sha256_of_file(scores) if scores.is_file() else FILL_IN,
    )


def _noise(spec: DatasetSpec, unit: NoiseUnit, ratio: float, seed: int | None) -> str:
    if spec.noise == "natural":
        return "  unit: natural\n  ratio: null"
    if not ratio:
        return "  unit: none               # or caption, or image, as the noise was made\n  ratio: 0"
    _, record = draw_noise(spec, noise_ratio=ratio, noise_unit=unit, seed=seed)
    return (
        f"  unit: {record.unit}\n  ratio: {record.ratio}\n  seed: {record.seed}\n"
        f'  sha256: "{record.sha256}"\n  realised_ratio: {record.realised_ratio:.6f}'
    )


def write_template(folder: Path, text: str) -> Path:
    """Write a template into a folder that holds none.

    Raises:
        SubmissionError: there is a ``submission.yaml`` already.
        NclBenchError: the place cannot be written, or another process writes there.
    """
    path = folder / SUBMISSION_FILE
    with sole_owner(folder):
        if path.exists():
            raise SubmissionError(f"{path} exists already; remove it or choose another folder with --to")
        write_text(path, text)
    return path
