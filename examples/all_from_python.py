"""The whole path from Python: load, train, score, evaluate, compare, audit, and the table of a paper with your row.

python examples/all_from_python.py    # a minute on a CPU: NCR on the embedded digits, with few epochs
"""

import argparse

import baselines
import leaderboard
import ncl_bench

if __name__ == "__main__":  # a sweep, or a loader with workers, imports this file again
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", default="from_python")
    to = parser.parse_args().to

    train = ncl_bench.load_dataset("digits", noise_ratio=0.4)
    print(train)

    settings = {"method.warmup_epochs": 1, "method.epochs": 1, "batch_size": 256}
    runs = [
        baselines.train(
            "ncr/digits_vse_infinity",
            noise_ratio=0.4,
            seed=seed,
            settings=settings,
            to=f"{to}/ncr-seed{seed}",
        )
        for seed in (0, 1)
    ]
    print(runs[0].history[["phase", "loss", "dev_r_sum"]])

    first, second = [run.score() for run in runs]
    print(ncl_bench.evaluate_submission(first))
    print(ncl_bench.compare(first, second))

    print(runs[0].audit().detection["clean_probability"].auroc)
    table = leaderboard.table("digits", "caption-40", mine=[first, second])
    print(table[["rank", "method", "backbone", "r_sum", "source", "mine"]].to_string())
