"""CCA in one file: the linear control, and CCA on the pairs that it keeps, on the embedded pictograms.

Hotelling, Relations Between Two Sets of Variates, Biometrika 1936; with a ridge: Vinod, Journal of Econometrics 1976;
of images and texts: Gong et al., A Multi-View Embedding Space, IJCV 2014. Pairs are judged by projections that were
fitted without them (cross-fitting: Chernozhukov et al., The Econometrics Journal 2018).

CCA looks for directions a of images and b of captions with the largest correlation a' S_xy b, where a' S_xx a and
b' S_yy b are 1. Nothing is trained by gradient steps. A test compares vectors and judgements with those of
`baselines/methods/cca.py`.

    python examples/cca_in_one_file.py    # half a minute on one CPU core
"""

import zlib

import numpy as np
from scipy.linalg import solve_triangular, svd

import ncl_bench
from ncl_bench import load_dataset

DATASET, NOISE = "pictograms", 0.4
RIDGES = (1.0, 1.0), (4.0, 1.0)  # of images and words; dev chooses
COMPONENTS = 128
JUDGE = (1.0, 1.0)  # ridges of the projections that judge pairs
FOLDS = 3
FEWEST_CAPTIONS = 3  # in which a word must occur


def image_vectors(dataset):
    """x: the mean region of each image, with square roots that tame large activations."""
    mean = dataset.image_features[:].astype(np.float64).mean(axis=1)
    return np.sign(mean) * np.sqrt(np.abs(mean))


def counts(dataset):
    """How often each word occurs in each caption."""
    found = np.zeros((len(dataset), dataset.vocabulary.size))
    tokens, lengths = dataset.tokens.padded(np.arange(len(dataset)))
    inside = np.arange(tokens.shape[1]) < lengths[:, None]
    np.add.at(found, (np.nonzero(inside)[0], tokens[inside]), 1)
    return found


def inverse_frequency(occurrences):
    """The weight of each word: the rarer, the larger; 0 for words of hardly any caption, or of all."""
    captions_with = (occurrences > 0).sum(axis=0)
    useful = (captions_with >= FEWEST_CAPTIONS) & (captions_with < len(occurrences))
    return np.where(useful, np.log((1 + len(occurrences)) / (1 + captions_with)) + 1, 0)


def caption_vectors(occurrences, idf):
    """y: TF-IDF of the words, scaled to unit length."""
    weights = np.where(occurrences > 0, 1 + np.log(np.maximum(occurrences, 1)), 0) * idf
    return weights / np.maximum(np.linalg.norm(weights, axis=1, keepdims=True), 1e-12)


def factor(vectors, ridge):
    """L with L L' = S + ridge: the covariance, and on its diagonal a part of the mean variance.

    Without the ridge, words of few captions would correlate perfectly with anything.
    """
    covariance = np.cov(vectors.T, bias=True)
    variances = covariance.diagonal().mean()
    return np.linalg.cholesky(covariance + ridge * variances * np.eye(len(covariance)))


def fit(x, y, ridges, components):
    """CCA: means and projections of both sides."""
    mean_x, mean_y = x.mean(axis=0), y.mean(axis=0)
    l_x, l_y = factor(x, ridges[0]), factor(y, ridges[1])
    across = (x - mean_x).T @ (y - mean_y) / len(x)  # S_xy
    # with a = L_x^-T u and b = L_y^-T v the constraints become |u| = |v| = 1, and the best u and v are the singular
    # vectors of L_x^-1 S_xy L_y^-T; its singular values s are the correlations
    whitened = solve_triangular(l_y, solve_triangular(l_x, across, lower=True).T, lower=True).T
    u, s, vt = svd(whitened, full_matrices=False)
    k = min(components, len(s))
    # a component counts as much as it correlates (Gong et al., with their power p = 1)
    a = solve_triangular(l_x, u[:, :k], lower=True, trans="T") * s[:k]
    b = solve_triangular(l_y, vt[:k].T, lower=True, trans="T") * s[:k]
    return (mean_x, a), (mean_y, b)


def project(vectors, side):
    """Unit vectors in the joint space, so that their products are cosines."""
    mean, directions = side
    projected = (vectors - mean) @ directions
    return projected / np.maximum(np.linalg.norm(projected, axis=1, keepdims=True), 1e-12)


def most_components(image_of):
    """A fifth of the images at most: more components than that would only repeat the pairs."""
    return max(1, min(COMPONENTS, len(np.unique(image_of)) // 5))


def seed_of(*purpose):
    """Every random order has a seed of its own."""
    return zlib.crc32(repr(purpose).encode())


def folds(image_of):
    """The rows of each fold; all captions of an image fall into one, or its right ones would judge its wrong ones."""
    images, number = np.unique(image_of, return_inverse=True)
    fold = np.random.default_rng(seed_of("folds")).permutation(len(images)) % FOLDS
    return [np.flatnonzero(fold[number] == k) for k in range(FOLDS)]


def judged(x, y, image_of, kept):
    """Cosine of each pair by projections of the kept pairs of the other folds.

    A fit follows its own pairs, wrong ones too; judged by others, a wrong pair is no more similar than chance.
    """
    similarity = np.zeros(len(x))
    for rows in folds(image_of):
        others = np.setdiff1d(kept, rows)
        images, captions = fit(x[others], y[others], JUDGE, most_components(image_of))
        similarity[rows] = (project(x[rows], images) * project(y[rows], captions)).sum(axis=1)
    return similarity


def keep(similarity, share_of_wrong):
    """The rows of the most similar pairs, as many as are right."""
    n_right = max(2, round((1 - share_of_wrong) * len(similarity)))
    return np.sort(np.argsort(-similarity, kind="stable")[:n_right])


def score(sides, idf, split):
    """Evaluate the cosines of a split; rows are images."""
    dataset = load_dataset(DATASET, split=split)
    images = project(image_vectors(dataset), sides[0])
    captions = project(caption_vectors(counts(dataset), idf)[:, idf > 0], sides[1])
    return ncl_bench.evaluate(images @ captions.T, dataset=DATASET, split=split)


def best_on_dev(x, y, image_of, idf):
    """The fit whose ridges dev chooses."""
    fits = [fit(x, y, ridges, most_components(image_of)) for ridges in RIDGES]
    return max(fits, key=lambda sides: score(sides, idf, "dev").r_sum)


if __name__ == "__main__":
    train = load_dataset(DATASET, split="train", noise_ratio=NOISE)
    occurrences = counts(train)
    idf = inverse_frequency(occurrences)
    image_of = np.asarray(train.caption_to_image)
    x, y = image_vectors(train)[image_of], caption_vectors(occurrences, idf)[:, idf > 0]
    print("all pairs")
    print(score(best_on_dev(x, y, image_of, idf), idf, "test"))
    # CCA, filtered: the share of wrong pairs is given here; baselines/kit/share.py estimates it from planted pairs
    kept = keep(judged(x, y, image_of, np.arange(len(x))), NOISE)
    print("the pairs that it keeps")
    print(score(best_on_dev(x[kept], y[kept], image_of[kept], idf), idf, "test"))
