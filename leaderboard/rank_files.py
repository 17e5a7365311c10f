"""Evidence of a result: the rank of every query, for all seeds of a row in one ``.npz`` file.

``s0_whole_i2t`` holds the ranks of seed 0 among all items, ``s0_folds_i2t`` the ranks within folds. If the scores were
known, ``s0_whole_i2t_ties`` says how much ties raise each rank. Where people judged pairs of the test split,
``s0_judged_expert`` holds what they say in the order of the scores, without the pairs themselves, and
``s0_crossed_pairs``, ``_images`` and ``_captions`` what a test over images and captions needs; rows added by earlier
versions lack these three. ``s0_trained_similarity`` and ``s0_trained_clean_probability`` hold what the networks say of
every training pair, from which the detection of wrong pairs follows; rows of other code lack them. Sizes are checked
before an array is decompressed.

The YAML file of a row is written after its ranks and decides which seeds the row has. Arrays of other seeds are left by
an addition that was stopped in between: they are not read, and the next addition to the row drops or replaces them.
"""

import hashlib
import io
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data.spec import DatasetSpec
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation.difference import Hits
from ncl_bench.evaluation.metrics import hits_per_image
from ncl_bench.evaluation.people import TIED
from ncl_bench.evaluation.protocol import expected_shape, fold_size, ranks_under, split_fold_size
from ncl_bench.evaluation.ranks import Counted, Ranks
from ncl_bench.evaluation.submission import PAIRS_FILE
from ncl_bench.files import write_bytes
from ncl_bench.foreign import reading
from ncl_bench.npy import read_npz_array

_DTYPES = (np.dtype("<u2"), np.dtype("<u4"))
_SAID = (np.dtype("u1"),)
_PLACES, _INFLUENCES = (np.dtype("<u2"),), (np.dtype("<f4"),)
_HALF = (np.dtype("<f2"),)
OF_PAIRS = "similarity", "clean_probability"
_ROUNDING = 1e-3
"""Share of the largest influence by which float32 influences may miss a sum of 0."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Fixed time stamp, so that the same ranks give the same bytes."""
_AGAIN = "remove it and its .yaml, and add its submissions again with `ncl-bench leaderboard add`"


def write_ranks(path: Path, counted: Mapping[str, Counted]) -> None:
    """Write the ranks of a row; the same ranks always give the same bytes.

    Args:
        path: the ``.npz`` file.
        counted: key of a seed (``0``) to the ranks of its test split.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for seed, ranks in counted.items():
            for name, array in arrays_of(ranks):
                member = zipfile.ZipInfo(f"s{seed}_{name}.npy", _EPOCH)
                member.compress_type = zipfile.ZIP_DEFLATED
                member.create_system = 3  # Unix, on every system, for equal bytes
                content = io.BytesIO()
                if array.dtype == np.int64:
                    array = array.astype(_DTYPES[int(array.max() > 0xFFFF)])
                np.save(content, array, allow_pickle=False)
                archive.writestr(member, content.getvalue())
    write_bytes(path, out.getvalue())


def arrays_of(counted: Counted) -> Iterator[tuple[str, NDArray[np.generic]]]:
    """Names and arrays of one seed in the file, without the seed prefix, such as ``whole_i2t``."""
    for kind, said in counted.judged.items():
        yield f"judged_{kind}", said
    for kind, values in counted.crossed.items():
        yield f"crossed_{kind}", values
    for kind, of_pairs in counted.pairs.items():
        yield f"trained_{kind}", of_pairs
    for kind, ranks in (("whole", counted.whole), ("folds", counted.folds)):
        if ranks is None:
            continue
        for side, pessimistic, optimistic in (
            ("i2t", ranks.i2t, ranks.i2t_optimistic),
            ("t2i", ranks.t2i, ranks.t2i_optimistic),
        ):
            yield f"{kind}_{side}", pessimistic
            if optimistic is not None:
                yield f"{kind}_{side}_ties", pessimistic - optimistic


def read_ranks(path: Path, seeds: Sequence[str], spec: DatasetSpec) -> dict[str, Counted]:
    """Read and check the ranks of a row; arrays of seeds that are not asked for are not read.

    Args:
        path: the ``.npz`` file.
        seeds: keys of the seeds in the YAML file beside it.
        spec: the dataset.

    Raises:
        SubmissionError: the file is damaged or larger than its ranks can be, an array is missing or of the wrong
            length, or a rank is out of range.
    """
    fold, shape = split_fold_size(spec, "test"), expected_shape(spec, "test")
    n_queries = dict(zip(("i2t", "t2i"), shape, strict=True))
    of_seeds = {}
    with reading(path, SubmissionError, fix=_AGAIN), zipfile.ZipFile(path) as archive:
        arrays = _Arrays(path, archive)
        for seed in seeds:
            whole = _ranks(arrays, f"s{seed}_whole", shape[0], spec, n_queries)
            folds = None if fold is None else _ranks(arrays, f"s{seed}_folds", fold, spec, n_queries)
            judged = _judged(arrays, f"s{seed}_judged", spec)
            crossed = _crossed(arrays, f"s{seed}_crossed", judged, n_queries)
            pairs = _of_pairs(arrays, f"s{seed}_trained_", spec.n_captions("train"))
            of_seeds[seed] = Counted(whole, folds, None, "", judged=judged, crossed=crossed, pairs=pairs)
    return of_seeds


def read_pairs(folder: Path, spec: DatasetSpec) -> dict[str, NDArray[np.float16]]:
    """What a submission's networks say of every training pair, by name; empty if it does not say so."""
    path = folder / PAIRS_FILE
    if not path.is_file():
        return {}
    with reading(path, SubmissionError, fix="score the run again"), zipfile.ZipFile(path) as archive:
        return _of_pairs(_Arrays(path, archive), "", spec.n_captions("train"))


def _of_pairs(arrays: "_Arrays", prefix: str, n_pairs: int) -> dict[str, NDArray[np.float16]]:
    """What networks say of every training pair, by name, of those that the file has."""
    of_pairs = {}
    for kind in OF_PAIRS:
        if arrays.has(name := f"{prefix}{kind}"):
            of_pairs[kind] = arrays.read(name, n_pairs, _HALF)
            if not np.isfinite(of_pairs[kind]).all():  # an order of NaN would be a number all the same
                raise SubmissionError(f"{arrays.path}: {name} is not finite; {_AGAIN}")
    return of_pairs


class _Arrays:
    """Arrays of an archive by name."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path, self.archive, self.names = path, archive, set(archive.namelist())

    def has(self, name: str) -> bool:
        return f"{name}.npy" in self.names

    def read(self, name: str, n: int, dtypes: Collection[np.dtype[Any]] = _DTYPES) -> NDArray[Any]:
        """Read numbers ``(n,)`` of one of the types."""
        return read_npz_array(self.archive, self.archive.getinfo(f"{name}.npy"), (n,), dtypes)


def _ranks(
    arrays: _Arrays, name: str, candidates: int, spec: DatasetSpec, n_queries: Mapping[str, int]
) -> Ranks:
    worst = {"i2t": (candidates - 1) * spec.captions_per_image + 1, "t2i": candidates}
    ranks, optimistic = {}, {}
    for side, n in n_queries.items():
        ranks[side] = arrays.read(f"{name}_{side}", n).astype(np.int64)
        _check_range(ranks[side], 1, np.full(n, worst[side]), f"{arrays.path}: {name}_{side}")
        if arrays.has(f"{name}_{side}_ties"):
            ties = arrays.read(f"{name}_{side}_ties", n).astype(np.int64)
            _check_range(ties, 0, ranks[side] - 1, f"{arrays.path}: {name}_{side}_ties")
            optimistic[side] = ranks[side] - ties
    return Ranks(ranks["i2t"], ranks["t2i"], optimistic.get("i2t"), optimistic.get("t2i"))


def _judged(arrays: _Arrays, name: str, spec: DatasetSpec) -> dict[str, NDArray[np.uint8]]:
    """What people say in the order of the scores, by kind; it has to be an order of what they say of this dataset."""
    judged = {}
    for kind, (n, sha256) in spec.judged.items():
        if not arrays.has(f"{name}_{kind}"):
            continue  # added where the dataset was not prepared
        judged[kind] = arrays.read(f"{name}_{kind}", n, _SAID).astype(np.uint8)
        # stable is by radix for small integers, and so ten times as fast
        in_order = np.sort(judged[kind] % TIED, kind="stable")
        if hashlib.sha256(in_order.tobytes()).hexdigest() != sha256:
            raise SubmissionError(
                f"{arrays.path}: {name}_{kind} is no order of what people say of {spec.name}'s pairs; {_AGAIN}"
            )
    return judged


def _crossed(
    arrays: _Arrays, name: str, judged: Mapping[str, NDArray[np.uint8]], n_queries: Mapping[str, int]
) -> dict[str, NDArray[np.generic]]:
    """What tests of agreement over images and captions need; empty where the row has none."""
    if "expert" not in judged or not arrays.has(f"{name}_pairs"):
        return {}
    places = arrays.read(f"{name}_pairs", len(judged["expert"]), _PLACES)
    if not np.array_equal(np.sort(places, kind="stable"), np.arange(len(places))):
        raise SubmissionError(f"{arrays.path}: {name}_pairs is no order of the judged pairs; {_AGAIN}")
    crossed: dict[str, NDArray[np.generic]] = {"pairs": places}
    for kind, side in (("images", "i2t"), ("captions", "t2i")):
        values = arrays.read(f"{name}_{kind}", n_queries[side], _INFLUENCES)
        total = values.sum(dtype=np.float64) if np.isfinite(values).all() else np.nan
        if not abs(total) <= _ROUNDING * np.abs(values).max():
            raise SubmissionError(
                f"{arrays.path}: {name}_{kind} add up to {total:g}, influences add up to 0; {_AGAIN}"
            )
        crossed[kind] = values
    return crossed


def _check_range(values: NDArray[np.int64], low: int, high: NDArray[np.int64], name: str) -> None:
    outside = np.flatnonzero((values < low) | (values > high))
    if len(outside):
        at = outside[0]
        raise SubmissionError(
            f"{name} is {values[at]:,} for query {at}, expected {low} to {high[at]:,}; {_AGAIN}"
        )


def hits_of(counted: Counted, spec: DatasetSpec) -> dict[str, Hits]:
    """Hits of each test image, per protocol."""
    hits = {}
    for protocol in spec.protocols:
        ranks = ranks_under(counted, protocol)
        hits[protocol] = Hits(
            hits_per_image(ranks), spec.captions_per_image, fold_size(protocol, len(ranks.i2t))
        )
    return hits
