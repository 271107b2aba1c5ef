"""The moving average against one token after the other."""

import pytest
import torch

from byteseam.model.scan import moving_average, moving_average_reference


@pytest.mark.parametrize("tokens", [0, 1, 2, 3, 7, 8, 33])
def test_scan_equals_the_loop_with_gradients(tokens):
    values = torch.randn(3, tokens, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(3, tokens, dtype=torch.float64, requires_grad=True)
    found, expected = moving_average(values, weight), moving_average_reference(values, weight)
    torch.testing.assert_close(found, expected)
    if not tokens:
        return
    direction = torch.randn_like(expected)
    for one, other in zip(
        torch.autograd.grad((found * direction).sum(), (values, weight)),
        torch.autograd.grad((expected * direction).sum(), (values, weight)),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_by_hand():
    values, weight = torch.tensor([[[1.0], [2.0], [4.0]]]), torch.tensor([[1.0, 0.5, 0.25]])
    # 1; 0.5 * 2 + 0.5 * 1; 0.25 * 4 + 0.75 * 1.5
    assert moving_average(values, weight)[0, :, 0].tolist() == [1.0, 1.5, 2.125]


def test_a_weight_of_one_forgets_all_that_was_before():
    values, weight = torch.randn(1, 9, 4), torch.rand(1, 9)
    weight[0, 5] = 1.0
    other = values.clone()
    other[0, :5] += 100
    assert torch.equal(moving_average(values, weight)[0, 5:], moving_average(other, weight)[0, 5:])
