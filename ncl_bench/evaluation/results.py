"""Typed results of an evaluation, with a table, a dict, JSON without NaN, and pandas."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from ncl_bench.errors import SubmissionError, known_name
from ncl_bench.evaluation.detection import Separation
from ncl_bench.evaluation.metrics import RECALLS
from ncl_bench.extras import require
from ncl_bench.files import write_text
from ncl_bench.foreign import readable, reading
from ncl_bench.html import html_lines, html_table
from ncl_bench.progress import plain_text
from ncl_bench.schema import Record

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console, ConsoleOptions
    from rich.table import Table

RESULT_FILE = "result.json"

Interval = tuple[float, float]


class DirectionResult(Record):
    """One direction of retrieval.

    Attributes:
        r1: percentage of queries with rank 1; ``r5`` and ``r10`` likewise.
        median_rank: rounded down; averaged over folds.
        mean_rank: averaged over folds.
        tied_queries: queries whose rank depends on ties; None if scores are unknown.
        optimistic: recalls if every tie counted for the model; ``r1`` to ``r10`` count ties against it.
        intervals: 95 % interval of each recall; None if not requested.
    """

    r1: float
    r5: float
    r10: float
    median_rank: float
    mean_rank: float
    queries: int
    tied_queries: int | None = None
    optimistic: dict[str, float] | None = None
    intervals: dict[str, Interval] | None = None


class ProtocolResult(Record):
    """Result under one protocol.

    Attributes:
        i2t: image queries.
        t2i: caption queries.
        r_sum: sum of the six recalls, from unrounded values.
        r_sum_interval: its 95 % interval; None if not requested.
        r_sum_optimistic: rSum if every tie counted for the model; None if scores are unknown.
        folds: number of folds that each metric is averaged over.
    """

    i2t: DirectionResult
    t2i: DirectionResult
    r_sum: float
    r_sum_interval: Interval | None = None
    r_sum_optimistic: float | None = None
    images: int
    captions: int
    folds: int = 1

    def recalls(self) -> dict[str, float]:
        """The six recalls and ``r_sum`` by name, such as ``i2t_r1``."""
        # i2t_r1 is r1 of i2t
        values = {name: float(getattr(getattr(self, name[:3]), name[4:])) for name in RECALLS}
        return values | {"r_sum": self.r_sum}


class PeopleResult(Record):
    """One measure of agreement with people's judgements (:mod:`ncl_bench.evaluation.people`).

    Attributes:
        value: rank correlation times 100, or AUROC in [0, 1].
        interval: 95 % interval over images and captions; None if not requested.
        printed: a value that a paper prints for the same pairs, with its model, as a reference; None if there is none.
        ceiling: the value of the people's own mean; None if it is not known.
        persons: the value of each person against the mean of the others; empty if it is not known.
    """

    value: float
    interval: Interval | None = None
    printed: tuple[str, float] | None = None
    ceiling: float | None = None
    persons: tuple[float, ...] = ()

    def __str__(self) -> str:
        beside = [] if self.printed is None else [f"{self.printed[0]} {self.printed[1]:g}"]
        beside += [f"one person {min(self.persons):.1f}–{max(self.persons):.1f}"] if self.persons else []
        beside += [] if self.ceiling is None else [f"people's own mean {self.ceiling:.1f}"]
        digits = 1 if self.printed else 3
        low, high = self.interval or (None, None)
        spread = [] if low is None else [f"{low:.{digits}f}–{high:.{digits}f}"]
        inside = "; ".join([*spread, *beside])
        return f"{self.value:.{digits}f}" + (f" ({inside})" if inside else "")


class Evaluation(Record):
    """Result of one split of one dataset under all its protocols.

    Attributes:
        split: ``test`` or ``dev``.
        protocols: name to result; the first is the default. On dev there is one, named ``dev``.
        eccv: percentages by the labels of ECCV Caption, such as ``i2t_map_at_r``; empty except on COCO 5K.
        cxc: recalls by the labels of Crisscrossed Captions, such as ``i2t_r1``; empty except on COCO 5K.
        people: agreement with people's judgements, such as ``expert_tau_c``; empty except on Flickr8K.
        notes: reasons to look again before trusting the numbers.
    """

    protocol_version: int
    dataset: str
    split: str
    protocols: dict[str, ProtocolResult]
    eccv: dict[str, float] = Field(default_factory=dict)
    cxc: dict[str, float] = Field(default_factory=dict)
    people: dict[str, PeopleResult] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def default(self) -> ProtocolResult:
        """Result under the dataset's default protocol."""
        return next(iter(self.protocols.values()))

    @property
    def r_sum(self) -> float:
        """Sum of the six recalls under the default protocol."""
        return self.default.r_sum

    def recalls(self) -> dict[str, float]:
        """The six recalls and ``r_sum`` under the default protocol, by name."""
        return self.default.recalls()

    def lines(self) -> list[str]:
        """Metrics of ECCV Caption and CxC, and agreement with people, for below the table."""
        titles = {"map_at_r": "mAP@R", "r_precision": "R-Precision", "r1": "R@1", "r5": "R@5", "r10": "R@10"}
        lines = []
        for name, values in (("ECCV Caption", self.eccv), ("CxC", self.cxc)):
            sides: dict[str, list[str]] = {"i2t": [], "t2i": []}
            for key, value in values.items():
                side, _, measure = key.partition("_")
                sides[side].append(f"{titles[measure]} {value:.1f}")
            if values:
                shown = (f"{side} {', '.join(texts)}" for side, texts in sides.items())
                lines.append(f"{name}: {'; '.join(shown)}")
        names = {
            "expert_tau_c": "tau-c",
            "expert_auroc": "AUROC",
            "crowd_tau_b": "tau-b",
            "crowd_auroc": "AUROC",
        }
        for kind, title in (("expert", "Experts"), ("crowd", "Crowd")):
            own = [f"{names[name]} {one}" for name, one in self.people.items() if name.startswith(kind)]
            if own:
                lines.append(f"{title}: {', '.join(own)}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return self.model_dump(mode="json")

    def to_json(self) -> str:
        """Return JSON without NaN."""
        return self.model_dump_json(indent=2)

    def to_pandas(self) -> "pd.DataFrame":
        """Return a frame with one row per protocol and direction; ``r_sum_low`` and ``r_sum_high`` are the interval."""
        require("data", "pandas", needed_by="to_pandas")
        import pandas as pd

        rows = []
        for name, result in self.protocols.items():
            for direction in ("i2t", "t2i"):
                values = getattr(result, direction).model_dump(exclude={"optimistic", "intervals"})
                low, high = result.r_sum_interval or (None, None)
                total = {"r_sum": result.r_sum, "r_sum_low": low, "r_sum_high": high}
                rows.append({"protocol": name, "direction": direction, **values, **total})
        return pd.DataFrame(rows)

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> Iterator["Table"]:
        yield results_table(self, options.max_width)

    def __repr__(self) -> str:
        """Default protocol in two lines; ``str`` and ``to_pandas`` show all protocols."""
        name, result = next(iter(self.protocols.items()))
        sides = (
            f"{side} R@1 {one.r1:.1f}, R@5 {one.r5:.1f}, R@10 {one.r10:.1f}"
            for side, one in (("i2t", result.i2t), ("t2i", result.t2i))
        )
        r_sum = _number(result.r_sum, result.r_sum_interval, "{} ({})")
        return (
            f"<Evaluation {self.dataset}/{self.split}, protocol {name}: rSum {r_sum},\n {'; '.join(sides)}>"
        )

    def _repr_html_(self) -> str:
        """HTML table for notebooks, followed by the notes."""
        table = html_table(_rows(self, "{} ({})"), ("protocol", "", *SHOWN_COLUMNS))
        return html_lines([_title(self)]) + table + html_lines(self.notes)

    def __str__(self) -> str:
        # no colours and a fixed width: the text goes to files and tests, too
        notes = (f"note: {note}" for note in self.notes)
        return plain_text(self, *self.lines(), *notes, width=120).rstrip("\n")


class CorrespondenceResult(Separation):
    """Correspondence track: how well the submitted probabilities separate true from wrong training pairs.

    Attributes:
        accuracy: at 0.5, percent.
        pairs: number of training captions.
        true_pairs: number of those paired with their own image.
    """

    accuracy: float
    pairs: int
    true_pairs: int


class Result(Record):
    """Content of ``result.json``.

    Attributes:
        status: ``submitted``: computed from the submitter's scores.
        submission_sha256: sha256 of ``submission.yaml``.
        files: path in the submission to sha256 of every array file, as verified.
        splits: split to result.
        correspondence: correspondence track, if probabilities were given.
        notes: reasons to look again before trusting the numbers.
        versions: versions of Python, numpy and ncl_bench, and the platform.
        seconds: wall-clock time of counting and evaluating.
        peak_memory_mb: largest resident memory of the process; None if the system does not report it.
    """

    protocol_version: int
    status: Literal["submitted"] = "submitted"
    dataset: str
    submission_sha256: str
    files: dict[str, str]
    splits: dict[str, Evaluation]
    correspondence: CorrespondenceResult | None = None
    notes: tuple[str, ...] = ()
    versions: dict[str, str]
    seconds: float
    peak_memory_mb: float | None

    def to_json(self) -> str:
        """Return JSON without NaN."""
        return self.model_dump_json(indent=2) + "\n"

    @property
    def test(self) -> Evaluation:
        """Result of the test split."""
        return self.splits[known_name("split of the submission", "test", self.splits, SubmissionError)]

    @property
    def r_sum(self) -> float:
        """Sum of the six recalls on test under the default protocol."""
        return self.test.r_sum

    def to_pandas(self) -> "pd.DataFrame":
        """Return a frame with one row per split, protocol and direction."""
        require("data", "pandas", needed_by="to_pandas")
        import pandas as pd

        frames = {split: evaluation.to_pandas() for split, evaluation in self.splits.items()}
        return pd.concat(frames, names=["split"]).reset_index(level="split").reset_index(drop=True)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.splits.values()))

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.splits.values()), *(f"note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """HTML tables for notebooks, followed by the notes."""
        shown = "".join(evaluation._repr_html_() for evaluation in self.splits.values())
        return shown + html_lines(self.notes)


def write_result(folder: str | Path, result: Result) -> None:
    """Write ``result.json`` whole or not at all."""
    write_text(Path(folder) / RESULT_FILE, result.to_json())


def read_result(folder: str | Path) -> Result:
    """Read ``result.json`` of a folder."""
    path = readable(Path(folder) / RESULT_FILE, SubmissionError, "a result")
    with reading(path, SubmissionError, fix=f"run `ncl-bench evaluate {folder}`"):
        return Result.model_validate_json(path.read_bytes())


SHOWN_COLUMNS = ("R@1", "R@5", "R@10", "median", "mean", "ties", "rSum")


LEFT_OUT = ("ties", "mean", "median", "rSum", "R@10", "R@5")
"""Columns that narrow terminals lack, the first first."""


def results_table(evaluation: Evaluation, width: int) -> "Table":
    """Build a rich table: one line per protocol and direction, 95 % intervals below the numbers.

    Args:
        evaluation: the result.
        width: characters that the table may take. Intervals are left out first, then whole columns; no number is cut.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    rows = _rows(evaluation, "{}\n{}")
    shown: tuple[str, ...] = SHOWN_COLUMNS
    if _width(rows, shown) > width:
        rows = _rows(evaluation, "{}")
        for column in LEFT_OUT:
            if _width(rows, shown) <= width:
                break
            shown = tuple(name for name in shown if name != column)
    table = Table(title=_title(evaluation), box=SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("protocol", overflow="fold", min_width=8)
    table.add_column("", no_wrap=True)
    for column in shown:
        table.add_column(column, justify="right", no_wrap=True)
    for protocol, direction, *numbers in rows:
        values = [number for column, number in zip(SHOWN_COLUMNS, numbers, strict=True) if column in shown]
        table.add_row(protocol, direction, *values, end_section=direction == "t2i")
    return table


def _width(rows: Sequence[tuple[str, ...]], shown: Sequence[str]) -> int:
    """Characters that the table of some columns takes: every cell is whole, with a blank between two columns."""
    columns = zip(("protocol", "", *SHOWN_COLUMNS), zip(*rows, strict=True), strict=True)
    widths = [
        max(len(line) for cell in (head, *cells) for line in cell.split("\n"))
        for head, cells in columns
        if head in ("protocol", "", *shown)
    ]
    return sum(widths) + len(widths) - 1


def _title(evaluation: Evaluation) -> str:
    return f"{evaluation.dataset}, {evaluation.split} (protocol version {evaluation.protocol_version})"


def _rows(evaluation: Evaluation, with_interval: str) -> list[tuple[str, ...]]:
    """One row per protocol and direction; ``with_interval`` joins a number and its interval."""
    rows = []
    for name, result in evaluation.protocols.items():
        r_sum = _number(result.r_sum, result.r_sum_interval, with_interval)
        rows.append((name, "i2t", *_cells(result.i2t, with_interval), ""))
        # the rSum belongs to both directions and stands once
        rows.append(("", "t2i", *_cells(result.t2i, with_interval), r_sum))
    return rows


def _cells(direction: DirectionResult, with_interval: str) -> list[str]:
    intervals = direction.intervals or {}
    recalls = [
        _number(getattr(direction, name), intervals.get(name), with_interval) for name in ("r1", "r5", "r10")
    ]
    ties = "unknown" if direction.tied_queries is None else f"{direction.tied_queries:,}"
    return [*recalls, f"{direction.median_rank:.1f}", f"{direction.mean_rank:.1f}", ties]


def _number(value: float, interval: Interval | None, with_interval: str) -> str:
    if interval is None:
        return f"{value:.1f}"
    return with_interval.format(f"{value:.1f}", f"{interval[0]:.1f}–{interval[1]:.1f}")
