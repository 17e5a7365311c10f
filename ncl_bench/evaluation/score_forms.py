"""The forms in which scores may be given: a matrix, embeddings, rankings, or ranks."""

from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, field_validator

from ncl_bench.schema import FileName, Record, Sha256


class ArrayFile(Record):
    """An ``.npy`` file of the submission.

    Attributes:
        file: path below the submission folder, with ``/``.
        sha256: of the file, in hex.
    """

    file: FileName
    sha256: Sha256

    @field_validator("file")
    @classmethod
    def _is_an_array(cls, value: str) -> str:
        if PurePosixPath(value).suffix != ".npy":
            raise ValueError("it must be an .npy file")
        return value


class Order(Record):
    """The order of the split's items, where the submitter states it; it is compared with the dataset's.

    Attributes:
        image_ids: ``(n_images,)``, ids as in the prepared dataset.
        caption_ids: ``(n_captions,)``, numbers of the captions in the clean pairing.
    """

    image_ids: ArrayFile | None = None
    caption_ids: ArrayFile | None = None


class MatrixScores(Record):
    """Similarities, float16, float32 or float64, ``(n_images, n_captions)``: images as rows."""

    form: Literal["matrix"] = "matrix"
    matrix: ArrayFile
    order: Order = Order()


class EmbeddingScores(Record):
    """A pair of embedding arrays, ``(n_images, dim)`` and ``(n_captions, dim)``.

    Their cosine or dot product is computed in float64 and rounded to float32.
    """

    form: Literal["embeddings"] = "embeddings"
    similarity: Literal["cosine", "dot"]
    images: ArrayFile
    captions: ArrayFile
    order: Order = Order()


class RankingScores(Record):
    """Complete rankings, integers, best first.

    Attributes:
        i2t: ``(n_images, n_captions)``, every row a permutation of the captions.
        t2i: ``(n_captions, n_images)``, every row a permutation of the images.
    """

    form: Literal["rankings"] = "rankings"
    i2t: ArrayFile
    t2i: ArrayFile
    order: Order = Order()


class RankPair(Record):
    """Ranks from 1, integers, ties counted against the model: ``(n_images,)`` and ``(n_captions,)``."""

    i2t: ArrayFile
    t2i: ArrayFile


class RankScores(Record):
    """Per-query ranks.

    Attributes:
        scores_sha256: of the scores that the ranks were counted on.
        ranks: ``whole`` among all items of the split; ``folds`` among the items of the query's fold, for a
            dataset with a folded protocol.
    """

    form: Literal["ranks"] = "ranks"
    scores_sha256: Sha256
    ranks: dict[Literal["whole", "folds"], RankPair]
    order: Order = Order()

    @field_validator("ranks")
    @classmethod
    def _has_whole(cls, value: dict[str, RankPair]) -> dict[str, RankPair]:
        if "whole" not in value:
            raise ValueError("ranks among all items are missing; add whole")
        return value


Scores = Annotated[MatrixScores | EmbeddingScores | RankingScores | RankScores, Field(discriminator="form")]
