"""``ncl-bench hub``: runs on the Hugging Face Hub."""

from pathlib import Path
from typing import Annotated

import typer

from ncl_bench.progress import hint

hub_app = typer.Typer(help="Share finished runs on the Hugging Face Hub.", no_args_is_help=True)


@hub_app.callback()
def _group() -> None:
    """Share finished runs on the Hugging Face Hub."""


@hub_app.command()
def push(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    repository: Annotated[
        str,
        typer.Argument(metavar="USER/NAME", help="Model repository, USER/NAME; a new one is private."),
    ],
    result: Annotated[
        Path | None,
        typer.Option(
            help="Evaluated submission of the run, whose result.json is uploaded and gives the card its metrics "
            "(default: submission in the run's folder, if it was evaluated)."
        ),
    ] = None,
) -> None:
    """Upload weights (safetensors), recipe, curves and result of a run, with a model card.

    The token is the one that `hf auth login` stored. Score it with `ncl-bench score hub:USER/NAME@REVISION`.

    Example: ncl-bench hub push runs/ncr ada/ncr-digits --result submissions/ncr
    """
    from baselines.hub import push as run_push

    run_push(run, repository, result=result)
    typer.echo(f"uploaded {run} to {repository}")
    hint(f"next: ncl-bench score hub:{repository} --to submission")
