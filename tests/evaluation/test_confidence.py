import numpy as np
import pytest

from byteseam.evaluation.confidence import paired_difference_interval, ratio_interval


def test_the_interval_of_equal_documents_is_a_point() -> None:
    interval = ratio_interval([4.0, 8.0, 2.0], [2, 4, 1], seed=0)
    assert interval is not None
    assert (interval.value, interval.low, interval.high, interval.level) == (2, 2, 2, 0.95)


def test_two_documents_worked_by_hand() -> None:
    # Draws: (a, a) 1/1 with probability 1/4, (a, b) or (b, a) 4/3 with 1/2, (b, b) 3/2 with 1/4.
    wide = ratio_interval([1, 3], [1, 2], level=0.95, seed=1)
    narrow = ratio_interval([1, 3], [1, 2], level=0.3, seed=1)
    assert wide is not None
    assert narrow is not None
    assert wide.value == pytest.approx(4 / 3)
    assert (wide.low, wide.high) == (1, 1.5)
    assert (narrow.low, narrow.high) == (pytest.approx(4 / 3), pytest.approx(4 / 3))


def test_one_document_or_none_has_no_interval() -> None:
    assert ratio_interval([3.0], [2], seed=0) is None
    assert ratio_interval([], [], seed=0) is None
    assert ratio_interval([3.0, 0.0], [2, 0], seed=0) is None  # an empty document tells nothing
    assert paired_difference_interval([1, 1], [1, 1], [1, 1], [0, 0], seed=0) is None


def test_it_covers_the_truth_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for trial in range(200):
        counts = generator.integers(50, 500, size=60)
        totals = counts * generator.normal(2.0, 0.3, size=60)
        interval = ratio_interval(totals, counts, level=0.9, resamples=300, seed=trial)
        assert interval is not None
        covered += interval.low <= 2.0 <= interval.high
    assert 165 <= covered <= 194  # 180 expected, standard deviation 4.2


def test_the_seed_decides() -> None:
    totals, counts = np.random.default_rng(0).random((2, 30))
    assert ratio_interval(totals, counts, seed=3) == ratio_interval(totals, counts, seed=3)
    assert ratio_interval(totals, counts, seed=3) != ratio_interval(totals, counts, seed=4)


def test_chunks_draw_what_one_piece_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    totals, counts = np.random.default_rng(0).random((2, 30))
    whole = ratio_interval(totals, counts, resamples=100, seed=3)
    monkeypatch.setattr("byteseam.evaluation.confidence._CHUNK", 7 * 30)
    assert ratio_interval(totals, counts, resamples=100, seed=3) == whole


def test_pairing_removes_what_both_sides_share() -> None:
    generator = np.random.default_rng(0)
    counts = generator.integers(50, 500, size=40)
    hardness = generator.normal(2.0, 0.5, size=40)
    first, second = counts * hardness, counts * (hardness + 0.01)
    paired = paired_difference_interval(first, counts, second, counts, seed=0)
    alone = ratio_interval(first, counts, seed=0)
    assert paired is not None
    assert alone is not None
    assert paired.value == pytest.approx(-0.01)
    assert paired.high < 0
    assert paired.high - paired.low < 0.01 * (alone.high - alone.low)


def test_a_paired_difference_of_ratios_with_unequal_counts() -> None:
    paired = paired_difference_interval([2, 4], [1, 2], [1, 3], [1, 3], seed=0)
    assert paired is not None
    assert (paired.value, paired.low, paired.high) == (1, 1, 1)


def test_draws_without_any_count_on_one_side_are_left_out() -> None:
    paired = paired_difference_interval([2, 4], [1, 2], [1, 0], [1, 0], seed=0)
    assert paired is not None
    assert (paired.low, paired.high) == (1, 1)


@pytest.mark.parametrize(
    ("totals", "counts", "settings"),
    [
        ([1, 2], [1], {}),
        ([[1, 2]], [[1, 2]], {}),
        ([1, float("nan")], [1, 1], {}),
        ([1, 1], [1, -1], {}),
        ([1, 1], [1, 1], {"level": 1.0}),
        ([1, 1], [1, 1], {"level": 0.0}),
        ([1, 1], [1, 1], {"resamples": 0}),
    ],
)
def test_what_is_refused(totals: list[float], counts: list[float], settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must|need"):
        ratio_interval(totals, counts, seed=0, **settings)  # type: ignore[arg-type]


def test_ten_thousand_documents() -> None:
    totals, counts = np.random.default_rng(0).random((2, 10_000))
    interval = ratio_interval(totals, counts, seed=0)
    assert interval is not None
    assert interval.low < interval.value < interval.high
