"""What a pull request with results may not do; the docstrings say what the gate let through before."""

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from leaderboard import cli
from leaderboard.add import add
from leaderboard.gate import refuse_mixed, refuse_touched
from leaderboard.published import PUBLISHED
from ncl_bench.errors import SubmissionError

Maker = Callable[..., Path]
CELL = "digits/crcl/*caption-40*"


@pytest.fixture
def base(small_board: Path, tmp_path: Path) -> Path:
    root = Path(shutil.copytree(small_board, tmp_path / "base"))
    shutil.copytree(PUBLISHED, root / "published")
    return root


@pytest.fixture
def change(base: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(base, tmp_path / "change"))


def cell(root: Path) -> Path:
    (path,) = root.glob(f"results/{CELL}.yaml")
    return path


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.search(old, text)
    path.write_text(re.sub(old, new, text, count=1), encoding="utf-8")


def test_new_cells_new_seeds_and_layout_pass(base: Path, make: Maker, tmp_path: Path) -> None:
    standing = cell(base).relative_to(base)
    add(make(tmp_path / "first", seed=2), base, submitter="Ada")
    change = Path(shutil.copytree(base, tmp_path / "change"))
    add(make(tmp_path / "cell", method="Mine", difficulty=1.2), change, submitter="Bo")
    assert add(make(tmp_path / "seed", seed=3), change, submitter="Ada").with_suffix(".npz").is_file()
    path = change / standing
    path.write_text(f"# a comment\n{path.read_text(encoding='utf-8')}", encoding="utf-8")
    refuse_touched(base, change)


def test_a_new_seed_names_its_submitter(base: Path, change: Path, make: Maker, tmp_path: Path) -> None:
    """It joined a cell of the maintainers and moved its mean."""
    add(make(tmp_path / "seed", seed=2), change)
    with pytest.raises(SubmissionError, match="seed 2 is new and names no submitter; add it with"):
        refuse_touched(base, change)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  noise:", "  notes: Do not trust it.\n  noise:", "header: notes is changed"),
        ("hardware: CPU", "hardware: abacus", "seed 0: hardware is changed"),
        ("hardware: CPU", "hours: 1.0\n  hardware: CPU", "seed 0: hours is changed"),
    ],
)
def test_a_standing_record_or_header_may_not_change(
    base: Path, change: Path, old: str, new: str, message: str
) -> None:
    """Numbers and statuses alone were compared: other people's notes, hours, costs and curves could be rewritten."""
    replace(cell(change), old, new)
    with pytest.raises(SubmissionError, match=message):
        refuse_touched(base, change)


@pytest.mark.parametrize("field", ["paper", "code"])
def test_links_of_a_standing_result_may_not_change(
    base: Path, change: Path, make: Maker, tmp_path: Path, field: str
) -> None:
    """The links make the name of the file, so the standing one is gone."""
    for path in (cell(change), cell(change).with_suffix(".npz")):
        path.unlink()
    for seed in (0, 1):
        add(make(tmp_path / str(seed), seed=seed, **{field: "https://example.org/mine"}), change)
    with pytest.raises(SubmissionError, match=r"caption-40-[0-9a-f]{8}\.yaml is gone; a change may add"):
        refuse_touched(base, change)


def test_ranks_of_a_standing_seed_may_not_change(base: Path, change: Path) -> None:
    """An edit below the resolution of the printed recalls was no change of a row."""
    path = cell(change).with_suffix(".npz")
    with np.load(path) as archive:
        arrays: Mapping[str, np.ndarray] = {name: archive[name].copy() for name in archive}
    far = int(np.argmax(arrays["s0_whole_t2i"]))
    arrays["s0_whole_t2i"][far] += 1
    np.savez_compressed(path, **arrays)
    with pytest.raises(SubmissionError, match=r"\.npz: the ranks of seed 0 are changed"):
        refuse_touched(base, change)


def test_a_seed_may_not_go(base: Path, change: Path, make: Maker, tmp_path: Path) -> None:
    for path in (cell(change), cell(change).with_suffix(".npz")):
        path.unlink()
    add(make(tmp_path / "0", seed=0), change)
    with pytest.raises(SubmissionError, match=r"seed 1 is gone"):
        refuse_touched(base, change)


def test_only_maintainers_say_what_they_reproduced(base: Path, change: Path) -> None:
    name = cell(change).relative_to(change / "results").with_suffix("").as_posix()
    (change / "reproduced.yaml").write_text(f"{name}: [0]\n", encoding="utf-8")
    with pytest.raises(SubmissionError, match=r"reproduced\.yaml is changed"):
        refuse_touched(base, change)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("results.csv", "67.4,90.3", "67.5,90.3", "the row SCAN of ncr2021, Table 1, .* recalls is changed"),
        ("results.csv", "ncr2021,Table 1,SCAN.*\n", "", "the row SCAN of ncr2021, Table 1, .* is gone"),
        ("notes.yaml", "rules:", "rules:\n  - {where: {source: ncr2021}, doubt: No.}", "doubts is changed"),
        ("sources.yaml", "2021-NeurIPS-NCR", "mine", "the source ncr2021.* is changed"),
    ],
)
def test_printed_rows_their_remarks_and_their_sources_may_not_change(
    base: Path, change: Path, file: str, old: str, new: str, message: str
) -> None:
    """A rule of notes.yaml that took a rank from other rows was no change of theirs."""
    replace(change / "published" / file, old, new)
    with pytest.raises(SubmissionError, match=message):
        refuse_touched(base, change)


def test_a_printed_row_may_be_added(base: Path, change: Path) -> None:
    path = change / "published" / "results.csv"
    path.write_text(
        path.read_text(encoding="utf-8")
        + "ncr2021,Table 9,SCAN,SCAN,flickr30k,1k,none,0,,67.0,90.3,95.8,48.6,77.7,85.2,\n",
        encoding="utf-8",
    )
    refuse_touched(base, change)


@pytest.mark.parametrize("name", ["published/notes.yaml", "README.md"])
def test_links_are_refused(base: Path, change: Path, tmp_path: Path, name: str) -> None:
    """A link led the check, and the build that writes the tables, to a file elsewhere."""
    target = tmp_path / "elsewhere"
    target.write_bytes((PUBLISHED / "notes.yaml").read_bytes())
    (change / name).unlink(missing_ok=True)
    (change / name).symlink_to(target)
    with pytest.raises(SubmissionError, match=rf"{name} is a link; put the file itself there"):
        refuse_touched(base, change)


RESULT = "leaderboard/results/digits/ncr/a.yaml"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ([RESULT, "leaderboard/significance.py"], "leaderboard/significance.py"),
        (["ncl_bench/evaluation/ranks.py", "leaderboard/reproduced.yaml"], "ncl_bench/evaluation/ranks.py"),
        ([RESULT, ".github/workflows/leaderboard.yml"], ".github/workflows/leaderboard.yml"),
        ([RESULT, "leaderboard/published/notes.yaml"], "leaderboard/published/notes.yaml"),
    ],
)
def test_results_and_code_come_in_two_changes(changed: list[str], code: str) -> None:
    """A change of both was judged by its own code."""
    message = rf"touches results \(.*\) and other files \({re.escape(code)}\); open two"
    with pytest.raises(SubmissionError, match=message):
        refuse_mixed(changed)


def test_results_alone_code_alone_and_pages_pass() -> None:
    refuse_mixed([RESULT, "leaderboard/reproduced.yaml", "leaderboard/README.md", ""])
    refuse_mixed(["leaderboard/significance.py", "tests/test_security.py"])


def test_the_command_reads_the_list_of_changed_files(
    base: Path, change: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = tmp_path / "changed.txt"
    listed.write_text(f"{RESULT}\n", encoding="utf-8")
    cli.diff(base, change, only_new=True, changed_files=listed)
    assert capsys.readouterr().out == "No row of the leaderboard moved.\n"
    listed.write_text(f"{RESULT}\nMakefile\n", encoding="utf-8")
    with pytest.raises(SubmissionError, match="other files \\(Makefile\\)"):
        cli.diff(base, change, changed_files=listed)
