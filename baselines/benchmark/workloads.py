"""The workloads that are measured: a training step, similarities, scoring, GSC's terms, PC2's step, loading.

Every function returns the variants of one workload by name. Data are random; times do not depend on their values.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from baselines.backbones import BACKBONES, build_backbone
from baselines.benchmark.loop import Loop
from baselines.benchmark.sizes import Sizes
from baselines.benchmark.stopwatch import Stopwatch, Variant
from baselines.engine.similarities import score
from baselines.kit.backbone import Backbone, Encoded
from baselines.kit.batches import Batch, Features, TrainingBatches, collate
from baselines.kit.losses import hardest_triplet
from baselines.kit.method import Setting
from baselines.methods.pc2 import PC2, PC2Config
from ncl_bench.data.paired import PairedDataset, TokenTable
from ncl_bench.data.vocabulary import Vocabulary
from ncl_bench.noise.draw import clean_pairing, clean_record

MARGIN = 0.2
LOOP, BLOCKS = "loop", "blocks"
AT_HAND = "batch at hand"
Arithmetic = Callable[[], AbstractContextManager[object]]


def make_network(name: str, sizes: Sizes, device: torch.device, **options: Any) -> Backbone:
    """A backbone with the same random weights at every call."""
    torch.manual_seed(0)
    own_sizes = sizes.model_dump(
        include={"embed_size", "word_dim", "sim_dim"} & set(BACKBONES[name].Config.model_fields)
    )
    network = build_backbone(
        name,
        BACKBONES[name].Config(**own_sizes, **options),
        feature_dim=sizes.feature_dim,
        n_regions=sizes.regions,
        vocabulary_size=sizes.vocabulary,
    )
    return network.to(device)


def make_batch(sizes: Sizes, pairs: int, device: torch.device, first_pair: int = 0) -> Batch:
    """Random pairs with captions between the shortest and the longest."""
    generator = torch.Generator().manual_seed(first_pair)
    lengths = torch.randint(sizes.shortest, sizes.longest + 1, (pairs,), generator=generator)
    lengths[0] = sizes.longest
    tokens = torch.randint(1, sizes.vocabulary, (pairs, sizes.longest), generator=generator)
    batch = Batch(
        image_features=torch.rand(pairs, sizes.regions, sizes.feature_dim, generator=generator),
        image_lengths=torch.full((pairs,), sizes.regions),
        caption_tokens=tokens * (torch.arange(sizes.longest) < lengths[:, None]),
        caption_lengths=lengths,
        pair_ids=torch.arange(first_pair, first_pair + pairs),
    )
    return batch.to(device)


def make_dataset(sizes: Sizes, n_images: int, split: str = "test") -> PairedDataset:
    """Random images and captions."""
    random = np.random.default_rng(0)
    pairing = clean_pairing(n_images, sizes.captions_per_image)
    lengths = random.integers(sizes.shortest, sizes.longest + 1, len(pairing))
    ids = random.integers(1, sizes.vocabulary, lengths.sum(), dtype=np.int32)
    return PairedDataset(
        name="random",
        split=split,
        image_features=random.random((n_images, sizes.regions, sizes.feature_dim), dtype=np.float32),
        image_ids=np.arange(n_images),
        caption_to_image=pairing,
        pair_ids=np.arange(len(pairing)),
        tokens=TokenTable(ids, np.concatenate([[0], np.cumsum(lengths)])),
        captions=None,
        vocabulary=Vocabulary(("<pad>", "<start>", "<end>", "<unk>"), sizes.vocabulary),
        captions_per_image=sizes.captions_per_image,
        noise=clean_record(pairing),
        fingerprint="",
    )


def step_of(network: Backbone, batch: Batch, arithmetic: Arithmetic = nullcontext) -> Variant:
    """Encode, compare, loss, the network's own loss among it; then the gradient of every weight."""
    network.train()

    def step(watch: Stopwatch) -> None:
        with arithmetic():
            images, captions = network.encode(batch)
            losses = hardest_triplet(network.compare(images, captions), MARGIN)
            _backward(network, losses.sum() + network.auxiliary_losses(images, batch).mean(), watch)

    return step


def training_step(name: str, sizes: Sizes, device: torch.device) -> dict[str, Variant]:
    """A step with hardest negatives on a batch."""
    network, batch = make_network(name, sizes, device), make_batch(sizes, sizes.batch, device)
    return {LOOP: step_of(Loop(network), batch), BLOCKS: step_of(network, batch)}


def similarities(name: str, kind: str, sizes: Sizes, device: torch.device) -> dict[str, Variant]:
    """Similarities and their gradient, from encoded images and captions.

    Args:
        name: of the network.
        kind: ``pairs``, every image with every caption; GSC's ``images`` with images, or ``captions`` with captions.
        sizes: of the batch.
        device: where the network computes.
    """
    network, batch = make_network(name, sizes, device).train(), make_batch(sizes, sizes.batch, device)
    with torch.no_grad():
        images, captions = network.encode(batch)
    compared: dict[str, Callable[[Backbone], Tensor]] = {
        "pairs": lambda network: network.similarities(_leaf(images), _leaf(captions)),
        "images": lambda network: network.image_image_similarities(_leaf(images)),
        "captions": lambda network: network.caption_caption_similarities(_leaf(captions)),
    }

    def variant(network: Backbone) -> Variant:
        return lambda watch: _backward(network, compared[kind](network).sum(), watch)

    return {LOOP: variant(Loop(network)), BLOCKS: variant(network)}


def pc2_step(sizes: Sizes, device: torch.device) -> dict[str, Variant]:
    """PC2's two steps on SGR: a clean batch, then a noisy one with borrowed captions."""
    clean = make_batch(sizes, sizes.batch, device)
    noisy = make_batch(sizes, sizes.batch, device, first_pair=sizes.batch)
    labels = torch.ones(sizes.batch, device=device)

    def variant(wrap: Callable[[Backbone], Backbone]) -> Variant:
        setting = Setting(
            2 * sizes.batch, sizes.regions, sizes.vocabulary, lambda: wrap(make_network("sgr", sizes, device))
        )
        method = PC2(PC2Config(), setting).to(device).train()

        def run(watch: Stopwatch) -> None:
            def step(modules: Any, loss: Tensor, batch: Batch, *, clip: bool = True, **terms: Tensor) -> None:
                loss.backward()  # type: ignore[no-untyped-call]
                modules.zero_grad()

            method.matched_step(0, clean, labels, step)
            watch.stage("clean")
            method.pseudo_captioned_step(0, clean, noisy, step)
            watch.stage("noisy")

        return run

    return {LOOP: variant(Loop), BLOCKS: variant(lambda network: network)}


def scoring_of(
    network: Backbone, dataset: PairedDataset, device: torch.device, arithmetic: Arithmetic = nullcontext
) -> Variant:
    """Encode every image once and compare it with every caption, as ``ncl-bench score`` does."""
    network.eval()

    def run(watch: Stopwatch) -> None:
        with arithmetic():
            score([network], dataset, device=device)

    return run


def scoring(name: str, sizes: Sizes, device: torch.device) -> dict[str, Variant]:
    """Scoring of a test split."""
    network, dataset = make_network(name, sizes, device), make_dataset(sizes, sizes.images)
    return {
        LOOP: scoring_of(Loop(network), dataset, device),
        BLOCKS: scoring_of(network, dataset, device),
    }


def beside_sgr(sizes: Sizes, device: torch.device) -> dict[str, Variant]:
    """A step of SGR, one of VSE-infinity, and the loading of a batch."""
    batch, dataset = make_batch(sizes, sizes.batch, device), make_dataset(sizes, 4 * sizes.batch)
    rows = np.random.default_rng(1).permutation(len(dataset))[: sizes.batch]
    variants = {name: step_of(make_network(name, sizes, device), batch) for name in ("sgr", "vse_infinity")}

    def load(watch: Stopwatch) -> None:
        collate(dataset, rows).to(device)

    return {**variants, "loading": load}


def epoch(name: str, sizes: Sizes, device: torch.device) -> dict[str, Variant]:
    """Some steps on one batch that is at hand, and the same steps on batches of the training pairs."""
    network, at_hand = make_network(name, sizes, device).train(), make_batch(sizes, sizes.batch, device)
    pairs = sizes.epoch_steps * sizes.batch
    dataset = make_dataset(sizes, -(-pairs // sizes.captions_per_image), "train")
    rows = np.arange(pairs)

    def variant(batches: Callable[[], Iterable[Batch]]) -> Variant:
        def run(watch: Stopwatch) -> None:
            for batch in batches():
                hardest_triplet(network(batch), MARGIN).sum().backward()  # type: ignore[no-untyped-call]
                network.zero_grad()

        return run

    def read(features: Features) -> Variant:
        batches = TrainingBatches(
            dataset, batch_size=sizes.batch, seed=0, device=device, pair_rows=rows, features=features
        )
        return variant(lambda: batches.shuffled("epoch"))

    kinds: tuple[Features, ...] = ("mapped", "gpu") if device.type == "cuda" else ("mapped",)
    return {
        AT_HAND: variant(lambda: repeat(at_hand, sizes.epoch_steps)),
        **{kind: read(kind) for kind in kinds},
    }


def growing_step(name: str, sizes: Sizes, device: torch.device) -> dict[int, Variant]:
    """A step at several batch sizes."""
    network = make_network(name, sizes, device)
    return {pairs: step_of(network, make_batch(sizes, pairs, device)) for pairs in sizes.batches}


def growing_scoring(
    name: str, sizes: Sizes, device: torch.device, image_counts: Iterable[int]
) -> dict[int, Variant]:
    """Scoring of several numbers of images, with their captions."""
    network = make_network(name, sizes, device)
    return {n: scoring_of(network, make_dataset(sizes, n), device) for n in image_counts}


def _leaf(encoded: Encoded) -> Encoded:
    return Encoded(encoded.vectors.detach().requires_grad_(), encoded.lengths)


def _backward(network: nn.Module, loss: Tensor, watch: Stopwatch) -> None:
    watch.stage("forward")
    loss.backward()  # type: ignore[no-untyped-call]
    network.zero_grad()
    watch.stage("backward")
