import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from byteseam.rl.returns import continues, discounted_returns


def reference(reward: Tensor, gamma: float, document_ids: Tensor) -> Tensor:
    """The definition, O(L^2): every later reward of the same document, discounted by its distance."""
    out = torch.zeros_like(reward)
    rows, length = document_ids.shape
    for row in range(rows):
        for i in range(length):
            for k in range(i, length):
                if document_ids[row, k] == document_ids[row, i]:
                    out[..., row, i] += gamma ** (k - i) * reward[..., row, k]
    return out


REWARD = torch.tensor([[1.0, 2.0, 4.0, 8.0, 16.0]])
DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1]])


@pytest.mark.parametrize(
    ("gamma", "expected"),
    [(0.0, [1.0, 2.0, 4.0, 8.0, 16.0]), (0.5, [3.0, 4.0, 4.0, 16.0, 16.0]), (1.0, [7.0, 6.0, 4.0, 24.0, 16.0])],
)
def test_worked_by_hand(gamma, expected):
    assert discounted_returns(REWARD, gamma, continues(DOCUMENTS)).tolist() == [expected]


def test_one_long_document_of_ones_is_a_geometric_series():
    ones, documents = torch.ones(1, 100, dtype=torch.float64), torch.zeros(1, 100, dtype=torch.int64)
    found = discounted_returns(ones, 0.9, continues(documents))
    expected = (1 - 0.9 ** torch.arange(100, 0, -1, dtype=torch.float64)) / (1 - 0.9)
    torch.testing.assert_close(found[0], expected)


@pytest.mark.parametrize("length", [0, 1, 2, 3, 5, 7, 8, 9, 31, 33])
@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
def test_equals_the_sum_at_odd_lengths(length, gamma):
    reward = torch.randn(3, 2, length, dtype=torch.float64)
    document_ids = (torch.rand(2, length) < 0.2).cumsum(1)
    found = discounted_returns(reward, gamma, continues(document_ids))
    torch.testing.assert_close(found, reference(reward, gamma, document_ids))


@given(st.lists(st.booleans(), max_size=20), st.floats(0, 1), st.integers(0, 2**31))
def test_equals_the_sum_wherever_documents_break(breaks, gamma, seed):
    document_ids = torch.tensor([breaks], dtype=torch.int64).reshape(1, -1).cumsum(1)
    reward = torch.randn(1, len(breaks), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    found = discounted_returns(reward, gamma, continues(document_ids))
    torch.testing.assert_close(found, reference(reward, gamma, document_ids))


def test_continues_worked_by_hand():
    assert continues(torch.tensor([[0, 0, 1, 2, 2], [5, 5, 5, 5, 5]])).tolist() == [
        [True, False, False, True, False],
        [True, True, True, True, False],
    ]


@pytest.mark.parametrize("length", [0, 1])
def test_nothing_continues_in_the_shortest_rows(length):
    assert continues(torch.zeros(2, length, dtype=torch.int64)).tolist() == [[False] * length] * 2


def test_a_return_knows_no_earlier_reward():
    before = discounted_returns(torch.zeros(1, 9), 0.9, continues(torch.zeros(1, 9, dtype=torch.int64)))
    reward = torch.zeros(1, 9)
    reward[0, 4] = 1
    after = discounted_returns(reward, 0.9, continues(torch.zeros(1, 9, dtype=torch.int64)))
    assert ((after != before)[0].nonzero()[:, 0] == torch.arange(5)).all()


def test_arguments_are_left_alone():
    reward, mask = torch.randn(2, 6), torch.ones(2, 6, dtype=torch.bool)
    kept = reward.clone(), mask.clone()
    discounted_returns(reward, 0.9, mask)
    assert torch.equal(reward, kept[0])
    assert torch.equal(mask, kept[1])
