"""``features.json``: how a user's images were encoded. ``ncl-bench features`` writes it next to the features."""

from typing import Literal

from pydantic import ValidationError

from ncl_bench.errors import DataError, first_problem
from ncl_bench.schema import Record, Sha256

ENCODING_FILE = "features.json"


class Preprocessing(Record):
    """What an encoder sees of an image: all of it, upright, in RGB on white, squeezed into a square.

    Attributes:
        size: sides of the square, in pixels.
        interpolation: of the resizing.
        mean: subtracted from the RGB values 0 ... 255.
        std: divides them afterwards.
    """

    size: int
    interpolation: str
    mean: tuple[float, ...]
    std: tuple[float, ...]


class Projection(Record):
    """Principal components that the features are projected on.

    Attributes:
        dim: how many.
        fitted_on: images of train, all regions of each.
        variance: share of the variance that they keep, in [0, 1].
    """

    dim: int
    fitted_on: int
    variance: float


class Encoding(Record):
    """How images became features.

    Attributes:
        tool: name and version of what wrote them.
        key: sha256 of the settings and of the images' names, sizes and times; tells a repeated command.
        encoder: name of the network.
        weights: file or published name of its weights.
        weights_sha256: of that file; where timm fetched them, of names and values of all tensors.
        preprocessing: of the images.
        grid: the encoder's grid was averaged to ``grid x grid`` regions, row by row.
        feature_dim: numbers per region.
        pca: projection of the features, or None.
        dtype: of the features.
        batch_size: images at a time; sums may round otherwise with another one.
        device: that computed them.
        versions: of the libraries.
        splits: where they come from, in words.
        images: of each split.
        skipped: image that could not be read to the reason; they are in no split.
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
        """What a card says of it."""
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
        versions = ", ".join(f"{name} {found}" for name, found in self.versions.items())
        return " ".join([*sentences, f"Computed on {self.device} with {versions}."])


def parse_encoding(content: bytes, name: str) -> Encoding:
    """What a ``features.json`` says.

    Args:
        content: the file's bytes.
        name: what to call the file in an error.

    Raises:
        DataError: it is damaged.
    """
    try:
        return Encoding.model_validate_json(content)
    except ValidationError as error:
        raise DataError(
            f"{name}: {first_problem(error)}; make the features again with `ncl-bench features`"
        ) from None
