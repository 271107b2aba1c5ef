"""How sure a ratio over documents is: bits per byte, a rate, any sum of parts over a sum of counts.

Bytes of one document are no independent draws, documents nearly are; so whole documents are drawn again, with
replacement (percentile bootstrap). With few documents (under about 20) such intervals are too narrow.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

_CHUNK = 1 << 20  # draws held at once


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and where it lies with probability ``level``, in the value's own unit."""

    value: float
    low: float
    high: float
    level: float


def ratio_interval(
    totals: ArrayLike, counts: ArrayLike, *, level: float = 0.95, resamples: int = 2000, seed: int
) -> Interval | None:
    """An interval of ``sum(totals) / sum(counts)``, one entry a document (say bits, and bytes).

    None with fewer than two documents that count anything. The same seed gives the same interval. Raises ValueError
    for entries of unequal number, not finite, or a count below zero, for ``level`` outside (0, 1) and for ``resamples``
    below 1.
    """
    columns = _documents(totals, counts)
    return _interval(columns, lambda sums: sums[0] / sums[1], level, resamples, seed)


def paired_difference_interval(
    totals: ArrayLike,
    counts: ArrayLike,
    other_totals: ArrayLike,
    other_counts: ArrayLike,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int,
) -> Interval | None:
    """An interval of ``sum(totals) / sum(counts) - sum(other_totals) / sum(other_counts)`` over the SAME documents.

    Both sides are drawn together, so what makes a document hard for both cancels; an interval below zero means that the
    first is smaller. Otherwise as `ratio_interval`.
    """
    columns = _documents(totals, counts, other_totals, other_counts)
    return _interval(columns, lambda sums: sums[0] / sums[1] - sums[2] / sums[3], level, resamples, seed)


def _documents(*columns: ArrayLike) -> NDArray[np.float64]:
    """[columns, documents]: totals and counts in turn, without the documents that count nothing on any side."""
    arrays = [np.asarray(column, np.float64) for column in columns]
    if any(array.ndim != 1 or array.shape != arrays[0].shape for array in arrays):
        raise ValueError(f"need one entry a document, not shapes {[array.shape for array in arrays]}")
    stacked = np.stack(arrays)
    counts = stacked[1::2]
    if not np.isfinite(stacked).all() or (counts < 0).any():
        raise ValueError("totals and counts must be finite, counts not below zero")
    return stacked[:, (counts > 0).any(0)]


def _interval(
    columns: NDArray[np.float64],
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    level: float,
    resamples: int,
    seed: int,
) -> Interval | None:
    if not 0 < level < 1 or resamples < 1:
        raise ValueError(f"level must lie in (0, 1) and resamples be at least 1, not {level} and {resamples}")
    documents = columns.shape[1]
    if documents < 2 or (columns[1::2].sum(1) == 0).any():
        return None
    generator = np.random.default_rng(seed)
    rows = max(_CHUNK // documents, 1)
    sums = np.concatenate(
        [
            columns[:, generator.integers(documents, size=(min(rows, resamples - done), documents))].sum(2)
            for done in range(0, resamples, rows)
        ],
        axis=1,
    )
    drawn = statistic(sums[:, (sums[1::2] > 0).all(0)])  # a side without any count has no ratio
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(statistic(columns.sum(1))), float(low), float(high), level)
