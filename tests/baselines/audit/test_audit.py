"""Audits of tiny runs on a thousand pairs of digits: the table, the folder, the pairs to keep, and what is refused."""

import json
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from sklearn.feature_extraction.text import CountVectorizer
from support.audit_page import data_of
from support.command import invoke
from support.few_digits import TINY_SGR, digits_job, load_few, trained
from support.refusals import refused

import baselines.audit.pairs
from baselines.audit import apply_audit, write_audit
from baselines.audit.judge import judge_split
from baselines.audit.pairs import audit
from baselines.audit.result import read_result, write_table
from baselines.audit.sentences import MINILM
from baselines.kit.batches import derive_seed
from baselines.training.job import FinishedRun
from baselines.training.run_folder import RunFolder
from baselines.training.scoring import score
from baselines.training.submit import chosen_method
from ncl_bench.data import DATASETS, true_correspondence
from ncl_bench.data.load import load_dataset
from ncl_bench.data.pictograms import WEB
from ncl_bench.errors import NoiseError, TrainingError

NCR = {"name": "ncr", "warmup_epochs": 1, "epochs": 1, "learning_rate": 0.002}
TRIPLET = {"name": "triplet", "epochs": 1}
QUIET = Console(quiet=True)
pytestmark = pytest.mark.usefixtures("few_pairs", "few_draws")
COLUMNS = ["pair_id", "image_id", "caption", "fit", "probability", "cross_fitted", "similarity"]
COLUMNS += ["clean_probability", "loss", "posterior", "rank", "better_1", "better_2", "better_3", "reason"]
MEASURED = {"fit", "cross_fitted", "similarity", "posterior"}


@pytest.fixture(scope="module")
def few_draws():
    """The judge learns from two planted pairs per pair in place of ten; a page shows 200 suspects, not 800."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("baselines.audit.judge.CHANCE", 2_000)
        patch.setattr("baselines.audit.page.MOST_SHOWN", 200)
        yield


def job(method, noise_ratio=0.4, dataset="digits", **options):
    return digits_job(method, noise_ratio, recipe={"dataset": dataset, "batch_size": 250}, **options)


def train(job, folder, **options):
    return trained(job, folder, **options).folder.path


@pytest.fixture(scope="module")
def runs(few_pairs, few_draws, tmp_path_factory):
    """Two runs of NCR, one of a triplet, and one of a triplet under other noise."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        "ncr": train(job(NCR), folder / "ncr"),
        "again": train(job(NCR, seed=1), folder / "again"),
        "triplet": train(job(TRIPLET), folder / "triplet"),
        "other": train(job(TRIPLET, 0.2), folder / "other"),
    }


@pytest.fixture(scope="module")
def audits(runs, tmp_path_factory):
    """Audits of a run of NCR, of one of a triplet, and of both; nobody may change them."""
    folder = tmp_path_factory.mktemp("audits")
    names = {"ncr": ["ncr"], "triplet": ["triplet"], "mixed": ["ncr", "triplet"]}
    for name, members in names.items():
        write_audit([runs[each] for each in members], folder / name, device="cpu", console=QUIET)
    return {name: folder / name for name in names}


@pytest.fixture
def audited(audits):
    return audits["ncr"]


def table_of(audit):
    return pd.read_parquet(audit / "pairs.parquet")


def test_the_table_holds_every_pair_as_a_slow_loop_finds_it(runs, monkeypatch):
    monkeypatch.setattr(baselines.audit.pairs, "SAMPLE", 60)
    monkeypatch.setattr(baselines.audit.pairs, "IMAGES_AT_ONCE", 70)
    table = audit(runs["ncr"], device="cpu", console=QUIET)
    assert list(table.columns) == COLUMNS
    folder = RunFolder(runs["ncr"])
    described = folder.read_run()
    finished = FinishedRun.read(folder.path)
    whole = replace(finished.job, noise_ratio=0.4)
    data = whole.load("train")
    assert table["pair_id"].tolist() == list(range(1000))
    assert table["caption"].tolist() == list(data.captions)
    assert table["image_id"].tolist() == [str(data.image_ids[image]) for image in data.caption_to_image]
    best = folder.read_estimates(folder.read_outcome().best_epoch, 1000)["clean_probability"]
    np.testing.assert_array_equal(table["clean_probability"], best)

    method = chosen_method(replace(finished, job=whole), torch.device("cpu"))
    matrix = score(method.networks, data, np.arange(data.n_images), np.arange(len(data)))
    own = matrix[data.caption_to_image, np.arange(1000)]
    np.testing.assert_allclose(table["similarity"], own, atol=1e-5)
    seed = baselines.audit.pairs.derive_seed(described.seed, "audit")
    sample = sorted(np.random.default_rng(seed).choice(1000, 60, replace=False).tolist())
    for row in range(0, 1000, 7):
        image = data.caption_to_image[row]
        others = [other for other in sample if other != row]
        above = sum(matrix[image, other] >= own[row] - 2e-5 for other in others)
        clearly = sum(matrix[image, other] >= own[row] + 2e-5 for other in others)
        assert 1 + clearly <= table["rank"][row] <= 1 + above
        fitting = [other for other in sample if data.caption_to_image[other] != image]
        fitting.sort(key=lambda other: -matrix[image, other])
        found = [table[f"better_{n}"][row] for n in (1, 2, 3)]
        np.testing.assert_allclose(matrix[image, found], matrix[image, fitting[:3]], atol=2e-5)
        assert all(data.caption_to_image[other] != image for other in found)


def test_equal_captions_rank_below_their_twins(runs, monkeypatch):
    """Ties count against a pair, although their scores come from different batches."""

    def in_twos(name, **options):
        data = load_few(name, **options)
        return replace(data, tokens=data.tokens.take(np.arange(len(data)) // 2 * 2))

    monkeypatch.setattr("baselines.training.job.load_dataset", in_twos)
    assert audit(runs["ncr"], device="cpu", console=QUIET)["rank"].min() == 2


def test_several_runs_are_averaged_and_a_run_without_estimates_takes_no_part_in_their_mean(runs, audits):
    first, third, mixed = (table_of(audits[name]) for name in ("ncr", "triplet", "mixed"))
    second = audit(runs["again"], device="cpu", console=QUIET)
    both = audit([runs["ncr"], runs["again"]], device="cpu", console=QUIET)
    mean = (first["clean_probability"] + second["clean_probability"]) / 2
    np.testing.assert_allclose(both["clean_probability"], mean, rtol=1e-5)
    np.testing.assert_allclose(
        both["similarity"], (first["similarity"] + second["similarity"]) / 2, rtol=1e-4, atol=1e-5
    )
    assert third["clean_probability"].isna().all()
    np.testing.assert_array_equal(mixed["clean_probability"], first["clean_probability"])
    sentence = f"{runs['triplet']} holds no clean probability of the method: the mean is over the other runs."
    assert sentence in read_result(audits["mixed"]).remarks


def test_the_folder_holds_the_table_the_truth_and_a_page(audited, runs):
    table = pd.read_parquet(audited / "pairs.parquet")
    assert list(table.columns) == COLUMNS
    pd.testing.assert_frame_equal(
        pd.read_csv(audited / "pairs.csv", dtype={"reason": "string"}).fillna({"reason": ""}),
        table,
        check_dtype=False,
        rtol=1e-5,
        check_exact=False,
    )
    result = json.loads((audited / "result.json").read_text())
    history = RunFolder(runs["ncr"]).read_history()
    assert [entry["epoch"] for entry in result["epochs"]] == [0, 1]
    for entry in result["epochs"]:
        exact = history[entry["epoch"]].diagnosis["clean_probability"]
        assert entry["detection"]["auroc"] == pytest.approx(exact.auroc, abs=2e-3)  # kept with 16 bits
        assert entry["detection"]["average_precision"] == pytest.approx(exact.average_precision, abs=5e-3)
    best = RunFolder(runs["ncr"]).read_outcome().best_epoch
    found = next(entry["detection"] for entry in result["epochs"] if entry["epoch"] == best)
    assert result["detection"]["clean_probability"] == found
    wrong = ~true_correspondence(load_few("digits", split="train", noise_ratio=0.4))
    assert found["n_wrong"] == wrong.sum()
    suspicious = table.sort_values(["fit", "loss"], ascending=[True, False])["pair_id"][:200]
    assert result["first_wrong"] == wrong[suspicious].sum()
    page = (audited / "index.html").read_text()
    data = data_of(audited)
    assert [each["title"] for each in data["groups"]] == ["Suspects", "Fit best"]
    assert all(card["picture"].startswith("data:image/png;base64,") for card in data["cards"])
    assert [card["wrong"] for card in data["cards"][:200]] == wrong[suspicious].tolist()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


def test_pairs_are_ordered_by_two_views_and_as_many_go_as_are_estimated_to_be_wrong(audited, tmp_path):
    table, result = pd.read_parquet(audited / "pairs.parquet"), read_result(audited)
    views = table["similarity"].rank() + table["cross_fitted"].rank()
    np.testing.assert_allclose(table["fit"], [(views <= view).mean() for view in views])
    rows = np.arange(1000)
    train = load_few("digits", split="train", noise_ratio=0.4)
    judged = judge_split(train, rows, seed=derive_seed(0, "audit", "judge"))
    np.testing.assert_allclose(table["cross_fitted"], -judged.table["score"], atol=1e-6)
    np.testing.assert_allclose(table["probability"], judged.table["probability"], atol=1e-6)
    assert result.wrong == round(1000 * judged.share)
    assert result.low <= 400 <= result.high
    assert result.threshold == result.wrong / 1000
    page = (audited / "index.html").read_text()
    assert f"About {result.wrong} of 1,000 captions do not fit their picture</h1>" in page
    assert f'max="999" value="{result.wrong}"' in page
    said = []
    kept = apply_audit(audited, tmp_path / "cleaned", sure=True, say=said.append)
    assert kept.n_kept == (table["fit"] > result.threshold).sum()
    assert abs(1000 - kept.n_kept - result.wrong) <= 2  # of pairs that fit alike, all or none go
    precision = table["probability"][table["fit"] <= result.threshold].mean()
    assert f"of which about {precision:.0%} are wrong by the estimate" in said[0]


def test_captions_without_text_are_judged_by_their_token_ids():
    train = load_few("digits", split="train", noise_ratio=0.4)
    rows = np.arange(0, 1000, 2)
    silent, spoken = (
        judge_split(each, rows).table["similarity"] for each in (replace(train, captions=None), train)
    )
    assert np.corrcoef(silent, spoken)[0, 1] > 0.9
    with refused(TrainingError):
        judge_split(replace(train, captions=None), rows, text_encoder="some-model")


def test_a_run_is_judged_with_the_text_encoder_that_is_named(runs, audits, tmp_path, monkeypatch):
    def vectors(captions, name, *, device):
        assert (name, device) == ("own-model", "cpu")
        return CountVectorizer().fit_transform(captions).toarray().astype(np.float32)

    monkeypatch.setattr("baselines.audit.sentences.PACKAGE", "no_such_package")
    with refused():
        audit(runs["triplet"], text_encoder=MINILM, device="cpu", console=QUIET)
    monkeypatch.setattr("baselines.audit.judge.require_encoder", lambda name: None)
    monkeypatch.setattr("baselines.audit.judge.sentence_vectors", vectors)
    by_default = table_of(audits["triplet"])
    named = audit(runs["triplet"], text_encoder="own-model", device="cpu", console=QUIET)
    assert 0.4 < np.corrcoef(by_default["cross_fitted"], named["cross_fitted"])[0, 1] < 0.9999
    with refused():
        write_audit([runs["triplet"]], tmp_path / "no", method="lemon", text_encoder="tfidf")
    assert not (tmp_path / "no").exists()


def test_a_run_without_estimates_is_audited_and_the_page_says_so(runs, audits, tmp_path):
    result, table = read_result(audits["triplet"]), table_of(audits["triplet"])
    sentence = f"{runs['triplet']} holds no clean probability of the method: the column is empty."
    assert sentence in result.remarks
    assert sentence in (audits["triplet"] / "index.html").read_text()
    assert result.chosen_by == "fit"
    assert set(result.detection) == MEASURED
    kept = apply_audit(audits["triplet"], tmp_path / "kept", threshold=0.3, sure=True)
    assert kept.n_kept == (table["fit"] > np.float32(0.3)).sum()


def test_lemon_reads_the_embeddings_of_runs(runs, audits, tmp_path):
    result = write_audit(
        [runs["ncr"], runs["triplet"]], tmp_path / "to", method="lemon", device="cpu", console=QUIET
    )
    assert set(result.detection) == {"lemon", "similarity"}
    assert [run.method for run in result.runs] == ["NCR", "Triplet (hardest)"]
    table = pd.read_parquet(tmp_path / "to" / "pairs.parquet")
    assert list(table.columns) == [*COLUMNS[:3], "lemon", "similarity", *COLUMNS[10:-1]]
    both = table_of(audits["mixed"])
    np.testing.assert_allclose(table["similarity"], both["similarity"], atol=1e-5)  # mean of all networks
    np.testing.assert_array_equal(table["better_1"], both["better_1"])


@pytest.mark.usefixtures("unscored")
def test_lemon_needs_embeddings(tmp_path, monkeypatch):
    monkeypatch.setattr("baselines.training.job.load_dataset", partial(load_few, n_pairs=100))
    run = train(digits_job(TRIPLET, recipe={"backbone": TINY_SGR}), tmp_path / "run")
    with refused(TrainingError):
        write_audit([run], tmp_path / "to", method="lemon", device="cpu", console=QUIET)
    assert not (tmp_path / "to").exists()


def test_equal_losses_leave_no_posterior(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(baselines.audit.pairs, "mean_triplet", lambda s, margin: torch.zeros(len(s)))
    result = write_audit([runs["triplet"]], tmp_path / "to", device="cpu", console=QUIET)
    assert "All losses are equal, so there is no posterior." in result.remarks
    assert set(result.detection) == MEASURED - {"posterior"}


def test_natural_noise_is_scored_by_labels_alone(tmp_path):
    run = train(job(NCR, 0.0, "pictograms-web"), tmp_path / "run")
    assert not any(entry.diagnosis for entry in RunFolder(run).read_history())
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DATASETS.data, "pictograms-web", replace(WEB, pair_labels=None))
        result = write_audit([run], tmp_path / "to", device="cpu", console=QUIET)
    assert (result.detection, result.epochs, result.first_wrong, result.labelled) == ({}, (), None, None)
    page = (tmp_path / "to" / "index.html").read_text()
    assert "nobody knows which pairs are wrong, so nothing is scored" in page
    assert '"wrong": true' not in page
    table = pd.read_parquet(tmp_path / "to" / "pairs.parquet")
    assert table["clean_probability"].notna().all()

    shipped = write_audit([run], tmp_path / "shipped", device="cpu", console=QUIET)
    page = (tmp_path / "shipped" / "index.html").read_text()
    assert "Labelled pairs (web_labels.csv): 278, 1 of them wrong and 274 matching." in " ".join(
        shipped.remarks
    )
    assert "A score needs 30 of each, so AUROC, average precision and precision are not given." in page
    assert "The labelled pairs" in page
    assert "wrong against matches" not in page

    lines = [f"{pair},{'wrong' if pair < 40 else 'matches'}" for pair in range(200)]
    (tmp_path / "mine.csv").write_text("\n".join(["pair_id,label", *lines]))
    mine = write_audit([run], tmp_path / "mine", labels=tmp_path / "mine.csv", device="cpu", console=QUIET)
    assert set(mine.labelled.detection) == MEASURED | {"clean_probability"}
    page = (tmp_path / "mine" / "index.html").read_text()
    auroc = mine.labelled.detection["posterior"]["wrong"].auroc
    assert f"{auroc.value:.3f} ({auroc.low:.3f} to {auroc.high:.3f})" in page
    assert "too few" in page  # of the partly matching ones


def test_a_run_may_keep_no_history(tmp_path, monkeypatch):
    monkeypatch.setattr("baselines.training.job.load_dataset", partial(load_few, n_pairs=300))
    run = train(job(NCR), tmp_path / "run", keep_estimates=False)
    assert not (run / "estimates").exists()
    assert audit(run, device="cpu", console=QUIET)["clean_probability"].isna().all()


def test_kept_pairs_are_a_subset_after_the_noise(audited, tmp_path, monkeypatch):
    table = pd.read_parquet(audited / "pairs.parquet")
    kept = apply_audit(audited, tmp_path / "cleaned", threshold=0.5, sure=True)
    expected = table["pair_id"][table["fit"] > 0.5].tolist()
    assert kept.n_kept == len(expected) < kept.n_pairs == 1000
    data = load_dataset("digits", noise_ratio=0.4, keep=tmp_path / "cleaned")
    assert data.pair_ids.tolist() == expected
    noisy = load_dataset("digits", noise_ratio=0.4)
    np.testing.assert_array_equal(data.caption_to_image, noisy.caption_to_image[expected])
    run = train(job(NCR, keep=tmp_path / "cleaned"), tmp_path / "run")
    described = RunFolder(run).read_run()
    assert described.keep == kept
    seen = RunFolder(run).read_estimates(1, 1000)["clean_probability"]
    assert (np.delete(seen, expected) == 1).all()  # as memories begin
    with refused(TrainingError):
        audit(run, device="cpu", console=QUIET)
    again = audit(run, keep=tmp_path / "cleaned", device="cpu", console=QUIET)
    assert again["pair_id"].tolist() == expected


def test_a_run_resumes_with_the_pairs_that_it_began_with(audited, tmp_path):
    apply_audit(audited, tmp_path / "cleaned", threshold=0.5, sure=True)
    apply_audit(audited, tmp_path / "fewer", threshold=0.9, sure=True)
    run = train(job(TRIPLET, keep=tmp_path / "cleaned"), tmp_path / "run")
    train(job(TRIPLET, keep=tmp_path / "cleaned"), run)
    for other in (tmp_path / "fewer", None):
        with refused(TrainingError):
            train(job(TRIPLET, keep=other), run)


def test_runs_that_do_not_belong_together_or_data_that_moved_are_refused(runs, tmp_path, monkeypatch):
    with refused(TrainingError):
        audit([runs["ncr"], runs["other"]], device="cpu", console=QUIET)
    with refused(NoiseError):
        audit(runs["ncr"], noise_file=Path("noise.npy"), device="cpu", console=QUIET)

    def moved(name, **options):
        return replace(load_few(name, **options), fingerprint="0" * 64)

    monkeypatch.setattr("baselines.training.job.load_dataset", moved)
    with refused(TrainingError):
        audit(runs["ncr"], device="cpu", console=QUIET)


def test_a_noise_file_is_asked_for_and_must_be_the_same(tmp_path):
    for name, seed in (("noise.npy", 3), ("other.npy", 4)):
        noisy = load_dataset("digits", noise_ratio=0.4, noise_seed=seed)
        np.save(tmp_path / name, noisy.caption_to_image)
    run = train(job(TRIPLET, 0.0, noise_file=tmp_path / "noise.npy"), tmp_path / "run")
    with refused(TrainingError):
        audit(run, device="cpu", console=QUIET)
    with refused(TrainingError):
        audit(run, noise_file=tmp_path / "other.npy", device="cpu", console=QUIET)
    table = audit(run, noise_file=tmp_path / "noise.npy", device="cpu", console=QUIET)
    assert len(table) == 1000


def test_nothing_is_overwritten_and_damaged_files_are_named(audited, tmp_path):
    with refused():
        write_audit([audited], audited)
    broken, unsaid, none = (tmp_path / name for name in ("broken", "unsaid", "none"))
    for copy, file, content in ((broken, "pairs.parquet", "PAR1"), (unsaid, "result.json", "{}")):
        shutil.copytree(audited, copy)
        (copy / file).write_text(content)
    for folder, to, threshold in (
        (audited, audited, 0.5),
        (audited, none, float("nan")),
        (audited, none, 1.0),
        (tmp_path, none, 0.5),
        (broken, none, 0.5),
        (unsaid, none, 0.5),
    ):
        with refused():
            apply_audit(folder, to, threshold=threshold, sure=True)
    assert not none.exists()


def test_the_pairs_that_the_page_exports_are_removed(audited, tmp_path):
    (tmp_path / "chosen.csv").write_text("pair_id\n17\n3\n")
    kept = apply_audit(audited, tmp_path / "cleaned", ids=tmp_path / "chosen.csv")
    assert (kept.n_kept, kept.chosen_by, kept.threshold) == (998, "ids", None)
    data = load_dataset("digits", noise_ratio=0.4, keep=tmp_path / "cleaned")
    assert set(range(1000)) - set(data.pair_ids.tolist()) == {3, 17}
    (tmp_path / "labels.csv").write_text("version,pair_id,label\n2,4,matches\n2,9,wrong\n")
    assert apply_audit(audited, tmp_path / "ticked", ids=tmp_path / "labels.csv").n_kept == 999
    for text in (
        "",
        "image\n3\n",
        "pair_id\n3\nthree\n",
        "pair_id\n" + "9" * 5_000 + "\n",
        "pair_id\n3\n1000\n",
        "pair_id\n" + "\n".join(map(str, range(999))),
    ):
        (tmp_path / "bad.csv").write_text(text)
        with refused(TrainingError):
            apply_audit(audited, tmp_path / "none", ids=tmp_path / "bad.csv")
    assert not (tmp_path / "none").exists()


def test_a_damaged_division_is_named(runs, tmp_path):
    shutil.copytree(runs["ncr"], tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    path = folder.estimates_file(folder.read_outcome().best_epoch)
    path.write_bytes(path.read_bytes()[:50])
    with refused(TrainingError):
        audit(tmp_path / "run", device="cpu", console=QUIET)


@pytest.mark.parametrize(
    "arrays",
    [
        lambda: {"a": np.zeros(10**7, np.float16)},
        lambda: {"a": np.zeros(999, np.float16)},
        lambda: {"a": np.zeros(1000, np.int16)},
        lambda: {"a" * 5_000: np.zeros(9999, np.float16)},
    ],
)
def test_a_division_is_not_decompressed_beyond_its_pairs(arrays, tmp_path):
    path = RunFolder(tmp_path).estimates_file(0)
    path.parent.mkdir()
    np.savez_compressed(path, **arrays())
    with refused(TrainingError):
        RunFolder(tmp_path).read_estimates(0, 1000)


def test_the_commands_say_what_was_found_and_what_comes_next(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke("audit", runs["ncr"], "--to", "audit", "--device", "cpu")
    assert "of the 200 most suspicious pairs are wrong" in done.output
    assert "next: ncl-bench audit apply audit --to cleaned" in done.output
    assert "of 1,000 captions do not fit their picture (probably" in done.output
    last = invoke("audit", "--json", "--to", "again", runs["ncr"], "--device", "cpu")
    assert json.loads(last.stdout) == json.loads(Path("again", "result.json").read_text())
    applied = invoke("audit", "apply", "audit", "--yes", "--to", "cleaned")
    assert "of 1,000 pairs" in applied.output
    assert sorted(path.name for path in Path("cleaned").iterdir()) == ["keep.csv", "keep.json"]


def test_a_spreadsheet_computes_no_caption(tmp_path):
    table = pd.DataFrame(
        {"caption": ["=1+1", "a dog", "-5"], "loss": [-1.0, 0.5, 2.0], "better": [None, 3, 4]}
    )
    write_table(tmp_path, table)
    assert (tmp_path / "pairs.csv").read_text("utf-8") == (
        "caption,loss,better\n'\u2060=1+1,-1.0,\na dog,0.5,3.0\n-5,2.0,4.0\n"
    )


def test_a_threshold_removes_more_than_a_quarter_only_with_yes(audited, tmp_path):
    table = pd.read_parquet(audited / "pairs.parquet")
    removed = table["fit"] <= 0.5
    precision = table["probability"][removed].mean()
    said = rf"the threshold 0.5 removes {removed.sum()} of 1,000 pairs .*, of which about {precision:.0%} are wrong by"
    with refused(TrainingError) as caught:
        apply_audit(audited, tmp_path / "cleaned", threshold=0.5)
    assert re.search(said, str(caught.value))
    assert not (tmp_path / "cleaned").exists()
    assert apply_audit(audited, tmp_path / "cleaned", threshold=0.5, sure=True).n_kept == (~removed).sum()
