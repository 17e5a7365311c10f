"""Pages whose content the published rows alone do not show."""

import html
import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from leaderboard.board import compared, merge_seeds
from leaderboard.entries import Condition, Entry
from leaderboard.measured_tables import measured_pages, measured_tables
from leaderboard.site import site_files
from ncl_bench.evaluation.metrics import RECALLS
from ncl_bench.evaluation.people import Agreement, agreement_interval

CARDS = Path(__file__).parents[2] / "dataset_cards"


def ours(paper, shift, seed, **changes):
    """A measured row of the paper's cell, every recall higher by ``shift``."""
    recalls = {name: value + shift for name, value in paper.recalls.values.items() if value is not None}
    content = paper.model_dump() | {
        "recalls": recalls,
        "printed_r_sum": None,
        "status": "reproduced",
        "source": "submission",
        "seeds": (seed,),
        "file": "flickr30k/ours/x",
        "runs": (str(seed),),
        **changes,
    }
    return Entry.model_validate(content)


def method_page(content, added, family):
    """Text of the cells of "Paper against this repository", row by row, joined by bars."""
    page = site_files(with_rows(content, added), {}, CARDS)
    table = re.search(r"Paper against this repository</h2>(.*?)</main>", page[f"methods/{family}.html"], re.S)
    lines = re.findall(r"<tr><th scope=\"row\">(.*?)</tr>", table[1], re.S)
    cells = (re.split(r"</t[hd]>", line) for line in lines)
    return ["|".join(html.unescape(re.sub(r"<[^>]+>", "", cell)).strip() for cell in line) for line in cells]


def with_rows(content, added):
    seeds = (*content.seeds, *added)
    return replace(content, seeds=seeds, rows=compared(seeds, {})[0])


def first(content, fits):
    """The first printed row that fits."""
    return next(entry for entry in content.seeds if fits(entry))


def test_the_paper_stands_beside_our_mean_with_the_gap_and_its_cause(printed):
    paper = first(printed, lambda e: e.source == "ncr2021" and e.family == "ncr" and e.condition.noise_ratio)
    assert all(getattr(paper.recalls, name) is not None for name in RECALLS)
    notes = ("Trained for half as many epochs.",)
    higher, lower = ours(paper, -1.0, 0, notes=notes), ours(paper, -2.0, 1, notes=notes)
    other_backbone = ours(paper, -3.0, 0, backbone="other", file="flickr30k/ours/other")
    (line,) = method_page(printed, [higher, lower, other_backbone], "ncr")
    title, _, in_print, here, gap, cause, _ = line.split("|")
    assert title == paper.condition.title
    assert float(in_print) == round(paper.r_sum or 0.0, 1)
    mean, spread = map(float, here.split("±"))
    assert abs(mean - (float(in_print) - 9.0)) < 0.11
    assert spread == 4.2  # 6 recalls, one apart: sqrt(2) * 3
    assert (gap, cause) == ("-9.0", notes[0])


def test_a_gap_names_what_the_two_rows_do_differently(printed):
    chosen = first(printed, lambda e: (e.source, e.selection, e.kind) == ("pc2_2024", "test", "method"))
    (line,) = method_page(printed, [ours(chosen, -1.0, 0, selection="dev", notes=())], "pc2")
    assert "The printed checkpoint was chosen on the test split." in line
    moved = first(printed, lambda e: e.source == "rcl2023" and e.family == "rcl" and e.noise)
    lines = method_page(printed, [ours(moved, -1.0, 0, noise="our draw, seed 0", notes=())], "rcl")
    told = "Different noise: printed published image files, ours our draw, seed 0."
    assert any(told in line for line in lines)


def test_a_board_has_a_column_of_eccv_caption_where_a_row_has_it(printed):
    paper = first(printed, lambda e: e.condition.protocol == "5k" and e.recalls.r_sum and e.kind == "method")
    sides = ({"i2t_map_at_r": 20.0, "t2i_map_at_r": 30.0}, {"i2t_map_at_r": 22.0, "t2i_map_at_r": 31.0})
    measured = [ours(paper, -1.0 - seed, seed, eccv=values) for seed, values in enumerate(sides)]
    (merged,) = merge_seeds(measured)
    assert merged.eccv == {"i2t_map_at_r": 21.0, "t2i_map_at_r": 30.5}
    assert merge_seeds([measured[0], ours(paper, -2.0, 1)])[0].eccv == {}
    page = site_files(with_rows(printed, measured), {}, CARDS)["index.html"]
    tables = re.findall(r"<table class=\"board\">.*?</table>", page, re.S)
    with_it = [table for table in tables if "ECCV mAP@R" in table]
    assert 0 < len(with_it) < len(tables)
    assert with_it[0].count("21.0 / 30.5") == 1
    for table in tables:
        body = re.findall(r"<tr class=\"(?:muted)?\" data-status.*?</tr>", table, re.S)
        columns = 14 if table in with_it else 13
        assert {len(re.findall(r"<t[hd][ >]", row)) for row in body} == {columns}


def test_every_method_page_links_to_its_paper_and_never_to_a_forge_instead(printed):
    pages = site_files(printed, measured_pages(printed, measured_tables(printed)), CARDS)
    methods = {path: text for path, text in pages.items() if re.fullmatch(r"methods/(?!index).*", path)}
    found = {path: re.findall(r'<a href="(https://[^"]+)">Paper</a>', text) for path, text in methods.items()}
    assert {path for path, links in found.items() if not links} <= {
        f"methods/{name}.html"
        for name in ("cmcan", "dcl", "dsdmr", "gsl", "ucpm")  # whose address we do not know
    }
    assert not [link for links in found.values() for link in links if "github" in link]
    assert all("<cite>" in text for text in methods.values())


def test_the_first_page_says_which_datasets_have_rows_of_papers_alone(printed):
    line = "No result on Flickr30K, MS-COCO, CC152K or Noise of Web was trained by this project"
    assert line in site_files(printed, {}, CARDS)["index.html"]
    mine = ours(next(entry for entry in printed.seeds if entry.condition.dataset == "coco"), -1.0, 0)
    assert line.replace("MS-COCO, ", "") in site_files(with_rows(printed, [mine]), {}, CARDS)["index.html"]


def judged(printed, agreements, drawn):
    """The page People with a row of three seeds per method, of whom ``drawn`` have evidence of images and captions."""
    paper = first(printed, lambda entry: entry.r_sum and not entry.doubts)
    condition = Condition(dataset="flickr8k", protocol="1k", noise_unit="caption", noise_ratio=0.4)
    added, known = [], {}
    for method, tau in agreements.items():
        for seed in range(3):
            people = {"expert_tau_c": tau, "expert_auroc": 0.9, "crowd_tau_b": 29.0, "crowd_auroc": 0.8}
            facts = {"file": f"flickr8k/{method}", "method": method, "condition": condition, "people": people}
            added.append(ours(paper, 0.0, seed, **facts))
            if method in drawn:
                known[f"flickr8k/{method}", str(seed)] = drawn[method]
    seeds = (*printed.seeds, *added)
    rows, test = compared(seeds, {}, known)
    return site_files(replace(printed, seeds=seeds, rows=rows, significantly_different=test), {}, CARDS)[
        "people.html"
    ]


def agreement(value, of_pairs):
    """Two pairs share an image, two share a caption."""
    a, b, c, d = of_pairs
    return Agreement(value, np.array(of_pairs), np.array([a + b, c + d]), np.array([a + c, b, d]))


def test_a_rank_of_agreement_counts_the_rows_that_agree_significantly_more(printed):
    hard = [1.0, -0.6, 0.5, -0.9]  # the same pairs are hard for all
    drawn = {
        "A": agreement(52.0, hard),
        "B": agreement(51.0, [1.1, -0.5, 0.4, -1.0]),
        "C": agreement(40.0, hard),
    }
    page = judged(printed, {"A": 52.0, "B": 51.0, "C": 40.0}, drawn)
    rows = re.findall(r"<tr><th scope=\"row\"><a [^>]*>([A-C])</a>.*?</tr>", page, re.S)
    assert rows == ["A", "B", "C"]
    ranks = re.findall(r"</td><td class=\"n\">(\d|–)</td><td class=\"n\">90.0", page)
    assert ranks == ["1", "1", "3"]
    assert "<b>+12.0</b>" in page
    assert "Differences of tau-c between 3 rows" in page
    low, high = agreement_interval([drawn["A"]] * 3)
    assert f"<small>{low:.1f}–{high:.1f}</small>" in page


def test_without_evidence_of_images_and_captions_the_page_says_so(printed):
    for known in ({}, {"A": agreement(52.0, [1.0, -0.6, 0.5, -0.9])}):
        page = judged(printed, {"A": 52.0, "B": 51.0}, known)
        assert "There are no ranks, because the evidence of other rows does not say" in page
        assert ">Rank</th>" not in page
        assert "Differences of tau-c" not in page
        assert page.count("<small>") >= len(known)
