"""From a user's pairs to the wrong ones: every form of input goes through the whole command."""

import json
import logging
import os
import shutil
from dataclasses import replace
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
from PIL import Image, features
from support.audit_page import data_of
from support.command import invoke
from support.drawings import describe, tiny_encoder
from support.refusals import refused

import baselines.audit.judge
from baselines.audit import find_wrong_pairs
from baselines.audit.call import find_wrong_embeddings
from baselines.audit.find import ANOTHER_ORDER
from baselines.audit.order import OrderFault
from baselines.audit.sentences import MINILM
from ncl_bench.data.pairs.columns import read_pairs
from ncl_bench.data.pictures import PICTURE_FORMATS
from ncl_bench.errors import DataError, TrainingError
from ncl_bench.files import write_text
from ncl_bench.tables import as_csv as as_csv_text

N = 60
MOVED = 6


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A tiny network in place of the encoder."""
    monkeypatch.setattr("baselines.encoders.load_encoder", lambda *_: tiny_encoder())
    monkeypatch.setattr("baselines.audit.judge.FEWEST_FOR_SHARE", 50)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    describe(folder, N)
    return folder


@pytest.fixture
def given(drawn, tmp_path):
    """A folder of a user's own: ``photos`` with N pictures, and ``rows.json`` with name and caption of each."""
    shutil.copytree(drawn / "photos", tmp_path / "photos")
    return tmp_path


def rows_of(given):
    names = sorted(each.name for each in (given / "photos").iterdir())
    return [(name, f"picture {number} shows a thing") for number, name in enumerate(names)]


def frame_of(given, caption="caption"):
    return pd.DataFrame(rows_of(given), columns=["image", caption])


def page_of(audit):
    return (audit / "index.html").read_text("utf-8")


def cards_of(audit):
    """The pairs on the page."""
    return data_of(audit)["cards"]


def labels_of(audit, given):
    """The file that the page would download: row, from 0, to its label and the caption that fits."""
    lines = [("version", "pair_id", "image_id", "picture", "caption", "label", "correction")]
    cards = {card["number"] - 1: card for card in cards_of(audit)}
    for row, label in given.items():
        card = cards[row]
        lines.append((2, row + 1, card["image"], card["hash"], card["caption"], *label))
    write_text(audit.with_name("labels.csv"), as_csv_text(lines))
    return audit.with_name("labels.csv")


def command(*arguments):
    return invoke("audit", *arguments).stdout


def as_csv(given):
    pd.DataFrame(rows_of(given), columns=["file_name", "text"]).assign(more="=1+1").to_csv(
        given / "captions.csv", index=False
    )
    return [given / "captions.csv", "--images", given / "photos"]


def as_tsv(given):
    lines = [
        "number\tpath\ttitle",
        *(f"{n}\tphotos/{name}\t{text}" for n, (name, text) in enumerate(rows_of(given))),
    ]
    (given / "captions.tsv").write_text("\n".join(lines))
    return [given / "captions.tsv"]


def as_urls(given):
    rows = rows_of(given)
    for number, (name, _) in enumerate(rows):
        (given / "photos" / name).rename(given / "photos" / f"{number:09d}.png")
    lines = [f"{text}\thttps://example.org/{n}.png\n" for n, (_, text) in enumerate(rows)]
    (given / "urls.tsv").write_text("".join(lines))
    return [given / "urls.tsv", "--images", given / "photos"]


def test_options_may_come_first_and_the_result_may_be_json(given):
    said = command("--strict", "--json", "--to", given / "audit", *as_tsv(given))
    assert json.loads(said) == json.loads((given / "audit" / "result.json").read_text())
    assert "captions do not fit" in command("--to", given / "audit", given / "captions.tsv")


def test_a_frame_and_a_dataset_keep_rows_and_columns(given):
    frame = frame_of(given).assign(rank="mine", at=range(N))
    frame = pd.concat(
        [frame, frame.iloc[:25].assign(caption="another view")]
    )  # uneven numbers, an index of its own
    table = find_wrong_pairs(frame, images=given / "photos")
    assert table[["image", "caption", "rank", "at"]].equals(frame)
    assert sorted(table["audit_rank"]) == list(range(1, len(frame) + 1))
    assert table.attrs["summary"]["n_pictures"] == N
    rows = {"image": [Image.open(given / "photos" / name) for name, _ in rows_of(given)]}
    found = datasets.Dataset.from_dict(rows | {"caption": [text for _, text in rows_of(given)]})
    assert len(find_wrong_pairs(found)) == N


def test_embeddings_need_no_pictures(tmp_path):
    random = np.random.default_rng(0)
    images = random.standard_normal((N, 16)).astype(np.float32)
    captions = images + 0.3 * random.standard_normal((N, 16)).astype(np.float32)
    captions[:MOVED] = captions[:MOVED][::-1]
    np.save(tmp_path / "a.npy", images)
    np.save(tmp_path / "b.npy", captions)
    said = command(
        "--image-embeddings",
        tmp_path / "a.npy",
        "--caption-embeddings",
        tmp_path / "b.npy",
        "--to",
        tmp_path / "audit",
    )
    assert "captions do not fit" in said
    table = pd.read_csv(tmp_path / "audit" / "pairs.csv")
    assert set(table["rank"].nsmallest(MOVED).index) == set(range(MOVED))
    assert (
        find_wrong_pairs(image_embeddings=images, caption_embeddings=captions)["rank"].tolist()
        == table["rank"].tolist()
    )


def in_parts(folder, sizes, n, write):
    """Files of parts that are named by these numbers."""
    folder.mkdir()
    stops = np.cumsum([*sizes.values()]) * n // sum(sizes.values())
    for number, start, stop in zip(sizes, [0, *stops], stops, strict=False):
        write(folder / f"{folder.name}_{number}", slice(start, stop))
    return folder


TWELVE = dict.fromkeys(range(12), 5)


@pytest.mark.parametrize(
    ("images", "metadata", "is_told"),
    [
        (TWELVE, TWELVE, False),
        (TWELVE, {0: 20, 1: 40}, False),
        (TWELVE, TWELVE | {3: 6, 9: 4}, True),
        (TWELVE, {**dict.fromkeys(range(11), 5), 12: 5}, True),
        ({0: 20, 1: 40}, {0: 40, 1: 20}, True),
    ],
)
def test_parts_of_embeddings_belong_to_the_parts_of_the_table(images, metadata, is_told, tmp_path):
    random = np.random.default_rng(0)
    sides = {"images": random.standard_normal((N, 16)), "texts": None}
    sides["texts"] = sides["images"] + 0.3 * random.standard_normal((N, 16))
    sides["texts"][:MOVED] = sides["texts"][:MOVED][::-1]
    for name, side in sides.items():
        in_parts(tmp_path / name, images, N, lambda path, rows, side=side: np.save(f"{path}.npy", side[rows]))
    rows = pd.DataFrame(
        {"image_path": [f"{n}.png" for n in range(N)], "caption": [f"a {n}" for n in range(N)]}
    )
    in_parts(tmp_path / "metadata", metadata, N, lambda path, part: rows[part].to_parquet(f"{path}.parquet"))
    given = [tmp_path / name for name in ("images", "texts", "metadata")]
    if is_told:
        with refused(DataError):
            find_wrong_embeddings(*given)
    else:
        table = find_wrong_embeddings(*given)
        assert table["caption"].tolist() == rows["caption"].tolist()
        assert table["rank"].tolist() == find_wrong_embeddings(*sides.values())["rank"].tolist()
        assert set(table["rank"].nsmallest(MOVED).index) == set(range(MOVED))


@pytest.mark.parametrize(("rows", "remarks"), [(slice(None, None, -1), 1), (slice(None), 0)])
def test_captions_in_another_order_are_said_to_be_so(rows, remarks):
    random = np.random.default_rng(0)
    images = random.standard_normal((400, 16)).astype(np.float32)
    captions = images + 0.3 * random.standard_normal(images.shape).astype(np.float32)
    table = find_wrong_pairs(image_embeddings=images, caption_embeddings=captions[rows])
    assert table.attrs["summary"]["remarks"].count(ANOTHER_ORDER) == remarks


@pytest.mark.parametrize("encoder", [MINILM, "no_such_model"])
def test_an_encoder_that_cannot_be_loaded_is_refused_before_a_picture_is_encoded(
    given, monkeypatch, caplog, encoder
):
    def unknown(package):
        logging.getLogger("huggingface_hub").warning("Retrying in 8s [Retry 5/5].")
        raise OSError("unknown")

    read = []
    monkeypatch.setattr("baselines.features.extract", lambda *_, **__: read.append(1))
    monkeypatch.setattr("baselines.audit.sentences.PACKAGE", "no_such_package")
    monkeypatch.setattr("baselines.audit.sentences.import_beside", unknown)
    monkeypatch.setattr("ncl_bench.extras.find_spec", lambda name: name != "no_such_package" or None)
    with refused():
        command(*as_csv(given), "--to", given / "audit", "--text-encoder", encoder)
    assert not [*read, *caplog.records]
    assert not (given / "audit").exists()


def test_what_cannot_be_judged_is_left_out_and_listed(given):
    rows = rows_of(given)
    (given / "photos" / rows[0][0]).write_bytes(b"no picture")
    (given / "photos" / rows[1][0]).unlink()
    shutil.copy(given / "photos" / rows[3][0], given / "photos" / rows[2][0])
    rows[4] = (rows[4][0], " ")
    rows[5] = (rows[5][0], "一个红色的圆形")
    frame = pd.DataFrame(rows, columns=["image", "caption"])
    table = find_wrong_pairs(frame, images=given / "photos", to=given / "audit")
    known = ", ".join(each for each in PICTURE_FORMATS if each != "AVIF" or features.check("avif"))
    assert table["left_out"][:7].tolist() == [
        f"the picture is not an image of a known format ({known})",
        "no picture of this name",
        "",
        "",
        "the caption is empty",
        "a caption in Chinese or Japanese among others",
        "",
    ]
    assert table["rank"].isna().sum() == 4
    summary = table.attrs["summary"]
    assert (summary["n_judged"], summary["doubled"], sum(summary["left_out"].values())) == (N - 4, 1, 4)
    page = page_of(given / "audit")
    assert f"{rows[3][0]} = {rows[2][0]}" in page
    assert f"row 2 ({rows[1][0]})" in page
    with refused(DataError):
        find_wrong_pairs(frame, images=given / "photos", strict=True)
    with refused(DataError):
        find_wrong_pairs(pd.concat([frame[:1], frame[6:]]), images=given / "photos", strict=True)
    with refused(DataError):
        find_wrong_pairs(pd.concat([frame[2:4], frame[6:]]), images=given / "photos", strict=True)


def test_labels_move_rows_between_the_lists_and_the_work_is_not_done_again(given, monkeypatch):
    arguments = [*as_csv(given), "--to", given / "audit"]
    command(*arguments)
    table = pd.read_csv(given / "audit" / "pairs.csv")
    first, last = int(table["rank"].idxmin()), int(table["rank"].idxmax())
    labels = labels_of(given / "audit", {first: ("matches", ""), last: ("wrong", "")})

    def refuse(*_):
        raise AssertionError("pictures are encoded again")

    monkeypatch.setattr("baselines.features._encode_chunk", refuse)
    command(*arguments, "--labels", labels)
    suspects = pd.read_csv(given / "audit" / "suspects.csv")["file_name"].tolist()
    assert table["file_name"][last] in suspects
    assert table["file_name"][first] not in suspects
    again = pd.read_csv(given / "audit" / "pairs.csv")
    assert (again["rank"][last], again["rank"][first]) == (1, N)
    assert (again["probability"][last], again["probability"][first]) == (1, 0)
    assert [card["label"] for card in cards_of(given / "audit") if card["label"]] == ["wrong", "matches"]


def test_a_label_follows_its_picture_and_its_caption(given):
    """Rows change places; a caption that is labelled keeps its label, whatever row it stands in."""
    rows = rows_of(given)
    rows = [*rows, (rows[0][0], "a second caption of the first picture")]
    frame = pd.DataFrame(rows, columns=["image", "caption"])
    find_wrong_pairs(frame, images=given / "photos", to=given / "audit")
    labels = labels_of(given / "audit", {0: ("wrong", "=a formula")})
    moved = frame.iloc[::-1].reset_index(drop=True)
    table = find_wrong_pairs(moved, images=given / "photos", labels=labels)
    assert table.index[table["label"] == "wrong"].tolist() == [N]
    assert table["correction"][N] == "=a formula"
    changed = frame.assign(caption=frame["caption"].str.replace("picture 0 ", "another thing "))
    with refused(DataError):
        find_wrong_pairs(changed, images=given / "photos", labels=labels)
    shutil.copy(given / "photos" / "007.png", given / "photos" / "000.png")
    with refused(DataError):
        find_wrong_pairs(frame, images=given / "photos", labels=labels)
    kept = pd.read_csv(labels, dtype=str, keep_default_na=False).assign(picture="1.23457E+15")
    kept.to_csv(labels, index=False)
    with refused(DataError):
        find_wrong_pairs(frame, images=given / "photos", labels=labels)


def test_pictures_in_the_rows_are_told_apart_by_their_content(given):
    rows = rows_of(given)
    cells = [{"bytes": (given / "photos" / name).read_bytes(), "path": None} for name, _ in rows]
    frame = pd.DataFrame({"image": cells, "caption": [f"thing {n // 2}" for n in range(N)]})
    find_wrong_pairs(frame, to=given / "audit")
    labels = labels_of(given / "audit", {1: ("wrong", "")})
    swapped = frame.iloc[[1, 0, *range(2, N)]].reset_index(drop=True)  # rows 0 and 1 have one caption
    table = find_wrong_pairs(swapped, labels=labels)
    assert table.index[table["label"] == "wrong"].tolist() == [0]


def test_flickr_lists_in_chinese_and_columns_of_two_languages_are_read(given):
    names = [name for name, _ in rows_of(given)]
    (given / "captions.txt").write_text("".join(f"{name}#zhc#0 第{name}张图\n" for name in names), "utf-8")
    frame = frame_of(given, "en").assign(zh="一个红色的圆形")
    frame.to_csv(given / "captions.csv", index=False, sep=";")
    for file, captions in (
        ("captions.txt", [f"第{name}张图" for name in names]),
        ("captions.csv", frame["en"].tolist()),
    ):
        found = read_pairs(given / file)
        assert (found.images, found.captions) == (names, captions)


def test_apply_writes_the_lists_of_own_pairs(given, monkeypatch):
    judge = baselines.audit.judge.judge_pairs
    monkeypatch.setattr(
        "baselines.audit.judge.judge_pairs",
        lambda *given, **options: replace(judge(*given, **options), share=0.1, low=0.05, high=0.2),
    )
    arguments = [*as_csv(given), "--to", given / "audit"]
    command(*arguments)
    said = command("apply", given / "audit", "--to", given / "kept")
    assert "removes 6 of 60 pairs (10.0%)" in said
    for name in ("clean.csv", "suspects.csv"):
        assert (given / "kept" / name).read_bytes() == (given / "audit" / name).read_bytes()
    command("apply", given / "audit", "--threshold", 9, "--to", given / "fewer")
    table = pd.read_csv(given / "audit" / "pairs.csv")
    rows = table["file_name"][table["rank"] <= 9].tolist()
    assert pd.read_csv(given / "fewer" / "suspects.csv")["file_name"].tolist() == rows
    labels = labels_of(given / "audit", {int(table["rank"].idxmin()): ("wrong", "it is this")})
    command(*arguments, "--labels", labels)
    command("apply", given / "audit", "--to", given / "corrected")
    assert "it is this" in (given / "corrected" / "corrected.csv").read_text()
    assert "it is this" not in (given / "corrected" / "clean.csv").read_text()
    to = "--to", given / "none"
    with refused():
        command("apply", given / "audit", "--threshold", 40, *to)
    with refused():
        command("apply", given / "audit", "--ids", labels, *to)
    with refused():
        command("apply", given / "audit", "--to", given / "kept")
    with refused():
        command(*to)
    pd.DataFrame(rows_of(given)[::-1], columns=["file_name", "text"]).to_csv(
        given / "captions.csv", index=False
    )
    with refused():
        command("apply", given / "audit", *to)
    find_wrong_pairs(frame_of(given, "text"), images=given / "photos", to=given / "b")
    with refused():
        command("apply", given / "b", *to)
    assert not (given / "none").exists()


def test_causes_shifted_rows_and_too_few_pairs_are_said_first(given, monkeypatch):
    """Rows 11 to 20 carry the caption of the row before, and row 10 that of row 20."""
    judge = baselines.audit.judge.judge_pairs

    def judged(*pairs, **options):
        found = judge(*pairs, **options)
        reason = np.full(N, "", object)
        reason[[30, 31]], reason[40] = "repeated caption", "boilerplate"
        return replace(
            found,
            table=found.table.assign(reason=reason),
            share=np.nan,
            low=np.nan,
            high=np.nan,
            obtained=baselines.audit.judge.TOO_FEW,
            order_faults=(OrderFault(10, 19, -1),),
            unseen="Colours cannot be seen.",
        )

    monkeypatch.setattr("baselines.audit.judge.judge_pairs", judged)
    frame = frame_of(given)
    right = frame["caption"].tolist()
    frame.loc[9:19, "caption"] = np.roll(right[9:20], 1)
    frame.to_csv(given / "captions.csv", index=False)
    said = command(given / "captions.csv", "--images", given / "photos", "--to", given / "audit")
    fault = "Rows 11 to 20 carry the caption of the row before."
    for sentence in (
        fault,
        "repeated caption: 2 pairs",
        "Fewer than 1,000 pairs are too few",
        "Colours cannot be seen.",
    ):
        assert sentence in said
    assert pd.read_csv(given / "audit" / "repaired.csv")["caption"].tolist() == right
    page = page_of(given / "audit")
    assert page.index(fault) < page.index("Fewer than 1,000 pairs are too few") < page.index("Look at these")
    groups = data_of(given / "audit")["groups"]
    assert [(each["title"], each["count"]) for each in groups] == [
        ("Suspects", 57),
        ("Repeated caption", 2),
        ("Boilerplate", 1),
        ("Fit best", 50),
    ]
    table = pd.read_csv(given / "audit" / "pairs.csv", keep_default_na=False)
    assert table["reason"][[29, 30, 31, 40]].tolist() == [
        "",
        "repeated caption",
        "repeated caption",
        "boilerplate",
    ]
    suspects = set(pd.read_csv(given / "audit" / "suspects.csv")["image"])
    assert {"030.png", "031.png", "040.png"} <= suspects
    assert 6 <= len(suspects) <= 9  # a tenth, and those with a cause


def test_embeddings_show_the_pictures_that_are_known(given):
    sides = np.random.default_rng(0).standard_normal((2, N, 8), np.float32)
    arrays = dict(zip(("image_embeddings", "caption_embeddings"), sides, strict=True))
    frame = frame_of(given)
    frame.to_csv(given / "captions.csv", index=False)
    find_wrong_pairs(given / "captions.csv", images=given / "photos", to=given / "a", **arrays)
    assert page_of(given / "a").count("data:image/jpeg;base64,") == N
    find_wrong_pairs(frame, to=given / "b", **arrays)  # a frame has no folder
    assert "data:image/jpeg" not in page_of(given / "b")


@pytest.mark.parametrize(
    "arguments",
    [
        ["runs", "captions.csv"],
        ["runs", "photos"],
        ["a.npy", "a.npy"],
        ["captions.json"],
        ["./runs"],
        ["."],
        ["urls.tsv", "--images", "empty"],
        *(
            ["captions.csv", "--images", "photos", "--labels", labels]
            for labels in ("labels.csv", "old.csv", "other.csv")
        ),
    ],
)
def test_what_is_no_audit_of_pairs_is_told_the_right_form(arguments, given, monkeypatch):
    monkeypatch.chdir(given)
    as_csv(given)
    np.save("a.npy", np.ones((N, 4), np.float32))
    if "urls.tsv" in arguments:
        as_urls(given)
        Path("empty").mkdir()
    Path("labels.csv").write_text("row,label\n1,wrong\n")
    Path("old.csv").write_text("version,image_id,caption,label\n1,a,b,wrong\n")
    Path("other.csv").write_text("version,image_id,caption,label\n2,a,b,right\n")
    with refused():
        command(*arguments, "--to", "to")
    assert not Path("to").exists()


@pytest.mark.parametrize(
    ("frame", "options"),
    [
        (lambda f: f.rename(columns={"caption": "words"}), {}),
        (lambda f: f, {"caption_column": "alt"}),
        (lambda f: f[:10], {}),
        (lambda f: f.assign(caption="a dog"), {}),
        (lambda f: f.assign(image="images/a" + f["image"]), {}),
        (lambda f: f.assign(caption=[["a"]] * N), {}),
        (lambda f: f.assign(image=None), {}),
        (lambda f: f[:0], {}),
    ],
)
def test_a_table_that_cannot_be_judged_is_refused(given, frame, options):
    rows = frame_of(given)
    with refused():
        find_wrong_pairs(frame(rows), images=given / "photos", to=given / "audit", **options)
    assert not (given / "audit").exists()


def test_names_are_found_in_subfolders_if_they_are_unique(given):
    frame = frame_of(given)
    (given / "photos" / "a").mkdir()
    for name in frame["image"][:30]:
        (given / "photos" / name).rename(given / "photos" / "a" / name)
    table = find_wrong_pairs(frame.assign(image="images/" + frame["image"]), images=given / "photos")
    assert "found by the name of their file alone" in " ".join(table.attrs["summary"]["remarks"])
    (given / "photos" / "b").mkdir()
    shutil.copy(given / "photos" / "050.png", given / "photos" / "b" / "000.png")
    with refused(DataError):
        find_wrong_pairs(frame, images=given / "photos")
    doubled = frame.assign(image=[f"{'xy'[n % 2]}/{30 + n // 2:03}.png" for n in range(N)])
    with refused(DataError):
        find_wrong_pairs(doubled, images=given / "photos")


def test_a_folder_of_another_audit_or_of_something_else_is_left_alone(given):
    frame = frame_of(given)
    find_wrong_pairs(frame, images=given / "photos", to=given / "audit")
    with refused(TrainingError):
        find_wrong_pairs(frame[:55], images=given / "photos", to=given / "audit")
    with refused():
        find_wrong_pairs(frame, images=given / "photos", to=given / "photos")


def test_a_folder_without_rights(given, monkeypatch):
    walk = os.walk

    def refuse(folder, **given):
        if str(folder).endswith("photos"):
            raise PermissionError(13, "Permission denied", folder)
        return walk(folder, **given)

    frame = frame_of(given)
    frame["image"] = "elsewhere/" + frame["image"]
    monkeypatch.setattr("ncl_bench.data.pairs.listing.os.walk", refuse)
    with refused(DataError):
        find_wrong_pairs(frame, images=given / "photos")


def test_columns_of_the_user_are_not_taken_for_those_of_the_audit(given):
    frame = frame_of(given, "text")
    frame = frame.assign(rank=0, audit_rank=1, audit_suspect="no", audit_left_out="x", correction="other")
    frame.to_csv(given / "captions.csv", index=False)
    table = find_wrong_pairs(given / "captions.csv", images=given / "photos", to=given / "audit")
    assert table.columns.is_unique
    assert table.attrs["summary"]["chosen_by"] == "audit_audit_rank"
    first = table.index[table["audit_audit_rank"] == 1]
    command("apply", given / "audit", "--threshold", 1, "--to", given / "kept")
    assert pd.read_csv(given / "kept" / "suspects.csv")["image"].tolist() == frame["image"][first].tolist()
    assert not (given / "kept" / "corrected.csv").exists()


@pytest.mark.parametrize(
    "index",
    [
        pd.MultiIndex.from_product([["a", "b"], range(N // 2)]),
        pd.date_range("2020-01-01", periods=N, tz="Europe/Berlin"),
    ],
)
def test_rows_keep_the_index_that_they_came_with(given, index):
    frame = pd.DataFrame(rows_of(given), columns=["image", "text"], index=index).sample(
        frac=1, random_state=1
    )
    table = find_wrong_pairs(frame, images=given / "photos")
    assert table.index.equals(frame.index)
    assert table["image"].tolist() == frame["image"].tolist()
