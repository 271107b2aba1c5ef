import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from byteseam.rl.baselines import leave_one_out_over_rollouts, leave_one_out_over_rows


def totals(returns, mask):
    """(sum, number) over the rows that have a target."""
    return returns.where(mask, 0.0).sum(0), mask.sum(0).to(returns.dtype)


def test_rollouts_worked_by_hand():
    returns = torch.tensor([1.0, 2.0, 6.0]).reshape(3, 1, 1)
    assert leave_one_out_over_rollouts(returns).flatten().tolist() == [4.0, 3.5, 1.5]


@pytest.mark.parametrize("rollouts", [2, 3, 8])
def test_rollouts_equal_a_loop(rollouts):
    returns = torch.randn(rollouts, 2, 5, dtype=torch.float64)
    baseline = leave_one_out_over_rollouts(returns)
    for k in range(rollouts):
        others = torch.stack([returns[j] for j in range(rollouts) if j != k])
        torch.testing.assert_close(baseline[k], others.mean(0))


def test_advantages_over_rollouts_add_up_to_nothing():
    returns = torch.randn(4, 3, 5, dtype=torch.float64)
    advantage = returns - leave_one_out_over_rollouts(returns)
    torch.testing.assert_close(advantage.sum(0), torch.zeros(3, 5, dtype=torch.float64))


@pytest.mark.parametrize("rollouts", [0, 1])
def test_one_rollout_has_no_others(rollouts):
    with pytest.raises(ValueError, match=f"at least 2 rollouts, not {rollouts}"):
        leave_one_out_over_rollouts(torch.zeros(rollouts, 2, 3))


def test_rows_worked_by_hand():
    # Column 0: all three rows. Column 1: the last row has no target. Column 2: the first row alone.
    returns = torch.tensor([[1.0, 4.0, 9.0], [2.0, 6.0, 50.0], [6.0, 70.0, 60.0]])
    mask = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
    baseline = leave_one_out_over_rows(returns, mask, *totals(returns, mask))
    assert baseline[mask].tolist() == [4.0, 6.0, 9.0, 3.5, 4.0, 1.5]


@given(st.integers(1, 5), st.integers(0, 7), st.integers(0, 2**31))
def test_rows_equal_a_loop(rows, length, seed):
    generator = torch.Generator().manual_seed(seed)
    returns = torch.randn(rows, length, dtype=torch.float64, generator=generator)
    mask = torch.rand(rows, length, generator=generator) < 0.7
    baseline = leave_one_out_over_rows(returns, mask, *totals(returns, mask))
    for row, place in mask.nonzero().tolist():
        others = [returns[other, place] for other in range(rows) if other != row and mask[other, place]]
        expected = torch.stack(others).mean() if others else returns[row, place]
        torch.testing.assert_close(baseline[row, place], expected)


def test_a_batch_of_one_has_no_advantage():
    returns, mask = torch.randn(1, 6), torch.ones(1, 6, dtype=torch.bool)
    assert torch.equal(leave_one_out_over_rows(returns, mask, *totals(returns, mask)), returns)


def test_parts_of_a_batch_get_the_baselines_of_the_whole():
    returns, mask = torch.randn(6, 5, dtype=torch.float64), torch.rand(6, 5) < 0.7
    whole = totals(returns, mask)
    parts = [leave_one_out_over_rows(returns[part], mask[part], *whole) for part in (slice(0, 1), slice(1, 6))]
    torch.testing.assert_close(torch.cat(parts), leave_one_out_over_rows(returns, mask, *whole))


@pytest.mark.parametrize("over", ["rollouts", "rows"])
def test_a_baseline_never_sees_its_own_return(over):
    def baseline(returns):
        if over == "rollouts":
            return leave_one_out_over_rollouts(returns[:, None])[:, 0]
        mask = torch.ones(3, 4, dtype=torch.bool)
        return leave_one_out_over_rows(returns, mask, *totals(returns, mask))

    returns = torch.randn(3, 4, dtype=torch.float64)
    changed = returns.clone()
    changed[1] += 10
    torch.testing.assert_close(baseline(changed)[1], baseline(returns)[1])
    torch.testing.assert_close(baseline(changed)[0], baseline(returns)[0] + 5)
