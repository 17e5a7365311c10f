"""The doubles of the trainer's step and batches, and of networks, in the tests of methods."""

import torch
from torch import nn

from baselines.kit.backbone import Encoded, Output
from baselines.kit.batches import Batch


class Steps:
    """The double of ``Step``: keeps gradients, and updates weights where a learning rate is given.

    As the trainer does, it hands gradients to what the method's optimisers update, and clips them at 2.

    Args:
        method: whose modules are trained.
        rate: of every optimiser, or one for each trained module, until a step has its own; None keeps unclipped
            gradients.
        gradient_clip: largest length of a module's gradient.

    Attributes:
        losses: of every step.
        norms: length of the gradient of the first module, before it is clipped.
        gradients: of the first module in the last step, by name, before they are clipped.
        calls: modules, batch and terms of every step.
    """

    def __init__(self, method, rate=None, gradient_clip=2.0):
        modules = list(method.trained_modules())
        self.update = rate is not None
        rates = [rate or 1.0] * len(modules) if rate is None or isinstance(rate, float) else rate
        self.optimizers = {
            module: method.make_optimizer(module, lr) for module, lr in zip(modules, rates, strict=True)
        }
        self.losses = []
        self.norms = []
        self.gradients = {}
        self.gradient_clip = gradient_clip
        self.calls = []

    def __call__(
        self,
        modules,
        loss,
        batch,
        *,
        clip=True,
        learning_rate=None,
        **terms,
    ):
        modules = [modules] if isinstance(modules, nn.Module) else list(modules)
        weights = {m: [w for g in self.optimizers[m].param_groups for w in g["params"]] for m in modules}
        for module in modules:
            self.optimizers[module].zero_grad()
        loss.backward(inputs=[w for own in weights.values() for w in own])
        self.losses.append(loss.item())
        self.calls.append((modules, batch, {name: term.item() for name, term in terms.items()}))
        norms = [w.grad.norm() for w in weights[modules[0]] if w.grad is not None]
        self.norms.append(torch.stack(norms).norm().item())
        named = modules[0].named_parameters()
        self.gradients = {name: w.grad.clone() for name, w in named if w.grad is not None}
        for module in modules if self.update else ():
            if clip is True or clip is module:
                nn.utils.clip_grad_norm_(weights[module], self.gradient_clip)
            if learning_rate is not None:
                self.optimizers[module].param_groups[0]["lr"] = learning_rate
            self.optimizers[module].step()

    @property
    def terms(self):
        """Terms of the last step."""
        return self.calls[-1][2]


class StoredBatches:
    """The double of ``TrainingBatches``: stored batches in their order; where some pairs are asked for, cut to those.

    Args:
        batches: for every purpose that has none of its own.
        n_pairs: of the split; by default those of the batches are visited.
        batch_size: of a full batch; that of the first one by default.
        own: batches of a purpose, by its first word or all its words joined by ``_``.

    Attributes:
        asked: the purpose of every pass.
        reads: what ``read`` was asked for.
    """

    seed = 5

    def __init__(self, *batches, n_pairs=0, batch_size=0, **own):
        self.batches, self.own = batches, own
        every = [*batches, *(batch for some in own.values() for batch in some)]
        self.pair_ids = torch.arange(n_pairs) if n_pairs else torch.cat([b.pair_ids for b in every]).unique()
        self.batch_size = batch_size or len(every[0])
        self.shown_images = torch.arange(int(self.pair_ids.max()) + 1)
        self.asked = []
        self.reads = []

    def shuffled(self, *purpose, pair_ids=None, **_):
        self.asked.append(purpose)
        own = self.own.get(str(purpose[0]), self.batches)
        for batch in self.own.get("_".join(map(str, purpose)), own):
            kept = torch.ones(len(batch)).bool() if pair_ids is None else torch.isin(batch.pair_ids, pair_ids)
            if kept.all() or kept.sum() > 1:
                yield batch if kept.all() else rows_of(batch, kept)

    def covering(self, *purpose):
        return self.shuffled(*purpose)

    def endless(self, *purpose, pair_ids=None):
        while True:
            yield from self.shuffled(*purpose, pair_ids=pair_ids)

    def read(self, *pairs):
        self.reads.append(tuple(ids.tolist() for ids in pairs))
        return bare_batch(pairs[0])


def rows_of(batch, rows):
    """Some pairs of a batch."""
    return Batch(*(x[rows] if len(x) else x for x in vars(batch).values()))


def bare_batch(pair_ids):
    """Pairs by number, without features and tokens."""
    empty = torch.empty(0)
    return Batch(
        empty, empty, empty, empty, torch.arange(pair_ids) if isinstance(pair_ids, int) else pair_ids
    )


class StandIn(nn.Module):
    """A network that goes from a batch to similarities in ``given``; it encodes nothing and adds no loss."""

    logit_scale = None

    def encode(self, batch):
        return batch, batch

    def compare(self, images, captions):
        return self.given(images)

    def given(self, batch):
        raise NotImplementedError

    def forward(self, batch):
        return self.output(batch, *self.encode(batch))

    def output(self, batch, images, captions):
        return Output(self.compare(images, captions), images, captions, torch.zeros(len(batch)))


class FixedSimilarities(StandIn):
    """A network whose only weights are the similarities; it keeps the batch it was given."""

    def __init__(self, similarities, *, fixed_regions=False):
        super().__init__()
        self.weight = nn.Parameter(torch.as_tensor(similarities).clone())
        self.fixed_regions = fixed_regions

    def given(self, batch):
        self.batch = batch
        return self.weight


class GivenEmbeddings(StandIn):
    """A network for batches that hold their embeddings, whose similarities are stored; it keeps what it compared."""

    def __init__(self, similarities):
        super().__init__()
        self.register_buffer("similarities", similarities)
        self.compared = []

    def encode(self, batch):
        images = self.encode_images(batch.image_features, batch.image_lengths)
        return images, Encoded(batch.caption_tokens, batch.caption_lengths)

    def encode_images(self, image_features, image_lengths):
        return Encoded(image_features, image_lengths)

    def compare(self, images, captions):
        self.compared.append(captions)
        return self.similarities


class OwnPairs(StandIn):
    """A network whose similarities only say which pairs they belong to."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def given(self, batch):
        return self.weight * batch.pair_ids.float().repeat(len(batch), 1)
