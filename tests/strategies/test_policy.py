import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from byteseam.model.unet import document_starts
from byteseam.strategies.policy import BoundaryPolicy

WIDTH = 8


def lively(window: int, *, divisor: float = 2.0, cap: float = 6.0, rate: float = 0.3) -> BoundaryPolicy:
    """A policy with opinions: one that starts at zero is too tame to show anything."""
    policy = BoundaryPolicy(WIDTH, window, rate, divisor, cap)
    with torch.no_grad():
        policy.linear.weight.normal_(std=1.5)
        policy.linear.bias.normal_(std=1.5)
    return policy


def run(policy: BoundaryPolicy, document_ids: Tensor, hidden: Tensor | None = None, uniforms: Tensor | None = None):
    hidden = torch.randn(*document_ids.shape, WIDTH) if hidden is None else hidden
    uniforms = torch.rand(document_ids.shape) if uniforms is None else uniforms
    mask = torch.ones_like(document_ids, dtype=torch.bool)
    return policy(hidden, document_ids, mask, uniforms), hidden, uniforms


def by_hand(policy: BoundaryPolicy, taps: Tensor, document_ids: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """(boundaries, log-odds) drawn one after the other in plain Python, float64."""
    rows, length, window = taps.shape
    boundary = torch.zeros(rows, length, dtype=torch.bool)
    logits = torch.zeros(rows, length, dtype=torch.float64)
    for row in range(rows):
        for i in range(length):
            raw = float(taps[row, i, 0])
            for back in range(1, window):
                if i - back >= 0 and document_ids[row, i - back] == document_ids[row, i]:
                    raw += float(taps[row, i, back]) * float(boundary[row, i - back])
            value = policy.cap * math.tanh((raw / policy.divisor + policy.offset) / policy.cap)
            logits[row, i] = value
            first = i == 0 or document_ids[row, i] != document_ids[row, i - 1]
            boundary[row, i] = first or float(uniforms[row, i]) < 1 / (1 + math.exp(-value))
    return boundary, logits


@pytest.mark.parametrize("window", [1, 4])
@pytest.mark.parametrize("rate", [0.05, 0.2, 0.5, 0.9])
def test_every_probability_starts_at_the_target_rate(window, rate):
    policy = BoundaryPolicy(WIDTH, window, rate, 16.0, 100.0)
    decision, _, _ = run(policy, torch.zeros(2, 9, dtype=torch.int64))
    # A cap of 100 bends log(19) by less than 1e-3.
    torch.testing.assert_close(torch.sigmoid(decision.logits), torch.full((2, 9), rate), rtol=0, atol=2e-4)


def test_the_start_at_the_default_cap_is_off_by_the_cap_alone():
    policy = BoundaryPolicy(WIDTH, 1, 0.2, 16.0, 6.0)
    decision, _, _ = run(policy, torch.zeros(1, 3, dtype=torch.int64))
    assert decision.logits.flatten().tolist() == pytest.approx([6 * math.tanh(math.log(0.25) / 6)] * 3)


@pytest.mark.parametrize("rate", [1.0, 1e-9])
def test_rates_at_the_ends_stay_finite(rate):
    decision, _, _ = run(BoundaryPolicy(WIDTH, 1, rate, 16.0, 6.0), torch.zeros(1, 3, dtype=torch.int64))
    assert decision.logits.isfinite().all()
    assert (torch.sigmoid(decision.logits) > 0.99).all() if rate == 1 else (torch.sigmoid(decision.logits) < 0.01).all()


@given(st.integers(1, 6), st.lists(st.booleans(), min_size=1, max_size=14), st.integers(0, 2**31))
def test_sampling_and_recomputing_give_one_log_probability(window, breaks, seed):
    torch.manual_seed(seed)
    policy = lively(window)
    document_ids = torch.tensor([breaks, breaks[::-1]]).cumsum(1)
    decision, hidden, uniforms = run(policy, document_ids)
    boundary, logits = by_hand(policy, policy.taps(hidden).detach(), document_ids, uniforms)
    assert torch.equal(decision.boundary, boundary)
    torch.testing.assert_close(decision.logits.detach().double(), logits, rtol=1e-5, atol=1e-5)
    # Every draw follows, exactly and in fp32, from the recomputed log-odds.
    drawn = uniforms < torch.sigmoid(decision.logits.detach())
    assert torch.equal(decision.boundary, drawn | document_starts(document_ids))


def test_the_scan_equals_the_vectorised_pass_without_history():
    policy, document_ids = lively(1), torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    decision, hidden, uniforms = run(policy, document_ids)
    scanned = policy.scan(policy.taps(hidden), document_ids, document_starts(document_ids), uniforms)
    assert torch.equal(scanned, decision.boundary)


def test_history_matters_within_its_window_and_a_document():
    policy, document_ids = lively(3), torch.tensor([[0, 0, 0, 0, 1, 1, 1]])
    taps = policy.taps(torch.randn(1, 7, WIDTH))
    boundary = torch.tensor([[True, False, False, True, True, False, False]])
    before = policy.log_odds_given(taps, boundary, document_ids)
    flipped = boundary.clone()
    flipped[0, 1] = True
    after = policy.log_odds_given(taps, flipped, document_ids)
    assert (before != after)[0].tolist() == [False, False, True, True, False, False, False]
    flipped = boundary.clone()
    flipped[0, 3] = False  # the last of its document
    assert torch.equal(policy.log_odds_given(taps, flipped, document_ids), before)


def test_forced_boundaries_are_history_as_they_were():
    policy = lively(2)
    with torch.no_grad():
        policy.linear.weight.zero_()
        policy.linear.bias.copy_(torch.tensor([-40.0, 80.0]))  # a boundary if and only if the last was one
    decision, _, _ = run(policy, torch.tensor([[0, 0, 0, 0, 1, 1]]))
    assert decision.boundary.all(), "the document mark starts the chain"
    with torch.no_grad():
        policy.linear.bias.copy_(torch.tensor([40.0, -80.0]))  # a boundary if and only if the last was none
    decision, _, _ = run(policy, torch.tensor([[0, 0, 0, 0, 1, 1]]))
    assert decision.boundary[0].tolist() == [True, False, True, False, True, False]
    assert decision.free[0].tolist() == [False, True, True, True, False, True]


def test_log_odds_worked_by_hand():
    policy = BoundaryPolicy(WIDTH, 3, 0.5, 2.0, 1e4)  # offset 0, and a cap that does not bend
    taps = torch.tensor([[[1.0, 9.0, 9.0], [2.0, 4.0, 9.0], [3.0, 6.0, 10.0], [4.0, 8.0, 12.0]]])
    boundary = torch.tensor([[True, False, True, False]])
    found = policy.log_odds_given(taps, boundary, torch.zeros(1, 4, dtype=torch.int64))
    # Raw: 1; 2 + 4 (a[0]); 3 + 10 (a[0]); 4 + 8 (a[2]); halved.
    torch.testing.assert_close(found, torch.tensor([[0.5, 3.0, 6.5, 6.0]]), rtol=1e-4, atol=1e-4)


def test_the_cap_holds_and_the_divisor_divides():
    policy = lively(1, cap=2.0)
    raw = torch.tensor([-1e6, -1.0, 0.0, 1.0, 1e6])
    assert policy.squash(raw).abs().max() <= 2.0
    assert policy.squash(raw).diff().min() > 0
    gentle, steep = lively(1, divisor=16.0, cap=1e4), lively(1, divisor=4.0, cap=1e4)
    slopes = [(each.squash(torch.tensor(1.0)) - each.squash(torch.tensor(0.0))).item() for each in (gentle, steep)]
    assert slopes == pytest.approx([1 / 16, 1 / 4], rel=1e-2)


def test_bernoulli_draws_come_at_their_probabilities():
    policy, document_ids = lively(3), torch.zeros(1, 4, dtype=torch.int64)
    hidden = torch.randn(1, 4, WIDTH)
    repeated = document_ids.expand(20_000, 4)
    decision, _, _ = run(policy, repeated, hidden.expand(20_000, 4, WIDTH))
    log_prob = torch.nn.functional.logsigmoid(decision.logits.where(decision.boundary, -decision.logits))
    probability = log_prob.detach()[:, 1:].sum(1).exp().double()
    # Each of the eight segmentations as often as the product of its decisions' probabilities says.
    code = (decision.boundary[:, 1:] * torch.tensor([4, 2, 1])).sum(1)
    for segmentation in range(8):
        chosen = code == segmentation
        if not chosen.any():
            continue
        expected = probability[chosen][0].item()
        error = math.sqrt(expected * (1 - expected) / 20_000)
        assert abs(chosen.double().mean().item() - expected) < 4.5 * error


@pytest.mark.parametrize("window", [1, 3])
def test_everything_is_fp32_and_differentiable_under_autocast(window):
    policy, document_ids = lively(window), torch.zeros(1, 9, dtype=torch.int64)
    hidden, uniforms = torch.randn(1, 9, WIDTH).bfloat16(), torch.rand(1, 9)
    with torch.autocast("cpu", torch.bfloat16):
        decision, _, _ = run(policy, document_ids, hidden, uniforms)
    plain, _, _ = run(policy, document_ids, hidden.float(), uniforms)
    assert decision.logits.dtype == torch.float32
    assert torch.equal(decision.logits, plain.logits)
    assert torch.equal(decision.boundary, plain.boundary)
    decision.logits.sum().backward()
    assert policy.linear.weight.grad.abs().sum() > 0
    assert policy.norm.weight.grad.abs().sum() > 0


def test_padding_is_no_choice():
    policy, document_ids = lively(1), torch.tensor([[0, 0, 0, 1, 1]])
    mask = torch.tensor([[True, True, True, False, False]])
    decision = policy(torch.randn(1, 5, WIDTH), document_ids, mask, torch.rand(1, 5))
    assert decision.free[0].tolist() == [False, True, True, False, False]
