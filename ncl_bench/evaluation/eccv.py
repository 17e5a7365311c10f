"""Metrics with more true matches than an image's own captions: ECCV Caption and CxC.

A dataset names its labels (:class:`ncl_bench.data.spec.LabelSource`). See "More true matches" in docs/protocol.md for
the definitions.
"""

import numpy as np

from ncl_bench.data.spec import Labels, Matches
from ncl_bench.evaluation.metrics import CUTOFFS
from ncl_bench.evaluation.scores import BLOCK, Rows
from ncl_bench.npy import Int64Array


def places_in_rows(scores: Rows, i2t: Matches, t2i: Matches) -> tuple[Int64Array, Int64Array]:
    """Count, for every match, the items of its query that score at least as high, itself included.

    Args:
        scores: ``(n_images, n_captions)``.
        i2t: captions that match images.
        t2i: images that match captions.

    Returns:
        Two int64 ``(n_matches,)`` arrays, i2t and t2i; places start at 1.
    """
    n_images = scores.shape[0]
    blocks = [(start, min(start + BLOCK, n_images)) for start in range(0, n_images, BLOCK)]
    # Matches of one caption lie in different rows, so read the scores of all t2i matches before comparing.
    by_image = np.argsort(t2i.item, kind="stable")
    edges = np.searchsorted(t2i.item[by_image], np.arange(n_images + 1))
    # in the scores' own precision: a rounded threshold would make ties
    threshold = np.empty(len(t2i.item), scores.rows(0, 1).dtype)
    for start, stop in blocks:
        here = by_image[edges[start] : edges[stop]]
        threshold[here] = scores.rows(start, stop)[t2i.item[here] - start, t2i.query[here]]
        scores.release(start, stop)
    # a caption with several matches is read once
    captions, column = np.unique(t2i.query, return_inverse=True)
    of_image = np.searchsorted(i2t.query, np.arange(n_images + 1))
    at_or_above = np.empty(len(i2t.query), np.int64), np.zeros(len(t2i.query), np.int64)
    for start, stop in blocks:
        block = scores.rows(start, stop)
        for row, line in enumerate(block, start):
            mine = slice(of_image[row], of_image[row + 1])
            own = line[i2t.item[mine], None]
            at_or_above[0][mine] = np.count_nonzero(line >= own, axis=1)
        at_or_above[1][:] += np.count_nonzero(block[:, captions][:, column] >= threshold, axis=0)
        scores.release(start, stop)
    return at_or_above


def metrics_of(labels: Labels, i2t: Rows, t2i: Rows) -> tuple[dict[str, float], dict[str, float]]:
    """Compute the metrics of ECCV Caption and the recalls of CxC.

    Args:
        labels: labels of the split.
        i2t: similarities ``(n_images, n_captions)`` of images as queries; a wrong item with the same score counts
            before a match.
        t2i: those of captions as queries, images as rows; usually the same.

    Returns:
        Percentages for ``i2t`` and ``t2i``: ``i2t_map_at_r``, ``i2t_r_precision`` and ``i2t_r1`` by the labels of ECCV
        Caption; ``i2t_r1``, ``i2t_r5`` and ``i2t_r10`` by the labels of CxC.
    """

    def places(matches: tuple[Matches, Matches]) -> tuple[Int64Array, Int64Array]:
        in_rows = places_in_rows(i2t, *matches)
        return in_rows if t2i is i2t else (in_rows[0], places_in_rows(t2i, *matches)[1])

    eccv: dict[str, float] = {}
    cxc: dict[str, float] = {}
    for direction, matches, place in zip(("i2t", "t2i"), labels.eccv, places(labels.eccv), strict=True):
        order, number, rank = ranks_of_matches(matches, place)
        total = matches.total[order]
        found = rank <= total
        weight = 100.0 / (total * len(matches.total))
        eccv[f"{direction}_map_at_r"] = float((weight * found * number / rank).sum())
        eccv[f"{direction}_r_precision"] = float((weight * found).sum())
        eccv[f"{direction}_r1"] = 100.0 * int(np.count_nonzero(rank == 1)) / len(matches.total)
    for direction, matches, place in zip(("i2t", "t2i"), labels.cxc, places(labels.cxc), strict=True):
        _, number, rank = ranks_of_matches(matches, place)
        best = rank[number == 1]
        for k in CUTOFFS:
            cxc[f"{direction}_r{k}"] = 100.0 * int(np.count_nonzero(best <= k)) / len(matches.total)
    return eccv, cxc


def ranks_of_matches(matches: Matches, places: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Ranks of the matches of each query, best first.

    The rank of a query's ``j``-th best match is ``j`` plus the number of wrong items that score as high or higher.

    Args:
        matches: matches of one direction.
        places: int64 ``(n_matches,)``, number of items of the query that score at least as high as the match.

    Returns:
        For every match, grouped by query: number of its query, its own number ``j`` from 1, and its rank; int64
        ``(n_matches,)`` each.
    """
    # the last key sorts first: by query, then by place
    ordered = np.lexsort((places, matches.query))
    query, place = matches.query[ordered], places[ordered]
    first = np.flatnonzero(np.diff(query, prepend=-1))
    query_number = np.cumsum(np.diff(query, prepend=-1) > 0) - 1
    # counts from 1 within each query
    number = np.arange(len(query)) - first[query_number] + 1
    # Tied matches share one place, which counts all of them. Only the last one of a tie has no match behind it.
    last_of_tie = np.append((np.diff(place) != 0) | (np.diff(query) != 0), True)
    ends = np.flatnonzero(last_of_tie)
    number_of_last = number[ends[np.searchsorted(ends, np.arange(len(query)))]]
    return query_number, number, number + place - number_of_last
