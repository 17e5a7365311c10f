"""``ncl-bench datasets`` and ``ncl-bench prepare``."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

import typer

from ncl_bench.cli.options import DevImages, SplitSeed, TestImages

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
    features: Annotated[
        Path,
        typer.Option(
            "--features",
            help="Folder with train.npy, dev.npy and test.npy and their ids, or with one .npy file per image.",
        ),
    ],
    captions: Annotated[
        Path,
        typer.Option(
            "--captions",
            help="CSV with one row per caption; columns: image, one per language, and optionally split. Or "
            "the JSON file of Karpathy's split.",
        ),
    ],
    root: Annotated[Path, DATA_ROOT],
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
) -> None:
    """Make your own dataset from image features and a table of captions: write its module and prepared folder.

    The same command resumes an interrupted one.

    Example: ncl-bench datasets new pets --features features --captions captions.csv --to data
    """
    from ncl_bench.data.own import OwnOptions, new_dataset
    from ncl_bench.plugins import command_name
    from ncl_bench.progress import bar, hint

    module = module or Path(f"{name}.py")
    options = OwnOptions(
        captions_per_image,
        dev,
        test,
        seed,
        noise,
        tuple(languages or ()),
        tuple(tokenizers or ()),
        tokenizer_file,
    )
    spec, left_out = new_dataset(name, features, captions, root, module, options, progress=bar)
    _report(root / name)
    sizes = " / ".join(f"{spec.images[split]:,}" for split in ("train", "dev", "test"))
    each, n_test, n_dev = spec.captions_per_image, spec.images["test"], spec.images["dev"]
    typer.echo(
        f"{name}: {sizes} images in train / dev / test, {each} caption(s) each in {' and '.join(spec.languages)}, "
        f"{spec.n_regions} region(s) of {spec.feature_dim} numbers"
    )
    for what in left_out:
        typer.echo(f"left out: {what}")
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
    place: Annotated[Path, typer.Option("--from", help="Folder with one file per image.")],
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
) -> None:
    """Add image files to a prepared dataset, for backbones that read images.

    The same command resumes an interrupted one.

    Example: ncl-bench add-images flickr30k --from flickr30k-images --names names.csv --to data
    """
    from ncl_bench.data import dataset_spec
    from ncl_bench.data.images import add_images as run
    from ncl_bench.progress import bar

    typer.echo(
        f"the images of {name} are in {run(dataset_spec(name), place, root, names=names, progress=bar)}"
    )


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
