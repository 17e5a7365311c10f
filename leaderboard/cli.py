"""Commands of the leaderboard: build, add, table, orders, diff."""

from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

import typer

from leaderboard import calls
from ncl_bench.cli.from_calls import Json, Option, made_from
from ncl_bench.errors import SubmissionError, named
from ncl_bench.extras import require

HERE = Path(__file__).parent
ROOT = HERE if (HERE.parent / "pyproject.toml").is_file() else Path("leaderboard")
"""Default folder of what needs the evidence: that of the checkout, or ``leaderboard`` in the current folder."""


def _require(root: Path, argument: str = "root", *, new: bool = False) -> None:
    """Refuse a missing leaderboard folder of an argument, unless it may be ``new`` and the user named it."""
    if not root.is_dir() and not (new and root != ROOT):
        raise SubmissionError(
            f"there is no folder {root}: the installed package contains no results; run this in a clone of the "
            f"repository, or name a leaderboard folder as {named(argument)}"
        )


board = typer.Typer(
    help="Build, check and print the leaderboard, and add results to it.", no_args_is_help=True
)

ROOT_HELP = "Leaderboard folder, which contains results/."
Root = Annotated[Path, typer.Option(help=ROOT_HELP)]


@board.command()
def build(
    root: Root = ROOT,
    to: Annotated[Path, typer.Option(help="Folder to write the site to.")] = Path("site"),
    published: Annotated[bool, typer.Option(help="Include the results that papers report.")] = True,
    tables: Annotated[
        bool, typer.Option("--tables", help="Write the tables in README.md too (for maintainers).")
    ] = False,
    repository: Annotated[
        str, typer.Option(metavar="URL", help="Address of the source code, for a link in the header.")
    ] = "",
    check: Annotated[
        bool,
        typer.Option("--check", help="Check the rows and the tables in README.md without writing anything."),
    ] = False,
) -> None:
    """Recompute every result from its ranks and write the site.

    Example: ncl-bench leaderboard build --to site
    """
    require("leaderboard", "jinja2", "markdown_it", needed_by="leaderboard build")
    from leaderboard.build import build as run
    from leaderboard.build import check as run_check
    from ncl_bench.progress import bar

    _require(root)
    if check:
        built = run_check(root, published=published, progress=bar)
    else:
        built = run(root, to, published=published, tables=tables, repository=repository, progress=bar)
    typer.echo(f"{built.rows:,} rows" + (f" in {len(built.files)} files" if built.files else ""))
    if built.behind and (root / "README.md").is_file():
        typer.echo(f"the tables in {root / 'README.md'} are out of date; they are rewritten after merging")
    if not check:
        typer.echo(f"open {to / 'index.html'}")


@board.command()
def add(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Submission folders.")],
    root: Root = ROOT,
    data_root: Annotated[
        Path | None,
        typer.Option(help="Folder of prepared datasets (default: environment variable NCL_BENCH_DATA)."),
    ] = None,
    submitter: Annotated[
        str,
        typer.Option(
            help="Your name and GitHub account, as 'Ada (@ada)', shown on the board (default: none, for maintainers)."
        ),
    ] = "",
    reproduced: Annotated[
        bool, typer.Option("--reproduced", help="List the results in reproduced.yaml (for maintainers).")
    ] = False,
) -> None:
    """Check and evaluate submissions, and write their results with the rank of every query.

    All seeds of one setting share a file, to which a new seed is added. If one submission is refused, none is written.
    Submissions that are already on the board are skipped.

    Example: ncl-bench leaderboard add submissions/ncr --submitter "Ada Lovelace"
    """
    from leaderboard.add import RowStands, new_row, write_rows
    from ncl_bench.progress import bar, hint

    _require(root, new=True)
    rows, standing = [], []
    for folder in dict.fromkeys(folders):
        try:
            rows.append(new_row(folder, root, data_root=data_root, submitter=submitter, progress=bar))
        except RowStands as stands:
            typer.echo(str(stands))
            standing.append(stands)
    if rows or (reproduced and standing):
        write_rows(rows, root, reproduced=reproduced, standing=standing, progress=bar)
    for row in rows:
        typer.echo(f"wrote seed {row.record.key} to {root / 'results' / row.name}.yaml and .npz")
    where = "" if root == ROOT else f" --root {quote(str(root))}"
    hint(
        f"next: see it with `ncl-bench leaderboard build{where}`; a pull request needs these files and no others"
    )
    for link in dict.fromkeys(link for row in rows for link in row.places):
        hint(f"then it stands at site/index.html#{link}")


@board.command()
@made_from(
    calls.table,
    dataset=Option("--dataset"),
    noise=Option("--noise"),
    mine=Option(metavar="SUBMISSION", kind=list[Path]),
    every=Option("--all"),
    root=Option("--root", help=ROOT_HELP, kind=Path, default=ROOT),
)
def table(
    mine: list[Path],
    root: Path,
    form: Annotated[
        Literal["markdown", "latex", "csv", "bibtex"],
        typer.Option("--format", help="Format of the tables; bibtex prints the papers that they cite."),
    ] = "markdown",
    ranks: Annotated[bool, typer.Option(help="Print the ranks.")] = True,
    as_json: Json = False,
    **chosen: Any,
) -> None:
    """Print the table of a paper: the comparable rows of one dataset, best first, yours among them.

    Nothing is written, and a submission is not added to the leaderboard.

    Example: ncl-bench leaderboard table --dataset flickr30k --noise caption-40 --format latex
    """
    from leaderboard import exports
    from leaderboard.paper_boards import chosen_boards
    from ncl_bench.progress import bar, say

    if root == ROOT and not root.is_dir():
        root = HERE  # an installed package holds the numbers
    _require(root)
    if as_json:
        frame = calls.table(**chosen, mine=mine, root=root)
        typer.echo(frame.to_json(orient="records", indent=2))
        return
    boards, files, papers = chosen_boards(**chosen, mine=mine, root=root, progress=bar)
    if mine and not (root / "results").is_dir():
        say("note: your rows take no rank here: it needs the ranks of every query of the others, in a clone")
    if any(path.is_file() for path in mine):
        say(
            "note: a file of similarities is taken for a single network, trained under the noise of this table"
        )
    tables = [table for board in boards for table in exports.paper_tables(board, files)]
    if not ranks:
        tables = [replace(one, lines=[replace(line, rank="") for line in one.lines]) for one in tables]
    text = {
        "markdown": lambda: exports.markdown_text(tables, papers),
        "latex": lambda: exports.latex_text(tables),
        "csv": lambda: exports.paper_csv(tables),
        "bibtex": lambda: exports.bibtex_text(exports.cited(tables, papers)),
    }
    typer.echo(text[form](), nl=False)


@board.command()
def orders(
    first: Annotated[
        str,
        typer.Argument(
            metavar="TABLE:NOISE", help="Measured table and noise, whose names are in the example."
        ),
    ],
    second: Annotated[str, typer.Argument(metavar="TABLE:NOISE", help="The condition to compare it with.")],
    root: Root = ROOT,
) -> None:
    """Print Kendall's tau between the orders of the methods in two measured conditions, with a 95 % interval.

    The tables may differ in noise, data set, encoder, backbone or steps; methods that only one of them has are left
    out. The interval is over methods.

    Example: ncl-bench leaderboard orders pictograms-1k-sgr-1350:none pictograms-1k-sgr-1350:caption-60
    """
    _require(root)
    from leaderboard.board import read_content
    from leaderboard.measured_tables import measured_tables
    from leaderboard.orders import compare_orders
    from ncl_bench.progress import bar

    order = compare_orders(measured_tables(read_content(root, published=False, progress=bar)), first, second)
    width = max(len(name) for name, *_ in order.methods)
    for name, one, other in order.methods:
        typer.echo(f"{name:<{width}}{one:8.1f}{other:8.1f}")
    low, high = order.interval
    typer.echo(
        f"Kendall's tau of {len(order.methods)} methods: {order.tau:.2f} (95 % interval {low:.2f} to {high:.2f})"
    )


@board.command()
def diff(
    base: Annotated[Path, typer.Argument(help="Leaderboard folder to compare with.")],
    root: Root = ROOT,
    site: Annotated[
        Path | None,
        typer.Option(
            help="Site that the change's own code built (default: this code evaluates both folders)."
        ),
    ] = None,
    only_new: Annotated[
        bool, typer.Option("--only-new", help="Fail if an existing result was changed, moved or removed.")
    ] = False,
    author: Annotated[
        str | None,
        typer.Option(
            help="GitHub account of the change's author: new seeds of another submitter are marked."
        ),
    ] = None,
) -> None:
    """Print the changes between another leaderboard and this one as Markdown.

    Example: ncl-bench leaderboard diff ../main/leaderboard
    """
    require("leaderboard", "jinja2", "markdown_it", needed_by="leaderboard diff")
    from leaderboard import diff as compared
    from leaderboard.build import built
    from ncl_bench.progress import bar, say

    _require(base / "results", "base")
    _require(root / "results")
    say(f"building {base}{'' if site else f' and {root}'} to compare; this takes minutes")
    before = built(base, progress=bar).texts
    after = compared.read_site(site) if site else built(root, progress=bar).texts
    moves = compared.moves(before, after, site or root)
    try:
        new = compared.additions_text(base, root, author)
    except SubmissionError as error:  # of a correction that the code of the base cannot read
        new = f"The results cannot be read by this code: {compared.in_markdown(str(error))}\n"
    typer.echo("\n".join(filter(None, (new, moves.markdown()))), nl=False)
    if only_new:
        compared.refuse_moved(moves, compared.additions(base, root))
