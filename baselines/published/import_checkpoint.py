"""Convert a checkpoint of a paper's code to a run folder: safetensors, and what is known of the training."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from baselines.backbones.vse_infinity import VSEInfinity
from baselines.kit.backbone import Backbone
from baselines.kit.batches import TrainingBatches
from baselines.methods import METHODS
from baselines.published import weights
from baselines.published.checkpoint_file import META_PREFIX, SCORING, Checkpoint, read_checkpoint
from baselines.published.provenance import Provenance as Provenance
from baselines.published.provenance import Selection
from baselines.published.weights import size_of
from baselines.recipes import written
from baselines.training.job import TrainingJob, build_method
from baselines.training.recipe import Recipe, named_value
from baselines.training.run_folder import Imported, Outcome, RunFolder
from ncl_bench.data import DATASETS, dataset_spec
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import RecipeError, TrainingError, known_name, named, refuse_difference
from ncl_bench.files import atomic_folder, refuse_existing, sha256_of_file, write_bytes
from ncl_bench.foreign import reading
from ncl_bench.noise.draw import Noise

SELECTED_ON: dict[str, Selection] = {"pc2": "test"}
"""Split on which the published code chose the checkpoint it releases; dev for all other methods."""

SIGNS = {
    "crcl": "move_gt",
    "l2rm": "cost_function",
    "mscn": "meta_net_A",
    "pc2": "img_pro_head",
    "pcsr": "img_pro_head",
}
"""Method to an entry that its published code writes, and no code of a method with another sign."""


ENCODED_AT_ONCE = 128


def import_checkpoint(file: Path, statement: Provenance, to: Path) -> list[str]:
    """Write the networks of a paper's checkpoint as a run folder.

    Args:
        file: checkpoint (.tar, .pth) written by the published code.
        statement: what the user states about it.
        to: folder to write; it must not exist.

    Returns:
        Notes for the user: what was left out, and where the file disagrees with the statement.
    """
    _check_statement(statement)
    refuse_existing(to)
    options = _backbone_options(statement.settings)
    checkpoint = read_checkpoint(file)
    states = [_scoring_weights(state) for state in checkpoint.networks]
    _check_networks(states, statement.method, file)
    fix = "give a checkpoint of this method, and options that its backbone has"
    with reading(file, TrainingError, fix=fix):
        backbones = [_backbone(state, options) for state in states]
        for option in ("no_imgnorm", "no_txtnorm"):
            if checkpoint.options.get(option):
                raise ValueError(
                    f"it was trained with {option}, and {backbones[0].title} scales to unit length here"
                )
        job = _job(statement, backbones, states[0])
        train = job.load("train")
        method = build_method(job, train)
        for network, state, backbone in zip(method.networks, states, backbones, strict=True):
            _check_sizes(file, state, train, METHODS[statement.method].extra_words)
            network.load_weights({**network.state_dict(), **_our_weights(state, backbone)})
    measured = [
        _measure_centres(network, train)
        for network in method.networks
        if isinstance(network, VSEInfinity) and network.config.centred
    ]
    imported = Imported(
        file=file.name,
        sha256=sha256_of_file(file),
        seed_known=statement.seed is not None,
        selection=statement.selection or SELECTED_ON.get(statement.method, "dev"),
    )
    with atomic_folder(to) as temporary:
        folder = RunFolder(temporary)
        folder.write_run(job.record(train).model_copy(update={"imported": imported}))
        content = save({k: x.contiguous() for k, x in method.networks.state_dict().items()})
        write_bytes(folder.best, content)
        folder.write_outcome(Outcome(best_sha256=sha256(content).hexdigest()))
    return [*_left_out(checkpoint), *measured[:1], *_disagreements(checkpoint, statement, file)]


@torch.no_grad()
def _measure_centres(network: VSEInfinity, train: PairedDataset) -> str:
    """Set the means that scoring subtracts to those of the training pairs; the note says so."""
    # the mean is still zero, so evaluation gives the vectors before they are centred
    network.eval()
    sums = torch.zeros(2, network.embed_size, dtype=torch.float64)
    for batch in TrainingBatches(train, batch_size=ENCODED_AT_ONCE, seed=0).covering("centres"):
        sums += torch.stack([side.vectors.double().sum(dim=0) for side in network.encode(batch)])
    for centring, total in zip((network.centre_images, network.centre_captions), sums, strict=True):
        centring.get_buffer("mean").copy_(total / len(train))
    return (
        "vectors are centred by their mean over the training pairs: the published code centres every test batch by "
        "itself, and its checkpoint holds no mean"
    )


def _scoring_weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: x for name, x in state.items() if name.startswith(SCORING)}


def _check_networks(states: Sequence[Mapping[str, Tensor]], method: str, file: Path) -> None:
    wanted = METHODS[method].n_networks
    meta = [any(name.startswith(META_PREFIX) for name in state) for state in states]
    if meta != [method == "mscn"] * wanted:
        raise TrainingError(
            f"{file} holds {len(meta)} network{'s' * (len(meta) > 1)}, {sum(meta)} with a meta network, and {method} "
            f"trains {wanted}; only MSCN has meta networks, so is it of another method?"
        )


def _left_out(checkpoint: Checkpoint) -> list[str]:
    names = {name for state in checkpoint.networks for name in state if not name.startswith(SCORING)}
    parts = sorted({name.split(".")[0] for name in names})
    return [f"left out, because scoring does not need it: {', '.join(parts)}"] if parts else []


def _disagreements(checkpoint: Checkpoint, statement: Provenance, file: Path) -> list[str]:
    """Disagreements between the file and the user's statement."""
    faults, told = [], checkpoint.options
    writers = [method for method, sign in SIGNS.items() if sign in checkpoint.names]
    if writers and statement.method not in writers:
        faults.append(
            f"{file} holds {SIGNS[writers[0]]}, which the code of {' or '.join(writers)} writes, but --method is "
            f"{statement.method}"
        )
    elif not writers and statement.method in SIGNS:
        faults.append(
            f"{file} lacks {SIGNS[statement.method]}, which the code of {statement.method} writes; is it of "
            "another method?"
        )
    ratio = told.get("noise_ratio")
    if isinstance(ratio, float | int) and statement.noise_ratio not in (None, ratio):
        faults.append(f"{file} says noise_ratio {ratio:g}, but --noise-ratio is {statement.noise_ratio:g}")
    folder = told.get("data_name")
    owners = [spec.name for spec in DATASETS.values() if spec.origin and folder in spec.origin.folders]
    if owners and statement.dataset not in owners:
        faults.append(
            f"{file} says data_name {folder}, which is {owners[0]}, but --dataset is {statement.dataset}"
        )
    return faults


def _backbone_options(settings: Sequence[str]) -> dict[str, Any]:
    options = {}
    for name, value in map(named_value, settings):
        section, _, option = name.partition(".")
        if section != "backbone":
            raise RecipeError(
                f"{named('settings', name)}: an import takes only options of the backbone, such as "
                "backbone.direction=i2t"
            )
        options[option] = value
    return options


def _backbone(state: Mapping[str, Tensor], options: Mapping[str, Any]) -> Backbone:
    matching = {name: x for name, x in state.items() if not name.startswith(META_PREFIX)}
    if len(matching) < len(state):  # a meta network replaces the last layer
        sim_dim = size_of(state, "sim_enc.sim_tranloc_w.weight")
        matching |= {
            "sim_enc.sim_eval_w.weight": torch.zeros(1, sim_dim),
            "sim_enc.sim_eval_w.bias": torch.zeros(1),
        }
    name = weights.backbone_of(matching)
    if name is None:
        signs = ", ".join(
            f"{sign}* for {backbone}" for backbone, (sign, _) in weights.CHECKPOINT_FORMATS.items()
        )
        raise ValueError(f"it holds the weights of no known backbone, expected {signs}")
    return weights.network_from(name, matching, **options).float()


def _our_weights(state: Mapping[str, Tensor], backbone: Backbone) -> dict[str, Tensor]:
    ours = backbone.state_dict()
    meta = {n.removeprefix(META_PREFIX): x for n, x in state.items() if n.startswith(META_PREFIX)}
    if not meta:
        return ours
    kept = {name: x for name, x in ours.items() if not name.startswith("head.")}
    return kept | weights.translate(meta, weights.META_NETWORK)


def _check_statement(statement: Provenance) -> None:
    known_name("method", statement.method, METHODS, RecipeError)
    synthetic = dataset_spec(statement.dataset).noise == "synthetic"
    if synthetic and statement.noise_ratio is None and statement.noise_file is None:
        raise TrainingError(
            f"the noise that the checkpoint was trained on is not given; state it with {named('noise_ratio')} "
            f"(0 for clean pairs) or {named('noise_file')}"
        )
    if statement.noise_file is None:
        Noise.asked(statement.noise_ratio, statement.noise_unit, statement.noise_seed)


def _job(statement: Provenance, backbones: Sequence[Backbone], state: Mapping[str, Tensor]) -> TrainingJob:
    name = backbones[0].name
    method: dict[str, Any] = {"name": statement.method}
    if statement.method == "mscn":
        method["hidden_size"] = size_of(state, f"{META_PREFIX}first_hidden_layer.fc.weight")
        shipped = written(f"mscn/{statement.dataset}_{name}").get("method", {})
        method |= {key: shipped[key] for key in ("trusted_pairs",) if key in shipped}
    content = {
        "dataset": statement.dataset,
        "language": statement.language,
        "tokenizer": statement.tokenizer,
        "backbone": {"name": name, **backbones[0].config.model_dump(exclude_none=True)},
        "method": method,
    }
    return TrainingJob(
        Recipe.from_dict(content, where="imported checkpoint"),
        statement.noise_ratio,
        statement.noise_unit,
        statement.noise_seed,
        statement.noise_file,
        statement.seed or 0,
        statement.root,
    )


def _check_sizes(file: Path, state: Mapping[str, Tensor], train: PairedDataset, extra_words: int) -> None:
    """Check that the network and the dataset agree on words, regions and features."""
    layer = next(name for name in ("img_enc.fc.weight", "img_enc.fc_local.weight") if name in state)
    facts = {
        "vocabulary size": (size_of(state, "txt_enc.embed.weight"), train.vocabulary.size + extra_words),
        "feature dimension": (size_of(state, layer, 1), train.feature_dim),
    }
    regions = "sim_enc.v_global_w.embedding_local.1.weight"
    if regions in state:
        facts["number of regions"] = (size_of(state, regions), train.n_regions)
    fix = "is it of another dataset or method, or another vocabulary file (ncl-bench prepare --vocabulary)?"
    refuse_difference(f"{file} does not fit {train.name}", facts, fix, TrainingError)
