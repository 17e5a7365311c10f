"""``ncl-bench features``: region features of your own images."""

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from baselines.feature_options import FeatureOptions
from ncl_bench.cli.from_calls import made_from
from ncl_bench.errors import NclBenchError, named
from ncl_bench.extras import require


@made_from(
    FeatureOptions,
)
def features(
    source: Annotated[
        Path,
        typer.Argument(
            help="Folder of images; or a table (.csv, .tsv, .txt, .jsonl, .json, .parquet) with a column of images and "
            "optionally `split`, a folder with metadata.csv, WebDataset shards or what `datasets` saved."
        ),
    ],
    to: Annotated[Path, typer.Option(help="Folder to write.")],
    images: Annotated[
        Path | None, typer.Option(help="Folder of the pictures (default: the folder of the table).")
    ] = None,
    lists: Annotated[
        list[str] | None,
        typer.Option(
            "--split",
            metavar="SPLIT=FILE",
            help="File with the image names of a split, one per line; give it for train, dev and test; repeatable.",
        ),
    ] = None,
    image_column: Annotated[
        str | None,
        typer.Option(
            help="Column of image paths or pictures (default: image, file_name, path, filename or alike)."
        ),
    ] = None,
    split_column: Annotated[
        str | None, typer.Option(help="Column of splits (default: split, if there is one).")
    ] = None,
    encoder: Annotated[
        str,
        typer.Option(help="Image encoder: efficientnet-lite0, or a timm model with a grid of features."),
    ] = "efficientnet-lite0",
    weights: Annotated[
        Path | None,
        typer.Option(
            help="Encoder weights, as safetensors or a state dict (default: the published weights)."
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            metavar="[auto|cpu|cuda]", help="Device of the networks; auto takes a GPU if there is one."
        ),
    ] = "auto",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Threads that decode images (default: one per core).")
    ] = None,
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
    from baselines.features import extract, extract_shard, list_images
    from ncl_bench.progress import bar

    listed = list_images(
        source,
        lists or (),
        images=images,
        image_column=image_column,
        split_column=split_column,
        work=to.parent / f".{to.name}.partial" / "pictures",
        progress=bar,
    )
    for remark in listed.remarks:
        typer.echo(remark)
    options = FeatureOptions(**given)
    network = load_encoder(encoder, weights, device)
    threads = workers or os.cpu_count() or 1
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
    numbers = re.fullmatch(r"(\d{1,6})/(\d{1,6})", given)
    number, n = map(int, numbers.groups()) if numbers else (0, 0)
    if not 1 <= number <= n:
        raise NclBenchError(
            f"{named('shard')} is {given}, expected a part and their number, such as 1/8; correct it"
        )
    return number, n
