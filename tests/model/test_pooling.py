import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from byteseam.model.pooling import BUCKET, distribute, segments, select


def rows_of_boundaries(min_rows: int = 1):
    """Rows of one length whose first position is a boundary."""
    return st.integers(1, 40).flatmap(
        lambda length: st.lists(
            st.lists(st.booleans(), min_size=length - 1, max_size=length - 1).map(lambda rest: [True, *rest]),
            min_size=min_rows,
            max_size=4,
        )
    )


@given(rows_of_boundaries(), st.sampled_from([1, 3, 16]))
def test_segments_equal_a_loop(rows, bucket):
    parts = segments(torch.tensor(rows), bucket)
    for row, boundary in enumerate(rows):
        ends = [i for i, end in enumerate(boundary) if end]
        tokens = len(ends)
        assert parts.token_positions[row, :tokens].tolist() == ends
        assert parts.token_mask[row].tolist() == [s < tokens for s in range(parts.token_mask.shape[1])]
        latest = -1
        for i, end in enumerate(boundary):
            latest += end
            assert parts.segment_ids[row, i] == latest
            assert parts.token_positions[row, latest] <= i
        assert (parts.token_positions[row, tokens:] == 0).all()
    longest = max(map(sum, rows))
    assert parts.token_mask.shape[1] == -(-longest // bucket) * bucket


@given(rows_of_boundaries(), st.integers(0, 2**31))
def test_a_byte_reads_the_byte_that_ends_the_latest_token(rows, seed):
    boundary = torch.tensor(rows)
    hidden = torch.randn(*boundary.shape, 3, generator=torch.Generator().manual_seed(seed))
    parts = segments(boundary)
    read = distribute(select(hidden, parts.token_positions), parts.segment_ids)
    for row, marks in enumerate(rows):
        latest = 0
        for i, end in enumerate(marks):
            latest = i if end else latest
            assert torch.equal(read[row, i], hidden[row, latest])


def test_worked_by_hand():
    boundary = torch.tensor([[True, False, True, False], [True, False, False, False]])
    parts = segments(boundary, bucket=1)
    assert parts.segment_ids.tolist() == [[0, 0, 1, 1], [0, 0, 0, 0]]
    assert parts.token_positions.tolist() == [[0, 2], [0, 0]]
    assert parts.token_mask.tolist() == [[True, True], [True, False]]
    hidden = torch.tensor([[[1.0], [2.0], [3.0], [4.0]], [[5.0], [6.0], [7.0], [8.0]]])
    tokens = select(hidden, parts.token_positions)
    assert tokens[..., 0].tolist() == [[1.0, 3.0], [5.0, 5.0]]
    assert distribute(tokens, parts.segment_ids)[..., 0].tolist() == [[1, 1, 3, 3], [5, 5, 5, 5]]


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 33])
def test_a_boundary_everywhere_gives_every_byte_itself(length):
    parts = segments(torch.ones(2, length, dtype=torch.bool))
    hidden = torch.randn(2, length, 3)
    assert torch.equal(distribute(select(hidden, parts.token_positions), parts.segment_ids), hidden)
    assert parts.token_positions.shape[1] % BUCKET == 0
    assert parts.token_mask.sum(1).tolist() == [length, length]


@pytest.mark.parametrize("length", [1, 2, 20])
def test_no_boundary_but_the_first_gives_every_byte_the_first(length):
    boundary = torch.arange(length).expand(2, length) == 0
    parts = segments(boundary)
    hidden = torch.randn(2, length, 3)
    assert parts.token_positions.shape == (2, BUCKET)
    read = distribute(select(hidden, parts.token_positions), parts.segment_ids)
    assert torch.equal(read, hidden[:, :1].expand_as(hidden))


def test_rows_are_pooled_apart():
    boundary = torch.rand(3, 20) < 0.4
    boundary[:, 0] = True
    together = segments(boundary)
    for row in range(3):
        alone = segments(boundary[row : row + 1])
        size = alone.token_mask.shape[1]
        assert torch.equal(alone.segment_ids[0], together.segment_ids[row])
        assert torch.equal(alone.token_positions[0], together.token_positions[row, :size])


def test_indices_are_integers():
    parts = segments(torch.ones(1, 3, dtype=torch.bool))
    assert parts.segment_ids.dtype == parts.token_positions.dtype == torch.int64
    assert parts.token_mask.dtype == torch.bool


def test_gradients_go_to_the_bytes_that_end_tokens():
    boundary = torch.tensor([[True, False, False, True, False]])
    hidden = torch.zeros(1, 5, 2, requires_grad=True)
    parts = segments(boundary)
    distribute(select(hidden, parts.token_positions), parts.segment_ids).sum().backward()
    assert hidden.grad[0, :, 0].tolist() == [3.0, 0.0, 0.0, 2.0, 0.0]
