"""The page of an audit of somebody's pairs: how many are wrong, how sure that is, and the suspects to tick through."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from numpy.typing import NDArray

from baselines.audit.found import SUMMARY, Judgement, Summary
from baselines.audit.own_pairs import OwnPairs
from ncl_bench.evaluation.pages import thumbnail
from ncl_bench.files import write_text

TEMPLATE = Path(__file__).parent / "find.html.j2"
SHOWN, SUREST, NAMED = 200, 12, 20
"""Suspects on the page, pairs that fit for contrast, and rows that the page names for each reason."""


def write_page(
    path: Path,
    summary: Summary,
    own: OwnPairs,
    judgement: Judgement,
    reasons: NDArray[np.object_],
    doubled: Mapping[str, str],
    labels: Mapping[int, str],
) -> None:
    """Write one self-contained file.

    Args:
        path: the ``.html`` file.
        summary: of the audit.
        own: the rows as they came.
        judgement: of the judged rows.
        reasons: why each row of the input was left out; empty for judged rows.
        doubled: name of a copy of a picture to the name of the first.
        labels: row of the input to its label.
    """
    order = judgement.order
    probability = judgement.found.table["probability"].to_numpy(np.float64)

    def card(place: int, number: int) -> dict[str, Any]:
        row = int(judgement.rows[number])
        better = judgement.found.better[number]
        file = judgement.files[judgement.image_of[number]] if judgement.files else None
        return {
            "place": place,
            "row": row + 1,
            "image": own.images[row],
            "caption": own.captions[row],
            "picture": "" if file is None else thumbnail(file),
            "probability": float(probability[number]),
            "better": [own.captions[judgement.rows[other]] for other in better.tolist() if other >= 0],
            "label": labels.get(row, ""),
        }

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    left_out = {
        reason: [
            f"row {row + 1}" + (f" ({own.images[row]})" if own.images[row] else "")
            for row in np.flatnonzero(reasons == reason)[:NAMED].tolist()
        ]
        for reason in summary.left_out
    }
    page = template.render(
        summary=summary,
        suspects=[card(place, number) for place, number in enumerate(order[:SHOWN].tolist(), 1)],
        surest=[
            card(len(order) - place, number) for place, number in enumerate(order[::-1][:SUREST].tolist())
        ],
        left_out=left_out,
        doubled=list(doubled.items())[:NAMED],
        summary_file=SUMMARY,
        pictures=judgement.files is not None,
    )
    write_text(path, page + "\n")
