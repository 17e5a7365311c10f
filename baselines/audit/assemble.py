"""Put together what is known of the pairs of a source: one table, one result, one way to their pictures.

An audit of a user's pairs and one of a run differ in their source alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from baselines.audit.labels import Label, weigh
from baselines.audit.result import AuditResult, counts
from ncl_bench.data.pair_labels import LABELS
from ncl_bench.npy import BoolArray, Int64Array

if TYPE_CHECKING:
    from baselines.audit.judge import Judged

FIRST_SHARE = 0.1
"""Of the pairs, the most suspicious first: what is called suspect where there are too few pairs for a share."""
BETTER_ROWS = ("better_row_1", "better_row_2", "better_row_3")


@dataclass(frozen=True)
class Source:
    """Rows of a user, or the training pairs of a run.

    Attributes:
        table: a row for each, in order, with ``number`` (what people call it), ``image`` (its name), ``caption``,
            ``left_out`` (why it was not judged, or "") and ``copy_of`` (the first of equal pictures, or ""); further
            columns stay.
        picture: row to the thumbnail of its picture as a data URI; empty if there is none.
        identity: row to a hash of its picture's content; empty if its name says which it is.
        facts: entries of :class:`~baselines.audit.result.AuditResult` that the source knows.
        words: what its rows are called in a sentence.
        remarks: what a reader has to know, in sentences.
    """

    table: pd.DataFrame
    picture: Callable[[int], str]
    identity: Callable[[int], str]
    facts: Mapping[str, Any]
    words: str = "Rows"
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Audit:
    """Pairs of a source and what is known of them.

    Attributes:
        table: every row of the source with the columns of :class:`Source`, and of the judged ones ``place`` (1 is the
            most suspicious), ``score``, ``probability``, the views, ``reason``, ``suspect``, ``label``, ``correction``,
            rows whose captions are more similar (:data:`BETTER_ROWS`), and what ticks are weighed by: ``odds`` and
            ``aside``.
        result: what holds for all of them.
        source: of the rows.
        prior: weights before labels: shift, slope, weight between the views.
        judged: estimated number of wrong pairs before labels, and its range; NaN if it cannot be said.
    """

    table: pd.DataFrame
    result: AuditResult
    source: Source
    prior: tuple[float, ...]
    judged: tuple[float, float, float]

    @property
    def rows(self) -> Int64Array:
        """The judged rows, ascending."""
        return np.flatnonzero(self.table["left_out"] == "")

    @property
    def suspect(self) -> BoolArray:
        """Whether each judged row is one to look at."""
        suspect: BoolArray = self.table["suspect"].to_numpy()[self.rows].astype(bool)
        return suspect

    def remarked(self, *sentences: str) -> "Audit":
        """The same with further remarks."""
        remarks = *self.result.remarks, *sentences
        return replace(self, result=self.result.model_copy(update={"remarks": remarks}))

    @property
    def order(self) -> Int64Array:
        """The judged rows, the most suspicious first."""
        places = self.table["place"].to_numpy(np.float64, na_value=np.nan)
        return np.argsort(places, kind="stable")[: len(self.rows)]


def assemble(source: Source, judged: "Judged", labels: Mapping[int, Label]) -> Audit:
    """Correct a judgement by labels, and put everything in one table.

    Args:
        source: the rows.
        judged: of the rows that were not left out, in their order.
        labels: row to label; those of rows that were left out change nothing.
    """
    n = len(source.table)
    rows = np.flatnonzero(source.table["left_out"] == "")
    number_of = {row: number for number, row in enumerate(rows.tolist())}
    ticked = {number_of[row]: label for row, label in labels.items() if row in number_of}
    score, probability, *views = (
        judged.table[name].to_numpy(np.float64) for name in ("score", "probability", *judged.views)
    )
    suspicion = weigh(
        score, probability, (views[0], views[1]), judged.numbers, ticked, judged.lean, judged.named
    )
    rank = 1 + np.argsort(suspicion.order)
    reason = judged.table["reason"].to_numpy(object)
    ticked_label = np.array([ticked[k].label if k in ticked else "" for k in range(len(rows))], object)
    # too few pairs for a number: a fixed part, so that there is something to look at
    called = round(FIRST_SHARE * len(rows)) if suspicion.wrong is None else suspicion.wrong
    # a reason makes a suspect whatever its score, and a person who looked has the last word
    suspect = ((rank <= called) | (reason != "")) & (ticked_label != "matches")
    judged_rows = judged.table[["score", "probability", *judged.views, "reason"]].assign(
        place=rank,
        probability=suspicion.probability,
        suspect=suspect,
        odds=suspicion.odds,
        aside=suspicion.aside,
        named=judged.named,
        # places among the judged pairs become rows of the table
        **dict(zip(BETTER_ROWS, np.where(judged.better >= 0, rows[judged.better], -1).T, strict=True)),
    )
    judged_rows.index = rows
    # nullable types keep whole numbers whole beside empty cells
    kinds = {"i": "Int64", "f": "Float64", "b": "boolean"}
    judged_rows = judged_rows.astype(
        {name: kinds.get(judged_rows[name].dtype.kind, "string") for name in judged_rows}
    )
    table = source.table.astype({"left_out": "string"}).join(judged_rows.reindex(range(n)))
    for name in Label._fields:
        table[name] = [getattr(labels[row], name) if row in labels else "" for row in range(n)]
    result = AuditResult(
        n_rows=n,
        n_judged=len(rows),
        left_out=counts(table["left_out"].to_numpy(object)),
        reasons=counts(reason),
        order_faults=tuple(
            fault.says(table["number"].to_numpy()[rows], source.words) for fault in judged.order_faults
        ),
        wrong=suspicion.wrong,
        low=suspicion.low,
        high=suspicion.high,
        obtained=judged.obtained,
        threshold=called,
        n_suspects=int(suspect.sum()),
        labels={name: sum(each.label == name for each in labels.values()) for name in LABELS}
        if labels
        else {},
        remarks=(*source.remarks, *filter(None, [judged.unseen])),
        **source.facts,
    )
    return Audit(table, result, source, (0.0, 1.0, judged.lean), judged.numbers)
