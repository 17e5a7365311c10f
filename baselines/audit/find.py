"""From somebody's pairs to the wrong ones, in one call: ``ncl-bench audit captions.csv --images photos``.

``pairs.csv``, ``pairs.parquet``    the rows as they came, with rank, score, probability and better captions
``clean.*``, ``suspects.*``         rows that look right, and those to look at, in the form of the input
``index.html``                      the suspects with their pictures
``summary.json``                    how many, and what was left out
``work``                            features and estimates, from which the same call resumes
"""

import hashlib
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from baselines.audit.own_pairs import OwnPairs, read_pairs
from baselines.audit.own_pictures import Pictures, find_pictures, other_script
from ncl_bench.data.columns import Int64Array
from ncl_bench.data.pair_labels import LABELS
from ncl_bench.errors import DataError, TrainingError, listed, shorten
from ncl_bench.evaluation.scores import check_embeddings, read_array
from ncl_bench.files import atomic_path, csv_cell, read_table, sole_owner, write_text
from ncl_bench.progress import Advance, Progress, live_bar
from ncl_bench.schema import Record

if TYPE_CHECKING:
    from rich.console import Console

FEWEST = 50
"""Pairs with different pictures that a judgement needs."""
WORK, INPUT, SUMMARY, PAIRS, PAGE = "work", "input.json", "summary.json", "pairs", "index.html"
BETTER = 3
ADDED = (
    "rank",
    "score",
    "probability",
    "similarity",
    *(f"better_{n + 1}" for n in range(BETTER)),
    "left_out",
)
"""Columns that the table of pairs adds; a column of the user's with such a name stays, and ours begins with audit_."""
SECONDS_PER_PICTURE, SECONDS_PER_PAIR, SECONDS_OF_PAGE = 0.06, 0.02, 5.0
"""What the bar starts from; it corrects itself."""


class Summary(Record):
    """``summary.json``.

    Attributes:
        source: file or folder of the pairs.
        image_column, caption_column: what was read.
        n_rows: rows of the input.
        n_judged: rows that were judged.
        n_pictures: different pictures among them.
        left_out: reason to number of rows.
        doubled: copies of pictures, judged as one picture.
        wrong, low, high: estimated number of wrong pairs, and its 95 % interval.
        n_suspects: rows in ``suspects``: the estimated number of wrong pairs from the top, corrected by labels.
        labels: label to number of labelled rows.
        remarks: what else a reader has to know, in sentences.
    """

    source: str
    image_column: str
    caption_column: str
    n_rows: int
    n_judged: int
    n_pictures: int
    left_out: dict[str, int]
    doubled: int
    wrong: int
    low: int
    high: int
    n_suspects: int
    labels: dict[str, int]
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class Judgement:
    """What is known of the judged rows.

    Attributes:
        rows: int64 ``(n,)``, the judged rows of the input, ascending.
        image_of: int64 ``(n,)``, a number for each row's picture.
        values: score, probability and other columns, one row per judged row.
        better: int64 ``(n, 3)``, judged rows whose captions fit better; -1 for none.
        share, low, high: estimated share of wrong pairs, with its 95 % interval.
        files: picture of each number of ``image_of``; None for embeddings.
    """

    rows: Int64Array
    image_of: Int64Array
    values: pd.DataFrame
    better: Int64Array
    share: float
    low: float
    high: float
    files: list[Path] | None


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
    budget: float | None = None,
    strict: bool = False,
    encoder: str = "efficientnet-lite0",
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
        budget: minutes that the call may take, features included.
        strict: refuse missing, damaged and doubled pictures and empty captions, instead of leaving them out.
        encoder: image encoder, as for ``ncl-bench features``.
        seed: of everything random.
        device: ``auto``, ``cpu`` or ``cuda``.
        console: where to draw the bar (default: standard error).

    Returns:
        The rows as they came, with ``rank`` (1 is the most suspicious), ``score`` (larger is more suspicious),
        ``probability`` that the pair is wrong, ``similarity``, three better captions and why a row was left out.
        ``table.attrs["summary"]`` holds :class:`Summary` as a dictionary.
    """
    start = time.monotonic()
    own = _opened(pairs, image_column, caption_column, image_embeddings, caption_embeddings)
    arrays = _embeddings(image_embeddings, caption_embeddings)
    if arrays is not None and len(arrays[0]) != len(own.captions):
        raise DataError(
            f"{own.form.name} has {len(own.captions):,} rows, the embeddings {len(arrays[0]):,}; give one of each per row"
        )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "audit") if to is None else Path(to)
        key = _key(own, arrays, encoder, seed)
        _refuse_other(folder, key)
        with sole_owner(folder), _Steps(console) as steps:
            work = folder / WORK
            if arrays is None:
                pictures = find_pictures(own, None if images is None else Path(images), work / "pictures")
                reasons = _reasons(own, pictures)
                if strict:
                    _refuse(own, reasons, pictures)
                _refuse_few(own, reasons, pictures.image_of)
                _begin(work, key)
                judgement, reasons = _judge_pictures(
                    own, pictures, reasons, work, encoder, device, seed, budget, start, strict, steps
                )
                doubled, remarks = pictures.doubled, [*own.remarks, *pictures.remarks]
            else:
                reasons = _reasons(own, None)
                image_of = np.unique(arrays[0], axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
                _refuse_few(own, reasons, image_of)
                _begin(work, key)
                judgement = _judge_arrays(arrays, image_of, reasons, work, seed, steps)
                doubled, remarks = {}, own.remarks
            return _written(folder, own, judgement, reasons, doubled, remarks, labels, steps)


def _opened(
    pairs: Any, image_column: str | None, caption_column: str | None, images: Any, captions: Any
) -> OwnPairs:
    if pairs is not None:
        return read_pairs(pairs, image_column, caption_column)
    if images is None and captions is None:
        raise DataError("no pairs are given; give a table of images and captions, or embeddings of both")
    _embeddings(images, captions)
    n = len(_array(images, "image embeddings"))
    frame = pd.DataFrame(
        {"image": [f"image {row}" for row in range(n)], "caption": [f"caption {row}" for row in range(n)]}
    )
    return read_pairs(frame)


def _array(given: Any, name: str) -> NDArray[np.floating]:
    return read_array(Path(given)) if isinstance(given, str | Path) else np.asarray(given)


def _embeddings(images: Any, captions: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
    """Both sides as float32, checked: as many of each, of one length, finite and not zero."""
    if images is None and captions is None:
        return None
    if images is None or captions is None:
        raise DataError(
            "embeddings of one side are given; give both --image-embeddings and --caption-embeddings"
        )
    sides = []
    for given, name in ((images, "image embeddings"), (captions, "caption embeddings")):
        array = _array(given, name)
        label = str(given) if isinstance(given, str | Path) else name
        if array.ndim != 2 or array.dtype.kind != "f":
            raise DataError(
                f"{label} holds {array.dtype} of shape {array.shape}, expected floats of shape (pairs, dim)"
            )
        check_embeddings(array, label, "cosine")
        sides.append(np.array(array, np.float32))
    x, y = sides
    if x.shape != y.shape:
        repeat = ""
        if x.shape[1] == y.shape[1] and len(y) % max(1, len(x)) == 0 and len(x) < len(y):
            repeat = f", such as numpy.repeat(images, {len(y) // len(x)}, axis=0) where the captions of an image are neighbours"
        raise DataError(
            f"the image embeddings have shape {x.shape}, those of the captions {y.shape}; give one row of each per "
            f"pair and one length{repeat}"
        )
    return x, y


def _key(own: OwnPairs, arrays: Any, encoder: str, seed: int) -> str:
    """Hash of all that the judgement depends on, but for the pictures' files."""
    digest = hashlib.sha256(json.dumps([own.images, own.captions, encoder, seed]).encode())
    for array in arrays or ():
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()


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


def _begin(work: Path, key: str) -> None:
    write_text(work / INPUT, json.dumps({"key": key}) + "\n")


def _reasons(own: OwnPairs, pictures: Pictures | None) -> NDArray[np.object_]:
    """Why each row is left out; empty for the others."""
    reasons = np.full(len(own.captions), "", object)
    if pictures is None:
        return reasons
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
            f"{own.form.name} row {row + 1} ({shorten(own.images[row])}): {reasons[row]}, and {len(rows) - 1:,} more rows "
            "cannot be judged; correct them, or leave --strict out"
        )
    if pictures.doubled:
        copy, first = next(iter(pictures.doubled.items()))
        raise DataError(
            f"{copy} is the same picture as {first}, and {len(pictures.doubled) - 1:,} more are copies; remove them, or "
            "leave --strict out"
        )


def _refuse_few(own: OwnPairs, reasons: NDArray[np.object_], image_of: Int64Array) -> None:
    rows = np.flatnonzero(reasons == "")
    n_pictures = len(np.unique(image_of[rows]))
    if n_pictures < FEWEST:
        counts = pd.Series(reasons[reasons != ""]).value_counts()
        why = "".join(f"; {count:,} rows: {reason}" for reason, count in counts.items())
        raise DataError(
            f"{own.form.name} has {n_pictures:,} different pictures with a caption, and at least {FEWEST} are needed to "
            f"learn what fits{why}; add pairs"
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
    device: str,
    seed: int,
    budget: float | None,
    start: float,
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
            "judging pairs": SECONDS_PER_PAIR * int((reasons == "").sum()),
            "writing the page": SECONDS_OF_PAGE,
        }
    )
    listing = Listing(work, list(wanted), {"all": list(wanted)}, wanted)
    network = encoders.load_encoder(encoder, None, device)
    done = extract(
        listing,
        network,
        work / "features",
        FeatureOptions(skip_damaged=True),
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
            f"{names[image]} {reason.partition(';')[0]}, and {len(damaged) - 1:,} more cannot be read; correct them, or "
            "leave --strict out"
        )
    _refuse_few(own, reasons, pictures.image_of)
    ids = (work / "features" / "all_ids.txt").read_text(encoding="utf-8").split()
    features = np.load(work / "features" / "all_ims.npy", mmap_mode="r", allow_pickle=False)
    place = {int(name): number for number, name in enumerate(ids)}
    rows = np.flatnonzero(reasons == "")
    image_of = np.array([place[image] for image in pictures.image_of[rows].tolist()], np.int64)
    left = None if budget is None else max(0.0, budget - (time.monotonic() - start) / 60)
    with steps.progress("judging pairs")("judging", len(rows)) as advance:
        found = judge_pairs(
            features,
            image_of,
            [own.captions[row] for row in rows.tolist()],
            work=work / "judge",
            seed=seed,
            budget_minutes=left,
            advance=advance,
        )
    return Judgement(
        rows,
        image_of,
        found.table,
        found.better,
        found.share,
        found.low,
        found.high,
        [files[int(name)] for name in ids],
    ), reasons


def _judge_arrays(
    arrays: tuple[NDArray[np.float32], NDArray[np.float32]],
    image_of: Int64Array,
    reasons: NDArray[np.object_],
    work: Path,
    seed: int,
    steps: "_Steps",
) -> Judgement:
    from baselines.audit.judge import judge_embeddings

    rows = np.flatnonzero(reasons == "")
    steps.plan({"judging pairs": SECONDS_PER_PAIR * len(rows), "writing the page": SECONDS_OF_PAGE})
    with steps.progress("judging pairs")("judging", len(rows)) as advance:
        found = judge_embeddings(
            *(array[rows] for array in arrays),
            image_of[rows],
            work=work / "judge",
            seed=seed,
            advance=advance,
        )
    return Judgement(
        rows, image_of[rows], found.table, found.better, found.share, found.low, found.high, None
    )


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


def _read_labels(file: Path | str | None, n: int) -> dict[int, str]:
    """Row to label, as the page downloads them."""
    if file is None:
        return {}
    found: dict[int, str] = {}
    expected = "the labels that the page downloads: columns row and label"
    for where, line in read_table(Path(file), DataError, ("row", "label"), expected=expected)[1]:
        row, label = line["row"].strip(), line["label"].strip()
        if not (row.isascii() and row.isdecimal() and 1 <= int(row) <= n) or label not in LABELS:
            raise DataError(
                f"{where}: row is {shorten(row)} and label {shorten(label)}, expected a row from 1 to {n:,} and one of "
                f"{', '.join(LABELS)}; correct it"
            )
        if found.setdefault(int(row) - 1, label) != label:
            raise DataError(f"{where}: row {row} has another label above; keep one")
    return found


def _written(
    folder: Path,
    own: OwnPairs,
    judgement: Judgement,
    reasons: NDArray[np.object_],
    doubled: Mapping[str, str],
    remarks: list[str],
    labels: Path | str | None,
    steps: _Steps,
) -> pd.DataFrame:
    """Write the folder's tables, lists and page, and return the table of pairs."""
    from baselines.audit.find_page import write_page

    rows, values, n = judgement.rows, judgement.values, len(own.captions)
    known = _read_labels(labels, n)
    order = np.argsort(-values["score"].to_numpy(np.float64), kind="stable")
    rank = np.empty(len(rows), np.int64)
    rank[order] = np.arange(1, len(rows) + 1)
    wrong, low, high = (
        round(share * len(rows)) for share in (judgement.share, judgement.low, judgement.high)
    )
    label = np.array([known.get(row, "") for row in rows.tolist()], object)
    suspect = ((rank <= wrong) & (label != "matches")) | (label == "wrong")
    added = pd.DataFrame(index=range(n))
    for name, column in {"rank": rank, **{c: values[c].to_numpy() for c in values}}.items():
        spread: Any = pd.array([pd.NA] * n, "Int64" if name == "rank" else "Float64")
        spread[rows] = column
        added[name] = spread
    for place in range(BETTER):
        texts = np.full(n, None, object)
        texts[rows] = [
            own.captions[rows[other]] if other >= 0 else None for other in judgement.better[:, place].tolist()
        ]
        added[f"better_{place + 1}"] = pd.array(texts, "string")
    added["left_out"] = pd.array(reasons, "string")
    if known:
        added["label"] = pd.array([known.get(row, "") for row in range(n)], "string")
    added = added.rename(columns={name: f"audit_{name}" for name in added if name in own.form.table.columns})
    table = pd.concat([own.form.table.reset_index(drop=True), added], axis=1)
    counts = pd.Series(reasons[reasons != ""]).value_counts()
    summary = Summary(
        source=own.form.name,
        image_column=own.image_column,
        caption_column=own.caption_column,
        n_rows=n,
        n_judged=len(rows),
        n_pictures=len(np.unique(judgement.image_of)),
        left_out={str(reason): int(count) for reason, count in counts.items()},
        doubled=len(doubled),
        wrong=wrong,
        low=low,
        high=high,
        n_suspects=int(suspect.sum()),
        labels={name: sum(each == name for each in known.values()) for name in LABELS} if known else {},
        remarks=tuple(remarks),
    )
    with steps.progress("writing the page")("writing", 3) as advance:
        _write_table(folder, table)
        own.form.save(folder / "clean", rows[~suspect])
        own.form.save(folder / "suspects", rows[suspect])
        write_text(
            folder / SUMMARY, json.dumps(summary.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"
        )
        advance(1)
        write_page(folder / PAGE, summary, own, judgement, order, reasons, doubled, known)
    table.attrs["summary"] = summary.model_dump(mode="json")
    return table


def _write_table(folder: Path, table: pd.DataFrame) -> None:
    """Write the pairs twice; CSV cells that a spreadsheet would compute get an apostrophe."""
    with atomic_path(folder / f"{PAIRS}.parquet") as temporary:
        mixed = [name for name in table if table[name].dtype == object]
        plain = table.assign(**{name: table[name].map(_plain, na_action="ignore") for name in mixed})
        plain.to_parquet(temporary, index=False)
    texts = table.select_dtypes(["object", "string"]).columns
    safe = table.assign(**{name: table[name].map(csv_cell, na_action="ignore") for name in texts})
    with atomic_path(folder / f"{PAIRS}.csv") as temporary:
        safe.to_csv(temporary, index=False, lineterminator="\n")


def _plain(value: object) -> object:
    """A cell as Parquet stores a column of mixed types: as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
