"""Run commands one after the other in a folder and print the sha256 of all that they wrote, as JSON.

``python tests/campaigns/faults/surroundings.py FOLDER [all]``: the environment variables are what a test varies.
"""

import json
import os
import sys
from importlib import import_module
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

QUICK = (
    ("noise", "make", "digits", "--ratio", "0.4", "--to", "rauschen-噪声.npy"),
    (
        "prepare",
        "flickr30k",
        "--from",
        "download",
        "--to",
        "données",
        "--tokenizer",
        "word",
        "--tokenizer",
        "bpe",
    ),
    ("evaluate", "submissions/éа", "--plot", "--examples", "3"),
)
SLOW = (
    ("prepare", "digits", "--to", "数据"),
    ("leaderboard", "add", "submissions/éа", "--root", "board"),
    ("leaderboard", "build", "--root", "board", "--no-published"),
    ("train", "recipe.yaml", "--noise-ratio", "0.4", "--device", "cpu", "--to", "runs/ä"),
    ("score", "runs/ä", "--device", "cpu", "--to", "submissions/a"),
)


def main(folder: Path, everything: bool) -> dict[str, str]:
    from campaigns.faults.warm import run
    from campaigns.faults.world import digest, make_small, train_on_few, write_inputs

    for room in (
        "ncl_bench.cli.commands",
        "ncl_bench.data.prepare",
        *(("leaderboard.add",) if everything else ()),
    ):
        import_module(room)
    make_small()
    if everything:
        train_on_few()
    write_inputs(folder)
    from support.submission_folders import write_folder

    write_folder(folder / "submissions" / "éа")
    captions = folder / "download" / "f30k_precomp" / "train_caps.txt"
    lines = captions.read_text(encoding="utf-8").split("\n")
    captions.write_text("\n".join(["Ein Hündchen läuft über 草地 ∞", *lines[1:]]), encoding="utf-8")
    for command in (*QUICK, *(SLOW if everything else ())):
        ended = run(folder, list(command), environment=dict(os.environ))
        assert ended.code == 0, (command, ended.output)
    return digest(folder)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), "all" in sys.argv[2:])))
