"""The page of an audit in a real browser: skipped where Playwright or Chromium is absent."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from baselines.audit import find_wrong_pairs
from baselines.audit.judge import Judged

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

N = 400
CARD = ".gallery > li"


def judged(*_, **__):
    """Too low a share: of the first 100 pairs 80 are wrong, and the second view knows them better."""
    random = np.random.default_rng(0)
    wrong = np.arange(N) < 80
    first, second = random.normal(-2.0 * wrong, 1), random.normal(-3.0 * wrong, 1)
    score = -(first + second) / 2
    table = pd.DataFrame({"score": score, "probability": 1 / (1 + np.exp(3 - 1.5 * score))})
    table = table.assign(similarity=first, lemon=second, reason="")
    table.loc[390:, "reason"] = "boilerplate"
    return Judged(table, 0.1, 0.05, 0.15, "By hand.", random.integers(0, N, (N, 3)))


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audited")
    (folder / "photos").mkdir()
    Image.new("RGB", (30, 20), "red").save(folder / "photos" / "0.png")
    names = [f"{row}.png" for row in range(N)]
    captions = [f"</script><b>thing {row}" if row % 2 else f"=thing, {row}" for row in range(N)]
    pd.DataFrame({"image": names, "caption": captions}).to_csv(folder / "captions.csv", index=False)
    images, texts = np.random.default_rng(0).standard_normal((2, N, 4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("baselines.audit.judge.judge_embeddings", judged)
        made = {
            "pairs": folder / "captions.csv",
            "images": folder / "photos",
            "image_embeddings": images,
            "caption_embeddings": texts,
            "to": folder / "audit",
        }
        find_wrong_pairs(**made)
        yield made


@pytest.fixture(scope="module")
def context():
    arguments = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments, timeout=60_000)
        yield browser.new_context(viewport={"width": 1280, "height": 900})
        browser.close()


@pytest.fixture
def page(context, given):
    """The page without ticks; the test fails on an error in the console and on a request to anywhere else."""
    page, problems = context.new_page(), []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on(
        "request", lambda r: None if r.url.startswith(("file:", "data:", "blob:")) else problems.append(r.url)
    )
    page.goto((Path(str(given["to"])) / "index.html").as_uri())
    page.evaluate("localStorage.clear()")
    page.reload()
    yield page
    page.close()
    assert problems == []


def press(page, keys):
    for key in keys:
        page.keyboard.press(key)


def shown(page):
    return tuple(page.locator(place).inner_text() for place in ("#answer", "#range", "#says"))


def rows(page):
    return [
        int(each) for each in page.locator(CARD).evaluate_all("all => all.map(one => one.dataset.number)")
    ]


def tick(page, n, n_wrong=80):
    """Look at the first ``n`` cards, of which the first ``n_wrong`` pairs are wrong; return estimate and range."""
    page.evaluate(f"""() => {{
      for (let done = 0; done < {n}; done++) {{
        const key = cards[group.cards[group.here]].number <= {n_wrong} ? "w" : "f";
        document.dispatchEvent(new KeyboardEvent("keydown", {{ key }}));
      }}
    }}""")
    words = " ".join(shown(page))
    return tuple(map(int, re.search(r"About (\d+) .* between (\d+) and (\d+)", words).groups()))


def test_a_hundred_ticks_survive_a_reload_and_correct_the_audit(page):
    assert shown(page) == (
        "About 49 of 400 captions do not fit their picture",
        "Probably between 30 and 106 (7.5 to 26.5 %).",
        "0 looked at: 0 wrong, 0 fit.",
    )
    estimate, low, high = tick(page, 100)
    before, order = shown(page), rows(page)
    assert before[2].startswith("100 looked at: ")
    page.reload()
    assert shown(page) == before
    assert rows(page) == order
    assert abs(estimate - 90) < 20  # 49 before; ten are named by a rule
    assert low <= 90 <= high


@pytest.mark.parametrize(("n", "wrong"), [(5, 80), (30, 0), (60, N), (100, 80)])
def test_page_and_command_weigh_the_same_ticks_alike(page, given, tmp_path, n, wrong):
    estimate, low, high = tick(page, n, wrong)
    order, n_wrong = rows(page), int(re.search(r"(\d+) wrong", shown(page)[2])[1])
    with page.expect_download() as download:
        page.locator("#export").click()
    labels = tmp_path / "labels.csv"
    download.value.save_as(labels)
    table = find_wrong_pairs(**given | {"to": tmp_path / "again"}, labels=labels)
    found = table.attrs["summary"]
    assert (found["wrong"], found["low"], found["high"]) == (estimate, low, high)
    assert found["labels"]["wrong"] == n_wrong
    plain = (table["label"] == "") & (table["reason"] == "")
    open_rows = table[plain].sort_values("rank").index + 1
    start = next(place for place, row in enumerate(order) if row in set(open_rows))
    assert order[start:] == open_rows[: len(order) - start].tolist()
    card = page.locator(f'{CARD}[data-label=""]').first
    chance = table["probability"][int(card.get_attribute("data-number")) - 1]
    assert f"another picture's caption: {chance:.0%}".replace("%", " %") in card.inner_text()


def test_undo_takes_back_the_last_action_and_nothing_else(page):
    press(page, "wfu")
    labels = page.locator(CARD).evaluate_all("all => all.slice(0, 4).map(one => one.dataset.label)")
    assert labels == ["wrong", "matches", "cannot say", ""]
    press(page, "jjx")
    labels = page.locator(CARD).evaluate_all("all => all.slice(0, 4).map(one => one.dataset.label)")
    assert labels == ["wrong", "matches", "", ""]
    assert page.locator(f"{CARD}.here").get_attribute("data-number") == str(rows(page)[2])
    page.locator(CARD).nth(0).locator("button[value=wrong]").click()  # ticked off
    press(page, "x")
    page.locator(CARD).nth(3).get_by_text("Use this").first.click()
    better = (
        page.locator(CARD).nth(3).locator(".better li").first.inner_text().removesuffix("Use this").strip()
    )
    assert page.locator(CARD).nth(3).locator(".caption").inner_text() == better
    press(page, "xxxx")
    assert page.locator("#says").inner_text() == "0 looked at: 0 wrong, 0 fit."
    assert page.locator("#undo").is_disabled()


def test_groups_are_tabs_and_pages_follow_each_other(page):
    tabs = page.locator("[role=tab]")
    assert tabs.all_inner_texts() == ["Suspects (200)", "Boilerplate (10)", "Fit best (50)"]
    assert page.locator(CARD).count() == 50
    first = rows(page)
    page.get_by_text("Next 50").first.click()
    assert not set(rows(page)) & set(first)
    assert "51 to 100 of 200" in page.locator(".turn").first.inner_text()
    press(page, "k")  # the last pair of the first page
    assert rows(page) == first
    tabs.nth(1).click()
    assert set(rows(page)) == set(range(391, 401))
    assert page.locator("b").get_by_text("thing").count() == 0


def test_a_telephone_shows_a_list(page):
    page.set_viewport_size({"width": 390, "height": 844})
    height, width = page.evaluate("[document.body.scrollHeight, document.documentElement.scrollWidth]")
    assert height < 15_000
    assert width <= 390


def says(page, start):
    page.wait_for_function("start => document.querySelector('#says').innerText.startsWith(start)", arg=start)


def test_two_tabs_keep_each_others_ticks_and_a_caption_can_be_typed(page, context):
    other = context.new_page()
    other.goto(page.url)
    press(page, "w")
    says(other, "1 looked at")  # a browser tells the other tab when it gets to it
    press(other, "jf")
    says(page, "2 looked at")
    card = page.locator(CARD).nth(2)
    card.locator("input[type=text]").fill("two wet dogs")
    card.locator("input[type=text]").press("Enter")
    says(other, "3 looked at")
    for each in (page, other):
        each.reload()
        assert each.locator("#says").inner_text() == "3 looked at: 2 wrong, 1 fit."
    assert page.get_by_text("two wet dogs", exact=True).count() == 1
    other.close()


def test_the_focus_stays_on_the_card_and_controls_name_their_pair(page):
    press(page, "w")
    assert page.evaluate("document.activeElement.classList.contains('here')")
    assert page.locator("#slider").get_attribute("aria-label")
    button = page.locator(CARD).first.locator("button[value=wrong]")
    assert re.fullmatch(r"Wrong: row \d+", button.get_attribute("aria-label"))
