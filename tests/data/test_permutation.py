import numpy as np
import pytest

from byteseam.data.permutation import mix, permute


@pytest.mark.parametrize("size", [*range(1, 70), 97, 128, 1000, 4095, 4096, 4097, 65_537])
def test_it_is_a_bijection(size):
    for key in (0, 1, 2**64 - 1):
        order = permute(np.arange(size), size, key)
        assert order.dtype == np.int64
        assert np.array_equal(np.sort(order), np.arange(size))


def test_any_part_agrees_with_the_whole():
    whole = permute(np.arange(1003), 1003, 7)
    for start, stop in ((0, 1), (17, 500), (1002, 1003), (5, 5)):
        assert np.array_equal(permute(np.arange(start, stop), 1003, 7), whole[start:stop])


def test_huge_sizes_stay_inside():
    size = 2**40 + 3
    order = permute(np.arange(size - 1000, size), size, 5)
    assert len(np.unique(order)) == 1000
    assert order.min() >= 0
    assert order.max() < size


def test_it_looks_random():
    size, keys = 50, 2000
    orders = np.stack([permute(np.arange(size), size, mix(key)) for key in range(keys)])
    # Where an item lands, and the step to its neighbour, are spread evenly: chi-squared of 49 degrees, 5 deviations.
    for values in (orders[:, 0], orders[:, 25], (orders[:, 11] - orders[:, 10]) % size):
        counts = np.bincount(values, minlength=size)
        expected = keys / size if counts[0] else keys / (size - 1)
        used = counts if counts[0] else counts[1:]
        assert ((used - expected) ** 2 / expected).sum() < 49 + 5 * (2 * 49) ** 0.5
    fixed = (orders == np.arange(size)).sum(axis=1).mean()
    assert abs(fixed - 1) < 0.15


def test_mix_tells_words_and_their_order_apart():
    values = {mix(), mix(0), mix(1), mix(0, 0), mix(0, 1), mix(1, 0), mix(2**64 - 1), mix(-2)}
    assert len(values) == 8
    assert all(0 <= value < 2**64 for value in values)
    assert mix(3, 4) == mix(3, 4)
