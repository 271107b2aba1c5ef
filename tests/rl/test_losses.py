import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from byteseam.rl.losses import (
    bernoulli_entropy,
    bernoulli_log_prob,
    even_rate_loss,
    masked_mean,
    score_function_loss,
)

LOGITS = torch.linspace(-30, 30, 61, dtype=torch.float64)


@pytest.mark.parametrize("taken", [True, False])
def test_log_prob_is_that_of_a_bernoulli(taken):
    boundary = torch.full(LOGITS.shape, taken)
    expected = torch.distributions.Bernoulli(logits=LOGITS).log_prob(boundary.double())
    torch.testing.assert_close(bernoulli_log_prob(LOGITS, boundary), expected, rtol=1e-9, atol=1e-12)


def test_log_prob_worked_by_hand():
    logits = torch.tensor([math.log(3.0), math.log(3.0), 0.0])
    found = bernoulli_log_prob(logits, torch.tensor([True, False, True]))
    torch.testing.assert_close(found, torch.tensor([0.75, 0.25, 0.5]).log())


def test_log_prob_is_finite_and_never_positive_for_extreme_logits():
    logits = torch.tensor([-100.0, 100.0, -100.0, 100.0], requires_grad=True)
    found = bernoulli_log_prob(logits, torch.tensor([True, True, False, False]))
    assert found.tolist() == [-100.0, pytest.approx(0, abs=1e-30), pytest.approx(0, abs=1e-30), -100.0]
    assert (found <= 0).all()
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    assert gradient.tolist() == pytest.approx([1, 0, 0, -1])


def test_entropy_is_that_of_a_bernoulli_and_log_2_at_even_odds():
    torch.testing.assert_close(
        bernoulli_entropy(LOGITS), torch.distributions.Bernoulli(logits=LOGITS).entropy(), rtol=1e-6, atol=1e-9
    )
    assert bernoulli_entropy(torch.zeros(1)).item() == pytest.approx(math.log(2))


def test_masked_mean_worked_by_hand():
    values, mask = torch.tensor([1.0, 5.0, math.nan]), torch.tensor([True, True, False])
    assert masked_mean(values, mask).item() == 3.0
    assert masked_mean(values, torch.zeros(3, dtype=torch.bool)).item() == 0.0


def test_masked_values_get_no_gradient_even_where_they_are_not_numbers():
    values = torch.tensor([1.0, math.nan, math.inf], requires_grad=True)
    (gradient,) = torch.autograd.grad(masked_mean(values, torch.tensor([True, False, False])), values)
    assert gradient.tolist() == [1.0, 0.0, 0.0]


@given(st.integers(1, 30), st.integers(0, 30), st.integers(0, 2**31))
def test_means_of_parts_with_the_whole_count_add_up(length, cut, seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(length, dtype=torch.float64, generator=generator)
    mask = torch.rand(length, generator=generator) < 0.5
    count = mask.sum().double()
    parts = [masked_mean(values[part], mask[part], count) for part in (slice(0, cut), slice(cut, None))]
    torch.testing.assert_close(sum(parts), masked_mean(values, mask))


def test_score_function_loss_raises_what_was_better_and_lowers_what_was_worse():
    # Four decisions: taken and good, taken and bad, not taken and good, not taken and bad.
    logits = torch.zeros(1, 4, requires_grad=True)
    advantage = torch.tensor([[1.0, -1.0, 1.0, -1.0]])
    boundary = torch.tensor([[True, True, False, False]])
    free = torch.ones(1, 4, dtype=torch.bool)
    loss = score_function_loss(advantage, bernoulli_log_prob(logits, boundary), free)
    (gradient,) = torch.autograd.grad(loss, logits)
    # Descent goes against the gradient: up, down, down, up; each by (1 - p) * |advantage| / 4.
    assert (-gradient).tolist() == [[0.125, -0.125, -0.125, 0.125]]


def test_score_function_loss_takes_advantages_as_given():
    advantage = torch.randn(2, 3, requires_grad=True)
    log_prob = torch.randn(2, 3, requires_grad=True)
    loss = score_function_loss(advantage, log_prob, torch.ones(2, 3, dtype=torch.bool))
    assert torch.autograd.grad(loss, advantage, allow_unused=True, retain_graph=True) == (None,)
    torch.testing.assert_close(torch.autograd.grad(loss, log_prob)[0], -advantage.detach() / 6)


def test_score_function_loss_ignores_what_was_no_choice():
    log_prob = torch.randn(5, requires_grad=True)
    free = torch.tensor([False, True, True, False, True])
    (gradient,) = torch.autograd.grad(score_function_loss(torch.ones(5), log_prob, free), log_prob)
    torch.testing.assert_close(gradient, free / -3)


def test_a_bandit_learns_its_one_good_boundary():
    # Of five boundaries the third buys one nat and the others nothing.
    logits = torch.full((5,), -1.0, requires_grad=True)
    optimiser = torch.optim.SGD([logits], lr=2.0)
    free = torch.ones(64, 5, dtype=torch.bool)
    for _ in range(150):
        boundary = torch.rand(64, 5) < torch.sigmoid(logits.detach())
        advantage = (boundary[:, 2].float() - boundary[:, 2].float().mean())[:, None].expand(64, 5)
        log_prob = bernoulli_log_prob(logits.expand(64, 5), boundary)
        optimiser.zero_grad()
        score_function_loss(advantage, log_prob, free).backward()
        optimiser.step()
    probability = torch.sigmoid(logits)
    assert probability[2] > 0.9
    assert (probability[[0, 1, 3, 4]] - torch.sigmoid(torch.tensor(-1.0))).abs().max() < 0.15


@pytest.mark.parametrize(("target", "sign"), [(0.1, 1), (0.9, -1)])
def test_rate_pressure_is_the_same_on_every_free_logit(target, sign):
    logits = torch.tensor([[-5.0, 0.0, 5.0, 2.0, -1.0]], requires_grad=True)
    free = torch.tensor([[True, True, True, True, False]])
    (gradient,) = torch.autograd.grad(even_rate_loss(logits, free, target), logits)
    rate = torch.sigmoid(logits.detach())[free].mean().item()
    assert gradient[0, 4] == 0
    # Too many boundaries push the logits down: descent goes against a positive gradient.
    torch.testing.assert_close(gradient[free], torch.full((4,), (rate - target) / 4))
    assert (gradient[free].sign() == sign).all()


def test_no_rate_pressure_on_target():
    logits = torch.tensor([0.3, -0.3], requires_grad=True)
    free = torch.ones(2, dtype=torch.bool)
    (gradient,) = torch.autograd.grad(even_rate_loss(logits, free, 0.5), logits)
    assert gradient.abs().max() < 1e-7


def test_rate_losses_of_parts_add_up():
    logits = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    free = torch.rand(4, 6) < 0.6
    whole = torch.stack((torch.sigmoid(logits.detach())[free].sum(), free.sum().double()))
    parts = [even_rate_loss(logits[part], free[part], 0.2, whole) for part in (slice(0, 1), slice(1, 4))]
    torch.testing.assert_close(sum(parts), even_rate_loss(logits, free, 0.2))


def test_rate_alone_brings_the_probabilities_to_the_target():
    logits = torch.linspace(-3, 3, 20).requires_grad_()
    free = torch.ones(20, dtype=torch.bool)
    optimiser = torch.optim.SGD([logits], lr=50.0)
    for _ in range(200):
        optimiser.zero_grad()
        even_rate_loss(logits, free, 0.2).backward()
        optimiser.step()
    assert torch.sigmoid(logits).mean().item() == pytest.approx(0.2, abs=1e-3)
    # Every logit moved alike: their order and distances are what they were.
    torch.testing.assert_close(logits.diff(), torch.linspace(-3, 3, 20).diff())
