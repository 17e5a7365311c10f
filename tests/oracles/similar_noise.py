"""The unit ``similar`` as protocol.md defines it, caption by caption, without a sparse product."""

import math
import re


def words(caption: str) -> set[str]:
    """Words of a caption; a Chinese character is a word of its own."""
    found = set()
    for run in re.findall(r"[^\W_]+", caption.lower()):
        for part in re.split("([\u4e00-\u9fff])", run):
            if part:
                found.add(part)
    return found


def exchange(order: list[int], captions: list[str], each: int) -> list[int] | int:
    """``caption_to_image`` after the exchange, or the number of captions that find no place."""
    sets = [words(caption) for caption in captions]
    image = [c // each for c in range(len(captions))]
    m = len(order)
    frequency: dict[str, int] = {}
    for c in order:
        for word in sets[c]:
            frequency[word] = frequency.get(word, 0) + 1
    terms = {word for word, n in frequency.items() if 2 <= n <= max(1000, m // 20)}
    q = []
    for c in order:
        weights = {word: math.log(m / frequency[word]) for word in sets[c] & terms}
        norm = math.sqrt(sum(weight**2 for weight in weights.values()))
        q.append({word: round(4096 * weight / norm) if norm else 0 for word, weight in weights.items()})

    def wrong(i: int, j: int) -> bool:
        """Caption i with the image of j."""
        new = image[order[j]]
        of_image = [sets[c] for c in range(new * each, new * each + each)]
        return new != image[order[i]] and sets[order[i]] not in of_image

    def eligible(i: int, j: int) -> bool:
        return wrong(i, j) and wrong(j, i)

    near = []
    for i in range(m):
        products = {j: sum(q[i][word] * q[j].get(word, 0) for word in q[i]) for j in range(m)}
        ranked = sorted(
            (j for j in range(m) if products[j] > 0 and eligible(i, j)), key=lambda j: (-products[j], j)
        )
        near.append(ranked[:50])
    free = set(range(m))
    takes: dict[int, int] = {}
    exchanges: list[tuple[int, int]] = []
    left_over = []
    for i in range(m):
        if i not in free:
            continue
        j = next((j for j in near[i] if j in free), None)
        if j is None:
            j = next((j for j in range(i + 1, m) if j in free and eligible(i, j)), None)
        if j is None:
            left_over.append(i)
            continue
        free -= {i, j}
        takes[i], takes[j] = j, i
        exchanges.append((i, j))
    lost = 0
    for u in left_over:
        for v, w in reversed(exchanges):
            if wrong(u, v) and wrong(v, w) and wrong(w, u):
                takes[u], takes[v], takes[w] = v, w, u
                exchanges.remove((v, w))
                break
        else:
            lost += 1
    if lost:
        return lost
    moved = list(image)
    for i, j in takes.items():
        moved[order[i]] = image[order[j]]
    return moved
