"""What a pull request changes, as Markdown for its reviewers, and what it may not change.

The published files of two leaderboards are compared: the table of all rows by row, every other file of the site by its
bytes. A site that other code built is read as data, and its texts cannot act as Markdown. New seeds are listed with
what they state and whose ranks theirs resemble.

A pull request may add rows, seeds and printed rows; what stands stays unless a maintainer agrees. Every changed file
is of one kind (:func:`kind_of`). Data is read by the base's code and compared after parsing, by file, seed and row, so
that no edit of an existing result passes as layout. Code is judged by the rows that it moves.
"""

import csv
import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from leaderboard.board import own_published, published_folder
from leaderboard.entries import Entry
from leaderboard.evidence import arrays_of, read_ranks
from leaderboard.exports import RANKS, README, ROWS, readme, tables_in
from leaderboard.results import DISAGREEMENT, changed_settings, noise_used, read_published, run_name
from leaderboard.row_files import REPRODUCED, Header, Results, RowFile, SeedRecord, read_results
from ncl_bench.data import dataset_spec
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation.ranks import Counted, Ranks
from ncl_bench.papers import DetectionLine, read_families, read_papers, read_printed_detection
from ncl_bench.schema import Record
from ncl_bench.yaml import read_short

RESULTS = ("leaderboard/results/", f"leaderboard/{REPRODUCED}")
PUBLISHED_FILES = ("results.csv", "detection.csv", "notes.yaml", "sources.yaml")
_ALLOWED = "a change may add rows and seeds of its own, and maintainers label a correction"
CsvLine = dict[str, str]
"""A line of the table of all rows: column to text."""
Key = tuple[str, ...]
_CONDITION = ("dataset", "protocol", "noise_unit", "noise_ratio", "text")
_PRINTED = ("source", "table", "method", "backbone", *_CONDITION)
_NAMED = ("rank", "r_sum", "seeds", "status", "selection", "extra", "encoder", "notes", "doubts")
"""What is said of a new row, also where it is empty."""
_MOST_LINES, _MOST_LETTERS, _MOST_FILES = 200, 300, 5_000
_LARGEST = 50_000_000
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
    def rows(self) -> list[CsvLine]:
        """All rows that moved."""
        return [*self.removed, *(row for row, _ in self.changed), *self.new]

    def markdown(self, code: Sequence[str] = ()) -> str:
        """List the moves.

        Args:
            code: changed files of the code, which are named where rows moved.
        """
        ranks = [(row, facts) for row, facts in self.changed if facts.keys() <= set(RANKS)]
        others = [(row, facts) for row, facts in self.changed if not facts.keys() <= set(RANKS)]
        parts = [
            section("Removed rows", [_moved(row) for row in self.removed]),
            section("Changed rows", [f"{place(row)}: {_changes(facts)}" for row, facts in others]),
            section("New rows", [_moved(row) for row in self.new]),
            section("Ranks that moved", [f"{place(row)}: {_changes(facts)}" for row, facts in ranks]),
        ]
        if not self.rows:
            parts.insert(0, "No row of the leaderboard moved.\n")
        elif code:
            parts.insert(0, f"Rows moved, and the change touches code: {_listed(code)}.\n")
        if self.files and (code or not self.rows):  # new rows alone change most pages
            parts.append(
                section("Other files of the site that differ", [in_markdown(name) for name in self.files])
            )
        return "\n".join(part for part in parts if part)


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
    paths = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    if folder / ROWS not in paths:
        raise SubmissionError(
            f"{folder} holds no {ROWS}; build the site with `ncl-bench leaderboard build --to {folder}`"
        )
    if len(paths) > _MOST_FILES:
        raise SubmissionError(f"{folder} holds {len(paths):,} files, a site has at most {_MOST_FILES:,}")
    files = {}
    left = _LARGEST
    for path in paths:
        if path.is_symlink():
            raise SubmissionError(f"{path} is a link; put the file itself there")
        content = read_short(path, largest=left)
        left -= len(content)
        files[path.relative_to(folder).as_posix()] = content.decode("utf-8", errors="replace")
    return files


def rows_by_place(text: str, where: Path) -> dict[Key, CsvLine]:
    """Rows of the table of all rows by their identity, which stays when numbers change.

    A measured row is known by its row file and protocol, a printed one by its place in the paper. Further rows of the
    same identity are numbered, so that none stands for another.
    """
    rows: dict[Key, CsvLine] = {}
    try:
        for line in csv.DictReader(io.StringIO(text), restkey="more", restval=""):
            row = {name: value if isinstance(value, str) else ",".join(value) for name, value in line.items()}
            key = tuple(row.get(name, "") for name in (("file", "protocol") if row.get("file") else _PRINTED))
            again = 1
            while (*key, str(again)) in rows:
                again += 1
            rows[*key, str(again)] = row
    except csv.Error as error:
        raise SubmissionError(f"{where}: {ROWS} is no table ({error}); build the site again") from None
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


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(in_markdown, names[:most])) + more


def _changes(facts: Mapping[str, tuple[str, str]]) -> str:
    """Facts that differ, such as ``r_sum 480.1 → 481.3; seeds 0 1 → 0 1 2``."""
    return "; ".join(f"{in_markdown(name)} {_arrow(*both)}" for name, both in facts.items())


def _arrow(old: str, new: str) -> str:
    return f"{in_markdown(old) or 'nothing'} → {in_markdown(new) or 'nothing'}"


def section(title: str, items: Iterable[str]) -> str:
    """A Markdown list below a heading with its length; empty without items, and cut where it is long."""
    lines = [f"- {item}" for item in items]
    if not lines:
        return ""
    more = [f"- and {len(lines) - _MOST_LINES:,} more"] if len(lines) > _MOST_LINES else []
    return f"### {title} ({len(lines):,})\n\n" + "\n".join([*lines[:_MOST_LINES], *more]) + "\n"


def place(row: CsvLine) -> str:
    """Method, backbone and condition of a row, and its file or source, as Markdown."""
    condition = in_markdown(" ".join(filter(None, (row.get(name, "") for name in _CONDITION))))
    source = " ".join(filter(None, (row.get("source", ""), row.get("table", ""))))
    names = [
        in_markdown(row.get("method", "")),
        in_markdown(row.get("backbone", "")),
        condition,
        in_markdown(row.get("file") or source),
    ]
    return ", ".join(filter(None, names))


def _moved(row: CsvLine) -> str:
    return f"{place(row)}: " + "; ".join(
        f"{name} {in_markdown(row.get(name, '')) or 'none'}" for name in _NAMED
    )


NEARLY = 0.05
"""Relative difference up to which two ranks of a query count as near."""
NEAR_COPY = 0.55
"""Share of near ranks above which a result resembles another one.

Of the 454,692 pairs of this repository's results on one dataset, most have less than .1. The nearest two have .475, on
digits, where both answer nine queries in ten. A copy in which three ranks in ten become 1 has .65 or more.
"""

CORRELATED = 0.9
"""Rank correlation with another result from which on a remark says so; halved and shifted copies have more.

Independent results of one dataset rarely reach it; two filters on one warm-up, and two settings of one method, do.
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
    impossible: set[str] = set()
    for name, file in after.items():
        dataset = file.header.dataset
        if dataset in datasets:
            keys = [record.key for record in file.seeds]
            counted = read_ranks(root / "results" / f"{name}.npz", keys, dataset_spec(dataset))
            ranks[dataset] |= {run_name(name, key): _flat(one) for key, one in counted.items()}
            impossible |= {run_name(name, key) for key, one in counted.items() if contradicts(one.whole)}
    return section(
        "New seeds", (_new_seed(one, ranks[one.header.dataset], author, impossible) for one in found)
    )


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
        share = float(np.mean((high <= (1 + NEARLY) * low)[high > 1])) if high.max() > 1 else 1.0
        if other != run and share > NEAR_COPY:
            shares[other] = share
    return dict(sorted(shares.items(), key=lambda one: -one[1]))


def correlated(ranks: Mapping[str, NDArray[np.int64]], run: str) -> dict[str, float]:
    """Results whose ranks order the queries as this one's do, and Spearman's correlation, largest first.

    Args:
        ranks, run: as of :func:`near_copies`, over the same queries.
    """
    ours, found = ranks[run], {}
    for other, theirs in ranks.items():
        asked = np.maximum(ours, theirs) > 1
        if other == run or asked.sum() < 3:
            continue
        pair = np.stack([rankdata(ours[asked]), rankdata(theirs[asked])])
        if pair.std(axis=1).all() and (value := float(np.corrcoef(pair)[0, 1])) > CORRELATED:
            found[other] = value
    return dict(sorted(found.items(), key=lambda one: -one[1]))


def contradicts(ranks: Ranks) -> bool:
    """Whether no matrix can give the ranks of both directions.

    Two sums bound each other. Order the images by the score of their best true caption, the highest first. Take image
    number ``k`` from 0, and a wrong caption that scores at least as high as its best true one. If this caption belongs
    to an image of the same place or later, its own true score is no higher, so the image also outranks the truth of
    this caption. At most ``k`` images, with ``n`` captions each, are earlier. So the captions are outranked at least
    ``sum(max(0, rank - 1 - k * n))`` times. No order gives less than that by ascending ranks, because the summand is
    convex. The same holds for captions, of which ``k`` earlier ones belong to at most ``k`` images.

    Args:
        ranks: of all images and captions, from one matrix.
    """
    each = len(ranks.t2i) // len(ranks.i2t)
    pairs = ((ranks.i2t, ranks.t2i, each), (ranks.t2i, ranks.i2t, 1))
    return any(
        int((there - 1).sum()) < int(np.maximum(0, np.sort(here) - 1 - np.arange(len(here)) * step).sum())
        for here, there, step in pairs
    )


def _flat(counted: Counted) -> NDArray[np.int64]:
    return np.concatenate([counted.whole.i2t, counted.whole.t2i])


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
        "plugins": ", ".join(header.training.plugins if header.training else ()),
        "paper": header.paper,
        "code": header.code,
        "notes": header.notes,
    }
    parts += [f"{name} {in_markdown(text) or 'none'}" for name, text in facts.items()]
    run = run_name(one.name, one.record.key)
    if run in impossible:
        parts.append("**no matrix gives these ranks in both directions**")
    near = near_copies(ranks, run)
    parts += [
        f"**{share:.0%} of its ranks are near those of {in_markdown(other)}**"
        for other, share in [*near.items()][:3]
    ]
    parts += [
        f"**its ranks correlate with those of {in_markdown(other)}: {value:.3f}**"
        for other, value in [*correlated(ranks, run).items()][:3]
        if other not in near
    ]
    return f"{in_markdown(one.name)}, seed {in_markdown(one.record.key)}: {'; '.join(parts)}"


def kind_of(path: str) -> str:
    """What a changed file of the repository is: ``results``, ``printed numbers``, ``pages`` or ``code``.

    Pages are Markdown. Whatever is nothing else is code, so that no file is of no kind.
    """
    if path.startswith(RESULTS):
        return "results"
    if path.startswith("ncl_bench/papers/published/"):
        return "printed numbers"
    return "pages" if path.endswith(".md") else "code"


def code_in(changed: Iterable[str]) -> list[str]:
    """Changed files that are code."""
    return [path for path in changed if kind_of(path) == "code"]


def refuse_mixed(changed: Iterable[str]) -> None:
    """Refuse a change of both data and code, because unreviewed code would then check the data.

    Args:
        changed: paths of the changed files in the repository; Markdown does not count as code.
    """
    first: dict[str, str] = {}
    for path in changed:
        first.setdefault(kind_of(path), path)
    data = next((kind for kind in ("results", "printed numbers") if kind in first), None)
    other = [path for kind, path in first.items() if kind not in (data, "pages")]
    if data and other:
        raise SubmissionError(
            f"the change touches {data} ({first[data]}) and other files ({other[0]}); open two pull requests, one "
            f"with the {data} and one with the rest"
        )


def refuse_moved_by_code(moves: Moves, code: list[str]) -> None:
    """Refuse code that moves a row; its own build of the same data is compared with the base's."""
    if code and moves.rows:
        others = f" and {len(code) - 1:,} other files" if len(code) > 1 else ""
        raise SubmissionError(
            f"the code of the change ({code[0]}{others}) moves {len(moves.rows):,} rows, such as "
            f"{place(moves.rows[0])}; {_ALLOWED}"
        )


def refuse_other_folder(folder: Path) -> None:
    """Refuse a folder that is no leaderboard."""
    if not (folder / "results").is_dir():
        raise SubmissionError(f"{folder} is no leaderboard; give a folder that holds results/")


def refuse_links(root: Path) -> None:
    """Refuse links in a leaderboard, or among its checkout's papers: they lead the reader elsewhere.

    Raises:
        SubmissionError: names the first link.
    """
    papers = root.parent / "ncl_bench" / "papers"
    read = (root, *root.rglob("*"), papers.parent, papers, *papers.rglob("*"))
    link = next((path for path in read if path.is_symlink()), None)
    if link is not None:
        raise SubmissionError(f"{link} is a link; put the file itself there")


def refuse_touched(base: Path, root: Path, author: str | None = None) -> None:
    """Refuse a leaderboard in which existing data is changed or gone.

    Args:
        base: folder of the leaderboard before the change.
        root: folder of the leaderboard after the change.
        author: GitHub account that brings the change; by default unknown. Only an account that the submitter's name
            holds may add a seed to a standing row, because anybody can write a name.
    """
    refuse_links(root)
    before, after = read_results(base), read_results(root)
    for name, standing in before.files.items():
        path = root / "results" / f"{name}.yaml"
        if name not in after.files:
            raise SubmissionError(f"{path} is gone; {_ALLOWED}")
        _compare_file(standing, after.files[name], base / "results" / f"{name}.yaml", path)
    _check_additions(before, after, root, author)
    if after.reproduced != before.reproduced:
        raise SubmissionError(
            f"{root / REPRODUCED} is changed; only maintainers change it, with a correction"
        )
    _compare_published(base, root)
    if tables_in(readme(base)) != tables_in(readme(root)):
        raise SubmissionError(
            f"{root / README}: the tables are changed; leave them, they are written after merging"
        )


def _check_additions(before: Results, after: Results, root: Path, author: str | None) -> None:
    for one in additions(before.files, after.files):
        where = f"{root / 'results' / one.name}.yaml: seed {one.record.key} is new and"
        if not one.header.submitter:  # it would count as the maintainers' own result
            raise SubmissionError(
                f"{where} names no submitter; add it with `ncl-bench leaderboard add DIR --submitter NAME`"
            )
        if one.joins and author is not None and not one.is_by(author):
            raise SubmissionError(
                f"{where} joins the row of {one.header.submitter}, a name that does not hold @{author}; add it under "
                "a name of your own, or ask a maintainer for the label correction"
            )


def _compare_file(standing: RowFile, now: RowFile, base: Path, path: Path) -> None:
    _compare(standing.header, now.header, f"{path}: header")
    records = {record.key: record for record in now.seeds}
    for record in standing.seeds:
        if record.key not in records:
            raise SubmissionError(f"{path}: seed {record.key} is gone; {_ALLOWED}")
        _compare(record, records[record.key], f"{path}: seed {record.key}")
    spec = dataset_spec(standing.header.dataset)
    before = read_ranks(base.with_suffix(".npz"), [record.key for record in standing.seeds], spec)
    after = read_ranks(path.with_suffix(".npz"), list(records), spec)
    for seed, counted in before.items():
        ours, theirs = dict(arrays_of(counted)), dict(arrays_of(after[seed]))
        if ours.keys() != theirs.keys() or not all(np.array_equal(ours[name], theirs[name]) for name in ours):
            raise SubmissionError(
                f"{path.with_suffix('.npz')}: the ranks of seed {seed} are changed; {_ALLOWED}"
            )


def _compare_published(base: Path, root: Path) -> None:
    before, after = published_folder(base), own_published(root) or root / "published"
    if own_published(base) is None and not after.exists():
        return  # neither has printed numbers of its own
    strange = min((path for path in after.rglob("*") if path.name not in PUBLISHED_FILES), default=None)
    if strange is not None:
        raise SubmissionError(f"{strange} belongs to no printed numbers; remove it")
    standing, now = _printed(before), _printed(after)
    for key, record in standing.items():
        what = f"{after}: the {' '.join(filter(None, key))}"
        if key not in now:
            raise SubmissionError(f"{what} is gone; {_ALLOWED}")
        _compare(record, now[key], what)


def _printed(folder: Path) -> dict[tuple[str, ...], Record | DetectionLine]:
    """Everything that is printed in papers, by what it is and where it stands."""
    found: dict[tuple[str, ...], Record | DetectionLine] = {}
    records: list[tuple[tuple[str, ...], Record | DetectionLine]] = [
        *((("source", name), paper) for name, paper in read_papers(folder).items()),
        *(
            (_place_of_row(entry), _without_remark(entry))
            for entry in read_published(read_families(), folder)
        ),
        *((_place_of_detection(line), line) for line in read_printed_detection(folder)),
    ]
    for key, record in records:
        if key in found:
            raise SubmissionError(
                f"{folder}: the {' '.join(filter(None, key))} stands twice; remove one of the two"
            )
        found[key] = record
    return found


def _place_of_row(entry: Entry) -> tuple[str, ...]:
    return "row", entry.method, entry.backbone, "of", entry.source, entry.table, "in", entry.condition.slug


def _place_of_detection(line: DetectionLine) -> tuple[str, ...]:
    return (
        "detection row",
        line.method,
        line.backbone,
        "of",
        line.paper,
        line.table,
        "on",
        line.dataset,
        line.noise,
    )


def _without_remark(entry: Entry) -> Entry:
    """A row without the remark on other papers, which a new row may add to an existing one."""
    notes = tuple(note for note in entry.notes if not note.startswith(DISAGREEMENT))
    return entry.model_copy(update={"notes": notes})


def _compare(before: Record | DetectionLine, after: Record | DetectionLine, where: str) -> None:
    changed = [name for name, value in vars(before).items() if value != getattr(after, name)]
    if changed:
        raise SubmissionError(f"{where}: {changed[0]} is changed; {_ALLOWED}")
