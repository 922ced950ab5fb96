"""Size, power and coverage of the matched difference of `medteb edition contamination`, in simulations.

    python -m benchmarks.contamination [--simulations 100]

Eight months of 150 queries; a model has seen the first four. Its score depends on the three measures of
difficulty (length, BM25 score of the best hit, relevant documents), which drift from month to month, and is
higher by a planted effect in the months that it has seen. Placebos are at the second and the sixth month.
"""

from __future__ import annotations

import argparse

import numpy as np

from medteb_mteb.validate.contamination import Queries

MONTHS, QUERIES, SEEN = tuple(f"2026-{month:02}" for month in range(1, 9)), 150, 4
CUTOFF, PLACEBOS = MONTHS[SEEN - 1], (MONTHS[1], MONTHS[5])
#: Planted effects, and drift per month.
CASES = ((0.1, 0.0), (0.1, 0.5), (0.0, 0.5), (0.0, 1.0))


def simulate(seed: int, effect: float, drift: float) -> tuple[Queries, np.ndarray]:
    """Return queries, and the score of each."""
    rng = np.random.default_rng(seed)
    month = np.repeat(np.arange(len(MONTHS)), QUERIES)
    shift = drift * month
    length = np.round(np.exp(rng.normal(3 + 0.1 * shift, 0.4)))
    bm25 = np.exp(rng.normal(2.5 - 0.25 * shift, 0.4))
    relevant = 1 + rng.poisson(np.exp(0.5 - 0.1 * shift))
    ease = 0.9 * (np.log1p(bm25) - 2.5) - 0.4 * (np.log1p(length) - 3) + 0.3 * (np.log1p(relevant) - 1)
    mean = 1 / (1 + np.exp(-(0.3 + 1.5 * ease)))
    scores = rng.beta(2 * mean, 2 * (1 - mean)) + effect * (month < SEEN)
    measures = np.stack([length, bm25, relevant], axis=1).astype(float)
    return Queries(MONTHS, ((),) * len(MONTHS), month, measures), scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=100)
    number = parser.parse_args().simulations
    print("effect  drift  covered  raw > 0  matched > 0  placebos  bias")
    for effect, drift in CASES:
        found, placebos = [], []
        for seed in range(number):
            queries, scores = simulate(seed, effect, drift)
            one = queries.effect(scores, CUTOFF, MONTHS, model="m", other="", placebo=False)
            value, low, high = one.matched
            found.append((low <= effect <= high, one.raw.low > 0, low > 0, value - effect))
            for month in PLACEBOS:
                used = [other for other in MONTHS if (other <= CUTOFF) == (month < CUTOFF)]
                other = queries.effect(scores, month, used, model="m", other="", placebo=True).matched
                placebos.append(not other.low <= 0 <= other.high)
        covered, raw, matched, bias = np.mean(found, axis=0)
        shares = f"{covered:8.0%} {raw:8.0%} {matched:12.0%} {np.mean(placebos):9.1%}"
        print(f"{effect:6} {drift:6} {shares} {bias:+.3f}", flush=True)


if __name__ == "__main__":
    main()
