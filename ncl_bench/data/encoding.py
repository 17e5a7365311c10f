"""``features.json``: how a user's images were encoded. ``ncl-bench features`` writes it next to the features."""

from typing import Literal

from ncl_bench.foreign import reading
from ncl_bench.schema import Record, Sha256

ENCODING_FILE = "features.json"


class Preprocessing(Record):
    """How an image enters the encoder: whole, upright, in RGB on white, squeezed into a square.

    Attributes:
        size: side of the square, in pixels.
        interpolation: interpolation of the resizing.
        mean: subtracted from the RGB values 0 ... 255.
        std: divides the values after that.
    """

    size: int
    interpolation: str
    mean: tuple[float, ...]
    std: tuple[float, ...]


class Projection(Record):
    """Projection of features on their principal components.

    Attributes:
        dim: number of components.
        fitted_on: number of train images used to fit, with all their regions.
        variance: share of the variance kept, in [0, 1].
    """

    dim: int
    fitted_on: int
    variance: float


class Encoding(Record):
    """How images became features.

    Attributes:
        tool: name and version of the writing program.
        key: sha256 of the settings and of the images' names, sizes and times; identifies a repeated command.
        encoder: name of the network.
        weights: file or published name of its weights.
        weights_sha256: hash of that file; for weights fetched by timm, of the names and values of all tensors.
        preprocessing: preprocessing of the images.
        grid: the encoder's grid is averaged to ``grid x grid`` regions, row by row.
        feature_dim: dimension of a region feature.
        pca: projection of the features, or None.
        dtype: number type of the features.
        batch_size: images per batch; another size may round sums differently.
        device: device that computed the features.
        versions: versions of the libraries.
        splits: origin of the splits, in words.
        images: number of images of each split.
        skipped: image that could not be read to the reason; it is in no split.
    """

    tool: str
    key: Sha256
    encoder: str
    weights: str
    weights_sha256: Sha256
    preprocessing: Preprocessing
    grid: int
    feature_dim: int
    pca: Projection | None
    dtype: Literal["float32", "float16"]
    batch_size: int
    device: str
    versions: dict[str, str]
    splits: str
    images: dict[str, int]
    skipped: dict[str, str]

    def in_words(self) -> str:
        """Describe the encoding for a card."""
        seen, regions = self.preprocessing, self.grid**2
        sentences = [
            f"Made by {self.tool} with the encoder {self.encoder}, weights {self.weights} (sha256 "
            f"`{self.weights_sha256}`).",
            f"Each image is squeezed into {seen.size} x {seen.size} pixels ({seen.interpolation}), and the encoder's "
            f"grid averaged to {self.grid} x {self.grid}: {regions} region{'s' if regions > 1 else ''}.",
        ]
        if self.pca:
            sentences.append(
                f"Features are projected on {self.pca.dim} principal components of the training images, which keep "
                f"{100 * self.pca.variance:.1f} % of the variance."
            )
        if self.skipped:
            n = len(self.skipped)
            sentences.append(f"{n:,} image{'s' if n > 1 else ''} could not be read and are left out.")
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return " ".join([*sentences, f"Computed on {self.device} with {versions}."])


def parse_encoding(content: bytes, name: str) -> Encoding:
    """Parse ``features.json``.

    Args:
        content: the file's bytes.
        name: name of the file in errors.

    Raises:
        DataError: the content is damaged.
    """
    with reading(name, fix="make the features again with `ncl-bench features`"):
        return Encoding.model_validate_json(content)
