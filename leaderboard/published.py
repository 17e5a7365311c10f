"""Printed results as entries of status ``reported``, with the remarks that the numbers give by themselves."""

from pathlib import Path
from typing import Any

from leaderboard.entries import Condition, Entry
from leaderboard.methods import commands
from ncl_bench.data import DATASETS
from ncl_bench.evaluation.metrics import RECALLS
from ncl_bench.papers import PUBLISHED, Family, Original, Paper, Printed, read_papers, read_printed
from ncl_bench.schema import checked

DISAGREEMENT = "Other papers print another rSum"
"""Start of the remark on papers that print other numbers for the same row."""


def own_published(root: Path) -> Path | None:
    """Folder of a leaderboard's own printed results, or of those of the checkout that it belongs to; else None."""
    checkout = root.parent / "ncl_bench" / "papers" / "published"
    return next((folder for folder in (root / "published", checkout) if folder.is_dir()), None)


def read_published(families: dict[str, Family], folder: Path = PUBLISHED) -> list[Entry]:
    """Read the reported entries, in the file's order.

    Args:
        families: methods, from ``read_families``.
        folder: holds results.csv, notes.yaml and sources.yaml.
    """
    papers = read_papers(folder)
    return _with_disagreements([_entry(each, papers) for each in read_printed(families, folder)], papers)


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


def _entry(printed: Printed, papers: dict[str, Paper]) -> Entry:
    row, family, rules = printed.row, printed.family, printed.rules
    condition = _condition(printed)
    networks = family.networks(row.method, row.backbone)
    content: dict[str, Any] = {
        "method": row.method,
        "family": printed.key,
        "backbone": row.backbone,
        "networks": networks,
        "condition": condition,
        "recalls": {name: getattr(row, name) for name in RECALLS},
        "printed_r_sum": row.r_sum,
        "status": "reported",
        "source": row.source,
        "own": printed.own,
        "table": row.table,
        "command": "\n".join(commands(family, row.method, row.backbone, networks, condition, printed=True)),
    }
    for rule in rules:
        facets = rule.model_dump(include={"kind", "extra", "features", "selection", "noise"})
        content |= {name: value for name, value in facets.items() if value}
    if content.get("features") == "pretrained":
        content["encoder"] = row.backbone
    content["notes"] = [rule.note for rule in rules if rule.note]
    content["notes"] += [_quoted(rule.same_as, papers) for rule in rules if rule.same_as]
    content["doubts"] = printed.doubts
    return _with_findings(checked(Entry, content, printed.where), printed.paper)


def _condition(printed: Printed) -> Condition:
    row, spec = printed.row, DATASETS.get(printed.row.dataset)
    facts = row.model_dump(include={"dataset", "protocol", "noise_unit", "noise_ratio"})
    text = row.tokenizer if spec and spec.shipped_tokenizers else ""
    return checked(Condition, facts | {"text": text}, printed.where)


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
