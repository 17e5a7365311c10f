"""Numbers printed in papers: published/results.csv with our remarks, as entries of status ``reported``.

``import_published`` copies the numbers from a collected table as printed, in its order, without remarks. Our remarks
are in published/notes.yaml.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import field_validator

from leaderboard.entries import Cell, Entry, checked
from leaderboard.methods import Family, Reference, commands, family_of
from ncl_bench.data import DATASETS
from ncl_bench.errors import SubmissionError, unknown_name
from ncl_bench.evaluation.metrics import RECALLS
from ncl_bench.files import as_csv, from_csv_cell, read_table, write_text
from ncl_bench.schema import Link, LongText, Record, ShownText, Text, read_yaml

PUBLISHED = Path(__file__).parent / "published"
DISAGREEMENT = "Other papers print another rSum"
"""Start of the remark on papers that print other numbers for the same row."""


class Paper(Reference):
    """A paper, repository or poster that prints numbers."""

    short: Text
    method: str
    read_from: LongText
    code: Link = ""


class Original(Record):
    """A line of results.csv whose numbers other papers repeat."""

    source: str
    table: str
    method: str


class Rule(Record):
    """A remark and the lines of results.csv it applies to.

    ``same_as`` names another paper's row: the remark then applies only to lines that repeat its six recalls in its
    cell.
    """

    where: dict[str, Any]
    same_as: Original | None = None
    note: LongText = ""
    doubt: LongText = ""
    kind: Literal["ablation", "oracle"] | None = None
    extra: ShownText = ""
    features: Literal["pretrained", "unknown"] | None = None
    selection: Literal["test"] | None = None
    noise: ShownText = ""

    @field_validator("where")
    @classmethod
    def _names_columns(cls, value: dict[str, Any]) -> dict[str, Any]:
        unknown = next((name for name in value if name not in _WRITTEN), None)
        if unknown is not None:
            raise ValueError(unknown_name("column", unknown, _WRITTEN))
        return value

    def applies(self, facts: dict[str, str]) -> bool:
        """Whether a line of results.csv matches all values under ``where``."""
        wanted = (
            (facts[key], value if isinstance(value, list) else [value]) for key, value in self.where.items()
        )
        return all(got in [str(value) for value in values] for got, values in wanted)


class _Rules(Record):
    """Content of notes.yaml."""

    rules: tuple[dict[str, Any], ...] = ()


def read_papers(folder: Path = PUBLISHED) -> dict[str, Paper]:
    """Read the papers by key."""
    path = folder / "sources.yaml"
    return {key: checked(Paper, content, f"{path}: {key}") for key, content in read_yaml(path).items()}


def read_published(families: dict[str, Family], folder: Path = PUBLISHED) -> list[Entry]:
    """Read the reported entries, in the file's order.

    Args:
        families: methods, from ``read_families``.
        folder: holds results.csv, notes.yaml and sources.yaml.

    Raises:
        SubmissionError: a line does not fit the schema, names an unknown method or source, or a rule matches no line.
    """
    papers, path = read_papers(folder), folder / "results.csv"
    rules_path = folder / "notes.yaml"
    listed = checked(_Rules, read_yaml(rules_path), str(rules_path)).rules
    rules = [checked(Rule, rule, f"{rules_path}: rule {n}") for n, rule in enumerate(listed, start=1)]
    lines = _read_csv(path)
    if lines and set(next(iter(lines.values()))) != {*_WRITTEN}:
        raise SubmissionError(f"{path} has other columns, expected {', '.join(_WRITTEN)}")
    used: set[int] = set()
    entries = []
    for where, facts in lines.items():
        matching = [
            n
            for n, rule in enumerate(rules)
            if rule.applies(facts) and (rule.same_as is None or _repeats(facts, rule.same_as, lines, where))
        ]
        used.update(matching)
        entries.append(_entry(facts, [rules[n] for n in matching], families, papers, where))
    for n, rule in enumerate(rules):
        if n not in used:
            raise SubmissionError(
                f"{rules_path}: rule {n + 1} fits no line of results.csv; correct its `where`, {rule.where}"
            )
    return _with_disagreements(entries, papers)


class PrintedDetection(Record):
    """What a source prints of finding wrong pairs; each text as in published/detection.csv, empty if not printed.

    Attributes:
        paper, table: where it stands.
        method, backbone: what found them.
        dataset, noise: where.
        accuracy, auroc: in [0, 1].
        average_precision_wrong, f1: likewise; the wrong pair is the positive one.
        remark: what a reader has to know.
    """

    paper: ShownText
    table: ShownText
    method: ShownText
    backbone: ShownText
    dataset: ShownText
    noise: ShownText
    accuracy: ShownText
    auroc: ShownText
    average_precision_wrong: ShownText
    f1: ShownText
    remark: ShownText


def read_printed_detection(folder: Path = PUBLISHED) -> list[PrintedDetection]:
    """The detection numbers that papers print, in the file's order; they stand in no table of retrieval.

    Raises:
        SubmissionError: the file cannot be read, or its columns are others.
    """
    path = folder / "detection.csv"
    lines = _read_csv(path) if path.exists() else {}
    return [checked(PrintedDetection, line, where) for where, line in lines.items()]


def _read_csv(path: Path) -> dict[str, dict[str, str]]:
    """The rows of a table by their places, "file:line"."""
    rows = read_table(path, SubmissionError, expected="a CSV file", filled=False)[1]
    return {where: {name: from_csv_cell(cell) for name, cell in row.items()} for where, row in rows}


def _repeats(facts: dict[str, str], original: Original, lines: dict[str, dict[str, str]], where: str) -> bool:
    """Whether a line repeats the six recalls that another paper prints for the same dataset, protocol and ratio.

    Raises:
        SubmissionError: it does, but states another noise unit.
    """
    same = {name: facts[name] for name in ("dataset", "protocol", "noise_ratio", *RECALLS)} | dict(original)
    found = next((line for line in lines.values() if same.items() <= line.items()), None)
    if found and found["noise_unit"] != facts["noise_unit"]:
        printed = f"{original.method} in {original.source}, {original.table}"
        raise SubmissionError(
            f"{where}: noise_unit is {facts['noise_unit']!r}, but the six recalls are those of {printed}, under "
            f"{found['noise_unit']!r}; correct one of the two"
        )
    return found is not None


def _with_disagreements(entries: list[Entry], papers: dict[str, Paper]) -> list[Entry]:
    """Add a remark to entries for which other papers print other numbers."""
    rows: dict[tuple[object, ...], list[Entry]] = {}
    for entry in entries:
        rows.setdefault(entry.quoted_as, []).append(entry)

    def remarked(entry: Entry) -> Entry:
        others = {
            papers[other.source].short.split(",")[0]: f"{other.r_sum:.1f}"
            for other in rows[entry.quoted_as]
            if None not in (other.r_sum, entry.r_sum) and f"{other.r_sum:.1f}" != f"{entry.r_sum:.1f}"
        }
        if not others:
            return entry
        shown = ", ".join(f"{value} in {paper}" for paper, value in list(others.items())[:3])
        remark = f"{DISAGREEMENT}: {shown}{', and elsewhere' if len(others) > 3 else ''}."
        return entry.model_copy(update={"notes": (*entry.notes, remark)})

    return [remarked(entry) for entry in entries]


def _entry(
    facts: dict[str, str],
    rules: list[Rule],
    families: dict[str, Family],
    papers: dict[str, Paper],
    where: str,
) -> Entry:
    if facts["source"] not in papers:
        raise SubmissionError(f"{where}: source {facts['source']!r} is not in sources.yaml; add it there")
    key = family_of(facts["method"], families)
    if not key:
        raise SubmissionError(
            f"{where}: method {facts['method']!r} is in no family of methods.yaml; name it in one"
        )
    cell = checked(Cell, _cell(facts), where)
    networks = families[key].networks(facts["method"], facts["backbone"])
    content: dict[str, Any] = {
        "method": facts["method"],
        "family": key,
        "backbone": facts["backbone"],
        "networks": networks,
        "cell": cell,
        "recalls": {name: _number(facts[name]) for name in RECALLS},
        "printed_r_sum": _number(facts["r_sum"]),
        "status": "reported",
        "source": facts["source"],
        "own": papers[facts["source"]].method == key,
        "table": facts["table"],
        "command": "\n".join(
            commands(families[key], facts["method"], facts["backbone"], networks, cell, printed=True)
        ),
    }
    for rule in rules:
        facets = rule.model_dump(include={"kind", "extra", "features", "selection", "noise"})
        content |= {name: value for name, value in facets.items() if value}
    if content.get("features") == "pretrained":
        content["encoder"] = facts["backbone"]
    content["notes"] = [rule.note for rule in rules if rule.note]
    content["notes"] += [_quoted(rule.same_as, papers) for rule in rules if rule.same_as]
    content["doubts"] = [rule.doubt for rule in rules if rule.doubt]
    return _with_findings(checked(Entry, content, where), papers[facts["source"]])


def _quoted(original: Original, papers: dict[str, Paper]) -> str:
    paper = papers[original.source].short
    return f"Noise unit: as {original.method} in {paper}, {original.table}, since all six recalls are equal."


def _with_findings(entry: Entry, paper: Paper) -> Entry:
    """Add what the numbers show by themselves: another printed sum as a note, impossible recalls as a doubt."""
    notes, doubts = entry.notes, entry.doubts
    if entry.printed_gap is not None:
        printed, computed = entry.printed_r_sum, entry.recalls.r_sum
        who, gap = paper.short.split(",")[0], f"{entry.printed_gap:+.1f}"
        notes = (f"{who} prints rSum {printed:.1f}; its recalls add up to {computed:.1f} ({gap}).", *notes)
    if entry.recalls.falling:
        large, small = (name.replace("_r", " R@") for name in entry.recalls.falling.split(" < "))
        doubts = (*doubts, f"{large} is below {small}, which is impossible.")
    return entry.model_copy(update={"notes": notes, "doubts": doubts})


def _cell(facts: dict[str, str]) -> dict[str, Any]:
    spec = DATASETS.get(facts["dataset"])
    text = facts["tokenizer"] if spec and spec.shipped_tokenizers else ""
    ratio = _number(facts["noise_ratio"])
    return {name: facts[name] for name in ("dataset", "protocol", "noise_unit")} | {
        "noise_ratio": ratio,
        "text": text,
    }


def _number(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise SubmissionError(
            f"{PUBLISHED / 'results.csv'} holds {text!r} where a number is expected"
        ) from None


COLUMNS = (
    "source",
    "table",
    "method",
    "backbone",
    "dataset",
    "protocol",
    "noise_unit",
    "noise_ratio",
    "tokenizer",
)
_WRITTEN = (*COLUMNS, *RECALLS, "r_sum")
"""Columns of results.csv."""
_UNIT_OF_TYPE = {"none": "none", "real": "natural"}


def import_published(collected: Path, target: Path) -> int:
    """Write ``target`` from a collected CSV file.

    Args:
        collected: CSV with one row per published number: ``source_key``, ``table``, ``method``, ``backbone``,
            ``dataset``, ``protocol``, ``noise_type``, ``noise_ratio``, ``noise_unit``, ``tokenizer``, six
            recalls and ``rsum_reported``.
        target: the CSV file to write.

    Returns:
        The number of rows.

    Raises:
        SubmissionError: there is no row, a column is missing or a row is repeated.
    """
    rows = {where: _facts(row, where) for where, row in _read_csv(collected).items()}
    if not rows:
        raise SubmissionError(
            f"{collected} has no rows, expected one per published result below the names of columns"
        )
    seen: dict[tuple[str, ...], str] = {}
    for where, row in rows.items():
        key = tuple(row[name] for name in COLUMNS)
        if key in seen:
            raise SubmissionError(
                f"{where} repeats {seen[key]}: {', '.join(filter(None, key))}; remove one of the two"
            )
        seen[key] = where
    write_text(target, as_csv([_WRITTEN, *([row[name] for name in _WRITTEN] for row in rows.values())]))
    return len(rows)


def _facts(row: dict[str, str], where: str) -> dict[str, str]:
    try:
        unit = _UNIT_OF_TYPE.get(row["noise_type"], row["noise_unit"])
        renamed = {"source": row["source_key"], "noise_unit": unit, "r_sum": row["rsum_reported"]}
        copied = {name: row[name] for name in (*COLUMNS, *RECALLS) if name not in renamed}
        return copied | renamed
    except KeyError as error:
        raise SubmissionError(
            f"{where} has no column {error}; expected the columns of a collected table"
        ) from None
