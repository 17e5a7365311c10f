"""The page of an audit: one self-contained file with a slider for the threshold and a list to export."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from baselines.audit.pairs import BETTER, SAMPLE
from baselines.audit.result import AuditResult
from ncl_bench.data import dataset_spec
from ncl_bench.data.columns import Int64Array
from ncl_bench.data.paired import PairedDataset
from ncl_bench.evaluation.pages import Gallery
from ncl_bench.files import write_text
from ncl_bench.plugins import command_name

TEMPLATE = Path(__file__).parent / "page.html.j2"
STEPS = 100
"""Steps of the slider."""
WIDTH, HEIGHT = 120, 28
"""Size of the curve of a pair's clean probability over the epochs."""


def write_page(
    path: Path,
    result: AuditResult,
    table: pd.DataFrame,
    truth: NDArray[np.bool_] | None,
    train: PairedDataset,
    *,
    suspicious: Int64Array,
    surest: Int64Array,
    history: NDArray[np.float32],
    name: str,
) -> None:
    """Write the page.

    Args:
        path: the ``.html`` file.
        result: summary of the audit.
        table: table of all pairs.
        truth: bool ``(n,)``, whether each pair is true; None if unknown.
        train: split of the pairs.
        suspicious: int64, table rows to show, most suspicious first.
        surest: int64, likewise, surest first.
        history: float32 ``(epochs, n)``, clean probability of every pair.
        name: name of the audit's folder, for the command on the page.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    gallery = Gallery(dataset_spec(train.name), train)
    row_of = pd.Series(np.arange(len(train)), index=train.pair_ids)

    def caption(pair_id: int) -> str:
        captions = train.captions
        return f"caption {pair_id}" if captions is None else str(captions[int(row_of[pair_id])])

    def card(place: int, row: int) -> dict[str, Any]:
        """A pair as the page shows it, at its place in a list, from 1."""
        line = table.iloc[row]
        columns = ("clean_probability", "posterior", "loss", "similarity")
        shown = [c for c in columns if c != result.chosen_by and c in line and not pd.isna(line[c])]
        value, pair_id = line[result.chosen_by], int(line["pair_id"])
        rank = f"{line['rank']:,} of {1 + min(SAMPLE, len(table)):,}"
        better = (line[f"better_{n + 1}"] for n in range(BETTER))
        return {
            "place": place,
            "pair_id": pair_id,
            "image_id": str(line["image_id"]),
            "picture": gallery.picture(int(train.caption_to_image[row_of[pair_id]])),
            "caption": caption(pair_id),
            "value": None if pd.isna(value) else float(value),
            "numbers": [
                *((c.replace("_", " "), f"{line[c]:.3f}") for c in shown),
                ("rank of its caption", rank),
            ],
            "better": [caption(int(other)) for other in better if not pd.isna(other)],
            "wrong": None if truth is None else not truth[row],
            "curve": _curve(history[:, row]),
        }

    values = table[result.chosen_by].to_numpy(np.float32)
    low, high = (0.0, 1.0) if result.threshold is not None else (float(values.min()), float(values.max()))
    limits = low + (high - low) * np.arange(STEPS + 1) / STEPS
    called = _at_most(values, limits)
    start = (
        int(np.searchsorted(called, len(suspicious)))
        if result.threshold is None
        else round(result.threshold * STEPS)
    )
    wrong = [] if truth is None else _at_most(values[~truth], limits)
    page = template.render(
        result=result,
        suspicious=[card(place, row) for place, row in enumerate(suspicious, 1)],
        surest=[card(place, row) for place, row in enumerate(surest, 1)],
        called=called,
        low=low,
        high=high,
        start=min(start, STEPS - 1),
        wrong=wrong,
        n_wrong=None if truth is None else int((~truth).sum()),
        steps=STEPS,
        command=f"{command_name()} audit apply {name}",
        size=(WIDTH, HEIGHT),
    )
    write_text(path, page + "\n")


def _at_most(values: NDArray[np.float32], limits: NDArray[np.float64]) -> list[int]:
    """Number of values at most each limit; NaN never counts."""
    found = np.searchsorted(np.sort(values), limits.astype(np.float32), side="right")
    return [int(count) for count in found]


def _curve(values: NDArray[np.float32]) -> str:
    """Points of an SVG polyline: the clean probability over the epochs; empty if it was not stored."""
    if len(values) < 2 or np.isnan(values).any():
        return ""
    across = np.linspace(1, WIDTH - 1, len(values))
    down = 1 + (HEIGHT - 2) * (1 - np.clip(values, 0, 1))
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True))
