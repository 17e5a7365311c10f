"""The page of an audit: how many pairs are wrong, how sure that is, and the pairs to tick through, in groups."""

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from baselines.audit.assemble import BETTER_ROWS, Audit
from baselines.audit.labels import (
    FEWEST_TICKS,
    LEAST_SLOPE,
    NAMED,
    PRIOR_DEVIATION,
    VERSION,
)
from baselines.audit.result import RESULT, write_table
from ncl_bench.files import write_text
from ncl_bench.html import environment
from ncl_bench.npy import Float32Array, Float64Array
from ncl_bench.progress import as_typed

PAGE, MORE, TEMPLATE = "index.html", "more", Path(__file__).parent / "page.html.j2"
SHOWN, MOST_SHOWN, OF_A_REASON, SUREST, OF_A_LIST = 200, 1_000, 200, 50, 20
"""Suspects on the page: twice as many as are wrong, within these bounds; pairs of each cause; pairs that fit for
contrast; and rows that the page names for each reason to leave them out."""
AT_ONCE = 50
"""Pairs on the screen."""
MOST_SAMPLED = 5_000
"""Pairs from which the page computes the share again, evenly along the order."""
FACTS = "fit", "cross_fitted", "similarity", "clean_probability", "loss", "lemon", "rank"
"""Columns of training pairs that the page shows, beside the one that orders them."""
SAMPLE = 1_000
"""Captions among which a training pair's own is ranked."""
TICKED = "odds", "aside"
"""Columns by which ticks are weighed."""
WIDTH, HEIGHT = 120, 28
"""Size of the curve of a pair's clean probability over the epochs."""
STEPS = 1_000
"""Steps of the slider: where 3 in 1,000 pairs are wrong, a hundredth is too coarse."""


def write(folder: Path, audit: Audit, table: pd.DataFrame, name: str = "") -> None:
    """Write the tables of an audit, its result and its page, which is one self-contained file.

    Args:
        folder: where to write.
        audit: what is known of the pairs.
        table: the pairs as ``pairs.csv`` holds them.
        name: name of the audit's folder, for the commands on the page (default: that of ``folder``).
    """
    result, known = audit.result, audit.table
    write_table(folder, table)
    said = json.dumps(result.model_dump(mode="json"), indent=2, ensure_ascii=False)
    write_text(folder / RESULT, said + "\n")
    groups, later = _groups(audit)
    # a pair in two tabs has one card, so a tick counts once
    shown = list(dict.fromkeys(row for *_, rows in groups for row in rows))
    number = {row: place for place, row in enumerate(shown)}
    chosen = known["place" if result.dataset is None else result.chosen_by]
    values = chosen.to_numpy(np.float32, na_value=np.nan)
    cards = [_card(audit, row, float(values[row])) for row in shown]
    data = {
        "version": VERSION,
        "file": "labels.csv",
        "digest": result.digest,
        "n": result.n_judged,
        "atOnce": AT_ONCE,
        "corrects": result.dataset is None,
        "cards": cards,
        "files": math.ceil(len(later) / MOST_SHOWN),
        "pictures": any(card["picture"] for card in cards),
        "groups": [
            {"title": title, "about": about, "count": count, "cards": [number[row] for row in rows]}
            for title, about, count, rows in groups
        ],
        "ticks": _for_ticks(audit),
        "slider": _slider(audit, values),
        "command": as_typed(f"ncl-bench audit apply {name or folder.name}"),
    }
    copies = known[known["copy_of"] != ""]
    page = (
        environment(TEMPLATE.parent)
        .get_template(TEMPLATE.name)
        .render(
            result=result,
            data=data,
            left_out={
                reason: [
                    f"row {row + 1}" + (f" ({image})" if (image := str(known["image"].iat[row])) else "")
                    for row in np.flatnonzero(known["left_out"] == reason)[:OF_A_LIST].tolist()
                ]
                for reason in result.left_out
            },
            doubled=[*dict(zip(copies["image"], copies["copy_of"], strict=True)).items()][:OF_A_LIST],
            result_file=RESULT,
            n_wrong=int((~known["truth"]).sum()) if "truth" in known else None,
            n_first=min(SHOWN, result.n_judged),
        )
    )
    shutil.rmtree(folder / MORE, ignore_errors=True)
    for start in range(0, len(later), MOST_SHOWN):
        some = [_card(audit, row, float(values[row])) for row in later[start : start + MOST_SHOWN]]
        write_text(folder / MORE / f"{start // MOST_SHOWN + 1}.js", f"more({json.dumps(some)});\n")
    write_text(folder / PAGE, page)


def _groups(audit: Audit) -> tuple[list[tuple[str, str, int, list[int]]], list[int]]:
    """Title, explanation, number of pairs and shown rows of each tab, and suspects of further files.

    Pairs with a cause stand in its tab alone.
    """
    n = max(SHOWN, 2 * (audit.result.wrong or 0))
    order = audit.order.tolist()
    reasons, labels = (audit.table[name].to_numpy(object) for name in ("reason", "label"))
    plain = [row for row in order if not reasons[row]]

    def first(rows: list[int], most: int) -> list[int]:
        # a labelled pair stays visible, wherever its label has moved it
        return rows[:most] + [row for row in rows[most:] if labels[row]]

    about = f"The {min(n, len(plain)):,} most suspicious pairs; pairs.csv holds all."
    groups = [("Suspects", about, min(n, len(plain)), first(plain, min(n, MOST_SHOWN)))]
    later = [row for row in plain[MOST_SHOWN:n] if not labels[row]]
    for reason in audit.result.reasons:
        rows = [row for row in order if reasons[row] == reason]
        about = f"{len(rows):,} pairs, found by a rule and not by their score."
        groups.append((reason.capitalize(), about, len(rows), first(rows, OF_A_REASON)))
    # the other end of the order shows what right pairs look like
    surest = plain[::-1][:SUREST]
    groups.append(("Fit best", "For contrast: the pairs that fit best.", len(surest), surest))
    return groups, later


def _card(audit: Audit, row: int, value: float) -> dict[str, Any]:
    """What the page shows of a pair; ``value`` is that of the slider."""
    # by columns, as pandas makes an object of each value of a row
    table = audit.table
    known: dict[str, Any] = {str(name): table[name].iat[row] for name in table}
    better = [known[name] for name in BETTER_ROWS]
    return {
        "number": int(known["number"]),
        "place": int(known["place"]),
        "image": known["image"],
        "hash": audit.source.identity(row),
        "caption": known["caption"],
        "picture": audit.source.picture(row),
        "better": [table["caption"].iat[other] for other in better if other >= 0],
        "reason": known["reason"],
        "named": bool(known["named"]),
        "label": known["label"],
        "correction": known["correction"],
        "value": None if np.isnan(value) else value,
        "facts": [] if audit.result.dataset is None else _facts(audit, known),
        "wrong": not known["truth"] if "truth" in known else None,
        "curve": _curve(known["curve"]) if "curve" in known else "",
        "odds": _rounded(known["odds"]),
        "aside": _rounded(known["aside"]),
    }


def _facts(audit: Audit, known: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the page shows of a training pair beside its chance of being wrong."""
    columns = dict.fromkeys((audit.result.chosen_by, *FACTS[:-1]))
    shown = [
        (name.replace("_", " "), f"{known[name]:.3f}")
        for name in columns
        if name in known and not pd.isna(known[name])
    ]
    among = 1 + min(SAMPLE, audit.result.n_judged)
    return [*shown, ("rank of its caption", f"{known['rank']:,} of {among:,}")]


def _curve(values: Float32Array) -> str:
    """Points of an SVG polyline: the clean probability over the epochs."""
    if np.isnan(values).any():
        return ""
    across = np.linspace(1, WIDTH - 1, len(values))
    down = 1 + (HEIGHT - 2) * (1 - np.clip(values, 0, 1))
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True))


def _for_ticks(audit: Audit) -> dict[str, Any] | None:
    """What the page needs to repeat :func:`~baselines.audit.labels.weigh`; None if labels cannot correct the order."""
    odds, aside, named = (
        audit.table[name].to_numpy(np.float64, na_value=np.nan)[audit.rows] for name in (*TICKED, "named")
    )
    if np.isnan(odds).any():
        return None
    odds, aside = odds[named == 0], aside[named == 0]
    by_score = np.argsort(-odds, kind="stable")
    # the page sums over these pairs, evenly along the order, in place of all
    sample = by_score[:: math.ceil(len(by_score) / MOST_SAMPLED)]
    return {
        "judged": [_rounded(value) for value in audit.judged],
        "sample": np.stack([odds, aside], axis=1)[sample].round(5).tolist(),
        "named": {"count": int(named.sum()), "sure": NAMED},
        "fewest": FEWEST_TICKS,
        "mean": audit.prior,
        "deviation": PRIOR_DEVIATION.tolist(),
        "leastSlope": LEAST_SLOPE,
    }


def _rounded(value: float) -> float | None:
    return None if pd.isna(value) else round(float(value), 5)


def _slider(audit: Audit, values: Float32Array) -> dict[str, Any]:
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
        "wrong": _at_most(judged[~audit.table["truth"].to_numpy()], limits) if "truth" in audit.table else [],
    }


def _at_most(values: Float32Array, limits: Float64Array) -> list[int]:
    """Number of values at most each limit; NaN never counts."""
    counts = np.searchsorted(np.sort(values), limits.astype(np.float32), side="right")
    return [int(count) for count in counts]
