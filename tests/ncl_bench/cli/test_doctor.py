"""``ncl-bench doctor``: what it finds, what it calls broken, and how it says to fix it."""

import json
import re

import pytest
from support import miniatures
from support.command import invoke
from support.refusals import refused

import baselines.doctor
from ncl_bench import DATASETS, __version__
from ncl_bench.cli import doctor
from ncl_bench.data.prepare import prepare
from ncl_bench.extras import install_command


@pytest.fixture(autouse=True)
def no_folder(monkeypatch):
    monkeypatch.delenv("NCL_BENCH_DATA", raising=False)


def findings(*arguments, code=0):
    found = json.loads(invoke("doctor", "--json", *arguments, code=code).stdout)
    return {each["name"]: each for each in found}


def test_a_sound_installation_is_usable():
    found = findings()
    assert found["ncl-bench"]["detail"] == __version__
    assert {"python", "numpy", "pandas", "datasets", "torch", "cpu"} <= set(found)
    assert {one["state"] for one in found.values()} <= {"ok", "absent"}
    assert set(DATASETS) <= set(found)
    assert found["digits"]["detail"] == "embedded"
    assert found["coco"]["fix"] == "ncl-bench prepare coco --from DOWNLOADS --to DIR"


def test_the_report_for_people_says_the_same():
    result = invoke("doctor")
    assert result.stdout.splitlines()[-1] == "ncl-bench is usable"
    assert re.search(r"^--  data +coco ", result.stdout, re.MULTILINE)
    assert "fix: ncl-bench prepare coco" in result.stdout


def test_a_missing_package_is_broken_unless_only_training_needs_it(monkeypatch):
    needs = ["ncl-absent-a>=1", "ncl-absent-b>=2; extra == 'baselines'", "ncl-absent-c; extra == 'test'"]
    needs.append("ncl-absent-d; extra == 'features'")
    needs.append("ncl-absent-b>=2; extra == 'features'")
    monkeypatch.setattr(doctor, "requires", lambda name: needs)
    found = findings(code=1)
    assert found["ncl-absent-a"]["state"] == "broken"
    assert found["ncl-absent-a"]["fix"] == "pip install 'ncl-absent-a>=1'"
    assert found["ncl-absent-b"]["state"] == "absent"
    assert found["ncl-absent-b"]["fix"] == install_command("baselines")
    assert "ncl-absent-c" not in found
    assert found["ncl-absent-d"]["detail"] == "not installed, needed to make features of images"
    assert found["ncl-absent-d"]["fix"] == install_command("features")


def test_a_package_that_is_too_old_is_broken(monkeypatch):
    monkeypatch.setattr(doctor, "requires", lambda name: ["numpy>=1000"])
    found = findings(code=1)["numpy"]
    assert found["state"] == "broken"
    assert "expected >=1000" in found["detail"]


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setitem(DATASETS.data, "cc152k", miniatures.SPECS["cc152k"])
    prepare("cc152k", miniatures.make_cc152k(tmp_path / "from"), tmp_path / "data")
    return tmp_path / "data"


def test_prepared_data_is_found_by_option_and_by_environment(root, monkeypatch):
    found = findings("--root", str(root))["cc152k"]
    assert found["state"] == "ok"
    assert "train 12, dev 4, test 3 images" in found["detail"]
    monkeypatch.setenv("NCL_BENCH_DATA", str(root))
    assert findings()["cc152k"] == found


def test_a_folder_that_does_not_exist_is_broken(tmp_path, monkeypatch):
    found = findings("--root", str(tmp_path / "nope"), code=1)["folder"]
    assert found["detail"] == f"{tmp_path / 'nope'} does not exist"
    monkeypatch.setenv("NCL_BENCH_DATA", str(tmp_path / "nope"))
    assert findings(code=1)["folder"] == found


@pytest.mark.parametrize("name", ["manifest.json", "features/dev.npy", "captions/dev"])
def test_damaged_data_is_broken(root, name):
    damaged = root / "cc152k" / name
    file = damaged if damaged.is_file() else next(damaged.glob("*.arrow"))
    file.write_bytes(file.read_bytes()[:-8])
    found = findings("--root", str(root), code=1)["cc152k"]
    assert found["state"] == "broken"
    assert file.name in found["detail"]
    assert "ncl-bench prepare cc152k" in found["fix"]


def test_a_flipped_bit_is_found_by_a_deep_look_alone(root):
    assert "every hash correct" in findings("--root", str(root), "--deep")["cc152k"]["detail"]
    file = root / "cc152k" / "features" / "train.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert findings("--root", str(root))["cc152k"]["state"] == "ok"
    found = findings("--root", str(root), "--deep", code=1)["cc152k"]
    assert found["state"] == "broken"
    assert found["detail"].startswith(f"{file} is not the file that was written")
    command = f"ncl-bench prepare cc152k --from DOWNLOADS --to {root}"
    assert command in found["detail"]
    assert command in found["fix"]


def test_a_noise_file_alone_does_not_make_a_dataset_of_its_folder(tmp_path):
    (tmp_path / "digits" / "noise").mkdir(parents=True)
    assert findings("--root", str(tmp_path))["digits"]["detail"] == "embedded"


def test_cuda_devices_are_named(monkeypatch):
    from types import SimpleNamespace

    torch = pytest.importorskip("torch")

    device = SimpleNamespace(name="Example GPU", total_memory=8 * 2**30)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: device)
    assert [found.detail for found in baselines.doctor.cuda_devices()] == ["Example GPU, 8 GiB"]


def test_nothing_is_said_about_cuda_without_torch(monkeypatch):
    monkeypatch.setattr(baselines.doctor, "find_spec", lambda name: None)
    assert list(baselines.doctor.cuda_devices()) == []


@pytest.mark.parametrize("options", [["--profile"], ["--gpu", "--profile"], ["--gpu"]])
def test_without_a_gpu_one_sentence_says_so(options, monkeypatch, capsys):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with refused():
        invoke("doctor", *options)
    assert capsys.readouterr().out == ""
