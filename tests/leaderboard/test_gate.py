"""What a pull request with results may not do; the docstrings say what the gate let through before."""

import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from leaderboard import cli
from leaderboard.add import add
from leaderboard.build import build
from leaderboard.evidence import read_ranks
from leaderboard.exports import BEGIN, END
from leaderboard.gate import (
    additions_text,
    contradicts,
    correlated,
    kind_of,
    near_copies,
    refuse_mixed,
    refuse_touched,
)
from leaderboard.row_files import read_row_file
from ncl_bench.data import dataset_spec
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation.ranks import Ranks
from ncl_bench.papers import PUBLISHED

Maker = Callable[..., Path]
CONDITION = "digits/crcl/*caption-40*"


@pytest.fixture
def base(small_board: Path, tmp_path: Path) -> Path:
    root = Path(shutil.copytree(small_board, tmp_path / "base"))
    place = Path(shutil.copytree(PUBLISHED, root / "published"))
    lines = (place / "results.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (place / "results.csv").write_text("".join(lines[:3]), encoding="utf-8")  # all would take seconds
    (place / "notes.yaml").write_text(
        "rules:\n  - {where: {source: ncr2021}, note: A note.}\n", encoding="utf-8"
    )
    return root


@pytest.fixture
def change(base: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(base, tmp_path / "change"))


def cell(root: Path) -> Path:
    (path,) = root.glob(f"results/{CONDITION}.yaml")
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
        (
            "results.csv",
            "67.4,90.3",
            "67.5,90.3",
            "the row SCAN SCAN of ncr2021 Table 1 .* recalls is changed",
        ),
        ("results.csv", "ncr2021,Table 1,SCAN.*\n", "", "the row SCAN SCAN of ncr2021 Table 1 .* is gone"),
        ("notes.yaml", "rules:", "rules:\n  - {where: {source: ncr2021}, doubt: No.}", "doubts is changed"),
        ("sources.yaml", "2021-NeurIPS-NCR", "mine", "the source ncr2021.* is changed"),
        (
            "detection.csv",
            r"0\.803",
            "0.999",
            "the detection row LLaVA .* auroc is changed; a change may add",
        ),
        (
            "detection.csv",
            "threshold not",
            "all",
            "the detection row GSC, cross-modal weight .* remark is changed",
        ),
        ("detection.csv", ".*GSC, both.*\n", "", "the detection row GSC, both .* is gone"),
        ("detection.csv", "\n", ",rank\n", "detection.csv line 2: it has fewer cells"),
        (
            "results.csv",
            "(ncr2021,Table 1,SCAN,.*)(67.4)(.*\n)",
            r"\g<1>99.9\3\1\2\3",
            "the row SCAN SCAN of ncr2021 Table 1 in flickr30k-1k-none-0 stands twice; remove",
        ),
    ],
)
def test_printed_rows_their_remarks_and_their_sources_may_not_change(
    base: Path, change: Path, file: str, old: str, new: str, message: str
) -> None:
    """A rule of notes.yaml took a rank from other rows, detection.csv was never compared, and a line above hid one."""
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


@pytest.mark.parametrize("name", ["results.csv", "detection.csv", "notes.yaml", "sources.yaml", ""])
def test_a_file_of_printed_numbers_may_not_go(base: Path, change: Path, name: str) -> None:
    """Without the folder, the change was compared with the numbers of the installed package."""
    path = change / "published" / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(SubmissionError, match=r"is gone|does not exist"):
        refuse_touched(base, change)


@pytest.mark.parametrize("name", ["published/more.csv", "published/old/results.csv", "results/digits/a.txt"])
def test_a_file_that_nothing_reads_is_refused(base: Path, change: Path, name: str) -> None:
    """A file beside the compared ones passed."""
    (change / name).parent.mkdir(exist_ok=True)
    (change / name).write_text("GSC,600\n", encoding="utf-8")
    with pytest.raises(SubmissionError, match=r"(more\.csv|old|a\.txt) belongs to no .*; remove it"):
        refuse_touched(base, change)


def test_a_printed_detection_may_be_added(base: Path, change: Path) -> None:
    path = change / "published" / "detection.csv"
    text = path.read_text(encoding="utf-8")
    path.write_text(f"{text}A paper,Table 1,Mine,SGRAF,MS-COCO,40 %,0.9,,,,\n", encoding="utf-8")
    refuse_touched(base, change)


def test_the_tables_of_the_readme_may_not_change(base: Path, change: Path) -> None:
    """Tables of other rows than the standing ones were not compared."""
    tables = "# Leaderboard\n\n{}\n<!-- rows: 0 -->\n\n| GSC | {} |\n{}\n"
    for root, number in ((base, 500), (change, 505)):
        (root / "README.md").write_text(tables.format(BEGIN, number, END), encoding="utf-8")
    with pytest.raises(SubmissionError, match=r"README\.md: the tables are changed; leave them"):
        refuse_touched(base, change)
    (change / "README.md").write_text(f"More.\n{tables.format(BEGIN, 500, END)}", encoding="utf-8")
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


def checkout(root: Path, place: Path) -> Path:
    """A board in a checkout, whose printed numbers are beside it, in the package."""
    papers = place / "ncl_bench" / "papers"
    papers.mkdir(parents=True)
    shutil.copytree(root, place / "leaderboard")
    shutil.move(place / "leaderboard" / "published", papers / "published")
    return place


def test_printed_numbers_of_the_checkout_are_those_that_the_gate_compares(base: Path, tmp_path: Path) -> None:
    """They left the board's folder for the package, where a change must not escape the gate."""
    before, after = checkout(base, tmp_path / "before"), checkout(base, tmp_path / "after")
    refuse_touched(before / "leaderboard", after / "leaderboard")
    replace(after / "ncl_bench" / "papers" / "published" / "results.csv", "(ncr2021,.*)67.4", r"\g<1>99.9")
    with pytest.raises(SubmissionError, match=r"the row SCAN SCAN of ncr2021 Table 1 .*: recalls is changed"):
        refuse_touched(before / "leaderboard", after / "leaderboard")


@pytest.mark.parametrize("name", ["published/notes.yaml", "published", "."])
def test_links_among_the_papers_of_the_checkout_are_refused(base: Path, tmp_path: Path, name: str) -> None:
    before, after = checkout(base, tmp_path / "before"), checkout(base, tmp_path / "after")
    path = after / "ncl_bench" / "papers" / name
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SubmissionError, match=rf"{path.name} is a link; put the file itself there"):
        refuse_touched(before / "leaderboard", after / "leaderboard")


@pytest.mark.parametrize(
    ("submitter", "author", "joins"),
    [
        ("Ada (@ada)", "ada", True),
        ("Ada (@ada)", "Ada", True),
        ("Ada (@ada) and Bo (@bo)", "bo", True),
        ("Ada (@ada)", "mallory", False),
        ("Ada", "ada", False),  # anybody can register the account "ada"
        ("Ada (@ada-lovelace)", "ada", False),
        ("Ada (x@ada)", "ada", False),
    ],
)
def test_a_seed_joins_a_row_only_by_its_account(
    base: Path, make: Maker, tmp_path: Path, submitter: str, author: str, joins: bool
) -> None:
    """A third party's seed joined somebody's row under the same name and moved its mean."""
    add(make(tmp_path / "first", seed=2), base, submitter=submitter)
    change = Path(shutil.copytree(base, tmp_path / "change"))
    add(make(tmp_path / "own", method="Mine", difficulty=1.2), change, submitter="Mallory")
    refuse_touched(base, change, author)
    add(make(tmp_path / "second", seed=3, difficulty=4.0), change, submitter=submitter)
    if joins:
        refuse_touched(base, change, author)
        return
    message = (
        rf"seed 3 is new and joins the row of {re.escape(submitter)}, a name that does not hold @{author};"
    )
    with pytest.raises(SubmissionError, match=message):
        refuse_touched(base, change, author)


def test_new_seeds_are_described(base: Path, make: Maker, tmp_path: Path) -> None:
    """The difference named neither submitter nor selection, extra data, encoder and notes of a new seed."""
    add(make(tmp_path / "first", seed=2), base, submitter="Ada (@ada)")
    change = Path(shutil.copytree(base, tmp_path / "change"))
    add(make(tmp_path / "joining", seed=3), change, submitter="Ada (@ada)")
    fields = {
        "selection_split": "test",
        "extra_clean_data": "3,000 pairs",
        "pretrained_encoder": "CLIP",
        "notes": "# mine @all see https://example.org",
    }
    add(make(tmp_path / "new", method="Mine", difficulty=1.2, **fields), change, submitter="Bo")
    text = additions_text(base, change, "ada")
    assert text.startswith("### New seeds (2)\n\n- `digits/crcl/")
    joining, new = text.splitlines()[2:]
    assert (
        ", seed 3: **joins the standing row of `Ada (@ada)`**; submitter `Ada (@ada)`; selection dev;"
        in joining
    )
    assert "brought by" not in joining
    assert "submitter Bo; **brought by ada, an account that the submitter's name does not hold**" in new
    assert "selection test; extra clean data `3,000 pairs`; encoder CLIP;" in new
    assert new.endswith("notes `# mine @all see https://example.org`")
    assert additions_text(base, base) == ""


def improved(ranks: np.ndarray, share: float) -> np.ndarray:
    return np.where(np.random.RandomState(1).rand(len(ranks)) < share, 1, ranks)


@pytest.mark.parametrize(
    "copy",
    [
        lambda ranks: improved(ranks, 0.1),
        lambda ranks: improved(ranks, 0.3),
        lambda ranks: np.rint(ranks * np.random.RandomState(1).uniform(0.97, 1.03, len(ranks))).astype(int),
        lambda ranks: np.maximum(1, ranks - (np.arange(len(ranks)) % 3 == 0)),
    ],
)
def test_a_near_copy_of_a_row_is_named(copy: Callable[[np.ndarray], np.ndarray]) -> None:
    """A copy with one changed rank was another result."""
    random = np.random.RandomState(0)
    row, other = (np.rint(random.lognormal(3, 1.5, 2000)).astype(int).clip(1, 1000) for _ in range(2))
    found = near_copies({"row": row, "other": other, "mine": copy(row)}, "mine")
    assert list(found) == ["row"]
    assert found["row"] > 0.6
    assert near_copies({"row": row, "other": other}, "other") == {}


@pytest.mark.parametrize(
    "copy",
    [
        lambda ranks: (ranks + 1) // 2,
        lambda ranks: ranks // 3 + 1,
        lambda ranks: ranks + 5,
        lambda ranks: np.maximum(1, ranks - 4),
        lambda ranks: ranks * 2,
        lambda ranks: np.sqrt(ranks).astype(int),
    ],
)
def test_ranks_that_follow_another_rows_are_named(copy: Callable[[np.ndarray], np.ndarray]) -> None:
    random = np.random.RandomState(0)
    row, other = (np.rint(random.lognormal(3, 1.5, 2000)).astype(int).clip(1, 1000) for _ in range(2))
    found = correlated({"row": row, "other": other, "mine": copy(row)}, "mine")
    assert list(found) == ["row"]
    assert 0.9 < found["row"] <= 1
    assert correlated({"row": row, "other": other}, "other") == {}


def test_ranks_of_a_matrix_never_contradict_each_other() -> None:
    random = np.random.RandomState(0)
    for trial in range(200):
        n, each = random.randint(2, 9), random.randint(1, 4)
        scores = random.rand(n, n * each)
        if trial % 3:  # ties, and images or captions that score high or low with everything
            scores = np.round(scores * 3) + trial % 2 * random.randint(0, 3, (n, 1))
        image_of = np.arange(n * each) // each
        true = scores[image_of, np.arange(n * each)]
        best = true.reshape(n, each).max(axis=1)
        wrong = image_of != np.arange(n)[:, None]
        i2t = 1 + (wrong & (scores >= best[:, None])).sum(axis=1)
        t2i = 1 + (wrong & (scores >= true)).sum(axis=0)
        assert not contradicts(Ranks(i2t, t2i))


@pytest.mark.parametrize("each", [1, 5])
def test_ranks_that_no_matrix_gives_are_named(each: int) -> None:
    n = 40
    best, worst = np.ones(n, int), np.full(n, n * each - each + 1)
    assert contradicts(Ranks(worst, np.ones(n * each, int)))
    assert contradicts(Ranks(best, np.full(n * each, n)))
    assert contradicts(Ranks(np.where(np.arange(n) < n // 2, 1, worst), np.ones(n * each, int)))
    assert not contradicts(Ranks(worst, np.full(n * each, n)))  # every similarity is equal
    assert not contradicts(Ranks(best, np.ones(n * each, int)))
    # captions of image 0 score highest with every image: their own is first, and no other image finds its own
    first = np.where(np.arange(n) == 0, 1, 1 + each)
    assert not contradicts(Ranks(first, np.ones(n * each, int)))


def test_a_near_copy_is_named_in_the_description(
    base: Path, change: Path, make: Maker, tmp_path: Path
) -> None:
    path = add(make(tmp_path / "new", method="Mine", difficulty=2.0), change, submitter="Bo").with_suffix(
        ".npz"
    )
    standing = cell(base).with_suffix(".npz")
    with np.load(standing) as archive:
        arrays = {
            name: improved(archive[name], 0.1) for name in archive if re.fullmatch("s0_whole_...", name)
        }
    np.savez_compressed(path, **arrays)
    name = cell(base).relative_to(base / "results").with_suffix("").as_posix()
    assert re.search(
        rf"\*\*(8|9)\d% of its ranks are near those of `{name}, seed 0`\*\*", additions_text(base, change)
    )


@pytest.mark.parametrize(
    "names",
    [
        ("pictograms/gsc-plus/vse-infinity-2net-caption-40-600steps", "-30c6f5a5"),
        (
            "digits/gsc-plus/vse-infinity-2net-caption-40-tuned-1500steps",
            "/../vse-infinity-2net-none-tuned-1500steps",
        ),
        (
            "pictograms-web/cream/vse-infinity-2net-natural-600steps",
            "/../../sps/vse-infinity-2net-natural-600steps",
        ),
    ],
)
def test_the_nearest_results_of_the_repository_are_no_copies(names: tuple[str, str]) -> None:
    """The nearest pairs on each dataset, of all 454,692."""
    root, (first, rest) = Path(cli.__file__).parent, names
    cells = [first, os.path.normpath(first + rest)]
    ranks = {}
    for name in cells:
        file = read_row_file(root / "results" / f"{name}.yaml")
        keys, spec = [record.key for record in file.seeds], dataset_spec(file.header.dataset)
        for key, counted in read_ranks(root / "results" / f"{name}.npz", keys, spec).items():
            ranks[f"{name} {key}"] = np.concatenate([counted.whole.i2t, counted.whole.t2i])
    assert [near_copies(ranks, run) for run in ranks] == [{}] * len(ranks)


RESULT = "leaderboard/results/digits/ncr/a.yaml"
PRINTED = "ncl_bench/papers/published/detection.csv"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (RESULT, "results"),
        ("leaderboard/results/README.md", "results"),
        ("leaderboard/reproduced.yaml", "results"),
        (PRINTED, "printed numbers"),
        ("ncl_bench/papers/published/anything", "printed numbers"),
        ("leaderboard/README.md", "pages"),
        ("ncl_bench/papers/methods.yaml", "code"),
        ("leaderboard/templates/macros.html", "code"),
        ("leaderboard/new.csv", "code"),
        ("pyproject.toml", "code"),
        (".gitattributes", "code"),
        ('"leaderboard/results/\\303\\244.yaml"', "code"),  # git quotes an unusual name
    ],
)
def test_every_file_is_of_one_kind(path: str, kind: str) -> None:
    assert kind_of(path) == kind


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ([RESULT, "leaderboard/significance.py"], "leaderboard/significance.py"),
        (["ncl_bench/evaluation/ranks.py", "leaderboard/reproduced.yaml"], "ncl_bench/evaluation/ranks.py"),
        ([RESULT, ".github/workflows/leaderboard.yml"], ".github/workflows/leaderboard.yml"),
        ([RESULT, "ncl_bench/papers/published/notes.yaml"], "ncl_bench/papers/published/notes.yaml"),
        (["ncl_bench/papers/methods.yaml", PRINTED], "ncl_bench/papers/methods.yaml"),
    ],
)
def test_data_and_code_come_in_two_changes(changed: list[str], code: str) -> None:
    """A change of both was judged by its own code."""
    message = rf"touches (results|printed numbers) \(.*\) and other files \({re.escape(code)}\); open two"
    with pytest.raises(SubmissionError, match=message):
        refuse_mixed(changed)


def test_results_alone_code_alone_and_pages_pass() -> None:
    refuse_mixed([RESULT, "leaderboard/reproduced.yaml", "leaderboard/README.md"])
    refuse_mixed([PRINTED, "ncl_bench/papers/published/notes.yaml", "docs/faq.md"])
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
        cli.diff(base, change, only_new=True, changed_files=listed)
    listed.write_text("ncl_bench/evaluation/ranks.py\n", encoding="utf-8")
    with pytest.raises(SubmissionError, match=r"names code \(ncl_bench/evaluation/ranks.py\), .* --site"):
        cli.diff(base, change, changed_files=listed)


def test_code_that_moves_a_row_needs_a_correction(
    base: Path, change: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both boards came from one code, so a change of code moved no row; it passed."""
    listed, site = tmp_path / "changed.txt", tmp_path / "site"
    listed.write_text("leaderboard/significance.py\ntests/a.py\n", encoding="utf-8")
    its_own = Path(shutil.copytree(change, tmp_path / "its_own"))
    build(its_own, site, tables=True)
    shutil.copy(its_own / "README.md", site)
    cli.diff(base, change, site, only_new=True, changed_files=listed)
    replace(site / "data" / "leaderboard.csv", r"(?m)^(,digits,200,caption,0\.4,,CRCL,)", r"2\1")
    message = (
        r"the code of the change \(leaderboard/significance\.py and 1 other files\) moves 1 rows, such as CRCL, "
        r".* `digits/crcl/.*maintainers label a correction"
    )
    with pytest.raises(SubmissionError, match=message):
        cli.diff(base, change, site, only_new=True, changed_files=listed)
    cli.diff(base, change, site, changed_files=listed)  # with the label
    assert "touches code: `leaderboard/significance.py`, `tests/a.py`" in capsys.readouterr().out
