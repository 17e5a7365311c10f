"""``ncl-bench datasets`` and ``ncl-bench prepare``."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

import typer

from ncl_bench.cli.options import (
    CaptionColumn,
    DevImages,
    ImageColumn,
    Pictures,
    SplitColumn,
    SplitSeed,
    TestImages,
)

datasets_app = typer.Typer(
    help="List the datasets, show where to get them, and add your own.", invoke_without_command=True
)

DATA_ROOT = typer.Option(
    "--to",
    envvar="NCL_BENCH_DATA",
    help="Folder of prepared datasets; the dataset is written to its subfolder NAME.",
)


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
def new(
    name: Annotated[str, typer.Argument(help="Name of your dataset: small letters, digits and _.")],
    root: Annotated[Path, DATA_ROOT],
    pairs: Annotated[
        Path | None,
        typer.Argument(
            help="Table with one row per caption (.csv, .tsv, .txt, .jsonl, .json, .parquet; columns: image, caption "
            "or one per language, and optionally split), or a folder with metadata.csv, WebDataset shards or what "
            "`datasets` saved."
        ),
    ] = None,
    images: Pictures = None,
    clean: Annotated[
        Path | None,
        typer.Option(
            "--clean",
            help="Folder of an audit of own pairs, in place of a table: the pairs that it kept, with the features that "
            "it computed. Or its file clean.* with --images.",
        ),
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(
            "--features",
            help="Folder of features in place of pictures, with train.npy, dev.npy and test.npy and their ids, or with "
            "one .npy file per image (default: the pictures are encoded).",
        ),
    ] = None,
    captions: Annotated[Path | None, typer.Option("--captions", help="The table, beside --features.")] = None,
    image_column: ImageColumn = None,
    caption_column: CaptionColumn = None,
    split_column: SplitColumn = None,
    module: Annotated[
        Path | None, typer.Option("--module", help="Python file to write (default: NAME.py).")
    ] = None,
    captions_per_image: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Captions to keep per image, the first ones; needed if images have different numbers of captions.",
        ),
    ] = None,
    languages: Annotated[
        list[str] | None,
        typer.Option(
            "--language",
            metavar="LANGUAGE[=COLUMN]",
            help="Language of a column of captions, such as en or en=text; repeatable, the first one is the dataset's "
            "default (default: the column caption in English, or all columns named by languages).",
        ),
    ] = None,
    dev: DevImages = None,
    test: TestImages = None,
    seed: SplitSeed = 0,
    noise: Annotated[
        Literal["synthetic", "natural"],
        typer.Option(
            help="Noise of the pairs: synthetic (pairs are correct, noise is drawn) or natural (many are wrong)."
        ),
    ] = "synthetic",
    tokenizers: Annotated[
        list[str] | None,
        typer.Option(
            "--tokenizer",
            metavar="[LANGUAGE=]NAME",
            help="Tokenizer of all captions or of one language: word, word-punkt, jieba, char, bpe or bert; "
            "repeatable (default: jieba for Chinese, char for other languages written without blanks, else word).",
        ),
    ] = None,
    tokenizer_file: Annotated[
        Path | None, typer.Option(help="File tokenizer.json that --tokenizer bert reads.")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="Image encoder: efficientnet-lite0, or a timm model with a grid of features (default: "
            "efficientnet-lite0, or that of the audit)."
        ),
    ] = None,
    skip_damaged: Annotated[
        bool,
        typer.Option("--skip-damaged", help="Skip and list files that are not readable images."),
    ] = False,
    device: Annotated[
        str,
        typer.Option(
            metavar="[auto|cpu|cuda]", help="Device of the encoder; auto takes a GPU if there is one."
        ),
    ] = "auto",
) -> None:
    """Make your own dataset of images and captions: encode the pictures, split, and write its module and folder.

    The same command resumes an interrupted one.

    Example: ncl-bench datasets new pets captions.csv --images photos --to data

    Example: ncl-bench datasets new pets --clean audit --to data

    Example: ncl-bench datasets new pets --features features --captions captions.csv --to data
    """
    from ncl_bench.data.own import new_dataset
    from ncl_bench.plugins import command_name
    from ncl_bench.progress import bar, hint

    module = module or Path(f"{name}.py")
    spec, remarks = new_dataset(
        name,
        pairs,
        to=root,
        images=images,
        clean=clean,
        features=features,
        captions=captions,
        image_column=image_column,
        caption_column=caption_column,
        split_column=split_column,
        module=module,
        captions_per_image=captions_per_image,
        languages=languages or (),
        dev=dev,
        test=test,
        seed=seed,
        noise=noise,
        tokenizers=tokenizers or (),
        tokenizer_file=tokenizer_file,
        encoder=encoder,
        skip_damaged=skip_damaged,
        device=device,
        progress=bar,
    )
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
    ratio = " --noise-ratio 0.4" if noise == "synthetic" else ""
    hint(
        f"next: {command_name()} --plugin {quote(str(module))} train ncr/{name}_vse_infinity{ratio} "
        f"--root {quote(str(root))} --to runs/ncr"
    )


def prepare(
    name: Annotated[str, typer.Argument(help="Name of a dataset.")],
    place: Annotated[
        Path | None, typer.Option("--from", help="Folder of the downloaded files, or a zip file of them.")
    ] = None,
    root: Annotated[Path | None, DATA_ROOT] = None,
    check: Annotated[bool, typer.Option("--check", help="Check the download and write nothing.")] = False,
    download: Annotated[
        bool,
        typer.Option(
            "--download",
            help="Fetch the dataset's archive from the Hugging Face Hub first, if it is published there.",
        ),
    ] = False,
    dtype: Annotated[
        Literal["float32", "float16"] | None,
        typer.Option(help="Number type of the features (default: the download's)."),
    ] = None,
    tokenizers: Annotated[
        list[str] | None,
        typer.Option(
            "--tokenizer",
            help="Tokenizer: word, word-punkt, jieba, char, bpe or bert; repeatable (default: the dataset's own).",
        ),
    ] = None,
    tokenizer_file: Annotated[
        Path | None, typer.Option(help="File tokenizer.json that --tokenizer bert reads.")
    ] = None,
    vocabulary: Annotated[
        Path | None,
        typer.Option(
            help="Vocabulary file (json) for word and word-punkt (default: the published one if the download has it, "
            "else one built from the training captions, with other ids)."
        ),
    ] = None,
    push_to_hub: Annotated[
        str | None,
        typer.Option(
            metavar="OWNER/NAME",
            help="Dataset repository of the Hugging Face Hub to upload to afterwards; a new one is private.",
        ),
    ] = None,
) -> None:
    """Check a downloaded dataset and convert it into a folder that loads in a second.

    The same command resumes an interrupted one.

    Example: ncl-bench prepare flickr30k --from downloads/f30k_precomp --to data
    """
    if check:
        from ncl_bench.data import hub
        from ncl_bench.data import prepare as module
        from ncl_bench.progress import bar

        place = hub.downloaded(name, place) if download else place
        found = module.check(name, place, progress=bar)
        for record in found.files:
            typer.echo(f"{record.sha256}  {record.bytes:>14,}  {record.name}")
        _print_checks(name, found.checked, found.warnings)
        return
    from ncl_bench.data.prepare import prepare as run

    folder = run(
        name,
        place,
        root,
        download=download,
        dtype=dtype,
        tokenizers=tokenizers or (),
        tokenizer_file=tokenizer_file,
        vocabulary=vocabulary,
        push_to_hub=push_to_hub,
    )
    _report(folder)
    typer.echo(f"{name} is prepared in {folder}")
    if push_to_hub:
        from ncl_bench.data.hub import check_upload

        typer.echo(f"uploaded {' and '.join(check_upload(name))} to {push_to_hub}")


def add_images(
    name: Annotated[str, typer.Argument(help="Name of a dataset.")],
    place: Annotated[
        Path,
        typer.Option(
            "--from",
            help="Folder with one file per image; or the table, shards or saved folder that the dataset was made of.",
        ),
    ],
    root: Annotated[
        Path, typer.Option("--to", envvar="NCL_BENCH_DATA", help="Folder that holds the prepared dataset.")
    ],
    names: Annotated[
        Path | None,
        typer.Option(
            "--names",
            help="CSV or TSV file with the columns image_id and file (default: each file is named after its image id).",
        ),
    ] = None,
    images: Pictures = None,
    image_column: ImageColumn = None,
) -> None:
    """Add image files to a prepared dataset, for backbones that read images.

    The same command resumes an interrupted one.

    Example: ncl-bench add-images flickr30k --from flickr30k-images --names names.csv --to data
    """
    from ncl_bench.data import dataset_spec
    from ncl_bench.data.images import add_images as run
    from ncl_bench.progress import bar

    folder = run(
        dataset_spec(name), place, root, names=names, images=images, image_column=image_column, progress=bar
    )
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
