"""Entries of the board: as papers print them, or evaluated from the ranks of ``results/``, again at every build."""

import hashlib
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

from baselines.recipes import AblationLine, ablations, on_dataset
from leaderboard.entries import Condition, Entry, Run, Status, grouped
from leaderboard.rank_files import hits_of, read_ranks
from leaderboard.row_files import (
    Header,
    RowFile,
    SeedRecord,
    is_standard_noise,
    known_recipes,
    may_agree,
    read_results,
    recipe_kind,
    text_of,
)
from ncl_bench.data import DATASETS, dataset_spec
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.errors import NclBenchError, SubmissionError
from ncl_bench.evaluation.detection import separation
from ncl_bench.evaluation.difference import Hits
from ncl_bench.evaluation.evaluate import check_noise
from ncl_bench.evaluation.metrics import RECALLS, intervals_of_models, recalls_and_sum
from ncl_bench.evaluation.people import Agreement, agreement_in_order, agreement_of
from ncl_bench.evaluation.protocol import IMAGES_PER_FOLD, ranks_under
from ncl_bench.evaluation.ranks import Counted
from ncl_bench.evaluation.submission import StatedNoise
from ncl_bench.noise.files import find_known_noise
from ncl_bench.papers import (
    PUBLISHED,
    Family,
    Paper,
    Printed,
    command_lines,
    drawn_noise,
    family_of,
    read_papers,
    read_printed,
)
from ncl_bench.progress import Progress, silent
from ncl_bench.schema import checked

CLEAN_SUFFIX = " (clean pairs only)"
"""Suffix of a control that was told which pairs are wrong. Methods can exceed it: it is no ceiling."""
shipped_ablations, shipped_on = cache(ablations), cache(on_dataset)
MEAN_OF_TWO = " (mean of two seeds)"
_NUMBERS: dict[int, str | int] = {2: "two", 3: "three", 4: "four", 5: "five"}
DISAGREEMENT = "Other papers print another rSum"
"""Start of the remark on papers that print other numbers for the same row."""


Truths = dict[tuple[str, StatedNoise], NDArray[np.bool_] | None]
"""Dataset and noise to the true correspondence of its training pairs; None if unknown."""


class Measured(NamedTuple):
    """The entries of a leaderboard's results, and their evidence.

    Attributes:
        entries: one per seed and protocol.
        hits: of each run and protocol.
        agreements: agreement with experts by name of a condition and key of a seed, if its evidence holds images and
            captions.
    """

    entries: list[Entry]
    hits: dict[Run, Hits]
    agreements: dict[tuple[str, str], Agreement]


def read_published(families: dict[str, Family], folder: Path = PUBLISHED) -> list[Entry]:
    """Read the reported entries, in the file's order.

    Args:
        families: methods, from ``read_families``.
        folder: holds results.csv, notes.yaml and sources.yaml.
    """
    papers = read_papers(folder)
    return _with_disagreements(
        [_printed_entry(each, papers) for each in read_printed(families, folder)], papers
    )


def _with_disagreements(entries: list[Entry], papers: dict[str, Paper]) -> list[Entry]:
    """Add a remark to entries for which other papers print other numbers."""
    of_model = grouped((entry for entry in entries if entry.shown_sum), attrgetter("quoted_as"))
    remarked = []
    for entry in entries:
        others = {
            papers[other.source].name: other.shown_sum
            for other in of_model.get(entry.quoted_as, ())
            if other.shown_sum != entry.shown_sum
        }
        if entry.shown_sum and others:
            shown = ", ".join(f"{value} in {paper}" for paper, value in list(others.items())[:3])
            remark = f"{DISAGREEMENT}: {shown}{', and elsewhere' if len(others) > 3 else ''}."
            entry = entry.model_copy(update={"notes": (*entry.notes, remark)})
        remarked.append(entry)
    return remarked


def _printed_entry(printed: Printed, papers: dict[str, Paper]) -> Entry:
    row, family, rules = printed.row, printed.family, printed.rules
    facts = row.model_dump(include={"dataset", "protocol", "noise_unit", "noise_ratio"})
    facts["text"] = row.tokenizer if DATASETS[row.dataset].shipped_tokenizers else ""
    condition = checked(Condition, facts, printed.where)
    networks = family.networks(row.method, row.backbone)
    content: dict[str, Any] = row.model_dump(include={"method", "backbone", "source", "table"}) | {
        "family": printed.key,
        "networks": networks,
        "condition": condition,
        "recalls": {name: getattr(row, name) for name in RECALLS},
        "printed_r_sum": row.r_sum,
        "status": "reported",
        "own": printed.own,
        "command": "\n".join(commands(family, row.method, row.backbone, networks, condition, printed=True)),
    }
    for rule in rules:
        facets = rule.model_dump(include={"kind", "extra", "features", "selection", "noise"})
        content |= {name: value for name, value in facets.items() if value}
    if content.get("features") == "pretrained":
        content["encoder"] = row.backbone
    content["notes"] = [rule.note for rule in rules if rule.note]
    content["notes"] += [
        f"Noise unit: as {same.method} in {papers[same.source].short}, {same.table}, since all six recalls are equal."
        for rule in rules
        if (same := rule.same_as)
    ]
    content["doubts"] = printed.doubts
    return _with_findings(checked(Entry, content, printed.where), printed.paper)


def _with_findings(entry: Entry, paper: Paper) -> Entry:
    """Add what the numbers show by themselves: another printed sum as a note, impossible recalls as a doubt."""
    notes, doubts = entry.notes, entry.doubts
    if entry.printed_gap is not None:
        printed, computed = entry.printed_r_sum, entry.recalls.r_sum
        who, gap = paper.name, f"{entry.printed_gap:+.1f}"
        notes = (f"{who} prints rSum {printed:.1f}; its recalls add up to {computed:.1f} ({gap}).", *notes)
    if entry.recalls.falling:
        large, small = (name.replace("_r", " R@") for name in entry.recalls.falling.split(" < "))
        doubts = (*doubts, f"{large} is below {small}, which is impossible.")
    return entry.model_copy(update={"notes": notes, "doubts": doubts})


def read_measured(
    root: Path, families: dict[str, Family], progress: Progress = silent, *, dataset: str = ""
) -> Measured:
    """Read the entries of a leaderboard's results, one per seed and protocol.

    Args:
        root: folder of the leaderboard.
        families: the methods.
        progress: reports the results evaluated.
        dataset: read only the results on this dataset.
    """
    results = read_results(root, dataset)
    measured = Measured([], {}, {})
    owners: dict[str, tuple[str, RowFile]] = {}
    truths: Truths = {}
    with progress("evaluate results", len(results.files)) as advance:
        for name, file in results.files.items():
            path = root / "results" / name
            spec = dataset_spec(file.header.dataset)
            check_header(file.header, spec, f"{path}.yaml", truths)
            counted = ranks_of(root, name, file)
            refuse_copies(name, file, counted, owners)
            truth = truths[spec.name, file.header.noise]
            ours = results.reproduced.get(name, ())
            for entry, answered in entries_of(file.header, file.seeds, counted, families, name, ours):
                (key,) = entry.runs
                measured.hits[name, key, entry.condition.protocol] = answered
                measured.entries.append(_with_separations(entry, counted[key], truth))
            for key, one in counted.items():
                if (agreement := agreement_of(one.judged, one.crossed)) is not None:
                    measured.agreements[name, key] = agreement
            advance(1)
    _add_draws(measured, results.files)
    return measured


def ranks_of(root: Path, name: str, file: RowFile) -> dict[str, Counted]:
    """Read and check the ranks of a row in the folder of a leaderboard: key of a seed to its ranks."""
    seeds, spec = [record.key for record in file.seeds], dataset_spec(file.header.dataset)
    return read_ranks(root / "results" / f"{name}.npz", seeds, spec)


def _with_separations(entry: Entry, counted: Counted, truth: NDArray[np.bool_] | None) -> Entry:
    """Add how well the wrong training pairs are found by what the networks say of each."""
    if truth is None or "similarity" not in counted.pairs:
        return entry
    said = {name: separation(values.astype(np.float32), truth) for name, values in counted.pairs.items()}
    return entry.model_copy(update={"separated": (said,)})


def _add_draws(measured: Measured, files: Mapping[str, RowFile]) -> None:
    """Join rows that differ in the seed of their noise alone to one row, with the first seed of every draw.

    The row of the standard draw stays as it is. The others have no row of their own: they were trained to be joined.
    """
    groups: dict[str, list[str]] = {}
    for name, file in files.items():
        noise = file.header.noise
        if noise.seed is not None:
            facts = file.header.model_dump_json(exclude={"noise"})
            groups.setdefault(f"{facts} {noise.unit} {noise.ratio}", []).append(name)
    for names in groups.values():
        names.sort(key=lambda name: files[name].header.noise.seed or 0)
        first = {name: min(files[name].seeds, key=lambda one: one.training_seeds).key for name in names}
        # with one training seed for all, an interval would not be over seeds
        if len(names) < 2 or len(set(first.values())) < len(names):
            continue
        draws = ", ".join(str(files[name].header.noise.seed) for name in names)
        joined = f"{names[0]}, draws {draws}"
        for entry in [one for one in measured.entries if first.get(one.file) in one.runs]:
            (key,) = entry.runs
            measured.entries.append(
                entry.model_copy(
                    update={
                        "method": f"{entry.method} (draws {draws})",
                        "kind": "draws" if entry.kind == "method" else entry.kind,
                        "file": joined,
                        "noise": "one noise draw per seed; intervals are over seeds and draws",
                    }
                )
            )
            protocol = entry.condition.protocol
            measured.hits[joined, key, protocol] = measured.hits[entry.file, key, protocol]
            if (entry.file, key) in measured.agreements:
                measured.agreements[joined, key] = measured.agreements[entry.file, key]
        others = {name for name in names if not is_standard_noise(files[name].header)}
        measured.entries[:] = [entry for entry in measured.entries if entry.file not in others]


def entries_of(
    header: Header,
    records: Sequence[SeedRecord],
    counted: Mapping[str, Counted],
    families: dict[str, Family],
    name: str,
    reproduced: Collection[str] = (),
) -> Iterator[tuple[Entry, Hits]]:
    """Evaluate the ranks of a row: one entry per seed and protocol, and the hits.

    Args:
        header: of the row.
        records: its seeds.
        counted: key of a seed to its ranks.
        families: the methods.
        name: of the row.
        reproduced: keys of the seeds that the maintainers trained.
    """
    spec = dataset_spec(header.dataset)
    hits = [hits_of(counted[record.key], spec) for record in records]
    facts, ends = {}, {}
    for protocol in spec.protocols:
        facts[protocol] = facts_of(header, condition_of(header, protocol), families, name)
        of_models = [each[protocol] for each in hits]
        ends[protocol] = intervals_of_models(
            [each.per_image for each in of_models], of_models[0].queries, of_models[0].images_per_fold
        )
    for number, (record, answered) in enumerate(zip(records, hits, strict=True)):
        ranks, people = counted[record.key], agreement_in_order(counted[record.key].judged)
        status: Status = "reproduced" if record.key in reproduced else "submitted"
        for protocol, hits_of_seed in answered.items():
            recalls = recalls_and_sum(ranks_under(ranks, protocol), hits_of_seed.images_per_fold)
            measured = {
                "recalls": {name: recalls[name] for name in RECALLS},
                "intervals": dict(zip((*RECALLS, "r_sum"), ends[protocol][number], strict=True)),
                "people": people,
                "status": status,
            }
            of_seed = facts_of_seed(header, record, facts[protocol]["condition"], families)
            yield (
                checked(Entry, facts[protocol] | measured | of_seed, run_name(name, record.key)),
                hits_of_seed,
            )


def run_name(name: str, seed: str) -> str:
    """Name of a result in messages and pages: ``digits/ncr/vse-infinity-2net-caption-60, seed 0``."""
    return f"{name}, seed {seed}"


def check_header(header: Header, spec: DatasetSpec, where: str, truths: Truths) -> None:
    """Compare what a condition states about its data with the dataset.

    Args:
        header: the condition.
        spec: the dataset.
        where: names the condition in messages.
        truths: of checked noise, which needs no other check; updated here.
    """
    ours, stated = spec.order_fingerprints.get("test"), header.order_fingerprint.get("test")
    if ours not in (None, stated):
        raise SubmissionError(
            f"{where}: order_fingerprint of {spec.name}/test is {stated}, ours is {ours}; put the scores into the "
            "dataset's order and add them again"
        )
    noise = spec.name, header.noise
    if noise not in truths:  # drawing it takes long, and many rows share it
        try:
            truths[noise], _ = check_noise(Path(where), header.noise, spec)
        except NclBenchError as error:
            raise SubmissionError(f"{where}: {error}") from None
    for recipe in header.recipes:
        if recipe not in known_recipes() and not header.setup.plugins:
            raise SubmissionError(
                f"{where}: recipes names {recipe!r}, which this repository does not have; choose from "
                "`ncl-bench recipes`, or leave recipes out for training code of your own"
            )


def refuse_copies(
    name: str, file: RowFile, counted: Mapping[str, Counted], owners: dict[str, tuple[str, RowFile]]
) -> None:
    """Refuse results whose ranks equal those of another result for every query, whatever their names.

    Args:
        name: name of the row.
        file: the row.
        counted: key of a seed to its ranks.
        owners: digest of ranks to the result that has them, and its row; updated here.
    """
    for seed, one in counted.items():
        ranks = one.whole
        digest = hashlib.sha256(ranks.i2t.tobytes() + ranks.t2i.tobytes()).hexdigest()
        run = run_name(name, seed)
        owner, standing = owners.setdefault(digest, (run, file))
        if owner != run and not may_agree(file, standing):
            raise SubmissionError(
                f"{run} has the ranks of {owner}, query for query; remove the one that is a copy"
            )


def facts_of(header: Header, condition: Condition, families: dict[str, Family], name: str) -> dict[str, Any]:
    """What all seeds of a row say in an entry under one condition; ``name`` is the row's."""
    ablation = ablation_of(header)
    kind = "clean" if header.method.endswith(CLEAN_SUFFIX) else "method"
    kind = "corrected" if header.correction else kind
    kind = "ablation" if ablation is not None and ablation[1].settings else kind
    return {
        "method": shown_name(header),
        "family": family_of(header.method, families) or own_key(header.method),
        "backbone": _shown_backbone(header),
        "features": features_of(header),
        "encoder": header.pretrained_encoder,
        "networks": _networks(header),
        "extra": header.extra_clean_data,
        "kind": kind,
        "ablation": () if ablation is None else (ablation[0], ablation[1].title),
        "condition": condition,
        "source": "submission",
        "file": name,
        "paper": header.paper,
        "code": header.code,
        "noise": noise_used(header),
        "selection": header.selection_split,
        "recipe": recipe_kind(header),
        "settings": changed_settings(header),
        "correction": corrected_by(header),
        "precision": header.setup.precision if header.training else "",
        "budget": header.setup.budget,
    }


def facts_of_seed(
    header: Header, record: SeedRecord, condition: Condition, families: dict[str, Family]
) -> dict[str, Any]:
    """What one seed of a row says in an entry under one condition, beside what is measured."""
    training, family = record.training, family_of(header.method, families)
    whole = (
        condition.protocol not in IMAGES_PER_FOLD
    )  # the labels of ECCV Caption and CxC cover the whole split
    command: tuple[str, ...] = ()
    if header.recipes:
        command = recipe_commands(header, record.training_seeds, condition)
    elif family:
        shown = header.method, _shown_backbone(header), _networks(header)
        command = commands(families[family], *shown, condition)
    facts: dict[str, Any] = {
        "eccv": record.eccv if whole else {},
        "cxc": record.cxc if whole else {},
        "seeds": record.training_seeds,
        "runs": (record.key,),
        "command": "\n".join(command),
        "notes": _notes(header, record, families.get(family or "")),
        "closed_form": training is not None and training.steps == 0,
    }
    if training is not None:
        facts |= {
            "trained_on": (f"torch {training.torch}, {training.device}",),
            "pairs_seen": training.pairs_seen,
            "cost": training.cost,
            "last_epoch": training.last_epoch,
            "curves": () if training.curve is None else (training.curve,),
            "found": () if training.found is None else (training.found,),
        }
    return facts


def _shown_backbone(header: Header) -> str:
    return header.backbone.replace("-infinity", "∞")


def _networks(header: Header) -> str:
    return "single" if header.networks == 1 else "ensemble"


def condition_of(header: Header, protocol: str) -> Condition:
    """Condition of a row under one protocol of its dataset."""
    noise = header.noise
    return Condition(
        dataset=header.dataset,
        protocol=protocol,
        noise_unit=noise.unit,  # type: ignore[arg-type]  # a name of the register
        noise_ratio=noise.ratio,
        text=text_of(header),
    )


def shown_name(header: Header) -> str:
    """The method's name; of runs of one recipe that were averaged, such as ``InfoNCE (mean of two seeds)``."""
    n = len(header.recipes)
    if n < 2 or len(set(header.recipes)) > 1:
        return header.method
    return f"{header.method} (mean of {_NUMBERS.get(n, n)} seeds)"


def own_key(method: str) -> str:
    """Page key of a method that no family claims; two names share it only if they differ in letter case alone."""
    name = method.lower()
    plain = re.sub(r"[^a-z0-9]+", "-", name).strip("-")
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return "-".join(filter(None, ("own", plain, "" if plain == name else digest)))


def ablation_of(header: Header) -> tuple[str, AblationLine] | None:
    """Name and line of the ablation table that a row repeats: its recipe, settings and noise; None if none."""
    noise, settings = header.noise, dict(header.setup.settings)
    dataset = settings.pop("dataset", None)
    for name, table in shipped_ablations().items():
        if noise.unit != "natural" and table.noise != f"{noise.unit}-{100 * (noise.ratio or 0):g}":
            continue
        for row in (row for row in table.rows if row.settings == settings):
            recipe, moved = shipped_on(row.recipe or table.recipe, header.dataset)
            if header.recipes == (recipe,) and bool(moved) == (dataset is not None):
                return name, row
    return None


_READS_IMAGES = re.compile(r"clip|blip|siglip|\balign\b", re.IGNORECASE)
"""Names of backbones that read images where others read region features: CLIP, OpenCLIP, SigLIP, BLIP, ALIGN, ..."""


def features_of(header: Header) -> str:
    """See :class:`~leaderboard.entries.Entry`."""
    if header.pretrained_encoder:
        return "pretrained"
    return "images" if _READS_IMAGES.search(header.backbone) else "region"


THE_CODES_FAULT = "the code's fault"
"""In the name of a method trained with ``method.faults=published``."""


def _notes(header: Header, record: SeedRecord, family: Family | None) -> list[str]:
    encoder, submitter = header.pretrained_encoder, header.submitter
    notes = [f"Pre-trained encoder: {encoder}."] if encoder else []
    notes += [f"Submitted by {submitter}."] if submitter else []
    notes += [header.notes] if header.notes else []
    if (bank := header.correction) and (chosen := record.correction):
        notes.append(
            f"Corrected for hubs with a bank of {bank.captions:,} training captions and {bank.images:,} training "
            f"images; weight {chosen.weight:g}, {chosen.neighbours} neighbours."
        )
    if family and family.repaired and header.recipes and THE_CODES_FAULT not in header.method:
        notes.append(
            f"Repairs the authors' code ({family.repaired}); method.faults=published keeps its faults."
        )
    return notes


def changed_settings(header: Header) -> tuple[str, ...]:
    """Overridden recipe options, such as ``method.epochs=10``, sorted by name."""
    settings = header.setup.settings.items()
    texts = {name: yaml.safe_dump(value).removesuffix("...\n").strip() for name, value in settings}
    return tuple(f"{name}={text}" for name, text in sorted(texts.items()))


def corrected_by(header: Header) -> str:
    """Name of the correction for hubs, with its weight if it was given; empty without one."""
    if header.correction is None:
        return ""
    weight, name = header.correction.given_weight, header.correction.name.upper()
    return name if weight is None else f"{name}, weight {weight:g}"


def noise_used(header: Header) -> str:
    """Name of the noise: as :func:`other_noise`, and under image noise also for the standard draw.

    No seed draws the image files that papers share, so rows on those files and rows on our draw have different noise.
    """
    other, seed = other_noise(header), header.noise.seed
    return other or (f"our draw, seed {seed}" if header.noise.unit == "image" else "")


def other_noise(header: Header) -> str:
    """Name of the noise if it is not the condition's standard draw: a shared file, a seed, or a hash."""
    noise = header.noise
    if is_standard_noise(header):
        return ""
    if noise.seed is not None:
        return f"noise seed {noise.seed}"
    known = find_known_noise(str(noise.sha256), dataset_spec(header.dataset))
    return noise.published or (known.title if known else f"noise file {str(noise.sha256)[:8]}")


def commands(
    family: Family,
    method: str,
    backbone: str,
    networks: str,
    condition: Condition,
    *,
    printed: bool = False,
) -> tuple[str, ...]:
    """Commands that train, score and evaluate an entry with the recipes of this repository.

    Args:
        family: family of the method.
        method: name of the method in the entry.
        backbone: name of the backbone in the entry.
        networks: ``single``, ``ensemble`` or ``unknown``.
        condition: condition of the entry.
        printed: whether a paper prints the number. Its image noise then comes from a file that no seed draws.

    Returns:
        One command per line; empty if the noise unit is unknown or the repository has no recipe for this method,
        dataset, backbone and text.
    """
    names = family.recipe_names(method, backbone, condition.dataset, condition.text, networks)
    if condition.noise_unit == "unknown" or not names or not set(names) <= set(known_recipes()):
        return ()
    options = drawn_noise(condition.noise_ratio or 0.0, condition.noise_unit)
    if printed:
        if condition.noise_unit == "image":
            options = " --noise-file FILE --noise-unit image"
        setting = family.settings.get(f"{condition.dataset} {condition.noise_ratio or 0:g}")
        options += f" --set {setting}" if setting else ""
    return command_lines(names, options, condition.slug)


def recipe_commands(header: Header, seeds: Sequence[int], condition: Condition) -> tuple[str, ...]:
    """Commands of a condition that states its recipes, with its noise, settings and training seeds."""
    noise, setup = header.noise, header.setup
    options = drawn_noise(condition.noise_ratio or 0.0, condition.noise_unit)
    if noise.unit not in ("none", "natural") and noise.seed is None:
        options = f" --noise-file FILE --noise-unit {noise.unit}"
    elif other_noise(header):
        options += f" --noise-seed {noise.seed}"
    options += f" --precision {setup.precision}" if setup.precision != "32-true" else ""
    options += f" --set steps={setup.budget}" if setup.budget else ""
    options += "".join(f" --set {shlex.quote(setting)}" for setting in changed_settings(header))
    weight = header.correction and header.correction.given_weight
    scoring = "" if header.correction is None else f" --hubs {'auto' if weight is None else f'{weight:g}'}"
    return command_lines(header.recipes, options, condition.slug, setup.plugins, seeds, scoring)
