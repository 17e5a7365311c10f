"""NCR in one file: Eq. 1 to 7 and Algorithm 1 of the paper, on the embedded digits with 40 % of the captions moved.

Huang et al., Learning with Noisy Correspondence for Cross-modal Matching, NeurIPS 2021:
https://proceedings.neurips.cc/paper/2021/hash/f5e62af885293cf4d511ceef31e61c80-Abstract.html

Read it with the paper beside it: the functions follow the paper's equations, then the lines of Algorithm 1. A comment
stands at each line that needs more than the paper says, or does something else. There it follows the published code,
as `baselines/methods/ncr.py` does with `label_shape: paper`. A test compares the losses of both, bit for bit.

    python examples/ncr_in_one_file.py    # some twenty seconds on one CPU core
"""

import copy
import warnings
import zlib
from itertools import count

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import ncl_bench
from ncl_bench import load_dataset

MARGIN, CURVE = 0.2, 10.0  # alpha and m (section 4.2)
BATCH, SIZE = 128, 64  # section 4.2: 128; a joint space of 2048 dimensions, word vectors of 300
WARMUP_EPOCHS, EPOCHS = 4, 2  # published code: 5 and 40 on Flickr30K, which has fourteen times as many pairs
# section 4.2: Adam's default parameters (1e-3); published code: 2e-4 for both, a tenth of it after 30 epochs
WARMUP_RATE, RATE = 3e-3, 5e-4
CLEAN = 0.95  # section 3.1: 0.5, which calls twice as many wrong pairs clean after so short a training


class Network(nn.Module):
    """f, g and S of section 3.1: layers over regions, a Bi-GRU over words, and the cosine.

    The paper's f has one layer, and its S is SGR, which compares regions with words.
    """

    def __init__(self, feature_dim, vocabulary_size):
        super().__init__()
        self.region = nn.Sequential(nn.Linear(feature_dim, SIZE), nn.ReLU(), nn.Linear(SIZE, SIZE))
        self.word = nn.Embedding(vocabulary_size, SIZE, padding_idx=0)
        self.gru = nn.GRU(SIZE, SIZE // 2, batch_first=True, bidirectional=True)

    def images(self, image_features):
        return normalize(self.region(image_features).amax(dim=1), dim=1)

    def captions(self, caption_tokens, caption_lengths):
        words = self.word(caption_tokens)
        packed = pack_padded_sequence(words, caption_lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, padding_value=-torch.inf)
        return normalize(states.amax(dim=1), dim=1)

    def forward(self, batch):
        images = self.images(batch["image_features"])
        return images @ self.captions(batch["caption_tokens"], batch["caption_lengths"]).T


def costs(similarities, margins):
    """The brackets of Eq. 2 and 6: captions as negatives of image i in row i, images of caption j in column j."""
    given = similarities.diagonal()
    captions, images = margins[:, None] + similarities - given[:, None], margins + similarities - given
    own = torch.eye(len(given), dtype=torch.bool)
    # [x]_+; where a cost is exactly 0 this keeps the gradient, which clamp drops in newer versions of torch
    return [torch.where(x < 0, 0.0, x).masked_fill(own, 0) for x in (captions, images)]


def warmup_loss(similarities):
    """L_w of Eq. 2, one value per pair; the negatives are the other pairs of the batch."""
    captions, images = costs(similarities, torch.full((len(similarities),), MARGIN))
    # Eq. 2 sums over the negatives; the published code takes the mean over all B entries, the own one being 0
    return captions.mean(dim=1) + images.mean(dim=0)


def clean_probability(losses, seed):
    """w of section 3.1: posterior of the component of Eq. 3 with the lower mean."""
    losses = (losses - losses.min()) / (losses.max() - losses.min())  # published code; not in the paper
    # the paper says EM; the published code stops it after ten iterations, converged or not, and has the other values
    mixture = GaussianMixture(2, max_iter=10, tol=1e-2, reg_covar=5e-4, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(losses[:, None])
    posterior = mixture.predict_proba(losses[:, None])[:, mixture.means_.ravel().argmin()]
    return torch.from_numpy(posterior).float()


def clean_label(w, p):
    """Eq. 4, first line, with y = 1: the label of a clean pair, one value per pair."""
    return w + (1 - w) * p  # the published code pairs every w with every P, a (B, B) matrix of labels


def noisy_label(p_a, p_b):
    """Eq. 4, second line: the label of a noisy pair."""
    return (p_a + p_b) / 2


@torch.no_grad()
def prediction(network, batch):
    """P of Eq. 5, one value per pair; in evaluation mode, as in the published code (the paper names none)."""
    captions, images = costs(network.eval()(batch), torch.full((len(batch["pair_ids"]),), MARGIN))
    # Eq. 5: S minus the mean S of the negatives. The published code: alpha minus the mean cost, where negatives that
    # are further away than alpha, and the own entry, count as exactly alpha away
    s = MARGIN - (captions.mean(dim=1) + images.mean(dim=0)) / 2
    s = s.clamp(0, MARGIN)  # Theta; the code's tau is a mean of clamped values, the paper's of s itself
    tau = s.topk(len(s) // 10 + 1).values.mean()  # the largest 10 %, and one more
    # P of pairs above tau is 1, as the text says; Eq. 5 itself exceeds 1. P is 0 where no pair of the batch has s > 0:
    # the published code goes on with 0 / 0
    return (s / tau).nan_to_num(0.0).clamp(max=1)


def soft_loss(similarities, labels):
    """L_soft of Eq. 6 with the margins of Eq. 7, one value per pair."""
    # Eq. 7: one margin per pair. In the published code the margin of pair i also serves the queries of all captions
    # with image i as negative
    margins = MARGIN * (CURVE**labels - 1) / (CURVE - 1)
    captions, images = costs(similarities, margins)
    # one margin per query, so its largest cost is that of its most similar negative, T_h or I_h
    return captions.max(dim=1).values + images.max(dim=0).values


def seed_of(*purpose):
    """Every random order has a seed of its own, so A and B see other batch sequences (section 3.1)."""
    return zlib.crc32(repr(purpose).encode())


def batches(train, rows, *purpose):
    """One pass over some pairs in random order."""
    order = np.random.default_rng(seed_of("order", *purpose)).permutation(rows)
    blocks = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    return (train.to_torch(block) for block in blocks if len(block) > 1)  # a single pair has no negatives


def step(network, optimizer, loss):
    """One step of Adam."""
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(network.parameters(), 2.0)  # published code; not in the paper
    optimizer.step()


def warm_up(networks, optimizers, train, epoch):
    """Line 1 of Algorithm 1."""
    for k, network in enumerate(networks):
        for batch in batches(train, np.arange(len(train)), "warmup", epoch, "warmup", k):
            # the paper does not say how the losses of a batch become one; the published code adds them
            step(network, optimizers[k], warmup_loss(network.train()(batch)).sum())


@torch.no_grad()
def co_divide(networks, train, epoch):
    """Lines 3 and 4: Eq. 1 and Eq. 3 for each network, w of every pair."""
    losses = torch.zeros(len(networks), len(train))
    # the paper names neither the negatives nor the mode; the published code: random batches, evaluation mode
    for batch in batches(train, np.arange(len(train)), "train", epoch, "divide"):
        for k, network in enumerate(networks):
            losses[k, batch["pair_ids"]] = warmup_loss(network.eval()(batch))
    return [clean_probability(of.numpy(), seed_of("mixture", epoch, k)) for k, of in enumerate(losses)]


def divide(w):
    """Lines 6 and 7: the rows of the clean and of the noisy pairs."""
    # lines 6 and 7 say >=; if every pair is clean, the published code calls the lowest hundredth noisy
    threshold = CLEAN if w.min() <= CLEAN else w.sort().values[len(w) // 100]
    return np.flatnonzero(w > threshold), np.flatnonzero(w <= threshold)


def train_epoch(networks, optimizers, train, epoch, epochs):
    """Lines 3 to 11."""
    probability = co_divide(networks, train, epoch)
    for k, network in enumerate(networks):  # line 5
        w = probability[1 - k]  # lines 3 and 4: the peer divides
        clean, noisy = divide(w)
        # line 8 gives no number of steps; published code: one pass over the clean pairs, noisy ones start again
        turns = (batches(train, noisy, "train", epoch, "noisy", k, turn) for turn in count())
        more = (batch for turn in turns for batch in turn)
        for batch in batches(train, clean, "train", epoch, "clean", k):
            labelled = [(batch, clean_label(w[batch["pair_ids"]], prediction(network, batch)))]
            # line 9 draws a noisy batch at every step; the published code only from the middle epoch on
            if epoch >= epochs // 2 and len(noisy) > 1:
                batch = next(more)
                labelled.append((batch, noisy_label(*(prediction(of, batch) for of in networks))))
            # line 10 is done for both batches before line 11, which the published code turns into a step on each
            for batch, labels in labelled:
                step(network, optimizers[k], soft_loss(network.train()(batch), labels).sum())


def algorithm_1(networks, train, warmup_epochs, epochs):
    """Train both networks; yields after every epoch."""
    optimizers = [torch.optim.Adam(network.parameters(), lr=WARMUP_RATE) for network in networks]
    for epoch in range(warmup_epochs):
        warm_up(networks, optimizers, train, epoch)
    for optimizer in optimizers:  # published code: Adam keeps its moments after the warm-up
        optimizer.param_groups[0]["lr"] = RATE
    for epoch in range(epochs):
        train_epoch(networks, optimizers, train, epoch, epochs)
        yield epoch


@torch.no_grad()
def score(networks, split):
    """Evaluate the mean of the similarities of A and B (section 4.2); rows are images."""
    dataset = load_dataset("digits", split=split)
    pairs = dataset.to_torch()  # each image as often as it has captions
    mean = torch.stack([network.eval()(pairs) for network in networks]).mean(dim=0)
    return ncl_bench.evaluate(mean[:: dataset.captions_per_image], dataset="digits", split=split)


if __name__ == "__main__":
    torch.manual_seed(0)
    train = load_dataset("digits", split="train", noise_ratio=0.4)
    # A and B: section 3.1 wants different initialisations
    networks = [Network(train.feature_dim, train.vocabulary.size) for _ in "AB"]
    best = 0.0
    for epoch in algorithm_1(networks, train, WARMUP_EPOCHS, EPOCHS):
        r_sum = score(networks, "dev").r_sum
        print(f"epoch {epoch + 1}: rSum {r_sum:.1f} on dev")
        if r_sum > best:  # section 4.2: the best sum of the recalls on the validation set
            best, chosen = r_sum, copy.deepcopy(networks)
    print(score(chosen, "test"))
