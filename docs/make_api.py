"""Write docs/api.md from the docstrings of the public names, without importing them.

python docs/make_api.py            write the page
python docs/make_api.py --check    say whether it is current, exit with 1 if not
"""

import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

from ncl_bench.files import write_text

WIDTH = 100
ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "api.md"
PUBLIC = {
    "Data and evaluation": (
        "Names that `import ncl_bench` offers; numpy, never torch.",
        (
            "ncl_bench.data.load_dataset",
            "ncl_bench.data.paired.PairedDataset",
            "ncl_bench.data.DATASETS",
            "ncl_bench.noise.draw.inject_noise",
            "ncl_bench.evaluation.protocol.evaluate",
            "ncl_bench.evaluation.protocol.PROTOCOL_VERSION",
            "ncl_bench.evaluation.scores.write_scores",
            "ncl_bench.errors.NclBenchError",
        ),
    ),
    "What they hand out": (
        "Types of the values above.",
        (
            "ncl_bench.data.spec.DatasetSpec",
            "ncl_bench.data.paired.Pairs",
            "ncl_bench.data.paired.TokenTable",
            "ncl_bench.data.paired.collate",
            "ncl_bench.data.true_correspondence",
            "ncl_bench.noise.draw.NoiseRecord",
            "ncl_bench.evaluation.results.Evaluation",
            "ncl_bench.evaluation.results.ProtocolResult",
            "ncl_bench.evaluation.results.DirectionResult",
            "ncl_bench.evaluation.submission.Submission",
        ),
    ),
    "The contract of a method": (
        "What a method fulfils and what the engine hands it; torch.",
        (
            "baselines.kit.method.Method",
            "baselines.kit.method.Setting",
            "baselines.kit.method.EpochPlan",
            "baselines.kit.method.Step",
            "baselines.kit.method.stepwise",
            "baselines.kit.batches.Batch",
            "baselines.kit.batches.TrainingBatches",
            "baselines.kit.pair_memory.PairMemory",
            "baselines.kit.backbone.Backbone",
            "baselines.engine.recipe.Recipe",
        ),
    ),
    "Losses": (
        "Terms that several papers share.",
        (
            "baselines.kit.losses.mean_triplet",
            "baselines.kit.losses.hardest_triplet",
            "baselines.kit.losses.info_nce",
            "baselines.kit.losses.hinge_costs",
        ),
    ),
}
"""Title to introduction and names, in the order of the page."""


def page() -> str:
    """The Markdown text."""
    logging.getLogger("griffe").setLevel(
        logging.ERROR
    )  # attributes of dataclasses are documented by their class
    rooms = {
        room: griffe.load(room, search_paths=[str(ROOT)], docstring_parser="google", allow_inspection=False)
        for room in ("ncl_bench", "baselines")
    }
    parts = ["# API reference", "Generated from the docstrings by `python docs/make_api.py`; do not edit."]
    for title, (introduction, names) in PUBLIC.items():
        parts += [f"## {title}", introduction]
        for name in names:
            room, rest = name.split(".", 1)
            parts += _described(rooms[room][rest], name)
    return "\n\n".join(parts) + "\n"


def _described(thing: Any, name: str) -> Iterator[str]:
    home = name.rpartition(".")[0]
    yield f"### {thing.name}"
    if thing.is_attribute:
        yield f"`{name}`"
    else:
        yield f"```text\n{_signature(thing, f'{home}.')}\n```"
    yield from _sections(thing.docstring)
    for member in thing.members.values() if thing.is_class else ():
        if member.is_public and (member.is_function or "property" in member.labels) and member.docstring:
            yield f"#### {thing.name}.{member.name}"
            if member.is_function:
                yield f"```text\n{_signature(member)}\n```"
            yield from _sections(member.docstring)


def _signature(thing: Any, home: str = "") -> str:
    line = f"{'class ' * thing.is_class}{home}{thing.signature() or thing.name}"
    return line if len(line) <= WIDTH else _one_per_line(line)


def _one_per_line(signature: str) -> str:
    """Arguments on lines of their own; commas within brackets separate nothing."""
    opened = signature.index("(") + 1
    closed = signature.rindex(")", 0, (signature + " -> ").rindex(") -> ") + 1)
    parts, depth = [""], 0
    for character in signature[opened:closed]:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    arguments = "".join(f"    {part.strip()},\n" for part in parts)
    return f"{signature[:opened]}\n{arguments}{signature[closed:]}"


def _sections(docstring: Any) -> Iterator[str]:
    for section in docstring.parsed if docstring else ():
        kind, value = section.kind.value, section.value
        if kind == "text":
            yield _linked(value)
        elif kind in ("parameters", "attributes"):
            rows = (f"- `{item.name}`: {_inline(item.description)}" for item in value)
            yield f"**{'Arguments' if kind == 'parameters' else 'Attributes'}**\n\n" + "\n".join(rows)
        elif kind in ("returns", "yields"):
            yield f"**{kind.title()}** " + " ".join(_inline(item.description) for item in value)
        elif kind == "raises":
            rows = (f"- `{item.annotation}`: {_inline(item.description)}" for item in value)
            yield "**Raises**\n\n" + "\n".join(rows)


def _inline(text: str) -> str:
    return _linked(" ".join(text.split()))


def _linked(text: str) -> str:
    """Sphinx roles and double backticks as plain code."""
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text)
    return text.replace("``", "`")


def main() -> int:
    """Write or check the page; the exit code."""
    if "--check" not in sys.argv[1:]:
        write_text(PAGE, page())
        return 0
    current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page()
    print(f"{PAGE} is {'current' if current else 'out of date: run python docs/make_api.py'}")
    return 0 if current else 1


if __name__ == "__main__":
    sys.exit(main())
