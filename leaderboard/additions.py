"""New seeds of a change, for its reviewers: who submits them, what they state, and whose ranks theirs resemble."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leaderboard.diff import in_markdown, section
from leaderboard.evidence import read_ranks
from leaderboard.results import changed_settings, noise_used, run_name
from leaderboard.row_files import Header, RowFile, SeedRecord, read_results
from ncl_bench.data import dataset_spec
from ncl_bench.evaluation.ranks import Counted

NEAR = 0.05
"""Relative difference up to which two ranks of a query count as near."""
NEAR_COPY = 0.55
"""Share of near ranks above which a result resembles another one.

Of the 454,692 pairs of this repository's results on one dataset, most have less than .1. The nearest two have .475, on
digits, where both answer nine queries in ten. A copy in which three ranks in ten become 1 has .65 or more.
"""


@dataclass(frozen=True)
class Addition:
    """A seed that only the change has.

    Attributes:
        name: name of the row.
        header: facts of the row.
        record: the seed.
        joins: whether the base has the row, with other seeds.
    """

    name: str
    header: Header
    record: SeedRecord
    joins: bool

    def is_by(self, account: str) -> bool:
        """Whether the submitter's name holds a GitHub account, as ``@account``."""
        words = re.split(r"[\s(),]+", self.header.submitter.casefold())
        return f"@{account}".casefold() in words


def additions(before: Mapping[str, RowFile], after: Mapping[str, RowFile]) -> list[Addition]:
    """Seeds that only ``after`` has, in the order of the rows' names."""
    found = []
    for name, file in after.items():
        known = {record.key for record in before[name].seeds} if name in before else set()
        new = (record for record in file.seeds if record.key not in known)
        found += [Addition(name, file.header, record, bool(known)) for record in new]
    return found


def additions_text(base: Path, root: Path, author: str | None = None) -> str:
    """Describe the new seeds as Markdown; empty if there are none.

    Args:
        base: folder of the leaderboard before the change.
        root: folder of the leaderboard after the change.
        author: GitHub account that brings the change, if known.
    """
    after = read_results(root).files
    found = additions(read_results(base).files, after)
    datasets = {one.header.dataset for one in found}
    ranks: dict[str, dict[str, NDArray[np.int64]]] = {dataset: {} for dataset in datasets}
    for name, file in after.items():
        dataset = file.header.dataset
        if dataset in datasets:
            keys = [record.key for record in file.seeds]
            counted = read_ranks(root / "results" / f"{name}.npz", keys, dataset_spec(dataset))
            ranks[dataset] |= {run_name(name, key): _flat(one) for key, one in counted.items()}
    return section("New seeds", (_described(one, ranks[one.header.dataset], author) for one in found))


def near_copies(ranks: Mapping[str, NDArray[np.int64]], run: str) -> dict[str, float]:
    """Results that one resembles, and the share of its ranks near theirs, largest first.

    The share is over the queries that not both answer at rank 1, which any two good models have in common.

    Args:
        ranks: name of a result to the ranks of all queries ``(n,)``; all of one dataset.
        run: name of the result to compare with the others.
    """
    ours, shares = ranks[run], {}
    for other, theirs in ranks.items():
        low, high = np.minimum(ours, theirs), np.maximum(ours, theirs)
        share = float(np.mean((high <= (1 + NEAR) * low)[high > 1])) if high.max() > 1 else 1.0
        if other != run and share > NEAR_COPY:
            shares[other] = share
    return dict(sorted(shares.items(), key=lambda one: -one[1]))


def _flat(counted: Counted) -> NDArray[np.int64]:
    return np.concatenate([counted.whole.i2t, counted.whole.t2i])


def _described(one: Addition, ranks: Mapping[str, NDArray[np.int64]], author: str | None) -> str:
    header, submitter = one.header, in_markdown(one.header.submitter) or "nobody"
    parts = [f"**joins the standing row of {submitter}**"] if one.joins else []
    parts.append(f"submitter {submitter}")
    if author is not None and not one.is_by(author):
        parts.append(
            f"**brought by {in_markdown(author)}, an account that the submitter's name does not hold**"
        )
    facts = {
        "selection": header.selection_split,
        "extra clean data": header.extra_clean_data,
        "encoder": header.pretrained_encoder,
        "noise": noise_used(header) or "the standard draw",
        "settings": ", ".join(changed_settings(header)),
        "plugins": ", ".join(header.training.plugins if header.training else ()),
        "paper": header.paper,
        "code": header.code,
        "notes": header.notes,
    }
    parts += [f"{name} {in_markdown(text) or 'none'}" for name, text in facts.items()]
    near = near_copies(ranks, run_name(one.name, one.record.key))
    parts += [
        f"**{share:.0%} of its ranks are near those of {in_markdown(other)}**"
        for other, share in [*near.items()][:3]
    ]
    return f"{in_markdown(one.name)}, seed {in_markdown(one.record.key)}: {'; '.join(parts)}"
