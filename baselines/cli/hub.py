"""``ncl-bench hub``: runs on the Hugging Face Hub."""

from pathlib import Path
from typing import Any

import typer

from ncl_bench.cli.options import Option, made_from
from ncl_bench.progress import hint

hub_app = typer.Typer(help="Share finished runs on the Hugging Face Hub.", no_args_is_help=True)


@hub_app.callback()
def _group() -> None:
    """Share finished runs on the Hugging Face Hub."""


@hub_app.command()
@made_from("baselines.hub:push", repository=Option(metavar="USER/NAME"), api=None)
def push(run: Path, repository: str, **given: Any) -> None:
    """Upload weights (safetensors), recipe, curves and result of a run, with a model card.

    The token is the one that `hf auth login` stored. Score it with `ncl-bench score hub:USER/NAME@REVISION`.

    Example: ncl-bench hub push runs/ncr ada/ncr-digits --result submissions/ncr
    """
    from baselines.hub import push as run_push

    run_push(run, repository, **given)
    typer.echo(f"uploaded {run} to {repository}")
    hint(f"next: ncl-bench score hub:{repository} --to submission")
