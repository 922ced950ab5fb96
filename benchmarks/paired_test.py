"""Size and power of the paired test of `medteb compare`, on simulated scores per query.

    python benchmarks/paired_test.py [--simulations 5000] [--queries 300]

Every query has a difficulty, from a beta distribution, and a system's score on it is drawn around that.
Printed are the shares of simulations with p < .05, and of intervals that hold the true difference:

- alike: two systems with the same distribution per query;
- unequal: systems with the same mean on each query, one of which is far more variable;
- .02: the first system is better by .02 on the average, for a correlation of the systems as between two good
  models (.8) and as between a model and BM25 (.4).
"""

from __future__ import annotations

import argparse

import numpy as np

from medteb_mteb.report.intervals import MeanSample
from medteb_mteb.report.paired import Compared


def scores(rng, difficulty, concentration):
    """Return a score per query with the mean `difficulty`; the larger the concentration, the nearer to it."""
    return rng.beta(difficulty * concentration + 1e-6, (1 - difficulty) * concentration + 1e-6)


def pair(rng, queries, case):
    difficulty = rng.beta(1.2, 0.8, queries)
    if case == "alike":
        return scores(rng, difficulty, 2.0), scores(rng, difficulty, 2.0), 0.0
    if case == "unequal":
        return scores(rng, difficulty, 20.0), scores(rng, difficulty, 0.5), 0.0
    gain = 0.02 / np.mean(
        1 - rng.beta(1.2, 0.8, 200_000)
    )  # of the distance to 1, so that scores stay in [0, 1]
    concentration = 8.0 if case == ".02, near" else 0.8
    better = difficulty + gain * (1 - difficulty)
    return scores(rng, better, concentration), scores(rng, difficulty, concentration), 0.02


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=5000)
    parser.add_argument("--queries", type=int, default=300)
    options = parser.parse_args()
    print(f"{options.simulations} simulations, {options.queries} queries")
    print("case          p < .05  covered  detectable  correlation")
    for case in ("alike", "unequal", ".02, near", ".02, far"):
        rng = np.random.default_rng(7)
        rejected, covered, detectable, correlations = [], [], [], []
        for _ in range(options.simulations):
            first, second, difference = pair(rng, options.queries, case)
            groups = [np.arange(options.queries)]
            systems = {"a": [MeanSample(first)], "b": [MeanSample(second)]}
            one = Compared.of(systems, groups).pairs["a", "b"]
            rejected.append(one.p_value < 0.05)
            covered.append(one.low <= difference <= one.high)
            detectable.append(one.detectable)
            correlations.append(np.corrcoef(first, second)[0, 1])
        row = np.mean(rejected), np.mean(covered), np.mean(detectable), np.mean(correlations)
        print(f"{case:12}  {row[0]:7.3f}  {row[1]:7.3f}  {row[2]:10.4f}  {row[3]:11.2f}", flush=True)


if __name__ == "__main__":
    main()
