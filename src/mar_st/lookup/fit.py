"""Fitting a lookup encoder: ridge regression of a teacher's vectors on n-gram counts."""

from __future__ import annotations

import logging
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tqdm import tqdm

from mar_st.errors import MarError
from mar_st.lookup.features import Features, grams, normalise
from mar_st.lookup.module import LookupEncoder

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOG = logging.getLogger(__name__)

#: Ridge penalties to try, strongest first; each starts from the previous solution.
RIDGES = (3.0, 1.0, 0.3, 0.1, 0.03)

#: Share of the texts that are held out to choose the ridge, and columns that the vectors are projected to for
#: that choice.
HELD_OUT_SHARE, PROJECTED_COLUMNS = 0.1, 64

#: Smallest and largest default scale.
SCALES = (1.0, 4.0)

#: Residual at which a solution is accepted, relative to the right-hand side, and maximum number of steps.
TOLERANCE, MAX_STEPS = 1e-2, 200

#: Columns that are solved together; four arrays of features x columns are held, which should fit in caches.
#: Two fits of 20,000 texts took 35 and 39 s with 32, and 48 and 42 s with 128.
COLUMNS_PER_SOLVE = 32


def fit_lookup(
    texts: Sequence[str],
    vectors: Any,
    *,
    ridge: float | None = None,
    scale: float | None = None,
) -> LookupEncoder:
    """Fit a lookup encoder to the vectors of a teacher by ridge regression.

    With `N` texts, `d_f` of which hold feature `f`, the weights are `w_f = log(1 + N / d_f)` and the bias is
    the teacher's mean vector; the vectors `V` minimise `|A V - (Y - b)|^2 + ridge |V|^2`, where the rows of
    `A` are `a / |a|` of `LookupEncoder`. The solver is conjugate gradients on the normal equations. The
    result is a module like others: `AlignmentLoss` can train it further.

    Then `V` is multiplied by `scale`. A regression shrinks its predictions towards the mean, and a part that
    all query vectors share only favours some documents over others: the longer the teacher's mean vector, the
    larger the scale that finds the right documents. The default is the square root of 2 times the length of
    the mean over the root mean square distance from the mean, within 1 and 4. It was found with two models.
    For multilingual-e5-small (mean .94, default 3.9) an encoder had these shares of the teacher's nDCG@10:
    .77 with scale 1, .95 with 2, .97 with 3 and 4, .96 with 6; for the documents of mar-zh (mean .74, default
    1.5) .93 with 1 and 3, .94 with 1.5, .92 with 7.5.

    Args:
        texts: Texts without prompts.
        vectors: The teacher's vectors of the texts, `(len(texts), dim)`, an array or a tensor.
        ridge: Weight of the penalty; default the one of `RIDGES` with the least squared error on a held-out
            tenth of the texts.
        scale: Factor of the part that is added to the teacher's mean; default by the rule above.

    Raises:
        MarError: Texts and vectors do not fit each other, hold values that are not finite, are too
            few to choose the ridge penalty, or no feature is frequent enough.
    """
    if isinstance(vectors, torch.Tensor):
        vectors = vectors.detach().float().cpu().numpy()
    target = np.asarray(vectors, dtype=np.float32)
    if target.ndim != 2 or len(target) != len(texts) or not np.isfinite(target).all():
        raise MarError(
            f"A lookup encoder is fitted to one finite vector per text; got {len(texts)} texts and an array "
            f"of shape {target.shape}."
        )
    if ridge is None and len(set(texts)) < 20:
        raise MarError(
            f"A tenth of {len(set(texts))} different texts is too few to choose the ridge penalty; give more "
            "texts, or `ridge`."
        )
    features, text_counts = dictionary(texts)
    weight = np.log1p(len(texts) / text_counts).astype(np.float32)
    matrix = design(features, texts, weight)
    bias = target.mean(axis=0)
    with tqdm(desc="fitting", unit="steps", delay=10) as bar:
        if ridge is None:
            ridge = _choose(matrix, target, texts, bar)
        parts = [slice(at, at + COLUMNS_PER_SOLVE) for at in range(0, target.shape[1], COLUMNS_PER_SOLVE)]
        solved = [solve(matrix, target[:, part] - bias[part], ridge, bar=bar) for part in parts]
    if scale is None:
        scale = _scale(target, bias)
    _LOG.info(
        "lookup encoder of %d features, ridge %g, scale %.2f, on %d texts",
        len(features), ridge, scale, len(texts),
    )  # fmt: skip
    encoder = LookupEncoder(features, target.shape[1])
    with torch.no_grad():
        encoder.embedding.weight.copy_(torch.from_numpy(np.float32(scale) * np.concatenate(solved, axis=1)))
        encoder.weight.copy_(torch.from_numpy(weight))
        encoder.bias.copy_(torch.from_numpy(bias))
    return encoder.eval()


def dictionary(
    texts: Sequence[str],
    *,
    lengths: tuple[int, int] = (1, 3),
    min_count: int = 2,
    max_features: int = 32768,
    max_length: int = 1024,
) -> tuple[Features, np.ndarray]:
    """Return the features of texts, frequent ones first, and the number of texts that each is in.

    Args:
        texts: The texts.
        lengths: Characters of the shortest and of the longest n-gram.
        min_count: Minimum number of texts that a feature must be in.
        max_features: Maximum number of features; those in the most texts are kept.
        max_length: Maximum number of characters of a text; the rest is ignored.

    Raises:
        MarError: No feature is in `min_count` texts.
    """
    rules = Features([""], lengths=lengths, max_length=max_length)
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(set(grams(normalise(text)[: rules.max_length], rules.lengths)))
    # A lone surrogate cannot be saved as UTF-8.
    storable = {
        name: count for name, count in counts.items() if name.encode(errors="ignore").decode() == name
    }
    selected = [(name, count) for name, count in storable.items() if count >= min_count]
    selected = sorted(selected, key=lambda entry: (-entry[1], entry[0]))[:max_features]
    if not selected:
        raise MarError(f"No n-gram is in {min_count} of the {len(texts)} texts; give more texts.")
    features = Features([name for name, _ in selected], lengths=lengths, max_length=max_length)
    return features, np.array([count for _, count in selected])


def design(features: Features, texts: Sequence[str], weight: np.ndarray) -> Any:
    """Return `a / |a|` of each text, a sparse matrix `(texts, features)` float32."""
    from scipy.sparse import csr_matrix  # lazy: scipy

    ends, numbers, counts = [0], [], []
    for text in texts:
        occurrences = features.counts(text)
        numbers.append(np.fromiter(occurrences.keys(), np.int32, len(occurrences)))
        counts.append(np.fromiter(occurrences.values(), np.float32, len(occurrences)))
        ends.append(ends[-1] + len(occurrences))
    columns = np.concatenate(numbers)
    values = np.sqrt(np.concatenate(counts)) * weight[columns]
    rows = np.repeat(np.arange(len(texts)), np.diff(ends))
    length = np.sqrt(np.bincount(rows, values.astype(np.float64) ** 2, minlength=len(texts)))
    values = (values / length[rows]).astype(np.float32)
    return csr_matrix((values, columns, np.array(ends)), shape=(len(texts), len(features)))


def solve(
    matrix: Any, target: np.ndarray, ridge: float, *, start: np.ndarray | None = None, bar: Any = None
) -> np.ndarray:
    """Return the ridge solution `(features, columns)` float32, all columns at once by conjugate gradients.

    Args:
        matrix: Sparse `(texts, features)`.
        target: `(texts, columns)`.
        ridge: Weight of the penalty.
        start: Where to start; default zeros.
        bar: Progress bar that counts the steps.
    """
    transposed = matrix.T.tocsr()
    right_side = (transposed @ target).astype(np.float32)
    solution = np.zeros_like(right_side) if start is None else start.copy()
    residual = right_side - (transposed @ (matrix @ solution) + np.float32(ridge) * solution)
    direction = residual.copy()
    size = np.square(residual).sum(axis=0)
    accepted = TOLERANCE**2 * np.maximum(np.square(right_side).sum(axis=0), 1e-30)
    for _ in range(MAX_STEPS):
        if (size <= accepted).all():
            break
        applied = transposed @ (matrix @ direction) + np.float32(ridge) * direction
        step = size / np.maximum((direction * applied).sum(axis=0), 1e-30)
        solution += step * direction
        residual -= step * applied
        before, size = size, np.square(residual).sum(axis=0)
        direction *= size / np.maximum(before, 1e-30)
        direction += residual
        if bar is not None:
            bar.update()
    return solution


def _scale(target: np.ndarray, mean: np.ndarray) -> float:
    """Return the default scale for vectors `(texts, dim)` with this mean."""
    spread = float(np.sqrt(np.square(target - mean).sum(axis=1).mean()))
    scale = float(np.sqrt(2) * np.linalg.norm(mean)) / max(spread, 1e-12)
    return min(max(scale, SCALES[0]), SCALES[1])


def _choose(matrix: Any, target: np.ndarray, texts: Sequence[str], bar: Any) -> float:
    """Return the ridge with the least squared error on held-out texts, in a random projection."""
    distinct = list(dict.fromkeys(texts))
    held_out = set(random.Random(0).sample(distinct, max(1, round(HELD_OUT_SHARE * len(distinct)))))
    is_held_out = np.array([text in held_out for text in texts])
    if target.shape[1] > PROJECTED_COLUMNS:
        generator = np.random.default_rng(0)
        target = target @ generator.standard_normal((target.shape[1], PROJECTED_COLUMNS), dtype=np.float32)
    target = target - target[~is_held_out].mean(axis=0)
    errors: dict[float, float] = {}
    start = None
    for ridge in RIDGES:
        start = solve(matrix[~is_held_out], target[~is_held_out], ridge, start=start, bar=bar)
        errors[ridge] = float(np.square(matrix[is_held_out] @ start - target[is_held_out]).mean())
        if errors[ridge] > min(errors.values()):
            break
    return min(errors, key=lambda ridge: errors[ridge])
