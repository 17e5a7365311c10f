"""``ncl-bench train``, ``score``, ``plot`` and ``import-checkpoint``: one run folder each."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from baselines.calls import Run, score_zero_shot
from baselines.calls import score as score_runs
from baselines.calls import train as train_recipe
from baselines.published.provenance import Provenance
from ncl_bench.arguments import AnyPath, Precision
from ncl_bench.cli.from_calls import Option, made_from
from ncl_bench.errors import NclBenchError, named
from ncl_bench.progress import hint


@made_from(train_recipe, recipe=Option(kind=str), history=Option("--no-history"))
def train(to: str, root: str | None, **given: Any) -> None:
    """Train a recipe. The same command resumes an interrupted run.

    Example: ncl-bench train ncr/digits_vse_infinity --noise-ratio 0.6 --set method.epochs=2 --to runs/ncr
    """
    from baselines.recipes import refuse_unknown

    refuse_unknown(given["recipe"])  # before torch is imported
    folder = Path(to)
    with _only_first_process_reports(), _what_is_kept(folder):
        finished = Run(folder).finished
        train_recipe(**given, to=to, root=root)
        from baselines.kit.distributed import rank
        from baselines.training.run_folder import RunFolder

        if rank() == 0:
            outcome = RunFolder(folder).read_outcome()
            if finished:
                typer.echo(
                    f"{to} is already finished, nothing was trained; choose another --to to train again"
                )
            best = f"{outcome.best_epoch + 1} of {outcome.epochs}"
            typer.echo(f"best on dev: epoch {best}, rSum {outcome.dev['r_sum']:.1f}")
            _say_how_to_score(folder, root)


ZERO_SHOT = Option(
    "--zero-shot",
    metavar="RECIPE",
    help="Recipe whose pre-trained backbone is scored without training; replaces runs.",
    default=None,
)


@made_from(score_runs, score_zero_shot, runs=Option(default=()), recipe=ZERO_SHOT)
def score(
    runs: Sequence[str],
    recipe: str | None,
    settings: Sequence[str],
    precision: Precision,
    to: str,
    **given: Any,
) -> None:
    """Score the test split once and write a submission.

    A run is scored with the precision and options it was trained with; --precision and --set need --zero-shot.

    Example: ncl-bench score runs/ncr --to submissions/ncr
    """
    of_recipe = settings or precision != "32-true"
    if bool(runs) == (recipe is not None) or (runs and of_recipe):
        raise NclBenchError(
            f"expected either finished runs, scored as they were trained, or {named('recipe')} and a recipe, with "
            f"{named('settings')} and {named('precision')} or without"
        )
    with _only_first_process_reports():
        if recipe is None:
            score_runs(runs, to=to, **given)
        else:
            score_zero_shot(recipe, to=to, settings=settings, precision=precision, **given)
        from baselines.kit.distributed import rank

        if rank() == 0:
            hint(f"next: ncl-bench evaluate {quote(to)}")


@made_from(Run.plot)
def plot(
    folder: Annotated[
        Path, typer.Argument(metavar="run", help="Run folder with at least one complete epoch.")
    ],
    root: Annotated[
        Path | None,
        typer.Option(help="Folder of prepared datasets (default: environment variable NCL_BENCH_DATA)."),
    ] = None,
    **given: Any,
) -> None:
    """Draw a run's curves and, where the run has the data, the papers' figures, as SVG and CSV.

    Example: ncl-bench plot runs/ncr
    """
    for path in Run(folder, root).plot(**given):
        typer.echo(path)


@made_from(
    Provenance,
    method=Option("--method"),
    dataset=Option("--dataset"),
)
def import_checkpoint(
    file: Annotated[Path, typer.Argument(help="Checkpoint (.tar, .pth) written by the published code.")],
    to: Annotated[Path, typer.Option(help="Folder to write; it must not exist.")],
    **given: Any,
) -> None:
    """Convert a published checkpoint into a run folder that can be scored; nothing is unpickled.

    It reads the file's arrays and options alone and writes below --to alone: no code of the checkpoint runs.

    Example: ncl-bench import-checkpoint best.tar --method ncr --dataset flickr30k --noise-ratio 0.4 --to runs/ncr
    """
    from baselines.published.import_checkpoint import import_checkpoint as import_file

    for remark in import_file(file, Provenance(**given), to):
        typer.secho(f"WARNING: {remark}", fg="yellow", bold=True, err=True)
    _say_how_to_score(to, given["root"])


@contextmanager
def _only_first_process_reports() -> Iterator[None]:
    """Print an error once for all processes; every process still exits with the same code.

    The first process prints it. A lost process may be the first one, so the first process of each machine reports that.
    """
    try:
        yield
    except (NclBenchError, KeyboardInterrupt) as error:
        if "torch" not in sys.modules:  # a wrong name: no process has met another yet
            raise
        from baselines.kit.distributed import ProcessLost, first_of_machine, rank

        if not (first_of_machine() if isinstance(error, ProcessLost) else rank() == 0):
            sys.stderr = StringIO()
        raise


@contextmanager
def _what_is_kept(to: Path) -> Iterator[None]:
    """Say of a training that is interrupted what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        from baselines.training.run_folder import RunFolder

        kept = RunFolder(to).kept_epochs
        done = f"{to} keeps {kept} epoch{'s' * (kept != 1)}" if kept else "no epoch was complete"
        go_on = f"goes on after epoch {kept}" if kept else "starts again"
        print(f"interrupted: {done}; the same command {go_on}", file=sys.stderr)
        raise


def _say_how_to_score(run: Path, root: AnyPath | None) -> None:
    where = "" if root is None else f" --root {quote(str(root))}"
    hint(f"next: ncl-bench score {quote(str(run))}{where} --to {quote(f'submissions/{run.name}')}")
