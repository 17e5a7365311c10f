"""Every row of the leaderboard, its ranks and significance, the measured tables, and the site's downloads."""

import csv
import hashlib
import io
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from probe import command, first_of, sha

import leaderboard

ROOT = Path(leaderboard.__file__).parent


def rows() -> dict[str, Any]:
    """Rows before and after seeds are merged, and what was measured at equal compute."""
    content = first_of("leaderboard.board:read_content")(ROOT, published=True)
    ties = tied_queries()
    used: Counter[str] = Counter()

    def key(entry: Any) -> str:
        cell = entry.cell
        said = (
            cell.dataset,
            cell.protocol,
            cell.noise_unit,
            cell.noise_ratio,
            cell.text,
            entry.method,
            entry.backbone,
        )
        how = (
            entry.features,
            entry.networks,
            entry.kind,
            entry.extra,
            entry.noise,
            entry.selection,
            entry.recipe,
        )
        rest = (entry.budget, entry.settings, entry.precision, entry.seeds, entry.source, entry.table)
        return " ".join(str(one) for one in (*said, *how, *rest) if one not in (None, "", ())).replace(
            "/", "|"
        )

    def once(name: str) -> str:
        used[name] += 1
        return name if used[name] == 1 else f"{name} #{used[name]}"

    single, merged, ranks, tables = {}, {}, {}, {}
    for entry in content.unmerged:
        found = facts(entry)
        if entry.source == "submission":
            seed = entry.seeds[0] if len(entry.seeds) == 1 else entry.seeds
            found["hits"] = [hashed(model) for model in content.told_apart._models(entry)]
            found["ties"] = ties.get((*name_of(entry), entry.cell.protocol, seed))
        single[once(f"{key(entry)}")] = found
    used.clear()
    for entry in content.entries:
        merged[once(key(entry))] = facts(entry) | {
            "spread": entry.spread,
            "interval": content.told_apart.interval(entry),
        }
    used.clear()
    for board in content.boards:
        for division in board.divisions:
            for place in division.ranked:
                for entry in (place.entry, *place.also):
                    ranks[once(key(entry))] = [division.key, place.rank]
    measured = first_of("leaderboard.measured:measured_tables")
    detection = first_of("leaderboard.measured:detection")
    drops = first_of("leaderboard.measured:drops")
    for table in measured(content):
        places = {
            cell.slug: {
                place.entry.method + (" tuned" if place.entry.recipe == "tuned" else ""): [
                    place.rank,
                    place.interval,
                    place.entry.r_sum,
                    vars(detection(place.entry)) if detection(place.entry) else None,
                ]
                for place in table.places[cell]
            }
            for cell in table.cells
        }
        groups = {cell.slug: table.groups[cell] for cell in table.cells}
        lost = {
            one.title: [one.here, one.tuned, [vars(drop) for drop in one.printed]]
            for one in drops(table, content)
        }
        lines = [[line.title, line.seeds, line.pairs_seen, line.cost] for line in table.lines]
        tables[table.slug] = {"places": places, "groups": groups, "drops": lost, "lines": lines}
    return {"single": single, "merged": merged, "ranks": ranks, "tables": tables}


def name_of(entry: Any) -> tuple[Any, ...]:
    """What tells a measured row from others but its seed."""
    cell = entry.cell
    how = (entry.recipe, entry.budget, entry.settings, entry.precision)
    return (cell.dataset, cell.noise_unit, cell.noise_ratio, entry.method, entry.backbone, *how)


def facts(entry: Any) -> dict[str, Any]:
    """What an entry says."""
    return {
        "recalls": entry.recalls.values,
        "r_sum": entry.r_sum,
        "intervals": entry.intervals,
        "eccv": entry.eccv,
        "cxc": entry.cxc,
        "status": entry.status,
        "doubts": entry.doubts,
        "ranked": entry.ranked,
        "pairs_seen": entry.pairs_seen,
        "cost": entry.cost,
        "last_epoch": entry.last_epoch,
        "curves": sha(
            str([[list(map(float, values)) for values in vars(curve).values()] for curve in entry.curves])
        ),
        "trained_on": entry.trained_on,
        "notes_words": " ".join(entry.notes),
        "command_words": entry.command,
    }


def hashed(hits: Any) -> str:
    """Hash of what a model answered."""
    return hashlib.sha256(np.ascontiguousarray(hits.parts()).tobytes()).hexdigest()[:16]


def tied_queries() -> dict[tuple[Any, ...], list[int | None]]:
    """Queries whose rank depends on ties, of every measured row and protocol."""
    families = first_of("leaderboard.methods:read_families")()
    submissions = first_of("leaderboard.submissions")
    found = {}
    for path, file in submissions.read_entry_files(ROOT / "submissions").items():
        for protocol, result in file.result.protocols.items():
            entry = submissions.entry_of(file, protocol, families, path.name)
            seed = entry.seeds[0] if len(entry.seeds) == 1 else entry.seeds
            found[(*name_of(entry), protocol, seed)] = [result.i2t.tied_queries, result.t2i.tied_queries]
    return found


def site() -> dict[str, Any]:
    """The site's downloads line by line, and which pages there are."""
    built = command("leaderboard", "build", "--root", ROOT, "--to", "site")
    folder = Path("site")
    table = list(
        csv.DictReader(io.StringIO((folder / "data" / "leaderboard.csv").read_text(encoding="utf-8")))
    )
    names = (
        "dataset",
        "protocol",
        "noise_unit",
        "noise_ratio",
        "text",
        "method",
        "backbone",
        "networks",
        "extra",
        "noise",
    )
    names += ("selection", "precision", "settings", "recipe", "budget", "source", "table", "seeds")
    used: Counter[str] = Counter()
    lines = {}
    for row in table:
        key = " ".join(filter(None, (row.get(name, "") for name in names))).replace("/", "|")
        used[key] += 1
        row["notes_words"] = row.pop("notes")
        lines[f"{key} #{used[key]}" if used[key] > 1 else key] = row
    bibliography = (folder / "data" / "sources.bib").read_text(encoding="utf-8")
    return {
        "build": built,
        "csv": lines,
        "csv_columns": list(table[0]),
        "latex": {
            path.stem: path.read_text(encoding="utf-8").splitlines()
            for path in folder.glob("data/latex/*.tex")
        },
        "bibtex": {
            text.split("{")[1].split(",")[0]: text
            for text in re.split(r"\n(?=@)", bibliography)
            if "{" in text
        },
        "pages": {path.relative_to(folder).as_posix(): True for path in folder.rglob("*") if path.is_file()},
    }


PARTS = {"rows": rows, "site": site}
