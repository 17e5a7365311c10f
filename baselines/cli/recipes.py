"""``ncl-bench recipes``: list and show the shipped recipes."""

from typing import Annotated

import typer

from ncl_bench.errors import NclBenchError
from ncl_bench.plugins import loaded

recipes_app = typer.Typer(
    help="List and show the shipped recipes: method, dataset, backbone and options.",
    invoke_without_command=True,
)


@recipes_app.callback()
def list_recipes(
    context: typer.Context,
    match: Annotated[str, typer.Option(help="List only names that contain this text.")] = "",
) -> None:
    """List the shipped recipes, or show one in full.

    Example: ncl-bench recipes --match digits
    """
    if context.invoked_subcommand:
        return
    if loaded():
        from baselines.training.recipe import names_with_plugins as all_names
    else:
        from baselines.recipes import recipe_names as all_names

    names = [name for name in all_names() if match in name]
    if not names:
        raise NclBenchError(f"no recipe's name contains {match!r}; see all with `ncl-bench recipes`")
    typer.echo("\n".join(names))


@recipes_app.command()
def show(recipe: Annotated[str, typer.Argument(help="Recipe file, or name of a recipe.")]) -> None:
    """Print every option of a recipe, its command, and the results that papers report for it.

    The output is itself a recipe: save it to a file, edit it, and train that file.

    Example: ncl-bench recipes show ncr/flickr30k_sgr
    """
    from baselines.recipes import refuse_unknown

    refuse_unknown(recipe)
    from baselines.training.printed import described

    typer.echo(described(recipe))
