"""Does it help to remove wrong pairs? Draw noise, train, find the wrong pairs, train on the rest, and compare.

python examples/clean_and_train.py    # minutes on a CPU, on the embedded pictograms
"""

import argparse
from pathlib import Path

import baselines
import ncl_bench
from baselines.audit import apply_audit
from ncl_bench.data import true_correspondence

RECIPES = {"CCA": "cca/{}_linear", "InfoNCE": "info_nce/{}_vse_infinity"}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset", default="pictograms")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--to", type=Path, default=Path("cleaning"))
    given = parser.parse_args()
    noisy = {"noise_ratio": 0.4}
    print(train := ncl_bench.load_dataset(given.dataset, **noisy))

    scored = {}
    for name, recipe in RECIPES.items():
        options = noisy | {"settings": {} if name == "CCA" else {"steps": given.steps}}
        folder = given.to / name
        run = baselines.train(recipe.format(given.dataset), to=folder / "all", **options)
        scored[name] = run.score()
        run.audit(folder / "audit")
        apply_audit(folder / "audit", folder / "kept", sure=True, say=print)
        kept = ncl_bench.load_dataset(given.dataset, keep=folder / "kept", **noisy)
        shares = [f"{true_correspondence(pairs).mean():.1%}" for pairs in (train, kept)]
        print(f"{name}: {shares[0]} of all pairs are right, {shares[1]} of the {len(kept):,} kept ones")
        run = baselines.train(
            recipe.format(given.dataset), keep=folder / "kept", to=folder / "cleaned", **options
        )
        print(ncl_bench.compare(scored[name], run.score()))
    print(ncl_bench.compare(scored["CCA"], scored["InfoNCE"]))
