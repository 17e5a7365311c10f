"""What the documents say is so."""

import re
import shlex
import tomllib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from pages import PAGES, ROOT, blocks_of, commands_of
from typer.main import get_command
from typer.testing import CliRunner

import leaderboard
from baselines.engine.printed import PUBLISHED
from baselines.recipes.ablation import ablations
from leaderboard.board import read_content
from ncl_bench import DATASETS, PROTOCOL_VERSION, __version__, evaluate
from ncl_bench.cli import app
from ncl_bench.evaluation.protocol import expected_shape, selection_images
from ncl_bench.noise.draw import clean_pairing, inject_noise

DOCS = ROOT / "docs"
LEADERBOARD = ROOT / "leaderboard"


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def test_guessing_scores_what_the_quickstart_says() -> None:
    stated = int(re.search(r"about (\d+) is guessing", text("docs/quickstart.md"))[1])
    random = np.random.default_rng(0)
    sums = [evaluate(random.random((200, 1000)), dataset="digits", intervals=False).r_sum for _ in range(200)]
    assert abs(np.mean(sums) - stated) < 0.5


def test_the_table_of_datasets_is_the_protocol() -> None:
    for spec in DATASETS.values():
        sizes = " / ".join(f"{spec.images[split]:,}" for split in ("train", "dev", "test"))
        assert f"| `{spec.name}` | {sizes} | {spec.captions_per_image} | {spec.noise} |" in text("README.md")


def test_the_first_output_of_the_readme_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example, shown = (
        next(block.text for block in blocks_of(ROOT / "README.md") if block.language == language)
        for language in ("python", "text")
    )
    monkeypatch.chdir(tmp_path)
    exec(example, {})
    command = ["evaluate", "my_scores.npy", "--dataset", "flickr30k"]
    printed = CliRunner(env={"COLUMNS": "100"}).invoke(app, command)
    assert shown.split() == printed.output.split("to turn it into")[0].split()


def test_the_table_of_the_readme_is_the_top_of_the_board() -> None:
    content = read_content(LEADERBOARD, published=True)
    for unit in ("caption", "image"):
        board = next(b for b in content.boards if b.cell.slug == f"flickr30k-1k-{unit}-40")
        division = next(division for division in board.divisions if division.key == "ensemble")
        best = [ranked for ranked in division.ranked if ranked.rank is not None][:3]
        rows = [
            f"| by {unit} | {one.rank} | {one.entry.label} | {one.entry.backbone} | {one.entry.r_sum:.1f} "
            f"| {content.papers[one.entry.source].short} |"
            for one in best
        ]
        assert "\n".join(rows) in text("README.md")


def test_the_protocol_page_is_the_protocol() -> None:
    page = text("docs/protocol.md")
    assert page.startswith(f"# Protocol, version {PROTOCOL_VERSION}\n")
    rows = dict(re.findall(r"^\| `([\w-]+)` \| ([\w, -]+) \|", page, re.MULTILINE))
    for spec in DATASETS.values():
        assert all(spec.name in rows[protocol].split(", ") for protocol in spec.protocols)
    assert f"first {selection_images(DATASETS['coco']):,} images" in page


def test_the_sizes_of_the_matrices_are_those_of_the_datasets() -> None:
    page = text("docs/evaluate.md")
    rows = re.findall(r"^\| (`[\w-]+`(?:, `[\w-]+`)*) \| ([\d,]+ x .+) \|$", page, re.MULTILINE)
    stated = {}
    for names, sizes in rows:
        shapes = re.findall(r"([\d,]+) x ([\d,]*\d)", sizes)
        found = [(int(n.replace(",", "")), int(m.replace(",", ""))) for n, m in shapes]
        named = re.findall(r"`([\w-]+)`", names)
        stated |= dict(zip(named, found if len(found) == len(named) else found * len(named), strict=True))
    assert stated == {spec.name: expected_shape(spec, "test") for spec in DATASETS.values()}
    assert f"the {DATASETS['coco'].all_captions['test']:,} that COCO has" in page


def test_the_two_units_differ_as_the_noise_page_says() -> None:
    rows = pd.read_csv(PUBLISHED / "results.csv")
    cell = rows.query("dataset == 'flickr30k' and method == 'NCR' and noise_ratio == 0.6")
    page = text("docs/noise.md").split("## Near misses")[0]
    for unit in ("caption", "image"):
        printed = set(cell[cell.noise_unit == unit].r_sum)
        stated = {float(x) for x in re.findall(r"\b\d{3}\.\d\b", page)}
        assert len(stated) == 2
        assert printed & stated
    clean = clean_pairing(29_000, 5)
    for unit, low, high in (("caption", 0.98, 1.0), ("image", 0.59, 0.61)):
        moved = inject_noise(clean, noise_ratio=0.4, noise_unit=unit, seed=0, captions_per_image=5)
        assert low < np.mean((moved == clean).reshape(-1, 5).any(axis=1)) < high


def test_the_near_misses_of_the_noise_page_are_these(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = [block for block in blocks_of(DOCS / "noise.md") if block.language in ("python", "text")]
    shown = [(one.text, two.text) for one, two in pairwise(blocks) if two.language == "text"]
    assert len(shown) == 3
    for example, printed in shown:
        exec(example, {})
        assert capsys.readouterr().out == printed


@pytest.mark.parametrize(("ratio", "most"), [(0.4, 69), (0.6, 65)])
def test_near_misses_hide_pairs_and_treat_the_oracle_as_the_noise_page_says(ratio: float, most: int) -> None:
    rows = leaderboard.load_results().query(
        f"noise_ratio == {ratio} and budget == 600 and dataset == 'pictograms'"
    )
    near = rows[rows.noise_unit == "similar"]
    found = near.curves.map(lambda curves: [100 * one.auroc[-1] for one in curves if one.auroc])
    assert found.explode().groupby(near.method).mean().max() < most
    oracle, same_loss = "Triplet (warm-up, hardest) (clean pairs only)", "Triplet (warm-up, hardest)"
    tuned = rows[rows.recipe == "tuned"]
    assert tuned[tuned.noise_unit == "caption"].groupby("method").r_sum.mean().idxmax() == oracle
    mean = near.groupby("method").r_sum.mean()
    assert (mean.idxmin() == oracle) == (mean[oracle] < mean[same_loss]) == (ratio == 0.6)


def test_tuning_gains_what_the_noise_page_says() -> None:
    rows = leaderboard.load_results().query("method == 'SPS' and dataset == 'pictograms' and budget == 600")
    mean = rows.pivot_table("r_sum", ["noise_unit", "noise_ratio"], "recipe")
    gain = mean.tuned - mean.default
    assert gain["caption"].between(7, 9).all()
    assert gain["similar"].between(-3, -2).all()


def test_the_ablations_on_the_board_are_as_the_page_of_measured_tables_says() -> None:
    rows = leaderboard.load_results().query("dataset == 'pictograms' and budget == 600")
    found = rows[rows.ablation.map(len) > 0].groupby("ablation").r_sum.agg(["mean", "count"])
    wanted = {(name, row.title) for name, table in ablations().items() for row in table.rows}
    assert wanted <= set(found.index)
    assert found.loc[sorted(wanted), "count"].min() >= 3
    mean = {title: value for (_, title), value in found["mean"].items() if title != "full"}
    full_ncr = found.loc[[("ablation_ncr", "full")], "mean"].item()
    assert mean["without co-divide"] >= full_ncr
    assert min(mean["P-Cls"], mean["P-Cls + CR"]) >= mean["P-Cls + P-Cap + CR (full)"]
    assert mean["L_r, q = 0"] >= mean["L_r with SCC"]


def test_own_images_take_fourteen_commands() -> None:
    blocks = [block for block in blocks_of(DOCS / "my-own-images.md") if block.language == "bash"]
    assert "in fourteen commands" in text("docs/my-own-images.md")
    assert sum(len(commands_of(block.text)) for block in blocks) == 14


def test_the_example_of_a_method_is_short() -> None:
    files = {block.words[0]: block.text for block in blocks_of(DOCS / "add-a-method.md") if block.words}
    assert len(files["trimmed.py"].splitlines()) <= 40


def mentioned(page: Path) -> list[list[str]]:
    """Every ncl-bench command of a page: in blocks, run or not, and within sentences."""
    lines = [line for b in blocks_of(page) if b.language == "bash" for line in commands_of(b.text)]
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    lines += [" ".join(line.split()) for line in re.findall(r"`([^`]+)`", prose)]
    return [shlex.split(line)[1:] for line in lines if line.startswith("ncl-bench ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_command_and_option_that_is_mentioned_exists(page: Path) -> None:
    for words in mentioned(page):
        command = get_command(app)
        while words[:1] == ["--plugin"]:
            words = words[2:]
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        # `audit RUN` is short for `audit runs RUN`
        command = getattr(command, "commands", {}).get("runs", command)
        assert command.name != "ncl-bench" or words[0] == "--version", words
        known = {option for one in command.params for option in one.opts + one.secondary_opts}
        assert {word for word in words if word.startswith("--")} <= known, words


def test_the_table_of_licences_is_that_of_the_datasets() -> None:
    table = text("docs/data.md").split("## Licences")[1]
    for spec in DATASETS.values():
        rows = [row for row in table.splitlines() if f"`{spec.name}`" in row]
        assert [row.endswith(f"| {spec.origin.licence} |") for row in rows] == [True]


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load(text("CITATION.cff"))
    project = tomllib.loads(text("pyproject.toml"))["project"]
    assert citation["version"] == __version__
    assert citation["license"] == project["license"]
    assert [author["name"] for author in citation["authors"]] == [one["name"] for one in project["authors"]]
    assert f"title = {{{citation['title']}}}".replace("ncl_bench:", r"ncl\_bench:") in text("README.md")
