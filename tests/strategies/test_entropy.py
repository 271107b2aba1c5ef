"""Boundaries where the next byte is hard to tell, and the threshold that holds the rate."""

import math

import pytest
import torch
from tiny import TINY_MODEL

from byteseam.language_model import LanguageModel
from byteseam.strategies import Entropy
from byteseam.strategies.entropy import Threshold, next_byte_entropy
from byteseam.training.objective import objective
from byteseam.types import DOCUMENT_MARK, VOCABULARY, Batch, Encoded


def one_row(length: int) -> Batch:
    ids = torch.full((1, length), 97)
    ids[0, 0] = DOCUMENT_MARK
    return Batch(ids, ids, torch.ones_like(ids, dtype=torch.bool), torch.zeros_like(ids))


def logits_of(*choices: int) -> torch.Tensor:
    """Early-exit logits under which so many bytes are equally likely, position by position."""
    logits = torch.full((1, len(choices), VOCABULARY), -1e4)
    for place, count in enumerate(choices):
        logits[0, place, :count] = 0
    return logits


def test_the_entropy_by_hand():
    found = next_byte_entropy(logits_of(1, 2, 257))
    torch.testing.assert_close(found, torch.tensor([[0.0, math.log(2), math.log(257)]]))


@pytest.mark.parametrize(
    ("rule", "expected"), [("absolute", [True, False, True, True]), ("relative", [True, False, True, False])]
)
def test_both_rules(rule, expected):
    # Entropies 0, log 2, log 16, log 16; the threshold lies between the first two.
    strategy, policy = Entropy(rule=rule), Threshold(1.0)
    encoded = Encoded(torch.zeros(1, 4, 2), logits_of(1, 2, 16, 16))
    decision = strategy.decide(policy, encoded, one_row(4), torch.full((1, 4), 0.5))
    assert decision.boundary[0].tolist() == expected
    # Another number is another threshold: that of a boundary's log-odds.
    everywhere = strategy.decide(policy, encoded, one_row(4), torch.full((1, 4), 1e-6))
    assert everywhere.boundary.all()


@pytest.mark.parametrize(("bytes_per_token", "rises"), [(20.0, True), (1.01, False)])
def test_the_threshold_moves_towards_the_rate_and_nothing_else_does(bytes_per_token, rises):
    strategy = Entropy(bytes_per_token=bytes_per_token)
    model = LanguageModel(TINY_MODEL, strategy)
    with torch.no_grad():
        # Half the decisions are boundaries.
        model.unet.early_head.linear.weight.mul_(20)
        batch = Batch(
            *(each.repeat(4, 8) for each in (one_row(5).byte_ids,) * 2),
            *[torch.ones(4, 40).bool()] * 1,
            torch.zeros(4, 40, dtype=torch.int64),
        )
        batch.byte_ids.random_(0, 256)
        model.policy.value.copy_(next_byte_entropy(model.encode(batch).early_logits).median())
    loss, metrics = objective(model, strategy, batch, torch.rand(1, 4, 40), early_exit_weight=0.0)
    loss.backward()
    assert (model.policy.value.grad.item() < 0) == rises
    assert metrics["entropy_threshold"][0] / metrics["entropy_threshold"][1] == pytest.approx(model.policy.value.item())
    assert model.unet.early_head.linear.weight.grad is None or not model.unet.early_head.linear.weight.grad.any()


def test_the_weight_scales_the_pressure():
    gradients = []
    for weight in (1.0, 3.0):
        torch.manual_seed(0)
        strategy = Entropy(rate_weight=weight)
        model = LanguageModel(TINY_MODEL, strategy)
        loss, _ = objective(model, strategy, one_row(9), torch.rand(1, 1, 9), early_exit_weight=0.0)
        loss.backward()
        gradients.append(model.policy.value.grad.item())
    assert gradients[1] == pytest.approx(3 * gradients[0])
    assert gradients[0]


def test_it_is_stored_with_the_model():
    assert "policy.value" in LanguageModel(TINY_MODEL, Entropy()).state_dict()
