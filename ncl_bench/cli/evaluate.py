"""Commands from scores to metrics: evaluate, compare, and submission init, check and schema."""

import json
from collections.abc import Iterable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ncl_bench.cli.from_calls import Json, Option, made_from
from ncl_bench.errors import ScoresError, SubmissionError, named
from ncl_bench.evaluation.call import begin_submission, evaluate_embeddings, evaluated_scores, is_submission
from ncl_bench.evaluation.call import compare as compare_runs
from ncl_bench.evaluation.call import evaluate as evaluate_scores
from ncl_bench.progress import as_typed, bar, hint, say

if TYPE_CHECKING:
    from ncl_bench.evaluation.results import Result


@made_from(
    evaluate_embeddings,
    evaluate_scores,
    scores=Option(
        kind=list[Path],
        help="Submission folder, or one file of similarities (.npy, .safetensors, .pt), or two files of embeddings, "
        "images first.",
    ),
    dataset=Option(default=None),  # a submission names its own
    split=Option(default=None),
    t2i=Option(kind=Path),
    similarity=Option(default=None),
    intervals=None,
)
def evaluate(
    scores: list[Path],
    dataset: str | None,
    split: Literal["test", "dev"] | None,
    t2i: Path | None,
    similarity: Literal["cosine", "dot"] | None,
    bank: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            help="Correct similarities for hubs (CSLS) with two files of similarities: the images with training "
            "captions (n_images, n), and training images with the captions (m, n_captions).",
        ),
    ] = None,
    weight: Annotated[
        float | None, typer.Option(min=0, help="Weight of the correction (default: 1). Choose it on dev.")
    ] = None,
    neighbours: Annotated[
        int | None,
        typer.Option(min=1, help="Highest similarities to the bank that are averaged (default: 10)."),
    ] = None,
    as_json: Json = False,
    **given: Any,
) -> None:
    """Compute every metric of the protocol for a submission or for any matrix of similarities.

    A matrix has images as rows and captions as columns, in the order of the split. A second matrix for the captions as
    queries (--t2i) has captions as rows.

    A submission is checked first, and its metrics are written to result.json.

    Example: ncl-bench evaluate scores.npy --dataset coco

    Example: ncl-bench evaluate i2t.npy --t2i t2i.npy --dataset flickr30k

    Example: ncl-bench evaluate submissions/ncr --plot --examples 20

    Example: ncl-bench evaluate scores.npy --dataset coco --bank to_train_captions.npy from_train_images.npy
    """
    first = scores[0]
    of_bank: dict[str, Any] = {"weight": weight, "neighbours": neighbours}
    of_bank = {name: value for name, value in of_bank.items() if value is not None}
    if dataset is None or is_submission(first):
        of_scores = {"dataset": dataset, "split": split, "t2i": t2i, "similarity": similarity, "bank": bank}
        idle = [named(name) for name, value in (of_scores | of_bank).items() if value is not None]
        if (
            idle or len(scores) > 1
        ):  # the numbers would be taken for those of that split, matrix or submission
            raise SubmissionError(
                f"{first} names dataset, split and scores itself; leave {' and '.join(idle) or 'the other inputs'} out"
            )
        from ncl_bench.evaluation.evaluate import evaluated_folder

        result, written = evaluated_folder(first, **given, progress=bar, say=say)
        if as_json:
            typer.echo(result.to_json(), nl=False)
        else:
            _print_result(result, written)
        return
    ranked: list[Any] = [*scores]
    is_one_matrix = len(scores) == 1 and t2i is None
    # one direction would stay uncorrected, or uncorrected recalls be taken for corrected
    if (bank is not None and not is_one_matrix) or (bank is None and of_bank):
        raise ScoresError(
            f"{named('weight')} and {named('neighbours')} need {named('bank')}, which corrects one matrix of "
            "similarities that ranks both directions"
        )
    if bank is not None:
        from ncl_bench.evaluation.hubs import without_hubs

        ranked = [without_hubs(first, *bank, **of_bank)]
    evaluation, written = evaluated_scores(
        ranked, dataset, split or "test", t2i=t2i, similarity=similarity, **given, progress=bar
    )
    if as_json:
        typer.echo(evaluation.to_json())
        return
    _print([evaluation], evaluation.notes, written)
    at_chance = any("at chance" in note or "every similarity" in note for note in evaluation.notes)
    plain = t2i is None and bank is None
    if evaluation.split == "test" and plain and evaluation.r_sum > 0 and not at_chance:
        from ncl_bench.data import dataset_spec

        options = "".join(f" --scores {quote(str(path))}" for path in scores)
        options += f" --similarity {similarity}" if similarity else ""
        options += " --noise-ratio RATIO" if dataset_spec(dataset).noise == "synthetic" else ""
        hint(
            f"to turn it into a submission: ncl-bench submission init --method NAME --dataset {dataset}{options}"
        )


@made_from(compare_runs, first=None, second=None)
def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(
            help="Two submission folders; or several per side (one per training seed), with vs between the sides.",
        ),
    ],
    as_json: Json = False,
    **given: Any,
) -> None:
    """Test whether two submissions, or two methods with several training seeds each, differ significantly.

    Two submissions are compared by a bootstrap over images; both see the same resamples.

    Several seeds per side are compared by a test over seeds and images together, as on the leaderboard.

    Example: ncl-bench compare submissions/ncr submissions/crcl

    Example: ncl-bench compare ncr-seed0 ncr-seed1 ncr-seed2 vs crcl-seed0 crcl-seed1 crcl-seed2
    """
    found = compare_runs(*_sides(folders), **given, progress=bar)
    if as_json:
        typer.echo(found.to_json())
    else:
        _print([found], found.notes)


def _sides(folders: list[Path]) -> tuple[list[Path], list[Path]]:
    """Split the arguments at ``vs``; without it, expect one folder per side."""
    place = folders.index(Path("vs")) if Path("vs") in folders else 1
    first, second = folders[:place], folders[place:]
    if Path("vs") in folders:
        second = second[1:]
    elif len(folders) != 2:
        raise SubmissionError(
            f"{len(folders)} folder(s) given without vs, expected two; for several per side, put vs between them: "
            "ncl-bench compare A0 A1 vs B0 B1"
        )
    return first, second


CheckedFolder = Annotated[
    Path, typer.Argument(help="Submission folder: submission.yaml and the files that it names.")
]
DataRoot = Annotated[
    Path | None,
    typer.Option(
        "--root", help="Folder of prepared datasets (default: environment variable NCL_BENCH_DATA)."
    ),
]
submission = typer.Typer(help="Write, check and describe a submission.", no_args_is_help=True)


@submission.command()
@made_from(
    begin_submission,
    folder=Option("--to", default=Path("submission")),
    method=Option("--method"),
    dataset=Option("--dataset"),
    scores=Option("--scores"),
)
def init(folder: Path, **given: Any) -> None:
    """Write a commented submission.yaml, copy the scores next to it, and list what is left to fill in.

    Example: ncl-bench submission init --method X --dataset coco --noise-ratio 0.4 --scores scores.npy
    """
    begun = begin_submission(folder, **given)
    for path in begun.written:
        typer.echo(f"wrote {path}")
    for title, lines in (("filled in", begun.filled_in), ("left to fill in", begun.left)):
        if lines:
            typer.echo(f"{title}:")
        for key, source in lines.items():
            typer.echo(f"  {key:<26} {source}")
    assumed = ", ".join(f"{key} {json.dumps(value)}" for key, value in begun.assumed.items())
    typer.echo(f"assumed, please correct if wrong:\n  {assumed}")
    hint(f"next: ncl-bench submission check {quote(str(folder))}")


@submission.command()
def check(folder: CheckedFolder, root: DataRoot = None) -> None:
    """Check submission.yaml and its files without computing a metric.

    Example: ncl-bench submission check submissions/x
    """
    from ncl_bench.evaluation.evaluate import open_submission

    opened = open_submission(folder, root=root)
    for note in opened.notes:
        typer.echo(f"note: {note}")
    typer.echo(as_typed(f"{folder} is complete; next: ncl-bench evaluate {quote(str(folder))}"))


@submission.command()
def schema() -> None:
    """Print the JSON Schema of submission.yaml.

    Example: ncl-bench submission schema > submission.schema.json
    """
    from ncl_bench.evaluation.submission import submission_schema

    typer.echo(json.dumps(submission_schema(), indent=2))


def _print_result(result: "Result", written: Iterable[Path]) -> None:
    """Print a result."""
    shown: list[Any] = [*result.splits.values()]
    notes = [*result.notes, *(note for split in shown for note in split.notes)]
    if result.correspondence is not None:
        track = result.correspondence
        shown.append(
            f"correspondence: AUROC {track.auroc:.4f}, average precision {track.average_precision:.4f}, "
            f"accuracy {track.accuracy:.2f} % of {track.pairs:,} training pairs"
        )
    _print(shown, notes, written)


def _print(shown: Iterable[Any], notes: Iterable[str], written: Iterable[Path] = ()) -> None:
    """Print tables, with the lines below each, and notes."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for each in shown:
        console.print(each)
        for line in getattr(each, "lines", tuple)():  # a text has none
            console.print(Text(line), soft_wrap=True)
    for note in notes:
        console.print(Text.assemble(("note: ", "yellow"), note), soft_wrap=True)
    for path in written:
        console.print(Text(f"wrote {path}"), soft_wrap=True)
