"""The typed result of an evaluation: attributes, a table, a dict, JSON without NaN, pandas."""

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from ncl_bench.evaluation.metrics import RECALLS

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

Interval = tuple[float, float]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DirectionResult(_Record):
    """One direction of retrieval.

    Attributes:
        r1: percentage of queries with rank 1; likewise ``r5`` and ``r10``.
        median_rank: rounded down; averaged over folds.
        mean_rank: averaged over folds.
        queries: how many there are.
        tied_queries: queries whose rank depends on ties; None where scores are unknown.
        optimistic: recalls if every tie counted for the model; ``r1`` to ``r10`` count ties against it.
        intervals: 95 % bootstrap interval of each recall; None where not asked for.
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


class ProtocolResult(_Record):
    """One protocol.

    Attributes:
        i2t: image queries.
        t2i: caption queries.
        r_sum: sum of the six recalls, from unrounded values.
        r_sum_interval: its 95 % bootstrap interval; None where not asked for.
        r_sum_optimistic: if every tie counted for the model; None where scores are unknown.
        images: in the split.
        captions: in the split.
        folds: over which each metric is averaged.
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
        values = {name: float(getattr(getattr(self, name[:3]), name[4:])) for name in RECALLS}
        return values | {"r_sum": self.r_sum}


class Evaluation(_Record):
    """What the protocol says about one split of one dataset.

    Attributes:
        protocol_version: of the contract that the numbers follow.
        dataset: its name.
        split: ``test`` or ``dev``.
        protocols: name to result; the first one is the default. On dev there is one, named ``dev``.
        notes: reasons to look again before trusting the numbers.
    """

    protocol_version: int
    dataset: str
    split: str
    protocols: dict[str, ProtocolResult]
    notes: tuple[str, ...] = ()

    @property
    def default(self) -> ProtocolResult:
        """The dataset's default protocol."""
        return next(iter(self.protocols.values()))

    @property
    def r_sum(self) -> float:
        """Sum of the six recalls under the default protocol."""
        return self.default.r_sum

    def recalls(self) -> dict[str, float]:
        """The six recalls and ``r_sum`` under the default protocol, by name."""
        return self.default.recalls()

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold."""
        return self.model_dump(mode="json")

    def to_json(self) -> str:
        """JSON without NaN."""
        return self.model_dump_json(indent=2)

    def to_pandas(self) -> "pd.DataFrame":
        """One row per protocol and direction."""
        import pandas as pd

        rows = []
        for name, result in self.protocols.items():
            for direction in ("i2t", "t2i"):
                values = getattr(result, direction).model_dump(exclude={"optimistic", "intervals"})
                rows.append({"protocol": name, "direction": direction, **values, "r_sum": result.r_sum})
        return pd.DataFrame(rows)

    def __rich__(self) -> "Table":
        from ncl_bench.evaluation.table import results_table

        return results_table(self)

    def __str__(self) -> str:
        from ncl_bench.evaluation.table import as_text

        return as_text(self)
