"""What evaluate and compare write and print."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ncl_bench.evaluation.claims import local_split
from ncl_bench.evaluation.compare import Difference, check_comparable, compare, difference_samples
from ncl_bench.evaluation.examples import Gallery, worst_failures, write_examples
from ncl_bench.evaluation.figures import plot_difference, plot_ranks
from ncl_bench.evaluation.protocol import expected_shape, fold_size, protocols_of, ranks_under
from ncl_bench.evaluation.ranks import OnRows
from ncl_bench.evaluation.report import (
    RESULT_FILE,
    Opened,
    Report,
    evaluate_submission,
    open_submission,
    write_result,
)
from ncl_bench.files import sole_owner

if TYPE_CHECKING:
    from rich.console import Console


def evaluate_folder(
    folder: Path, to: Path, *, root: Path | None = None, plot: bool = False, examples: int = 0
) -> tuple[Report, list[Path]]:
    """Evaluate a submission folder and write what was asked for; nothing is written before all is computed.

    Args:
        folder: the submission.
        to: folder of the output.
        root: folder of prepared datasets.
        plot: write histograms of ranks.
        examples: worst failures of each direction to show; 0 for no page.

    Returns:
        The report, and the files written.
    """
    opened = open_submission(folder, root=root)
    with sole_owner(to):
        return _evaluate_opened(opened, to, root=root, plot=plot, examples=examples)


def _evaluate_opened(
    opened: Opened, to: Path, *, root: Path | None, plot: bool, examples: int
) -> tuple[Report, list[Path]]:
    n_images = sum(expected_shape(opened.spec, split)[0] for split in opened.sources)
    with _counting_bar(n_images) as on_rows:
        report, counted = evaluate_submission(opened, on_rows=on_rows)
    pages = {}
    for split in counted if examples else ():
        gallery = Gallery(opened.spec, local_split(opened.spec, split, root, opened.submission.language))
        pages[to / f"examples_{split}.html"] = (
            worst_failures(counted[split].whole, opened.sources[split].retrieved, gallery, examples),
            f"{opened.submission.method} on {opened.spec.title}, {split}: worst failures",
        )
    write_result(to, report)
    for path, (failures, title) in pages.items():
        write_examples(path, failures, title)
    plots = {}
    for split, ranks in counted.items() if plot else ():
        for protocol in protocols_of(opened.spec, split):
            title = f"{opened.submission.method} on {opened.spec.title}, {split}" + (
                f" ({protocol})" if protocol != split else ""
            )
            plots[to / f"ranks_{split}_{protocol}.svg"] = (ranks_under(ranks, protocol), title)
    for path, (shown, title) in plots.items():
        plot_ranks(path, shown, title)
    return report, [to / RESULT_FILE, *pages, *plots]


@contextmanager
def _counting_bar(n_images: int) -> Iterator[OnRows]:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("counting", total=n_images)
        yield lambda rows: progress.advance(task, rows)


def print_report(report: Report, written: list[Path]) -> None:
    """Show a report on the terminal."""
    from rich.console import Console

    console = Console()
    for evaluation in report.splits.values():
        console.print(evaluation)
    if report.correspondence is not None:
        track = report.correspondence
        console.print(
            f"correspondence: AUROC {track.auroc:.4f}, average precision {track.average_precision:.4f}, "
            f"accuracy {track.accuracy:.2f} % of {track.pairs:,} training pairs"
        )
    _print_notes(
        console, [*report.notes, *(note for split in report.splits.values() for note in split.notes)]
    )
    for path in written:
        console.print(f"wrote {path}", highlight=False, markup=False, soft_wrap=True)


def compare_folders(
    first: Path, second: Path, split: str, *, root: Path | None = None, plot: Path | None = None
) -> tuple[dict[str, Difference], list[str]]:
    """Compare two submission folders.

    Args:
        first: one submission.
        second: the other.
        split: ``test`` or ``dev``.
        root: folder of prepared datasets.
        plot: SVG file for the differences under the default protocol.

    Returns:
        Protocol to difference, and notes on what else differs.
    """
    opened: tuple[Opened, Opened] = (open_submission(first, root=root), open_submission(second, root=root))
    notes = check_comparable(*opened, split)
    counted = (opened[0].sources[split].count(), opened[1].sources[split].count())
    spec = opened[0].spec
    differences = compare(counted, spec, split, (str(first), str(second)))
    if plot is not None:
        protocol = protocols_of(spec, split)[0]
        ranks = [ranks_under(one, protocol) for one in counted]
        samples = difference_samples(ranks[0], ranks[1], fold_size(protocol, len(ranks[0].i2t)))
        plot_difference(plot, samples, (opened[0].submission.method, opened[1].submission.method))
    return differences, notes


def print_comparison(differences: dict[str, Difference], notes: list[str], names: tuple[str, str]) -> None:
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
