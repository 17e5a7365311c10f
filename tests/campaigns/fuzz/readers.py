"""Every reader of files from strangers: good files to damage, and how to read one to the end."""

import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch
import yaml
from support import miniatures, submission_folders

from baselines.engine.checkpoint import latest_state, save_state
from baselines.engine.recipe import Recipe
from baselines.engine.run_folder import RunFolder
from baselines.recipes import recipe_names
from leaderboard.cells import read_cell
from leaderboard.evidence import read_ranks
from ncl_bench.data import dataset_spec
from ncl_bench.data.captions import read_lines, read_table, read_token_ids, unique_ids
from ncl_bench.data.download import FolderDownload
from ncl_bench.data.features import open_features, scan
from ncl_bench.data.prepare import prepare
from ncl_bench.data.prepared import load_prepared
from ncl_bench.data.tokenizers import tokenizer, train_bpe
from ncl_bench.data.verify import inspect, verify
from ncl_bench.data.vocabulary import SPECIAL_WORDS, Vocabulary, parse_vocabulary, vocabulary_json
from ncl_bench.evaluation.claims import _compare_ids, _ids
from ncl_bench.evaluation.scores import read_array, read_text
from ncl_bench.evaluation.submission import ArrayFile, read_submission
from ncl_bench.noise.files import read_noise_file
from ncl_bench.npy import map_npy, read_header
from ncl_bench.progress import silent
from ncl_bench.schema import read_yaml

ROOT = Path(__file__).parents[3]
Read = Callable[[bytes], Any]


@dataclass(frozen=True)
class Reader:
    """One reader.

    Attributes:
        seeds: good files.
        read: reads the bytes of one file, as a user's file is read, and uses what it says.
        tokens: words of its format.
    """

    seeds: list[bytes]
    read: Read
    tokens: tuple[bytes, ...] = ()


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


NPY = (b"'<f4'", b"'<f8'", b"'>f2'", b"'|O'", b"'<U0'", b"'<U9'", b"'<i8'", b"'|V8'", b"'<c8'", b"'<M8[s]'", b"True",
       b"(0,", b"(-1,", b"(1, 9999999999999999)", b"(0, 99999999999999999999)", b"(999999999999,)", b"[('a', '<f4')]",
       b"('<f4', (3,))", b"\x01\x00", b"\x02\x00", b"\x03\x00", b"__import__('os')")  # fmt: skip
YAML = (b"&a ", b"*a", b"!!int ''", b"!!bool x", b"!!timestamp x", b"!!python/object/apply:os.system [ls]", b"!!set",
        b"!!binary 'x'", b"<<: ", b"? ", b"- ", b": ", b"|", b"%YAML 9.9\n", b"---\n", b"0x", b"1:1:1", b"2001-99-99",
        b"~", b"{a: b}", b"[a, b]", b"!!omap", b"\xef\xbb\xbf", b"\xff\xfe")  # fmt: skip
JSON = (b'{"', b"}", b"]", b",", b":", b'"idx"', b'"word2idx"', b"1e5", b"999999999999", b'"\\u0000"')


def npy_scores(folder: Path) -> Reader:
    path = folder / "scores.npy"
    seeds = [npy(np.ones((4, 20), dtype)) for dtype in ("<f4", ">f2", "<f8", "<i4")]
    seeds += [npy(np.asfortranarray(np.ones((4, 20)))), npy(np.empty((0, 3)))]

    def read(content: bytes) -> None:
        path.write_bytes(content)
        header = read_header(path)
        array = map_npy(path, header)
        assert array.shape == header.shape
        array[..., :1].sum()

    return Reader(seeds, read, NPY)


def scores_of_others(folder: Path, suffix: str) -> Reader:
    """Scores that other libraries wrote: ``.safetensors`` or ``.pt``."""
    path = folder / f"scores{suffix}"
    seeds = []
    for array in (np.ones((4, 20), np.float32), np.ones((2, 3), np.float16)):
        stream = io.BytesIO()
        torch.save(torch.tensor(array), stream)
        seeds.append(stream.getvalue() if suffix == ".pt" else safetensors.numpy.save({"scores": array}))

    def read(content: bytes) -> None:
        path.write_bytes(content)
        array = read_array(path)
        assert isinstance(array, np.ndarray)
        array[..., :1].sum() if array.dtype.kind in "fiu" else None

    return Reader(seeds, read, (b"PK\x03\x04", b"cos\nsystem\n", b"data_offsets", b"BF16", b"F8_E4M3", *JSON))


def text_scores(folder: Path) -> Reader:
    def read(content: bytes) -> None:
        read_text(io.TextIOWrapper(io.BytesIO(content), "utf-8"), "standard input")

    return Reader(
        [b"1 2 3\n4 5 6\n", b"0.5,1e3\n-7,nan\n"], read, (b"\xff", b"#", b"inf", b"1e999", b'"', b"\n")
    )


def npy_ids(folder: Path) -> Reader:
    path = folder / "ids.npy"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        entry = ArrayFile(file="ids.npy", sha256=hashlib.sha256(content).hexdigest())
        _compare_ids(_ids(folder, entry, 12), [str(i) for i in range(12)], "ids.npy")

    return Reader(
        [npy(np.arange(12)), npy(np.arange(12).astype(str)), npy(np.array(["é", "漢字"]))], read, NPY
    )


def noise_file(folder: Path) -> Reader:
    path, spec = folder / "noise.npy", miniatures.SPECS["flickr30k"]
    clean = np.repeat(np.arange(12), 5)
    archive = io.BytesIO()
    np.savez(archive, a=clean)
    text = "\n".join(map(str, clean)).encode()
    swapped = clean.copy()
    swapped[[0, 30]] = swapped[[30, 0]]

    def read(content: bytes) -> None:
        path.write_bytes(content)
        attempt(lambda: read_noise_file(path, spec, "image"))
        read_noise_file(path, spec, "caption")

    return Reader([npy(swapped), npy(np.arange(12)[::-1]), archive.getvalue(), text], read, NPY)


def feature_file(folder: Path) -> Reader:
    source = miniatures.make_scan(folder, "flickr30k")
    path, spec = source / "dev_ims.npy", miniatures.SPECS["flickr30k"]

    def read(content: bytes) -> None:
        path.write_bytes(content)
        file = open_features(FolderDownload(source), "dev_ims.npy", spec, "dev", ("float32",))
        scan(file, dtype="float16", advance=lambda done: None)

    return Reader([path.read_bytes(), npy(miniatures.features(4, 0))], read, NPY)


def plain_yaml(folder: Path) -> Reader:
    path = folder / "plain.yaml"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        read_yaml(path)

    return Reader([b"a: [1, 2.5, x]\nb: {c: null, d: 2020-01-01}\n", b"- 1\n", b'k: "\\u00e9"\n'], read, YAML)


def submission(folder: Path) -> Reader:
    (folder / "made").mkdir()
    seeds = []
    for form in ("matrix", "embeddings", "ranks"):
        made = submission_folders.write_folder(folder / "made" / form, form)
        seeds.append((made / "submission.yaml").read_bytes())
    shutil.rmtree(folder / "made")

    def read(content: bytes) -> None:
        (folder / "submission.yaml").write_bytes(content)
        stated = read_submission(folder)
        (folder / "submission.yaml").write_text(stated.to_yaml(), encoding="utf-8")
        assert read_submission(folder) == stated

    return Reader(seeds, read, YAML)


def leaderboard_cell(folder: Path) -> Reader:
    cells = sorted((ROOT / "leaderboard" / "results" / "digits").rglob("*.yaml"))
    path = folder / "cell.yaml"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        file = read_cell(path)
        assert file.name.startswith("digits/")
        path.write_text(file.to_yaml(), encoding="utf-8")
        assert read_cell(path) == file

    return Reader([cell.read_bytes() for cell in cells[:3]], read, YAML)


def recipe(folder: Path) -> Reader:
    path = folder / "recipe.yaml"
    names = [name for name in recipe_names() if "/digits" in name][:6]
    seeds = [yaml.safe_dump(Recipe.load(name).model_dump()).encode() for name in names]

    def read(content: bytes) -> None:
        path.write_bytes(content)
        Recipe.load(path).model_dump_json()

    return Reader(seeds, read, YAML)


def text_lines(folder: Path) -> Reader:
    def read(content: bytes) -> None:
        for reader in (
            lambda: read_lines(content, "lines"),
            lambda: read_table(content, "table"),
            lambda: read_token_ids(content, "ids", start=1, end=2, size=20).take(np.arange(1)),
            lambda: unique_ids(read_lines(content, "ids"), 2, 2, "ids"),
        ):
            attempt(reader)

    seeds = [
        b"a dog\nruns\n",
        b"0001_1\ta dog\n0002_4\truns\n",
        b"4,5,6,\n7,8\n",
        b"7\n7\n9\n9\n",
        "狗\r\n\r\n".encode(),
    ]
    return Reader(seeds, read, (b"\xef\xbb\xbf", b"\x85", "\u2028".encode(), b",", b"_", "٣".encode()))


def vocabulary(folder: Path) -> Reader:
    words = (*SPECIAL_WORDS, "dog", "漢字", "", "'s")

    def read(content: bytes) -> None:
        found = parse_vocabulary(content, "vocab.json")
        assert found.sha256
        found.decode(found.encode(["dog", "cat"]))
        parse_vocabulary(vocabulary_json(found).encode(), "again")

    return Reader([vocabulary_json(Vocabulary(words, 20)).encode()], read, JSON)


def tokenizer_json(folder: Path) -> Reader:
    path = folder / "tokenizer.json"
    train_bpe(["a dog runs", "the dog"], path, size=60)
    seeds = [path.read_bytes()]

    def read(content: bytes) -> None:
        path.write_bytes(content)
        tokenizer("bert", file=path)("A dog runs, 漢字")

    return Reader(seeds, read, JSON)


def zip_download(folder: Path) -> Reader:
    source = miniatures.make_now(folder / "from")
    seeds = []
    for compression in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        seeds.append(miniatures.zipped(source, folder / "now.zip", compression).read_bytes())
    path = folder / "now.zip"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        spec = miniatures.SPECS["now"]
        verify(inspect(spec, path), spec, dtype="float16", journal=None, progress=silent)

    tokens = (
        b"PK\x01\x02",
        b"PK\x03\x04",
        b"PK\x05\x06",
        b"PK\x06\x06",
        b"../x",
        b"\xff\xff",
        b"\x01\x00",
        b"\x0e\x00",
    )
    return Reader(seeds, read, tokens)


def manifest(folder: Path) -> Reader:
    prepare("flickr30k", miniatures.make_scan(folder / "from", "flickr30k"), folder / "root")
    path = folder / "root" / "flickr30k" / "manifest.json"
    seeds = [path.read_bytes()]

    def read(content: bytes) -> None:
        path.write_bytes(content)
        use(folder)

    return Reader(seeds, read, (*JSON, b"../../../etc/passwd", b"/etc/passwd"))


def prepared_file(folder: Path, name: str) -> Reader:
    """A file of a prepared folder, whose manifest has the size of the damaged one."""
    prepare("flickr30k", miniatures.make_scan(folder / "from", "flickr30k"), folder / "root")
    place = folder / "root" / "flickr30k"
    described = json.loads((place / "manifest.json").read_text())
    record = next(file for file in described["files"] if file["name"] == name)
    path = place / name
    seeds = [path.read_bytes()]

    def read(content: bytes) -> None:
        path.write_bytes(content)
        record["bytes"] = len(content)
        (place / "manifest.json").write_text(json.dumps(described))
        use(folder)

    return Reader(seeds, read)


def use(folder: Path) -> None:
    """Open a prepared split and look at everything in it."""
    dataset = load_prepared(folder / "root", miniatures.SPECS["flickr30k"], "dev")
    rows = np.arange(len(dataset))
    dataset.tokens.padded(rows)
    list(dataset.captions or ())
    dataset.image_ids.tolist()
    dataset.image_features[np.arange(4)].sum()


def checkpoint(folder: Path) -> Reader:
    """Named by the hash of its bytes, so that damage is not seen before torch reads it."""
    import torch

    state = {"epochs": 1, "method": {"w": torch.ones(3)}, "history": [{"loss": 0.5}], "optimizers": []}
    seeds = [save_state(folder, 1, state).read_bytes()]

    def read(content: bytes) -> None:
        for old in folder.glob("epoch-*"):
            old.unlink()
        digest = hashlib.sha256(content).hexdigest()[:16]
        (folder / f"epoch-000001.{digest}.pt").write_bytes(content)
        latest_state(folder)

    return Reader(seeds, read, (b"cos\nsystem\n", b"cbuiltins\neval\n", b"PK\x03\x04", b"R", b"."))


def run_folder(folder: Path) -> Reader:
    """The JSON files of a run that somebody shares."""
    loaded = Recipe.load("triplet/digits_vse_infinity")
    content = {
        "recipe": loaded.model_dump(mode="json"),
        "seed": 0,
        "precision": "32-true",
        "fingerprint": "x",
        "noise": {"unit": None, "ratio": 0.0, "seed": None, "sha256": "x", "realised_ratio": 0.0},
    }

    def read(content: bytes) -> None:
        (folder / "run.json").write_bytes(content)
        RunFolder(folder).job()

    return Reader([json.dumps(content).encode()], read, JSON)


def leaderboard_ranks(folder: Path) -> Reader:
    files = sorted((ROOT / "leaderboard" / "results" / "digits").rglob("*.npz"))
    path = folder / "cell.npz"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        read_ranks(path, ["0", "1", "2", "3", "4"], dataset_spec("digits"))

    return Reader([file.read_bytes() for file in files[:2]], read)


READERS: dict[str, Callable[[Path], Reader]] = {
    "npy scores": npy_scores,
    "safetensors scores": lambda folder: scores_of_others(folder, ".safetensors"),
    "torch scores": lambda folder: scores_of_others(folder, ".pt"),
    "text scores": text_scores,
    "npy ids": npy_ids,
    "noise file": noise_file,
    "feature file": feature_file,
    "yaml": plain_yaml,
    "submission": submission,
    "leaderboard cell": leaderboard_cell,
    "leaderboard ranks": leaderboard_ranks,
    "recipe": recipe,
    "text lines": text_lines,
    "vocabulary": vocabulary,
    "tokenizer.json": tokenizer_json,
    "zip download": zip_download,
    "manifest": manifest,
    "captions table": lambda folder: prepared_file(folder, "captions/dev/data-00000-of-00001.arrow"),
    "captions state": lambda folder: prepared_file(folder, "captions/dev/state.json"),
    "prepared features": lambda folder: prepared_file(folder, "features/dev.npy"),
    "token ids": lambda folder: prepared_file(folder, "tokens/dev/word.npy"),
    "token offsets": lambda folder: prepared_file(folder, "tokens/dev/word_offsets.npy"),
    "checkpoint": checkpoint,
    "run folder": run_folder,
}


def attempt(read: Callable[[], Any]) -> bool:
    """Whether reading went well; a refusal must be one sentence of ours, and nothing else may be raised."""
    from ncl_bench.errors import NclBenchError

    try:
        read()
    except NclBenchError as error:
        sentence = str(error)
        assert sentence
        assert sentence.isprintable(), repr(sentence)
        return False
    return True
