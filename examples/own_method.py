"""A method in a file of your own: a class with a config, and one function that trains an epoch.

It warms up on all pairs. Then it leaves out the pairs with the largest losses of every batch, which are probably wrong.

    ncl-bench --plugin examples/own_method.py train trimmed/digits_vse_infinity --noise-ratio 0.4 --to runs/trimmed
    ncl-bench --plugin examples/own_method.py score runs/trimmed --to submissions/trimmed
    ncl-bench evaluate submissions/trimmed

docs/add-a-method.md explains what the method gets.
"""

from torch import Tensor

from baselines.kit import (
    EpochPlan,
    Method,
    PairMemory,
    Setting,
    Step,
    TrainingBatches,
    WarmUpThenStepDecay,
    mean_triplet,
)
from baselines.methods import register


class TrimmedConfig(WarmUpThenStepDecay):
    margin: float = 0.2
    keep: float = 0.6
    warmup_epochs: int = 1
    epochs: int = 5
    learning_rate: float = 0.002


@register
class Trimmed(Method):
    name, title, Config = "trimmed", "Trimmed triplet", TrimmedConfig

    def __init__(self, config: TrimmedConfig, setting: Setting) -> None:
        super().__init__(config, setting)
        self.losses = PairMemory(setting.n_pairs, initial=0.0)  # kept by checkpoints

    def train_epoch(self, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        network, share = self.networks[0].train(), 1 if plan.phase == "warmup" else self.config.keep
        for batch in batches.shuffled("pairs"):
            losses = mean_triplet(network(batch).similarities, self.config.margin)  # (pairs,)
            self.losses.write(batch.pair_ids, losses)
            kept = max(1, int(share * len(batch)))
            step(network, losses.topk(kept, largest=False).values.sum(), batch)

    def estimates(self) -> dict[str, Tensor]:
        return {"small_loss": -self.losses.values}  # larger means more likely a true pair
