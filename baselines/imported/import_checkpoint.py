"""Turn a checkpoint of the papers' code into a run folder: safetensors, and what is known of the training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from safetensors.torch import save
from torch import Tensor

from baselines.backbones import BACKBONES
from baselines.backbones.weight_names import size_of
from baselines.engine.recipe import Recipe, named_value
from baselines.engine.records import Imported
from baselines.engine.run_folder import RunFolder, TrainingJob
from baselines.engine.train import build_method
from baselines.imported.checkpoint_file import SCORING, networks_in, read_checkpoint
from baselines.kit.backbone import Backbone
from baselines.methods import METHODS
from ncl_bench.data import dataset_spec
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import RecipeError, TrainingError, first_problem, unknown_name
from ncl_bench.files import atomic_path, sha256_of_file, write_bytes
from ncl_bench.noise.draw import NoiseUnit

Selection = Literal["dev", "test", "none"]

SELECTED_ON: dict[str, Selection] = {"pc2": "test"}
"""Where the published code chose the checkpoint that it releases; dev for every other method."""


@dataclass(frozen=True)
class Statement:
    """What a checkpoint does not say about itself.

    Attributes:
        method: that trained it.
        dataset: it was trained on.
        noise_ratio: of its training pairs; None where the dataset carries its own, or a noise file tells.
        noise_unit: ``"caption"`` or ``"image"``.
        noise_seed: of the noise; the cell's standard seed by default.
        noise_file: the noise index it was trained with.
        seed: of its training; None if unknown.
        selection: where the checkpoint was chosen; what the method's published code does by default.
        language: of the captions; the dataset's first by default.
        tokenizer: the language's default by default.
        root: folder of prepared datasets.
        settings: options of the backbone that the weights do not tell, such as ``backbone.direction=i2t``.
    """

    method: str
    dataset: str
    noise_ratio: float | None = None
    noise_unit: NoiseUnit = "caption"
    noise_seed: int | None = None
    noise_file: Path | None = None
    seed: int | None = None
    selection: Selection | None = None
    language: str | None = None
    tokenizer: str | None = None
    root: Path | None = None
    settings: tuple[str, ...] = ()


def import_checkpoint(file: Path, statement: Statement, to: Path) -> list[str]:
    """Write the networks of a checkpoint of the papers' code as a run folder.

    Args:
        file: written by the published code.
        statement: what it is.
        to: folder to write; it must not exist.

    Returns:
        The parts of the file that scoring does not need and that were left out.

    Raises:
        TrainingError: the file is damaged or refused, or is not what the statement says.
    """
    _check_statement(statement)
    if to.exists():
        raise TrainingError(f"{to} exists; choose a new folder with --to")
    options = _backbone_options(statement.settings)
    states = networks_in(read_checkpoint(file), file)
    wanted = METHODS[statement.method].n_networks
    if len(states) != wanted:
        raise TrainingError(
            f"{file} holds {len(states)} networks, {statement.method} trains {wanted}; is it of another method?"
        )
    scoring = [{name: x for name, x in state.items() if name.startswith(SCORING)} for state in states]
    backbones = [_backbone(state, options, file) for state in scoring]
    job = _job(statement, backbones)
    train = job.load("train")
    method = build_method(job, train, job.seed)
    for network, state, backbone in zip(method.networks, scoring, backbones, strict=True):
        _check_sizes(file, state, train, METHODS[statement.method].extra_words)
        network.load_state_dict({**network.state_dict(), **backbone.state_dict()})
    imported = Imported(
        file=file.name,
        sha256=sha256_of_file(file),
        seed_known=statement.seed is not None,
        selection=statement.selection or SELECTED_ON.get(statement.method, "dev"),
    )
    with atomic_path(to) as temporary:
        folder = RunFolder(temporary)
        folder.write_run(job.record(train).model_copy(update={"imported": imported}))
        write_bytes(folder.best, save({k: x.contiguous() for k, x in method.networks.state_dict().items()}))
    return sorted({name.split(".")[0] for state in states for name in state if not name.startswith(SCORING)})


def _backbone_options(settings: Sequence[str]) -> dict[str, Any]:
    options = {}
    for name, value in map(named_value, settings):
        section, _, option = name.partition(".")
        if section != "backbone":
            raise RecipeError(
                f"--set {name}: an import takes options of the backbone alone, such as backbone.direction=i2t"
            )
        options[option] = value
    return options


def _backbone(state: Mapping[str, Tensor], options: Mapping[str, Any], file: Path) -> Backbone:
    for cls in BACKBONES.values():
        if cls.recognises(state):
            try:
                return cls.from_weights(state, **options).float()
            except TrainingError as error:
                raise TrainingError(f"{file}: {error}") from None
            except ValidationError as error:
                raise RecipeError(f"backbone {cls.name}: {first_problem(error)}") from None
    signs = ", ".join(
        f"{cls.weight_prefix}* for {name}" for name, cls in BACKBONES.items() if cls.weight_prefix
    )
    raise TrainingError(f"{file} holds the weights of no known backbone, expected {signs}")


def _check_statement(statement: Statement) -> None:
    if statement.method not in METHODS:
        raise RecipeError(unknown_name("method", statement.method, METHODS))
    synthetic = dataset_spec(statement.dataset).noise == "synthetic"
    if synthetic and statement.noise_ratio is None and statement.noise_file is None:
        raise TrainingError(
            "the noise that the checkpoint was trained on is not given; state it with --noise-ratio "
            "(0 for clean pairs) or --noise-file"
        )


def _job(statement: Statement, backbones: Sequence[Backbone]) -> TrainingJob:
    name = next(name for name, cls in BACKBONES.items() if type(backbones[0]) is cls)
    content = {
        "dataset": statement.dataset,
        "language": statement.language,
        "tokenizer": statement.tokenizer,
        "backbone": {"name": name, **backbones[0].config.model_dump(exclude_none=True)},
        "method": {"name": statement.method},
    }
    return TrainingJob(
        Recipe.from_dict(content, where="imported checkpoint"),
        statement.noise_ratio or 0.0,
        statement.noise_unit,
        statement.noise_seed,
        statement.noise_file,
        statement.seed or 0,
        statement.root,
    )


def _check_sizes(file: Path, state: Mapping[str, Tensor], train: PairedDataset, extra_words: int) -> None:
    """The network and the dataset agree on words, regions and features."""
    words, expected = size_of(state, "txt_enc.embed.weight"), train.vocabulary.size + extra_words
    if words != expected:
        mask = f" with {extra_words} more for <mask>" if extra_words else ""
        raise TrainingError(
            f"{file} was trained with a vocabulary of {words} words, {train.name} has {expected}{mask}; prepare "
            "the dataset with the vocabulary file of that training (ncl-bench prepare --vocabulary)"
        )
    layer = next(name for name in ("img_enc.fc.weight", "img_enc.fc_local.weight") if name in state)
    found = {"feature dimension": (size_of(state, layer, 1), train.feature_dim)}
    regions = "sim_enc.v_global_w.embedding_local.1.weight"
    if regions in state:
        found["number of regions"] = (size_of(state, regions), train.n_regions)
    for fact, (theirs, ours) in found.items():
        if theirs != ours:
            raise TrainingError(
                f"{file} was trained with a {fact} of {theirs}, {train.name} has {ours}; is it another dataset?"
            )
