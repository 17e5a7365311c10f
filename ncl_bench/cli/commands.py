"""The Typer app. A command is imported when it is called; ``COMMANDS`` says from where.

``baselines``, ``leaderboard`` and third-party packages add theirs by entry points: a command or a Typer app in group
``ncl_bench.commands``, a check of `doctor` in ``ncl_bench.checks``, one of `doctor --gpu` in ``ncl_bench.gpu_checks``,
and what encodes pictures in ``ncl_bench.features``.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from copy import copy
from functools import cache, wraps
from importlib.metadata import entry_points
from pkgutil import resolve_name
from shlex import quote
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_command_name, get_group

from ncl_bench import __version__
from ncl_bench.errors import NclBenchError, one_line
from ncl_bench.progress import be_quiet, name_command

COMMANDS = {
    "datasets": "ncl_bench.cli.data:datasets_app",
    "prepare": "ncl_bench.cli.data:prepare",
    "add-images": "ncl_bench.cli.data:add_images",
    "noise": "ncl_bench.cli.noise:noise_app",
    "evaluate": "ncl_bench.cli.evaluate:evaluate",
    "compare": "ncl_bench.cli.evaluate:compare",
    "submission": "ncl_bench.cli.evaluate:submission",
    "doctor": "ncl_bench.cli.doctor:doctor",
}
CHECKS = ["ncl_bench.cli.doctor:versions", "ncl_bench.cli.doctor:processors"]
"""What `doctor` runs before it looks at the data, imported then."""


class _Commands(TyperGroup):
    """Imports a command when it is called, and refuses an empty argument, which Python takes for the current folder."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS, *_of_packages()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands:
            known = COMMANDS if cmd_name in COMMANDS else COMMANDS | _of_packages()
            wanted = {cmd_name} if cmd_name in known else known  # all of them, to suggest one
            self.commands.update({name: _command(name, known[name]) for name in wanted})
        return self.commands.get(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:  # typer lets pydantic's prefix through
            error.message = error.message.removeprefix("Value error, ")
            raise

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for number, argument in enumerate(args, 1):
            if argument == "" or re.fullmatch("--[a-z-]+=", argument):
                option = argument.rstrip("=") or (args[number - 2] if number > 1 else "")
                name = option if option.startswith("--") else f"argument {number}"
                raise NclBenchError(
                    f"{name} is empty; give a value, or leave it out (a shell variable that is not set is empty)"
                )
        if "--quiet" in args:  # wherever it stands, it belongs to every command
            args = ["--quiet", *(argument for argument in args if argument != "--quiet")]
        return super().parse_args(ctx, args)


@cache
def _of_packages() -> dict[str, str]:
    """Names and places of the commands that installed packages add, without importing them."""
    return {each.name: each.value for each in entry_points(group="ncl_bench.commands")}


def _command(name: str, place: str) -> Any:
    command, alone = resolve_name(place), typer.Typer(add_completion=False)
    if not isinstance(command, typer.Typer):
        alone.command(name)(command)
        return _Listed(alone.registered_commands[0])
    group = copy(command)
    group.registered_commands = []  # Typer would make their options
    alone.add_typer(group, name=name)
    found: Any = get_group(alone).commands[name]
    _finish(found)
    found.commands |= {each.name: each for each in map(_Listed, command.registered_commands)}
    return found


class _Listed(TyperCommand):
    """A command that Typer makes when anything but its line in a list is asked for, as its options take time."""

    def __init__(self, registered: Any) -> None:
        line = {
            name: getattr(registered, name)
            for name in ("short_help", "hidden", "deprecated", "rich_help_panel")
        }
        line["help"] = registered.help or inspect.getdoc(registered.callback)
        line["name"] = registered.name or get_command_name(registered.callback.__name__)
        super().__init__(**line)
        # without the defaults of a command, so that the made one is asked for them
        self.__dict__ = line | {"_registered": registered}

    def __getattr__(self, name: str) -> Any:
        alone = typer.Typer(add_completion=False)
        alone.registered_commands = [self._registered]
        made = get_command(alone)
        _finish(made)
        vars(self).update(vars(made))
        return object.__getattribute__(self, name)


def _finish(command: Any) -> None:
    """Hide the types of flags, and let what the command refuses be told of its options."""
    params = _without_flag_types(command.get_params(typer.Context(command)))
    if command.callback:  # a group of commands may have none
        command.callback = _told_of_options(command.callback, {each.name: each.opts[0] for each in params})


def _told_of_options(work: Callable[..., Any], options: Mapping[str, str]) -> Callable[..., Any]:
    @wraps(work)
    def told(*given: Any, **named: Any) -> Any:
        try:
            return work(*given, **named)
        except NclBenchError as refusal:
            refusal.options = options
            raise

    return told


def _without_flag_types(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""  # typer prints <bool> in --help, although a flag takes no value
    return params


app = typer.Typer(
    cls=_Commands,
    name="ncl-bench",
    help="The benchmark suite for noisy-correspondence learning in image-text retrieval.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ncl-bench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print results and errors alone; goes with every command.")
    ] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="A .py file or module that registers methods, backbones or datasets; repeatable. It runs as a "
            "program of yours, so name only what you trust; a name that exists is refused.",
        ),
    ] = None,
) -> None:
    if quiet:
        be_quiet()
    if plugin:
        from ncl_bench.plugins import load_plugins

        load_plugins(plugin)
    name_command(one_line(" ".join(["ncl-bench", *(f"--plugin {quote(one)}" for one in plugin or ())])))
