"""What changes between two leaderboards, as Markdown for the reviewers of a pull request.

The published files are compared: the table of all rows by row, every other file of the site by its bytes. A site that
other code built is read as data, and its texts cannot act as Markdown. New seeds are listed with what they state and
whose ranks theirs resemble. What a change may touch at all, git says in .github/workflows/leaderboard.yml.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leaderboard.copied_ranks import contradicts, correlated, near_copies
from leaderboard.entries import Condition
from leaderboard.exports import RANKS, ROWS
from leaderboard.rank_files import arrays_of
from leaderboard.read_entries import DISAGREEMENT, changed_settings, noise_used, ranks_of, run_name
from leaderboard.row_files import Header, SeedRecord, read_results
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation.ranks import Counted
from ncl_bench.foreign import reading

CsvLine = dict[str, str]
"""A line of the table of all rows: column to text."""
Key = tuple[str, ...]
_PRINTED = ("source", "table", "method", "backbone", *Condition.model_fields)
_NAMED = ("rank", "r_sum", "seeds", "status", "selection", "extra", "encoder", "notes", "doubts")
"""What is said of a new row, also where it is empty."""
_MOST_LINES, _MOST_LETTERS = 200, 300
_PLAIN = re.compile(r"[\w ]*|-?[\d.]+", re.ASCII)


@dataclass(frozen=True)
class Moves:
    """What differs between two leaderboards.

    Attributes:
        new, removed: rows that only one of them has.
        changed: row, and the columns that differ, with both texts.
        files: paths of the other published files that differ.
    """

    new: list[CsvLine]
    removed: list[CsvLine]
    changed: list[tuple[CsvLine, dict[str, tuple[str, str]]]]
    files: list[str]

    @property
    def standing(self) -> list[CsvLine]:
        """Rows that stood and moved by more than new rows beside them explain."""
        return self.removed + [row for row, facts in self.changed if not (self.new and _by_new_rows(facts))]

    def markdown(self) -> str:
        """List the moves."""
        ranks, others = list[str](), list[str]()
        for row, facts in self.changed:
            lines = ranks if facts.keys() <= {*RANKS} else others
            lines.append(f"{described(row)}: {_changes(facts)}")
        parts = [
            section("Removed rows", map(_moved, self.removed)),
            section("Changed rows", others),
            section("New rows", map(_moved, self.new)),
            section("Ranks that moved", ranks),
        ]
        if not any(parts):
            parts = ["No row of the leaderboard moved.\n"]
        if not self.new:  # new rows alone change most pages
            parts.append(section("Other files of the site that differ", map(in_markdown, self.files)))
        return "\n".join(filter(None, parts))


def _by_new_rows(facts: Mapping[str, tuple[str, str]]) -> bool:
    """Whether new rows alone can make these differences: other ranks, and the remark that papers disagree."""
    before, after = (text.partition(DISAGREEMENT)[0].rstrip() for text in facts.get("notes", ("", "")))
    return facts.keys() <= {*RANKS, "notes"} and before == after


def moves(before: Mapping[str, str], after: Mapping[str, str], where: Path) -> Moves:
    """Compare what two leaderboards publish, text by path.

    Args:
        before: of a leaderboard that this code built.
        after: of the leaderboard after the change, from :func:`read_site` or built by this code.
        where: folder of ``after``, named in errors.
    """
    old, new = rows_by_place(before[ROWS], where), rows_by_place(after[ROWS], where)
    names = sorted(name for name in before.keys() | after.keys() if name != ROWS)
    changed = [(row, _differing(old[key], row)) for key, row in new.items() if key in old]
    return Moves(
        [row for key, row in new.items() if key not in old],
        [row for key, row in old.items() if key not in new],
        [(row, facts) for row, facts in changed if facts],
        [name for name in names if before.get(name) != after.get(name)],
    )


def read_site(folder: Path) -> dict[str, str]:
    """Read a built site as data: text by path."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():  # what it leads to would be printed
            raise SubmissionError(f"{path} is a link; put the file itself there")
        if path.is_file():
            files[path.relative_to(folder).as_posix()] = path.read_text("utf-8", errors="replace")
    if ROWS not in files:
        raise SubmissionError(
            f"{folder} holds no {ROWS}; build the site with `ncl-bench leaderboard build --to {folder}`"
        )
    return files


def rows_by_place(text: str, where: Path) -> dict[Key, CsvLine]:
    """Rows of the table of all rows by their identity, which stays when numbers change.

    A measured row is known by its row file and protocol, a printed one by its place in the paper. Further rows of the
    same identity are numbered, so that none stands for another.
    """
    rows: dict[Key, CsvLine] = {}
    times: Counter[Key] = Counter()
    with reading(where / ROWS, SubmissionError, fix="build the site again"):
        for row in csv.DictReader(io.StringIO(text), restval=""):
            key = tuple(row.get(name, "") for name in (("file", "protocol") if row.get("file") else _PRINTED))
            times[key] += 1
            rows[*key, str(times[key])] = row
    return rows


def _differing(old: CsvLine, new: CsvLine) -> dict[str, tuple[str, str]]:
    """Columns whose texts differ, also where only one side has the column."""
    pairs = {name: (old.get(name, ""), new.get(name, "")) for name in {**old, **new}}
    return {name: both for name, both in pairs.items() if both[0] != both[1]}


def in_markdown(text: str) -> str:
    """A stranger's text in Markdown: one line of bounded length that links, calls and renders nothing."""
    line = " ".join(text.split())
    line = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)
    line = line if len(line) <= _MOST_LETTERS else f"{line[:_MOST_LETTERS]}…"
    if _PLAIN.fullmatch(line):
        return line
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _changes(facts: Mapping[str, tuple[str, str]]) -> str:
    """Facts that differ, such as ``r_sum 480.1 → 481.3; seeds 0 1 → 0 1 2``."""
    return "; ".join(
        f"{in_markdown(name)} {in_markdown(old) or 'nothing'} → {in_markdown(new) or 'nothing'}"
        for name, (old, new) in facts.items()
    )


def section(title: str, items: Iterable[str]) -> str:
    """A Markdown list below a heading with its length; empty without items, and cut where it is long."""
    lines = [f"- {item}" for item in items]
    if not lines:
        return ""
    more = [f"- and {len(lines) - _MOST_LINES:,} more"] if len(lines) > _MOST_LINES else []
    return f"### {title} ({len(lines):,})\n\n" + "\n".join([*lines[:_MOST_LINES], *more]) + "\n"


def described(row: CsvLine) -> str:
    """Method, backbone and condition of a row, and its file or source, as Markdown."""
    condition = in_markdown(" ".join(filter(None, (row.get(name, "") for name in Condition.model_fields))))
    source = " ".join(filter(None, (row.get("source", ""), row.get("table", ""))))
    method, backbone = (in_markdown(row.get(name, "")) for name in ("method", "backbone"))
    return ", ".join(filter(None, (method, backbone, condition, in_markdown(row.get("file") or source))))


def _moved(row: CsvLine) -> str:
    return f"{described(row)}: " + "; ".join(
        f"{name} {in_markdown(row.get(name, '')) or 'none'}" for name in _NAMED
    )


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


def additions(base: Path, root: Path) -> list[Addition]:
    """Seeds that only ``root`` has, in the order of the rows' names."""
    before, after = (read_results(folder).files for folder in (base, root))
    added = []
    for name, file in after.items():
        known = {record.key for record in before[name].seeds} if name in before else set()
        new = (record for record in file.seeds if record.key not in known)
        added += [Addition(name, file.header, record, bool(known)) for record in new]
    return added


def additions_text(base: Path, root: Path, author: str | None = None) -> str:
    """Describe the new seeds as Markdown; empty if there are none.

    Args:
        base: folder of the leaderboard before the change.
        root: folder of the leaderboard after the change.
        author: GitHub account that brings the change, if known.
    """
    after, added = read_results(root).files, additions(base, root)
    datasets = {one.header.dataset for one in added}
    ranks: dict[str, dict[str, NDArray[np.int64]]] = {dataset: {} for dataset in datasets}
    impossible: set[str] = set()
    for name, file in after.items():
        dataset = file.header.dataset
        if dataset in datasets:
            counted = ranks_of(root, name, file)
            for key, one in counted.items():
                run = run_name(name, key)
                ranks[dataset][run] = np.concatenate([one.whole.i2t, one.whole.t2i])
                if contradicts(one.whole):
                    impossible.add(run)
    new = section(
        "New seeds", (_new_seed(one, ranks[one.header.dataset], author, impossible) for one in added)
    )
    return "\n".join(filter(None, (new, section("Standing seeds that changed", changed_seeds(base, root)))))


def changed_seeds(base: Path, root: Path) -> list[str]:
    """Standing seeds whose ranks or statements differ, or that are gone, also where no printed number moves."""
    before, after = (read_results(folder).files for folder in (base, root))
    changed = []
    for name, standing in before.items():
        paths = [folder / "results" / f"{name}.npz" for folder in (base, root)]
        now = after.get(name)
        if now == standing and paths[0].read_bytes() == paths[1].read_bytes():
            continue
        same: set[str] = set()
        if now and now.header == standing.header:
            ours, theirs = ranks_of(base, name, standing), ranks_of(root, name, now)
            kept = [one.key for one in now.seeds if one in standing.seeds]
            same = {key for key in kept if _equal(ours[key], theirs[key])}
        changed += [in_markdown(run_name(name, one.key)) for one in standing.seeds if one.key not in same]
    return changed


def _equal(first: Counted, second: Counted) -> bool:
    ours, theirs = dict(arrays_of(first)), dict(arrays_of(second))
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)


def refuse_moved(moves: Moves, new: Iterable[Addition]) -> None:
    """Refuse moves of standing rows, and new seeds without a submitter: they would count as the maintainers' own."""
    if moves.standing:
        raise SubmissionError(
            f"{len(moves.standing):,} standing rows move, such as {described(moves.standing[0])}; a change may add "
            "rows and seeds of its own, and maintainers label a correction"
        )
    for one in new:
        if not one.header.submitter:
            raise SubmissionError(
                f"seed {one.record.key} of {one.name} names no submitter; add it with `ncl-bench leaderboard add DIR "
                "--submitter NAME`"
            )


def _new_seed(
    one: Addition, ranks: Mapping[str, NDArray[np.int64]], author: str | None, impossible: Collection[str]
) -> str:
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
        "plugins": ", ".join(header.setup.plugins),
        "paper": header.paper,
        "code": header.code,
        "notes": header.notes,
    }
    parts += [f"{name} {in_markdown(text) or 'none'}" for name, text in facts.items()]
    run = run_name(one.name, one.record.key)
    if run in impossible:
        parts.append("**no matrix gives these ranks in both directions**")
    near = near_copies(ranks, run)
    for other, share in [*near.items()][:3]:
        parts.append(f"**{share:.0%} of its ranks are near those of {in_markdown(other)}**")
    for other, value in [*correlated(ranks, run).items()][:3]:
        if other not in near:
            parts.append(f"**its ranks correlate with those of {in_markdown(other)}: {value:.3f}**")
    return f"{in_markdown(one.name)}, seed {in_markdown(one.record.key)}: {'; '.join(parts)}"
