import xml.etree.ElementTree as ElementTree
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from leaderboard.figures import Curve, curves, ticks

SERIES = [
    Curve("A & <B>", ((0.0, 520.0, 0.0), (40.0, 500.0, 3.0))),
    Curve("quoted", ((20.0, 480.0, 0.0), (60.0, 470.0, 0.0)), solid=False),
]


def drawn(*series, title="T"):
    return ElementTree.fromstring(curves(series, title=title, x_title="x", y_title="y"))


def of_class(root, name):
    return [element for element in root.iter() if (element.get("class") or "").startswith(name)]


def circles(root):
    return [element for element in root.iter() if element.tag.endswith("circle")]


def test_a_figure_is_xml_with_a_name_for_screen_readers():
    root = drawn(*SERIES, title="T <1>")
    assert root.get("role") == "img"
    assert root.get("aria-label") == "T <1>"
    assert [element.text for element in root if element.tag.endswith("title")] == ["T <1>"]


def test_every_point_is_drawn_and_named_and_spread_has_a_whisker():
    root = drawn(*SERIES)
    assert [circle[0].text for circle in circles(root)] == [
        "A & <B>, 0 %: 520.0",
        "A & <B>, 40 %: 500.0",
        "quoted, 20 %: 480.0",
        "quoted, 60 %: 470.0",
    ]
    assert len(of_class(root, "whisker")) == 1
    heights = [float(circle.get("cy")) for circle in circles(root)]
    assert heights == sorted(heights)


def test_names_beside_curves_do_not_overlap():
    crowded = [Curve(f"c{n}", ((0.0, 500.0, 0.0), (10.0, 400.0 + n / 10, 0.0))) for n in range(8)]
    root = drawn(*crowded)
    groups = of_class(root, "curve")
    places = sorted(float(group[-1].get("y")) for group in groups)
    assert all(b - a >= 14.9 for a, b in pairwise(places))
    assert places[-1] <= 380


def test_a_long_name_fits_into_the_margin_and_is_whole_on_hover():
    name = "BiCro (tuned on pictograms, 1,600 steps)"
    (group,) = of_class(drawn(Curve(name, ((0.0, 1.0, 0.0), (1.0, 2.0, 0.0)))), "curve")
    assert group[-1].text == "BiCro (…rams, 1,600 steps)"
    assert group[-1][0].text == name


def test_an_axis_shows_how_the_best_differ_and_names_a_curve_that_leaves_it():
    """One collapsed curve stretched the axis over all 600 points."""
    steps = (0.0, 20.0, 40.0, 60.0)
    good = [Curve(f"good {n}", tuple((x, 500.0 - x - n, 0.0) for x in steps)) for n in range(4)]
    falling = zip(steps, (495.0, 490.0, 180.0, 20.0), strict=True)
    collapsed = Curve("collapsed", tuple((x, y, 0.0) for x, y in falling))
    root = drawn(*good, collapsed)
    groups = of_class(root, "curve")
    assert [group[-1].text for group in groups] == ["good 0", "good 1", "good 2", "good 3", "collapsed ↓"]
    heights = [float(circle.get("cy")) for circle in circles(groups[0])]
    assert heights[-1] - heights[0] > 100  # of 320: 60 points of rSum
    assert all(float(group[-1].get("y")) <= 372 for group in groups)


@given(st.floats(0, 600), st.floats(0, 600))
def test_ticks_enclose_the_values(a, b):
    low, high = sorted((a, b))
    found = ticks(low, high)
    assert found[0] <= low + 1e-9
    assert found[-1] >= high - 1e-9
    assert 2 <= len(found) <= 8
