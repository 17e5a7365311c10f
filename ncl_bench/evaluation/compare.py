"""Two submissions side by side: paired bootstrap over images of the difference of their rSum."""

from pathlib import Path

import numpy as np

from ncl_bench.data.spec import DatasetSpec
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation.evaluate import Opened, open_submission
from ncl_bench.evaluation.figures import plot_difference
from ncl_bench.evaluation.metrics import CUTOFFS, Float64Array, bootstrap_recalls, hits_per_image, interval
from ncl_bench.evaluation.protocol import fold_size, protocol_result, protocols_of, ranks_under
from ncl_bench.evaluation.ranks import Counted, Ranks
from ncl_bench.evaluation.results import Interval
from ncl_bench.schema import Record


class Difference(Record):
    """What may be said about two results under one protocol.

    Attributes:
        r_sums: of the first and the second.
        difference: first minus second.
        interval: 95 % bootstrap interval of the difference.
        verdict: which one is better, or that they cannot be told apart.
    """

    r_sums: tuple[float, float]
    difference: float
    interval: Interval
    verdict: str


def difference_samples(first: Ranks, second: Ranks, images_per_fold: int) -> Float64Array:
    """Differences of rSum over resamples of the same images for both, first minus second.

    Args:
        first: ranks of one submission.
        second: ranks of the other, on the same queries.
        images_per_fold: ``n_images`` without folds.

    Returns:
        float64 ``(1000,)``.
    """
    each = len(first.t2i) // len(first.i2t)
    queries = np.array([1] * len(CUTOFFS) + [each] * len(CUTOFFS))
    hits = hits_per_image(first) - hits_per_image(second)
    samples: Float64Array = bootstrap_recalls(hits, queries, images_per_fold).sum(axis=1)
    return samples


def compare(
    counted: tuple[Counted, Counted], spec: DatasetSpec, split: str, names: tuple[str, str] = ("A", "B")
) -> dict[str, Difference]:
    """Compare two results under every protocol of a split.

    Args:
        counted: ranks of both, on the same queries.
        spec: the dataset of both.
        split: ``test`` or ``dev``.
        names: what the verdict calls them.
    """
    found = {}
    for protocol in protocols_of(spec, split):
        first, second = (ranks_under(ranks, protocol) for ranks in counted)
        size = fold_size(protocol, len(first.i2t))
        low, high = interval(difference_samples(first, second, size))
        sums = tuple(protocol_result(ranks, size, intervals=False).r_sum for ranks in (first, second))
        verdict = (
            f"{names[0] if low > 0 else names[1]} is better"
            if low > 0 or high < 0
            else "cannot be told apart"
        )
        found[protocol] = Difference(
            r_sums=(sums[0], sums[1]), difference=sums[0] - sums[1], interval=(low, high), verdict=verdict
        )
    return found


def check_comparable(first: Opened, second: Opened, split: str) -> list[str]:
    """Refuse submissions that share no queries; say where they were trained differently.

    Raises:
        SubmissionError: the datasets differ, or one has no scores of the split.
    """
    if first.spec.name != second.spec.name:
        raise SubmissionError(
            f"{first.folder} is about {first.spec.name}, {second.folder} about {second.spec.name}; "
            "only results on one dataset can be compared"
        )
    for opened in (first, second):
        if split not in opened.sources:
            raise SubmissionError(
                f"{opened.folder} has no scores of {split}; it has: {', '.join(opened.sources)}"
            )
    notes = []
    for statement in (
        "noise",
        "networks",
        "extra_clean_data",
        "pretrained_encoder",
        "selection_split",
        "language",
    ):
        stated = [getattr(opened.submission, statement) for opened in (first, second)]
        if statement == "noise":
            stated = [(noise.unit, noise.ratio, noise.sha256) for noise in stated]
        if stated[0] != stated[1]:
            notes.append(f"the two differ in {statement}: {stated[0]!r} and {stated[1]!r}")
    return notes


def compare_folders(
    first: Path, second: Path, split: str, *, root: Path | None = None, plot: Path | None = None
) -> tuple[dict[str, Difference], list[str]]:
    """Compare two submission folders.

    Args:
        first: one submission.
        second: the other.
        split: ``test`` or ``dev``.
        root: folder of prepared datasets.
        plot: SVG file for the differences under the default protocol.

    Returns:
        Protocol to difference, and notes on what else differs.
    """
    opened: tuple[Opened, Opened] = (open_submission(first, root=root), open_submission(second, root=root))
    notes = check_comparable(*opened, split)
    counted = (opened[0].sources[split].count(), opened[1].sources[split].count())
    spec = opened[0].spec
    differences = compare(counted, spec, split, (str(first), str(second)))
    if plot is not None:
        protocol = protocols_of(spec, split)[0]
        ranks = [ranks_under(one, protocol) for one in counted]
        samples = difference_samples(ranks[0], ranks[1], fold_size(protocol, len(ranks[0].i2t)))
        plot_difference(plot, samples, (opened[0].submission.method, opened[1].submission.method))
    return differences, notes
