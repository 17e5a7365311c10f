"""Files of users, and places that one process owns."""

import csv
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.refusals import refused

from ncl_bench.data.own_tables import read_images
from ncl_bench.data.vocabulary import load_vocabulary
from ncl_bench.errors import ScoresError
from ncl_bench.evaluation.results import read_result
from ncl_bench.evaluation.scores import as_array
from ncl_bench.files import Journal, atomic_folder, sole_owner, write_bytes, write_text
from ncl_bench.foreign import readable
from ncl_bench.tables import MARK, as_csv, csv_cell, from_csv_cell
from ncl_bench.yaml import read_yaml

torch = pytest.importorskip("torch")
LOCK = "import sys, pathlib, ncl_bench.files as f; f.sole_owner(pathlib.Path(sys.argv[1])).__enter__()"


def test_jobs_with_other_temporary_folders_do_not_share_a_run(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    with sole_owner(tmp_path / "run"):
        command = [sys.executable, "-c", LOCK, str(tmp_path / "run")]
        environment = os.environ | {"TMPDIR": str(other)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert "is in use by another ncl-bench process" in done.stderr
    assert list(tmp_path.iterdir()) == [other]


def test_a_place_that_cannot_be_locked_or_written_is_said(tmp_path):
    (tmp_path / "file").touch()
    with refused(), sole_owner(tmp_path / "file" / "folder"):
        pass
    with refused():  # nobody may, root included
        write_bytes(Path("/proc/noise.npy"), b"")


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_stays(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for owner in (dead.pid, os.getpid()):
        (tmp_path / f".result[1].json.{owner}.tmp").write_text("half")  # as version 1.0.0 named them
        (tmp_path / f".result[1].json.{owner}-12ab.tmp").write_text("half")
        (tmp_path / f".folder.{owner}-12ab.tmp").mkdir()
    mine = {f".result[1].json.{os.getpid()}.tmp", f".result[1].json.{os.getpid()}-12ab.tmp"}
    with sole_owner(tmp_path):
        assert {path.name for path in tmp_path.iterdir()} == {*mine, f".folder.{os.getpid()}-12ab.tmp"}
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("name", [".a.json.{pid}.tmp", ".a.json.{pid}-00ff.tmp"])
def test_a_link_where_a_temporary_file_would_lie_is_not_written_through(name, tmp_path, monkeypatch):
    victim, folder = tmp_path / "victim", tmp_path / "folder"
    victim.write_text("mine")
    folder.mkdir()
    (folder / name.format(pid=os.getpid())).symlink_to(victim)
    write_text(folder / "a.json", "{}")
    assert ((folder / "a.json").read_text(), victim.read_text()) == ("{}", "mine")
    monkeypatch.setattr("ncl_bench.files.secrets.token_hex", lambda _: "00ff")  # even if the name is guessed
    if name.endswith("-00ff.tmp"):
        with refused():
            write_text(folder / "a.json", "[]")
    assert ((folder / "a.json").read_text(), victim.read_text()) == ("{}", "mine")


def test_a_link_in_the_place_of_a_file_is_replaced(tmp_path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "a.json").symlink_to(tmp_path / "victim")
    write_text(tmp_path / "a.json", "{}")
    assert not (tmp_path / "a.json").is_symlink()
    assert (tmp_path / "victim").read_text() == "mine"


@pytest.mark.parametrize("target", ["outside", "outside/file", "../elsewhere", "missing"])
@pytest.mark.parametrize("place", ["link", "deep/er/link", ".link.tmp"])
def test_a_folder_with_a_link_out_of_it_is_not_opened_for_writing(place, target, tmp_path):
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    (folder / place).parent.mkdir(parents=True)
    outside.mkdir()
    for name in ("file", ".a.json.4194399.tmp"):  # the second one as if of a process that was killed
        (outside / name).write_text("mine")
    (folder / place).symlink_to(Path("..", "..", target) if target[0] == "." else tmp_path / target)
    with refused():
        sole_owner(folder).__enter__()
    assert sorted(path.name for path in outside.iterdir()) == [".a.json.4194399.tmp", "file"]
    assert not (tmp_path / ".folder.lock").exists()


def test_links_within_a_folder_and_to_the_folder_itself_are_followed(tmp_path):
    (tmp_path / "disk" / "a").mkdir(parents=True)
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    (tmp_path / "run" / "b").symlink_to("a")
    with sole_owner(tmp_path / "run"):
        write_text(tmp_path / "run" / "b" / "file", "x")
    assert (tmp_path / "disk" / "a" / "file").read_text() == "x"
    (tmp_path / "empty").mkdir()
    (tmp_path / "submission").symlink_to(tmp_path / "empty")
    with atomic_folder(tmp_path / "submission") as folder:
        write_text(folder / "file", "x")
    assert (tmp_path / "submission").is_symlink()
    assert (tmp_path / "empty" / "file").read_text() == "x"


def test_a_place_that_the_program_chose_must_lie_in_the_named_folder(tmp_path):
    for name in ("outside", "root"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside" / "journal.json").write_text("{}")
    (tmp_path / "root" / "plots").symlink_to(tmp_path / "outside")
    with refused():
        sole_owner(tmp_path / "root" / "plots", inside=tmp_path / "root").__enter__()
    with refused():
        Journal(tmp_path / "root" / "plots", "settings")
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["journal.json"]


def test_a_link_in_the_place_of_a_lock_is_refused(tmp_path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / ".run.lock").symlink_to(tmp_path / "victim")
    with refused():
        sole_owner(tmp_path / "run").__enter__()
    assert (tmp_path / "victim").read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such pipes")
def test_a_pipe_is_refused_and_not_opened(tmp_path):
    readers = {
        "a.npy": as_array,
        "a.pt": as_array,
        "a.yaml": read_yaml,
        "vocabulary.json": load_vocabulary,
        "result.json": lambda path: read_result(path.parent),
        "images.csv": read_images,
    }
    for name, read in readers.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        os.mkfifo(tmp_path / name)
        with refused():
            read(tmp_path / name)


def test_a_link_out_of_a_folder_is_refused_even_if_it_leads_nowhere(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").symlink_to(tmp_path / "elsewhere")
    with refused(ScoresError):
        readable(tmp_path / "folder" / "a", ScoresError, "scores", inside=tmp_path / "folder")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_name_that_is_no_utf_8_is_one_sentence(tmp_path):
    name = os.fsencode(tmp_path) + b"/\xff.safetensors"
    with open(name, "wb") as file:
        file.write(b"x")
    command = [sys.executable, "-m", "ncl_bench", "evaluate", name, "--dataset", "digits"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_lock_leaves_no_folder_where_nothing_was_written(tmp_path):
    with sole_owner(tmp_path / "deep" / "place"):
        pass
    assert list(tmp_path.iterdir()) == []
    with sole_owner(tmp_path / "deep" / "place"):
        (tmp_path / "deep" / "place").mkdir()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["place"]


@pytest.mark.parametrize(
    "text", ["=1+1", "+1+1", "-cmd", "@SUM(A1)", "\t=1", "\r=1", "'=1+1", "''@x", "＝1+1", "-", "+1 (555)"]
)
def test_a_spreadsheet_computes_no_text_and_the_reader_gets_it_back(text):
    (line,) = csv.reader(io.StringIO(as_csv([[text]]), newline=""))
    assert line == [f"{MARK}{text}"]
    assert MARK.startswith("'")
    assert from_csv_cell(line[0]) == from_csv_cell(f"'{text}") == text


@pytest.mark.parametrize("value", ["-0.5", "+3", "-1e-05", "-inf", "nan", "'quoted'", "a=b", "", -0.5, None])
def test_numbers_and_other_texts_stay_as_they_are(value):
    assert csv_cell(value) == value
    if isinstance(value, str):
        assert from_csv_cell(value) == value
