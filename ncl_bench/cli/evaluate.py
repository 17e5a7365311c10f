"""Commands from scores to numbers: evaluate, compare, and submission init, check and schema."""

import json
from collections.abc import Iterable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ncl_bench.plugins import command_name

if TYPE_CHECKING:
    from rich.console import Console

    from ncl_bench.evaluation.compare import Difference
    from ncl_bench.evaluation.results import Result

Folder = Annotated[Path, typer.Argument(help="A folder with submission.yaml and the files that it names.")]
Root = Annotated[
    Path | None, typer.Option("--root", help="Folder of prepared datasets; NCL_BENCH_DATA by default.")
]


def evaluate(
    folder: Folder,
    to: Annotated[
        Path | None, typer.Option("--to", help="Folder of the output; the submission itself by default.")
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Also write histograms of the ranks, as SVG.")] = False,
    examples: Annotated[
        int,
        typer.Option("--examples", min=0, max=1_000, help="Also write a page of this many worst failures."),
    ] = 0,
    root: Root = None,
) -> None:
    """Check a submission, compute every metric of the protocol, and write result.json.

    Example: ncl-bench evaluate submissions/ncr --plot --examples 20
    """
    from ncl_bench.evaluation.evaluate import evaluate_folder

    result, written = evaluate_folder(folder, to or folder, root=root, plot=plot, examples=examples)
    _print_result(result, written)


def compare(
    first: Folder,
    second: Folder,
    split: Annotated[
        Literal["test", "dev"], typer.Option("--split", help="Which scores to compare.")
    ] = "test",
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Also write the resampled differences to this SVG file.")
    ] = None,
    root: Root = None,
) -> None:
    """Say whether two submissions can be told apart: paired bootstrap over images of the difference of rSum.

    Example: ncl-bench compare submissions/ncr submissions/crcl
    """
    from ncl_bench.evaluation.compare import compare_folders

    differences, notes = compare_folders(first, second, split, root=root, plot=plot)
    _print_comparison(differences, notes, (str(first), str(second)))


submission = typer.Typer(help="Write, check and describe a submission.", no_args_is_help=True)


@submission.command()
def init(
    method: Annotated[str, typer.Option("--method", help="Name of the method.")],
    dataset: Annotated[str, typer.Option("--dataset", help="Name of the dataset.")],
    to: Annotated[Path, typer.Option("--to", help="Folder to write the template into.")] = Path("submission"),
    noise_ratio: Annotated[
        float, typer.Option("--noise-ratio", help="Nominal noise ratio, in [0, 1).")
    ] = 0.0,
    noise_unit: Annotated[
        Literal["caption", "image"], typer.Option("--noise-unit", help="What was moved.")
    ] = "caption",
    noise_seed: Annotated[
        int | None, typer.Option("--noise-seed", help="The cell's standard seed by default.")
    ] = None,
    root: Root = None,
) -> None:
    """Write a commented submission.yaml to fill in.

    Example: ncl-bench submission init --method X --dataset flickr30k --noise-ratio 0.4 --to submissions/x
    """
    from ncl_bench.evaluation.template import template, write_template

    text = template(
        to,
        method,
        dataset,
        noise_unit=noise_unit,
        noise_ratio=noise_ratio,
        noise_seed=noise_seed,
        root=root,
    )
    typer.echo(write_template(to, text))


@submission.command()
def check(folder: Folder, root: Root = None) -> None:
    """Check statements and files of a submission without computing a metric.

    Example: ncl-bench submission check submissions/x
    """
    from ncl_bench.evaluation.evaluate import open_submission

    opened = open_submission(folder, root=root)
    for note in opened.notes:
        typer.echo(f"note: {note}")
    typer.echo(f"{folder} is complete; next: {command_name()} evaluate {quote(str(folder))}")


@submission.command()
def schema() -> None:
    """Print the JSON Schema of submission.yaml.

    Example: ncl-bench submission schema > submission.schema.json
    """
    from ncl_bench.evaluation.submission import submission_schema

    typer.echo(json.dumps(submission_schema(), indent=2))


def _print_result(result: "Result", written: list[Path]) -> None:
    """Show a result on the terminal."""
    from rich.console import Console

    console = Console()
    for evaluation in result.splits.values():
        console.print(evaluation)
    if result.correspondence is not None:
        track = result.correspondence
        console.print(
            f"correspondence: AUROC {track.auroc:.4f}, average precision {track.average_precision:.4f}, "
            f"accuracy {track.accuracy:.2f} % of {track.pairs:,} training pairs"
        )
    _print_notes(
        console, [*result.notes, *(note for split in result.splits.values() for note in split.notes)]
    )
    for path in written:
        console.print(f"wrote {path}", highlight=False, markup=False, soft_wrap=True)


def _print_comparison(differences: "dict[str, Difference]", notes: list[str], names: tuple[str, str]) -> None:
    """Show a comparison on the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        "protocol", *names, "difference", "95 % interval", title="rSum, paired bootstrap over images"
    )
    for protocol, found in differences.items():
        low, high = found.interval
        sums = [f"{value:.1f}" for value in found.r_sums]
        table.add_row(protocol, *sums, f"{found.difference:+.1f}", f"{low:+.1f} to {high:+.1f}")
    console = Console()
    console.print(table)
    for protocol, found in differences.items():
        console.print(f"{protocol}: {found.verdict}", highlight=False, markup=False, soft_wrap=True)
    _print_notes(console, notes)


def _print_notes(console: "Console", notes: Iterable[str]) -> None:
    from rich.text import Text

    for note in notes:
        console.print(Text.assemble(("note: ", "yellow"), note), soft_wrap=True)


def register(app: typer.Typer) -> None:
    """Add this room's commands to the app."""
    app.command()(evaluate)
    app.command()(compare)
    app.add_typer(submission, name="submission")
