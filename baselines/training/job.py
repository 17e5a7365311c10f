"""A training job: recipe, noise and seed; its data; and its method and networks before training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from baselines.kit.backbone import Backbone
from baselines.kit.batches import derive_seed
from baselines.kit.method import EpochPlan, Method, Setting
from baselines.training.recipe import Recipe
from baselines.training.run_folder import Outcome, RunFolder, RunRecord
from ncl_bench.data import dataset_spec, true_correspondence
from ncl_bench.data.keep import read_keep
from ncl_bench.data.load import load_dataset
from ncl_bench.data.paired import PairedDataset
from ncl_bench.data.spec import SplitName
from ncl_bench.errors import TrainingError, named
from ncl_bench.noise.draw import NoiseUnit
from ncl_bench.npy import BoolArray, Int64Array
from ncl_bench.schema import Precision


@dataclass(frozen=True)
class TrainingJob:
    """One training run.

    Attributes:
        recipe: method, backbone, dataset and their options.
        noise_ratio: nominal noise ratio, in [0, 1); clean pairs by default.
        noise_unit: ``"caption"`` (the default), ``"image"``, ``"similar"`` or ``"noun"``.
        noise_seed: seed of the noise; by default the standard seed of this noise setting.
        noise_file: noise file to use in place of drawn noise.
        seed: seed of initialisation, batch order and dropout.
        root: folder of prepared datasets.
        precision: arithmetic of the networks.
        settings: overridden recipe options, such as ``{"method.epochs": 10}``.
        keep: folder of ``ncl-bench audit apply``, whose pairs alone are trained on; all by default.
    """

    recipe: Recipe
    noise_ratio: float | None = None
    noise_unit: NoiseUnit | None = None
    noise_seed: int | None = None
    noise_file: Path | None = None
    seed: int = 0
    root: Path | None = None
    precision: Precision = "32-true"
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    keep: Path | None = None

    def load(self, split: SplitName) -> PairedDataset:
        """Load a split in the form that the backbone reads; only train has noise."""
        noisy: dict[str, Any] = {}
        if split == "train":
            names = ("noise_ratio", "noise_unit", "noise_seed", "noise_file")
            noisy = {name: getattr(self, name) for name in names}
        recipe = self.recipe
        dataset = load_dataset(
            recipe.dataset,
            split=split,
            language=recipe.language,
            tokenizer=recipe.tokenizer,
            root=self.root,
            **noisy,
        )
        return self.backbone.inputs(recipe.backbone_config, dataset)

    @property
    def backbone(self) -> type[Backbone]:
        """Backbone class of the networks."""
        return self.recipe.backbone_class

    @property
    def title(self) -> str:
        """Name of the configured method in results."""
        title = self.recipe.method_class.title_of(self.recipe.method_config)
        return f"{title} (clean pairs only)" if self.recipe.clean_only else title

    def record(self, train: PairedDataset) -> RunRecord:
        """Build the content of ``run.json``.

        Args:
            train: training split of this job.
        """
        return RunRecord(
            recipe=self.recipe,
            seed=self.seed,
            precision=self.precision,
            fingerprint=train.fingerprint,
            vocabulary=train.vocabulary.sha256,
            encoding=train.encoding,
            noise=replace(train.noise, source=None),
            settings=dict(self.settings),
            pretrained_encoder=self.backbone.pretrained_encoder(self.recipe.backbone_config),
            keep=None if self.keep is None else read_keep(self.keep, train)[1],
        )

    def kept_rows(self, train: PairedDataset) -> Int64Array:
        """The pairs that ``keep`` leaves, ascending rows of the whole split."""
        return np.arange(len(train)) if self.keep is None else read_keep(self.keep, train)[0]

    def rows(self, train: PairedDataset) -> Int64Array:
        """The pairs that are trained on, ascending rows of the whole split, which memories hold values of.

        Args:
            train: its training split, as it is trained on.
        """
        rows = self.kept_rows(train)
        correspondence = hidden_correspondence(train)
        if self.recipe.clean_only and correspondence is not None:
            # a control that knows the truth; no method reads it
            rows = rows[correspondence[rows]]
        # the method gets these pairs apart, so they are not trained on twice
        return np.setdiff1d(rows, self.trusted_rows(train), assume_unique=True)

    def trusted_rows(self, train: PairedDataset) -> Int64Array:
        """Choose the pairs that the method gets as known to match, the same for every noise; ascending rows."""
        method = self.recipe.method_class
        n = method.extra_clean_data(self.recipe.method_config)
        known = 0 if dataset_spec(train.name).noise == "natural" else len(train)
        if n > known:
            raise TrainingError(
                f"{method.title} needs {n} pairs that are known to match, of which {train.name} has {known}; ask for "
                "fewer, or train on a dataset with synthetic noise"
            )
        random = np.random.default_rng(derive_seed(self.seed, "trusted"))
        return np.sort(random.choice(len(train), n, replace=False))


@dataclass(frozen=True)
class FinishedRun:
    """A run folder whose networks can be scored, and what was trained there, without its noise."""

    folder: RunFolder
    run: RunRecord
    outcome: Outcome
    job: TrainingJob

    @classmethod
    def read(cls, path: Path, root: Path | None = None) -> Self:
        """Read a run folder; ``root`` is the folder of prepared datasets."""
        folder = RunFolder(path)
        run = folder.read_run()
        outcome = folder.read_outcome()
        job = TrainingJob(
            run.recipe, seed=run.seed, root=root, precision=run.precision, settings=run.settings
        )
        return cls(folder, run, outcome, job)

    def with_noise(self, noise_file: Path | None = None, keep: Path | None = None) -> Self:
        """The run, whose job gets the recorded noise; it needs the file of noise that no seed draws."""
        noise, job = self.run.noise, replace(self.job, noise_file=noise_file, keep=keep)
        if noise_file is not None:
            job = replace(job, noise_unit=noise.unit)
        elif noise.seed is not None:
            job = replace(job, noise_ratio=noise.ratio, noise_unit=noise.unit, noise_seed=noise.seed)
        return replace(self, job=job)


def build_method(job: TrainingJob, train: PairedDataset, *, pretrained: bool = True) -> Method:
    """Build a method and its untrained networks for a dataset.

    Args:
        job: recipe, precision, and seed of the initialisation and of the choice of trusted pairs.
        train: training split; its features are not read.
        pretrained: load pre-trained weights; not needed if a checkpoint is loaded afterwards.
    """
    recipe = job.recipe
    method = recipe.method_class
    vocabulary_size = train.vocabulary.size + method.extra_words

    def make_network() -> Backbone:
        return initial_network(job, train, vocabulary_size, pretrained=pretrained)

    trusted = train.pair_ids[job.trusted_rows(train)]
    setting = Setting(
        len(train),
        train.n_regions,
        vocabulary_size,
        make_network,
        recipe.batch_size,
        torch.from_numpy(trusted),
    )
    # the same networks for a seed, whatever the process drew before
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(job.seed, "networks", 0))
        return method(recipe.method_config, setting)


def initial_network(
    job: TrainingJob, dataset: PairedDataset, vocabulary_size: int, *, pretrained: bool = True
) -> Backbone:
    """Build one untrained network; random weights come from torch's global generator.

    Args:
        job: backbone and precision.
        dataset: any split; its features are not read.
        vocabulary_size: rows of the word embedding.
        pretrained: load pre-trained weights, if the backbone has any.
    """
    recipe = job.recipe
    make: Any = job.backbone
    network: Backbone = make(recipe.backbone_config, dataset.feature_dim, dataset.n_regions, vocabulary_size)
    network.mixed = job.precision == "bf16-mixed"
    if pretrained:
        network.load_pretrained()
    return network


def refuse_unselectable(recipe: Recipe, plans: Sequence[EpochPlan], n_pairs: int) -> None:
    """Refuse a recipe none of whose epochs may be selected on dev: its run could not be scored.

    With a number of steps, epochs that may not be selected count as one pass each, as every warm-up takes.

    Args:
        recipe: the recipe.
        plans: the method's plan.
        n_pairs: pairs that are trained on.
    """
    # earlier epochs are forgotten, so one of the later ones must be selectable
    forgotten = max((index for index, plan in enumerate(plans) if plan.forget_best), default=0)
    why = f"; add one that is not a warm-up, such as {named('settings', 'method.epochs=1')}"
    if any(plan.select for plan in plans[forgotten:]):
        per_epoch = n_pairs // recipe.batch_size + (n_pairs % recipe.batch_size > 1)  # a lone pair is dropped
        if recipe.steps is None or per_epoch == 0 or _reaches_selection(plans, recipe.steps, per_epoch):
            return
        # more steps are not always enough: the warm-up is a share of them, and it ends with an epoch
        enough = next(n for n in count(recipe.steps) if _reaches_selection(plans, n, per_epoch))
        why = (
            f": its {recipe.steps} steps end in the warm-up, of which an epoch takes {per_epoch}; "
            f"give steps={enough}, or no warm-up"
        )
    raise TrainingError(f"no epoch of this recipe may be selected on dev{why}")


def _reaches_selection(plans: Sequence[EpochPlan], steps: int, per_epoch: int) -> bool:
    entries = (plans[len(plans) * taken // steps] for taken in range(0, steps, per_epoch))
    return any(plan.select for plan in entries)


def hidden_correspondence(train: PairedDataset, rows: Int64Array | slice = slice(None)) -> BoolArray | None:
    """Return which training pairs are true, bool ``(n,)``; None if that is unknown, or all or none of them are.

    Args:
        train: the split, whole.
        rows: the pairs that are asked for (default: all).
    """
    if dataset_spec(train.name).noise == "natural":
        return None
    known = true_correspondence(train)[rows]
    return known if known.any() and not known.all() else None


def with_own_images(train: PairedDataset, rows: Int64Array) -> PairedDataset:
    """Return the training split with the true images of these rows."""
    caption_to_image = train.caption_to_image.copy()
    # captions of an image are consecutive: pair k is caption k of image k // captions_per_image
    caption_to_image[rows] = train.pair_ids[rows] // train.captions_per_image
    return replace(train, caption_to_image=caption_to_image)
