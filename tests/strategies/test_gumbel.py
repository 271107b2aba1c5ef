"""Relaxed draws, mean pooling and the binomial prior, each against something obvious."""

import pytest
import torch
from tiny import TINY_MODEL, packed
from torch.distributions import Binomial

from byteseam.language_model import LanguageModel
from byteseam.model.pooling import MeanPooling, segments
from byteseam.model.unet import document_starts
from byteseam.strategies import Gumbel
from byteseam.strategies.gumbel import BoundaryMLP, binomial_prior_loss
from byteseam.types import Batch, Decision, Encoded


def decided(strategy: Gumbel, uniforms: torch.Tensor, batch: Batch) -> Decision:
    torch.manual_seed(3)
    policy = strategy.build(8)
    with torch.no_grad():
        policy.outer.weight.mul_(20)
    hidden = torch.randn(*batch.byte_ids.shape, 8)
    return strategy.decide(policy, Encoded(hidden, hidden), batch, uniforms)


def test_a_hard_draw_is_bernoulli_and_where_the_relaxed_one_exceeds_a_half():
    batch = packed(b"abcdefghij" * 30)
    uniforms = torch.rand(batch.byte_ids.shape)
    decision = decided(Gumbel(temperature=0.3), uniforms, batch)
    free = decision.free
    assert torch.equal(decision.boundary[free], (uniforms < torch.sigmoid(decision.logits))[free])
    assert torch.equal(decision.boundary[free], (decision.relaxed > 0.5)[free])
    assert 0.05 < decision.boundary[free].float().mean() < 0.95


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_the_relaxed_value_by_hand(temperature):
    batch = packed(b"ab")
    decision = decided(Gumbel(temperature=temperature), torch.tensor([[0.9, 0.25, 0.5]]), batch)
    # The noise of a uniform u is log((1 - u) / u): log 3 for 0.25, 0 for a half.
    noise = torch.tensor([1.0986123, 0.0])
    torch.testing.assert_close(decision.relaxed[0, 1:], torch.sigmoid((decision.logits[0, 1:] + noise) / temperature))
    assert decision.relaxed[0, 0] == 1


def test_the_mlp_starts_near_the_rate():
    mlp = BoundaryMLP(64, 0.2)
    assert torch.sigmoid(mlp(torch.randn(50, 40, 64))).mean().item() == pytest.approx(0.2, abs=0.05)


def pooled(hidden, boundary, relaxed, document_ids):
    pooling = MeanPooling(hidden.shape[-1])
    return pooling, pooling.down(hidden, segments(boundary, starts=document_starts(document_ids), relaxed=relaxed))


def test_a_token_is_the_mean_of_its_bytes_and_a_documents_first_the_null_vector():
    batch = packed(b"abcdefg", b"", b"xyz")
    boundary = document_starts(batch.document_ids) | (torch.rand(batch.byte_ids.shape) < 0.4)
    hidden = torch.randn(*boundary.shape, 6)
    pooling, tokens = pooled(hidden, boundary, None, batch.document_ids)
    starts = document_starts(batch.document_ids)[0].tolist()
    begun = number = 0
    for place, ends in enumerate(boundary[0].tolist()):
        if not ends:
            continue
        expected = pooling.null if starts[place] else hidden[0, begun : place + 1].mean(0)
        torch.testing.assert_close(tokens[0, number], expected)
        begun, number = place + 1, number + 1
    assert not tokens[0, number:].any()


def test_the_gradient_is_that_of_the_papers_dense_formula():
    length, width = 23, 4
    boundary = (torch.rand(1, length) < 0.3) | (torch.arange(length) == 0)
    hidden = torch.randn(1, length, width)
    relaxed = torch.rand(1, length, requires_grad=True)
    document_ids = torch.zeros(1, length, dtype=torch.int64)
    _, tokens = pooled(hidden, boundary, relaxed, document_ids)
    direction = torch.randn_like(tokens)
    direction[:, 0] = 0  # the null vector
    (found,) = torch.autograd.grad((tokens * direction).sum(), relaxed)

    # Nawrot's: [L, S] distances between a segment's number and the boundaries before a byte; where they are zero the
    # byte belongs to it with weight 1 - distance, normalised along the segment.
    ended = boundary.float() + relaxed - relaxed.detach()
    distance = torch.arange(int(boundary.sum())) - (ended.cumsum(1) - ended)[0, :, None]
    weight = (1 - distance) * (distance.detach().round() == 0)
    dense = torch.einsum("ls,ld->sd", weight / (weight.sum(0) + 1e-9), hidden[0])
    (expected,) = torch.autograd.grad((dense * direction[0, : len(dense)]).sum(), relaxed)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert found.abs().max() > 0.01


def test_counts_stay_exact_beyond_what_bf16_can_count():
    boundary = torch.ones(1, 1500, dtype=torch.bool)
    hidden = torch.randn(1, 1500, 2)
    with torch.autocast("cpu", torch.bfloat16):
        _, tokens = pooled(hidden, boundary, torch.rand(1, 1500), torch.zeros(1, 1500, dtype=torch.int64))
    torch.testing.assert_close(tokens[0, 1:1500], hidden[0, 1:])


def decision_of(boundary, free=None):
    boundary = torch.as_tensor(boundary)
    free = torch.ones_like(boundary) if free is None else free
    relaxed = torch.full(boundary.shape, 0.3, requires_grad=True)
    return Decision(boundary, free, torch.zeros(boundary.shape), relaxed)


@pytest.mark.parametrize(("hits", "nats_a_byte"), [(0, 0.223), (1000, 0.0037), (5000, 1.61)])
def test_the_prior_by_hand(hits, nats_a_byte):
    boundary = torch.arange(5000)[None] < hits
    found = binomial_prior_loss(decision_of(boundary), 0.2, torch.tensor(5000.0)).item()
    # At a rate of 0 it is -log 0.8, at a rate of 1 -log 0.2.
    assert found == pytest.approx(0.0008 if hits == 1000 else nats_a_byte, abs=1e-3)
    expected = -Binomial(5000, torch.tensor(0.2)).log_prob(torch.tensor(float(hits))) / 5000
    assert found == pytest.approx(expected.item(), rel=1e-3)


def test_the_prior_of_parts_adds_up_and_pulls_towards_the_rate():
    boundary, free = torch.rand(6, 40) < 0.5, torch.rand(6, 40) < 0.9
    count = free.sum().float()
    whole = binomial_prior_loss(decision_of(boundary, free), 0.2, count)
    parts = [
        binomial_prior_loss(decision_of(boundary[part], free[part]), 0.2, count) for part in (slice(2), slice(2, 6))
    ]
    torch.testing.assert_close(whole, sum(parts))
    many = decision_of(boundary, free)
    binomial_prior_loss(many, 0.2, count).backward()
    assert (many.relaxed.grad[free] > 0).all(), "fewer boundaries"
    assert not many.relaxed.grad[~free].any()


def test_what_boundaries_are_worth_reaches_the_policy():
    strategy = Gumbel(bytes_per_token=3, rate_weight=0.0)
    model, batch = LanguageModel(TINY_MODEL, strategy), packed(b"to be or not to be, that is")
    _, rollout = model(strategy, batch, torch.rand(batch.byte_ids.shape))
    rollout.nll.sum().backward()
    assert all(each.grad is not None and each.grad.abs().sum() > 0 for each in model.policy.parameters())
    assert model.pooling.null.grad.abs().sum() > 0
