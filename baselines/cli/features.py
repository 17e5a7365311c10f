"""``ncl-bench features``: region features of your own images."""

import os
import re
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from ncl_bench.cli.options import Option, made_from
from ncl_bench.errors import NclBenchError, named
from ncl_bench.extras import require


@made_from(
    "baselines.features:extract",
    "baselines.features:list_images",
    "baselines.features:FeatureOptions",
    "baselines.encoders:load_encoder",
    to=Option("--to"),
    lists=Option("--split", "SPLIT=FILE"),
    name=Option("--encoder"),
    weights=Option("--weights"),
    device=Option("--device", "[auto|cpu|cuda]", default="auto"),
    workers=Option(help="Threads that decode images (default: one per core).", default=None),
    encoder=None,
    options=None,
    known=None,
    work=None,
)
def features(
    source: Path,
    to: Path,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="Encode only the I-th of N parts; when all are done, the command without --shard joins them.",
        ),
    ] = None,
    **given: Any,
) -> None:
    """Turn your images into region features that `prepare` reads.

    The same command resumes: it encodes in chunks of 1,000 images and skips finished chunks.

    Example: ncl-bench features photos --to features
    """
    require("features", "torch", needed_by="features")  # one command for all that it needs
    from baselines.encoders import load_encoder
    from baselines.features import FeatureOptions, extract, extract_shard, list_images
    from ncl_bench.progress import bar

    listed = list_images(
        source,
        given["lists"],
        **{name: given[name] for name in ("images", "image_column", "split_column")},
        work=to.parent / f".{to.name}.partial" / "pictures",
        progress=bar,
    )
    for remark in listed.remarks:
        typer.echo(remark)
    options = FeatureOptions(**{each.name: given[each.name] for each in fields(FeatureOptions)})
    network = load_encoder(given["name"], given["weights"], given["device"])
    threads = given["workers"] or os.cpu_count() or 1
    if shard is not None:
        n = extract_shard(listed, network, to, _shard(shard), options, workers=threads, progress=bar)
        typer.echo(
            f"{n:,} of {len(listed.names):,} images are encoded; the command without --shard joins all parts"
        )
        return
    done = extract(listed, network, to, options, workers=threads, progress=bar)
    for name, reason in done.skipped.items():
        typer.echo(f"left out: {listed.file(name)} {reason}")
    counts = ", ".join(f"{name} {count:,}" for name, count in done.images.items())
    regions = "1 region" if options.grid == 1 else f"{options.grid**2} regions"
    typer.echo(f"{counts} images, {regions} of {done.feature_dim} numbers each, in {to}")


def _shard(given: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", given)
    number, n = map(int, found.groups()) if found else (0, 0)
    if not 1 <= number <= n:
        raise NclBenchError(
            f"{named('shard')} is {given}, expected a part and their number, such as 1/8; correct it"
        )
    return number, n
