"""``ncl-bench audit``: find the wrong training pairs of finished runs."""

import json
from inspect import signature
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from baselines.audit.call import apply_audit, find_wrong_embeddings, find_wrong_pairs, write_audit
from ncl_bench.cli.from_calls import Json, Option, made_from
from ncl_bench.errors import NclBenchError, named
from ncl_bench.extras import require
from ncl_bench.progress import hint

if TYPE_CHECKING:
    from baselines.audit.result import AuditResult

_TABLES = (".csv", ".tsv", ".txt", ".token", ".jsonl", ".ndjson", ".json", ".parquet", ".tar")
_ARRAYS = (".npy", ".safetensors", ".pt", ".pth")
_OF_PAIRS = {"--images", "--image-embeddings", "--caption-embeddings", "--image-column", "--caption-column"}


class _RunsOrPairs(TyperGroup):
    """``audit RUN...`` and ``audit captions.csv``: what is no command below it is runs, or a user's pairs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = [self.short_for(args), *args]
        return super().parse_args(ctx, args)

    def short_for(self, args: list[str]) -> str:
        """``pairs`` if arguments without a command name a user's pairs, else ``runs``."""
        if _OF_PAIRS & {each.partition("=")[0] for each in args}:
            return "pairs"
        flags = {
            name
            for command in self.commands.values()
            for each in command.params
            if getattr(each, "is_flag", False)
            for name in each.opts
        }
        # the first argument that is neither an option nor the value of one
        first = next(
            (
                each
                for before, each in zip(["", *args], args, strict=False)
                if not each.startswith("--")
                and (not before.startswith("--") or "=" in before or before in flags)
            ),
            "",
        )
        if Path(first).is_dir():
            return "runs" if Path(first, "run.json").exists() else "pairs"
        return "pairs" if first.lower().removesuffix(".gz").endswith(_TABLES) else "runs"


audit_app = typer.Typer(
    cls=_RunsOrPairs,
    help="Find wrong pairs: among your images and captions (`audit captions.csv --images photos --to FOLDER`), or "
    "among the training pairs of finished runs (`audit RUN... --to FOLDER`).",
    no_args_is_help=True,
)


OF_PICTURES = {
    name: signature(find_wrong_pairs).parameters[name].default
    for name in ("encoder", "device", "strict", "text_encoder", "prior")
}


@audit_app.command("pairs")
@made_from(
    find_wrong_embeddings,
    find_wrong_pairs,
    to=Option(default=Path("audit"), kind=Path),
    pairs=Option(default=None),
    image_embeddings=Option("--image-embeddings", default=None),
    caption_embeddings=Option("--caption-embeddings", default=None),
)
def audit_pairs(as_json: Json = False, **given: Any) -> None:
    """Find the wrong pairs among your images and captions; the same command resumes. `audit TABLE` is short for it.

    Example: ncl-bench audit captions.csv --images photos --to audit
    """
    require("audit", "torch", needed_by="audit")  # one command for all that it needs
    from baselines.audit.result import AuditResult

    arrays = [given.pop(name) for name in ("image_embeddings", "caption_embeddings")]
    if arrays == [None, None]:
        table = find_wrong_pairs(**given)
    else:
        for name, default in OF_PICTURES.items():
            if given.pop(name) != default:  # it would seem to have judged
                raise NclBenchError(f"{named(name)} is for pictures, and embeddings are given; leave it out")
        table = find_wrong_embeddings(*arrays, **given)
    summary = table.attrs["summary"]
    if as_json:
        typer.echo(json.dumps(summary, indent=2, ensure_ascii=False))
        return
    for reason, count in summary["left_out"].items():
        typer.echo(f"left out: {count:,} rows, {reason}")
    if summary["doubled"]:
        typer.echo(f"{summary['doubled']:,} pictures are copies of others and judged as one")
    _say(AuditResult.model_validate(summary), given["to"])


def _say(result: "AuditResult", to: Path) -> None:
    """Print what an audit found, and where it is."""
    for sentence in result.order_faults:
        typer.echo(sentence)
    for reason, count in result.reasons.items():
        typer.echo(f"{reason}: {count:,} pairs")
    if result.wrong is not None:
        typer.echo(
            f"about {result.wrong:,} of {result.n_judged:,} captions do not fit their picture (probably {result.low:,} "
            f"to {result.high:,}; wrong captions of similar pictures are hardly counted)"
        )
    elif result.lemon is None:
        typer.echo(f"{result.obtained} Look at the first ones.")
    for sentence in result.remarks:
        typer.echo(sentence)
    typer.echo(f"open {to / 'index.html'}; the pairs are in {to / 'pairs.csv'}")


def _refuse_pairs(runs: list[Path]) -> None:
    """Name the right form for what exists and is no run."""
    for given in runs:
        if given.suffix.lower() in _ARRAYS and given.is_file():
            raise NclBenchError(
                f"{given} is an array, expected the folder of a finished run; audit embeddings of your own pairs with "
                f"`ncl-bench audit --image-embeddings A.npy --caption-embeddings B.npy --to FOLDER`, those of a "
                f"training split with {named('method', 'lemon')} and {named('dataset')}"
            )
        if given.is_file() or (given.is_dir() and not (given / "run.json").exists()):
            raise NclBenchError(
                f"{given} is no run: it has no run.json; audit your own pairs with `ncl-bench audit TABLE "
                "--images PICTURES --to FOLDER`, or give the folders of finished runs alone"
            )


@audit_app.command("runs")
@made_from(
    write_audit,
    runs=Option(
        help="Finished runs on the same data and noise; several are averaged. For LEMoN also two files of "
        "embeddings of a training split, images first, with --dataset."
    ),
    to=Option("--to"),
    root=Option("--root"),
)
def audit_runs(
    runs: list[Path],
    to: Path,
    dataset: Annotated[str | None, typer.Option(help="Dataset of the embeddings.")] = None,
    noise_ratio: Annotated[
        float | None, typer.Option(help="Nominal share of moved units, in [0, 1) (default: clean pairs).")
    ] = None,
    noise_unit: Annotated[
        str | None,
        typer.Option(
            help="caption (NCR and its successors, the default), image (DECL, RCL), similar (captions swap images with "
            "captions of similar words) or noun (captions take the image of a caption with a common noun)."
        ),
    ] = None,
    noise_seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of the draw (default: the protocol's seed for this dataset, unit and ratio; for the caption "
            "unit it draws the files that papers share)."
        ),
    ] = None,
    as_json: Json = False,
    **given: Any,
) -> None:
    """Write a table of all training pairs and a page of the most suspicious ones; `audit RUN` is short for it.

    Example: ncl-bench audit runs/ncr --to audit

    Example: ncl-bench audit images.npy captions.npy --method lemon --dataset flickr30k --noise-ratio 0.4 --to audit
    """
    from baselines.audit.report import write_lemon
    from ncl_bench.data.load import load_dataset

    noise: dict[str, Any] = {"noise_ratio": noise_ratio, "noise_unit": noise_unit, "noise_seed": noise_seed}
    if dataset is None:
        if any(value is not None for value in noise.values()):
            raise NclBenchError(
                f"a run records its noise; leave {named('noise_ratio')}, {named('noise_unit')} and "
                f"{named('noise_seed')} out"
            )
        _refuse_pairs(runs)
        result = write_audit(runs, to, **given)
    else:
        keep, method, text_encoder, file = (
            given.pop(name) for name in ("keep", "method", "text_encoder", "noise_file")
        )
        if method is None or len(runs) != 2 or keep is not None or text_encoder is not None:
            raise NclBenchError(
                f"{named('dataset')} is for LEMoN on two files of embeddings; give them with "
                f"{named('method', 'lemon')} and without {named('keep')} "
                f"and {named('text_encoder')}, or leave {named('dataset')} out"
            )
        train = load_dataset(dataset, split="train", **noise, noise_file=file, root=given["root"])
        result = write_lemon((runs[0], runs[1]), to, train, **given)
    if as_json:
        typer.echo(json.dumps(result.model_dump(mode="json"), indent=2, ensure_ascii=False))
        return
    for column, detected in result.detection.items():
        division = detected.own or detected.best
        typer.echo(
            f"{column.replace('_', ' ')}: AUROC {detected.auroc:.3f}; wrong pairs at {division.threshold:g}"
            f"{'' if detected.own else ' (best F1)'}: precision {division.precision:.3f}, recall {division.recall:.3f}"
        )
    for column, each in result.labelled.detection.items() if result.labelled else ():
        for other, measured in each.items():
            auroc = measured.auroc
            typer.echo(
                f"{column.replace('_', ' ')}, {other} against matches: AUROC {auroc.value:.3f} "
                f"({auroc.low:.3f} to {auroc.high:.3f})"
            )
    if result.first_wrong is not None:
        typer.echo(f"{result.first_wrong} of the {min(200, result.n_judged)} most suspicious pairs are wrong")
    _say(result, to)
    threshold = " --threshold THRESHOLD" if result.threshold is None else ""
    hint(f"next: ncl-bench audit apply {quote(str(to))}{threshold} --to cleaned")


@audit_app.command("apply")
@made_from(apply_audit, to=Option("--to"), sure=Option("--yes"))
def audit_apply(audit: Path, to: Path, **given: Any) -> None:
    """Write which pairs to keep: own pairs in the form of their table, those of a run for `train --keep`.

    Example: ncl-bench audit apply audit --to cleaned

    Example: ncl-bench audit apply audit-run --ids labels.csv --to cleaned
    """
    kept = apply_audit(audit, to, **given, say=typer.echo)
    if kept is None:
        hint(f"next: ncl-bench datasets new NAME --clean {quote(str(to))} --to data")
    else:
        hint(f"next: ncl-bench train RECIPE --keep {quote(str(to))}, with the noise of the audited run")
