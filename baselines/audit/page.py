"""The page of an audit: how many pairs are wrong, how sure that is, and the pairs to tick through, in groups."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from baselines.audit.labels import (
    FEWEST_TICKS,
    LEAST_SLOPE,
    PRIOR_DEVIATION,
    VERSION,
    Suspicion,
)
from baselines.audit.result import RESULT, Audit, write_table
from ncl_bench.files import write_text
from ncl_bench.progress import as_typed
from ncl_bench.rendering import environment

PAGE, TEMPLATE = "index.html", Path(__file__).parent / "page.html.j2"
SHOWN, MOST_SHOWN, OF_A_REASON, SUREST, NAMED = 200, 1_000, 200, 50, 20
"""Suspects on the page: twice as many as are wrong, within these bounds; pairs of each cause; pairs that fit for
contrast; and rows that the page names for each reason to leave them out."""
AT_ONCE = 50
"""Pairs on the screen."""
MOST_SAMPLED = 5_000
"""Pairs from which the page computes the share again, evenly along the order."""
STEPS = 1_000
"""Steps of the slider: where 3 in 1,000 pairs are wrong, a hundredth is too coarse."""


def write(folder: Path, audit: Audit, name: str) -> None:
    """Write the tables of an audit, its result and its page, which is one self-contained file.

    Args:
        folder: where to write.
        audit: what is known of the pairs.
        name: name of the audit's folder, for the commands on the page.
    """
    result = audit.result
    write_table(folder, audit.table)
    said = json.dumps(result.model_dump(mode="json"), indent=2, ensure_ascii=False)
    write_text(folder / RESULT, said + "\n")
    groups = _groups(audit)
    # a pair in two tabs has one card, so a tick counts once
    shown = list(dict.fromkeys(row for *_, rows in groups for row in rows))
    number = {row: place for place, row in enumerate(shown)}
    values = audit.table[result.chosen_by].to_numpy(np.float32, na_value=np.nan)
    cards = _cards(audit, shown, values)
    data = {
        "version": VERSION,
        "file": "labels.csv",
        "digest": result.digest,
        "n": result.n_judged,
        "atOnce": AT_ONCE,
        "corrects": result.dataset is None,
        "cards": cards,
        "pictures": any(card["picture"] for card in cards),
        "groups": [
            {"title": title, "about": about, "count": count, "cards": [number[row] for row in rows]}
            for title, about, count, rows in groups
        ],
        "ticks": None
        if audit.suspicion is None or np.isnan(audit.suspicion.odds).any()
        else _for_ticks(audit.suspicion),
        "slider": _slider(audit, values),
        "command": as_typed(f"ncl-bench audit apply {name}"),
    }
    page = (
        environment(TEMPLATE.parent)
        .get_template(TEMPLATE.name)
        .render(
            result=result,
            data=data,
            left_out={
                reason: [
                    f"row {row + 1}" + (f" ({audit.images[row]})" if audit.images[row] else "")
                    for row in np.flatnonzero(audit.left_out == reason)[:NAMED].tolist()
                ]
                for reason in result.left_out
            },
            doubled=list(audit.doubled.items())[:NAMED],
            result_file=RESULT,
            n_wrong=None if audit.truth is None else int((~audit.truth).sum()),
            n_first=min(SHOWN, result.n_judged),
        )
    )
    write_text(folder / PAGE, page)


def _groups(audit: Audit) -> list[tuple[str, str, int, list[int]]]:
    """Title, explanation, number of pairs and shown rows of each tab; pairs with a cause stand in its tab alone."""
    wrong = audit.result.wrong or 0
    n = min(MOST_SHOWN, max(SHOWN, 2 * wrong))
    order = audit.order.tolist()
    plain = [row for row in order if not audit.reasons[row]]

    def first(rows: list[int], most: int) -> list[int]:
        # a labelled pair stays visible, wherever its label has moved it
        return rows[:most] + [row for row in rows[most:] if row in audit.labels]

    about = f"The {min(n, len(plain)):,} most suspicious pairs; pairs.csv holds all."
    groups = [("Suspects", about, min(n, len(plain)), first(plain, n))]
    for reason in audit.result.reasons:
        rows = [row for row in order if audit.reasons[row] == reason]
        about = f"{len(rows):,} pairs, found by a rule and not by their score."
        groups.append((reason.capitalize(), about, len(rows), first(rows, OF_A_REASON)))
    # the other end of the order shows what right pairs look like
    surest = plain[::-1][:SUREST]
    groups.append(("Fit best", "For contrast: the pairs that fit best.", len(surest), surest))
    return groups


def _cards(audit: Audit, rows: list[int], values: NDArray[np.float32]) -> list[dict[str, Any]]:
    place = {row: number for number, row in enumerate(audit.rows.tolist())}
    rank = {row: number for number, row in enumerate(audit.order.tolist(), 1)}
    cards = []
    for row in rows:
        label, judged = audit.labels.get(row), place[row]
        suspicion = audit.suspicion
        cards.append(
            {
                "number": int(audit.numbers[row]),
                "place": rank[row],
                "image": audit.images[row],
                "hash": audit.identity(row),
                "caption": audit.captions[row],
                "picture": audit.picture(row),
                "better": [audit.captions[other] for other in audit.better[judged].tolist() if other >= 0],
                "reason": audit.reasons[row],
                "label": label.label if label else "",
                "correction": label.correction if label else "",
                "value": None if np.isnan(values[row]) else float(values[row]),
                "facts": audit.facts(row),
                "wrong": None if audit.truth is None else not audit.truth[row],
                "curve": audit.curve(row),
                "odds": None if suspicion is None else _rounded(suspicion.odds[judged]),
                "aside": None if suspicion is None else _rounded(suspicion.aside[judged]),
            }
        )
    return cards


def _for_ticks(suspicion: Suspicion) -> dict[str, Any]:
    """What the page needs to repeat :func:`~baselines.audit.labels.weigh`."""
    by_score = np.argsort(-suspicion.odds, kind="stable")
    # the page sums over these pairs, evenly along the order, in place of all
    sample = by_score[:: math.ceil(len(by_score) / MOST_SAMPLED)]
    return {
        "judged": [_rounded(value) for value in suspicion.judged],
        "sample": [[_rounded(suspicion.odds[k]), _rounded(suspicion.aside[k])] for k in sample.tolist()],
        "fewest": FEWEST_TICKS,
        "mean": suspicion.prior.tolist(),
        "deviation": PRIOR_DEVIATION.tolist(),
        "leastSlope": LEAST_SLOPE,
    }


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 5)


def _slider(audit: Audit, values: NDArray[np.float32]) -> dict[str, Any]:
    """How many pairs each threshold removes, and how many of these are wrong if that is known."""
    threshold, judged = audit.result.threshold, values[audit.rows]
    by_rank = audit.result.chosen_by.endswith("rank")
    ends = (0.0, float(len(judged))) if by_rank else (0.0, 1.0)
    # without a threshold, values have no fixed range
    low, high = (float(judged.min()), float(judged.max())) if threshold is None else ends
    limits = low + (high - low) * np.arange(STEPS + 1) / STEPS
    called = _at_most(judged, limits)
    start = (
        int(np.searchsorted(called, min(SHOWN, len(judged))))
        if threshold is None
        else math.ceil(STEPS * threshold / high)
    )
    return {
        "low": low,
        "high": high,
        "decimals": 4 if threshold is None else 0 if by_rank else 3,
        "steps": STEPS,
        "start": min(start, STEPS - 1),
        "called": called,
        "wrong": [] if audit.truth is None else _at_most(judged[~audit.truth[audit.rows]], limits),
    }


def _at_most(values: NDArray[np.float32], limits: NDArray[np.float64]) -> list[int]:
    """Number of values at most each limit; NaN never counts."""
    found = np.searchsorted(np.sort(values), limits.astype(np.float32), side="right")
    return [int(count) for count in found]
