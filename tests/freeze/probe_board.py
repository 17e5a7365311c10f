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
from ncl_bench import DATASETS

ROOT = Path(leaderboard.__file__).parent


def rows() -> dict[str, Any]:
    """Rows before and after seeds are merged, and what was measured at equal compute."""
    content = first_of("leaderboard.board:read_content")(ROOT, published=True)
    measured_entries = [entry for entry in content.unmerged if entry.source == "submission"]
    ties = iter(ties_of_entries(measured_entries).values())
    used: Counter[str] = Counter()

    def key(entry: Any) -> str:
        cell, printed = entry.cell, entry.source != "submission"
        noise = ("printed", entry.r_sum) if printed else (cell.noise_unit, entry.noise)
        said = (
            cell.dataset,
            cell.protocol,
            cell.noise_ratio,
            cell.text,
            entry.method,
            entry.backbone,
            *noise,
        )
        how = (entry.features, entry.networks, entry.kind, entry.extra, entry.selection, entry.recipe)
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
            found["hits"] = [hashed(model) for model in content.told_apart._models(entry)]
            found["ties"] = next(ties)
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


def facts(entry: Any) -> dict[str, Any]:
    """What an entry says."""
    return {
        "recalls": entry.recalls.values,
        "r_sum": entry.r_sum,
        "intervals": entry.intervals,
        "eccv": entry.eccv,
        "cxc": entry.cxc,
        "status": entry.status,
        "noise": [entry.cell.noise_unit, entry.noise],
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


def ties_of_entries(entries: Any) -> dict[int, list[int | None]]:
    """Queries whose rank depends on ties, by number of the entry; the base states them in its entry files."""
    if (ROOT / "results").is_dir():
        stated = ties_of_ranks()
        places = [(entry.file, *entry.runs, entry.cell.protocol) for entry in entries]
    else:
        files = first_of("leaderboard.submissions:read_entry_files")(ROOT / "submissions")
        stated = {
            (path.relative_to(ROOT / "submissions").as_posix(), protocol): [
                result.i2t.tied_queries,
                result.t2i.tied_queries,
            ]
            for path, file in files.items()
            for protocol, result in file.result.protocols.items()
        }
        places = [(*entry.files, entry.cell.protocol) for entry in entries]
    return {number: stated[place] for number, place in enumerate(places)}


def ties_of_ranks() -> dict[tuple[str, str, str], list[int | None]]:
    """The same from the ranks of every query, by cell, seed and protocol."""
    from leaderboard.cells import read_results
    from leaderboard.evidence import hits_of, read_ranks

    ranks_under = first_of("ncl_bench.evaluation.protocol:ranks_under")
    found = {}
    for name, file in read_results(ROOT).cells.items():
        spec = DATASETS[file.header.dataset]
        keys = [record.key for record in file.seeds]
        counted = read_ranks(ROOT / "results" / f"{name}.npz", keys, spec)
        for record in file.seeds:
            for protocol in hits_of(counted[record.key], spec):
                ranks = ranks_under(counted[record.key], protocol)
                if record.tied_queries is not None:
                    ties = [record.tied_queries["i2t"], record.tied_queries["t2i"]]
                elif ranks.i2t_optimistic is None or ranks.t2i_optimistic is None:
                    ties = [None, None]
                else:
                    ties = [
                        int(np.count_nonzero(ranks.i2t != ranks.i2t_optimistic)),
                        int(np.count_nonzero(ranks.t2i != ranks.t2i_optimistic)),
                    ]
                found[name, record.key, protocol] = ties
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
