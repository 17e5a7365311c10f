"""The training loop: train a recipe epoch by epoch and keep the best weights on dev. It names no method or dataset.

A run is a function of its recipe, noise and seed. The random numbers of an epoch depend only on (seed, epoch), so a
killed run resumes from its last complete epoch and ends with the same bits (on the same machine's CPU). Several
processes compute what one does, see :mod:`baselines.kit.distributed`; the first one writes the run folder.

If the recipe sets a number of steps, each network takes that many (on average over the networks), and the method's plan
is stretched or compressed: each epoch uses the plan entry that matches the fraction of steps done.
"""

import hashlib
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from rich.console import Console
from safetensors.torch import save

from baselines.kit.backbone import why_not_compiled
from baselines.kit.batches import Features, TrainingBatches, derive_seed, recorded_budget
from baselines.kit.distributed import copy_first_rank, device_for, from_first_rank, rank, world_size
from baselines.kit.method import EpochPlan
from baselines.training.job import (
    TrainingJob,
    build_method,
    hidden_correspondence,
    refuse_unselectable,
    with_own_images,
)
from baselines.training.measures import Curves, Epoch, checked_estimate, diagnose
from baselines.training.run_folder import Machine, Outcome, RunFolder, machine_of
from baselines.training.scoring import score
from baselines.training.step import Budget, OptimiserStep, StepsSpent, load_optimizer
from ncl_bench.data import dataset_spec
from ncl_bench.errors import TrainingError, named
from ncl_bench.evaluation.protocol import recalls_of, selection_images
from ncl_bench.files import sole_owner, write_bytes
from ncl_bench.npy import Float32Array
from ncl_bench.progress import is_live, live_bar


def _title(index: int, plan: EpochPlan) -> str:
    # by the run's own number: with a budget of steps, entries of the plan are repeated or skipped
    return f"epoch {index + 1}, {plan.phase}"


def _compiles(device: torch.device) -> bool:
    """Whether torch can compile for a device; if not, print why."""
    problem = "several processes train"
    if world_size() == 1:
        try:
            torch.compile(torch.sin)(torch.ones(8, device=device))
        except Exception as error:  # torch raises many classes: no C++ compiler, no Triton, an old driver
            problem = why_not_compiled(error)
        else:
            return True
    print(f"WARNING: --compile on does not apply ({problem}); training is not compiled", file=sys.stderr)
    return False


class TrainingProgress:
    """Progress bar with remaining time; without a terminal, one line per epoch.

    It shows progress over the epochs of all runs; within an epoch, over the number of pairs of the previous epoch.

    Args:
        n_epochs: total number of epochs of all runs.
        console: console to draw on; standard error by default.
    """

    def __init__(self, n_epochs: int, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._bar = live_bar(self._console)
        self._task = self._bar.add_task("train", total=n_epochs, state="")
        self._done = 0.0
        self._pairs = 0
        self._expected = 1
        # by phase: an epoch on divided pairs reads another number of them than a warm-up
        self._last_pairs: dict[str, int] = {}
        self._batches = 0
        self._phase = ""
        self._title = ""
        self.position: Callable[[], float] | None = None
        """Epochs of the plan that are done, where steps are counted; an epoch then covers many of them, or a part."""

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def skip(self, epochs: float) -> None:
        """Count the epochs that a resumed run has already done."""
        self._done += epochs
        self._bar.update(self._task, completed=self._done)

    def begin(self, name: str, title: str, phase: str, n_pairs: int) -> None:
        """Start an epoch of about ``n_pairs`` pairs; an earlier epoch of the same phase gives a better estimate."""
        self._pairs = self._batches = 0
        self._phase, self._title = phase, title
        self._expected = self._last_pairs.get(phase, n_pairs)
        self._bar.update(self._task, description=name)

    def advance(self, n_pairs: int, loss: float | None = None) -> None:
        """Count a batch of the epoch.

        Args:
            n_pairs: number of pairs in the batch.
            loss: mean over the last steps, if known.
        """
        self._pairs += n_pairs
        self._batches += 1
        share = min(self._pairs / max(self._expected, 1), 1.0)
        # the expected number of pairs is an estimate: never announce fewer batches than there were
        batches = max(self._batches, round(self._batches * self._expected / self._pairs))
        state = f"{self._title}  batch {self._batches:,} of {batches:,}"
        state += "" if loss is None else f"  loss {loss:.4g}"
        done = self._done + share if self.position is None else self.position()
        self._bar.update(self._task, completed=done, state=state)

    def finish(self, line: str) -> None:
        """End an epoch, which the line sums up."""
        self._done = self._done + 1 if self.position is None else self.position()
        self._last_pairs[self._phase] = self._pairs
        self._bar.update(self._task, completed=self._done, state=line)
        # a log keeps no bar, so every epoch leaves a line there
        if not is_live(self._console):
            self._console.print(
                f"{round(self._done, 1):g}/{self._bar.tasks[0].total:.0f} {line}", highlight=False
            )


class Trainer:
    """One training run.

    Args:
        job: recipe, noise, seed and data of the run.
        folder: folder of the run.
        device: ``auto``, ``cpu`` or ``cuda``.
        features: ``mapped`` reads the training features from disk batch by batch, ``gpu`` keeps them on the device;
            ``auto`` chooses, see :func:`baselines.kit.batches.where_features_lie`.
        keep_estimates: keep the method's estimates of every epoch in the folder, for ``ncl-bench audit``.
        compiled: compile the networks' forward passes; where torch cannot, a sentence says so and they are not.
    """

    def __init__(
        self,
        job: TrainingJob,
        folder: RunFolder,
        device: str = "auto",
        *,
        features: Features = "auto",
        keep_estimates: bool = True,
        compiled: bool = False,
    ) -> None:
        self.job, self.folder, self.features, self.keep_estimates = job, folder, features, keep_estimates
        self.device = device_for(device, job.precision)
        if features == "gpu" and job.backbone.reads_images:
            raise TrainingError(f"{named('features', 'gpu')} needs region features; leave it out")
        for option, value in (("features", features), ("precision", job.precision)):
            if value in ("gpu", "tf32") and self.device.type != "cuda":
                raise TrainingError(f"{named(option, value)} needs a CUDA device; leave it out")
        self.compiled = compiled and _compiles(self.device)
        self.train_split, self.dev_split = job.load("train"), job.load("dev")
        recipe = job.recipe
        trusted = job.trusted_rows(self.train_split)
        # the method knows that these pairs match, so noise must not change them
        if len(trusted):
            self.train_split = with_own_images(self.train_split, trusted)
        self.rows = job.rows(self.train_split)
        # pairs that an audit or a control left out are not trained on, so they do not count as detected
        self.judged = self.rows if job.keep is not None or recipe.clean_only else slice(None)
        self.correspondence = hidden_correspondence(self.train_split, self.judged)
        self.method = build_method(job, self.train_split).to(self.device)
        self.plans = list(self.method.plan())
        refuse_unselectable(job.recipe, self.plans, len(self.rows))
        # a closed form takes no steps: its plan is trained whole
        steps = None if self.method.closed_form else job.recipe.steps
        self.budget = Budget(len(self.method.networks), steps)
        self.step = OptimiserStep(job.recipe.gradient_clip, self.budget)
        self.plan_index = -1
        self.curves = Curves(folder.tensorboard)
        self.history: list[Epoch] = []  # only filled on the first rank
        self.epochs = 0
        self.best_sha256 = ""  # of best.safetensors, from the first epoch on that dev may choose

    def run(self, progress: TrainingProgress) -> Outcome:
        """Train to the end, resuming from the last complete epoch.

        Returns:
            Epochs, best epoch, dev recalls and cost of the run.
        """
        with ExitStack() as held_open:
            held_open.callback(self.curves.close)

            def begin() -> dict[str, Any] | None:
                # the first rank alone writes the folder; the others get what it read
                held_open.enter_context(sole_owner(self.folder.path))
                self.folder.begin(self.job.record(self.train_split))
                return self._newest_state()

            self._resume(from_first_rank(begin))
            progress.skip(self._epochs_of_plan)
            if not self._ended:
                held_open.enter_context(recorded_budget(from_first_rank(self._record_machine).block_bytes))
            batches = self._batches(progress)
            while not self._ended:
                self._epoch(self.epochs, batches, progress)
                self.epochs += 1
            return from_first_rank(self._conclude)

    def _record_machine(self) -> Machine:
        now = machine_of(self.device).model_copy(update={"compiled": self.compiled})
        machine, warning = self.folder.add_machine(now, goes_on=self.epochs > 0)
        if warning:
            print(f"WARNING: {warning}", file=sys.stderr)
        if self.epochs:
            print(f"{self.folder.path} resumes after epoch {self.epochs}", file=sys.stderr)
        return machine

    @property
    def _ended(self) -> bool:
        return self.epochs >= len(self.plans) if self.budget.steps is None else self.budget.used

    @property
    def _epochs_of_plan(self) -> float:
        """Progress of the run, in epochs of its plan."""
        if self.budget.steps is None:
            return self.epochs
        return len(self.plans) * self.budget.mean_taken / self.budget.steps

    def _next_plan(self) -> tuple[EpochPlan, bool]:
        """Return the plan entry of the next epoch, and whether the previous epoch used the same entry.

        Resets requested by skipped entries still happen.
        """
        now = min(int(self._epochs_of_plan), len(self.plans) - 1)
        entered = self.plans[self.plan_index + 1 : now + 1]
        self.plan_index = now
        plan = replace(
            self.plans[now],
            new_networks=any(plan.new_networks for plan in entered),
            new_optimizers=any(plan.new_optimizers for plan in entered),
            forget_best=any(plan.forget_best for plan in entered),
        )
        return plan, not entered

    def _epoch(self, index: int, batches: TrainingBatches, progress: TrainingProgress) -> None:
        taken, limited = sum(self.budget.taken), self.budget.steps is not None
        plan, again = self._next_plan()
        self._prepare(index, plan)
        # the ranks add up gradients, so they must begin the epoch with the same bits
        copy_first_rank(self.method)
        n_pairs = len(batches.pair_ids) * self.method.n_networks
        progress.begin(self.folder.path.name, _title(index, plan), plan.phase, n_pairs)
        batches.epoch_key = (plan.round, plan.phase, plan.epoch)
        # batch order depends on seed and plan entry: an entry used twice needs another seed for its second epoch
        batches.seed = derive_seed(self.job.seed, "again", index) if again else self.job.seed
        networks = list(self.method.networks)
        self.budget.begin_epoch(networks)
        device = self.device
        try:
            # a method may draw numbers; the caller's generator does not move
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                if limited:
                    self.budget.time_plain_steps(networks[0], batches, self.job.recipe.gradient_clip, index)
                # after the timing, which may draw too: the draws of an epoch depend on seed and index alone
                torch.manual_seed(derive_seed(self.job.seed, "epoch", index))
                # the last step of the budget ends the epoch in the middle of the method's loop
                with suppress(StepsSpent), self.budget.training(networks, device), self.step.checked():
                    self.method.train_epoch(plan, batches, self.step)
            self.budget.end_epoch()
            # or its weights would be scored untrained, and a run of a number of steps would never end
            if (limited and sum(self.budget.taken) == taken) or not (
                self.step.count or self.method.closed_form
            ):
                raise TrainingError(
                    f"nothing is trained: train_epoch of method {self.method.name} never called "
                    "step(network, loss, batch); call it for every batch"
                )
        except TrainingError as error:
            kept = sorted(self.folder.checkpoints.glob("epoch-*.pt"))
            good = f"the last good checkpoint is {kept[-1]}" if kept else "there is no checkpoint yet"
            raise type(error)(f"{error} of epoch {index}; {good}") from None
        similarities, means = self._score_dev(), self.step.epoch_means()
        line = from_first_rank(lambda: self._record(index, plan, similarities, means))
        progress.finish(line)

    def _prepare(self, index: int, plan: EpochPlan) -> None:
        if plan.new_networks:
            with torch.random.fork_rng():
                torch.manual_seed(derive_seed(self.job.seed, "networks", plan.round))
                self.method.renew_networks()
                self.method.to(self.device)
        for network in self.method.networks:
            network.compiled = self.job.recipe.batch_size if self.compiled else 0
        if index == 0 or plan.new_networks or plan.new_optimizers:
            self._make_optimizers(plan)
        for module, optimizer in self.step.optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] = self.method.learning_rate(module, plan)

    def _make_optimizers(self, plan: EpochPlan) -> None:
        self.step.optimizers = {
            module: self.method.make_optimizer(module, self.method.learning_rate(module, plan))
            for module in self.method.trained_modules()
        }

    def _score_dev(self) -> Float32Array:
        self.method.eval()
        n_images = selection_images(dataset_spec(self.dev_split.name))
        return score(self.method.networks, self.dev_split, np.arange(n_images), device=self.device)

    def _record(
        self, index: int, plan: EpochPlan, similarities: Float32Array, means: dict[str, float]
    ) -> str:
        """Write the results of an epoch, and return a line that summarises them."""
        estimates = {
            name: checked_estimate(each, len(self.train_split))
            for name, each in self.method.estimates().items()
        }
        entry = self._measure(index, plan, similarities, means, estimates)
        self.history.append(entry)
        if self.keep_estimates and estimates:
            measured = {
                name: checked_estimate(each, len(self.train_split))
                for name, each in self.method.measurements().items()
            }
            self.folder.write_estimates(index, estimates | measured)
        if entry.best:
            # safetensors stores no views
            tensors = {name: x.contiguous() for name, x in self.method.networks.state_dict().items()}
            weights = save(tensors, metadata={"epoch": str(index)})
            write_bytes(self.folder.best, weights)
            self.best_sha256 = hashlib.sha256(weights).hexdigest()
        self.curves.write(entry)
        # the checkpoint comes last: a run killed before this line repeats the epoch and rewrites the files above
        self.folder.save_state(index + 1, self._state())
        self.folder.write_history(self.history)
        loss = "no step" if entry.loss is None else f"loss {entry.loss:.4g}"
        return f"{_title(index, plan)}  {loss}  dev rSum {entry.dev['r_sum']:.1f}"

    def _measure(
        self,
        index: int,
        plan: EpochPlan,
        similarities: Float32Array,
        means: dict[str, float],
        estimates: dict[str, Float32Array],
    ) -> Epoch:
        dev = recalls_of(similarities, dataset_spec(self.dev_split.name), "dev")
        if plan.forget_best:
            # rSum of another round says nothing of this one, where a recipe says so
            self.history = [entry.model_copy(update={"best": False}) for entry in self.history]
        # below every rSum: the first epoch that may be selected is the best so far
        best = max((entry.dev["r_sum"] for entry in self.history if entry.best), default=-1.0)
        truth = self.correspondence
        return Epoch(
            index=index,
            round=plan.round,
            phase=plan.phase,
            epoch=plan.epoch,
            learning_rate=plan.learning_rate,
            steps=self.step.count,
            taken=tuple(self.budget.taken),
            dev=dev,
            best=plan.select and dev["r_sum"] > best,
            loss=means.pop("loss", None),
            terms=means,
            diagnosis={
                name: diagnose(each[self.judged], truth)
                for name, each in estimates.items()
                if truth is not None
            },
        )

    def _batches(self, progress: TrainingProgress) -> TrainingBatches:
        if self.budget.steps is not None:
            progress.position = lambda: self._epochs_of_plan
        batches = TrainingBatches(
            self.train_split,
            batch_size=self.job.recipe.batch_size,
            seed=self.job.seed,
            device=self.device,
            pair_rows=self.rows,
            on_batch=lambda n_pairs: progress.advance(n_pairs, self.step.running_loss),
            features=self.features,
        )
        if self.features == "auto" and self.device.type == "cuda" and rank() == 0:
            place = "on the GPU" if batches.features == "gpu" else "read from disk as needed"
            print(f"training features: {place} (--features decides otherwise)", file=sys.stderr)
        return batches

    def _state(self) -> dict[str, Any]:
        optimizers = [self.step.optimizers[module].state_dict() for module in self.method.trained_modules()]
        return {
            "epochs": len(self.history),
            "steps": self.step.count,
            "taken": list(self.budget.taken),
            "place": self.plan_index,
            "spent": dict(self.budget.spending),
            "method": self.method.state_dict(),
            "optimizers": optimizers,
            "history": [entry.model_dump(mode="json") for entry in self.history],
            "best_sha256": self.best_sha256,
        }

    def _newest_state(self) -> dict[str, Any] | None:
        state, damaged = self.folder.latest_state()
        for path in damaged:
            print(f"{path} is damaged and was deleted; training resumes from an older checkpoint")
            path.unlink()
        if state is not None:
            with self.folder.fitting():
                history = [Epoch.model_validate(entry) for entry in state["history"]]
            # a run that was killed after its checkpoint has a history of one epoch less
            self.folder.write_history(history)
        return state

    def _resume(self, state: dict[str, Any] | None) -> None:
        if state is None:
            return
        with self.folder.fitting():
            self.method.load_state_dict(state["method"])
            # any entry of the plan will do: the saved state holds the learning rates
            self._make_optimizers(self.plans[0])
            for module, saved in zip(self.method.trained_modules(), state["optimizers"], strict=True):
                load_optimizer(self.step.optimizers[module], saved)
            self.history = [Epoch.model_validate(entry) for entry in state["history"]]
            self.step.count = state["steps"]
            self.budget.taken = [int(n) for n in state["taken"]]
            self.plan_index = state["place"]
            self.budget.spending |= state["spent"]
            self.best_sha256 = state["best_sha256"]
            self.epochs = int(state["epochs"])

    def _conclude(self) -> Outcome:
        # an epoch is marked if it was the best when it ended, so the last marked one is the best
        last = [entry for entry in self.history if entry.best][-1]
        outcome = Outcome(
            epochs=len(self.history),
            best_epoch=last.index,
            dev=last.dev,
            steps=tuple(self.budget.taken),
            pairs_seen=self.budget.spending["captions"] / len(self.method.networks),
            cost=self.budget.cost,
            best_sha256=self.best_sha256,
        )
        self.folder.write_outcome(outcome)
        return outcome
