"""The engine: recipe to epochs to the weights that are best on dev. It names no method and no dataset.

A run is a function of its recipe, noise and seed: random numbers of an epoch depend on (seed, epoch) alone, so a run
that was killed goes on from its last whole epoch and ends with the same bits (on one machine, on a CPU).
"""

from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from safetensors.torch import save
from torch import Tensor, nn

from baselines.backbones import build_backbone
from baselines.backbones.base import Backbone
from baselines.batches import Batch, TrainingBatches
from baselines.checkpoint import latest_state, save_state
from baselines.diagnosis import separation
from baselines.method import EpochPlan, Method, Setting
from baselines.methods import METHODS
from baselines.progress import TrainingProgress
from baselines.randomness import derive_seed
from baselines.run import Job, RunFolder
from baselines.score import score
from ncl_bench.datasets import dataset_spec
from ncl_bench.datasets.paired import PairedDataset
from ncl_bench.datasets.truth import true_correspondence
from ncl_bench.errors import TrainingError
from ncl_bench.files import sole_owner, write_bytes
from ncl_bench.protocol import evaluate, selection_images


def build_method(job: Job, train: PairedDataset, seed: int) -> Method:
    """A method with freshly initialised networks for a dataset.

    Args:
        job: recipe and noise.
        train: the training split, read for its sizes only.
        seed: of the initialisation.
    """
    recipe = job.recipe
    method = METHODS[recipe.method["name"]]
    vocabulary_size = train.vocabulary.size + method.extra_words

    def make_network() -> Backbone:
        return build_backbone(
            recipe.backbone["name"],
            recipe.backbone_config,
            feature_dim=train.feature_dim,
            n_regions=train.n_regions,
            vocabulary_size=vocabulary_size,
        )

    setting = Setting(len(train), train.n_regions, vocabulary_size, make_network)
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(seed, "networks", 0))
        return method(recipe.method_config, setting)


def fabric_for(device: str, precision: str) -> Fabric:
    """Device and arithmetic; ``tf32`` is 32-bit storage with tensor-core products."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    arithmetic: Any = "32-true" if precision == "tf32" else precision
    return Fabric(accelerator=device, devices=1, precision=arithmetic)


class _Step:
    """One optimiser step, and the running mean of what it saw."""

    def __init__(self, fabric: Fabric, gradient_clip: float) -> None:
        self._fabric = fabric
        self._clip = gradient_clip
        self.optimizers: dict[nn.Module, torch.optim.Optimizer] = {}
        self.count = 0
        self.sums: dict[str, float] = {}
        self._steps_in_epoch = 0

    def __call__(self, network: nn.Module, loss: Tensor, batch: Batch, **terms: Tensor) -> None:
        value = float(loss.detach())
        if not np.isfinite(value):
            ids = batch.pair_ids.tolist()
            shown = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
            raise TrainingError(f"the loss is {value} at step {self.count + 1} (pairs {shown})")
        optimizer = self.optimizers[network]
        optimizer.zero_grad(set_to_none=True)
        self._fabric.backward(loss)
        torch.nn.utils.clip_grad_norm_(network.parameters(), self._clip)
        optimizer.step()
        self.count += 1
        self._steps_in_epoch += 1
        for name, term in {"loss": loss, **terms}.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(term.detach().mean())

    def epoch_means(self) -> dict[str, float]:
        """Mean of the loss and its terms over the steps since the last call."""
        means = {name: total / self._steps_in_epoch for name, total in self.sums.items()}
        self.sums, self._steps_in_epoch = {}, 0
        return means


class Trainer:
    """One run of one method."""

    def __init__(self, job: Job, folder: RunFolder, device: str = "auto") -> None:
        self.job, self.folder = job, folder
        self.fabric = fabric_for(device, job.precision)
        self.train_split, self.dev_split = job.load("train"), job.load("dev")
        self.correspondence = self._hidden_correspondence()
        self.method = build_method(job, self.train_split, job.seed).to(self.fabric.device)
        self.plans = list(self.method.plan())
        self.step = _Step(self.fabric, job.recipe.gradient_clip)
        self.history: list[dict[str, Any]] = []

    def run(self, progress: TrainingProgress) -> dict[str, Any]:
        """Train to the end, or from the last whole epoch on.

        Returns:
            The content of ``result.json``: best epoch and dev ``r_sum``.

        Raises:
            TrainingError: the folder holds another run, the loss is not finite, or a checkpoint does not fit.
        """
        with sole_owner(self.folder.path):
            self.folder.claim(self.job.identity(self.train_split))
            first = self._resume()
            progress.skip(first)
            batches = self._batches(progress)
            for index in range(first, len(self.plans)):
                self._epoch(index, batches, progress)
            return self._conclude()

    def _epoch(self, index: int, batches: TrainingBatches, progress: TrainingProgress) -> None:
        plan = self.plans[index]
        self._prepare(index, plan)
        progress.begin(self.folder.path.name, plan, len(batches.pair_ids) * self.method.n_networks)
        batches.epoch_key = (plan.round, plan.phase, plan.epoch)
        devices = [self.fabric.device] if self.fabric.device.type == "cuda" else []
        try:
            with torch.random.fork_rng(devices), self.fabric.autocast():
                torch.manual_seed(derive_seed(self.job.seed, "epoch", index))
                self.method.train_epoch(plan, batches, self.step)
        except TrainingError as error:
            kept = sorted(self.folder.checkpoints.glob("epoch-*.pt"))
            good = f"the last good checkpoint is {kept[-1]}" if kept else "there is no checkpoint yet"
            raise TrainingError(f"{error} of epoch {index}; {good}") from None
        entry = self._measure(index, plan)
        self.history.append(entry)
        if entry["best"]:
            tensors = {name: x.contiguous() for name, x in self.method.networks.state_dict().items()}
            write_bytes(self.folder.best, save(tensors, metadata={"epoch": str(index)}))
        save_state(self.folder.checkpoints, index + 1, self._state())
        self.folder.write("history.json", self.history)
        self._log(entry)
        loss = "no step" if entry["loss"] is None else f"loss {entry['loss']:.4g}"
        progress.finish(f"{plan.phase} {plan.epoch + 1}  {loss}  dev rSum {entry['dev']['r_sum']:.1f}")

    def _prepare(self, index: int, plan: EpochPlan) -> None:
        if plan.new_networks:
            with torch.random.fork_rng():
                torch.manual_seed(derive_seed(self.job.seed, "networks", plan.round))
                self.method.renew_networks()
                self.method.to(self.fabric.device)
        if index == 0 or plan.new_networks or plan.new_optimizers:
            self._make_optimizers(plan.learning_rate)
        for optimizer in self.step.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = plan.learning_rate

    def _make_optimizers(self, learning_rate: float) -> None:
        self.step.optimizers = {
            network: self.method.make_optimizer(network, learning_rate) for network in self.method.networks
        }

    def _measure(self, index: int, plan: EpochPlan) -> dict[str, Any]:
        self.method.eval()
        with self.fabric.autocast():
            n_images = selection_images(dataset_spec(self.dev_split.name), "dev")
            similarities = score(
                self.method.networks, self.dev_split, n_images=n_images, device=self.fabric.device
            )
        result = evaluate(similarities, dataset=self.dev_split.name, split="dev", intervals=False)
        if plan.forget_best:
            for earlier in self.history:
                earlier["best"] = False
        best = max((entry["dev"]["r_sum"] for entry in self.history if entry["best"]), default=-1.0)
        entry: dict[str, Any] = {
            "index": index,
            "round": plan.round,
            "phase": plan.phase,
            "epoch": plan.epoch,
            "learning_rate": plan.learning_rate,
            "steps": self.step.count,
            "dev": result.recalls(),
            "best": plan.select and result.r_sum > best,
            "loss": None,
            **self.step.epoch_means(),
        }
        if self.correspondence is not None:
            entry["diagnosis"] = {
                name: separation(estimate, self.correspondence)
                for name, estimate in self.method.estimates().items()
            }
        return entry

    def _hidden_correspondence(self) -> Any:
        if (
            dataset_spec(self.train_split.name).noise == "natural"
            or self.train_split.noise.realised_ratio == 0
        ):
            return None
        return true_correspondence(self.train_split)

    def _batches(self, progress: TrainingProgress) -> TrainingBatches:
        rows = np.arange(len(self.train_split))
        if self.job.recipe.clean_only and self.correspondence is not None:
            rows = np.flatnonzero(self.correspondence)
        return TrainingBatches(
            self.train_split,
            batch_size=self.job.recipe.batch_size,
            seed=self.job.seed,
            device=self.fabric.device,
            pair_rows=rows,
            on_batch=progress.advance,
        )

    def _state(self) -> dict[str, Any]:
        optimizers = [self.step.optimizers[network].state_dict() for network in self.method.networks]
        return {
            "epochs": len(self.history),
            "steps": self.step.count,
            "method": self.method.state_dict(),
            "optimizers": optimizers,
            "history": self.history,
        }

    def _resume(self) -> int:
        state, damaged = latest_state(self.folder.checkpoints)
        for path in damaged:
            print(f"{path} is damaged and was passed over")
            path.unlink()
        if state is None:
            return 0
        self.method.load_state_dict(state["method"])
        self._make_optimizers(self.plans[0].learning_rate)
        for network, saved in zip(self.method.networks, state["optimizers"], strict=True):
            self.step.optimizers[network].load_state_dict(saved)
        self.history, self.step.count = state["history"], state["steps"]
        self.folder.write("history.json", self.history)
        return int(state["epochs"])

    def _conclude(self) -> dict[str, Any]:
        chosen = [entry for entry in self.history if entry["best"]]
        if not chosen:
            raise TrainingError(f"{self.folder.path}: no epoch of this recipe may be chosen on dev")
        result = {"best_epoch": chosen[-1]["index"], "dev": chosen[-1]["dev"], "epochs": len(self.history)}
        self.folder.write("result.json", result)
        return result

    def _log(self, entry: dict[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(str(self.folder.tensorboard), purge_step=entry["index"]) as writer:
            for name in ("loss", "learning_rate"):
                if entry[name] is None:  # an epoch without a single step
                    continue
                writer.add_scalar(name, entry[name], entry["index"])
            for name, value in entry["dev"].items():
                writer.add_scalar(f"dev/{name}", value, entry["index"])
            for name, found in entry.get("diagnosis", {}).items():
                writer.add_scalar(f"diagnosis/{name}_auroc", found["auroc"], entry["index"])
