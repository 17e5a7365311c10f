"""Reasons to look again: results that are possible but seldom what someone meant."""

from ncl_bench.counting import Counted
from ncl_bench.evaluation.result import Evaluation


def plausibility_notes(evaluation: Evaluation, counted: Counted) -> tuple[str, ...]:
    """What looks odd about a result, one sentence each; nothing is changed or refused."""
    return ()
