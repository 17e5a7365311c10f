"""How often the test of the leaderboard separates two rows, as the pages say."""

from pages import ROOT, blocks_of

PROTOCOL = ROOT / "docs" / "protocol.md"


def test_the_power_of_the_test_is_what_the_pages_say(capsys):
    blocks = blocks_of(PROTOCOL)
    at = next(n for n, block in enumerate(blocks) if "def separated(" in block.text)
    exec(blocks[at].text, {})
    assert capsys.readouterr().out == blocks[at + 1].text
    (_, eight, twenty), _, (lone, _) = (
        [100 * float(share) for share in line.rsplit(": ")[1].split()]
        for line in blocks[at + 1].text.splitlines()
    )
    text = " ".join(PROTOCOL.read_text("utf-8").split())
    assert f"a difference of 8 points in about {round(eight, -1):.0f} %" in text
    assert f"20 points in about {round(twenty, -1):.0f} %" in text
    assert f"falsely in about {lone:.0f} %" in text
