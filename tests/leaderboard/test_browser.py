"""The site in a real browser: skipped where Playwright or Chromium is absent, present in continuous integration."""

import os
import shutil

import pytest

from leaderboard.build import build
from leaderboard.measured_tables import measured_pages, measured_tables
from leaderboard.site import site_files

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

BOARD = "#flickr30k-1k-caption-40"
TABLE = "section.board:not([hidden])"
ROWS = "section.board:not([hidden]) tbody tr:not(.category):not([hidden])"
LOW_CONTRAST = """() => {
  const channels = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map((text) => {
    const value = Number(text) / 255;
    return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  const luminance = (colour) => {
    const [r, g, b] = channels(colour);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    const colour = getComputedStyle(element).backgroundColor;
    return colour === "rgba(0, 0, 0, 0)" && element.parentElement ? ground(element.parentElement) : colour;
  };
  const found = {};
  for (const element of document.querySelectorAll("p, a, small, .badge, td, th, h1, h2, summary, label, dd")) {
    if (!element.offsetParent || !element.textContent.trim()) continue;
    const colours = [getComputedStyle(element).color, ground(element)];
    const [light, dark] = colours.map(luminance).sort((x, y) => y - x);
    const ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < 4.5) found[`${element.tagName}.${element.className} ${element.textContent.trim()}`] = ratio;
  }
  return found;
}"""
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


@pytest.fixture(scope="module")
def site(small_board, tmp_path_factory):
    root = tmp_path_factory.mktemp("browsed")
    shutil.copytree(small_board / "results", root / "results")
    build(root, root / "site")
    return root / "site"


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, timeout=60_000)
        yield browser
        browser.close()


@pytest.fixture
def page(browser, site):
    """A page that fails the test on a console error, an exception, or a request that leaves the site's folder."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    problems = []
    page.on(
        "console",
        lambda message: problems.append(message.text) if message.type in ("error", "warning") else None,
    )
    page.on("pageerror", lambda error: problems.append(str(error)))
    inside = site.as_uri()
    page.on(
        "request",
        lambda request: None if request.url.startswith((inside, "data:")) else problems.append(request.url),
    )
    yield page
    context.close()
    assert problems == []


def open_page(page, site, name="index.html", fragment=""):
    page.goto("about:blank")
    page.goto((site / name).as_uri() + fragment)


def table_of(page):
    return page.locator(TABLE).get_attribute("id")


def column(page, number):
    """First line of a column's cells, in the first group that is shown."""
    body = page.locator("section.board:not([hidden]) tbody:not([hidden])").first
    return [
        row.locator("th, td").nth(number).inner_text().split("\n")[0]
        for row in body.locator("tr:not(.category):not([hidden])").all()
    ]


def test_one_table_is_shown_first_and_answers_the_usual_question(page, site):
    open_page(page, site)
    shown = page.locator("section.board:not([hidden])")
    assert shown.count() == 1
    assert shown.get_attribute("id") == BOARD[1:]
    answer = shown.locator(".answer").nth(1)
    assert "Reproduce CRCL-SGRAF, 505.2" in answer.locator("summary").inner_text()
    assert not answer.locator(".command").is_visible()
    answer.locator("summary").click()
    assert "reported in CRCL, NeurIPS 2023" in answer.inner_text()
    assert "We have reproduced no row of this group" in answer.inner_text()
    assert "ncl-bench train crcl/flickr30k_sgr --noise-ratio 0.4 --noise-unit caption" in answer.inner_text()
    assert shown.locator("a[href='submit.html']").is_visible()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height", "top"), [(1280, 800, 350), (390, 844, 600)])
def test_the_first_screen_holds_the_navigation_and_the_table(page, site, width, height, top):
    page.set_viewport_size({"width": width, "height": height})
    for name in ("datasets/flickr30k.html", "index.html"):
        open_page(page, site, name)
        assert page.locator("table:visible").first.bounding_box()["y"] < top, name
    assert page.locator("p.wide:visible").count() == (width == 390)  # the table scrolls sideways
    rows = [row.bounding_box() for row in page.locator(ROWS).all()[:3]]
    assert all(row["y"] + row["height"] <= height for row in rows)
    links = [link.bounding_box() for link in page.locator(".topbar nav a").all()]
    assert len(links) == 10
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= width and box["y"] < 150 for box in links)


@pytest.mark.slow
def test_a_laptop_shows_the_pickers_in_one_line_and_a_method_in_six_screens(page, site):
    page.set_viewport_size({"width": 1280, "height": 800})
    open_page(page, site)
    controls = [one.bounding_box() for one in page.locator(".pickers > *").all() if one.is_visible()]
    assert len(controls) == 7
    middles = [box["y"] + box["height"] / 2 for box in controls]
    assert max(middles) - min(middles) < 5
    for path in sorted((site / "methods").glob("*.html")):
        open_page(page, site, f"methods/{path.name}")
        assert page.evaluate("document.documentElement.scrollHeight") < 6 * 800, path.name


def test_sorting_by_a_press_by_the_keyboard_and_back(page, site):
    open_page(page, site)
    groups = column(page, 1), page.locator("section.board:not([hidden]) .category:visible").count()
    head = page.locator(f"{TABLE} th[data-sort=t2i_r1]")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    values = [float(value) for value in column(page, 6) if value != "–"]
    assert values == sorted(values, reverse=True)
    assert len(column(page, 6)) == page.locator(ROWS).count()  # rows of all groups stand in one list
    assert page.locator(ROWS).first.locator(".group").is_visible()
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    values = [float(value) for value in column(page, 6) if value != "–"]
    assert values == sorted(values)
    page.locator(f"{TABLE} th[data-sort=method] button").click()
    initials = [name[0].lower() for name in column(page, 1)]
    assert initials == sorted(initials)
    assert page.locator("section.board:not([hidden]) th[aria-sort]").count() == 1
    page.locator(f"{TABLE} th[data-sort=rank] button").click()
    assert (column(page, 1), page.locator("section.board:not([hidden]) .category:visible").count()) == groups
    assert page.locator(".group:visible").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("column_name", ["rank", "r_sum", "method"])
def test_a_preliminary_row_stays_below_whatever_the_rows_are_sorted_by(page, site, column_name):
    open_page(page, site, fragment="#flickr30k-1k-caption-40&sort=r_sum:desc")
    page.locator(ROWS).first.evaluate("row => { row.dataset.preliminary = '' }")
    page.locator(f"{TABLE} th[data-sort={column_name}] button").click()
    is_last = page.locator(ROWS).evaluate_all(
        "rows => { const low = rows.find((row) => 'preliminary' in row.dataset);"
        " const rest = rows.filter((row) => row.parentElement === low.parentElement);"
        " return rest.at(-1) === low }"
    )
    assert is_last


@pytest.mark.slow
def test_rows_without_a_value_stay_last(page, site):
    open_page(page, site, fragment="#coco-5k-none-0&sort=i2t_r5:asc")
    missing = [value == "–" for value in column(page, 4)]
    assert any(missing)
    assert missing == sorted(missing)


@pytest.mark.slow
def test_filters_and_search_hide_rows_and_empty_groups(page, site):
    open_page(page, site)
    every = page.locator(ROWS).count()
    assert not page.locator(".found").is_visible()
    page.locator("[name=q]").fill("crcl sgr")
    found = page.locator(ROWS)
    assert 0 < found.count() < every
    assert all("crcl" in row.inner_text().lower() for row in found.all())
    assert page.locator(".found output").inner_text() == f"{found.count()} of {every} rows match."
    page.locator("[name=q]").fill("")
    page.locator("[name=networks]").select_option("ensemble")
    titles = page.locator("section.board:not([hidden]) tbody:not([hidden]) .category").all_inner_texts()
    assert "Region features, several networks averaged" in titles
    assert "Region features, single network" not in titles


@pytest.mark.slow
def test_search_reads_method_paper_and_backbone_and_no_remark(page, site):
    open_page(page, site)
    for word, cells in (("crcl", "th > a, td.source > a"), ("sgraf", "th > a, th > .soft")):
        page.locator("[name=q]").fill(word)
        rows = page.locator(ROWS).all()
        assert rows
        for row in rows:
            assert any(word in one.inner_text().lower() for one in row.locator(cells).all())
    page.locator("[name=q]").fill("reproducible")  # of a note
    assert page.locator(ROWS).count() == 0


def test_a_search_finds_rows_of_all_tables_and_leads_to_them(page, site):
    open_page(page, site)
    assert not page.locator(".elsewhere").is_visible()
    page.locator("[name=q]").fill("crcl sgraf")
    links = page.locator(".elsewhere a")
    n = links.count()
    assert n > 5
    assert page.locator(".elsewhere summary").inner_text() == f"{n} rows of other tables match:"
    assert all("crcl" in row.inner_text().lower() for row in page.locator(".elsewhere li").all())
    assert len({link.get_attribute("href") for link in links.all()}) == n
    chosen = page.locator(".elsewhere li", has_text="Flickr30K, 1K test, 60 % caption noise").first
    label, sum_ = chosen.locator("a").inner_text().rsplit(", ", 1)
    chosen.locator("a").click()
    assert table_of(page) == "flickr30k-1k-caption-60"
    row = page.locator("tr:target")
    assert label.split()[0] in row.inner_text()
    assert sum_ in row.inner_text()
    box = row.bounding_box()
    assert 0 < box["y"] < 900 - box["height"]
    assert page.locator("[name=q]").input_value() == ""
    page.go_back()
    assert page.locator(".elsewhere a").count() == n
    page.locator("[name=q]").fill("")
    assert not page.locator(".elsewhere").is_visible()


def test_a_link_to_a_measured_row_opens_its_table_at_the_row(page, site):
    open_page(page, site)
    place = page.locator("tr[id^=digits-]").last.get_attribute("id")
    open_page(page, site, fragment=f"#{place}")
    assert table_of(page) == place.partition(".")[0]
    box = page.locator("tr:target").bounding_box()
    assert 0 < box["y"] < 900


@pytest.mark.slow
def test_nothing_found_says_so_and_offers_all_rows(page, site):
    open_page(page, site)
    every = page.locator(ROWS).count()
    page.locator("[name=status]").select_option("submitted")
    assert page.locator(ROWS).count() == 0
    assert page.locator(".found output").inner_text() == "No row of this table matches."
    page.locator(".found button").click()
    assert page.locator(ROWS).count() == every
    assert not page.locator(".found").is_visible()


@pytest.mark.slow
def test_doubtful_rows_can_be_left_out(page, site):
    open_page(page, site, fragment="#flickr30k-1k-none-0")
    assert page.locator(f"{ROWS} .badge.doubtful").count() > 0
    page.locator("[name=trusted]").check()
    assert page.locator(f"{ROWS} .badge.doubtful").count() == 0
    assert page.locator(ROWS).count() > 0


@pytest.mark.slow
def test_a_view_is_a_link_and_a_link_is_a_view(page, site):
    open_page(page, site)
    page.locator("[name=line]").select_option("digits-200")
    assert page.locator(".noise:visible").input_value() == "digits-200-caption-40"  # the same noise
    page.locator("[name=q]").fill("triplet")
    page.locator(f"{TABLE} th[data-sort=r_sum] button").click()
    address = page.url
    assert address.endswith("#digits-200-caption-40&q=triplet&sort=r_sum%3Adesc")
    open_page(page, site, fragment="#" + address.split("#")[1])
    assert table_of(page) == "digits-200-caption-40"
    assert page.locator("[name=q]").input_value() == "triplet"
    assert page.locator(ROWS).count() == 1
    assert page.locator(ROWS).locator("th .badge").inner_text() == "preliminary"
    assert page.locator(ROWS).locator("td .badge").inner_text() == "submitted"
    head = page.locator(f"{TABLE} th[data-sort=r_sum]")
    assert head.get_attribute("aria-sort") == "descending"
    assert page.locator(".noise:visible").input_value() == "digits-200-caption-40"


@pytest.mark.slow
def test_back_returns_to_the_table_before(page, site):
    open_page(page, site)
    page.locator("[name=line]").select_option("coco-5k")
    page.locator(".noise:visible").select_option("coco-5k-caption-20")
    assert table_of(page) == "coco-5k-caption-20"
    page.go_back()
    assert table_of(page) == "coco-5k-caption-40"
    page.go_back()
    assert table_of(page) == BOARD[1:]


@pytest.mark.parametrize(
    ("fragment", "missing"),
    [
        ("#nowhere", "nowhere"),
        ("#flickr30k-1k-caption-41", "flickr30k-1k-caption-41"),
        ("#%", "%"),
        ("#flickr30k-1k-caption-40&sort=__proto__:asc&q=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", ""),
    ],
)
def test_a_bad_address_says_so_and_does_no_harm(page, site, fragment, missing):
    open_page(page, site, fragment=fragment)
    assert table_of(page) == BOARD[1:]
    assert page.locator("img").count() == 0
    said = page.locator(".missing")
    assert said.is_visible() == bool(missing)
    if missing:
        assert f"There is no table “{missing}”." in said.inner_text()
        page.locator(".noise:visible").select_option("flickr30k-1k-image-40")
        assert not said.is_visible()


@pytest.mark.slow
def test_the_link_that_skips_to_the_content_keeps_the_table(page, site):
    open_page(page, site, fragment="#coco-5k-caption-20")
    page.evaluate("location.hash = '#main'")
    page.wait_for_function("location.hash === '#main'")
    assert table_of(page) == "coco-5k-caption-20"
    assert not page.locator(".missing").is_visible()


@pytest.mark.slow
def test_the_theme_is_that_of_the_system_until_it_is_switched_and_kept(browser, site):
    background = "getComputedStyle(document.body).backgroundColor"
    shown = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}
    for scheme, colour in shown.items():
        context = browser.new_context(color_scheme=scheme)
        view = context.new_page()
        open_page(view, site)
        assert view.evaluate(background) == colour
        view.locator(".theme").click()
        view.reload()
        assert {view.evaluate(background)} == set(shown.values()) - {colour}
        context.close()


@pytest.mark.slow
def test_without_script_every_row_is_there(browser, site):
    context = browser.new_context(java_script_enabled=False)
    view = context.new_page()
    view.goto((site / "index.html").as_uri())
    assert view.locator("section.board").count() > 40
    assert view.locator("section.board").first.is_visible()
    assert view.locator("section.board").last.is_visible()
    assert not view.locator(".pickers").is_visible()
    assert view.locator("noscript a, .columns a").count() > 40
    context.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "index.html",
        "methods/ncr.html",
        "methods/crcl.html",
        "datasets/digits.html",
        "submit.html",
        "downloads.html",
    ],
)
def test_no_page_is_wider_than_a_phone(page, site, name):
    page.set_viewport_size({"width": 390, "height": 800})
    open_page(page, site, name)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.slow
def test_text_has_contrast_in_both_themes(page, site):
    """WCAG AA, 4.5 to 1, for body text, muted text, links and badges on their background."""
    for _ in range(2):
        open_page(page, site, fragment="#flickr30k-1k-none-0")
        assert page.evaluate(LOW_CONTRAST) == {}
        page.locator(".theme").click()


@pytest.mark.slow
def test_the_column_of_a_noise_chooses_whose_ranks_are_shown(page, whole_board, site):
    files = site_files(whole_board, measured_pages(whole_board, measured_tables(whole_board)), site)
    (site / "whole").mkdir()
    for name in ("measured.html", "site.css", "site.js"):
        (site / "whole" / name).write_text(files[name], "utf-8")
    open_page(page, site, "whole/measured.html")
    table = page.locator("table.measured").first
    heads = table.locator("th[data-noise]")
    assert heads.count() == 4
    for number in range(heads.count()):
        heads.nth(number).locator("button").click()
        noise = heads.nth(number).get_attribute("data-noise")
        assert table.locator("th[aria-sort]").get_attribute("data-noise") == noise
        shown = table.locator("span[data-noise]:not([hidden])")
        assert {one.get_attribute("data-noise") for one in shown.all()} == {noise}
        for body in table.locator("tbody").all():
            cells = [row.locator("td").nth(1 + number) for row in body.locator("tr:not(.category)").all()]
            known = [cell.get_attribute("data-v") for cell in cells]
            assert known == sorted(known, key=lambda value: value is None), "rows without the noise are last"
