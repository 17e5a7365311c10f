"""CCA: ridge canonical correlation of image features and words, the linear control; and CCA on the pairs that it keeps.

Hotelling, "Relations Between Two Sets of Variates", Biometrika 1936; with a ridge (Vinod, 1976); for image-text
retrieval Gong, Ke, Isard, Lazebnik, IJCV 2014. The solution is closed: nothing is trained by gradient steps. CCA has no
defence against wrong pairs.

CCA, filtered judges every pair by projections that were fitted without its image (cross-fitting: Chernozhukov et al.,
2018), estimates the share of wrong pairs from these similarities, and fits again on the rest. The estimate of the share
is that of ``ncl-bench audit``. Neither control sees the true correspondence.

An epoch is one setting of the grid of ridges and components, so dev chooses the setting, and the round.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, cast

import numpy as np
import torch
from pydantic import Field, PositiveFloat, PositiveInt
from scipy.sparse import csr_array
from torch import Tensor, nn

from baselines.backbones.linear import Linear
from baselines.kit.batches import TrainingBatches, derive_seed
from baselines.kit.cca import Moments, Projections
from baselines.kit.method import EpochPlan, Method, PairMemory, Setting, Step
from baselines.kit.options import Options
from baselines.kit.share import share_of_wrong, suspicion
from ncl_bench.errors import TrainingError
from ncl_bench.npy import Float32Array, Int64Array

FOLDS_OF_A_FIT = 3
FIRST_EPOCH = 0, "fit", 0
"""Round, phase and number of the first epoch."""
FEWEST_OCCURRENCES = 3
"""Captions that a word must occur in."""
IMAGES_PER_COMPONENT = 5
"""Components are at most a fifth of the images."""
MOST_DRAWS, CHANCE = 10, 20_000
"""Captions of other images for each image: at most 10, about 20,000 in all, one each at least."""
Ridge = PositiveFloat
Components = PositiveInt


class CCAConfig(Options):
    """The grid, and what judges the pairs.

    Attributes:
        image_ridges: added to the variances of image features, in units of their mean, each above 0.
        word_ridges: the same for words.
        components: numbers of components, each at most the backbone's ``embed_size``.
        judge: image ridge, word ridge and components of the projections that judge the pairs.
        most_words: the most frequent words are used, at most this number; memory grows with its square.
    """

    image_ridges: Annotated[tuple[Ridge, ...], Field(min_length=1)] = (0.5, 1.0, 2.0, 4.0)
    word_ridges: Annotated[tuple[Ridge, ...], Field(min_length=1)] = (1.0, 2.0)
    components: Annotated[tuple[Components, ...], Field(min_length=1)] = (128, 256)
    judge: tuple[Ridge, Ridge, Components] = (1.0, 1.0, 128)
    most_words: PositiveInt = 10_000


class FilteredCCAConfig(CCAConfig):
    """As for CCA.

    Attributes:
        rounds: fits on the pairs that the fit before keeps; dev also chooses among them and the fit on all pairs.
    """

    rounds: PositiveInt = 3


@dataclass(frozen=True)
class PairFeatures:
    """The training pairs as CCA reads them: memory grows with the pairs, not with their square.

    Attributes:
        ids: int64 ``(n,)``, positions in the full training split, ascending.
        images: float32 ``(n_images, d)``, pooled features.
        image_of: int64 ``(n,)``, row of each pair's image.
        captions: float64 ``(n, t)``, weighted words.
        words: int64 ``(t,)``, token ids of the words.
    """

    ids: Tensor
    images: Float32Array
    image_of: Int64Array
    captions: csr_array
    words: Tensor


class CCA(Method):
    """One linear network.

    Attributes:
        clean_probability: probability that each pair is right, judged without its image; 1 before the first fit.
        kept: 1 for the pairs of this round's fit, else 0.
        similarity: cosine of each pair, likewise.
        wrong: float64 scalar, estimated share of wrong pairs.
    """

    name = "cca"
    title = "CCA"
    paper = "https://doi.org/10.1093/biomet/28.3-4.321"
    Config = CCAConfig
    config: CCAConfig
    closed_form = True
    wrong: Tensor

    def __init__(self, config: CCAConfig, setting: Setting) -> None:
        super().__init__(config, setting)
        most = max(*config.components, config.judge[2])
        if most > self.network.embed_size:
            raise TrainingError(
                f"CCA needs {most} components, and backbone.embed_size is {self.network.embed_size}; set it to {most} "
                "or more"
            )
        self.clean_probability = PairMemory(setting.n_pairs, initial=1.0)
        self.kept = PairMemory(setting.n_pairs, initial=1.0)
        self.similarity = PairMemory(setting.n_pairs, initial=0.0)
        self.register_buffer("wrong", torch.zeros((), dtype=torch.float64))
        self.pairs: PairFeatures | None = None
        self.fits: dict[tuple[int, float, float], Projections] = {}
        self.folds: list[Moments] = []

    @property
    def network(self) -> Linear:
        """The network that is fitted."""
        # the recipe refuses backbones that are not fitted in closed form
        return cast(Linear, self.networks[0])

    def trained_modules(self) -> Sequence[nn.Module]:
        """None: no module has a gradient."""
        return []

    @property
    def rounds(self) -> int:
        """Number of fits on kept pairs, after the one on all."""
        return 0

    def grid(self) -> list[tuple[float, float, int]]:
        """Image ridge, word ridge and components of every setting."""
        c = self.config
        return list(product(c.image_ridges, c.word_ridges, c.components))

    def plan(self) -> Sequence[EpochPlan]:
        """One entry per round and setting; the learning rate has no meaning."""
        return [
            EpochPlan(round, epoch, "fit", 0.0)
            for round in range(self.rounds + 1)
            for epoch in range(len(self.grid()))
        ]

    def train_epoch(self, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Fit one setting on the pairs of the round."""
        pairs = self.pairs = self.pairs or self.read(batches)
        if plan.epoch == 0 and plan.round > 0:
            self.keep_probable(pairs)  # by the round before
        if plan.epoch == 0 or not self.folds:  # resumed within a round
            self.folds = [self.moments(pairs, fold) for fold in self.fold_rows(pairs, batches.seed)]
            self.fits = {}
        if plan.epoch == 0:
            self.judge(pairs, batches.seed)
        image_ridge, word_ridge, components = self.grid()[plan.epoch]
        key = plan.round, image_ridge, word_ridge
        if key not in self.fits:
            most = self.allowed(pairs, max(self.config.components))
            whole = self.folds[0].plus(*self.folds[1:])
            self.fits = {key: whole.projections(most, (image_ridge, word_ridge))}
        self.network.project_by(self.fits[key], pairs.words, components)

    def allowed(self, pairs: PairFeatures, components: int) -> int:
        """Return the number of components, which few images limit."""
        return max(1, min(components, len(np.unique(pairs.image_of)) // IMAGES_PER_COMPONENT))

    def read(self, batches: TrainingBatches) -> PairFeatures:
        """Read every pair once, and weight the words."""
        network, n = self.network, self.setting.n_pairs
        image_rows = batches.shown_images
        images: Float32Array | None = None
        read = []
        # a resumed run reads in the order of the first epoch too, so that the last bits of the weights agree
        batches.epoch_key = FIRST_EPOCH
        for batch in batches.covering("read"):
            pooled = network.pooled(batch.image_features, batch.image_lengths).cpu().numpy()
            if images is None:
                images = np.zeros((int(image_rows.max()) + 1, pooled.shape[1]), np.float32)
            images[image_rows[batch.pair_ids.cpu()].numpy()] = pooled
            read.append((batch.pair_ids.cpu(), batch.caption_tokens.cpu(), batch.caption_lengths))
            network.captions_encoded += len(batch)
        assert images is not None  # a training split has pairs
        occurs = torch.zeros(len(network.word_idf), dtype=torch.int64)
        for _, tokens, lengths in read:
            inside = torch.arange(tokens.shape[1]) < lengths[:, None]
            occurs_here = torch.zeros(len(tokens), len(occurs), dtype=torch.bool)
            occurs_here[torch.nonzero(inside)[:, 0], tokens[inside]] = True
            occurs += occurs_here.sum(dim=0)
        n_read = len(batches.pair_ids)
        # a token of every caption says nothing: the start and the end
        useful = torch.nonzero((occurs >= FEWEST_OCCURRENCES) & (occurs < n_read)).squeeze(1)
        words = (
            useful[occurs[useful].argsort(descending=True, stable=True)[: self.config.most_words]]
            .sort()
            .values
        )
        if len(words) == 0:
            raise TrainingError(
                f"no word occurs in {FEWEST_OCCURRENCES} training captions or more, so CCA has nothing to fit; train "
                "on more pairs"
            )
        idf = torch.zeros(len(occurs))
        idf[words] = (((1 + n_read) / (1 + occurs[words].double())).log() + 1).float()
        network.word_idf.copy_(idf)
        column = torch.full((len(occurs),), -1)
        column[words] = torch.arange(len(words))
        rows, columns, shares = [], [], []
        for ids, tokens, lengths in read:
            share = network.word_shares(tokens.to(network.word_idf.device), lengths).cpu()
            inside = share > 0
            rows.append(ids[torch.nonzero(inside)[:, 0]])
            columns.append(column[tokens[inside]])
            shares.append(share[inside].double())
        entries = torch.cat(shares).numpy(), (torch.cat(rows).numpy(), torch.cat(columns).numpy())
        whole = csr_array(entries, shape=(n, len(words)))
        whole.sum_duplicates()
        ids = batches.pair_ids
        return PairFeatures(ids, images, image_rows[ids].numpy(), whole[ids.numpy()], words)

    def keep_probable(self, pairs: PairFeatures) -> None:
        """Choose the pairs of the next round; CCA has one round."""

    def fold_rows(self, pairs: PairFeatures, seed: int) -> list[Int64Array]:
        """Rows of each fold; all pairs of an image fall into one."""
        different, number = np.unique(pairs.image_of, return_inverse=True)
        order = np.random.default_rng(derive_seed(seed, "folds")).permutation(len(different)) % FOLDS_OF_A_FIT
        return [np.flatnonzero(order[number] == fold) for fold in range(FOLDS_OF_A_FIT)]

    def moments(self, pairs: PairFeatures, rows: Int64Array) -> Moments:
        """Sum over the kept pairs of a fold; each pair counts once, an image as often as it has captions."""
        kept = rows[self.kept.read(pairs.ids[rows]).cpu().numpy() > 0]
        return Moments.of(pairs.images, pairs.image_of[kept], pairs.captions[kept])

    def judge(self, pairs: PairFeatures, seed: int) -> None:
        """Estimate the clean probability of every pair from projections that were fitted on the other folds."""
        image_ridge, word_ridge, components = self.config.judge
        random = np.random.default_rng(derive_seed(seed, "chance"))
        n = len(pairs.ids)
        draws = max(1, min(MOST_DRAWS, CHANCE // n))
        own, chance = np.zeros((n, 1), np.float32), np.zeros((n, draws, 1), np.float32)
        number = np.zeros(n, np.int64)
        for fold, rows in enumerate(self.fold_rows(pairs, seed)):
            number[rows] = fold
            others = [moments for k, moments in enumerate(self.folds) if k != fold]
            fitted = (
                others[0]
                .plus(*others[1:])
                .projections(self.allowed(pairs, components), (image_ridge, word_ridge))
            )
            images = fitted.of_images(pairs.images[pairs.image_of[rows]].astype(np.float64))
            captions = fitted.of_captions(pairs.captions[rows])
            own[rows, 0] = (images * captions).sum(axis=1)
            for draw in range(draws):
                other = captions[random.permutation(len(rows))]
                chance[rows, draw, 0] = (images * other).sum(axis=1)
        scores, planted = suspicion(own, chance, number)
        share = share_of_wrong(scores, planted, pairs.image_of, np.ones(n, bool))
        self.clean_probability.write(pairs.ids, torch.from_numpy(1 - share.probability))
        self.similarity.write(pairs.ids, torch.from_numpy(own[:, 0]))
        self.wrong.fill_(share.share)

    def estimates(self) -> dict[str, Tensor]:
        """The clean probability of the last round."""
        return {"clean_probability": self.clean_probability.values}


class CCAFiltered(CCA):
    """One linear network, fitted again on the pairs that the round before keeps."""

    name = "cca_filtered"
    title = "CCA, filtered"
    Config = FilteredCCAConfig
    config: FilteredCCAConfig

    @property
    def rounds(self) -> int:
        """Number of fits on kept pairs, after the one on all."""
        return self.config.rounds

    def keep_probable(self, pairs: PairFeatures) -> None:
        """Keep the most similar pairs, as many as the estimate calls right; the true ratio is not known here."""
        similarity = self.similarity.read(pairs.ids)
        n_right = max(2, round((1 - self.wrong.item()) * len(similarity)))
        kept = torch.zeros_like(similarity)
        kept[similarity.argsort(descending=True, stable=True)[:n_right]] = 1.0
        self.kept.write(pairs.ids, kept)
