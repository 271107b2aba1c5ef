"""Random orders that are computed, not stored: a pure function of a key, in O(1) memory."""

import math

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 4
_MASK = 2**64 - 1


def mix(*words: int) -> int:
    """A hash of whole numbers, 0..2^64 - 1 (splitmix64, chained)."""
    state = 0
    for word in words:
        state = (state ^ (word & _MASK)) + 0x9E3779B97F4A7C15 & _MASK
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state


def permute(index: NDArray[np.int64], size: int, key: int) -> NDArray[np.int64]:
    """Where a random permutation of 0..size-1, chosen by ``key``, sends each index. [n] -> [n].

    A Feistel network on pairs (x, y) with x < a, y < b, where a is about the root of ``size`` and a * b just not below
    it. A round adds to one half a hash of the other, which can be undone: it is a bijection of the a * b pairs. The few
    that end up beyond ``size`` are sent on until they are inside (cycle walking).
    """
    a = math.isqrt(size - 1) + 1
    b = -(-size // a)
    values = _feistel(index.astype(np.uint64), a, b, key)
    while (outside := values >= size).any():
        values[outside] = _feistel(values[outside], a, b, key)
    return values.astype(np.int64)


def _feistel(values: NDArray[np.uint64], a: int, b: int, key: int) -> NDArray[np.uint64]:
    y, x = np.divmod(values, np.uint64(a))
    for number in range(_ROUNDS):
        word = np.uint64(mix(key, number))
        if number % 2:
            x = (x + _hash(y ^ word)) % np.uint64(a)
        else:
            y = (y + _hash(x ^ word)) % np.uint64(b)
    return y * np.uint64(a) + x


def _hash(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser, to 62 bits so that a sum with a half does not wrap around."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (values ^ (values >> np.uint64(31))) >> np.uint64(2)
