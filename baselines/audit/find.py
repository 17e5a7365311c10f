"""From a user's pairs to the wrong ones, in one call: ``ncl-bench audit captions.csv --images photos``.

``pairs.csv``, ``pairs.parquet``    the rows as they came, with rank, score, probability, cause and better captions
``clean.*``, ``suspects.*``         rows that look right, and those to look at, in the form of the input
``corrected.*``                     ``clean`` and the rows whose better caption was accepted; only with such labels
``repaired.*``                      all rows, with shifted captions moved back; only if captions are shifted
``index.html``, ``result.json``     the suspects with their pictures, and how many they are
``work``                            features and estimates, from which the same call resumes
"""

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from baselines.audit.assemble import BETTER_ROWS, Audit, Source, assemble
from baselines.audit.cca import PROJECTIONS
from baselines.audit.labels import read_labels
from baselines.audit.lists import forget, repaired, write_lists
from baselines.audit.page import write
from baselines.audit.reasons import other_script
from baselines.audit.result import counts, free_name
from ncl_bench.arguments import AnyPath
from ncl_bench.data.pairs.columns import read_pairs
from ncl_bench.data.pairs.kept import KeptRows, write_kept
from ncl_bench.data.pairs.listing import Parts, refuse_other_parts
from ncl_bench.data.pairs.pictures import Pictures, find_pictures
from ncl_bench.data.pairs.rows import UserPairs
from ncl_bench.data.pairs.write import save
from ncl_bench.data.pictures import check_picture
from ncl_bench.decoding import decoded
from ncl_bench.errors import DataError, NclBenchError, TrainingError, listed, named, shorten
from ncl_bench.evaluation.pages import thumbnail
from ncl_bench.files import refuse_existing, sha256_of_file, sole_owner, write_text
from ncl_bench.foreign import readable
from ncl_bench.npy import FloatArray, Int64Array
from ncl_bench.progress import Advance, Progress, live_bar

if TYPE_CHECKING:
    from baselines.audit.judge import Judged
    from baselines.encoders import Encoder
    from ncl_bench.options import PairColumns

FEWEST_PICTURES = 50
"""Pairs with different pictures that a judgement needs."""
ANOTHER_ORDER = (
    "Most captions do not fit their pictures. Check how the table was made: the captions may stand in another order, "
    "such as 1, 2, 10 beside pictures in the order 1, 10, 2."
)
ADDED = (
    *("rank", "score", "probability", "similarity", "lemon", "reason", "better_1", "better_2", "better_3"),
    *("suspect", "left_out", "label", "correction"),
)
"""Columns of an audit beside those of a user; the last two only with labels."""
SHORT = 16
"""Hexadecimal digits of a picture's hash."""
WORK, JUDGE, INPUT, PICTURES = "work", "judge", "input.sha256", "pictures.sha256"
ENCODING, JUDGING, WRITING = "encoding pictures", "judging pairs", "writing the page"
SECONDS_PER_PICTURE, SECONDS_PER_PAIR, SECONDS_OF_JUDGING, SECONDS_OF_PAGE = 0.06, 0.007, 10.0, 5.0
"""What the bar starts from; it corrects itself. Judging has a fixed part: models of ten folds, and resamples."""
Arrays = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class Encoders:
    """How pictures and captions are read: arguments of :func:`baselines.find_wrong_pairs`."""

    encoder: str = ""
    text_encoder: str | None = None
    prior: Path | None = None
    device: str = "auto"
    strict: bool = False

    @property
    def projections(self) -> Path | None:
        """The file of an audit that orders other pairs."""
        return self.prior and self.prior / WORK / JUDGE / PROJECTIONS


def find(
    pairs: Any,
    arrays: Arrays | None,
    by: Encoders,
    *,
    images: AnyPath | None,
    to: AnyPath | None,
    columns: "PairColumns",
    labels: AnyPath | None,
    seed: int,
    parts: Parts = (),
) -> pd.DataFrame:
    """Audit pairs by their pictures, or by embeddings, whose files are ``parts``.

    See :func:`baselines.find_wrong_pairs`.
    """
    user_pairs = _opened(pairs, columns, arrays, parts)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(to or Path(scratch, "audit"))
        key = _key(user_pairs, arrays, by, seed)
        # before any picture is read: a folder of another audit costs no minutes
        _refuse_other(folder, key)
        # a second audit of the same folder would mix its features with these
        with sole_owner(folder):
            work = folder / WORK
            # all that a user can correct is refused in here, before the encoding begins
            with _begun(folder, key):
                pictures = _pictures(user_pairs, None if images is None else Path(images), work, arrays)
                left_out = _left_out(user_pairs, None if arrays else pictures, by.strict)
                image_of = _images_of(arrays[0]) if arrays else pictures.image_of
                _refuse_few(user_pairs, left_out, image_of, None if arrays else pictures)
                shown = _Shown(user_pairs, pictures, arrays)
                # labels name pictures by their content, so the pictures must be known
                known = read_labels(labels, shown.names, user_pairs.captions, shown.identity)
                network = None if arrays else _encoder(by)
            judging = left_out == ""
            seconds = {
                ENCODING: SECONDS_PER_PICTURE * len(np.unique(image_of[judging])) if network else 0,
                JUDGING: SECONDS_OF_JUDGING + SECONDS_PER_PAIR * judging.sum(),
                WRITING: SECONDS_OF_PAGE,
            }
            with _steps(seconds) as progress:
                if network:
                    image_of, judged = _judge_pictures(
                        user_pairs, pictures, left_out, work, network, by, seed, progress
                    )
                elif arrays:
                    judged = _judge_arrays(arrays, image_of, work, seed, progress)
                with progress(WRITING)("writing", 2) as advance:
                    audit = assemble(
                        _source(user_pairs, shown, left_out, len(np.unique(image_of)), key), judged, known
                    )
                    if 2 * (audit.result.low or 0) > audit.result.n_judged and not judged.order_faults:
                        audit = audit.remarked(ANOTHER_ORDER)
                    table = _written(user_pairs, audit)
                    _write_lists(folder, user_pairs, audit, judged)
                    # pairs of Python cannot be read again later, so nothing is kept for `datasets new`
                    if isinstance(pairs, str | Path):
                        write_kept(
                            folder, _kept(user_pairs, pairs, audit, images, work, by if network else None)
                        )
                    advance(1)
                    write(folder, audit, table)
    if isinstance(pairs, pd.DataFrame):  # so that rows can be dropped from the user's frame by their index
        table.index = pairs.index[user_pairs.row_of]
    return table


def _opened(pairs: Any, columns: "PairColumns", arrays: Arrays | None, parts: Parts) -> UserPairs:
    if pairs is None and arrays:
        # embeddings alone are judged as well; their rows need some name
        rows = range(len(arrays[0]))
        return read_pairs(
            pd.DataFrame({name: [f"{name} {row}" for row in rows] for name in ("image", "caption")})
        )
    if pairs is None:  # at a terminal the argument may be left out
        raise DataError("no pairs are given; give a table of images and captions, or embeddings of both")
    user_pairs = read_pairs(
        pairs, columns.image_column, columns.caption_column, rows_in_order=columns.rows_in_order
    )
    if arrays:
        refuse_other_parts(user_pairs.parts, parts)
    return user_pairs


def _encoder(by: Encoders) -> "Encoder":
    """The network of the pictures; what either encoder needs is refused before any picture is encoded."""
    from baselines.audit.sentences import require_encoder
    from baselines.encoders import load_encoder

    if by.text_encoder is not None:
        require_encoder(by.text_encoder)
    return load_encoder(by.encoder, None, by.device)


def _key(user_pairs: UserPairs, arrays: Arrays | None, by: Encoders, seed: int) -> str:
    """Hash of all that the judgement depends on, but for the pictures' files."""
    settings = [user_pairs.images, user_pairs.captions, by.encoder, by.text_encoder, seed]
    digest = hashlib.sha256(json.dumps(settings).encode())
    if by.projections:
        expected = "the prior of an audit of 1,000 pairs or more with a sentence encoder"
        digest.update(sha256_of_file(readable(by.projections, TrainingError, expected)).encode())
    for array in arrays or ():
        for row in array:
            # row by row, as the array may be mapped from a file larger than the memory
            digest.update(row.tobytes())
    return digest.hexdigest()


def _images_of(vectors: FloatArray) -> Int64Array:
    """A number for each pair's image, int64 ``(n,)``: equal vectors are one image."""
    digests = (hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in vectors)
    # numbers in order of appearance are small, unlike the hashes
    numbers: Int64Array = pd.factorize(np.frombuffer(b"".join(digests), np.uint64))[0].astype(np.int64)
    return numbers


def _refuse_other(folder: Path, key: str) -> None:
    record = folder / WORK / INPUT
    if not record.is_file():
        refuse_existing(folder)
    elif record.read_text(encoding="utf-8") != key:
        raise TrainingError(
            f"{folder} holds the audit of other pairs or settings; choose a new folder with {named('to')}"
        )


@contextmanager
def _begun(folder: Path, key: str) -> Iterator[None]:
    """Name the pairs of a new audit; if they are refused, nothing of it stays."""
    new = not (folder / WORK / INPUT).exists()
    write_text(folder / WORK / INPUT, key)
    try:
        yield
    except NclBenchError:
        if new:
            shutil.rmtree(folder / WORK)
            with suppress(OSError):  # the user's own folder may hold a hidden file
                folder.rmdir()
        raise


def _pictures(user_pairs: UserPairs, images: Path | None, work: Path, arrays: Arrays | None) -> Pictures:
    """The rows' pictures; with embeddings only to show them, as far as they are known."""
    if arrays is None or images is not None:
        pictures = find_pictures(user_pairs, images, work / "pictures")
        # copies do not matter where no picture is judged
        return replace(pictures, doubled={}) if arrays else pictures
    with suppress(DataError):  # the embeddings are enough
        if user_pairs.folder is not None or user_pairs.pictures:
            return replace(find_pictures(user_pairs, None, work / "pictures"), doubled={})
    return Pictures({}, np.full(len(user_pairs.captions), -1), {})  # rows without a picture


def _left_out(user_pairs: UserPairs, pictures: Pictures | None, strict: bool) -> NDArray[np.object_]:
    """Why each row is left out; empty for the others. Embeddings need no picture and no caption."""
    if pictures is None:
        return np.full(len(user_pairs.captions), "", object)
    reasons = other_script(user_pairs.captions)
    # the last reason that holds stays: an empty caption says more than a missing file
    reasons[pictures.image_of < 0] = "no picture of this name"
    reasons[[not name for name in user_pairs.images]] = "no image is named"
    reasons[[not caption for caption in user_pairs.captions]] = "the caption is empty"
    if strict:
        _refuse_any(user_pairs, reasons, pictures.doubled)
    return reasons


def _refuse_any(user_pairs: UserPairs, reasons: NDArray[np.object_], doubled: Mapping[str, str]) -> None:
    """With --strict, refuse what would be left out."""
    wrong = [
        f"row {row + 1} ({shorten(user_pairs.images[row])}): {reasons[row]}"
        for row in np.flatnonzero(reasons)
    ]
    wrong += [f"{copy} is the same picture as {first}" for copy, first in doubled.items()]
    if wrong:
        raise DataError(
            f"{user_pairs.name}: {wrong[0]}, and there are {len(wrong) - 1:,} more such rows or pictures; correct "
            f"them, or leave {named('strict')} out"
        )


def _refuse_few(
    user_pairs: UserPairs, reasons: NDArray[np.object_], image_of: Int64Array, pictures: Pictures | None
) -> None:
    """Refuse too few pictures, and say why they are few; a server may have sent one page in place of all."""
    rows = np.flatnonzero(reasons == "")
    n_pictures = len(np.unique(image_of[rows]))
    if n_pictures < FEWEST_PICTURES:
        why = "".join(f"; {count:,} rows: {reason}" for reason, count in counts(reasons).items())
        files = [*pictures.files.values()][:1] if pictures else []
        # a server that refuses a download often sends a web page under the name of a picture
        for refused in filter(None, decoded(check_picture, [(str(file), file) for file in files])):
            why += f"; {str(refused).partition(';')[0]}"
        raise DataError(
            f"{user_pairs.name} has {n_pictures:,} different pictures with a caption, and at least {FEWEST_PICTURES} "
            f"are needed to learn what fits{why}; add pairs"
        )
    captions = {user_pairs.captions[row] for row in rows.tolist()}
    if len(captions) < 2:
        raise DataError(
            f"{user_pairs.name}: all {len(rows):,} captions are {shorten(captions.pop())}, so no pair can be told from "
            f"another; choose the column with {named('caption_column')}"
        )


def _judge_pictures(
    user_pairs: UserPairs,
    pictures: Pictures,
    left_out: NDArray[np.object_],
    work: Path,
    network: "Encoder",
    by: Encoders,
    seed: int,
    progress: Callable[[str], Progress],
) -> "tuple[Int64Array, Judged]":
    """Numbers of the judged rows' pictures, and what was found; damaged pictures are added to ``left_out``."""
    from baselines.audit.judge import judge_pairs
    from baselines.audit.sentences import default_encoder
    from baselines.encoders import CLIP, usual_grid
    from baselines.features import FeatureOptions, ImageList, extract

    files = list(pictures.files.values())
    # numbers, as the ids of features may hold no blanks and a name of a user may
    wanted = {f"{row:09d}": files[row] for row in np.unique(pictures.image_of[left_out == ""]).tolist()}
    # features and vectors of an earlier call count only for the same files
    _forget_other_pictures(work, wanted)
    done = extract(
        ImageList(work, list(wanted), {"all": list(wanted)}, wanted),
        network,
        work / "features",
        FeatureOptions(skip_damaged=True, grid=usual_grid(network.name)),
        workers=2,
        progress=progress(ENCODING),
    )
    # only decoding shows which pictures are damaged
    for image, reason in done.skipped.items():
        damaged = (pictures.image_of == int(image)) & (left_out == "")
        left_out[damaged] = f"the picture {reason}".partition(";")[0]
    if by.strict:
        _refuse_any(user_pairs, left_out, {})
    _refuse_few(user_pairs, left_out, pictures.image_of, pictures)
    ids = (work / "features" / "all_ids.txt").read_text(encoding="utf-8").split()
    features = np.load(work / "features" / "all_ims.npy", mmap_mode="r", allow_pickle=False)
    # damaged pictures have no features, so rows of both files differ
    row_of = {int(name): number for number, name in enumerate(ids)}
    rows = np.flatnonzero(left_out == "")
    image_of = np.array([row_of[image] for image in pictures.image_of[rows].tolist()], np.int64)
    captions = [user_pairs.captions[row] for row in rows.tolist()]
    text_encoder = by.text_encoder or (network.name if network.name.startswith(CLIP) else None)
    # the default depends on what is installed by now
    name = re.sub(r"[^a-zA-Z0-9.-]", " ", text_encoder or default_encoder(captions))
    with progress(JUDGING)("judging", len(rows)) as advance:
        judged = _judged_once(
            work / JUDGE / f"judged by {name}.parquet",
            lambda: judge_pairs(
                features,
                image_of,
                captions,
                work=work / JUDGE,
                image_encoder=network.name,
                text_encoder=text_encoder,
                prior=by.projections,
                seed=seed,
                device=by.device,
                advance=advance,
            ),
        )
    return image_of, judged


def _judge_arrays(
    arrays: Arrays, image_of: Int64Array, work: Path, seed: int, progress: Callable[[str], Progress]
) -> "Judged":
    from baselines.audit.judge import judge_embeddings

    with progress(JUDGING)("judging", len(image_of)) as advance:
        return _judged_once(
            work / JUDGE / "judged.parquet",
            lambda: judge_embeddings(*arrays, image_of, seed=seed, advance=advance),
        )


def _judged_once(kept: Path, judge: "Callable[[], Judged]") -> "Judged":
    """The judgement of these pairs, kept for the calls with labels that follow."""
    from baselines.audit.judge import Judged

    if not kept.exists():
        judge().write(kept)
    return Judged.read(kept)


def _forget_other_pictures(work: Path, wanted: Mapping[str, Path]) -> None:
    """Delete what was computed from other files, as when a missing picture was added since."""
    # size and time instead of the content, which would be read twice
    stamps = [
        [name, str(file), *((file.stat().st_size, file.stat().st_mtime_ns) if file.is_file() else ())]
        for name, file in wanted.items()
    ]
    digest = hashlib.sha256(json.dumps(stamps).encode()).hexdigest()
    record = work / PICTURES
    if not record.exists() or record.read_text(encoding="utf-8") != digest:
        for made in ("features", JUDGE):
            shutil.rmtree(work / made, ignore_errors=True)
        write_text(record, digest)


@contextmanager
def _steps(seconds: Mapping[str, float]) -> Iterator[Callable[[str], Progress]]:
    """One bar with the time left over all steps, of which each has its own progress.

    Args:
        seconds: step to the seconds that it may take.
    """
    with live_bar() as shown:
        task = shown.add_task("audit", total=sum(seconds.values()), state="")
        left = dict(seconds)

        def progress(step: str) -> Progress:
            @contextmanager
            def part(title: str, total: int) -> Iterator[Advance]:
                # a step that starts a second bar of its own adds nothing to the whole
                share, done = left.pop(step, 0.0), 0
                shown.update(task, description=step)

                def advance(amount: int) -> None:
                    nonlocal done
                    amount = min(amount, total - done)
                    done += amount
                    shown.advance(task, share * amount / max(1, total))

                yield advance
                # the next step starts where this one ends, even if it stopped early
                advance(total - done)

            return part

        yield progress


@dataclass(frozen=True)
class _Shown:
    """What tells the rows' pictures apart, and what the page shows of them.

    Attributes:
        user_pairs: the rows.
        pictures: their pictures; with embeddings as far as they are known.
        arrays: the embeddings, if they were judged.
    """

    user_pairs: UserPairs
    pictures: Pictures
    arrays: Arrays | None

    @cached_property
    def _files(self) -> list[Path | None]:
        """File of each picture, and at the end none, for rows without a picture: their number is -1."""
        return [*(file if file.is_file() else None for file in self.pictures.files.values()), None]

    @cached_property
    def names(self) -> list[str]:
        """Name of each row's image, by which labels find it again: a hash where the rows hold the pictures."""
        if self.user_pairs.image_column not in self.user_pairs.pictures:
            return self.user_pairs.images
        hashes = list(map(_hash_of, self._files))
        return [hashes[image] for image in self.pictures.image_of.tolist()]

    def identity(self, row: int) -> str:
        """Hash of a row's picture, or of its two embeddings; empty without a picture."""
        if self.arrays is not None:
            content = b"".join(side[row].tobytes() for side in self.arrays)
            return hashlib.sha256(content).hexdigest()[:SHORT]
        return _hash_of(self._files[self.pictures.image_of[row]])

    def picture(self, row: int) -> str:
        """Thumbnail of a row's picture as a data URI; empty if there is none."""
        file = self._files[self.pictures.image_of[row]]
        return "" if file is None else thumbnail(file)


def _hash_of(file: Path | None) -> str:
    return "" if file is None else sha256_of_file(file)[:SHORT]


def _source(
    user_pairs: UserPairs, shown: _Shown, left_out: NDArray[np.object_], n_pictures: int, key: str
) -> Source:
    table = pd.DataFrame(
        {
            "number": np.arange(1, len(user_pairs.captions) + 1),
            "image": shown.names,
            "caption": user_pairs.captions,
            "left_out": left_out,
            "copy_of": [shown.pictures.doubled.get(name, "") for name in user_pairs.images],
        }
    )
    columns = user_pairs.table.columns
    facts = {
        "source": user_pairs.name,
        "digest": key,
        "n_pictures": n_pictures,
        "doubled": len(shown.pictures.doubled),
        "chosen_by": free_name("rank", columns),
    }
    remarks = [*user_pairs.remarks, *shown.pictures.remarks]
    if taken := [name for name in ADDED if name in columns]:
        remarks.append(f"Your table has columns {listed(taken)}; those of the audit begin with audit_.")
    return Source(table, shown.picture, shown.identity, facts, remarks=tuple(remarks))


def _written(user_pairs: UserPairs, audit: Audit) -> pd.DataFrame:
    """The user's columns, and those of the audit under names that are free."""
    captions = dict(enumerate(user_pairs.captions))
    better = {
        f"better_{number}": audit.table[name].map(captions).astype("string")
        for number, name in enumerate(BETTER_ROWS, 1)
    }
    known = audit.table.rename(columns={"place": "rank"}).assign(**better)
    names = ADDED if audit.result.labels else ADDED[:-2]
    columns = user_pairs.table.columns
    added = known[list(names)].rename(columns={name: free_name(name, columns) for name in names})
    # without an index: pandas would join the columns by it and not by their order
    table = pd.concat([user_pairs.table.reset_index(drop=True), added], axis=1)
    table.attrs["summary"] = audit.result.model_dump(mode="json")
    table.attrs["columns"] = user_pairs.image_column, user_pairs.caption_column
    return table


def _kept(
    user_pairs: UserPairs,
    path: str | Path,
    audit: Audit,
    images: AnyPath | None,
    work: Path,
    by: Encoders | None,
) -> KeptRows:
    """What a dataset is made of after the audit; ``by`` is None if embeddings were judged."""
    return KeptRows(
        path=str(Path(path).absolute()),
        image_column=user_pairs.image_column,
        caption_column=user_pairs.caption_column,
        rows_sha256=user_pairs.sha256(),
        rows=tuple(audit.rows[~audit.suspect].tolist()),
        images=None if images is None else str(Path(images).absolute()),
        features=str((work / "features").absolute()) if by else None,
        encoder=by.encoder if by else None,
        rows_in_order=user_pairs.rows_in_order,
    )


def _write_lists(folder: Path, user_pairs: UserPairs, audit: Audit, judged: "Judged") -> None:
    chosen, given = audit.suspect, audit.table["correction"]
    corrections = {row: text for row, text in enumerate(given.tolist()) if text}
    write_lists(folder, user_pairs, audit.rows[~chosen], audit.rows[chosen], corrections)
    if judged.order_faults:
        captions = repaired(user_pairs.captions, audit.rows, judged.order_faults)
        rows = np.arange(len(user_pairs.captions))
        save(user_pairs, folder / "repaired", rows, user_pairs.caption_column, captions)
    else:
        # the same folder may hold that of an earlier call
        forget(folder, "repaired")
