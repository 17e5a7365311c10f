"""The same inputs give the same bytes whatever the hash seed, locale and time zone.

Evaluation, noise, preparation and leaderboard also give them with one thread and with two. Training promises them for
one number of threads on one machine, since the order of a sum depends on how it is shared out.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
USUAL = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC", "OMP_NUM_THREADS": "1"}
PLAIN = {"PYTHONHASHSEED": "77", "LC_ALL": "C", "TZ": "America/St_Johns", "OMP_NUM_THREADS": "2"}
CHINESE = {"PYTHONHASHSEED": "4321", "PYTHONUTF8": "0", "LC_ALL": "zh_CN.GB18030", "TZ": "Asia/Shanghai"}
"""Names of files, the terminal and files opened without an encoding are GB18030 there."""
TURKISH = {"PYTHONHASHSEED": "9", "LC_ALL": "tr_TR.UTF-8", "TZ": "Pacific/Kiritimati"}
"""A small i has a dot there."""
COMMANDS = (
    "noise make digits --ratio 0.4 --to rauschen-噪声.npy",
    "prepare flickr30k --from download --to données --tokenizer word --tokenizer bpe",
    "prepare digits --to 数据",
    "datasets new mine pairs.csv --images photos --dev 5 --test 5 --device cpu --to eigene",
    "evaluate submissions/éа --plot --examples 3",
    "leaderboard add submissions/éа --root board",
    "leaderboard build --root board --no-published",
    "train recipe.yaml --noise-ratio 0.4 --device cpu --to runs/a",  # TensorBoard writes to UTF-8 names alone
    "score runs/a --device cpu --to submissions/a",
)


def written(folder: Path, environment: dict[str, str]) -> dict[str, str]:
    """sha256 of everything that the commands write, one after the other in a process of its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))}
    done = subprocess.run(
        [sys.executable, __file__, str(folder)],
        capture_output=True,
        text=True,
        errors="replace",
        env=inherited | environment | {"PYTHONPATH": f"{TESTS}:{TESTS.parent}"},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads((folder.with_suffix(".json")).read_text())
    return found


def locale(folder: Path, environment: dict[str, str]) -> dict[str, str]:
    """An environment with its locale, which few systems carry."""
    name = environment["LC_ALL"]
    source, _, charset = name.partition(".")
    command = ["localedef", "-i", source, "-f", charset, str(folder / name)]
    if shutil.which("localedef") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip(f"this system cannot make {name}")
    environment = environment | {"LOCPATH": str(folder), "OMP_NUM_THREADS": "1"}
    asked = [sys.executable, "-c", "import locale; print(locale.setlocale(locale.LC_ALL, ''))"]
    assert subprocess.check_output(asked, env=os.environ | environment, text=True).strip() == name
    return environment


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_surroundings_change_no_byte(tmp_path: Path) -> None:
    usual = written(tmp_path / "usual", USUAL)
    assert {"submissions/éа/result.json", "runs/a/best.safetensors", "submissions/a/test.npy"} <= usual.keys()
    for name, environment in (("chinese", CHINESE), ("turkish", TURKISH)):
        assert written(tmp_path / name, locale(tmp_path, environment)) == usual
    plain = written(tmp_path / "plain", PLAIN)
    assert {name for name in usual if plain[name] != usual[name]} <= {
        name for name in usual if name.startswith(("runs/", "submissions/a"))
    }
    assert written(tmp_path / "plain, one thread", PLAIN | {"OMP_NUM_THREADS": "1"}) == usual


def main(folder: Path) -> None:
    from campaigns.commands import digest, run_here, write_inputs
    from support.submission_folders import write_folder

    write_inputs(folder)
    write_folder(folder / "submissions" / "éа")
    captions = folder / "download" / "f30k_precomp" / "train_caps.txt"
    lines = captions.read_text(encoding="utf-8").split("\n")
    captions.write_text("\n".join(["Ein Hündchen läuft über 草地 ∞", *lines[1:]]), encoding="utf-8")
    os.chdir(folder)
    for command in COMMANDS:
        with contextlib.suppress(SystemExit):  # the test misses what a failed command did not write
            run_here(command.split())
    folder.with_suffix(".json").write_text(json.dumps(digest(folder)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
