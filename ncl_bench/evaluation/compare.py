"""Compare two sides of submissions by their rSum, and by their agreement with people where people judged pairs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ncl_bench.data.spec import DatasetSpec
from ncl_bench.errors import SubmissionError, known_name, refuse_difference
from ncl_bench.evaluation.difference import Hits, difference_interval
from ncl_bench.evaluation.evaluate import Opened, open_submission
from ncl_bench.evaluation.metrics import CUTOFFS, bootstrap_recalls, hits_per_image, intervals
from ncl_bench.evaluation.pages import check_picture, plot_difference, plot_runs
from ncl_bench.evaluation.people import MEASURES, Agreement, agreement_interval, agreements, judged_scores
from ncl_bench.evaluation.protocol import (
    count,
    expected_shape,
    fold_size,
    local_judgements,
    protocols_of,
    ranks_under,
)
from ncl_bench.evaluation.ranks import Counted, Ranks
from ncl_bench.evaluation.results import Interval
from ncl_bench.evaluation.submission import Split
from ncl_bench.extras import require
from ncl_bench.files import AnyPath
from ncl_bench.html import html_lines, html_table
from ncl_bench.npy import Float64Array
from ncl_bench.progress import Progress, plain_text
from ncl_bench.schema import Record

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

STATEMENTS = (
    "method",
    "backbone",
    "noise",
    "networks",
    "extra_clean_data",
    "pretrained_encoder",
    "selection_split",
    "language",
)
"""Statements that must agree within a side; the first two must agree between the sides too."""


class Difference(Record):
    """Comparison of two sides by rSum under one protocol, or by one measure of agreement with people.

    Attributes:
        values: rSum or measure of the first and the second side, each the mean over its training runs.
        spreads: standard deviation over the runs of each side; None for a single run.
        difference: first minus second.
        interval: 95 % interval of the difference. Bootstrap over images if both sides have one run; otherwise over
            training runs and images. Of agreement with people: over images, captions and training runs.
        verdict: which side is better, or that they do not differ significantly.
    """

    values: tuple[float, float]
    spreads: tuple[float | None, float | None]
    difference: float
    interval: Interval
    verdict: str


class Comparison(Record):
    """Comparison of two sides of submissions.

    Attributes:
        names: of the two sides.
        differences: protocol, or measure of agreement with people, to difference.
        notes: what else differs between the sides, and what the test cannot show.
    """

    names: tuple[str, str]
    differences: dict[str, Difference]
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """One line per difference: which side is better, or that they do not differ significantly."""
        return [f"{name}: {between.verdict}" for name, between in self.differences.items()]

    def to_json(self) -> str:
        """Return JSON without NaN."""
        return self.model_dump_json(indent=2)

    def to_pandas(self) -> "pd.DataFrame":
        """Return a frame with one row per protocol, or measure of agreement with people."""
        require("data", "pandas", needed_by="to_pandas")
        import pandas as pd

        rows = [
            (_title(name), *between.values, between.difference, *between.interval, between.verdict)
            for name, between in self.differences.items()
        ]
        columns = ["measure", "first", "second", "difference", "low", "high", "verdict"]
        return pd.DataFrame(rows, columns=columns)

    def __rich__(self) -> "Table":
        """A table of at most 80 columns: the sides are rows, so their names stay whole."""
        from rich.table import Column, Table

        table = Table("", Column("side", overflow="fold"), Column("value", justify="right", no_wrap=True))
        for name, between in self.differences.items():
            first, second, difference, interval = _texts(name, between)
            table.add_row(_title(name), self.names[0], first)
            table.add_row("", self.names[1], second)
            table.add_row("", "difference\n95 % interval", f"{difference}\n{interval}", end_section=True)
        return table

    def __str__(self) -> str:
        lines = [*self.lines(), *(f"note: {note}" for note in self.notes)]
        return plain_text(self, width=80) + "\n".join(lines)

    def _repr_html_(self) -> str:
        """HTML table for notebooks, followed by the notes."""
        rows = [(_title(name), *_texts(name, between)) for name, between in self.differences.items()]
        table = html_table(rows, ("", *self.names, "difference", "95 % interval"))
        return table + html_lines((*self.lines(), *self.notes))


def _title(name: str) -> str:
    return name.replace("_", " ") if name in MEASURES else f"rSum, {name}"


def _texts(name: str, between: Difference) -> tuple[str, str, str, str]:
    """The values of both sides, their difference and its interval, as they are shown."""
    digits = 3 if name.endswith("auroc") else 1
    first, second = (
        f"{value:.{digits}f}" if spread is None else f"{value:.{digits}f} ± {spread:.{digits}f}"
        for value, spread in zip(between.values, between.spreads, strict=True)
    )
    low, high = between.interval
    return first, second, f"{between.difference:+.{digits}f}", f"{low:+.{digits}f} to {high:+.{digits}f}"


def difference_samples(first: Ranks, second: Ranks, images_per_fold: int) -> Float64Array:
    """Bootstrap the rSum difference, first minus second, with the same resampled images for both.

    Args:
        first: ranks of one submission.
        second: ranks of the other, for the same queries.
        images_per_fold: images per fold; ``n_images`` without folds.

    Returns:
        float64 ``(1000,)``.
    """
    each = len(first.t2i) // len(first.i2t)
    queries = np.array([1] * len(CUTOFFS) + [each] * len(CUTOFFS))
    # paired: recalls are linear in the hits, so the bootstrap of the differences is that of the difference
    hits = hits_per_image(first) - hits_per_image(second)
    samples: Float64Array = bootstrap_recalls(hits, queries, images_per_fold).sum(axis=1)
    return samples


def compare_counted(
    sides: Sequence[Sequence[Counted]],
    spec: DatasetSpec,
    split: Split,
    names: tuple[str, str] = ("A", "B"),
) -> dict[str, Difference]:
    """Compare two sides under every protocol of a split.

    Args:
        sides: ranks of every training run of each side, for the same queries.
        spec: the dataset.
        split: ``test`` or ``dev``.
        names: names of the two sides in the verdict.
    """
    differences = {}
    for protocol in protocols_of(spec, split):
        first, second = (_parts(side, spec, protocol) for side in sides)
        size = fold_size(protocol, first.shape[1])
        # two models and no spread over seeds: the images are all that varies
        if len(first) == len(second) == 1:
            a, b = (ranks_under(side[0], protocol) for side in sides)
            low, high = intervals(difference_samples(a, b, size)[:, None])[0]
        else:
            low, high = difference_interval(first, second, size)
        differences[protocol] = _difference(first, second, (low, high), names)
    return differences


def _difference(
    first: Float64Array, second: Float64Array, interval: Interval, names: tuple[str, str]
) -> Difference:
    """Describe a difference of two sides, ``(n_runs, n_images)`` contributions each."""
    low, high = interval
    better = names[0] if low > 0 else names[1] if high < 0 else None
    return Difference(
        values=(float(first.mean()), float(second.mean())),
        spreads=(_spread(first), _spread(second)),
        difference=float(first.mean() - second.mean()),
        interval=interval,
        verdict="no significant difference" if better is None else f"{better} is better",
    )


def compare_agreement(
    sides: Sequence[Sequence[Mapping[str, Agreement]]], names: tuple[str, str] = ("A", "B")
) -> dict[str, Difference]:
    """Compare two sides by their agreement with people.

    Args:
        sides: measures of every training run of each side, from :func:`ncl_bench.evaluation.people.agreements`.
        names: names of the two sides in the verdict.
    """
    differences = {}
    for name in sides[0][0]:
        runs = [[run[name] for run in side] for side in sides]
        first, second = (np.array([[run.value] for run in side]) for side in runs)
        differences[name] = _difference(first, second, agreement_interval(runs[0], runs[1]), names)
    return differences


def _parts(side: Sequence[Counted], spec: DatasetSpec, protocol: str) -> Float64Array:
    """Contribution of each image to the rSum of each run, float64 ``(n_runs, n_images)``."""
    hits = [hits_per_image(ranks_under(counted, protocol)) for counted in side]
    size = fold_size(protocol, len(hits[0]))
    return np.stack([Hits(each, spec.captions_per_image, size).parts() for each in hits])


def _spread(parts: Float64Array) -> float | None:
    return None if len(parts) == 1 else float(parts.mean(axis=1).std(ddof=1))


def check_comparable(sides: Sequence[Sequence[Opened]], split: Split) -> list[str]:
    """Refuse submissions on different queries; note every other difference besides the method."""
    first, *others = [opened for side in sides for opened in side]
    for other in others:
        dataset = {"dataset": (other.spec.name, first.spec.name)}
        refuse_difference(other.folder, dataset, "compare results on one dataset", SubmissionError)
    seen: dict[tuple[object, ...], Path] = {}
    for opened in (first, *others):
        known_name(f"split of {opened.folder}", split, opened.sources, SubmissionError)
        # a run given twice would look like two that agree, or like two methods that do not differ
        scores = opened.submission.scores[split]
        same = getattr(scores, "similarity", ""), *(file.sha256 for file in scores.files)
        if same in seen:
            raise SubmissionError(
                f"{opened.folder} holds the scores of {seen[same]}; every training run counts once"
            )
        seen[same] = opened.folder
    return [*_differing(sides), *_runs_note(sides)]


def _differing(sides: Sequence[Sequence[Opened]]) -> list[str]:
    notes = []
    for statement in STATEMENTS:
        stated = [sorted({_stated(opened, statement) for opened in side}) for side in sides]
        notes += [
            f"the {place} side mixes submissions of another {statement}: {' and '.join(values)}"
            for place, values in zip(("first", "second"), stated, strict=True)
            if len(values) > 1
        ]
        if stated[0] != stated[1] and statement not in ("method", "backbone"):
            notes.append(
                f"the two differ in {statement}: {' and '.join(', '.join(values) for values in stated)}"
            )
    return notes


def _stated(opened: Opened, statement: str) -> str:
    value = getattr(opened.submission, statement)
    # the facts that make two noises the same; who published it is not one
    if statement == "noise":
        return f"{value.unit} {value.ratio:g} (sha256 {value.sha256[:12]})" if value.sha256 else value.unit
    return repr(value)


def _runs_note(sides: Sequence[Sequence[Opened]]) -> list[str]:
    """Note what a side with a single training run can and cannot show."""
    counts = [len(side) for side in sides]
    if counts == [1, 1]:
        return [
            "with one training run per side, this compares two trained models, not their methods: runs of one method "
            "differ from seed to seed; compare several: ncl-bench compare A0 A1 A2 vs B0 B1 B2"
        ]
    alone = "a side with one training run stands for that model alone: how far its method's runs differ is not known"
    return [alone] if 1 in counts else []


def compared(
    folders: Sequence[Sequence[AnyPath]],
    split: Split,
    plot: Path | None,
    root: Path | None,
    progress: Progress,
) -> Comparison:
    """Compare two sides of at least one submission folder each; see :func:`ncl_bench.evaluation.call.compare`."""
    if not all(folders):
        raise SubmissionError("a side of the comparison is empty, expected at least one submission folder")
    if plot is not None:
        check_picture(plot)
    sides = [[open_submission(Path(folder), root=root) for folder in side] for side in folders]
    notes, spec = check_comparable(sides, split), sides[0][0].spec
    first, second = (str(side[0]) + (f" and {len(side) - 1} more" if side[1:] else "") for side in folders)
    with progress("count ranks", expected_shape(spec, split)[0] * sum(map(len, sides))) as on_rows:
        counted = [[count(opened.sources[split], spec, split, on_rows) for opened in side] for side in sides]
    differences = compare_counted(counted, spec, split, (first, second))
    judgements = local_judgements(spec, root) if split == "test" else {}
    if judgements:
        scores = [[opened.sources["test"][0] for opened in side] for side in sides]
        measures = [
            [agreements(judged_scores(one, judgements), judgements, one.shape) for one in side]
            for side in scores
        ]
        differences |= compare_agreement(measures, (first, second))
    if plot is not None:
        methods, protocol = [side[0].submission.method for side in sides], protocols_of(spec, split)[0]
        if len(counted[0]) == len(counted[1]) == 1:
            a, b = (ranks_under(side[0], protocol) for side in counted)
            plot_difference(plot, difference_samples(a, b, fold_size(protocol, len(a.i2t))), methods)
        else:
            plot_runs(plot, [_parts(side, spec, protocol).mean(axis=1) for side in counted], methods)
    return Comparison(names=(first, second), differences=differences, notes=tuple(notes))
