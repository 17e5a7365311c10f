"""From somebody's pairs to the wrong ones, in one call: ``ncl-bench audit captions.csv --images photos``.

``pairs.csv``, ``pairs.parquet``    the rows as they came, with rank, score, probability and better captions
``clean.*``, ``suspects.*``         rows that look right, and those to look at, in the form of the input
``index.html``                      the suspects with their pictures
``summary.json``                    how many, and what was left out
``work``                            features and estimates, from which the same call resumes
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from baselines.audit.find_page import write_page
from baselines.audit.found import PAGE, Judgement, read_labels, write_found
from baselines.audit.own_pairs import OwnPairs, read_embeddings, read_pairs
from baselines.audit.own_pictures import Pictures, find_pictures, other_script
from ncl_bench.data.columns import Int64Array
from ncl_bench.errors import DataError, NclBenchError, TrainingError, shorten
from ncl_bench.files import sole_owner, write_text
from ncl_bench.progress import Advance, Progress, live_bar

if TYPE_CHECKING:
    from rich.console import Console

FEWEST = 50
"""Pairs with different pictures that a judgement needs."""
WORK, INPUT, PICTURES = "work", "input.json", "pictures.sha256"
SECONDS_PER_PICTURE, SECONDS_PER_PAIR, SECONDS_OF_JUDGING, SECONDS_OF_PAGE = 0.06, 0.007, 10.0, 5.0
"""What the bar starts from; it corrects itself. Judging has a fixed part: models of ten folds, and resamples."""


def find_wrong_pairs(
    pairs: "Path | str | pd.DataFrame | Any" = None,
    *,
    images: Path | str | None = None,
    to: Path | str | None = None,
    image_column: str | None = None,
    caption_column: str | None = None,
    image_embeddings: Path | str | NDArray[np.floating] | None = None,
    caption_embeddings: Path | str | NDArray[np.floating] | None = None,
    labels: Path | str | None = None,
    strict: bool = False,
    encoder: str = "efficientnet-lite0",
    text_encoder: str | None = None,
    seed: int = 0,
    device: str = "auto",
    console: "Console | None" = None,
) -> pd.DataFrame:
    """Find the wrong pairs among images and captions; the same call resumes in the same folder.

    Args:
        pairs: a file, a folder, a ``pandas.DataFrame`` or a ``datasets.Dataset``, see
            :mod:`baselines.audit.own_pairs`. It may be left out with embeddings.
        images: folder of the pictures (default: the folder of the table).
        to: folder to write (default: nothing is kept).
        image_column: column of image paths (default: found by its name).
        caption_column: column of captions (default: found by its name).
        image_embeddings: float ``(pairs, dim)``, array or ``.npy`` file; no picture is read then.
        caption_embeddings: float ``(pairs, dim)`` in the same space.
        labels: CSV file with the columns ``row`` and ``label``, as the page downloads it.
        strict: refuse missing, damaged and doubled pictures and empty captions, instead of leaving them out.
        encoder: image encoder, as for ``ncl-bench features``; ``open_clip:MODEL`` or ``open_clip:MODEL:WEIGHTS`` (a
            name in OpenCLIP or a safetensors file) encodes the captions too.
        text_encoder: ``all-minilm-l6-v2``, ``tfidf``, or a name or folder for ``sentence-transformers`` (default:
            MiniLM for English captions if it is installed, else TF-IDF).
        seed: of everything random.
        device: ``auto``, ``cpu`` or ``cuda``.
        console: where to draw the bar (default: standard error).

    Returns:
        The rows as they came, with ``rank`` (1 is the most suspicious), ``score`` (larger is more suspicious),
        ``probability`` that the pair is wrong, ``similarity``, three better captions and why a row was left out.
        ``table.attrs["summary"]`` holds :class:`Summary` as a dictionary.
    """
    arrays = read_embeddings(image_embeddings, caption_embeddings)
    own = _opened(pairs, image_column, caption_column, arrays)
    if arrays is not None and len(arrays[0]) != len(own.captions):
        raise DataError(
            f"{own.form.name} has {len(own.captions):,} rows, the embeddings {len(arrays[0]):,}; give one of each per "
            "row"
        )
    known = read_labels(labels, own.images)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "audit") if to is None else Path(to)
        key = _key(own, arrays, encoder, text_encoder, seed)
        _refuse_other(folder, key)
        with sole_owner(folder), _Steps(console) as steps:
            work = folder / WORK
            if arrays is None:
                with _begun(folder, key):
                    pictures = find_pictures(own, None if images is None else Path(images), work / "pictures")
                    reasons = _reasons(own, pictures)
                    if strict:
                        _refuse(own, reasons, pictures)
                    _refuse_few(own, reasons, pictures.image_of)
                judgement, reasons = _judge_pictures(
                    own, pictures, reasons, work, encoder, text_encoder, device, seed, strict, steps
                )
                doubled, remarks = pictures.doubled, [*own.remarks, *pictures.remarks]
            else:
                with _begun(folder, key):
                    reasons = np.full(len(own.captions), "", object)
                    image_of = _images_of(arrays[0])
                    _refuse_few(own, reasons, image_of)
                judgement = _judge_arrays(arrays, image_of, seed, steps)
                doubled, remarks = {}, own.remarks
            with steps.progress("writing the page")("writing", 2) as advance:
                table, summary = write_found(folder, own, judgement, reasons, doubled, remarks, known)
                advance(1)
                write_page(folder / PAGE, summary, own, judgement, reasons, doubled, known)
    return table


def _opened(pairs: Any, image_column: str | None, caption_column: str | None, arrays: Any) -> OwnPairs:
    if pairs is not None:
        return read_pairs(pairs, image_column, caption_column)
    if arrays is None:
        raise DataError("no pairs are given; give a table of images and captions, or embeddings of both")
    n = len(arrays[0])
    frame = pd.DataFrame(
        {"image": [f"image {row}" for row in range(n)], "caption": [f"caption {row}" for row in range(n)]}
    )
    return read_pairs(frame)


def _key(own: OwnPairs, arrays: Any, encoder: str, text_encoder: str | None, seed: int) -> str:
    """Hash of all that the judgement depends on, but for the pictures' files."""
    digest = hashlib.sha256(json.dumps([own.images, own.captions, encoder, text_encoder, seed]).encode())
    for array in arrays or ():
        for row in array:
            digest.update(row.tobytes())
    return digest.hexdigest()


def _images_of(vectors: NDArray[np.floating]) -> Int64Array:
    """A number for each pair's image, int64 ``(n,)``: equal vectors are one image."""
    digests = (hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in vectors)
    numbers: Int64Array = pd.factorize(np.frombuffer(b"".join(digests), np.uint64))[0].astype(np.int64)
    return numbers


def _refuse_other(folder: Path, key: str) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        found = json.loads((folder / WORK / INPUT).read_bytes())["key"]
    except (OSError, ValueError, KeyError, TypeError):
        raise TrainingError(
            f"{folder} exists and holds something else; choose a new folder with --to"
        ) from None
    if found != key:
        raise TrainingError(
            f"{folder} holds the audit of other pairs or settings; choose a new folder with --to"
        )


@contextmanager
def _begun(folder: Path, key: str) -> Iterator[None]:
    """Name the pairs of a new audit; if they are refused, nothing of it stays."""
    new = not (folder / WORK / INPUT).exists()
    write_text(folder / WORK / INPUT, json.dumps({"key": key}) + "\n")
    try:
        yield
    except NclBenchError:
        if new:
            shutil.rmtree(folder / WORK)
            with suppress(OSError):  # the user's own folder may hold a hidden file
                folder.rmdir()
        raise


def _reasons(own: OwnPairs, pictures: Pictures) -> NDArray[np.object_]:
    """Why each row is left out; empty for the others."""
    reasons = np.full(len(own.captions), "", object)
    other, reason = other_script(own.captions)
    reasons[other] = reason
    reasons[pictures.image_of < 0] = "no picture of this name"
    reasons[[not name for name in own.images]] = "no image is named"
    reasons[[not caption for caption in own.captions]] = "the caption is empty"
    return reasons


def _refuse(own: OwnPairs, reasons: NDArray[np.object_], pictures: Pictures) -> None:
    """With --strict, refuse what would be left out."""
    rows = np.flatnonzero(reasons != "")
    if len(rows):
        row = int(rows[0])
        raise DataError(
            f"{own.form.name} row {row + 1} ({shorten(own.images[row])}): {reasons[row]}, and {len(rows) - 1:,} more "
            "rows cannot be judged; correct them, or leave --strict out"
        )
    if pictures.doubled:
        copy, first = next(iter(pictures.doubled.items()))
        raise DataError(
            f"{copy} is the same picture as {first}, and {len(pictures.doubled) - 1:,} more are copies; remove them, "
            "or leave --strict out"
        )


def _refuse_few(own: OwnPairs, reasons: NDArray[np.object_], image_of: Int64Array) -> None:
    rows = np.flatnonzero(reasons == "")
    n_pictures = len(np.unique(image_of[rows]))
    if n_pictures < FEWEST:
        counts = pd.Series(reasons[reasons != ""]).value_counts()
        why = "".join(f"; {count:,} rows: {reason}" for reason, count in counts.items())
        raise DataError(
            f"{own.form.name} has {n_pictures:,} different pictures with a caption, and at least {FEWEST} are needed "
            f"to learn what fits{why}; add pairs"
        )
    captions = {own.captions[row] for row in rows.tolist()}
    if len(captions) < 2:
        raise DataError(
            f"{own.form.name}: all {len(rows):,} captions are {shorten(next(iter(captions)))}, so no pair can be told "
            "from another; choose the column with --caption-column"
        )


def _judge_pictures(
    own: OwnPairs,
    pictures: Pictures,
    reasons: NDArray[np.object_],
    work: Path,
    encoder: str,
    text_encoder: str | None,
    device: str,
    seed: int,
    strict: bool,
    steps: "_Steps",
) -> tuple[Judgement, NDArray[np.object_]]:
    from baselines import encoders
    from baselines.audit.judge import judge_pairs
    from baselines.features import FeatureOptions, Listing, extract

    needed = np.unique(pictures.image_of[reasons == ""])
    names, files = list(pictures.files), list(pictures.files.values())
    wanted = {f"{row:09d}": files[row] for row in needed.tolist()}
    steps.plan(
        {
            "encoding pictures": SECONDS_PER_PICTURE * len(wanted),
            "judging pairs": SECONDS_OF_JUDGING + SECONDS_PER_PAIR * int((reasons == "").sum()),
            "writing the page": SECONDS_OF_PAGE,
        }
    )
    _forget_other_pictures(work, wanted)
    listing = Listing(work, list(wanted), {"all": list(wanted)}, wanted)
    network = encoders.load_encoder(encoder, None, device)
    done = extract(
        listing,
        network,
        work / "features",
        FeatureOptions(
            skip_damaged=True, grid=1 if encoder.startswith(encoders.CLIP) else FeatureOptions().grid
        ),
        workers=2,
        progress=steps.progress("encoding pictures"),
    )
    damaged = {int(name): reason for name, reason in done.skipped.items()}
    reasons = reasons.copy()
    for row, image in enumerate(pictures.image_of.tolist()):
        if image in damaged and not reasons[row]:
            reasons[row] = f"the picture {damaged[image]}".partition(";")[0]
    if strict and damaged:
        image, reason = next(iter(damaged.items()))
        raise DataError(
            f"{names[image]} {reason.partition(';')[0]}, and {len(damaged) - 1:,} more cannot be read; correct them, "
            "or leave --strict out"
        )
    _refuse_few(own, reasons, pictures.image_of)
    ids = (work / "features" / "all_ids.txt").read_text(encoding="utf-8").split()
    features = np.load(work / "features" / "all_ims.npy", mmap_mode="r", allow_pickle=False)
    place = {int(name): number for number, name in enumerate(ids)}
    rows = np.flatnonzero(reasons == "")
    image_of = np.array([place[image] for image in pictures.image_of[rows].tolist()], np.int64)
    with steps.progress("judging pairs")("judging", len(rows)) as advance:
        found = judge_pairs(
            features,
            image_of,
            [own.captions[row] for row in rows.tolist()],
            work=work / "judge",
            text_encoder=encoder if encoder.startswith(encoders.CLIP) else text_encoder,
            seed=seed,
            device=device,
            advance=advance,
        )
    return Judgement(rows, image_of, found, [files[int(name)] for name in ids]), reasons


def _forget_other_pictures(work: Path, wanted: Mapping[str, Path]) -> None:
    """Delete what was computed from other files, as when a missing picture was added since."""
    stamps = [
        [name, str(file), file.stat().st_size, file.stat().st_mtime_ns]
        if file.is_file()
        else [name, str(file)]
        for name, file in wanted.items()
    ]
    digest = hashlib.sha256(json.dumps(stamps).encode()).hexdigest()
    record = work / PICTURES
    if not record.exists() or record.read_text(encoding="utf-8") != digest:
        for made in ("features", "judge"):
            shutil.rmtree(work / made, ignore_errors=True)
        write_text(record, digest)


def _judge_arrays(
    arrays: tuple[NDArray[np.floating], NDArray[np.floating]],
    image_of: Int64Array,
    seed: int,
    steps: "_Steps",
) -> Judgement:
    from baselines.audit.judge import judge_embeddings

    rows = np.arange(len(image_of))
    judging = SECONDS_OF_JUDGING + SECONDS_PER_PAIR * len(rows)
    steps.plan({"judging pairs": judging, "writing the page": SECONDS_OF_PAGE})
    with steps.progress("judging pairs")("judging", len(rows)) as advance:
        found = judge_embeddings(*arrays, image_of, seed=seed, advance=advance)
    return Judgement(rows, image_of, found, None)


class _Steps:
    """One bar with the time left over all steps.

    Args:
        console: where to draw (default: standard error).
    """

    def __init__(self, console: "Console | None") -> None:
        self._bar = live_bar(console)
        self._seconds: dict[str, float] = {}

    def __enter__(self) -> "_Steps":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def plan(self, seconds: Mapping[str, float]) -> None:
        """Begin with the steps and the seconds that each may take."""
        self._seconds = dict(seconds)
        self._task = self._bar.add_task("audit", total=sum(seconds.values()), state="")

    def progress(self, step: str) -> Progress:
        """Progress of one step; what it shows first takes the whole share of the step."""
        left = [self._seconds[step]]

        @contextmanager
        def shown(title: str, total: int) -> Iterator[Advance]:
            seconds, left[0] = left[0], 0.0
            self._bar.update(self._task, description=step)
            done = 0

            def advance(amount: int) -> None:
                nonlocal done
                amount = min(amount, total - done)
                done += amount
                self._bar.advance(self._task, seconds * amount / max(1, total))

            yield advance
            advance(total - done)

        return shown
