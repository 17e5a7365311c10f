"""``ncl-bench datasets`` and ``ncl-bench prepare``."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from ncl_bench.arguments import as_path
from ncl_bench.calls import add_images as add_images_to
from ncl_bench.calls import dataset_of_options, new_dataset, new_dataset_of_features
from ncl_bench.calls import prepare as prepare_dataset
from ncl_bench.cli.from_calls import Option, made_from
from ncl_bench.extras import require

datasets_app = typer.Typer(
    help="List the datasets, show where to get them, and add your own.", invoke_without_command=True
)

DATA_ROOT = Option("--to", env="NCL_BENCH_DATA")


@datasets_app.callback()
def list_datasets(context: typer.Context) -> None:
    """List the datasets with their sizes, or show one in full.

    Example: ncl-bench datasets
    """
    if context.invoked_subcommand:
        return
    from ncl_bench.data import DATASETS

    width = max(map(len, DATASETS)) + 2
    typer.echo(f"{'name':<{width}}{'train images / captions':<28}{'dev':>6}{'test':>7}  noise")
    for spec in DATASETS.values():
        train = f"{spec.images['train']:,} / {spec.n_captions('train'):,}"
        typer.echo(
            f"{spec.name:<{width}}{train:<28}{spec.images['dev']:>6,}{spec.images['test']:>7,}  {spec.noise}"
        )


@datasets_app.command()
def show(
    name: Annotated[str, typer.Argument(help="Name of a dataset.")],
    croissant: Annotated[
        bool,
        typer.Option("--croissant", help="Print its metadata as JSON in the format Croissant of MLCommons."),
    ] = False,
) -> None:
    """Print where to get a dataset, its licence, its size and the files expected.

    Example: ncl-bench datasets show flickr30k
    """
    if croissant:
        from ncl_bench.data import dataset_spec
        from ncl_bench.data.croissant import croissant_text

        typer.echo(croissant_text(dataset_spec(name)), nl=False)
        return
    from ncl_bench.data.card import describe

    typer.echo(describe(name))


@datasets_app.command()
@made_from(
    new_dataset_of_features,
    new_dataset,
    to=DATA_ROOT,
    pairs=Option(default=None),
    features=Option("--features", default=None),
    captions=Option("--captions", kind=Path, default=None),
    languages=Option(metavar="LANGUAGE[=COLUMN]"),
    tokenizers=Option(metavar="[LANGUAGE=]NAME"),
)
def new(
    name: str,
    clean: Annotated[
        Path | None,
        typer.Option(
            help="Folder of an audit of own pairs, in place of a table: the pairs that it kept, with the features that "
            "it computed; or its file clean.* with --images."
        ),
    ] = None,
    **given: Any,
) -> None:
    """Make your own dataset of images and captions: encode the pictures, split, and write its module and folder.

    The same command resumes an interrupted one.

    Example: ncl-bench datasets new pets captions.csv --images photos --to data

    Example: ncl-bench datasets new pets --clean audit --to data

    Example: ncl-bench datasets new pets --features features --captions captions.csv --to data
    """
    if given["features"] is None:
        require("features", "torch", needed_by="`datasets new` without --features")  # brings `data` too
    from ncl_bench.progress import bar, hint

    root = Path(given["to"])
    given["module"] = module = given["module"] or Path(f"{name}.py")
    spec, remarks = dataset_of_options(name, clean=clean, **given, progress=bar)
    _report(root / name)
    sizes = " / ".join(f"{spec.images[split]:,}" for split in ("train", "dev", "test"))
    each, n_test, n_dev = spec.captions_per_image, spec.images["test"], spec.images["dev"]
    typer.echo(
        f"{name}: {sizes} images in train / dev / test, {each} caption(s) each in {' and '.join(spec.languages)}, "
        f"{spec.n_regions} region(s) of {spec.feature_dim} numbers"
    )
    for remark in remarks:
        typer.echo(remark)
    typer.echo(
        f"evaluation: protocol {spec.protocols[0]} ranks all {n_test:,} images and {n_test * each:,} captions of test; "
        f"the best epoch is chosen on the first {min(n_dev, 1_000):,} images of dev"
    )
    typer.echo(f"wrote {module} and {root / name}")
    # pairs that were just cleaned hold no noise to draw
    ratio = " --noise-ratio 0.4" if given["noise"] == "synthetic" and clean is None else ""
    hint(
        f"next: ncl-bench --plugin {quote(str(module))} train ncr/{name}_vse_infinity{ratio} "
        f"--root {quote(str(root))} --to runs/ncr"
    )


@made_from(
    prepare_dataset,
    place=Option("--from"),
    to=DATA_ROOT,
    push_to_hub=Option(metavar="OWNER/NAME"),
)
def prepare(
    name: str,
    check: Annotated[bool, typer.Option("--check", help="Check the download and write nothing.")] = False,
    **given: Any,
) -> None:
    """Check a downloaded dataset and convert it into a folder that loads in a second.

    The same command resumes an interrupted one.

    Example: ncl-bench prepare flickr30k --from downloads/f30k_precomp --to data
    """
    if check:
        from ncl_bench.data import hub
        from ncl_bench.data import prepare as module
        from ncl_bench.progress import bar

        place = hub.fetch_archive(name) if given["download"] else as_path(given["place"])
        found = module.check(name, place, progress=bar)
        for record in found.files:
            typer.echo(f"{record.sha256}  {record.bytes:>14,}  {record.name}")
        _print_checks(name, found.checked, found.warnings)
        return
    folder = prepare_dataset(name, **given)
    _report(folder)
    typer.echo(f"{name} is prepared in {folder}")
    if repository := given["push_to_hub"]:
        from ncl_bench.data.hub import check_upload

        typer.echo(f"uploaded {' and '.join(check_upload(name))} to {repository}")


@made_from(add_images_to, source=Option("--from"), root=DATA_ROOT)
def add_images(name: Annotated[str, typer.Argument(help="Name of a dataset.")], **given: Any) -> None:
    """Add image files to a prepared dataset, for backbones that read images.

    The same command resumes an interrupted one.

    Example: ncl-bench add-images flickr30k --from flickr30k-images --names names.csv --to data
    """
    from ncl_bench.data import dataset_spec
    from ncl_bench.progress import bar

    folder = add_images_to(dataset_spec(name), **given, progress=bar)
    typer.echo(f"the images of {name} are in {folder}")


def _report(folder: Path) -> None:
    """Print the checks that a prepared dataset passed, and its warnings."""
    from ncl_bench.data.layout import read_manifest

    manifest = read_manifest(folder)
    _print_checks(manifest.name, manifest.checked, manifest.warnings)


def _print_checks(name: str, checked: Sequence[str], warnings: Sequence[str]) -> None:
    """Print the checks that a download passed, and its warnings."""
    for fact in checked:
        typer.echo(f"{name}: checked {fact}")
    for warning in warnings:
        typer.secho(f"WARNING: {warning}", fg="yellow", bold=True, err=True)
