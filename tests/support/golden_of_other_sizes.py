"""Golden files of other sizes, to show that no test carries the sizes of the files in ``tests/golden``.

``python tests/support/golden_of_other_sizes.py FOLDER``, with ``tests`` and the folders of the parity tests on
``PYTHONPATH``, writes groups A
to H under the same names: a batch of nine, other regions, widths, words and numbers of pairs. Weights and inputs are
drawn from the entries of the published files; what is computed from them comes from this repository. So a test that
passes on them has taken every size from the file, and nothing is said about its numbers.
"""

import dataclasses
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import test_crcl
import test_gsc
import test_ncr
import test_pc2
import torch
from support import backbone_parity
from support.method_parity import (
    BACKBONE_FILES,
    ENCODERS,
    GradientStep,
    OptimizerStep,
    batches_of,
    gradient_norm,
    network_with,
    published_batch,
    published_network,
    published_setting,
)
from torch import Tensor, nn

from baselines.kit.batches import Batch
from baselines.kit.losses import hardest_triplet, mean_triplet
from baselines.kit.mixture import clean_posterior, is_clean, min_max_normalised
from baselines.methods import gsc, ncr, pc2
from baselines.methods.pc2 import (
    FLOOR,
    PseudoClassifier,
    classification_loss,
    classify,
    entropy,
    resized,
)
from ncl_bench.evaluation.protocol import protocol_result
from ncl_bench.evaluation.ranks import count_ranks
from ncl_bench.evaluation.scores import ArrayRows
from ncl_bench.noise.draw import clean_pairing, inject_noise

BATCH, REGIONS, FEATURES, WORD, EMBED, SIM, WORDS = 9, 17, 20, 7, 14, 6, 31
STEPS, CLASSES, HIDDEN = 2, 5, 40
PARAMETER_SIZES = {12: WORD, 24: EMBED, 72: 3 * EMBED, 32: FEATURES, 10: SIM, 50: WORDS, 36: REGIONS}
OTHER_SIZES = {
    12: BATCH,
    10: BATCH - 2,
    8: CLASSES,
    20: 13,
    24: 2 * BATCH,
    36: 26,
    40: 33,
    60: 44,
    300: 170,
    400: 210,
}

Arrays = dict[str, np.ndarray]
random = np.random.default_rng(7)
published = {path.stem: dict(np.load(path)) for path in (Path(__file__).parents[1] / "golden").glob("*.npz")}
made: dict[str, Arrays] = defaultdict(dict)


def golden(name: str) -> Arrays:
    return made[name]


def drawn(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Random entries of an array in another shape; a square matrix keeps its diagonal apart."""
    if array.ndim == 0:
        return array
    result = random.choice(array.ravel(), shape)
    if array.ndim == 2 and array.shape[0] == array.shape[1] == 12:
        result = random.choice(array[~np.eye(len(array), dtype=bool)], shape)
        np.fill_diagonal(result, random.choice(array.diagonal(), len(result)))
    return result


def other(array: np.ndarray) -> np.ndarray:
    return drawn(array, tuple(OTHER_SIZES.get(size, size) for size in array.shape))


def weights(stored: Arrays, prefix: str = "") -> Arrays:
    """State dict of other sizes."""
    result = {}
    for name, array in stored.items():
        own = name.removeprefix(prefix)
        if not (name.startswith(prefix) and own.startswith(ENCODERS)) or f"SGR_module.{STEPS}." in own:
            continue
        sizes = {} if "gpool" in own else PARAMETER_SIZES
        if own.startswith("img_enc.mlp"):
            sizes = sizes | {12: EMBED // 2}
        result[name] = drawn(array, tuple(sizes.get(size, size) for size in array.shape))
    return result


def captions(lengths: np.ndarray) -> np.ndarray:
    tokens = random.integers(3, WORDS, (len(lengths), lengths.max()))
    tokens[:, 0], tokens[np.arange(len(lengths)), lengths - 1] = 1, 2
    return tokens * (np.arange(lengths.max()) < lengths[:, None])


def lengths_up_to(longest: int, n: int = BATCH) -> np.ndarray:
    return random.permutation(np.append(longest, random.integers(4, longest + 1, n - 1)))


def number(x: Tensor) -> np.ndarray:
    return x.detach().numpy()


def gradients(backbone: str, network: nn.Module) -> Arrays:
    """Gradients under published names, which are found by marking every weight with a number."""
    state = {
        name: torch.from_numpy(x)
        for name, x in made[BACKBONE_FILES[backbone]].items()
        if name.startswith(ENCODERS)
    }
    names = list(state)
    marked = {name: torch.full_like(state[name], k, dtype=torch.float64) for k, name in enumerate(names)}
    weights = zip(
        network.parameters(), network_with(backbone, marked).parameters(), strict=False
    )  # no classifier
    return {
        names[int(mark.flatten()[0])]: number(
            torch.zeros_like(weight) if weight.grad is None else weight.grad
        )
        for weight, mark in weights
    }


def backbones() -> None:
    """Groups A and B."""
    for name, file in BACKBONE_FILES.items():
        stored = made[file]
        stored |= weights(published[file])
        lengths = lengths_up_to(11)
        pooled = name == "vse_infinity"
        stored["in.lengths"] = np.sort(lengths)[::-1].copy() if pooled else lengths
        stored["in.captions"] = captions(stored["in.lengths"])
        stored["in.proj"] = random.normal(size=(BATCH, BATCH)).astype(np.float32)
        images = random.normal(size=(BATCH, REGIONS, FEATURES)).astype(np.float32)
        stored["in.images_full" if pooled else "in.images"] = images
        if pooled:
            regions = random.integers(3, REGIONS - 1, BATCH)
            stored["in.image_lengths_full"], stored["in.image_lengths_var"] = np.full(BATCH, REGIONS), regions
            longest = regions.max()
            hidden = np.arange(longest) >= regions[:, None]
            stored["in.images_var"] = np.where(hidden[..., None], 0, images[:, :longest]).astype(np.float32)
        for mode in ("eval", "train"):
            for regions in ("_full", "_var") if pooled else ("",):
                for dtype in (torch.float32, torch.float64):
                    one_backbone(name, stored, mode, regions, dtype)
        if not pooled:
            rows = stored["in.rect_rows"] = np.array([5, 0, 8, 3])
            stored["eval.sims_rect"] = stored["eval.sims"][rows]


def one_backbone(name: str, stored: Arrays, mode: str, regions: str, dtype: torch.dtype) -> None:
    case, suffix = mode + regions, backbone_parity.SUFFIX[dtype]
    network: Any = backbone_parity.published_network(name, stored, dtype, mode)
    seen: dict[str, list[Tensor]] = defaultdict(list)

    def keep(key: str) -> Any:
        return lambda module, inputs, output=None: seen[key].append(inputs[0] if output is None else output)

    if regions:
        network.region_pooling.register_forward_hook(keep("img"))
        network.word_pooling.register_forward_hook(keep("txt"))
    else:
        network.block_captions = 1
        network.head.register_forward_pre_hook(keep("vectors"))
    images, texts = backbone_parity.encoded(network, stored, dtype, regions)
    similarities = network.similarities(images, texts)
    stored[f"{case}.img_emb{suffix}"], stored[f"{case}.cap_emb{suffix}"] = (
        number(images.vectors),
        number(texts.vectors),
    )
    stored[f"{case}.sims{suffix}"] = number(similarities)
    for target in ("sum", "proj"):
        network.zero_grad()
        factor = torch.from_numpy(stored["in.proj"]) if target == "proj" else torch.ones(())
        (similarities * factor).sum().backward(retain_graph=True)
        for key, gradient in gradients(name, network).items():
            stored[f"grad_{case}_{target}.{key}{suffix}"] = gradient
    if dtype == torch.float64:
        if not regions:  # a similarity of float32 near 1 does not tell its logit
            logits = stored[f"{case}.logits{suffix}"] = number(torch.logit(similarities))
            stored[f"{case}.logits"] = logits.astype(np.float32)
        return
    if regions:
        for side, items, pooling in (
            ("img", images, network.region_pooling),
            ("txt", texts, network.word_pooling),
        ):
            longest = REGIONS if regions == "_full" else stored["in.images_var"].shape[1]
            longest = longest if side == "img" else stored["in.captions"].shape[1]
            stored[f"{case}.{side}_pool_weights"] = number(pooling.weights(items.lengths, longest))[..., None]
            stored[f"{case}.{side}_pooled"] = number(seen[side][0])
        for key in ("running_mean", "running_var", "num_batches_tracked"):
            stored[f"after_train_var_forward.img_enc.mlp.bns.0.{key}"] = number(
                getattr(network.regions.norm, key)
            )
        return
    stored[f"{case}.img_glo"], stored[f"{case}.cap_glo"] = number(images.pooled), number(texts.pooled)
    order = sorted(range(BATCH), key=lambda k: -int(stored["in.lengths"][k]))
    stored[f"{case}.sim_vec"] = number(torch.cat(seen["vectors"][:BATCH], dim=1))[:, np.argsort(order)]
    if mode == "train":
        names = {
            "image_vector.local.1": "v_global_w.embedding_local.1",
            "image_vector.overall.1": "v_global_w.embedding_global.1",
            "reasoning.norm": "SAF_module.bn",
        }
        for key, buffer in network.named_buffers():
            module, _, kind = key.rpartition(".")
            stored[f"after_train_forward.sim_enc.{names[module]}.{kind}"] = number(buffer.clone())


def with_gradient(loss_of: Any, similarities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    given = torch.from_numpy(similarities.copy()).requires_grad_()
    loss = loss_of(given)
    loss.sum().backward()
    assert given.grad is not None
    return number(loss), number(given.grad)


def ncr_losses() -> None:
    stored = made["C_ncr_losses"]
    for name, array in published["C_ncr_losses"].items():
        if name.startswith(("scores.", "labels_")):
            stored[name] = other(array)
    column, square = (
        torch.from_numpy(stored["labels_column"])[:, 0],
        torch.from_numpy(stored["labels_matrix"]),
    )
    modes = {
        "warmup": lambda s: mean_triplet(s, 0.2).sum(),
        "train_mean": lambda s: mean_triplet(s, 0.2).sum(),
        "train_hard": lambda s: hardest_triplet(s, 0.2).sum(),
        "eval_loss": lambda s: mean_triplet(s, 0.2),
    }
    for curve in test_ncr.CURVES:
        config = ncr.NCRConfig(curve=curve)
        modes[f"train_hard.column.{curve}"] = lambda s, c=config: ncr.ncr_triplet(s, column, c).sum()
        modes[f"train_hard.matrix.{curve}"] = lambda s, c=config: ncr.ncr_triplet(s, square, c).sum()
    for matrix in test_ncr.MATRICES:
        scores = stored[f"scores.{matrix}"]
        for mode, loss_of in modes.items():
            stored[f"{matrix}.{mode}.value"], stored[f"{matrix}.{mode}.grad"] = with_gradient(loss_of, scores)
        stored[f"{matrix}.predict.clamped"] = number(ncr.matching_prediction(torch.from_numpy(scores), 0.2))


def ncr_mixtures() -> None:
    stored = made["C_ncr_gmm"]
    for name, array in published["C_ncr_gmm"].items():
        case, _, kind = name.rpartition(".")
        if kind.startswith("loss_"):
            stored[name] = other(array)
        elif kind == "np_seed":
            stored[name] = array
        elif kind == "prob":
            stored[name] = drawn(array, (len(array) // 3,))
            stored[f"{case}.pred"] = np.asarray(is_clean(torch.from_numpy(stored[name]), 0.5))
    for case in {name.split(".")[0] for name in stored if "loss_" in name}:
        state = np.random.RandomState(int(stored[f"{case}.np_seed"]))
        for network in "AB":
            losses = stored[f"{case}.loss_{network}"]
            stored[f"{case}.norm_loss_{network}"] = min_max_normalised(losses)
            posterior = clean_posterior(torch.from_numpy(losses), random_state=state)
            stored[f"{case}.prob_{network}"] = number(posterior)
            stored[f"{case}.pred_{network}"] = np.asarray(is_clean(posterior, 0.5))


def ncr_labels() -> None:
    given, stored = published["C_ncr_refine"], made["C_ncr_refine"]
    stored |= {name: other(given[name]) for name in ("w", "p_net", "p_other")}
    w, mean = stored["w"], (stored["p_net"] + stored["p_other"]) / 2
    stored["n_labelled"], stored["batch_size"] = np.array(len(w)), np.array(BATCH)
    for half in ("first_half", "second_half"):
        labelled = np.array_split(random.permutation(len(w)), 3)
        unlabelled = np.array_split(random.permutation(np.arange(len(w), len(mean))), 3)
        stored[f"{half}.n_train_calls"], stored[f"{half}.is_labelled"] = (
            given[f"{half}.n_train_calls"],
            given[f"{half}.is_labelled"],
        )
        for k, kind in enumerate(given[f"{half}.is_labelled"]):
            ids = stored[f"{half}.call{k}.ids"] = (labelled if kind else unlabelled).pop()
            p = stored["p_net"][ids]
            labels = w[ids][:, None] * 1 + (1 - w[ids])[:, None] * p if kind else mean[ids][:, None]
            stored[f"{half}.call{k}.labels"] = labels


def ncr_networks() -> None:
    stored = made["C_ncr_network"]
    for name in ("labels_column", "labels_matrix"):
        stored[name] = other(published["C_ncr_network"][name])
    for backbone in test_ncr.BACKBONES:
        batch = test_ncr.batch_of(backbone, golden)
        method = test_ncr.method_on(backbone, golden)
        stored[f"{backbone}.predict_eval"] = number(method.predict(method.networks[0], batch))
        stored[f"{backbone}.eval_loss_eval"] = number(mean_triplet(method.networks[0](batch), 0.2))
        for mode in ("warmup", "soft_column", "soft_matrix"):
            case, method, once = f"{backbone}.{mode}", test_ncr.method_on(backbone, golden), GradientStep()
            test_ncr.train_once(method, batch, mode, golden, once)
            record_step(stored, case, backbone, method.networks[0], loss=once.loss)
            method = test_ncr.method_on(backbone, golden)
            step = OptimizerStep(method, 2e-3)
            for _ in range(4):
                test_ncr.train_once(method, batch, mode, golden, step)
            stored[f"{case}.losses_4_steps_lr2e-3"] = np.array(step.losses)


def record_step(stored: Arrays, case: str, backbone: str, network: nn.Module, **values: float) -> None:
    stored |= {f"{case}.{name}": np.array(value) for name, value in values.items()}
    stored[f"{case}.grad_norm"] = np.array(gradient_norm(network))
    stored |= {f"{case}.grad.{name}": gradient for name, gradient in gradients(backbone, network).items()}


def crcl_losses() -> None:
    given, stored = published["D_crcl_losses"], made["D_crcl_losses"]
    for name, array in given.items():
        if name.startswith(("sims.", "move_gt_before.")):
            stored[name] = other(array)
    ids = stored["text_ids"] = random.permutation(len(stored["move_gt_before.ones"]))[:BATCH]
    for case in [name.removesuffix(".y") for name in given if name.endswith(".y")]:
        matrix, store, epoch, schedule, *tag = case.split(".")
        labels, sims = stored[f"move_gt_before.{store}"], stored[f"sims.{matrix}"]
        setting = test_crcl.of_similarities(sims, len(labels))
        method, step = test_crcl.method_on(setting, labels, **test_crcl.OPTIONS["".join(tag)]), GradientStep()
        batch = test_crcl.blank_batch(torch.from_numpy(ids))
        method.train_epoch(test_crcl.plan(int(epoch[5:]), int(schedule[8:])), batches_of(batch), step)
        for side, name in ((torch.from_numpy(sims), "p1"), (torch.from_numpy(sims.T), "p2")):
            stored[f"{case}.{name}"] = number(test_crcl.matching_log_probabilities(side, 0.05).exp())
        stored[f"{case}.y"] = stored[f"{case}.p1"].diagonal()  # its name says which cases there are
        stored[f"{case}.move_gt_after"] = number(method.labels.values).copy()
        stored[f"{case}.grad_sims"] = number(method.networks[0].weight.grad)
        for name, value in (
            ("loss", step.loss),
            ("loss1", step.terms["active"]),
            ("loss2", step.terms["complementary"]),
        ):
            stored[f"{case}.{name}"] = np.array(value)


def crcl_networks() -> None:
    given, stored = published["D_crcl_network"], made["D_crcl_network"]
    labels = stored["move_gt_before.mixed"] = other(given["move_gt_before.mixed"])
    ids = stored["text_ids"] = random.permutation(len(labels))[:BATCH]
    for tag, backbone in test_crcl.BACKBONES:
        order = stored[f"{tag}.batch_order"] = falling(backbone)
        batch = published_batch(made[BACKBONE_FILES[backbone]], order, torch.from_numpy(ids))
        method, once = (
            test_crcl.method_on(published_setting(backbone, golden, len(labels)), labels),
            GradientStep(),
        )
        method.train_epoch(test_crcl.plan(2), batches_of(batch), once)
        stored[f"{tag}.epoch2.y"] = number(method.labels.read(batch.pair_ids))
        terms = {"loss": once.loss, "loss1": once.terms["active"], "loss2": once.terms["complementary"]}
        record_step(stored, f"{tag}.epoch2", backbone, method.networks[0], **terms)
        epochs = stored[f"{tag}.trajectory.epochs"] = given[f"{tag}.trajectory.epochs"][:5]
        method = test_crcl.method_on(published_setting(backbone, golden, len(labels)), np.ones(len(labels)))
        step, history = OptimizerStep(method, 5e-4), []
        for epoch in epochs:
            method.train_epoch(test_crcl.plan(int(epoch)), batches_of(batch), step)
            history.append(number(method.labels.read(batch.pair_ids)).copy())
        stored[f"{tag}.trajectory.move_gt"], stored[f"{tag}.trajectory.loss"] = (
            np.stack(history),
            np.array(step.losses),
        )


def falling(backbone: str) -> np.ndarray:
    return np.argsort(-made[BACKBONE_FILES[backbone]]["in.lengths"], kind="stable")


def gsc_contrast(file: str) -> None:
    stored = made[file]
    for name, array in published[file].items():
        if not name.startswith("infonce.scores."):
            continue
        matrix = name.removeprefix("infonce.scores.")
        scores = stored[name] = other(array)
        for temperature in (0.07, 1.0):
            for side, dim in (("rows", 1), ("cols", 0)):
                logs = lambda s, t=temperature, d=dim: (s / t).log_softmax(dim=d).diagonal()  # noqa: E731
                loss, gradient = with_gradient(lambda s, logs=logs: -logs(s), scores)
                case = f"infonce.{matrix}.temp{temperature}.{side}"
                stored |= {
                    f"{case}.loss": loss,
                    f"{case}.preds": np.exp(-loss),
                    f"{case}.grad_of_sum": gradient,
                }


def gsc_networks(file: str) -> None:
    given, stored = published[file], made[file]
    stored["targets_random"] = other(given["targets_random"])
    n = len(stored["targets_random"])
    stored["n_data"], stored["ids"] = np.array(n), random.permutation(n)[:BATCH]
    for backbone in ("sgr", "saf"):
        stored[f"{backbone}.batch_order"] = falling(backbone)
        for targets in test_gsc.TARGETS:
            for mode in ("eval", "train"):
                one_gsc_step(file, backbone, targets, mode)
            method, batch = test_gsc.one_network(file, backbone, golden, targets)
            step = OptimizerStep(method.train(), 2e-3)
            for _ in range(3):
                method.train_step(0, batch, step)
            stored[f"{backbone}.trajectory.{targets}.loss_3_steps_lr2e-3"] = np.array(step.losses)


def one_gsc_step(file: str, backbone: str, targets: str, mode: str) -> None:
    stored, case = made[file], f"{backbone}.{mode}.{targets}"
    method, batch = test_gsc.one_network(file, backbone, golden, targets)
    for suffix, dtype in (("__f64", torch.float64), ("", torch.float32)):
        network = backbone_parity.published_network(backbone, made[BACKBONE_FILES[backbone]], dtype, mode)
        with torch.no_grad():
            images = network.encode_images(batch.image_features.to(dtype), batch.image_lengths)
            texts = network.encode_captions(batch.caption_tokens, batch.caption_lengths)
            similarities = network.similarities(images, texts)
            between = (
                network.image_image_similarities(images, method.variant),
                network.caption_caption_similarities(texts, method.variant),
            )
        for name, values in zip(("img", "cap"), between, strict=True):
            stored[f"{backbone}.{mode}.sims_{name}_raw{suffix}"] = number(values.double().logit().to(dtype))
    labels = method.indicators[0].label.read(batch.pair_ids)
    weighted = [labels * values for values in between]
    per_pair = gsc.intra_modal_loss(*weighted, labels, 1.0)
    once = GradientStep()
    method.train(mode == "train").train_step(0, batch, once)
    own = method.indicators[0]
    stored |= {
        f"{case}.sims": number(similarities),
        f"{case}.sims_img": number(weighted[0]),
        f"{case}.sims_cap": number(weighted[1]),
        f"{case}.loss_topo": number(per_pair),
        f"{case}.loss_cl": np.array([once.terms["cross_modal"]]),
        f"{case}.stored_topos": number(own.seen_agreement.read(batch.pair_ids)),
        f"{case}.stored_preds": number(own.seen_cross_modal.read(batch.pair_ids)),
    }
    record_step(stored, case, backbone, method.networks[0], loss=once.loss)
    if (file, case) == ("E_gscplus", "sgr.train.targets_ones_f32"):
        stored |= {f"warmup.{name}": stored[f"{case}.{name}"] for name in ("loss", "loss_cl", "loss_topo")}


def record_labels(stored: Arrays, case: str, indicators: gsc.Indicators, suffix: str) -> None:
    for memory, name in (
        (indicators.intra_modal, "topo_targets"),
        (indicators.cross_modal, "preds_targets"),
        (indicators.label, "targets"),
    ):
        stored[f"{case}.{name}{suffix}"] = number(memory.values).copy()


def gsc_labels(file: str) -> None:
    given, stored = published[file], made[file]
    indicators: gsc.Indicators | None = None
    for case in sorted(name.removesuffix(".prob") for name in given if name.endswith(".prob")):
        seed = int(given[f"{case}.np_seed"])
        stored[f"{case}.np_seed"] = given[f"{case}.np_seed"]
        for name in ("topos", "preds"):
            stored[f"{case}.{name}"] = other(given[f"{case}.{name}"])
        agreement = torch.from_numpy(stored[f"{case}.topos"])
        ids = torch.arange(len(agreement))
        indicators = indicators or gsc.Indicators(len(ids))
        stored[f"{case}.prob"] = number(gsc.intra_modal_indicator(agreement, np.random.RandomState(seed)))
        indicators.seen_cross_modal.write(ids, torch.from_numpy(stored[f"{case}.preds"]))
        indicators.seen_agreement.write(ids, agreement)
        indicators.update(ids, gsc.GSCConfig(), np.random.RandomState(seed))
        record_labels(stored, case, indicators, "")


def gsc_two_networks() -> None:
    given, stored = published["E_gscplus"], made["E_gscplus"]
    stored |= weights(given, "duo.B_weights.")
    networks = iter(
        [published_network("sgr", golden), published_network("sgr", golden, "duo.B_weights.", stored)]
    )
    setting = published_setting("sgr", golden, 2 * BATCH)
    method = gsc.GSCPlus(gsc.GSCConfig(), dataclasses.replace(setting, make_network=lambda: next(networks)))
    stored["duo.ids"] = random.permutation(2 * BATCH).reshape(2, BATCH)
    batches = []
    for own, name in zip(method.indicators, "AB", strict=True):
        stored[f"duo.targets_{name}_before"] = other(given[f"duo.targets_{name}_before"])
        own.label.values.copy_(torch.from_numpy(stored[f"duo.targets_{name}_before"]))
    for j, ids in enumerate(stored["duo.ids"]):
        lengths = np.sort(lengths_up_to(12 + j))[::-1].copy()
        images = random.normal(size=(BATCH, REGIONS, FEATURES)).astype(np.float32)
        parts = {"images": images, "captions": captions(lengths), "lengths": lengths}
        stored |= {f"duo.batch{j}.{name}": part for name, part in parts.items()}
        tokens, regions = parts["captions"], np.full(BATCH, REGIONS)
        batches.append(Batch(*(torch.from_numpy(x) for x in (images, regions, tokens, lengths, ids))))
    step = OptimizerStep(method, 2e-4)
    method.train_epoch(method.plan()[0], batches_of(*batches), step)
    losses = iter(step.losses)
    stored |= {f"duo.batch{j}.loss_{name}": np.array(next(losses)) for j in (0, 1) for name in "AB"}
    stored["duo.np_seed"] = given["duo.np_seed"]
    state = np.random.RandomState(int(stored["duo.np_seed"]))
    for own, name in zip(method.indicators, "AB", strict=True):
        stored[f"duo.{name}.topos"] = number(own.seen_agreement.values).copy()
        stored[f"duo.{name}.preds"] = number(own.seen_cross_modal.values).copy()
        for memory in (own.cross_modal, own.intra_modal):
            memory.values.fill_(1.0)
        own.update(torch.arange(2 * BATCH), method.config, state)
        record_labels(stored, f"duo.{name}", own, "_after")


def pc2_losses() -> None:
    stored = made["F_pc2_losses"]
    for name, array in published["F_pc2_losses"].items():
        if name.startswith(("scores.", "labels_")) or name.endswith(".logits"):
            stored[name] = other(array)
        if name.endswith(".logits"):
            targets = torch.from_numpy(other(array)).softmax(dim=1)
            stored[name.replace(".logits", ".targets")] = targets.numpy()
    column, vector = (
        torch.from_numpy(stored["labels_column"])[:, 0],
        torch.from_numpy(stored["labels_vector"]),
    )
    modes = {
        "warmup": lambda s: pc2.warmup_triplet(s, 0.2, "all").sum(),
        "warmup_sele": lambda s: pc2.warmup_triplet(s, 0.2, "lowest").sum(),
        "eval_loss": lambda s: mean_triplet(s, 0.2, floor=FLOOR),
    }
    for curve in test_pc2.CURVES:
        config = pc2.PC2Config(curve=curve)
        modes[f"lb_train.column.{curve}"] = lambda s, c=config: pc2.pc2_triplet(s, column, "row", c).sum()
        modes[f"ulb_train.vector.{curve}"] = lambda s, c=config: pc2.pc2_triplet(s, vector, "column", c).sum()
    for matrix in test_pc2.MATRICES:
        for mode, loss_of in modes.items():
            case = f"{matrix}.{mode}"
            stored[f"{case}.value"], stored[f"{case}.grad"] = with_gradient(
                loss_of, stored[f"scores.{matrix}"]
            )
    for case in ("nc.flat", "nc.peaky", "nc.saturated"):
        targets = torch.from_numpy(stored[f"{case}.targets"])

        def parts(logits: Tensor, targets: Tensor = targets) -> tuple[Tensor, Tensor]:
            spread = entropy(logits.softmax(dim=1)).mean()
            return classification_loss(logits, targets.log()).mean(), spread

        logits = torch.from_numpy(stored[f"{case}.logits"])
        stored[f"{case}.hard.ce_mean"], stored[f"{case}.hard.mean_entropy_of_softmax_logits"] = map(
            number, parts(logits)
        )
        stored[f"{case}.hard.entropy_of_mean_targets"] = number(entropy(targets.mean(dim=0)))
        stored[f"{case}.soft.entropy_of_mean_softmax_logits"] = number(
            entropy(logits.softmax(dim=1).mean(dim=0))
        )
        total = lambda s, parts=parts: parts(s)[0] - 10 * parts(s)[1]  # noqa: E731
        stored[f"{case}.hard.grad_of_ce_minus_10_entropy"] = with_gradient(total, logits.numpy())[1]


def pc2_division() -> None:
    given, stored = published["F_pc2_cotrain"], made["F_pc2_cotrain"]
    stored["np_seed"] = given["np_seed"]
    state = np.random.RandomState(int(given["np_seed"]))
    for network in "AB":
        for name in ("bank", "pseudo_label_now"):
            array = other(given[f"{network}.{name}"])
            stored[f"{network}.{name}"] = array / array.sum(axis=1, keepdims=True)
        losses = torch.from_numpy(other(given[f"{network}.loss"]))
        bank, now = (
            torch.from_numpy(stored[f"{network}.{name}"].copy()) for name in ("bank", "pseudo_label_now")
        )
        stored[f"{network}.kl_raw_all"] = number(pc2.oscillation(bank, now).double())
        missing = random.permutation(len(bank))[:13]
        bank[missing] = 0
        stored[f"{network}.loss"], stored[f"{network}.missing_from_bank"] = losses.numpy(), missing
        for values, name in ((losses.double(), "loss"), (pc2.oscillation(bank, now).double(), "ctt")):
            stored[f"{network}.{name}_normalised"] = min_max_normalised(values.numpy())
            probability = clean_posterior(values, random_state=state)
            stored[f"prob_{name}_{network}"] = number(probability)
            stored[f"pred_{name}_{network}"] = np.asarray(is_clean(probability, 0.5))
    names = ("targets.w", "targets.w_oscillation", "targets.pred_oscillation")
    stored |= {name: other(given[name]) for name in names}
    labels = number(pc2.rectified_label(*(torch.from_numpy(stored[name]) for name in names)))[:, None]
    stored |= {
        f"targets.{phase}.lb_labels": labels for phase in ("before_warmup_epoch_2", "from_warmup_epoch_2")
    }


def pc2_networks() -> None:
    given, stored = published["F_pc2_network"], made["F_pc2_network"]
    sizes = {864: REGIONS * EMBED, 256: HIDDEN, 8: CLASSES}
    for name, array in given.items():
        if name.startswith("img_pro_head."):
            stored[name] = drawn(array, tuple(sizes[size] for size in array.shape))
    stored["lb.labels"] = other(given["lb.labels"])
    for name, longest in {"short": 8, "mid": 11, "long": REGIONS + 4, "unlabelled": 11}.items():
        n = BATCH if name == "unlabelled" else BATCH - 2
        lengths = np.sort(lengths_up_to(longest, n))[::-1].copy()
        images = random.normal(size=(n, REGIONS, FEATURES)).astype(np.float32)
        parts = {"images": images, "captions": captions(lengths), "lengths": lengths}
        stored |= {f"batch.{name}.{part}": array for part, array in parts.items()}
    for backbone in test_pc2.NETWORKS:
        for mode in ("lb_train", "warmup", "warmup_sele"):
            for size in ("mid", "long"):
                one_matched_step(backbone, mode, size)
        for size in ("short", "mid", "long"):
            one_pseudo_captioned_step(backbone, size)
        network = test_pc2.method_on(backbone, golden).eval().networks[0]
        batch = test_pc2.published(stored, "unlabelled")
        images = network.encode_images(batch.image_features, batch.image_lengths)
        stored[f"{backbone}.eval_loss.loss"] = number(mean_triplet(network(batch), 0.2, floor=FLOOR))
        stored[f"{backbone}.eval_loss.pseudo_label"] = number(classify(network, images).softmax(dim=1))
        pc2_trajectory(backbone)


def record_pc2(case: str, backbone: str, method: pc2.PC2, **values: float) -> None:
    stored, network = made["F_pc2_network"], method.networks[0]
    record_step(stored, case, backbone, network, **values)
    head: PseudoClassifier = network.pseudo_classifier
    for layer, name in ((head.hidden, "first_hidden_layer.fc"), (head.out, "output_layer")):
        for kind in ("weight", "bias"):
            stored[f"{case}.grad.img_pro_head.{name}.{kind}"] = number(getattr(layer, kind).grad)


def one_matched_step(backbone: str, mode: str, size: str) -> None:
    stored, case = made["F_pc2_network"], f"{backbone}.{mode}.{size}"
    method = test_pc2.method_on(backbone, golden, warmup_pairs="lowest" if mode == "warmup_sele" else "all")
    batch, once = test_pc2.published(stored, size), GradientStep()
    labels = torch.from_numpy(stored["lb.labels"])[:, 0] if mode == "lb_train" else None
    method.matched_step(0, batch, labels, once)
    names = {"triplet": "triplet_loss", "classification": "ce_loss_img", "entropy": "en_loss_img"}
    record_pc2(case, backbone, method, loss=once.loss, **{names[name]: once.terms[name] for name in names})
    if labels is None:
        stored[f"{case}.bank"] = number(method.prediction[0].read(batch.pair_ids))
    elif backbone == "sgr":
        texts = method.networks[0].encode_captions(batch.caption_tokens, batch.caption_lengths)
        stored[f"{case}.cap_embs_{REGIONS}"] = number(resized(texts.vectors, REGIONS))
        stored[f"{case}.txt_logits"] = number(classify(method.networks[0], texts))


def one_pseudo_captioned_step(backbone: str, size: str) -> None:
    stored, case = made["F_pc2_network"], f"{backbone}.ulb_train.{size}"
    method, once = test_pc2.method_on(backbone, golden), GradientStep()
    clean, noisy = (test_pc2.published(stored, name) for name in (size, "unlabelled"))
    method.pseudo_captioned_step(0, clean, noisy, once)
    record_pc2(case, backbone, method, triplet_loss=once.loss)
    stored[f"{case}.bank_keys"] = np.arange(BATCH)
    stored[f"{case}.bank"] = number(method.prediction[0].values).copy()
    network = test_pc2.method_on(backbone, golden).networks[0]
    labelled, images = (network.encode_images(b.image_features, b.image_lengths) for b in (clean, noisy))
    donors, predictions = (classify(network, x).softmax(dim=1) for x in (labelled, images))
    likeness, rows = pc2.most_alike(predictions, donors)
    texts = network.encode_captions(clean.caption_tokens, clean.caption_lengths)
    pseudo = pc2.borrowed(texts, rows, noisy.caption_tokens.shape[1], "published")
    stored |= {
        f"{case}.pseudo_label_unlabelled": number(predictions),
        f"{case}.pseudo_label_labelled": number(donors),
        f"{case}.chosen": rows.numpy(),
        f"{case}.cosine": number(nn.functional.cosine_similarity(predictions[:, None], donors[None], dim=2)),
        f"{case}.labels_after": number(likeness.where(likeness >= 0.5, 0.0)),
        f"{case}.cap_embs_after": number(pseudo.vectors),
        f"{case}.cap_lens_after": clean.caption_lengths[rows].numpy(),
        f"{case}.sims": number(network.similarities(images, pseudo)),
    }


def pc2_trajectory(backbone: str) -> None:
    stored, method = made["F_pc2_network"], test_pc2.method_on(backbone, golden)
    step, triplets = OptimizerStep(method, 1e-3), []

    def watched(network: nn.Module, loss: Tensor, batch: Batch, **terms: Tensor) -> None:
        triplets.append(next(iter(terms.values())).item())
        step(network, loss, batch)

    mid, labels = test_pc2.published(stored, "mid"), torch.from_numpy(stored["lb.labels"])[:, 0]
    for label in (None, None, labels, labels):
        method.matched_step(0, mid, label, watched)
    method.pseudo_captioned_step(0, mid, test_pc2.published(stored, "unlabelled"), watched)
    stored[f"{backbone}.trajectory.returned"] = np.array(triplets)[:, None]


def metrics() -> None:
    """Group G."""
    stored = made["G_metrics"]

    def matrix(n_images: int, each: int) -> np.ndarray:
        similarities = random.normal(size=(n_images, n_images * each))
        similarities[np.arange(n_images * each) // each, np.arange(n_images * each)] += 2
        return similarities

    def record(name: str, similarities: np.ndarray) -> np.ndarray:
        each = similarities.shape[1] // len(similarities)
        ranks = count_ranks(ArrayRows(similarities), captions_per_image=each).whole
        result = protocol_result(ranks, len(similarities), intervals=False)
        stored[f"{name}.i2t_ranks"], stored[f"{name}.t2i_ranks"] = ranks.i2t - 1, ranks.t2i - 1
        sides = [[s.r1, s.r5, s.r10, s.median_rank, s.mean_rank] for s in (result.i2t, result.t2i)]
        stored[f"{name}.i2t"], stored[f"{name}.t2i"] = map(np.array, sides)
        stored[f"{name}.rsum"] = np.array(result.r_sum)
        return np.array([*sides[0], *sides[1], sum(sides[0][:3]) / 3, sum(sides[1][:3]) / 3, result.r_sum])

    for name, sizes in {"n33_per4": (33, 4), "n64_per1": (64, 1), "n26_per5": (26, 5)}.items():
        stored[f"{name}.sims"] = matrix(*sizes)
        record(name, stored[f"{name}.sims"])
    stored["ensemble.sims_A"], stored["ensemble.sims_B"] = matrix(21, 3), matrix(21, 3)
    record("ensemble", (stored["ensemble.sims_A"] + stored["ensemble.sims_B"]) / 2)
    fold, each = 11, 3
    whole = stored["fold5.sims"] = matrix(5 * fold, each)
    stored["fold5.images_per_fold"] = np.array(fold)
    record("fold5.full", whole)
    folds = [
        record(f"fold5.fold{k}", whole[k * fold : (k + 1) * fold, k * fold * each : (k + 1) * fold * each])
        for k in range(5)
    ]
    mean = stored["fold5.mean_of_folds"] = np.mean(folds, axis=0)
    stored["fold5.rsum"], stored["fold5.rsum_as_printed_by_ncr"] = mean[-1:][0], 6 * mean[10]


def noise() -> None:
    """Group H; the published files are what they are."""
    stored = made["H_noise"]
    stored |= {name: array for name, array in published["H_noise"].items() if name.startswith("published.")}
    n_images, each = 70, 3
    stored |= {
        "n_images": np.array(n_images),
        "per_image": np.array(each),
        "n_captions": np.array(n_images * each),
    }
    stored["seeds"], stored["ratios"] = np.array([4, 11]), np.array([0.3, 0.5, 0.7])
    clean = clean_pairing(n_images, each)
    for seed in stored["seeds"]:
        for ratio in stored["ratios"]:
            for level, unit, step in (("caption_level", "caption", 1), ("image_level_decl", "image", each)):
                index = inject_noise(
                    clean, noise_ratio=float(ratio), noise_unit=unit, seed=int(seed), captions_per_image=each
                )
                case = f"{level}.seed{seed}.ratio{ratio:g}"
                stored[f"{case}.index"], stored[f"{case}.n_wrong"] = index[::step], (index != clean).sum()


def main(folder: Path) -> None:
    backbones()
    for make in (ncr_losses, ncr_mixtures, ncr_labels, ncr_networks, crcl_losses, crcl_networks):
        make()
    for file in ("E_gsc", "E_gscplus"):
        for make_part in (gsc_contrast, gsc_networks, gsc_labels):
            make_part(file)
    for make in (gsc_two_networks, pc2_losses, pc2_division, pc2_networks, metrics, noise):
        make()
    for file, arrays in made.items():
        np.savez(os.fspath(folder / file), **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
