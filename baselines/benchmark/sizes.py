"""How large the measured workloads are."""

from collections.abc import Iterable
from typing import Annotated, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ncl_bench.errors import NclBenchError, first_problem

Count = Annotated[int, Field(ge=1)]
Several = Annotated[int, Field(ge=2)]


class Sizes(BaseModel):
    """Sizes of the workloads; the defaults are those that the papers trained and scored with.

    Attributes:
        batch: pairs of a training step.
        memory_batch: pairs of a step whose peak memory is measured.
        imram_batch: pairs of a step of IMRAM, whose loop multiplies every vector that it finds.
        imram_images: scored with IMRAM.
        scan_images: scored with SCAN, which compares faster than it encodes.
        memory_images: scored where the peak memory of scoring is measured.
        method_batch: pairs of a step of a method.
        method_steps: plain steps of an epoch of a method.
        method_rounds: passes of a method's epoch.
        regions: regions per image.
        feature_dim: of a region feature.
        embed_size: of the joint space.
        word_dim: of a word embedding.
        sim_dim: of a similarity node.
        vocabulary: words.
        shortest: words of the shortest caption, start and end included.
        longest: words of the longest caption.
        images: scored.
        captions_per_image: scored.
        batches: batch sizes for the growth of a step.
        image_counts: numbers of images for the growth of scoring.
        most_images: scored in a single pass.
        epoch_steps: steps of an epoch.
        matrix: rows and columns of the matrix product that gives the device's peak.
        rounds: most passes of each variant.
        seconds: measured ones, after which a measurement starts no further round.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch: Several = 128
    memory_batch: Several = 128
    imram_batch: Several = 64
    imram_images: Several = 100
    scan_images: Several = 1000
    memory_images: tuple[Several, ...] = (1000, 5000)
    method_batch: Several = 128
    method_steps: Several = 8
    method_rounds: Several = 4
    regions: Several = 36
    feature_dim: Count = 2048
    embed_size: Several = 1024
    word_dim: Count = 300
    sim_dim: Count = 256
    vocabulary: Several = 8481
    shortest: Count = 8
    longest: Count = 20
    images: Several = 1000
    captions_per_image: Count = 5
    batches: tuple[Several, ...] = (32, 64, 128, 256)
    image_counts: tuple[Several, ...] = (250, 500, 1000)
    most_images: Several = 5000
    epoch_steps: Several = 20
    matrix: Count = 8192
    rounds: Several = 7
    seconds: Annotated[float, Field(gt=0)] = 15.0

    def of(self, network: str) -> Self:
        """Those for a network, by its name."""
        if network == "scan":
            return self.model_copy(update={"images": self.scan_images})
        if network == "imram":
            fewer = {"batch": self.imram_batch, "memory_batch": self.imram_batch, "images": self.imram_images}
            return self.model_copy(update=fewer)
        return self

    def changed(self, settings: Iterable[str]) -> Self:
        """Other sizes where the settings, such as ``batch=64`` or ``batches=[8,16]``, say so.

        Raises:
            NclBenchError: no such size, or a value out of range.
        """
        content = self.model_dump()
        for setting in settings:
            name, _, value = setting.partition("=")
            try:
                content[name] = yaml.safe_load(value)
            except yaml.YAMLError:
                raise NclBenchError(f"--size {setting}: expected a size such as batch=64") from None
        try:
            return self.model_validate(content)
        except ValidationError as error:
            raise NclBenchError(f"--size: {first_problem(error)}") from None


PUBLISHED = Sizes()
SMALL = Sizes(
    batch=32,
    memory_batch=32,
    imram_batch=8,
    imram_images=8,
    scan_images=80,
    memory_images=(52, 104),
    method_batch=16,
    method_steps=2,
    method_rounds=3,
    images=20,
    batches=(4, 8, 16),
    image_counts=(5, 10, 20),
    most_images=40,
    epoch_steps=4,
    matrix=1024,
    rounds=4,
    seconds=10.0,
)
"""For a CPU: the networks at published size, with fewer pairs."""
