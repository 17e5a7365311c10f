"""GSC in one file: Eq. 3 to 10 and Algorithm 1 of the paper, on the embedded digits with 40 % of the captions moved.

Zhao et al., Mitigating Noisy Correspondence by Geometrical Structure Consistency Learning, CVPR 2024:
https://arxiv.org/abs/2405.16996

Read it with the paper beside it: the functions follow the paper's equations, then the lines of Algorithm 1. A comment
stands at each line that needs more than the paper says, or does something else. There it follows the published code,
as `gsc_plus` of `baselines/methods/gsc.py` does. A test compares the losses of both, bit for bit.

    python examples/gsc_in_one_file.py    # a minute on one CPU core
"""

import copy
import warnings
import zlib

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import nn
from torch.nn.functional import cosine_similarity, normalize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import ncl_bench
from ncl_bench import load_dataset

TAU_1, TAU_2, GAMMA, BETA = 0.07, 1.0, 0.01, 0.7  # section 4.2; beta_1 and beta_2 are equal
BATCH, SIZE = 128, 64  # section 4.2: 128; the joint spaces of the paper have 1024 dimensions
EPOCHS, RATE = 4, 3e-3  # published code: 60 and 2e-4 on Flickr30K, which has fourteen times as many pairs


class Network(nn.Module):
    """f and g: layers over regions, a Bi-GRU over words, and unit vectors, so that <., .> is the cosine.

    The paper's networks, SGR and SAF, compare regions with words.
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
        captions = self.captions(batch["caption_tokens"], batch["caption_lengths"])
        return self.images(batch["image_features"]), captions


def cross_modal_indicator(similarities):
    """y_CM of Eq. 3, one value per pair: how much of the softmax is its own, in both directions."""
    # Eq. 3 sums over all N items; the published code over the batch, as the paper says of the structures
    logits = similarities / TAU_1
    return (logits.softmax(dim=1).diagonal() + logits.softmax(dim=0).diagonal()) / 2


def intra_modal_indicator(agreement, seed):
    """y_IM of Eq. 4: posterior of the component with the larger agreement, one value per pair of the dataset."""
    agreement = agreement.numpy()
    s = (agreement - agreement.min()) / (
        agreement.max() - agreement.min()
    )  # published code; not in the paper
    # the paper names no constants; the published code has those of NCR's code, and stops after ten iterations
    mixture = GaussianMixture(2, max_iter=10, tol=1e-2, reg_covar=5e-4, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(s[:, None])
    posterior = mixture.predict_proba(s[:, None])[:, mixture.means_.ravel().argmax()]
    return torch.from_numpy(posterior).float()


def cross_modal_loss(similarities, y):
    """L_CM of Eq. 6, one value per pair: a label of 0 takes the pair out of the loss."""
    logits = similarities / TAU_1
    rows, columns = (logits.log_softmax(dim=dim).diagonal() for dim in (1, 0))
    return y * (-(rows + columns) / 2)


def structures(images, captions, y):
    """The rows of Eq. 7 and 8: y^k <I_i, I_k> and y^k <T_i, T_k>; a doubtful pair is no landmark for the others."""
    return y * (images @ images.T), y * (captions @ captions.T)


def intra_modal_loss(of_images, of_captions, y):
    """L_IM of Eq. 7, one value per pair: among all captions, an image's structure finds that of its own."""
    logits = of_images @ of_captions.T / TAU_2
    return -y * logits.log_softmax(dim=1).diagonal()  # Eq. 7 has no y here; the published code has


def agreement(of_images, of_captions):
    """S_IM of Eq. 8, one value per pair."""
    return cosine_similarity(of_images, of_captions, dim=1)


class Labels:
    """What one network says of every pair: y_CM and y_IM of Eq. 10, and y of Eq. 5."""

    def __init__(self, n_pairs):
        # the paper does not say how the labels begin; in the published code every pair is trusted for an epoch
        self.cross_modal, self.intra_modal, self.y = torch.ones(3, n_pairs)

    def update(self, cross_modal, agreement, seed):
        """End an epoch: Eq. 4, Eq. 10 and Eq. 5."""
        intra_modal = intra_modal_indicator(agreement, seed)
        self.cross_modal = BETA * cross_modal + (1 - BETA) * self.cross_modal
        self.intra_modal = BETA * intra_modal + (1 - BETA) * self.intra_modal
        self.y = torch.minimum(self.cross_modal, self.intra_modal)


def seed_of(*purpose):
    """Every random order has a seed of its own."""
    return zlib.crc32(repr(purpose).encode())


def batches(train, *purpose):
    """One pass over all pairs in random order."""
    order = np.random.default_rng(seed_of("order", *purpose)).permutation(np.arange(len(train)))
    blocks = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    return (train.to_torch(block) for block in blocks if len(block) > 1)  # a single pair has no negatives


def step(network, optimizer, loss):
    """One step of Adam."""
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(network.parameters(), 2.0)  # published code; not in the paper
    optimizer.step()


def train_epoch(networks, optimizers, labels, train, epoch):
    """Lines 3 to 11 of Algorithm 1."""
    seen = torch.ones(len(networks), 2, len(train))  # y_CM and S_IM of this epoch
    for batch in batches(train, "train", epoch, "train"):
        # line 3 trains A, then B; the published code trains both on each batch. The labels are those of the epoch
        # before either way
        for k, network in enumerate(networks):
            y = labels[1 - k].y[batch["pair_ids"]]  # line 11: of the other network
            images, captions = network.train()(batch)
            similarities = images @ captions.T
            of_images, of_captions = structures(images, captions, y)
            loss = cross_modal_loss(similarities, y).mean()
            loss = loss + GAMMA * intra_modal_loss(of_images, of_captions, y).mean()  # Eq. 9
            # lines 5 and 6 from the forward pass of the step, so that no pair is encoded twice
            with torch.no_grad():
                found = cross_modal_indicator(similarities), agreement(of_images, of_captions)
                seen[k][:, batch["pair_ids"]] = torch.stack(found)
            step(network, optimizers[k], loss)
    for k, own in enumerate(labels):
        own.update(*seen[k], seed_of("mixture", epoch, k))


def algorithm_1(networks, train, epochs):
    """Train both networks; yields the labels after every epoch."""
    optimizers = [torch.optim.Adam(network.parameters(), lr=RATE) for network in networks]
    labels = [Labels(len(train)) for _ in networks]
    for epoch in range(epochs):
        train_epoch(networks, optimizers, labels, train, epoch)
        yield labels


@torch.no_grad()
def score(networks, split):
    """Evaluate the mean of the similarities of A and B; rows are images."""
    dataset = load_dataset("digits", split=split)
    encoded = [
        network.eval()(dataset.to_torch()) for network in networks
    ]  # images as often as they have captions
    mean = torch.stack([images[:: dataset.captions_per_image] @ captions.T for images, captions in encoded])
    return ncl_bench.evaluate(mean.mean(dim=0), dataset="digits", split=split)


if __name__ == "__main__":
    torch.manual_seed(0)
    train = load_dataset("digits", split="train", noise_ratio=0.4)
    networks = [Network(train.feature_dim, train.vocabulary.size) for _ in "AB"]  # line 1: separately
    best = 0.0
    for epoch, labels in enumerate(algorithm_1(networks, train, EPOCHS)):
        r_sum = score(networks, "dev").r_sum
        print(f"epoch {epoch + 1}: rSum {r_sum:.1f} on dev, mean label {labels[0].y.mean():.2f}")
        if r_sum > best:  # the best sum of the recalls on the validation set
            best, chosen = r_sum, copy.deepcopy(networks)
    print(score(chosen, "test"))
