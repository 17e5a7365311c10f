"""Ranks and metrics by the letter of protocol.md: plain loops over plain numbers."""

from collections.abc import Sequence
from statistics import median


def ranks_by_definition(
    similarities: Sequence[Sequence[float]],
    captions_per_image: int,
    images_per_fold: int | None = None,
    *,
    optimistic: bool = False,
) -> tuple[list[int], list[int]]:
    """Rank of every image query and caption query: one plus the wrong items that reach the best true item."""
    n_images, n_captions = len(similarities), len(similarities[0])
    fold = images_per_fold or n_images

    def beats(score: float, best: float) -> bool:
        return score > best if optimistic else score >= best

    i2t = []
    for image in range(n_images):
        own = [c for c in range(n_captions) if c // captions_per_image == image]
        best = max(similarities[image][c] for c in own)
        rank = 1
        for caption in range(n_captions):
            same_fold = caption // captions_per_image // fold == image // fold
            if same_fold and caption not in own and beats(similarities[image][caption], best):
                rank += 1
        i2t.append(rank)
    t2i = []
    for caption in range(n_captions):
        own_image = caption // captions_per_image
        rank = 1
        for image in range(n_images):
            same_fold = image // fold == own_image // fold
            if same_fold and image != own_image:
                rank += beats(similarities[image][caption], similarities[own_image][caption])
        t2i.append(rank)
    return i2t, t2i


def metrics_by_definition(i2t: Sequence[int], t2i: Sequence[int]) -> dict[str, float]:
    """The six recalls, their sum, and median and mean rank of both directions."""
    found: dict[str, float] = {}
    for name, ranks in (("i2t", i2t), ("t2i", t2i)):
        for k in (1, 5, 10):
            found[f"{name}_r{k}"] = 100 * sum(rank <= k for rank in ranks) / len(ranks)
        found[f"{name}_median_rank"] = float(int(median(ranks)))
        found[f"{name}_mean_rank"] = sum(ranks) / len(ranks)
    found["r_sum"] = sum(found[f"{name}_r{k}"] for name in ("i2t", "t2i") for k in (1, 5, 10))
    return found
