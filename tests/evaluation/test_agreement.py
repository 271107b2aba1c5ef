import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byteseam.evaluation.agreement import Match, agreement, match
from byteseam.types import Mean


def share(total: float, count: float) -> Mean:
    return Mean(float(total), float(count))


def document(text: str, marks: str) -> tuple[np.ndarray, np.ndarray]:
    """A text and, below each byte, ``|`` where a boundary is."""
    data = np.frombuffer(text.encode(), np.uint8)
    return data, np.array([mark == "|" for mark in marks.ljust(len(data))])


def test_worked_by_hand() -> None:
    # Words with white space after them: "to", "be,", "or". White space: three bytes. Boundaries: o, space, comma, n.
    found = agreement(
        *document(
            "to be, or not",
            " ||  |    |",
        )
    )
    assert found.whitespace_boundary_share == share(1, 3)  # the first space
    assert found.word_end_share == share(2, 3)  # "to" (twice over, counted once) and "be,"; "or" has none
    assert found.boundary_whitespace_share == share(1, 4)
    assert found.boundary_word_end_share == share(3, 4)  # all but the one after n
    assert found.boundary_inside_character_share == share(0, 4)


def test_a_boundary_before_the_space_is_a_word_end_but_not_on_white_space() -> None:
    found = agreement(*document("ab cd ef", " |  |"))
    assert found.values() == {
        "whitespace_boundary_share": 0,
        "word_end_share": 1,
        "boundary_whitespace_share": 0,
        "boundary_word_end_share": 1,
        "boundary_inside_character_share": 0,
    }


def test_a_run_of_white_space_ends_its_word_on_its_first_byte_only() -> None:
    found = agreement(*document("ab\r\n\tcd", "   ||"))
    assert found.word_end_share == share(0, 1)
    assert found.whitespace_boundary_share == share(2, 3)
    assert found.boundary_word_end_share == share(2, 2)


def test_the_last_word_counts_only_with_white_space_after_it() -> None:
    assert agreement(*document("ab", " |")).word_end_share == share(0, 0)
    assert agreement(*document("ab", " |")).boundary_word_end_share == share(0, 1)
    assert agreement(*document("ab ", " |")).word_end_share == share(1, 1)


def test_boundaries_inside_characters() -> None:
    # é is two bytes, € three; the boundaries fall after é's first, é's last, €'s second byte and the invalid byte.
    data = np.frombuffer("é€".encode() + b"\xff", np.uint8)
    found = agreement(data, np.array([1, 1, 0, 1, 0, 1], bool))
    assert found.boundary_inside_character_share == share(2, 4)


def test_nothing_to_count_is_nan_and_adds_nothing() -> None:
    empty = agreement(np.zeros(0, np.uint8), np.zeros(0, bool))
    assert all(np.isnan(value) for value in empty.values().values())
    something = agreement(*document("a b", " |"))
    assert something + empty == something


@given(st.binary(max_size=30), st.integers(0, 2**30 - 1))
def test_shares_of_documents_add_up_and_agree_with_a_loop(data: bytes, bits: int) -> None:
    array = np.frombuffer(data, np.uint8)
    boundary = np.array([bits >> at & 1 for at in range(len(data))], bool)
    white = [value in b"\t\n\v\f\r " for value in data]
    words = [at for at in range(len(data) - 1) if not white[at] and white[at + 1]]
    found = agreement(array, boundary)
    assert found.word_end_share == share(sum(bool(boundary[at] or boundary[at + 1]) for at in words), len(words))
    assert found.whitespace_boundary_share == share(
        sum(boundary[at] for at in range(len(data)) if white[at]), sum(white)
    )
    ends = sum(white[at] or at in words for at in range(len(data)) if boundary[at])
    assert found.boundary_word_end_share == share(ends, boundary.sum())
    doubled = found + found
    assert doubled.word_end_share == share(2 * found.word_end_share.total, 2 * len(words))


def test_match_worked_by_hand() -> None:
    found = match(np.array([1, 1, 0, 0, 1], bool), np.array([1, 0, 0, 1, 0], bool))
    assert found == Match(hits=1, found=3, gold=2)
    assert (found.precision, found.recall) == (share(1, 3), share(1, 2))
    assert found.f1 == share(2, 5)
    both = found + Match(hits=2, found=2, gold=2)
    precision, recall = both.precision.value, both.recall.value
    assert both.f1.value == pytest.approx(2 * precision * recall / (precision + recall))


def test_no_boundaries_at_all_have_no_f1() -> None:
    assert np.isnan(match(np.zeros(3, bool), np.zeros(3, bool)).f1.value)


def test_arrays_of_another_shape_or_type_are_refused() -> None:
    with pytest.raises(ValueError, match="one length"):
        agreement(np.zeros(3, np.uint8), np.zeros(2, bool))
    with pytest.raises(ValueError, match="one length"):
        match(np.zeros((1, 2), bool), np.zeros((1, 2), bool))
    with pytest.raises(ValueError, match="bool"):
        agreement(np.zeros(3, np.uint8), np.zeros(3, np.int64))  # type: ignore[arg-type]


def test_arguments_are_left_alone() -> None:
    data, boundary = document("a b c", " ||")
    before = boundary.copy()
    agreement(data, boundary)
    assert (boundary == before).all()
