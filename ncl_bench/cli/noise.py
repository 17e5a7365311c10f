"""``ncl-bench noise``: make, identify and check noise files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ncl_bench.errors import NoiseError, named

if TYPE_CHECKING:
    from ncl_bench.noise.draw import Noise

noise_app = typer.Typer(help="Make, identify and check noise files.", no_args_is_help=True)

FileArgument = Annotated[Path, typer.Argument(help="Noise file (.npy).")]
UnitOption = Annotated[
    str,
    typer.Option(
        "--unit",
        help="Unit that the noise moves: random captions (caption), images with all their captions (image), "
        "captions to images of similar captions (similar) or of captions with a common noun (noun).",
    ),
]


@noise_app.command()
def make(
    dataset: Annotated[str, typer.Argument(help="Name of a dataset with synthetic noise.")],
    noise_ratio: Annotated[
        float, typer.Option("--ratio", help="Share of captions or images to move, in [0, 1).")
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            help="File to write (.npy), which must not exist (default with --unit similar: a file below --root)."
        ),
    ] = None,
    noise_unit: UnitOption = "caption",
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", help="Seed of the noise (default: the standard seed of this dataset, unit and ratio)."
        ),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(help="Folder of prepared datasets; --unit similar and noun read the captions there."),
    ] = None,
) -> None:
    """Write the noise of a dataset's train split to a file.

    With --unit caption, the default seed draws the noise files that papers share, bit for bit.
    With --unit image, no seed does; to repeat the noise of DECL or RCL, use the files that they published.
    With --unit similar, captions with similar words swap images; with --root, the file is written where training finds
    it.
    With --unit noun, captions take the image of a caption with a noun in common.

    Example: ncl-bench noise make flickr30k --ratio 0.4 --to noise/f30k_0.4.npy
    """
    import io

    import numpy as np

    from ncl_bench.data import dataset_spec
    from ncl_bench.data.load import draw_train_noise, similar_file
    from ncl_bench.data.spec import refuse_noise
    from ncl_bench.files import sole_owner, write_bytes
    from ncl_bench.noise import unit_of
    from ncl_bench.progress import bar

    spec = dataset_spec(dataset)
    refuse_noise(spec, True)
    chosen = unit_of(noise_unit)
    inside = None
    if to is None and chosen.name == "similar" and root is not None:
        to, inside = similar_file(root, spec, noise_ratio, seed), root
    if to is None:
        raise NoiseError(
            f"{named('to')} is missing; name the .npy file to write, such as {named('to', 'noise.npy')}"
        )
    caption_to_image, record = draw_train_noise(spec, noise_ratio, chosen.name, seed, root, bar)
    units = caption_to_image[:: spec.captions_per_image] if chosen.whole_images else caption_to_image
    content = io.BytesIO()
    np.save(content, units, allow_pickle=False)
    with sole_owner(to, inside=inside):
        if to.exists():
            raise NoiseError(f"{named('to', to)} exists and is not overwritten; choose another name")
        write_bytes(to, content.getvalue())
    typer.echo(f"{to}: {len(units):,} entries, {_summary(record)}")
    if chosen.reads_captions and not spec.embedded:
        typer.echo(f"no reference hash exists for {spec.name} yet: compare this one with that of others")


@noise_app.command()
def identify(
    file: FileArgument,
    captions_per_image: Annotated[
        int | None,
        typer.Option(help="Captions per image of your own dataset; 1 if the file has one entry per image."),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=0, help="Number of seeds to try, starting from 0, if no shared file matches.")
    ] = 100,
) -> None:
    """Identify a noise file: which shared file it is, or which dataset, unit, ratio and seed drew it.

    Example: ncl-bench noise identify f30k_precomp_0.4.npy
    """
    from ncl_bench.data import DATASETS
    from ncl_bench.noise.files import read_index
    from ncl_bench.noise.identify import describe
    from ncl_bench.noise.identify import identify as identify_index

    found = identify_index(
        read_index(file), DATASETS.values(), captions_per_image=captions_per_image, seeds=range(seeds)
    )
    for name, value in describe(found):
        typer.echo(f"{name:<18}{value}")


@noise_app.command()
def check(
    file: FileArgument,
    dataset: Annotated[str, typer.Option(help="Dataset that it should fit.")],
    unit: Annotated[
        str | None,
        typer.Option(
            help="Unit that the noise moves: random captions (caption), images with all their captions (image), "
            "captions to images of similar captions (similar) or of captions with a common noun (noun). Default: any "
            "exchange; file allows images that lose or gain captions."
        ),
    ] = None,
) -> None:
    """Check that a noise file fits a dataset and unit, and print the noise that it contains.

    A file that neither a paper shares nor a seed draws is noise of unit file, which never ranks with another unit.

    Example: ncl-bench noise check f30k_precomp_0.4.npy --dataset flickr30k --unit caption
    """
    from ncl_bench.data import dataset_spec
    from ncl_bench.noise.files import read_noise_file

    _, record = read_noise_file(file, dataset_spec(dataset), unit)
    typer.echo(f"{file}: fits {dataset}/train, {_summary(record)}")


def _summary(record: "Noise") -> str:
    seed = "" if record.seed is None else f" with seed {record.seed}"
    return (
        f"{record.unit or 'no'} noise of nominal ratio {record.ratio:g}{seed}, realised {record.realised_ratio:.6f}, "
        f"sha256 {record.sha256}"
    )
