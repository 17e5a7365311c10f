"""``ncl-bench train``, ``score``, ``plot`` and ``import-checkpoint``: one run folder each."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import StringIO
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

import typer

from baselines.cli.options import Arithmetic, Device, Features, Keep, NoiseFile, Settings, Target
from ncl_bench.cli.options import LARGEST_SEED, NoiseRatio, NoiseSeed, NoiseUnit, Root
from ncl_bench.errors import NclBenchError
from ncl_bench.plugins import command_name
from ncl_bench.progress import hint


def train(
    recipe: Annotated[str, typer.Argument(help="Recipe file, or name of a shipped recipe.")],
    to: Target,
    noise_ratio: NoiseRatio = None,
    noise_unit: NoiseUnit = None,
    noise_seed: NoiseSeed = None,
    noise_file: NoiseFile = None,
    seed: Annotated[
        int,
        typer.Option(min=0, max=LARGEST_SEED, help="Training seed: initialisation, batch order and dropout."),
    ] = 0,
    root: Root = None,
    device: Device = "auto",
    precision: Arithmetic = "32-true",
    features: Features = "auto",
    settings: Settings = None,
    keep: Keep = None,
    no_history: Annotated[
        bool,
        typer.Option(
            "--no-history", help="Do not keep what the method believes of every pair after each epoch."
        ),
    ] = False,
) -> None:
    """Train a recipe. The same command resumes an interrupted run.

    Example: ncl-bench train ncr/digits_vse_infinity --noise-ratio 0.6 --set method.epochs=2 --to runs/ncr
    """
    from baselines.recipes import refuse_unknown

    refuse_unknown(recipe)
    from baselines.calls import train as run
    from baselines.kit.distributed import rank
    from baselines.training.run_folder import RunFolder

    with _only_first_process_reports(), _what_is_kept(to):
        finished = RunFolder(to).finished
        run(
            recipe,
            to=to,
            noise_ratio=noise_ratio,
            noise_unit=noise_unit,
            noise_seed=noise_seed,
            noise_file=noise_file,
            seed=seed,
            root=root,
            device=device,
            precision=precision,
            features=features,
            settings=settings or (),
            keep=keep,
            history=not no_history,
        )
        if rank() == 0:
            outcome = RunFolder(to).read_outcome()
            if finished:
                typer.echo(
                    f"{to} is already finished, nothing was trained; choose another --to to train again"
                )
            best = f"{outcome.best_epoch + 1} of {outcome.epochs}"
            typer.echo(f"best on dev: epoch {best}, rSum {outcome.dev['r_sum']:.1f}")
            _say_how_to_score(to, root)


def score(
    to: Target,
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Finished runs; the similarities of several are averaged, as for SGRAF. hub:USER/NAME@REVISION is a "
            "run on the Hugging Face Hub."
        ),
    ] = None,
    zero_shot: Annotated[
        str | None,
        typer.Option(
            metavar="RECIPE",
            help="Recipe whose pre-trained backbone is scored without training; replaces RUNS.",
        ),
    ] = None,
    embeddings: Annotated[
        bool,
        typer.Option(
            "--embeddings",
            help="Write image and caption embeddings in place of similarities (clip, vse_infinity and vsrn only).",
        ),
    ] = False,
    root: Root = None,
    device: Device = "auto",
    precision: Arithmetic = "32-true",
    settings: Settings = None,
) -> None:
    """Score the test split once and write a submission.

    A run is scored with the precision and options it was trained with; --precision and --set need --zero-shot.

    Example: ncl-bench score runs/ncr --to submissions/ncr
    """
    from baselines.calls import score as run
    from baselines.kit.distributed import rank

    with _only_first_process_reports():
        run(
            runs or (),
            to=to,
            zero_shot=zero_shot,
            embeddings=embeddings,
            root=root,
            device=device,
            precision=precision,
            settings=settings or (),
        )
        if rank() == 0:
            hint(f"next: {command_name()} evaluate {quote(str(to))}")


def plot(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    noise_file: NoiseFile = None,
    keep: Keep = None,
    root: Root = None,
    device: Device = "auto",
) -> None:
    """Draw a run's curves and, where the run has the data, the papers' figures, as SVG and CSV.

    Example: ncl-bench plot runs/ncr
    """
    from baselines.plot import plot_run
    from baselines.training.run_folder import RunFolder

    say = partial(typer.echo, err=True)
    for path in plot_run(RunFolder(run), root, noise_file=noise_file, keep=keep, device=device, say=say):
        typer.echo(path)


def import_checkpoint(
    file: Annotated[Path, typer.Argument(help="Checkpoint (.tar, .pth) written by the published code.")],
    method: Annotated[str, typer.Option(help="Method that trained it.")],
    dataset: Annotated[str, typer.Option(help="Dataset it was trained on.")],
    to: Target,
    noise_ratio: Annotated[
        float | None,
        typer.Option(help="Noise ratio of its training pairs, in [0, 1); 0 means no noise."),
    ] = None,
    noise_unit: NoiseUnit = None,
    noise_seed: NoiseSeed = None,
    noise_file: NoiseFile = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=LARGEST_SEED, help="Training seed, if known."),
    ] = None,
    selection: Annotated[
        Literal["dev", "test", "none"] | None,
        typer.Option(
            help="Split that chose the epoch (default: the one that the method's published code uses)."
        ),
    ] = None,
    language: Annotated[
        str | None, typer.Option(help="Language of the captions (default: the dataset's first).")
    ] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Tokenizer (default: the language's own).")] = None,
    root: Root = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Backbone option that the weights do not reveal, such as backbone.direction=i2t; repeatable.",
        ),
    ] = None,
) -> None:
    """Convert a published checkpoint into a run folder that can be scored; nothing is unpickled.

    Example: ncl-bench import-checkpoint best.tar --method ncr --dataset flickr30k --noise-ratio 0.4 --to runs/ncr
    """
    from baselines.published.import_checkpoint import Provenance
    from baselines.published.import_checkpoint import import_checkpoint as import_file

    statement = Provenance(
        method,
        dataset,
        noise_ratio,
        noise_unit,
        noise_seed,
        noise_file,
        seed,
        selection,
        language,
        tokenizer,
        root,
        tuple(settings or ()),
    )
    for remark in import_file(file, statement, to):
        typer.secho(f"WARNING: {remark}", fg="yellow", bold=True, err=True)
    _say_how_to_score(to, root)


@contextmanager
def _only_first_process_reports() -> Iterator[None]:
    """Print an error once for all processes; every process still exits with the same code.

    The first process prints it. A lost process may be the first one, so the first process of each machine reports that.
    """
    try:
        yield
    except (NclBenchError, KeyboardInterrupt) as error:
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


def _say_how_to_score(run: Path, root: Path | None) -> None:
    where = "" if root is None else f" --root {quote(str(root))}"
    hint(f"next: {command_name()} score {quote(str(run))}{where} --to {quote(f'submissions/{run.name}')}")
