"""Headers of recipes: up to date, as printed, and nothing but comments."""

import csv
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from baselines.published.recipe_headers import (
    PUBLISHED,
    RECIPES,
    header,
    main,
    outdated,
    published_rows,
    with_header,
)
from leaderboard.methods import base_name, read_families
from leaderboard.published import read_papers, read_published
from ncl_bench.errors import RecipeError

SHIPPED = sorted(RECIPES.rglob("*.yaml"))


def content_of(method: str, dataset: str = "flickr30k", backbone: str = "sgr", **more: Any) -> dict[str, Any]:
    return {"dataset": dataset, "backbone": {"name": backbone}, "method": {"name": method}, **more}


def published(folder: Path, *rows: dict[str, str]) -> Path:
    """A folder of published numbers with these rows."""
    facts = {
        "table": "Table 1",
        "protocol": "1k",
        "noise_unit": "caption",
        "noise_ratio": "0.2",
        "tokenizer": "",
    }
    recalls = dict.fromkeys(("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10"), "10.1")
    full = [
        {**facts, **recalls, "dataset": "flickr30k", "backbone": "SGR", "r_sum": "", **row} for row in rows
    ]
    with (folder / "results.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, full[0])
        writer.writeheader()
        writer.writerows(full)
    sources = {
        "ncr2021": {"short": "NCR, NeurIPS 2021", "method": "ncr", "code": "https://ncr.example"},
        "other": {"short": "Other", "method": "x", "code": "https://other.example"},
    }
    (folder / "sources.yaml").write_text(yaml.safe_dump(sources))
    return folder


def test_shipped_headers_are_up_to_date() -> None:
    assert len(SHIPPED) > 60
    assert outdated() == {}
    assert main(["--check"]) == 0


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_shipped_recipe_opens_with_what_it_is_and_its_own_command(path: Path) -> None:
    name = f"{path.parent.name}/{path.stem}"
    comments = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert path.read_text(encoding="utf-8").startswith(comments[0])
    assert any(line.startswith(f"# ncl-bench train {name} ") for line in comments[1:])


def test_recipes_named_otherwise_keep_their_comments(tmp_path: Path) -> None:
    (tmp_path / "ncr").mkdir()
    text = "# mine\ndataset: digits\nbackbone: {name: sgr}\nmethod: {name: ncr}\n"
    (tmp_path / "ncr" / "special.yaml").write_text(text)
    assert outdated(tmp_path) == {}


def test_header_of_a_real_cell_shows_the_printed_numbers() -> None:
    """NCR, Table 1: Flickr30K at 20 %."""
    lines = header("ncr/flickr30k_sgr", content_of("ncr"), published_rows()).splitlines()
    line = next(line for line in lines if "captions 20 %" in line)
    assert line.split()[5:] == [
        *("75.0", "93.9", "97.5", "58.3", "83.0", "89.0", "496.7"),
        "NCR,",
        "NeurIPS",
        "2021;",
        "Table",
        "1",
    ]


def test_own_paper_comes_before_others_and_unknown_units_are_left_out(tmp_path: Path) -> None:
    folder = published(
        tmp_path,
        {"source": "other", "method": "NCR", "i2t_r1": "50.0"},
        {"source": "ncr2021", "method": "NCR", "i2t_r1": "60.0"},
        {"source": "other", "method": "NCR", "noise_ratio": "0.4", "i2t_r1": "40.0"},
        {"source": "other", "method": "NCR", "noise_unit": "unknown", "noise_ratio": "0.6", "i2t_r1": "30.0"},
        {"source": "other", "method": "NCR", "backbone": "SAF", "noise_ratio": "0.8", "i2t_r1": "20.0"},
    )
    text = header("ncr/flickr30k_sgr", content_of("ncr"), published_rows(folder))
    assert [number in text for number in ("60.0", "40.0", "50.0", "30.0", "20.0")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_sum_is_as_printed_or_added_up_and_missing_numbers_are_dashes(tmp_path: Path) -> None:
    folder = published(
        tmp_path,
        {"source": "ncr2021", "method": "NCR", "noise_ratio": "0.2"},
        {"source": "ncr2021", "method": "NCR", "noise_ratio": "0.4", "r_sum": "61.5"},
        {"source": "ncr2021", "method": "NCR", "noise_ratio": "0.6", "i2t_r5": ""},
    )
    lines = header("ncr/flickr30k_sgr", content_of("ncr"), published_rows(folder)).splitlines()[-3:]
    assert [line.split()[11] for line in lines] == ["60.6", "61.5", "-"]
    assert "-" in lines[2].split()[5:11]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("triplet/flickr30k_sgr", content_of("triplet"), "results of SGR:"),
        ("triplet/flickr30k_sgr_warmup", content_of("triplet"), "results of SGR*:"),
        ("triplet/flickr30k_saf_clean", content_of("triplet", backbone="saf"), "results of SAF-C:"),
        ("crcl/coco_vse_infinity", content_of("crcl", "coco", "vse_infinity"), "results of CRCL-VSE∞:"),
        ("crcl/coco_sgr", content_of("crcl", "coco"), "Averaged with crcl/coco_saf, as CRCL-SGRAF:"),
        ("gsc_plus/cc152k_sgr", content_of("gsc_plus", "cc152k"), "results of GSC-SGR:"),
        ("pc2/now_sgr_bert", content_of("pc2", "now", tokenizer="bert"), "poster, NoW with bert"),
        ("info_nce/flickr30k_sgr", content_of("info_nce"), "No published result."),
        ("triplet/x_sgr", content_of("triplet", clean_only=True), "truly clean pairs alone"),
    ],
)
def test_each_recipe_is_compared_with_the_rows_of_its_name(name: str, content: dict, expected: str) -> None:
    assert expected in header(name, content, published_rows())


def test_commands_take_the_noise_of_the_published_rows() -> None:
    rows = published_rows()
    image = header("rcl/flickr30k_sgr", content_of("rcl"), rows)
    caption = header("ncr/flickr30k_sgr", content_of("ncr"), rows)
    natural = header("ncr/cc152k_sgr", content_of("ncr", "cc152k"), rows)
    assert "--noise-file FILE --noise-unit image --to runs/rcl-flickr30k_sgr" in image
    assert "--noise-ratio 0.2 --noise-unit caption --to runs/ncr-flickr30k_sgr" in caption
    assert "ncl-bench train ncr/cc152k_sgr --to runs/ncr-cc152k_sgr" in natural


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_rows_on_images_name_the_files_that_no_seed_draws(path: Path) -> None:
    """The files of DECL and RCL; an image-unit noise that is drawn is another one."""
    comments = [line[2:] for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert not any("--noise-ratio" in line and "--noise-unit image" in line for line in comments)
    text = " ".join(comments)
    on_images = re.search(r", images \d+ %", text) is not None
    assert on_images == ("give one with --noise-file FILE --noise-unit image." in text)
    assert on_images == ("Alone, --noise-unit image draws another noise" in text)


def test_the_files_are_those_of_the_papers_that_printed_the_rows(tmp_path: Path) -> None:
    by_image = {"noise_unit": "image", "method": "NCR"}
    folder = published(
        tmp_path,
        {"source": "ncr2021", "noise_ratio": "0.2", **by_image},
        {"source": "other", "noise_ratio": "0.4", **by_image},
    )
    text = header("ncr/flickr30k_sgr", content_of("ncr"), published_rows(folder))
    assert "files of https://ncr.example and https://other.example, which" in text.replace("\n# ", " ")


@pytest.mark.parametrize("backbone", ["sgr", "saf"])
def test_an_undocumented_schedule_is_called_so(backbone: str) -> None:
    said = "documents no schedule for CC152K"
    assert said in (RECIPES / "rcl" / f"cc152k_{backbone}.yaml").read_text(encoding="utf-8")
    assert said not in (RECIPES / "rcl" / f"flickr30k_{backbone}.yaml").read_text(encoding="utf-8")


def test_digits_recipes_get_their_command_alone() -> None:
    assert header(
        "ncr/digits_vse_infinity", content_of("ncr", "digits", "vse_infinity"), []
    ).splitlines() == [
        "# NCR on the embedded digits with a small VSE-infinity: minutes on a CPU.",
        "# ncl-bench train ncr/digits_vse_infinity --noise-ratio 0.6 --to runs/ncr",
    ]


def test_new_methods_and_backbones_go_by_their_own_names() -> None:
    text = header("x/coco_clip", content_of("x", "coco", "clip"), published_rows())
    assert text.splitlines()[0] == "# x: clip on MS-COCO."
    assert "No published result." in text


def test_unknown_datasets_are_refused() -> None:
    with pytest.raises(RecipeError, match="x/y: unknown dataset 'mnist'"):
        header("x/y", content_of("ncr", "mnist"), [])


def test_headers_replace_comments_on_top_and_nothing_else() -> None:
    text = "# old\n\n#\na: 1\n# kept\nb: 2\n"
    once = with_header(text, "# new\n# lines")
    assert once == "# new\n# lines\na: 1\n# kept\nb: 2\n"
    assert with_header(once, "# new\n# lines") == once


def test_stale_headers_are_named_then_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipes = tmp_path / "recipes"
    shutil.copytree(RECIPES / "ncr", recipes / "ncr")
    stale = recipes / "ncr" / "coco_sgr.yaml"
    good = stale.read_text(encoding="utf-8")
    stale.write_text(good.replace("77.7", "99.9"), encoding="utf-8")
    monkeypatch.setattr("baselines.published.recipe_headers.outdated", lambda: outdated(recipes))
    assert main(["--check"]) == 1
    assert "coco_sgr.yaml: header is out of date" in capsys.readouterr().out
    assert stale.read_text(encoding="utf-8") != good
    assert main([]) == 0
    assert stale.read_text(encoding="utf-8") == good
    assert main(["--check"]) == 0


def test_missing_numbers_are_said_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("baselines.published.recipe_headers.outdated", lambda: outdated(published=tmp_path))
    assert main(["--check"]) == 2
    assert "sources.yaml is missing" in capsys.readouterr().err
    assert PUBLISHED.is_dir()


def test_the_page_on_reproduction_names_the_rows_that_have_a_recipe() -> None:
    page = (RECIPES.parents[1] / "docs" / "reproduce.md").read_text(encoding="utf-8").replace("\\*", "*")
    table = dict(re.findall(r"^\| (\w+) \| (.+) \|$", page, re.MULTILINE))
    del table["paper"]
    families, sources = read_families(), read_papers()
    implemented = {
        key: family.title.split(",")[0]
        for key, family in families.items()
        if family.source and (RECIPES / (family.recipes or "-")).is_dir()
    }
    assert set(table) == set(implemented.values())
    without: set[str] = set()
    for key, paper in implemented.items():
        rows = [row for row in read_published(families) if sources[row.source].method == key]
        assert table[paper].split(", ") == sorted({row.method for row in rows if row.command})
        known = [row for row in rows if row.cell.noise_unit != "unknown" and families[row.family].recipes]
        without |= {row.method for row in known if not row.command}
    ablations = {name for name in without if base_name(name) != name}
    assert ablations
    excepted = page.split("Without one are", 1)[1].split("\n\n")[0]
    assert without - ablations == set(re.findall(r"\b[A-Z0-9]+(?:[-+][\w∞]+)+", excepted))
