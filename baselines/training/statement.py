"""Content of submission.yaml for finished runs: method, noise, seeds, steps, cost, and the curve on dev."""

import json
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from baselines.kit.method import Method
from baselines.training.job import (
    FinishedRun,
    TrainingJob,
    hidden_correspondence,
    with_own_images,
)
from baselines.training.measures import Epoch
from baselines.training.recipe import Recipe, own_name, shipped_name
from baselines.training.run_folder import Imported
from ncl_bench.data import dataset_spec
from ncl_bench.data.keep import Kept
from ncl_bench.data.paired import PairedDataset
from ncl_bench.evaluation.detection import detection, division
from ncl_bench.evaluation.protocol import PROTOCOL_VERSION, known_order
from ncl_bench.evaluation.submission import (
    Correction,
    Scores,
    StatedNoise,
    Submission,
    noise_of,
)
from ncl_bench.evaluation.training_record import DetectedPairs, Training, TrainingCurve
from ncl_bench.npy import BoolArray, Float32Array

CLEAN_PROBABILITY = "clean_probability"
"""Estimate that measured tables compare."""
OWN_THRESHOLD = 0.5
"""Threshold of a clean probability for methods that state none."""
_SELECTIONS = ("dev", "none", "test")


def statement_of(
    finished: Sequence[FinishedRun],
    test: PairedDataset,
    networks: int,
    last_epoch: float | None,
    correction: Correction | None,
    scores: Scores,
) -> Submission:
    """Build the statement of finished runs whose networks are scored together.

    Args:
        finished: the runs.
        test: split that was scored.
        networks: number of networks averaged.
        last_epoch: rSum on test after the last epoch; None if it was not scored.
        correction: how the scores were corrected for hubs.
        scores: score files, as written.
    """
    jobs, described = [run.job for run in finished], [run.run for run in finished]
    recipe = jobs[0].recipe
    imported = [run.imported for run in described if run.imported is not None]
    # averaged runs are usually trained on the same list, which is then told once
    kept = list(dict.fromkeys(_choice(run.keep) for run in described if run.keep is not None))
    training = _training(finished, last_epoch)
    method = recipe.method_class
    # networks of one kind are named once, an SGR and an SAF as papers do
    backbones = sorted({job.backbone.title_of(job.recipe.backbone_config) for job in jobs})
    return Submission(
        **_facts(jobs[0], test, scores, correction),
        method=jobs[0].title,
        paper=method.paper,
        code="",
        backbone="SGRAF" if backbones == ["SAF", "SGR"] else " + ".join(backbones),
        networks=networks,
        fingerprint={"train": described[0].fingerprint},
        noise=noise_of(described[0].noise, dataset_spec(test.name)),
        training_seeds=tuple(sorted({run.seed for run in described})),
        selection_split=max((each.selection for each in imported), key=_SELECTIONS.index, default="dev"),
        extra_clean_data=_clean_data(method, recipe, imported=bool(imported)),
        pretrained_encoder=" + ".join(
            dict.fromkeys(x.pretrained_encoder for x in described if x.pretrained_encoder)
        ),
        hardware="unknown" if training is None else training.device,
        hours=None,
        recipes=() if imported or kept else _recipes(jobs),
        training=training,
        notes=" ".join([*map(_origin, imported), *kept]),
    )


def statement_of_zero_shot(
    job: TrainingJob,
    pretrained: str,
    test: PairedDataset,
    correction: Correction | None,
    scores: Scores,
) -> Submission:
    """Build the statement of a pre-trained network that was not trained on the dataset."""
    # no pair was trained on, but a row stands on a board of one noise
    clean = dataset_spec(test.name).noise != "natural"
    return Submission(
        **_facts(job, test, scores, correction),
        method=f"{job.backbone.title} zero-shot",
        paper="",
        code="",
        backbone=job.backbone.title_of(job.recipe.backbone_config),
        networks=1,
        noise=StatedNoise(unit="none", ratio=0.0) if clean else StatedNoise(unit="natural", ratio=None),
        training_seeds=(0,),
        selection_split="none",
        extra_clean_data="",
        pretrained_encoder=pretrained,
        hardware="none",
        hours=0.0,
        notes="Nothing was trained on this dataset. The seed and the noise stand for none.",
    )


def _facts(
    job: TrainingJob, test: PairedDataset, scores: Scores, correction: Correction | None
) -> dict[str, Any]:
    """Facts of the split that was scored."""
    spec = dataset_spec(test.name)
    language = job.recipe.language or spec.languages[0]
    return {
        "protocol_version": PROTOCOL_VERSION,
        "dataset": test.name,
        "order_fingerprint": {"test": known_order(spec, "test", job.root)},
        "language": language,
        "tokenizer": job.backbone.tokenizer or job.recipe.tokenizer or spec.tokenizers[language],
        "scores": {"test": scores},
        "correction": correction,
    }


def _clean_data(method: type[Method], recipe: Recipe, *, imported: bool) -> str:
    if recipe.clean_only:
        return "the true correspondence of the training pairs"
    trusted = method.extra_clean_data(recipe.method_config)
    if not trusted:
        return ""
    if imported:
        return f"{trusted} pairs that are known to match; the published code also takes them from dev"
    return f"{trusted} training pairs that are known to match"


def _origin(imported: Imported) -> str:
    seed = "" if imported.seed_known else " The seed of that training is unknown; 0 stands for it."
    return (
        f"Weights imported from {imported.file} (sha256 {imported.sha256}), trained by code outside this "
        f"repository; noise and selection are as stated at the import.{seed}"
    )


def _choice(kept: Kept) -> str:
    chosen = (
        "chosen by hand"
        if kept.threshold is None
        else f"those with a {kept.chosen_by} above {kept.threshold:g}"
    )
    return (
        f"Trained on {kept.n_kept:,} of {kept.n_pairs:,} pairs, {chosen} in an audit "
        f"(sha256 of their ids {kept.sha256})."
    )


def _recipes(jobs: Sequence[TrainingJob]) -> tuple[str, ...]:
    names = [
        shipped_name(job.recipe)
        or shipped_name(job.recipe, job.settings)
        or own_name(job.recipe, job.settings)
        for job in jobs
    ]
    known = [name for name in names if name is not None]
    # a recipe that cannot be loaded by its name would not reproduce the row
    return tuple(known) if len(known) == len(names) else ()


def stated_settings(jobs: Sequence[TrainingJob]) -> dict[str, Any]:
    """Return the overridden recipe options by name; empty if the result is itself a shipped recipe.

    The number of steps is left out, because the statement has its own entry for it. Lists are written as text. If runs
    differ in an option, their values are joined.
    """
    stated: dict[str, list[Any]] = {}
    for job in jobs:
        settings = {name: value for name, value in job.settings.items() if name != "steps"}
        if settings and shipped_name(job.recipe) is None:
            for name, value in settings.items():
                stated.setdefault(name, []).append(json.dumps(value) if isinstance(value, list) else value)
    return {
        name: values[0] if len(set(values)) == 1 else " + ".join(dict.fromkeys(map(str, values)))
        for name, values in stated.items()
    }


def _training(finished: Sequence[FinishedRun], last_epoch: float | None) -> Training | None:
    """Describe the training of the runs; None if one of them recorded nothing, like imported weights."""
    described = [run.run for run in finished]
    if any(run.trained_on is None for run in described):
        return None
    machines = [machine for run in described for machine in run.trained_on or ()]
    torches, devices = (
        " + ".join(dict.fromkeys(getattr(machine, key) for machine in machines))
        for key in ("stated_torch", "device")
    )
    return Training(
        precision=described[0].precision,
        torch=torches,
        device=devices,
        settings=stated_settings([run.job for run in finished]),
        plugins=tuple(dict.fromkeys(plugin.name for run in described for plugin in run.plugins)),
        **_compute(finished),
        found=_found(finished[0]) if len(finished) == 1 else None,
        last_epoch=last_epoch,
    )


def _compute(finished: Sequence[FinishedRun]) -> dict[str, Any]:
    """Average steps and captions over the runs and add up costs; an entry is left out or None if a run has none."""
    outcomes = [run.outcome for run in finished]
    # imported weights record no steps
    if any(not outcome.steps for outcome in outcomes):
        return {}
    budgets = {run.job.recipe.steps for run in finished}
    costs = [outcome.cost for outcome in outcomes if outcome.cost is not None]
    seen = [outcome.pairs_seen for outcome in outcomes if outcome.pairs_seen is not None]
    return {
        "budget": budgets.pop() if len(budgets) == 1 else None,
        "steps": max(round(fmean(outcome.steps)) for outcome in outcomes),
        "pairs_seen": sum(seen) / len(seen),
        "cost": round(sum(costs), 4) if len(costs) == len(outcomes) else None,
        "curve": _curve(finished[0].folder.read_history()) if len(finished) == 1 else None,
    }


def pairs_to_judge(finished: FinishedRun) -> PairedDataset | None:
    """The training pairs of a run; None if no seed draws their noise, or if the run left some out."""
    job, noise = finished.job, finished.run.noise
    if noise.unit is None or noise.seed is None:
        return None
    # pairs that were left out keep the estimate that they began with
    if finished.run.keep is not None or job.recipe.clean_only:
        return None
    return finished.with_noise().job.load("train")


def _found(finished: FinishedRun) -> DetectedPairs | None:
    """Compare the last division of a run with the truth; None without a division, or if no seed draws the noise."""
    job, folder, noise = finished.job, finished.folder, finished.run.noise
    last = finished.outcome.epochs - 1
    train = pairs_to_judge(finished) if folder.estimates_file(last).is_file() else None
    if train is None:
        return None
    kept = folder.read_estimates(last, len(train))
    if CLEAN_PROBABILITY not in kept:
        return None
    trusted = job.trusted_rows(train)
    truth = hidden_correspondence(with_own_images(train, trusted) if len(trusted) else train)
    # noise of another version of the generator would judge other pairs
    if truth is None or train.noise.sha256 != noise.sha256:
        return None
    threshold = getattr(job.recipe.method_config, "clean_threshold", OWN_THRESHOLD)
    detected = detection(kept[CLEAN_PROBABILITY], truth, threshold)
    assert detected.own is not None  # it has a threshold
    by_epoch = [
        _division(folder.read_estimates(epoch, len(train))[CLEAN_PROBABILITY], truth, threshold)
        for epoch in range(last + 1)
        if folder.estimates_file(epoch).is_file()
    ]
    # a curve with gaps cannot be drawn over the steps
    curves: list[tuple[float, ...]] = [(), (), ()]
    if len(by_epoch) == last + 1:
        curves = list(zip(*by_epoch, strict=True))
    return DetectedPairs(
        **{name: round(value, 4) for name, value in detected.own.model_dump().items()},
        average_precision_wrong=round(detected.average_precision_wrong, 4),
        precision_at={k: round(share, 4) for k, share in detected.precision_at.items()},
        noise_left=curves[0],
        precision_by_epoch=curves[1],
        recall_by_epoch=curves[2],
    )


def _division(values: Float32Array, truth: BoolArray, threshold: float) -> tuple[float, float, float]:
    """Noise left among the pairs called clean, precision and recall of an epoch's division."""
    called_clean = values > threshold
    left = float((called_clean & ~truth).sum()) / max(1, int(called_clean.sum()))
    divided = division(values, truth, threshold)
    return round(left, 4), round(divided.precision, 4), round(divided.recall, 4)


def _curve(history: Sequence[Epoch]) -> TrainingCurve:
    known = [entry.diagnosis[CLEAN_PROBABILITY] for entry in history if CLEAN_PROBABILITY in entry.diagnosis]
    whole = known if len(known) == len(history) else []
    return TrainingCurve(
        steps=tuple(round(fmean(entry.taken)) for entry in history),
        dev=tuple(round(entry.dev["r_sum"], 4) for entry in history),
        auroc=tuple(round(each.auroc, 4) for each in whole),
        average_precision=tuple(round(each.average_precision, 4) for each in whole),
    )
